# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled decoder of records into the buffers of Arrow columns, without Python for each row.

It decodes common records: version 1, IPv4 hosts, uncompressed, regular properties. `Rows.odd`
returns which records it leaves out; `reference_rows` decodes those. `compiled_rows` makes arrays
from the buffers.

It works in three steps:

1. `Rows` adds up the lengths of all bodies and tails. A tail is what follows the body: topic and
   properties.
2. `Rows.read` reads and checks every record once. It writes the fixed fields and the body, copies
   the tail beside those of the other records, and notes the positions of its parts there.
3. The other methods copy texts out of the tails, column by column.

The copy of the tails saves cache misses. The records of a batch do not fit the cache, so each
column that read the records again would wait for memory at each of them.

A log may be written while it is read: no checked value is read from it a second time. Every read
is between a position and an end that was compared with the length of the data. Lengths are
`Py_ssize_t`, and each is compared with the bytes left before it is added to another.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from rocketpy.proto.record.record import FIXED_BYTES, HOST_FLAGS, MAGIC_V1, MIN_RECORD_BYTES
from rocketpy.proto.record.sys_flag import COMPRESSED

cdef extern from *:
    """
    #ifndef ROCKETPY_SOURCES
    #define ROCKETPY_SOURCES ""
    #endif
    """
    const char* ROCKETPY_SOURCES

SOURCES = <bytes>ROCKETPY_SOURCES  # `rocketpy.compiled_module` compares it with the sources found

