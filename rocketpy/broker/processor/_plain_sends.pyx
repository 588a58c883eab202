# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Plain sends among received bytes, served in one call: the compiled path of docs/decisions/0008.

It does for leading frames what these do one by one, and nothing else; whatever it does not know
ends the run, and Python serves the rest:

    read_json_header     proto/json_header.py    decode_json_header
    read_binary_header   proto/binary_header.py  decode_binary_header
    read_properties      operation/property_shapes.py    PropertyScanner.scan
    string_hash          proto/tags.py           java_string_hash, IndexKeyHasher.hash
    write_record         proto/record.py         pack_record, body_crc
    write_queue_entry    store/consume_queue.py  ConsumeQueue.put
    write_index_entries  store/index_file.py     IndexFile.put
    write_response, write_binary_response   processor/send_response.py   SendResponses.frame

Three steps: leading frames are read and checked without touching anything (`plan`); the store makes
room under its append lock (`DirectAppend.begin`), where whatever can fail fails; then bytes are
written, which cannot (`write`), and made to count (`DirectAppend.end`).

Every read of received bytes is between a position and an end that was checked; lengths are
`Py_ssize_t`, and none is added to another before it was compared with what is left.
tests/unit/broker/processor/test_plain_sends.py holds both ways to the same bytes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy

from rocketpy.proto.codes import RequestCode
from rocketpy.proto.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from rocketpy.proto.record import FIXED_BYTES, HOST_FLAGS, MAGIC_V1, MAGIC_V2, topic_field
from rocketpy.proto.sys_flag import TRANSACTION_MASK
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.store.direct_append import AppendedRun

cdef const char* HEX_DIGITS = b"0123456789ABCDEF"

cdef extern from *:
    """
    #define WRITTEN_BEFORE() __atomic_signal_fence(__ATOMIC_SEQ_CST)
    """
    void WRITTEN_BEFORE() noexcept nogil

ctypedef const uint8_t* Bytes

cdef enum:
    MAX_SENDS = 1024
    MAX_KEYS = 8192
    MAX_PLACES = 64
    MAX_TOPICS = 16
    MAX_PAIRS = 64
    MAX_EXT_FIELDS = 64
    MAX_HEADER_BYTES = 65536
    MAX_NUMBER_DIGITS = 18
    RESPONSE_PARTS = 7
    BINARY_PARTS = 6
    BINARY_FIXED_BYTES = 17
    JSON = 0
    ROCKETMQ = 1
    MOST_KEPT_BYTES = 2097152
    MOST_RESPONSE_NUMBERS = 128  # words, lengths, four decimal numbers and one in hexadecimal
    ONEWAY = 2
    V4_HOST_BYTES = 8
    QUEUE_ENTRY_BYTES = 20
    INDEX_HEADER_BYTES = 40
    INDEX_SLOT_BYTES = 4
    INDEX_ENTRY_BYTES = 20

cdef int64_t send_code = RequestCode.SEND_MESSAGE_V2
cdef int64_t transaction_bits = TRANSACTION_MASK
cdef int64_t host_bits = HOST_FLAGS
cdef Py_ssize_t most_properties = MAX_PROPERTIES_BYTES
cdef Py_ssize_t record_fixed_size = FIXED_BYTES
cdef uint32_t magic_v1 = MAGIC_V1 & 0xFFFFFFFF
cdef uint32_t magic_v2 = MAGIC_V2 & 0xFFFFFFFF

cdef struct Text:
    Bytes at
    Py_ssize_t size
    bint escaped

cdef struct Header:
    int64_t code, flag, opaque
    Text ext[26]  # by letter; `at` is NULL when it is absent

cdef struct Send:
    Py_ssize_t following  # position of the next frame
    Bytes body
    Py_ssize_t body_size
    Py_ssize_t properties, properties_size  # position in the arena
    Py_ssize_t uniq_key, uniq_key_size  # position in the arena
    int first_key, key_count
    int place
    int64_t flag, sys_flag, born_ms, reconsume_times, opaque
    bint oneway, binary
    uint32_t crc
    int64_t tags_code
    int64_t size  # of the record
    int64_t queue_offset

cdef struct Topic:
    Text name, field
    uint32_t key_hash  # of the name and "#"
    int64_t sys_flag, queue_limit

cdef struct Place:
    int topic
    int64_t queue_id
    int count
    Py_buffer tail
    bint has_tail
    uint8_t* entry  # the next one
    int room, done
    int64_t queue_offset  # of the first message of the run
    int64_t size  # of the records that are done
    int64_t phy_end

cdef struct Writer:
    uint8_t* log
    int64_t position, end, base_offset, last_phy_offset
    int64_t store_ms
    Text born_host, store_host, own_properties
    bint has_index
    uint8_t* index
    uint32_t slots, seconds
    int64_t entries_at, count, index_end, slots_used


# ---- numbers

cdef inline void put_int(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 24)
    p[1] = <uint8_t>(value >> 16)
    p[2] = <uint8_t>(value >> 8)
    p[3] = <uint8_t>value

cdef inline void put_long(uint8_t* p, uint64_t value) noexcept nogil:
    put_int(p, <uint32_t>(value >> 32))
    put_int(p + 4, <uint32_t>value)

