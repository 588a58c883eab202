# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Queue and index entries of eligible records of a commit log: the compiled part of recovery.

One step in place of several of the general path, for consecutive eligible records of one file. Any
other bytes end the bulk before anything is written, and are read by the general path:

    read_one                 proto/record/record_check.py      check_record
    find_properties          proto/record/properties.py        parse_properties
    note_keys                store/index/index_keys.py        index_keys
    PlainRecords.read        store/append/dispatch.py          read_back
    PlainRecords.write       store/index/index_file.py        IndexFile.put

Every read is between a position and an end that was compared with the written part; lengths are
`Py_ssize_t`, and none is added to another before it was compared with the remaining bytes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memcpy

from rocketpy.proto.record.record import HOST_FLAGS, MAGIC_V1
from rocketpy.proto.record.sys_flag import TRANSACTION_COMMIT, TRANSACTION_MASK
from rocketpy.proto.topic_names import SCHEDULE_TOPIC

cdef extern from *:
    """
    #ifndef ROCKETPY_SOURCES
    #define ROCKETPY_SOURCES ""
    #endif
    """
    const char* ROCKETPY_SOURCES

SOURCES = <bytes>ROCKETPY_SOURCES  # `rocketpy.compiled_module` compares it with those beside it

include "../../broker/fast_path/_plain_sends_text.pxi"
include "../../broker/fast_path/_plain_sends_crc.pxi"

cdef enum:
    MAGIC_AT = 4
    CRC_AT = 8
    QUEUE_ID_AT = 12
    QUEUE_OFFSET_AT = 20
    PHY_OFFSET_AT = 28
    SYS_FLAG_AT = 36
    STORED_AT = 56
    BODY_SIZE_AT = 84
    HEAD_BYTES = 88  # of the fixed part up to the body, with IPv4 hosts
    TAIL_BYTES = 3  # lengths of the topic and of the properties
    NAME_END = 1
    PAIR_END = 2
    QUEUE_ENTRY_BYTES = 20
    INDEX_HEADER_BYTES = 40
    INDEX_SLOT_BYTES = 4
    INDEX_ENTRY_BYTES = 20
    MOST_SECONDS = 0x7FFFFFFF
    MOST_TOPIC_BYTES = 255
    # Limits of one bulk: they bound its memory, and the time of one call.
    MOST_RECORDS = 8192
    MOST_GROUPS = 64  # a byte of `owners` is enough, and the search is short
    MOST_KEYS = 65536
    MOST_DELAYS = 256
    MOST_DIGITS = 9  # of a delay level
    UNKNOWN_DELAY_MS = 1000

cdef uint32_t magic_v1 = MAGIC_V1 & 0xFFFFFFFF
cdef uint32_t host_flags = HOST_FLAGS
cdef uint32_t transaction_bits = TRANSACTION_MASK
cdef uint32_t commit_bits = TRANSACTION_COMMIT
cdef bytes schedule_name = SCHEDULE_TOPIC.encode()
cdef Text schedule_topic = text_of(schedule_name)


cdef struct Group:
    # The messages of one queue in a bulk.
    uint8_t topic[MOST_TOPIC_BYTES]
    Py_ssize_t topic_size
    uint32_t hash_start  # of the topic and what lies between it and a key
    int32_t queue_id
    int64_t first_offset, next_offset, first_phy, last_phy, phy_end
    Py_ssize_t count

cdef struct Found:
    Text uniq_key, keys, tags, delay


