# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Plain records to the buffers of Arrow columns, without Python for a row: the compiled decoder.

It does for plain records what `heads`, `properties` and `fast_rows` do with numpy, and nothing
else; which ones it leaves to others is told (`Rows.odd`). `compiled_rows` makes arrays of it.

Three steps: the lengths of all bodies are added up (`Rows`); every record is read and checked, its
fixed fields and its body are written, what follows the body is copied to where those of all records
lie side by side, and where its parts lie there is noted (`Rows.read`); then texts are copied from
there, column by column. Records lie far from each other, and more of them than fit the cache are
read between one column and the next: without that copy each column would wait for memory anew. A log
may be written while it is read: nothing that was checked is read from it again.

Every read is between a position and an end that was compared with what is there; lengths are
`Py_ssize_t`, and none is added to another before it was compared with what is left.
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

SOURCES = <bytes>ROCKETPY_SOURCES  # `rocketpy.compiled_module` compares it with those beside it

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
    MOST_PAIRS = 64
    MOST_OUTS = 16
    SLOTS = 3
    ID_BYTES = 32
    SPARE_BYTES = 16
    HEADS_AHEAD = 16
    AHEAD = 4
    CACHE_LINE = 64
    LONG_BODY = 256
    MOST_FETCHED = 4096
    COPIED_AT_ONCE = 64

SPARE = SPARE_BYTES
"""Bytes that a buffer for texts has beyond them: short ones are copied 16 bytes at a time."""

cdef int64_t MOST_MS = 0x7FFFFFFFFFFFFFFFLL // 1000
cdef uint64_t LOW_BITS = 0x7F7F7F7F7F7F7F7FULL
cdef uint64_t HIGH_BITS = 0x8080808080808080ULL
cdef uint64_t ABOVE_SEPARATORS = 0x7D7D7D7D7D7D7D7DULL  # added to a byte above 2 sets its high bit
cdef uint64_t BLANKS = 0x2020202020202020ULL
cdef uint32_t MAGIC = MAGIC_V1 & 0xFFFFFFFF
cdef uint32_t NOT_PLAIN = HOST_FLAGS | COMPRESSED

if (FIXED_BYTES, MIN_RECORD_BYTES) != (HEAD_BYTES + 2, HEAD_BYTES + TAIL_BYTES):
    raise ImportError("records have another layout")

cdef struct Row:
    int64_t at  # of the record, in the data
    int64_t tail_at  # of its topic, in `tails`
    int32_t topic_size
    int32_t pair_count
    int32_t slots[SLOTS]  # which of its pairs has this name; -1: none

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
    """Eight bytes, the first of them lowest."""
    return (
        p[0] | (<uint64_t>p[1] << 8) | (<uint64_t>p[2] << 16) | (<uint64_t>p[3] << 24)
        | (<uint64_t>p[4] << 32) | (<uint64_t>p[5] << 40) | (<uint64_t>p[6] << 48)
        | (<uint64_t>p[7] << 56)
    )

cdef inline void copy_text(uint8_t* to, Bytes p, Py_ssize_t size) noexcept nogil:
    """Copy a text to where SPARE_BYTES may be written behind it, and as many be read."""
    cdef Py_ssize_t done = 0
    if size > 64:
        memcpy(to, p, size)
        return
    while done < size:
        memcpy(to + done, p + done, SPARE_BYTES)
        done += SPARE_BYTES

cdef inline void copy_body(uint8_t* to, Bytes p, Py_ssize_t size) noexcept nogil:
    """Copy a body; of those of some KB that are not in the cache this is quicker than memcpy."""
    while size >= COPIED_AT_ONCE:
        memcpy(to, p, COPIED_AT_ONCE)
        to += COPIED_AT_ONCE
        p += COPIED_AT_ONCE
        size -= COPIED_AT_ONCE
    memcpy(to, p, size)

cdef int take_room(Py_buffer* buffer, object owner, Py_ssize_t wanted) except -1:
    """Take a buffer for writing that has so much room."""
    PyObject_GetBuffer(owner, buffer, PyBUF_WRITABLE)
    if buffer.len < wanted:
        PyBuffer_Release(buffer)
        raise ValueError(f"a buffer of {buffer.len} bytes, of {wanted} needed")
    return 0