cdef inline uint32_t get_int(Bytes p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]

cdef inline uint32_t string_hash(uint32_t value, Bytes p, Py_ssize_t size) noexcept nogil:
    """Go on with a Java string hash; the text is ASCII."""
    cdef Py_ssize_t i
    for i in range(size):
        value = value * 31 + p[i]
    return value

cdef inline uint32_t index_hash(uint32_t value) noexcept nogil:
    """What the index stores of a hash."""
    if value & 0x80000000U:
        return 0 if value == 0x80000000U else <uint32_t>(0 - value)
    return value

cdef uint32_t crc_tables[8][256]

cdef void make_crc_tables() noexcept nogil:
    cdef uint32_t value
    cdef int i, j
    for i in range(256):
        value = <uint32_t>i
        for j in range(8):
            value = (value >> 1) ^ (0xEDB88320U if value & 1 else 0)
        crc_tables[0][i] = value
    for i in range(256):
        for j in range(1, 8):
            value = crc_tables[j - 1][i]
            crc_tables[j][i] = (value >> 8) ^ crc_tables[0][value & 0xFF]

make_crc_tables()

cdef uint32_t body_crc(Bytes p, Py_ssize_t size) noexcept nogil:
    """CRC-32 as zlib has it, eight bytes at a time, without its sign bit."""
    cdef uint32_t value = 0xFFFFFFFFU
    cdef uint32_t low
    while size >= 8:
        low = value ^ (p[0] | (<uint32_t>p[1] << 8) | (<uint32_t>p[2] << 16) | (<uint32_t>p[3] << 24))
        value = (
            crc_tables[7][low & 0xFF] ^ crc_tables[6][(low >> 8) & 0xFF]
            ^ crc_tables[5][(low >> 16) & 0xFF] ^ crc_tables[4][low >> 24]
            ^ crc_tables[3][p[4]] ^ crc_tables[2][p[5]] ^ crc_tables[1][p[6]] ^ crc_tables[0][p[7]]
        )
        p += 8
        size -= 8
    while size > 0:
        value = (value >> 8) ^ crc_tables[0][(value ^ p[0]) & 0xFF]
        p += 1
        size -= 1
    return (value ^ 0xFFFFFFFFU) & 0x7FFFFFFFU


# ---- headers

cdef Bytes read_string(Bytes p, Bytes end, Text* text) noexcept nogil:
    """Read a JSON string of ASCII; return what follows it, NULL when it is not one."""
    if p >= end or p[0] != c'"':
        return NULL
    p += 1
    text.at = p
    text.escaped = False
    while p < end:
        if p[0] == c'"':
            text.size = p - text.at
            return p + 1
        if p[0] < 0x20 or p[0] > 0x7E:
            return NULL
        if p[0] == c'\\':
            text.escaped = True
            p += 1  # whatever is escaped does not end the string; `unescape` looks at it
            if p >= end or p[0] < 0x20 or p[0] > 0x7E:
                return NULL
        p += 1
    return NULL

cdef Bytes read_number(Bytes p, Bytes end, int64_t* value) noexcept nogil:
    """Read a whole number as JSON writes it; return what follows it, NULL when it is not one."""
    cdef bint negative = False
    cdef int digits = 0
    cdef int64_t found = 0
    cdef Bytes first
    if p < end and p[0] == c'-':
        negative = True
        p += 1
    first = p
    while p < end and c'0' <= p[0] <= c'9':
        if digits == MAX_NUMBER_DIGITS:
            return NULL
        found = found * 10 + (p[0] - c'0')
        digits += 1
        p += 1
    if digits == 0 or (first[0] == c'0' and (digits > 1 or negative)):
        return NULL
    value[0] = -found if negative else found
    return p

cdef inline bint is_int(int64_t value) noexcept nogil:
    return -0x80000000LL <= value <= 0x7FFFFFFFLL

cdef inline bint equals(Text* text, const char* name, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, name, size) == 0

cdef Bytes read_ext_fields(Bytes p, Bytes end, Header* header) noexcept nogil:
    cdef Text name, value
    cdef int count = 0, letter
    if p >= end or p[0] != c'{':
        return NULL
    p += 1
    while True:
        p = read_string(p, end, &name)
        if p == NULL or name.escaped or p >= end or p[0] != c':':
            return NULL
        p = read_string(p + 1, end, &value)
        if p == NULL or p >= end or count == MAX_EXT_FIELDS:
            return NULL
        count += 1
        if name.size == 1 and c'a' <= name.at[0] <= c'z':
            letter = name.at[0] - c'a'
            if header.ext[letter].at != NULL:
                return NULL
            header.ext[letter] = value
        if p[0] == c'}':
            return p + 1
        if p[0] != c',':
            return NULL
        p += 1