cdef class PlainRecords:
    """Reader of the eligible records at the start of some bytes; reused for the next ones.

    Attributes:
        count: records.
        key_count: entries for the index.
        end: position after the last record.
        last_ms: store time of the last record.
    """

    cdef Group* groups
    cdef uint8_t* entries
    cdef uint8_t* owners
    cdef uint32_t* hashes
    cdef int64_t* phy_offsets
    cdef int64_t* times_ms
    cdef Py_ssize_t group_count
    cdef int64_t delays_ms[MOST_DELAYS]
    cdef Py_ssize_t delay_count
    cdef readonly Py_ssize_t count, key_count, end
    cdef readonly int64_t last_ms

    def __cinit__(self):
        self.groups = <Group*>malloc(MOST_GROUPS * sizeof(Group))
        self.entries = <uint8_t*>malloc(MOST_RECORDS * QUEUE_ENTRY_BYTES)
        self.owners = <uint8_t*>malloc(MOST_RECORDS)
        self.hashes = <uint32_t*>malloc(MOST_KEYS * sizeof(uint32_t))
        self.phy_offsets = <int64_t*>malloc(MOST_KEYS * sizeof(int64_t))
        self.times_ms = <int64_t*>malloc(MOST_KEYS * sizeof(int64_t))
        if (
            self.groups == NULL or self.entries == NULL or self.owners == NULL
            or self.hashes == NULL or self.phy_offsets == NULL or self.times_ms == NULL
        ):
            raise MemoryError

    def __dealloc__(self):
        free(self.groups)
        free(self.entries)
        free(self.owners)
        free(self.hashes)
        free(self.phy_offsets)
        free(self.times_ms)

    def know_delays(self, delays_ms):
        """Read delayed messages as well, whose entries have the delivery time.

        Args:
            delays_ms: delay of each level, level 1 first.
        """
        self.delay_count = 0
        for delay_ms in delays_ms if len(delays_ms) <= MOST_DELAYS else ():
            self.delays_ms[self.delay_count] = delay_ms
            self.delay_count += 1

    def read(
        self, view, Py_ssize_t position, Py_ssize_t end, int64_t base_offset,
        bint check_crc, int64_t index_from,
    ):
        """Read records until one is not eligible; return their number."""
        cdef Py_buffer data
        cdef Py_ssize_t size
        self.count = self.key_count = self.group_count = 0
        self.end = position
        self.last_ms = 0
        # Held while the bytes are read: the file cannot be unmapped meanwhile.
        PyObject_GetBuffer(view, &data, PyBUF_SIMPLE)
        try:
            if not 0 <= position <= end <= data.len or not 0 <= base_offset <= INT64_MAX - data.len:
                raise ValueError("positions outside the file")
            with nogil:
                while self.count < MOST_RECORDS:
                    size = self.read_one(
                        <Bytes>data.buf + self.end, end - self.end, base_offset + self.end,
                        check_crc, index_from,
                    )
                    if size == 0:
                        break
                    self.end += size
        finally:
            PyBuffer_Release(&data)
        return self.count

    cdef Py_ssize_t read_one(
        self, Bytes p, Py_ssize_t left, int64_t phy_offset, bint check_crc, int64_t index_from
    ) noexcept nogil:
        """Read one record; return its size, 0 when it is invalid or not eligible."""
        cdef Py_ssize_t size, body_size, topic_at, topic_end
        cdef int64_t stored_ms, code
        cdef uint32_t flags
        cdef Text topic, properties
        cdef Group* group
        cdef Found found
        # Before any field is read.
        if left < HEAD_BYTES + TAIL_BYTES:
            return 0
        size = <int32_t>get_int(p)
        body_size = <int32_t>get_int(p + BODY_SIZE_AT)
        stored_ms = get_long(p + STORED_AT)
        flags = get_int(p + SYS_FLAG_AT)
        if (
            get_int(p + MAGIC_AT) != magic_v1
            or not HEAD_BYTES + TAIL_BYTES <= size <= left
            or not 0 <= body_size <= size - HEAD_BYTES - TAIL_BYTES
            or get_long(p + PHY_OFFSET_AT) != phy_offset
            or flags & host_flags
            or (flags & transaction_bits and flags & transaction_bits != commit_bits)
            or stored_ms < self.last_ms  # the clock was set back: the general path handles it
        ):
            return 0
        topic_at = HEAD_BYTES + body_size + 1
        # The byte lies before the tail, whose size was part of the check above.
        topic_end = topic_at + p[topic_at - 1]
        if topic_end == topic_at or topic_end > size - 2 or p[topic_end] > 0x7F:
            return 0
        if get_short(p + topic_end) != size - topic_end - 2:
            return 0
        topic.at, topic.size, topic.escaped = p + topic_at, topic_end - topic_at, False
        properties.at, properties.size = p + topic_end + 2, size - topic_end - 2
        if not is_utf8(topic.at, topic.size) or not is_utf8(properties.at, properties.size):
            return 0
        # After the cheap checks: the body is most of a record.
        if check_crc and body_size and body_crc(p + HEAD_BYTES, body_size) != get_int(p + CRC_AT):
            return 0
        find_properties(properties.at, properties.at + properties.size, &found)
        code = tags_code_of(&found)
        if same(&topic, &schedule_topic):
            # Without the delay levels the entry cannot be computed here.
            if self.delay_count == 0:
                return 0
            code = self.delivery_time(&found, stored_ms, code)
        group = self.group_of(
            &topic, <int32_t>get_int(p + QUEUE_ID_AT), get_long(p + QUEUE_OFFSET_AT), phy_offset
        )
        if group == NULL:
            return 0
        # Before the entry: a record without room for its keys must leave no trace.
        if phy_offset >= index_from and not self.note_keys(group, &found, phy_offset, stored_ms):
            return 0
        self.add_entry(group, phy_offset, size, code)
        self.last_ms = stored_ms
        return size

    cdef int64_t delivery_time(
        self, Found* found, int64_t stored_ms, int64_t tags_code
    ) noexcept nogil:
        """Return the tags code of a delayed message: its delivery time."""
        cdef Py_ssize_t number, level = 0
        if found.delay.at == NULL:
            return tags_code
        for number in range(found.delay.size):
            if not c"0" <= found.delay.at[number] <= c"9":
                return tags_code
            # Bounded, so that the level does not overflow.
            if number < MOST_DIGITS:
                level = level * 10 + found.delay.at[number] - c"0"
        if level < 1:
            return stored_ms + UNKNOWN_DELAY_MS
        return stored_ms + self.delays_ms[min(level, self.delay_count) - 1]

    cdef Group* group_of(
        self, Text* topic, int32_t queue_id, int64_t queue_offset, int64_t phy_offset
    ) noexcept nogil:
        """Find or start the group of a message; NULL when it does not follow the others in it."""
        cdef Py_ssize_t number
        cdef Group* group
        # Below the maximum, so that the next offset does not overflow.
        if queue_id < 0 or not 0 <= queue_offset < INT64_MAX:
            return NULL
        for number in range(self.group_count):
            group = &self.groups[number]
            if (
                group.queue_id == queue_id and group.topic_size == topic.size
                and memcmp(group.topic, topic.at, topic.size) == 0
            ):
                return group if group.next_offset == queue_offset else NULL
        if self.group_count == MOST_GROUPS:
            return NULL
        group = &self.groups[self.group_count]
        memcpy(group.topic, topic.at, topic.size)
        group.topic_size = topic.size
        group.hash_start = string_hash(0, topic.at, topic.size) * 31 + c"#"
        group.queue_id = queue_id
        group.first_offset = group.next_offset = queue_offset
        group.first_phy = phy_offset
        group.count = 0
        return group

    cdef bint note_keys(
        self, Group* group, Found* found, int64_t phy_offset, int64_t stored_ms
    ) noexcept nogil:
        """Note the index keys of a message; return False when there is no room for them."""
        cdef Py_ssize_t count = self.key_count
        cdef Bytes p = found.keys.at
        cdef Bytes end
        cdef Bytes key_end
        cdef uint32_t start = group.hash_start
        if found.uniq_key.at != NULL:
            if count == MOST_KEYS:
                return False
            self.hashes[count] = index_hash(
                string_hash(start, found.uniq_key.at, found.uniq_key.size)
            )
            count += 1
        if p != NULL:
            end = p + found.keys.size
            while p < end:
                key_end = <Bytes>memchr(p, c" ", end - p)
                if key_end == NULL:
                    key_end = end
                if key_end > p:
                    if count == MOST_KEYS:
                        return False
                    self.hashes[count] = index_hash(string_hash(start, p, key_end - p))
                    count += 1
                if key_end == end:
                    break
                p = key_end + 1
        if found.tags.at != NULL:
            if count == MOST_KEYS:
                return False
            start = (start * 31 + c"T") * 31 + c"#"
            self.hashes[count] = index_hash(string_hash(start, found.tags.at, found.tags.size))
            count += 1
        # Only now, when all keys of the message have room.
        while self.key_count < count:
            self.phy_offsets[self.key_count] = phy_offset
            self.times_ms[self.key_count] = stored_ms
            self.key_count += 1
        return True

    cdef void add_entry(
        self, Group* group, int64_t phy_offset, Py_ssize_t size, int64_t code
    ) noexcept nogil:
        cdef uint8_t* entry = self.entries + self.count * QUEUE_ENTRY_BYTES
        cdef Py_ssize_t number = group - self.groups
        put_long(entry, <uint64_t>phy_offset)
        put_int(entry + 8, <uint32_t>size)
        put_long(entry + 12, <uint64_t>code)
        self.owners[self.count] = <uint8_t>number
        self.count += 1
        # A group counts from its first entry on: its first record may have been refused.
        if number == self.group_count:
            self.group_count += 1
        group.next_offset += 1
        group.last_phy = phy_offset
        group.phy_end = phy_offset + size
        group.count += 1

    def queues(self):
        """Return the fields of `bulk_recovery.QueueRun` for each queue, in their order."""
        cdef uint8_t* to[MOST_GROUPS]
        cdef Py_ssize_t number
        cdef Group* group
        found = []
        for number in range(self.group_count):
            group = &self.groups[number]
            entries = PyBytes_FromStringAndSize(NULL, group.count * QUEUE_ENTRY_BYTES)
            to[number] = <uint8_t*>PyBytes_AsString(entries)
            found.append((
                (<char*>group.topic)[:group.topic_size].decode(), group.queue_id,
                group.first_offset, entries, group.first_phy, group.last_phy, group.phy_end,
            ))
        for number in range(self.count):
            memcpy(
                to[self.owners[number]], self.entries + number * QUEUE_ENTRY_BYTES,
                QUEUE_ENTRY_BYTES,
            )
            to[self.owners[number]] += QUEUE_ENTRY_BYTES
        return found

    def place(self, Py_ssize_t first):
        """Return physical offset and store time of the message of a key."""
        self.expect(first, 1)
        return self.phy_offsets[first], self.times_ms[first]

    def keys_of_message(self, Py_ssize_t first):
        """Return the hashes from a key on that belong to the same message."""
        self.expect(first, 1)
        cdef Py_ssize_t stop = first
        while stop < self.key_count and self.phy_offsets[stop] == self.phy_offsets[first]:
            stop += 1
        return [self.hashes[number] for number in range(first, stop)]

    def write(
        self, buffer, Py_ssize_t slots, Py_ssize_t entries_at, Py_ssize_t first_entry,
        int64_t begin_ms, Py_ssize_t first, Py_ssize_t count,
    ):
        """Write index entries of some keys and their slots; return how many slots were unused."""
        cdef Py_buffer file
        cdef Py_ssize_t added = 0
        self.expect(first, count)
        PyObject_GetBuffer(buffer, &file, PyBUF_WRITABLE)
        try:
            if (
                not 0 < slots <= (file.len - INDEX_HEADER_BYTES) // INDEX_SLOT_BYTES
                or entries_at != INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * slots
                or not 0 < first_entry <= (file.len - entries_at) // INDEX_ENTRY_BYTES - count
            ):
                raise ValueError("entries outside the file")
            with nogil:
                added = self.write_keys(
                    <uint8_t*>file.buf, <uint32_t>slots, entries_at, first_entry, begin_ms, first,
                    first + count,
                )
        finally:
            PyBuffer_Release(&file)
        return added

    cdef int expect(self, Py_ssize_t first, Py_ssize_t count) except -1:
        if first < 0 or not 0 < count <= self.key_count - first:
            raise ValueError("there are not so many keys")
        return 0

    cdef Py_ssize_t write_keys(
        self, uint8_t* file, uint32_t slots, Py_ssize_t entries_at, Py_ssize_t number,
        int64_t begin_ms, Py_ssize_t first, Py_ssize_t stop,
    ) noexcept nogil:
        cdef Py_ssize_t at, added = 0
        cdef int32_t previous
        cdef uint64_t seconds
        cdef uint8_t* slot
        cdef uint8_t* entry = file + entries_at + INDEX_ENTRY_BYTES * number
        for at in range(first, stop):
            seconds = 0
            if self.times_ms[at] > begin_ms:
                seconds = (<uint64_t>self.times_ms[at] - <uint64_t>begin_ms) // 1000
                if seconds > MOST_SECONDS:
                    seconds = MOST_SECONDS
            slot = file + INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (self.hashes[at] % slots)
            # A slot that refers to no earlier entry is unused, or damaged.
            previous = <int32_t>get_int(slot)
            if not 0 < previous < number:
                previous = 0
                added += 1
            put_int(entry, self.hashes[at])
            put_long(entry + 4, <uint64_t>self.phy_offsets[at])
            put_int(entry + 12, <uint32_t>seconds)
            put_int(entry + 16, <uint32_t>previous)
            # The entry first: a slot must not refer to an unwritten one.
            put_int(slot, <uint32_t>number)
            entry += INDEX_ENTRY_BYTES
            number += 1
        return added