include "../broker/fast_path/_plain_sends_text.pxi"
include "../broker/fast_path/_plain_sends_crc.pxi"

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define fetch_ahead(at) __builtin_prefetch(at)
    #define first_set(mask) (__builtin_ctzll(mask) >> 3)
    #else
    #define fetch_ahead(at) ((void)(at))
    static int first_set(uint64_t mask) {
        int at = 0;
        while (!(mask & 0xFF)) { mask >>= 8; at++; }
        return at;
    }
    #endif
    """
    void fetch_ahead(const void* at) noexcept nogil
    int first_set(uint64_t mask) noexcept nogil

cdef enum:
    HEAD_BYTES = 88  # of the fixed part up to the body, with IPv4 hosts
    TAIL_BYTES = 3  # lengths of the topic and of the properties
    BODY_SIZE_AT = 84
    MOST_TAIL_BYTES = 255 + 2 + 65535  # of a topic and properties with their length
    MAGIC_AT = 4
    PHY_OFFSET_AT = 28
    SYS_FLAG_AT = 36
    CRC_AT = 8
    BORN_AT = 40
    STORED_AT = 56
    STORE_HOST_AT = 64
    NAME_END = 1
    PAIR_END = 2
    # Duplicate names are found by comparing all pairs of names, which is quadratic: a record with
    # more properties than this is left to the reference.
    MOST_PAIRS = 64
    MOST_OUTS = 16
    SLOTS = 3
    ID_BYTES = 32
    SPARE_BYTES = 16
    # Distances of prefetches, in records. Adding up lengths takes a few instructions a record, so
    # its loads have to start earlier than those of the loop that also copies bodies.
    HEADS_AHEAD = 16
    AHEAD = 4
    CACHE_LINE = 64
    # Bodies shorter than this: prefetching them costs more instructions than it saves waiting.
    LONG_BODY = 256
    # The hardware prefetcher has recognised the sequence by then, and takes over.
    MOST_FETCHED = 4096
    COPIED_AT_ONCE = 64

SPARE = SPARE_BYTES
"""Room behind the texts of a buffer: short texts are copied 16 bytes at a time."""

# Arrow's timestamps are microseconds: later times would overflow when multiplied by 1000.
cdef int64_t MOST_MS = 0x7FFFFFFFFFFFFFFFLL // 1000
cdef uint64_t LOW_BITS = 0x7F7F7F7F7F7F7F7FULL
cdef uint64_t HIGH_BITS = 0x8080808080808080ULL
cdef uint64_t ABOVE_SEPARATORS = 0x7D7D7D7D7D7D7D7DULL  # added to a byte above 2 sets its high bit
cdef uint64_t BLANKS = 0x2020202020202020ULL
cdef uint32_t MAGIC = MAGIC_V1 & 0xFFFFFFFF
cdef uint32_t LEFT_OUT = HOST_FLAGS | COMPRESSED  # flags of records that the reference decodes

# The positions above are constants of C: a change of the layout in Python must not go unnoticed.
if (FIXED_BYTES, MIN_RECORD_BYTES) != (HEAD_BYTES + 2, HEAD_BYTES + TAIL_BYTES):
    raise ImportError("records have another layout")

cdef struct Row:
    int64_t at  # of the record, in the data
    int64_t tail_at  # of its topic, in `tails`
    int32_t topic_size
    int32_t pair_count
    int32_t slots[SLOTS]  # number of the pair with this name; -1: none

cdef struct Pair:
    int32_t name_at  # from the beginning of the topic
    uint16_t name_size
    uint16_t value_size

cdef enum Kind:
    AS_INT, AS_LONG, AS_TIME, AS_HOST

cdef struct Out:
    Py_buffer buffer
    int at
    Kind kind


cdef inline uint64_t word_at(Bytes p) noexcept nogil:
    """Return eight bytes as a little-endian word."""
    return (
        p[0] | (<uint64_t>p[1] << 8) | (<uint64_t>p[2] << 16) | (<uint64_t>p[3] << 24)
        | (<uint64_t>p[4] << 32) | (<uint64_t>p[5] << 40) | (<uint64_t>p[6] << 48)
        | (<uint64_t>p[7] << 56)
    )

cdef inline void copy_text(uint8_t* to, Bytes p, Py_ssize_t size) noexcept nogil:
    """Copy a text; SPARE_BYTES behind source and target must be readable and writable."""
    cdef Py_ssize_t done = 0
    if size > 64:
        memcpy(to, p, size)
        return
    # Copies of constant size become single instructions; a call of memcpy would cost more than
    # the copy of a short text.
    while done < size:
        memcpy(to + done, p + done, SPARE_BYTES)
        done += SPARE_BYTES

cdef inline void copy_body(uint8_t* to, Bytes p, Py_ssize_t size) noexcept nogil:
    """Copy a body; faster than one memcpy for uncached bodies of a few KB."""
    while size >= COPIED_AT_ONCE:
        memcpy(to, p, COPIED_AT_ONCE)
        to += COPIED_AT_ONCE
        p += COPIED_AT_ONCE
        size -= COPIED_AT_ONCE
    memcpy(to, p, size)

cdef int take_room(Py_buffer* buffer, object owner, Py_ssize_t wanted) except -1:
    """Get a writable buffer of at least `wanted` bytes."""
    PyObject_GetBuffer(owner, buffer, PyBUF_WRITABLE)
    if buffer.len < wanted:
        PyBuffer_Release(buffer)
        raise ValueError(f"a buffer has {buffer.len} bytes, {wanted} are needed")
    return 0


cdef class Rows:
    """Common records of a buffer: their number, and the sizes and positions of their texts.

    Args:
        data: anything with the buffer protocol.
        positions: int64, contiguous: where records begin; they need not be valid.
        base_offset: physical offset of the first byte, compared with that in each record; None:
            not compared.
        slots: names of at most three properties for `values`; None: properties are not read.
        text_bodies: leave out records with a body that is not UTF-8.
        check_crc: leave out records with a body that differs from its checksum.

    Attributes:
        body_room: upper bound of `body_bytes`, known before `read`.
        count: rows, after `read`.
        body_bytes: length of all bodies.
        topic_bytes: length of all topics.
        pair_count: number of properties.
        name_bytes: length of all their names.
        value_bytes: length of all their values.

    Raises:
        ValueError: a buffer is too small.
    """

    cdef readonly Py_ssize_t count, body_bytes, topic_bytes, pair_count, name_bytes, value_bytes
    cdef readonly Py_ssize_t body_room
    cdef Py_ssize_t total, pair_room
    cdef Py_ssize_t slot_rows[SLOTS]
    cdef Py_ssize_t slot_bytes[SLOTS]
    cdef Py_buffer data, places
    cdef const int64_t* positions
    cdef int32_t* body_places
    cdef uint8_t* bodies
    cdef Bytes start
    cdef Py_ssize_t tail_room, tail_bytes
    cdef Row* rows
    cdef uint8_t* tails
    cdef Pair* pairs
    cdef uint8_t* is_odd
    cdef Out outs[MOST_OUTS]
    cdef int out_count, slot_count
    cdef tuple names  # what `slots` points into
    cdef Text slots[SLOTS]
    cdef bint has_data, has_places, has_base, has_pairs, text_bodies, check_crc
    cdef int64_t base_offset

    def __init__(
        self, data, positions, base_offset, tuple slots, bint text_bodies, bint check_crc
    ):
        if self.has_data:
            raise ValueError("Rows is initialised once")
        self.has_base = base_offset is not None
        self.base_offset = base_offset if self.has_base else 0
        self.has_pairs = slots is not None
        self.text_bodies, self.check_crc = text_bodies, check_crc
        self.names = slots or ()
        if len(self.names) > SLOTS:
            raise ValueError("too many properties: at most three are supported")
        for name in self.names:
            self.slots[self.slot_count] = text_of(name)
            self.slot_count += 1
        PyObject_GetBuffer(data, &self.data, PyBUF_SIMPLE)
        self.has_data = True
        PyObject_GetBuffer(positions, &self.places, PyBUF_SIMPLE)
        self.has_places = True
        self.start = <Bytes>self.data.buf
        self.positions = <const int64_t*>self.places.buf
        self.total = self.places.len // <Py_ssize_t>sizeof(int64_t)
        with nogil:
            self.add_lengths()

    def __dealloc__(self):
        free(self.rows)
        free(self.tails)
        free(self.pairs)
        free(self.is_odd)
        if self.has_data:
            PyBuffer_Release(&self.data)
        if self.has_places:
            PyBuffer_Release(&self.places)

    def read(self, fixed, offsets, bodies):
        """Read the records. May be called once.

        Args:
            fixed: (position in the record, kind, buffer) of each wanted field; the kind is one of
                `int`, `long`, `time`, `host`: 4, 8, 8 and 8 bytes per row.
            offsets: buffer for the offsets of the bodies, one int32 per record and one more; None:
                bodies are not wanted.
            bodies: buffer of `body_room` bytes; None when `offsets` is None.
        """
        cdef Py_buffer places, texts
        cdef bint done
        if self.rows != NULL or len(fixed) > MOST_OUTS:
            raise ValueError("read may be called once, with at most 16 fields")
        self.rows = <Row*>malloc((self.total + 1) * sizeof(Row))
        self.is_odd = <uint8_t*>malloc(self.total + 1)
        self.tails = <uint8_t*>malloc(self.tail_room + 2 * SPARE_BYTES)
        self.tail_bytes = SPARE_BYTES  # `cut` may read eight bytes before the first tail
        if self.rows == NULL or self.is_odd == NULL or self.tails == NULL:
            raise MemoryError
        if offsets is not None:
            self.take_text(&places, &texts, offsets, bodies, self.total, self.body_room)
            self.body_places, self.bodies = <int32_t*>places.buf, <uint8_t*>texts.buf
        try:
            self.take_outs(fixed)
            with nogil:
                done = self.read_all()
            if not done:
                raise MemoryError
        finally:
            self.release_outs()
            if offsets is not None:
                PyBuffer_Release(&places)
                PyBuffer_Release(&texts)
                self.body_places, self.bodies = NULL, NULL
        if max(self.body_bytes, self.topic_bytes, self.name_bytes, self.value_bytes) > 0x7FFFFFF0:
            raise ValueError("the texts of a column have more than 2 GiB")

    cdef int take_outs(self, fixed) except -1:
        cdef Out* out
        for at, kind, buffer in fixed:
            out = &self.outs[self.out_count]
            out.at = at
            out.kind = {"int": AS_INT, "long": AS_LONG, "time": AS_TIME, "host": AS_HOST}[kind]
            if not 0 <= out.at <= HEAD_BYTES - 8:
                raise ValueError("no field has this position")
            take_room(&out.buffer, buffer, self.total * (4 if out.kind == AS_INT else 8))
            self.out_count += 1
        return 0

    cdef void release_outs(self) noexcept:
        while self.out_count:
            self.out_count -= 1
            PyBuffer_Release(&self.outs[self.out_count].buffer)

    cdef Py_ssize_t body_size_at(self, int64_t at) noexcept nogil:
        """Return the length of a record's body; -1 when the record is invalid."""
        cdef Py_ssize_t left, body_size
        if at < 0 or at > self.data.len - HEAD_BYTES - TAIL_BYTES:
            return -1
        left = <int32_t>get_int(self.start + at)
        body_size = <int32_t>get_int(self.start + at + BODY_SIZE_AT)
        if left > self.data.len - at or not 0 <= body_size <= left - HEAD_BYTES - TAIL_BYTES:
            return -1
        return body_size

    cdef void add_lengths(self) noexcept nogil:
        """Add up the lengths of bodies and tails."""
        cdef Py_ssize_t number, size, tail_size
        for number in range(self.total):
            if number + HEADS_AHEAD < self.total:
                self.fetch_head(self.positions[number + HEADS_AHEAD])
            size = self.body_size_at(self.positions[number])
            if size < 0:
                continue
            # Positions may repeat a record any number of times: the sum stops before it overflows.
            if self.body_room <= 0x7FFFFFFF:
                self.body_room += size
            tail_size = self.tail_size_of(self.start + self.positions[number], size)
            if tail_size <= MOST_TAIL_BYTES:
                self.tail_room += tail_size

    cdef Py_ssize_t tail_size_of(self, Bytes p, Py_ssize_t body_size) noexcept nogil:
        """Return the length of the topic, of the properties, and of their two-byte length."""
        return <int32_t>get_int(p) - HEAD_BYTES - 1 - body_size

    cdef void fetch_head(self, int64_t at) noexcept nogil:
        """Prefetch the lengths of a record and of its body."""
        if 0 <= at <= self.data.len - HEAD_BYTES:
            fetch_ahead(self.start + at)
            fetch_ahead(self.start + at + BODY_SIZE_AT)

    cdef bint read_all(self) noexcept nogil:
        """Read every record; return False when memory is exhausted."""
        cdef Py_ssize_t number, ahead
        cdef bint are_long = self.bodies != NULL and self.body_room > LONG_BODY * self.total
        for number in range(self.total):
            ahead = number + AHEAD
            if ahead < self.total:
                self.fetch(self.positions[ahead])
                if are_long:
                    self.fetch_body(self.positions[ahead])
            if (
                self.has_pairs
                and self.pair_room - self.pair_count < MOST_PAIRS
                and not self.more_pairs()
            ):
                return False
            self.is_odd[number] = not self.read_record(self.positions[number])
        if self.bodies != NULL:
            self.body_places[self.count] = <int32_t>self.body_bytes
        return True

    cdef void fetch(self, int64_t at) noexcept nogil:
        """Prefetch the tail of a record."""
        cdef Py_ssize_t size = self.body_size_at(at)
        if size < 0:
            return
        fetch_ahead(self.start + at + HEAD_BYTES + size)
        fetch_ahead(self.start + at + HEAD_BYTES + size + CACHE_LINE)

    cdef void fetch_body(self, int64_t at) noexcept nogil:
        """Prefetch a long body: the hardware recognises the sequence late, at each record again."""
        cdef Py_ssize_t size = self.body_size_at(at)
        cdef Bytes p = self.start + at + HEAD_BYTES
        cdef Bytes end = p + min(size, MOST_FETCHED)
        while p < end:
            fetch_ahead(p)
            p += CACHE_LINE

    cdef bint more_pairs(self) noexcept nogil:
        cdef Py_ssize_t room = self.pair_room * 2 + self.total * 4 + MOST_PAIRS
        cdef Pair* larger = <Pair*>realloc(self.pairs, room * sizeof(Pair))
        if larger == NULL:
            return False
        self.pairs, self.pair_room = larger, room
        return True

    cdef bint read_record(self, int64_t at) noexcept nogil:
        """Read a record and add it as a row; return False, without a change, to leave it out."""
        cdef Py_ssize_t left, body_size, topic_size, tail_size
        cdef Row* row = &self.rows[self.count]
        cdef uint8_t* tail = self.tails + self.tail_bytes
        cdef Bytes p
        if at < 0 or at > self.data.len - HEAD_BYTES - TAIL_BYTES:
            return False
        p = self.start + at
        # Each length is read into a local variable once and checked there: the file may be written
        # meanwhile, so a second read might return a value that was never checked.
        left = <int32_t>get_int(p)
        body_size = <int32_t>get_int(p + BODY_SIZE_AT)
        if (
            get_int(p + MAGIC_AT) != MAGIC
            or get_int(p + SYS_FLAG_AT) & LEFT_OUT
            or left < HEAD_BYTES + TAIL_BYTES
            or left > self.data.len - at
            or not 0 <= body_size <= left - HEAD_BYTES - TAIL_BYTES
            or (self.has_base and get_long(p + PHY_OFFSET_AT) != self.base_offset + at)
            or not self.are_times(p)
        ):
            return False
        if self.bodies != NULL:
            # The body may have grown since its length was added up.
            if body_size > self.body_room - self.body_bytes:
                return False
            copy_body(self.bodies + self.body_bytes, p + HEAD_BYTES, body_size)
        tail_size = left - HEAD_BYTES - 1 - body_size
        topic_size = p[HEAD_BYTES + body_size]
        if topic_size + 2 > tail_size or tail_size > self.tail_room + SPARE_BYTES - self.tail_bytes:
            return False
        memcpy(tail, p + HEAD_BYTES + body_size + 1, tail_size if self.has_pairs else topic_size + 2)
        tail_size -= topic_size + 2  # the rest are the properties
        if get_short(tail + topic_size) != tail_size or not is_utf8(tail, topic_size):
            return False
        if self.text_bodies and not is_utf8(p + HEAD_BYTES, body_size):
            return False
        if self.check_crc and body_size and body_crc(p + HEAD_BYTES, body_size) != get_int(p + CRC_AT):
            return False
        row.at, row.tail_at, row.topic_size, row.pair_count = at, self.tail_bytes, topic_size, 0
        if self.has_pairs and not self.cut(row, topic_size + 2, tail_size):
            return False
        self.write_fixed(p)
        if self.bodies != NULL:
            self.body_places[self.count] = <int32_t>self.body_bytes
        self.body_bytes += body_size
        self.topic_bytes += topic_size
        self.tail_bytes += topic_size + 2 + (tail_size if self.has_pairs else 0)
        self.count += 1
        return True

    cdef bint are_times(self, Bytes p) noexcept nogil:
        cdef int64_t born = get_long(p + BORN_AT)
        cdef int64_t stored = get_long(p + STORED_AT)
        return -MOST_MS <= born <= MOST_MS and -MOST_MS <= stored <= MOST_MS

    cdef void write_fixed(self, Bytes p) noexcept nogil:
        cdef int number
        cdef Out* out
        for number in range(self.out_count):
            out = &self.outs[number]
            if out.kind == AS_INT:
                (<int32_t*>out.buffer.buf)[self.count] = <int32_t>get_int(p + out.at)
            elif out.kind == AS_LONG:
                (<int64_t*>out.buffer.buf)[self.count] = get_long(p + out.at)
            elif out.kind == AS_TIME:
                (<int64_t*>out.buffer.buf)[self.count] = get_long(p + out.at) * 1000
            else:
                memcpy(<uint8_t*>out.buffer.buf + self.count * 8, p + out.at, 8)

    # ---- properties

    cdef bint cut(self, Row* row, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
        """Note the pairs of a record, from `at` of its tail; return False when they are irregular."""
        cdef Bytes text = self.tails + row.tail_at + at
        cdef Pair* pair = self.pairs + self.pair_count
        cdef Py_ssize_t done = 0, begin = 0, name_end = -1, place, names = 0, values = 0
        cdef uint64_t word, mask, seen = 0
        cdef uint8_t kind
        cdef int count = 0
        while done < size:
            if size - done >= 8:
                word = word_at(text + done)
            else:  # bytes before the text may be read: other tails, or the room before the first
                word = word_at(text + size - 8) >> (8 * (8 - (size - done)))
                word |= BLANKS << (8 * (size - done))
            seen |= word
            # One high bit for each byte of 0, 1 or 2: eight bytes are searched without a branch.
            mask = ~(((word & LOW_BITS) + ABOVE_SEPARATORS) | word) & HIGH_BITS
            while mask:
                place = done + first_set(mask)
                mask &= mask - 1
                kind = text[place]
                if kind == 0:  # ordinary text, which only shares the high bit
                    continue
                if name_end < 0:
                    if kind != NAME_END or place == begin:
                        return False
                    name_end = place
                    continue
                if kind != PAIR_END or place == name_end + 1 or count == MOST_PAIRS:
                    return False
                note_pair(pair + count, at, begin, name_end, place)
                names += name_end - begin
                values += place - name_end - 1
                count += 1
                begin, name_end = place + 1, -1
            done += 8
        if begin < size:  # the last separator may be missing
            if name_end < 0 or size == name_end + 1 or count == MOST_PAIRS:
                return False
            note_pair(pair + count, at, begin, name_end, size)
            names += name_end - begin
            values += size - name_end - 1
            count += 1
        if seen & HIGH_BITS and not is_utf8(text, size):
            return False
        row.pair_count = count
        if not self.find_slots(row, pair):
            return False
        self.pair_count += count
        self.name_bytes += names
        self.value_bytes += values
        self.count_slots(row, pair)
        return True

    cdef bint find_slots(self, Row* row, Pair* pairs) noexcept nogil:
        """Find the pairs with the names in `slots`; return False when a name appears twice."""
        cdef int number, other
        cdef Text* slot
        cdef Bytes p = self.tails + row.tail_at
        # Most batches come from one producer: names repeat, and then no pair of names is compared.
        if self.count and self.is_like_last(row, pairs):
            memcpy(row.slots, (row - 1).slots, sizeof(row.slots))
            return True
        for number in range(row.pair_count):
            for other in range(number):
                if is_same_name(p, pairs + number, p, pairs + other):
                    return False
        for other in range(SLOTS):
            row.slots[other] = -1
        for other in range(self.slot_count):
            slot = &self.slots[other]
            for number in range(row.pair_count):
                if pairs[number].name_size == slot.size and memcmp(
                    p + pairs[number].name_at, slot.at, slot.size
                ) == 0:
                    row.slots[other] = number
        return True

    cdef bint is_like_last(self, Row* row, Pair* pairs) noexcept nogil:
        """Return whether the names are those of the previous row, in the same order."""
        cdef Row* last = row - 1
        cdef Pair* others = pairs - last.pair_count
        cdef int number
        if last.pair_count != row.pair_count:
            return False
        for number in range(row.pair_count):
            if not is_same_name(
                self.tails + row.tail_at, pairs + number,
                self.tails + last.tail_at, others + number,
            ):
                return False
        return True

    cdef void count_slots(self, Row* row, Pair* pairs) noexcept nogil:
        cdef int number
        for number in range(self.slot_count):
            if row.slots[number] >= 0:
                self.slot_rows[number] += 1
                self.slot_bytes[number] += pairs[row.slots[number]].value_size

    # ---- columns

    def odd(self):
        """Return which records were left out, a byte of 1 or 0 each; None when none was."""
        if self.count == self.total:
            return None
        return PyBytes_FromStringAndSize(<char*>self.is_odd, self.total)

    def topics(self, offsets, values):
        """Write the topics: `count` + 1 int32 offsets; `topic_bytes` + SPARE bytes."""
        cdef Py_buffer places, texts
        self.take_text(
            &places, &texts, offsets, values, self.count, self.topic_bytes + SPARE_BYTES
        )
        with nogil:
            self.copy_topics(<int32_t*>places.buf, <uint8_t*>texts.buf)
        PyBuffer_Release(&places)
        PyBuffer_Release(&texts)

    def slot_size(self, int slot):
        """Return how many rows have the property of a slot, and the length of its values."""
        if not 0 <= slot < self.slot_count:
            raise IndexError(slot)
        return self.slot_rows[slot], self.slot_bytes[slot]

    def values(self, int slot, valid, offsets, values, bint or_place):
        """Write the values of the property of a slot.

        Args:
            slot: its number in `slots`.
            valid: zeros, a bit a row, which is set where a row has the property. None: not wanted.
            offsets: buffer of `count` + 1 int32.
            values: buffer of `slot_size` bytes, 32 for each row without the property if
                `or_place`, and SPARE bytes.
            or_place: give rows without the property their offset message id.
        """
        cdef Py_buffer places, texts, bits
        cdef uint8_t* bitmap = NULL
        cdef Py_ssize_t wanted
        rows, wanted = self.slot_size(slot)
        wanted += SPARE_BYTES + (ID_BYTES * (self.count - rows) if or_place else 0)
        if wanted > 0x7FFFFFFF:
            raise ValueError("the texts of a column have more than 2 GiB")
        self.take_text(&places, &texts, offsets, values, self.count, wanted)
        try:
            if valid is not None:
                take_room(&bits, valid, (self.count + 7) // 8)
                bitmap = <uint8_t*>bits.buf
            with nogil:
                self.copy_values(slot, bitmap, <int32_t*>places.buf, <uint8_t*>texts.buf, or_place)
        finally:
            if bitmap != NULL:
                PyBuffer_Release(&bits)
            PyBuffer_Release(&places)
            PyBuffer_Release(&texts)

    def maps(self, first, name_offsets, names, value_offsets, values):
        """Write all properties: `count` + 1 numbers of first pairs; names and values as texts."""
        cdef Py_buffer firsts, name_places, name_texts, value_places, value_texts
        take_room(&firsts, first, (self.count + 1) * sizeof(int32_t))
        try:
            self.take_text(
                &name_places, &name_texts, name_offsets, names,
                self.pair_count, self.name_bytes + SPARE_BYTES,
            )
            try:
                self.take_text(
                    &value_places, &value_texts, value_offsets, values,
                    self.pair_count, self.value_bytes + SPARE_BYTES,
                )
                with nogil:
                    self.copy_pairs(
                        <int32_t*>firsts.buf, <int32_t*>name_places.buf, <uint8_t*>name_texts.buf,
                        <int32_t*>value_places.buf, <uint8_t*>value_texts.buf,
                    )
                PyBuffer_Release(&value_places)
                PyBuffer_Release(&value_texts)
            finally:
                PyBuffer_Release(&name_places)
                PyBuffer_Release(&name_texts)
        finally:
            PyBuffer_Release(&firsts)

    cdef int take_text(
        self, Py_buffer* places, Py_buffer* texts, offsets, values, Py_ssize_t count, Py_ssize_t size
    ) except -1:
        take_room(places, offsets, (count + 1) * sizeof(int32_t))
        try:
            take_room(texts, values, size)
        except BaseException:
            PyBuffer_Release(places)
            raise
        return 0

    cdef void copy_topics(self, int32_t* places, uint8_t* to) noexcept nogil:
        cdef Py_ssize_t number, used = 0
        cdef Row* row
        for number in range(self.count):
            row = &self.rows[number]
            places[number] = <int32_t>used
            copy_text(to + used, self.tails + row.tail_at, row.topic_size)
            used += row.topic_size
        places[self.count] = <int32_t>used

    cdef void copy_values(
        self, int slot, uint8_t* valid, int32_t* places, uint8_t* to, bint or_place
    ) noexcept nogil:
        cdef Py_ssize_t number, used = 0
        cdef Row* row
        cdef Pair* pairs = self.pairs
        cdef Pair* pair
        for number in range(self.count):
            row = &self.rows[number]
            places[number] = <int32_t>used
            if row.slots[slot] >= 0:
                pair = pairs + row.slots[slot]
                copy_text(
                    to + used, self.tails + row.tail_at + pair.name_at + pair.name_size + 1,
                    pair.value_size,
                )
                used += pair.value_size
                if valid != NULL:
                    valid[number >> 3] |= 1 << (number & 7)
            elif or_place:
                add_hex(to + used, <uint64_t>get_long(self.start + row.at + STORE_HOST_AT))
                add_hex(to + used + 16, <uint64_t>get_long(self.start + row.at + PHY_OFFSET_AT))
                used += ID_BYTES
            pairs += row.pair_count
        places[self.count] = <int32_t>used

    cdef void copy_pairs(
        self, int32_t* first, int32_t* name_places, uint8_t* names,
        int32_t* value_places, uint8_t* values,
    ) noexcept nogil:
        cdef Py_ssize_t number, pair_number = 0, last, name_used = 0, value_used = 0
        cdef Bytes p
        cdef Pair* pair
        for number in range(self.count):
            p = self.tails + self.rows[number].tail_at
            first[number] = <int32_t>pair_number
            last = pair_number + self.rows[number].pair_count
            while pair_number < last:
                pair = self.pairs + pair_number
                name_places[pair_number] = <int32_t>name_used
                value_places[pair_number] = <int32_t>value_used
                copy_text(names + name_used, p + pair.name_at, pair.name_size)
                name_used += pair.name_size
                copy_text(
                    values + value_used, p + pair.name_at + pair.name_size + 1, pair.value_size
                )
                value_used += pair.value_size
                pair_number += 1
        first[self.count] = <int32_t>pair_number
        name_places[pair_number] = <int32_t>name_used
        value_places[pair_number] = <int32_t>value_used


cdef inline void note_pair(
    Pair* pair, Py_ssize_t at, Py_ssize_t begin, Py_ssize_t name_end, Py_ssize_t end
) noexcept nogil:
    pair.name_at = <int32_t>(at + begin)
    pair.name_size = <uint16_t>(name_end - begin)
    pair.value_size = <uint16_t>(end - name_end - 1)

cdef inline bint is_same_name(Bytes p, Pair* one, Bytes q, Pair* other) noexcept nogil:
    return one.name_size == other.name_size and memcmp(
        p + one.name_at, q + other.name_at, one.name_size
    ) == 0