cdef bint read_json_header(Bytes p, Bytes end, Header* header) noexcept nogil:
    """Read the header of a plain send; False when it is anything else."""
    cdef Text name, ignored
    cdef int seen = 0, bit, letter
    cdef int64_t value = 0
    for letter in range(26):
        header.ext[letter].at = NULL
    if p >= end or p[0] != c'{':
        return False
    p += 1
    while True:
        p = read_string(p, end, &name)
        if p == NULL or name.escaped or p >= end or p[0] != c':':
            return False
        p += 1
        if equals(&name, "extFields", 9):
            bit = 1
            p = read_ext_fields(p, end, header)
        elif equals(&name, "language", 8):
            bit = 2
            p = read_string(p, end, &ignored)
        elif equals(&name, "serializeTypeCurrentRPC", 23):
            bit = 4
            p = read_string(p, end, &ignored)
        else:
            p = read_number(p, end, &value)
            if p == NULL or not is_int(value):
                return False
            if equals(&name, "code", 4):
                bit = 8
                header.code = value
                if value != send_code:
                    return False
            elif equals(&name, "flag", 4):
                bit = 16
                header.flag = value
            elif equals(&name, "opaque", 6):
                bit = 32
                header.opaque = value
            elif equals(&name, "version", 7):
                bit = 64
            else:
                return False
        if p == NULL or p >= end or seen & bit:
            return False
        seen |= bit
        if p[0] == c'}':
            # Language and serializeTypeCurrentRPC may be absent.
            return p + 1 == end and (seen & 121) == 121
        if p[0] != c',':
            return False
        p += 1