cdef int64_t tags_code_of(Found* found) noexcept nogil:
    if found.tags.at == NULL:
        return 0
    return <int64_t><int32_t>string_hash(0, found.tags.at, found.tags.size)


cdef void find_properties(Bytes p, Bytes end, Found* found) noexcept nogil:
    """Find the properties for queue and index; of several with one name the last one counts."""
    cdef Bytes pair_end
    cdef Bytes name_end
    cdef Text name, value
    found.uniq_key.at = found.keys.at = found.tags.at = found.delay.at = NULL
    name.escaped = value.escaped = False
    while p < end:
        pair_end = <Bytes>memchr(p, PAIR_END, end - p)
        if pair_end == NULL:
            pair_end = end
        name_end = <Bytes>memchr(p, NAME_END, pair_end - p)
        if name_end != NULL and name_end > p and pair_end - name_end > 1:
            name.at, name.size = p, name_end - p
            value.at, value.size = name_end + 1, pair_end - name_end - 1
            if equals(&name, b"UNIQ_KEY", 8):
                found.uniq_key = value
            elif equals(&name, b"KEYS", 4):
                found.keys = value
            elif equals(&name, b"TAGS", 4):
                found.tags = value
            elif equals(&name, b"DELAY", 5):
                found.delay = value
        if pair_end == end:
            break
        p = pair_end + 1