cdef class Rows:
    """The plain ones among some records: their fixed fields, written, and where their texts lie.

    Args:
        data: anything with the buffer protocol.
        positions: int64, one after the other: where records begin, any place, also a wrong one.
        base_offset: physical offset of the first byte, which records must agree with; None: not
            compared.
        slots: names of at most three properties that are asked for with `values`; None: nobody
            asks for properties.
        text_bodies: whether a body that is no UTF-8 makes a record odd.
        check_crc: whether one that differs from its checksum does.

    Attributes:
        body_room: bytes that the bodies may have, more when records are odd.
        count: rows, once they are read.
        body_bytes: of all of them.
        topic_bytes: the same.
        pair_count: properties.
        name_bytes: of all of those.
        value_bytes: the same.

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
            raise ValueError("it is made once")
        self.has_base = base_offset is not None
        self.base_offset = base_offset if self.has_base else 0
        self.has_pairs = slots is not None
        self.text_bodies, self.check_crc = text_bodies, check_crc
        self.names = slots or ()
        if len(self.names) > SLOTS:
            raise ValueError("too many properties are asked for")
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
        """Read the records; once.

        Args:
            fixed: (position in the record, kind, buffer) of each fixed field that is wanted, the
                kind one of `int`, `long`, `time`, `host`: 4, 8, 8 and 8 bytes a row.
            offsets: for an int32 a record, and one, of where the bodies lie; None: not wanted.
            bodies: for `body_room` bytes; None with `offsets`.
        """
        cdef Py_buffer places, texts
        cdef bint done
        if self.rows != NULL or len(fixed) > MOST_OUTS:
            raise ValueError("it is read once, and not so many fields")
        self.rows = <Row*>malloc((self.total + 1) * sizeof(Row))
        self.is_odd = <uint8_t*>malloc(self.total + 1)
        self.tails = <uint8_t*>malloc(self.tail_room + 2 * SPARE_BYTES)
        self.tail_bytes = SPARE_BYTES  # eight bytes before a text may be read with it
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
            self.let_outs_go()
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
                raise ValueError("no field lies there")
            take_room(&out.buffer, buffer, self.total * (4 if out.kind == AS_INT else 8))
            self.out_count += 1
        return 0

    cdef void let_outs_go(self) noexcept:
        while self.out_count:
            self.out_count -= 1
            PyBuffer_Release(&self.outs[self.out_count].buffer)

    cdef Py_ssize_t body_size_at(self, int64_t at) noexcept nogil:
        """The length of the body of a record that may be one; -1 when it cannot."""
        cdef Py_ssize_t left, body_size
        if at < 0 or at > self.data.len - HEAD_BYTES - TAIL_BYTES:
            return -1
        left = <int32_t>get_int(self.start + at)
        body_size = <int32_t>get_int(self.start + at + BODY_SIZE_AT)
        if left > self.data.len - at or not 0 <= body_size <= left - HEAD_BYTES - TAIL_BYTES:
            return -1
        return body_size

    cdef void add_lengths(self) noexcept nogil:
        """Add up how much room bodies, and what follows them, take."""
        cdef Py_ssize_t number, size, tail_size
        for number in range(self.total):
            if number + HEADS_AHEAD < self.total:
                self.fetch_head(self.positions[number + HEADS_AHEAD])
            size = self.body_size_at(self.positions[number])
            if size < 0:
                continue
            if self.body_room <= 0x7FFFFFFF:
                self.body_room += size
            tail_size = self.tail_size_of(self.start + self.positions[number], size)
            if tail_size <= MOST_TAIL_BYTES:
                self.tail_room += tail_size

    cdef Py_ssize_t tail_size_of(self, Bytes p, Py_ssize_t body_size) noexcept nogil:
        """How long topic and properties are, with the length of the latter."""
        return <int32_t>get_int(p) - HEAD_BYTES - 1 - body_size

    cdef void fetch_head(self, int64_t at) noexcept nogil:
        """Let the processor fetch the lengths of a record and of its body."""
        if 0 <= at <= self.data.len - HEAD_BYTES:
            fetch_ahead(self.start + at)
            fetch_ahead(self.start + at + BODY_SIZE_AT)

    cdef bint read_all(self) noexcept nogil:
        """Read every record; False when memory ends."""
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
        """Let the processor fetch what will be read of a record."""
        cdef Py_ssize_t size = self.body_size_at(at)
        if size < 0:
            return
        fetch_ahead(self.start + at + HEAD_BYTES + size)
        fetch_ahead(self.start + at + HEAD_BYTES + size + CACHE_LINE)

    cdef void fetch_body(self, int64_t at) noexcept nogil:
        """Let it fetch a long body: it would find out by itself, at each record anew and late."""
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
        """Read a record, and note it as a row; False, with nothing noted, when it is odd."""
        cdef Py_ssize_t left, body_size, topic_size, tail_size
        cdef Row* row = &self.rows[self.count]
        cdef uint8_t* tail = self.tails + self.tail_bytes
        cdef Bytes p
        if at < 0 or at > self.data.len - HEAD_BYTES - TAIL_BYTES:
            return False
        p = self.start + at
        left = <int32_t>get_int(p)
        body_size = <int32_t>get_int(p + BODY_SIZE_AT)
        if (
            get_int(p + MAGIC_AT) != MAGIC
            or get_int(p + SYS_FLAG_AT) & NOT_PLAIN
            or left < HEAD_BYTES + TAIL_BYTES
            or left > self.data.len - at
            or not 0 <= body_size <= left - HEAD_BYTES - TAIL_BYTES
            or (self.has_base and get_long(p + PHY_OFFSET_AT) != self.base_offset + at)
            or not self.are_times(p)
        ):
            return False
        if self.bodies != NULL:
            if body_size > self.body_room - self.body_bytes:
                return False
            copy_body(self.bodies + self.body_bytes, p + HEAD_BYTES, body_size)
        tail_size = left - HEAD_BYTES - 1 - body_size
        topic_size = p[HEAD_BYTES + body_size]
        if topic_size + 2 > tail_size or tail_size > self.tail_room + SPARE_BYTES - self.tail_bytes:
            return False
        memcpy(tail, p + HEAD_BYTES + body_size + 1, tail_size if self.has_pairs else topic_size + 2)
        tail_size -= topic_size + 2  # what is left are the properties
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
        """Note the pairs of a record, which lie at `at` of its tail; False: they are not regular."""
        cdef Bytes text = self.tails + row.tail_at + at
        cdef Pair* pair = self.pairs + self.pair_count
        cdef Py_ssize_t done = 0, begin = 0, name_end = -1, place, names = 0, values = 0
        cdef uint64_t word, mask, seen = 0
        cdef uint8_t kind
        cdef int count = 0
        while done < size:
            if size - done >= 8:
                word = word_at(text + done)
            else:  # there are bytes before: other tails, or the room before the first
                word = word_at(text + size - 8) >> (8 * (8 - (size - done)))
                word |= BLANKS << (8 * (size - done))
            seen |= word
            mask = ~(((word & LOW_BITS) + ABOVE_SEPARATORS) | word) & HIGH_BITS
            while mask:
                place = done + first_set(mask)
                mask &= mask - 1
                kind = text[place]
                if kind == 0:
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
        """Find which pairs have the names asked for; False when a name comes twice."""
        cdef int number, other
        cdef Text* slot
        cdef Bytes p = self.tails + row.tail_at
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
        """Whether the names are those of the row before, in the same order."""
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

    # ---- what was read

    def odd(self):
        """Return which records are no rows, one byte a position: 1 or 0; None when all are."""
        if self.count == self.total:
            return None
        return PyBytes_FromStringAndSize(<char*>self.is_odd, self.total)

    def topics(self, offsets, values):
        """Write the topics: `count` + 1 int32 offsets, and `topic_bytes` and SPARE bytes."""
        cdef Py_buffer places, texts
        self.take_text(
            &places, &texts, offsets, values, self.count, self.topic_bytes + SPARE_BYTES
        )
        with nogil:
            self.copy_topics(<int32_t*>places.buf, <uint8_t*>texts.buf)
        PyBuffer_Release(&places)
        PyBuffer_Release(&texts)

    def slot_size(self, int slot):
        """Return how many rows have a property asked for, and how many bytes its values have."""
        if not 0 <= slot < self.slot_count:
            raise IndexError(slot)
        return self.slot_rows[slot], self.slot_bytes[slot]

    def values(self, int slot, valid, offsets, values, bint or_place):
        """Write the values of a property asked for: `count` + 1 offsets, bytes and SPARE bytes.

        Args:
            slot: its number in `slots`.
            valid: zeros, a bit a row: set where a row has it. None: not wanted.
            offsets: for int32.
            values: for `slot_size` bytes, and 32 for each row without it if `or_place`.
            or_place: whether rows without it get what names their place in the store.
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
        """Write all properties: `count` + 1 first pairs, then as texts names and values."""
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