cdef inline bint is_ascii(Bytes p, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint8_t seen = 0
    for i in range(size):
        seen |= p[i]
    return seen < 0x80

cdef bint read_binary_header(Bytes p, Bytes end, Header* header) noexcept nogil:
    """Read the header of a plain send in ROCKETMQ's form; False when it is anything else."""
    cdef Py_ssize_t size
    cdef Text name, value
    cdef int letter, count = 0
    for letter in range(26):
        header.ext[letter].at = NULL
    # Code, language, version, opaque, flag, no remark, and ext fields to the end.
    if end - p < BINARY_FIXED_BYTES + 4 or <int64_t>((p[0] << 8) | p[1]) != send_code:
        return False
    header.code = send_code
    header.opaque = <int32_t>get_int(p + 5)
    header.flag = <int32_t>get_int(p + 9)
    size = <Py_ssize_t>get_int(p + BINARY_FIXED_BYTES)
    if get_int(p + 13) != 0 or size != end - p - BINARY_FIXED_BYTES - 4:
        return False
    p += BINARY_FIXED_BYTES + 4
    name.escaped = value.escaped = False
    while p < end:
        if end - p < 2 or count == MAX_EXT_FIELDS:
            return False
        name.at, name.size = p + 2, (<Py_ssize_t>p[0] << 8) | p[1]
        if name.size > end - name.at - 4:
            return False
        p = name.at + name.size
        value.at, value.size = p + 4, <Py_ssize_t>get_int(p)
        if value.size > end - value.at:
            return False
        p = value.at + value.size
        if not is_ascii(name.at, name.size) or not is_ascii(value.at, value.size):
            return False
        count += 1
        if name.size == 1 and c'a' <= name.at[0] <= c'z':
            letter = name.at[0] - c'a'
            if header.ext[letter].at != NULL:
                return False
            header.ext[letter] = value
    return True

cdef bint ext_number(Header* header, char letter, int64_t* value) noexcept nogil:
    """Read an ext field that is a number and nothing else; False when it is absent or not one."""
    cdef Text* text = &header.ext[letter - c'a']
    if text.at == NULL or text.escaped:
        return False
    return read_number(text.at, text.at + text.size, value) == text.at + text.size

cdef inline int hex_digit(uint8_t c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    if c'a' <= c <= c'f':
        return c - c'a' + 10
    if c'A' <= c <= c'F':
        return c - c'A' + 10
    return -1

cdef inline uint8_t short_escape(uint8_t c) noexcept nogil:
    """What a backslash and a character stand for; 0 for none."""
    if c == c'"' or c == c'\\' or c == c'/':
        return c
    if c == c'b':
        return 8
    if c == c't':
        return 9
    if c == c'n':
        return 10
    if c == c'f':
        return 12
    return 13 if c == c'r' else 0

cdef Py_ssize_t unescape(Text* text, uint8_t* out) noexcept nogil:
    """Write the text that a JSON string stands for, at most as long; its size, -1 if not ASCII."""
    cdef Bytes p = text.at
    cdef Bytes end = p + text.size
    cdef Py_ssize_t size = 0
    cdef int code, digit, i
    if not text.escaped:
        memcpy(out, p, text.size)
        return text.size
    while p < end:
        if p[0] != c'\\':
            out[size] = p[0]
            p += 1
        elif end - p >= 6 and p[1] == c'u':
            code = 0
            for i in range(2, 6):
                digit = hex_digit(p[i])
                if digit < 0:
                    return -1
                code = code * 16 + digit
            if code > 0x7E:
                return -1
            out[size] = <uint8_t>code
            p += 6
        elif end - p >= 2 and short_escape(p[1]):
            out[size] = short_escape(p[1])
            p += 2
        else:
            return -1
        size += 1
    return size


cdef bint is_alphanumeric(Bytes p, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        if not (c'0' <= p[i] <= c'9' or c'A' <= p[i] <= c'Z' or c'a' <= p[i] <= c'z'):
            return False
    return size > 0

cdef inline Text text_of(bytes owner) noexcept:
    """The bytes of an object that lives as long as they are used."""
    cdef Text text
    text.at, text.size, text.escaped = (
        <Bytes>PyBytes_AS_STRING(owner), PyBytes_GET_SIZE(owner), False
    )
    return text

cdef inline bint same(Text* one, Text* other) noexcept nogil:
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0

cdef inline bint is_named(Text* name, bytes wanted) noexcept:
    return name.size == PyBytes_GET_SIZE(wanted) and (
        memcmp(name.at, PyBytes_AS_STRING(wanted), name.size) == 0
    )

cdef uint8_t* enlarged(uint8_t* buffer, Py_ssize_t* room, Py_ssize_t wanted) except NULL:
    """Return a buffer with so much room; what was in it is lost."""
    if buffer != NULL and room[0] >= wanted:
        return buffer
    cdef uint8_t* larger = <uint8_t*>realloc(buffer, wanted + 1)
    if larger == NULL:
        raise MemoryError
    room[0] = wanted + 1
    return larger


# ---- writing

cdef inline uint8_t* add(uint8_t* p, Bytes data, Py_ssize_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size

cdef uint8_t* add_decimal(uint8_t* p, int64_t value) noexcept nogil:
    cdef uint8_t digits[20]
    cdef int at = 20
    cdef uint64_t left = <uint64_t>value
    if value < 0:
        p[0] = c"-"
        p += 1
        left = 0 - left
    while True:
        at -= 1
        digits[at] = <uint8_t>(c"0" + left % 10)
        left //= 10
        if left == 0:
            return add(p, digits + at, 20 - at)

cdef uint8_t* add_counted_decimal(uint8_t* p, int64_t value) noexcept nogil:
    """Write a number as text, and its length before it."""
    cdef uint8_t* end = add_decimal(p + 4, value)
    put_int(p, <uint32_t>(end - p - 4))
    return end

cdef uint8_t* add_hex(uint8_t* p, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(15, -1, -1):
        p[i] = HEX_DIGITS[value & 15]
        value >>= 4
    return p + 16

cdef void write_index_entries(
    Writer* writer, uint32_t* keys, int count, int64_t phy_offset
) noexcept nogil:
    cdef int number
    cdef int32_t previous
    cdef uint8_t* slot
    cdef uint8_t* entry
    for number in range(count):
        slot = writer.index + INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (keys[number] % writer.slots)
        entry = writer.index + writer.entries_at + INDEX_ENTRY_BYTES * writer.count
        previous = <int32_t>get_int(slot)
        if not 0 < previous < writer.count:
            previous = 0
            writer.slots_used += 1
        put_int(entry, keys[number])
        put_long(entry + 4, <uint64_t>phy_offset)
        put_int(entry + 12, writer.seconds)
        put_int(entry + 16, <uint32_t>previous)
        WRITTEN_BEFORE()
        put_int(slot, <uint32_t>writer.count)
        writer.count += 1

cdef int open_index(Writer* writer, Py_buffer* index, run, int64_t store_ms) except -1:
    cdef int64_t seconds = (store_ms - <int64_t>run.begin_ms) // 1000
    writer.index = <uint8_t*>index.buf
    writer.slots, writer.entries_at = run.slots, run.entries_at
    writer.count, writer.index_end, writer.slots_used = run.first, run.stop, run.slots_used
    writer.seconds = <uint32_t>min(max(seconds, 0), 0x7FFFFFFF)
    if (
        writer.slots < 1
        or writer.count < 1
        or INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * <int64_t>writer.slots > writer.entries_at
        or writer.entries_at + INDEX_ENTRY_BYTES * writer.index_end > index.len
    ):
        raise ValueError("room beyond the index file")
    return 0


cdef class PlainSends:
    """Serves plain sends at the start of received bytes; a `rocketpy.remoting.dispatch.ByteHandler`.

    One call at a time: another one meanwhile serves nothing.

    Args:
        processor: says what the rules are now (`SendMessageProcessor.plain_rules`).
        direct: where records are written (`rocketpy.store.direct_append.DirectAppend`).
        max_frame_bytes: limit of a whole frame.
    """

    cdef object processor, direct, rules, known
    cdef bytes own_properties, uniq_key_name, keys_name, tags_name
    cdef list special_names, response_parts, binary_parts
    cdef bint is_busy, has_index
    cdef Py_ssize_t max_frame_size, max_body_size
    cdef Text part[RESPONSE_PARTS]
    cdef Text binary_part[BINARY_PARTS]
    cdef Py_ssize_t parts_size
    # One run.
    cdef Send* sends
    cdef uint32_t* keys
    cdef int send_count, key_count, place_count, topic_count
    cdef Topic topics[MAX_TOPICS]
    cdef list names, policies, fields  # of the topics
    cdef Place places[MAX_PLACES]
    cdef uint8_t* arena  # properties as they are stored, without those of our own
    cdef Py_ssize_t arena_size, arena_room
    cdef uint8_t* out  # responses
    cdef Py_ssize_t out_size, out_room, out_bound

    def __cinit__(self, *_arguments):
        self.sends = <Send*>malloc(MAX_SENDS * sizeof(Send))
        self.keys = <uint32_t*>malloc(MAX_KEYS * sizeof(uint32_t))
        if self.sends == NULL or self.keys == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.sends)
        free(self.keys)
        free(self.arena)
        free(self.out)

    def __init__(self, processor, direct, Py_ssize_t max_frame_bytes):
        self.processor = processor
        self.direct = direct
        self.has_index = direct.has_index
        self.max_frame_size = max_frame_bytes
        self.uniq_key_name = PROPERTY_UNIQ_KEY.encode()
        self.keys_name = PROPERTY_KEYS.encode()
        self.tags_name = PROPERTY_TAGS.encode()
        self.rules = None

    def __call__(self, channel, bytes data not None):
        """Serve what can be served; return how many bytes that was and their responses."""
        if self.is_busy:
            return 0, b""
        self.is_busy = True
        try:
            return self.serve(channel.remote_host_bytes, data)
        finally:
            self.is_busy = False
            self.names = self.policies = self.fields = None
            if self.arena_room + self.out_room > MOST_KEPT_BYTES:
                free(self.arena)
                free(self.out)
                self.arena = self.out = NULL
                self.arena_room = self.out_room = 0

    cdef tuple serve(self, bytes born_host, bytes data):
        cdef int done
        if PyBytes_GET_SIZE(born_host) != V4_HOST_BYTES:
            return 0, b""
        rules = self.processor.plain_rules
        if rules is not self.rules:
            self.take(rules)
        self.send_count = self.key_count = self.place_count = self.topic_count = 0
        self.arena_size = self.out_size = self.out_bound = 0
        self.names, self.policies, self.fields = [], [], []
        self.plan(<Bytes>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
        if self.send_count == 0:
            return 0, b""
        self.out = enlarged(self.out, &self.out_room, self.out_bound)
        done = self.store(born_host)
        if done == 0:
            return 0, b""
        self.announce(done)
        return self.sends[done - 1].following, self.out[:self.out_size]

    cdef int take(self, rules) except -1:
        """Take over rules that changed."""
        cdef int i
        self.rules = None
        self.known = rules.known
        self.own_properties = rules.own_properties
        self.max_body_size = rules.max_body_bytes
        self.special_names = [name.encode() for name in rules.special_properties]
        self.response_parts = list(rules.response_parts)
        self.binary_parts = list(rules.binary_parts)
        if len(self.response_parts) != RESPONSE_PARTS or len(self.binary_parts) != BINARY_PARTS:
            raise ValueError("the response's template has other fields")
        self.parts_size = 0
        for i in range(RESPONSE_PARTS):
            self.part[i] = text_of(self.response_parts[i])
            self.parts_size += self.part[i].size
        for i in range(BINARY_PARTS):
            self.binary_part[i] = text_of(self.binary_parts[i])
            self.parts_size += self.binary_part[i].size
        self.rules = rules
        return 0

    # ---- reading

    cdef int plan(self, Bytes base, Py_ssize_t end) except -1:
        """Read leading frames, up to the first one that is no plain send."""
        cdef Py_ssize_t position = 0, size, header_size
        cdef uint32_t length, word, kind
        cdef Header header
        cdef Bytes header_at
        while self.send_count < MAX_SENDS and end - position >= 8:
            length, word = get_int(base + position), get_int(base + position + 4)
            kind, word = word >> 24, word & 0xFFFFFF
            if length < 4 or word > MAX_HEADER_BYTES:
                break
            size, header_size = <Py_ssize_t>length, <Py_ssize_t>word
            if size > end - position - 4 or size > self.max_frame_size - 4 or header_size > size - 4:
                break
            header_at = base + position + 8
            if kind == JSON:
                if not read_json_header(header_at, header_at + header_size, &header):
                    break
            elif kind != ROCKETMQ or not read_binary_header(
                header_at, header_at + header_size, &header
            ):
                break
            self.sends[self.send_count].binary = kind == ROCKETMQ
            if position == 0:
                # What is read of all frames has room: no text is longer than its escaped form.
                self.arena = enlarged(self.arena, &self.arena_room, end)
            position += 4 + size
            if not self.plan_send(
                &header, header_at + header_size, size - 4 - header_size, position
            ):
                break
        return 0

    cdef bint plan_send(
        self, Header* header, Bytes body, Py_ssize_t body_size, Py_ssize_t following
    ) except -1:
        """Add a send to the run; False when it is no plain one."""
        cdef Send* send = &self.sends[self.send_count]
        cdef Text* batch = &header.ext[c"m" - c"a"]
        cdef Topic* topic
        cdef int64_t queue_id = 0
        cdef int topic_number
        cdef Py_ssize_t own_size = PyBytes_GET_SIZE(self.own_properties)
        send.oneway = header.flag == ONEWAY
        if header.flag != 0 and not send.oneway:
            return False
        if batch.at != NULL and (batch.escaped or equals(batch, b"true", 4)):
            return False
        send.reconsume_times = 0
        if (
            not ext_number(header, c"e", &queue_id)
            or not ext_number(header, c"h", &send.flag)
            or not ext_number(header, c"f", &send.sys_flag)
            or not ext_number(header, c"g", &send.born_ms)
            or (header.ext[c"j" - c"a"].at != NULL
                and not ext_number(header, c"j", &send.reconsume_times))
            or not is_int(send.flag)
            or not is_int(send.sys_flag)
            or not is_int(send.reconsume_times)
            or send.sys_flag & transaction_bits
            or body_size > self.max_body_size
        ):
            return False
        topic_number = self.find_topic(&header.ext[c"b" - c"a"])
        if topic_number < 0:
            return False
        topic = &self.topics[topic_number]
        if not 0 <= queue_id < topic.queue_limit:
            return False
        send.sys_flag = (send.sys_flag | topic.sys_flag) & ~host_bits
        if not self.plan_properties(&header.ext[c"i" - c"a"], topic, send):
            return False
        send.size = (
            record_fixed_size + body_size + topic.field.size + send.properties_size + own_size
        )
        send.place = self.find_place(topic_number, queue_id)
        if send.place < 0:
            return False
        self.places[send.place].count += 1
        send.opaque = header.opaque
        send.body, send.body_size, send.following = body, body_size, following
        send.crc = body_crc(body, body_size)
        self.arena_size += send.properties_size
        self.key_count += send.key_count
        self.out_bound += MOST_RESPONSE_NUMBERS + self.parts_size + send.uniq_key_size
        self.send_count += 1
        return True

    cdef int find_topic(self, Text* name) except -2:
        """Return the number of a topic that takes plain sends, -1 for any other."""
        cdef int number
        cdef Topic* topic
        if name.at == NULL or name.escaped:
            return -1
        for number in range(self.topic_count - 1, -1, -1):
            topic = &self.topics[number]
            if topic.name.size == name.size and memcmp(topic.name.at, name.at, name.size) == 0:
                return number
        text = name.at[:name.size].decode("ascii")
        policy = self.known.get(text)
        if policy is None or not policy.is_simple or self.topic_count == MAX_TOPICS:
            return -1
        field = topic_field(text)
        topic = &self.topics[self.topic_count]
        topic.name = name[0]
        topic.field = text_of(field)
        topic.key_hash = string_hash(string_hash(0, name.at, name.size), <Bytes>b"#", 1)
        topic.sys_flag, topic.queue_limit = policy.sys_flag, policy.queue_limit
        self.names.append(text)
        self.policies.append(policy)
        self.fields.append(field)
        self.topic_count += 1
        return self.topic_count - 1

    cdef int find_place(self, int topic, int64_t queue_id) noexcept:
        cdef int number
        cdef Place* place
        for number in range(self.place_count - 1, -1, -1):
            if self.places[number].queue_id == queue_id and self.places[number].topic == topic:
                return number
        if self.place_count == MAX_PLACES:
            return -1
        place = &self.places[self.place_count]
        place.topic, place.queue_id, place.count, place.done = topic, queue_id, 0, 0
        place.size = 0
        self.place_count += 1
        return self.place_count - 1

    cdef bint plan_properties(self, Text* given, Topic* topic, Send* send) except -1:
        """Read properties: the arena gets their bytes, the run their keys; False if not plain."""
        cdef Text names[MAX_PAIRS]
        cdef Text uniq_key, keys, tags, value
        cdef Text* name
        cdef int count = 0, other
        cdef Bytes p, end, pair_end
        cdef Bytes start = self.arena + self.arena_size
        if given.at == NULL:
            return False
        send.properties = self.arena_size
        send.properties_size = unescape(given, self.arena + self.arena_size)
        if (
            send.properties_size < 0
            or send.properties_size + PyBytes_GET_SIZE(self.own_properties) > most_properties
        ):
            return False
        uniq_key.at = keys.at = tags.at = NULL
        p, end = start, start + send.properties_size
        while p < end:
            if count == MAX_PAIRS:
                return False
            name = &names[count]
            pair_end = <Bytes>memchr(p, 2, end - p)
            if pair_end == NULL:
                return False
            name.at = p
            value.at = <Bytes>memchr(p, 1, pair_end - p)
            if value.at == NULL:
                return False
            name.size = value.at - p
            value.at += 1
            value.size = pair_end - value.at
            if name.size == 0 or value.size == 0 or memchr(value.at, 1, value.size) != NULL:
                return False
            for other in range(count):
                if same(&names[other], name):
                    return False
            if is_named(name, self.uniq_key_name):
                uniq_key = value
            elif is_named(name, self.keys_name):
                keys = value
            elif is_named(name, self.tags_name):
                tags = value
            else:
                for special in self.special_names:
                    if is_named(name, <bytes>special):
                        return False
            count += 1
            p = pair_end + 1
        if uniq_key.at == NULL or not is_alphanumeric(uniq_key.at, uniq_key.size):
            return False
        send.uniq_key = uniq_key.at - <Bytes>self.arena
        send.uniq_key_size = uniq_key.size
        send.tags_code = 0
        if tags.at != NULL:
            send.tags_code = <int32_t>string_hash(0, tags.at, tags.size)
        send.first_key, send.key_count = self.key_count, 0
        return not self.has_index or self.plan_keys(topic, send, &uniq_key, &keys, &tags)

    cdef bint plan_keys(
        self, Topic* topic, Send* send, Text* uniq_key, Text* keys, Text* tags
    ) noexcept:
        """Note what a message is indexed by, in the order of the index; False if that is too much."""
        cdef Bytes p, end, key_end
        if not self.plan_key(send, string_hash(topic.key_hash, uniq_key.at, uniq_key.size)):
            return False
        if keys.at != NULL:
            p, end = keys.at, keys.at + keys.size
            while p < end:
                key_end = <Bytes>memchr(p, c" ", end - p)
                if key_end == NULL:
                    key_end = end
                if key_end > p and not self.plan_key(
                    send, string_hash(topic.key_hash, p, key_end - p)
                ):
                    return False
                p = key_end + 1
        if tags.at == NULL:
            return True
        return self.plan_key(
            send, string_hash(string_hash(topic.key_hash, <Bytes>b"T#", 2), tags.at, tags.size)
        )

    cdef inline bint plan_key(self, Send* send, uint32_t value) noexcept:
        cdef int number = send.first_key + send.key_count
        if number >= MAX_KEYS:
            return False
        self.keys[number] = index_hash(value)
        send.key_count += 1
        return True

    # ---- writing

    cdef int store(self, bytes born_host) except -1:
        """Write the run, as far as there is room; return how many sends that was."""
        cdef int number, done = 0
        cdef int64_t log_size = 0
        cdef Place* place
        for number in range(self.send_count):
            log_size += self.sends[number].size
        places = []
        for number in range(self.place_count):
            place = &self.places[number]
            places.append((self.names[place.topic], place.queue_id, place.count))
        space = self.direct.begin(places, log_size, self.key_count)
        if space is None:
            return 0
        run = None
        try:
            # Who deletes a topic forgets its policy first and then waits for the append lock.
            for name, policy in zip(self.names, self.policies):
                if self.known.get(name) is not policy:
                    return 0
            run = self.write(space, born_host, &done)
        finally:
            self.direct.end(space, run)
        return done

    cdef object write(self, space, bytes born_host, int* done):
        cdef Py_buffer log, index
        cdef bint has_log = False, has_index = False
        cdef int number, held = 0
        cdef Writer writer
        cdef Place* place
        mapped, index_run = space.log, space.index_run
        try:
            PyObject_GetBuffer(mapped.buffer, &log, PyBUF_WRITABLE)
            has_log = True
            writer.log = <uint8_t*>log.buf
            writer.position, writer.end = mapped.write_position, space.log_end
            writer.base_offset = mapped.base_offset
            writer.store_ms = space.store_ms
            writer.born_host, writer.store_host = text_of(born_host), text_of(space.store_host)
            writer.own_properties = text_of(self.own_properties)
            if not 0 <= writer.position <= writer.end <= log.len or writer.store_host.size != 8:
                raise ValueError("room beyond the log file")
            writer.has_index = self.has_index
            if self.has_index:
                PyObject_GetBuffer(index_run.buffer, &index, PyBUF_WRITABLE)
                has_index = True
                open_index(&writer, &index, index_run, space.store_ms)
            for number in range(self.place_count):
                self.open_place(&self.places[number], space.queues[number], space.tails[number])
                held = number + 1
            done[0] = self.write_run(&writer)
        finally:
            for number in range(held):
                if self.places[number].has_tail:
                    PyBuffer_Release(&self.places[number].tail)
            if has_index:
                PyBuffer_Release(&index)
            if has_log:
                PyBuffer_Release(&log)
        if done[0] == 0:
            return None
        return AppendedRun(
            writer.position,
            [self.places[number].done for number in range(self.place_count)],
            [self.places[number].phy_end for number in range(self.place_count)],
            writer.count,
            writer.slots_used,
            writer.last_phy_offset,
        )

    cdef int open_place(self, Place* place, queue, tail) except -1:
        cdef Py_ssize_t at
        place.has_tail, place.room, place.phy_end = False, 0, 0
        if queue is None or tail is None:
            return 0
        buffer, at = tail
        PyObject_GetBuffer(buffer, &place.tail, PyBUF_WRITABLE)
        place.has_tail = True
        place.queue_offset = queue.next_offset
        if 0 <= at <= place.tail.len and (place.tail.len - at) // QUEUE_ENTRY_BYTES >= place.count:
            place.room = place.count
        place.entry = <uint8_t*>place.tail.buf + at
        return 0

    cdef int write_run(self, Writer* writer) noexcept nogil:
        """Write sends, oldest first, while there is room; return how many."""
        cdef int number
        cdef Send* send
        cdef Place* place
        cdef int64_t phy_offset
        for number in range(self.send_count):
            send = &self.sends[number]
            place = &self.places[send.place]
            if place.done == place.room or send.size > writer.end - writer.position:
                return number
            if writer.has_index and send.key_count > writer.index_end - writer.count:
                return number
            phy_offset = writer.base_offset + writer.position
            send.queue_offset = place.queue_offset + place.done
            self.write_record(writer, send, place, phy_offset)
            put_long(place.entry, <uint64_t>phy_offset)
            put_int(place.entry + 8, <uint32_t>send.size)
            put_long(place.entry + 12, <uint64_t>send.tags_code)
            place.entry += QUEUE_ENTRY_BYTES
            place.done += 1
            place.size += send.size
            place.phy_end = phy_offset + send.size
            if writer.has_index:
                write_index_entries(writer, self.keys + send.first_key, send.key_count, phy_offset)
            writer.position += send.size
            writer.last_phy_offset = phy_offset
            if not send.oneway:
                if send.binary:
                    self.write_binary_response(send, place, phy_offset)
                else:
                    self.write_response(send, place, phy_offset)
        return self.send_count

    cdef void write_record(
        self, Writer* writer, Send* send, Place* place, int64_t phy_offset
    ) noexcept nogil:
        cdef Topic* topic = &self.topics[place.topic]
        cdef uint8_t* p = writer.log + writer.position
        cdef uint8_t* start = p
        cdef Py_ssize_t properties_size = send.properties_size + writer.own_properties.size
        put_int(p + 8, send.crc)
        put_int(p + 12, <uint32_t>place.queue_id)
        put_int(p + 16, <uint32_t>send.flag)
        put_long(p + 20, <uint64_t>send.queue_offset)
        put_long(p + 28, <uint64_t>phy_offset)
        put_int(p + 36, <uint32_t>send.sys_flag)
        put_long(p + 40, <uint64_t>send.born_ms)
        memcpy(p + 48, writer.born_host.at, V4_HOST_BYTES)
        put_long(p + 56, <uint64_t>writer.store_ms)
        memcpy(p + 64, writer.store_host.at, V4_HOST_BYTES)
        put_int(p + 72, <uint32_t>send.reconsume_times)
        put_long(p + 76, 0)  # no transaction
        put_int(p + 84, <uint32_t>send.body_size)
        p = add(p + 88, send.body, send.body_size)
        p = add(p, topic.field.at, topic.field.size)
        p[0], p[1] = <uint8_t>(properties_size >> 8), <uint8_t>properties_size
        p = add(p + 2, self.arena + send.properties, send.properties_size)
        add(p, writer.own_properties.at, writer.own_properties.size)
        # Last: a process that is killed before this leaves the end of the log, not half a record.
        WRITTEN_BEFORE()
        put_int(start, <uint32_t>send.size)
        put_int(start + 4, magic_v1 if topic.field.size <= 128 else magic_v2)

    cdef void write_response(self, Send* send, Place* place, int64_t phy_offset) noexcept nogil:
        cdef uint8_t* start = self.out + self.out_size
        cdef uint8_t* p = start + 8
        cdef Py_ssize_t size
        p = add(p, self.part[0].at, self.part[0].size)
        p = add_decimal(p, 0)
        p = add(p, self.part[1].at, self.part[1].size)
        p = add_hex(p, <uint64_t>phy_offset)
        p = add(p, self.part[2].at, self.part[2].size)
        p = add_decimal(p, place.queue_id)
        p = add(p, self.part[3].at, self.part[3].size)
        p = add_decimal(p, send.queue_offset)
        p = add(p, self.part[4].at, self.part[4].size)
        p = add(p, self.arena + send.uniq_key, send.uniq_key_size)
        p = add(p, self.part[5].at, self.part[5].size)
        p = add_decimal(p, send.opaque)
        p = add(p, self.part[6].at, self.part[6].size)
        size = p - start - 8
        put_int(start, <uint32_t>(size + 4))
        put_int(start + 4, <uint32_t>size)
        self.out_size += size + 8

    cdef void write_binary_response(
        self, Send* send, Place* place, int64_t phy_offset
    ) noexcept nogil:
        cdef uint8_t* start = self.out + self.out_size
        cdef uint8_t* p = start + 8
        cdef uint8_t* ext
        cdef Py_ssize_t size
        p = add(p, self.binary_part[0].at, self.binary_part[0].size)
        put_int(p, <uint32_t>send.opaque)
        p = add(p + 4, self.binary_part[1].at, self.binary_part[1].size)
        ext = p + 4
        p = add(ext, self.binary_part[2].at, self.binary_part[2].size)
        p = add_hex(p, <uint64_t>phy_offset)
        p = add(p, self.binary_part[3].at, self.binary_part[3].size)
        p = add_counted_decimal(p, place.queue_id)
        p = add(p, self.binary_part[4].at, self.binary_part[4].size)
        p = add_counted_decimal(p, send.queue_offset)
        p = add(p, self.binary_part[5].at, self.binary_part[5].size)
        put_int(p, <uint32_t>send.uniq_key_size)
        p = add(p + 4, self.arena + send.uniq_key, send.uniq_key_size)
        put_int(ext - 4, <uint32_t>(p - ext))
        size = p - start - 8
        put_int(start, <uint32_t>(size + 4))
        put_int(start + 4, <uint32_t>(size | (ROCKETMQ << 24)))
        self.out_size += size + 8

    cdef int announce(self, int done) except -1:
        """Count what was stored, and wake who waits for it."""
        cdef int number
        cdef Send* send
        cdef Place* place
        for number in range(self.place_count):
            place = &self.places[number]
            if place.done:
                self.rules.count_stored(self.names[place.topic], place.done, place.size)
        listener = self.direct.on_arrival
        if listener is None:
            return 0
        for number in range(done):
            send = &self.sends[number]
            place = &self.places[send.place]
            listener(
                self.names[place.topic], place.queue_id, send.queue_offset + 1, send.tags_code
            )
        return 0
