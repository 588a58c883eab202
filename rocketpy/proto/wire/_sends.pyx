# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Compiled encoder of send requests and decoder of their responses.

`frame` writes a request from a template (reference: `request_template.RequestTemplate`).
`read_answers` reads the responses to sends at the start of a socket read (reference:
`frame.CommandReader` and the client's `read_send_response`) and leaves all other frames to Python.

Every read is between a position and an end that was compared with the received bytes; lengths are
`Py_ssize_t`, and none is added to another before it was compared with the remaining bytes.
"""

from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    object PyUnicode_FromStringAndSize(const char* text, Py_ssize_t size)

cdef extern from *:
    """
    #ifndef ROCKETPY_SOURCES
    #define ROCKETPY_SOURCES ""
    #endif
    """
    const char* ROCKETPY_SOURCES

SOURCES = <bytes>ROCKETPY_SOURCES  # `rocketpy.compiled_module` compares it with those beside it

ctypedef const uint8_t* Bytes

cdef enum:
    JSON = 0
    MSGPACK = 2
    PREFIX_BYTES = 8
    # Limits of sizes, so that no sum of them overflows or exceeds the fields of the frame.
    MOST_HEADER_BYTES = 8 * 1024 * 1024
    MOST_DRAWN_BYTES = 256 * 1024 * 1024
    MOST_ANSWERS = 1024  # of one call: the loop must not be blocked by a long read
    MOST_ESCAPED = 6  # bytes that a byte of a text takes in JSON
    MOST_DIGITS = 20
    ESCAPE_FREE = 32

cdef enum Field:
    MSG_ID, QUEUE_ID, QUEUE_OFFSET, REGION, TRANSACTION_ID, RECALL_HANDLE, TRACE_SWITCH, BATCH_ID
    FIELDS

cdef const char* NAMES[8]
NAMES[:] = [
    b"msgId", b"queueId", b"queueOffset", b"MSG_REGION", b"transactionId", b"recallHandle",
    b"TRACE_ON", b"batchUniqId",
]
cdef Py_ssize_t NAME_SIZES[8]
NAME_SIZES[:] = [5, 7, 11, 10, 13, 12, 8, 11]

cdef const char* HEX_DIGITS = b"0123456789abcdef"
cdef const char* JSON_BEGIN = b'{"code":0,"extFields":{'
cdef const char* JSON_FLAG = b'},"flag":1,"language":"'
cdef const char* JSON_OPAQUE = b'","opaque":'
cdef const char* JSON_VERSION = b',"serializeTypeCurrentRPC":"JSON","version":'
# One string for all responses instead of a new one for each.
cdef str USUAL_REGION = "DefaultRegion"

cdef struct Text:
    Bytes at
    Py_ssize_t size

cdef struct Answer:
    int64_t opaque
    int64_t queue_id
    int64_t offset
    uint32_t seen  # a bit a field
    Text texts[8]


# ---- writing

cdef inline void put_int(uint8_t* p, uint32_t value) noexcept nogil:
    p[0] = <uint8_t>(value >> 24)
    p[1] = <uint8_t>(value >> 16)
    p[2] = <uint8_t>(value >> 8)
    p[3] = <uint8_t>value

cdef inline uint32_t get_int(Bytes p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]

cdef Py_ssize_t decimal(uint8_t* into, int64_t value) noexcept nogil:
    """Write a number that is not negative; return its digits, at most MOST_DIGITS."""
    cdef uint8_t digits[20]
    cdef Py_ssize_t at = MOST_DIGITS
    while True:
        at -= 1
        digits[at] = <uint8_t>(c"0" + value % 10)
        value //= 10
        if value == 0:
            break
    memcpy(into, digits + at, MOST_DIGITS - at)
    return MOST_DIGITS - at

cdef uint8_t* add_msgpack_number(uint8_t* p, int64_t value) noexcept nogil:
    """Write a number of 31 bits in its shortest form."""
    if value < 0x80:
        p[0] = <uint8_t>value
        return p + 1
    if value < 0x100:
        p[0] = 0xCC
        p[1] = <uint8_t>value
        return p + 2
    if value < 0x10000:
        p[0] = 0xCD
        p[1] = <uint8_t>(value >> 8)
        p[2] = <uint8_t>value
        return p + 3
    p[0] = 0xCE
    put_int(p + 1, <uint32_t>value)
    return p + 5

cdef uint8_t* add_msgpack_text(uint8_t* p, Bytes text, Py_ssize_t size) noexcept nogil:
    """Write a text below 4 GiB in its shortest form."""
    if size < 32:
        p[0] = <uint8_t>(0xA0 | size)
        p += 1
    elif size < 0x100:
        p[0] = 0xD9
        p[1] = <uint8_t>size
        p += 2
    elif size < 0x10000:
        p[0] = 0xDA
        p[1] = <uint8_t>(size >> 8)
        p[2] = <uint8_t>size
        p += 3
    else:
        p[0] = 0xDB
        put_int(p + 1, <uint32_t>size)
        p += 5
    memcpy(p, text, size)
    return p + size

cdef Py_ssize_t json_size(Bytes text, Py_ssize_t size) noexcept nogil:
    """Return the size of a text in JSON, with its quotes."""
    cdef Py_ssize_t at, found = size + 2
    cdef uint8_t byte
    for at in range(size):
        byte = text[at]
        if byte == c'"' or byte == c"\\":
            found += 1
        elif byte < ESCAPE_FREE:
            found += 1 if short_escape(byte) else MOST_ESCAPED - 1
    return found

cdef inline uint8_t short_escape(uint8_t byte) noexcept nogil:
    if byte == 8:
        return c"b"
    if byte == 9:
        return c"t"
    if byte == 10:
        return c"n"
    if byte == 12:
        return c"f"
    if byte == 13:
        return c"r"
    return 0

cdef uint8_t* add_json_text(uint8_t* p, Bytes text, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t at
    cdef uint8_t byte, letter
    p[0] = c'"'
    p += 1
    for at in range(size):
        byte = text[at]
        if byte >= ESCAPE_FREE and byte != c'"' and byte != c"\\":
            p[0] = byte
            p += 1
            continue
        p[0] = c"\\"
        letter = byte if byte >= ESCAPE_FREE else short_escape(byte)
        if letter:
            p[1] = letter
            p += 2
        else:
            memcpy(p + 1, b"u00", 3)
            p[4] = HEX_DIGITS[byte >> 4]
            p[5] = HEX_DIGITS[byte & 15]
            p += MOST_ESCAPED
    p[0] = c'"'
    return p + 1

cdef inline uint8_t* add(uint8_t* p, object data) except NULL:
    cdef Py_ssize_t size = PyBytes_Size(data)
    memcpy(p, PyBytes_AsString(data), size)
    return p + size


def frame(int kind, tuple parts, object opaque, object time_ms, str text, bytes body):
    """Write a request from a template: its four parts and the values between them.

    Args:
        kind: how the header is written: JSON or MSGPACK.
        parts: four.
        opaque: below 2**31.
        time_ms: not negative.

    Returns:
        The frame, or None: a number is out of range, or a text too long or not UTF-8. The reference
        then raises the error.
    """
    cdef bytes first = parts[0], second = parts[1], third = parts[2], fourth = parts[3]
    cdef int64_t number = opaque
    cdef int64_t time = time_ms
    cdef uint8_t[20] digits
    cdef uint8_t[20] number_digits
    cdef Py_ssize_t text_size = 0
    cdef Bytes text_at
    cdef Py_ssize_t parts_size = (
        PyBytes_Size(first) + PyBytes_Size(second) + PyBytes_Size(third) + PyBytes_Size(fourth)
    )
    cdef Py_ssize_t body_size = PyBytes_Size(body)
    cdef Py_ssize_t digits_count, number_count, room, header_size
    cdef uint8_t* begin
    cdef uint8_t* p
    try:
        text_at = <Bytes>PyUnicode_AsUTF8AndSize(text, &text_size)
    except UnicodeEncodeError:
        return None
    if not 0 <= number <= 0x7FFFFFFF or time < 0:
        return None
    if text_size > MOST_HEADER_BYTES or parts_size > MOST_HEADER_BYTES:
        return None
    if body_size > MOST_DRAWN_BYTES:
        return None
    digits_count = decimal(digits, time)
    if kind == MSGPACK:
        room = text_size + 5 + 5 + 1 + digits_count
    else:
        number_count = decimal(number_digits, number)
        room = json_size(text_at, text_size) + digits_count + number_count
    # With room for the longest form: the size of the header is known only after it is written.
    scratch = PyBytes_FromStringAndSize(NULL, PREFIX_BYTES + parts_size + room + body_size)
    begin = <uint8_t*>PyBytes_AsString(scratch)
    p = begin + PREFIX_BYTES
    p = add(p, first)
    if kind == MSGPACK:
        p = add_msgpack_number(p, number)
        p = add(p, second)
        p = add_msgpack_text(p, digits, digits_count)
        p = add(p, third)
        p = add_msgpack_text(p, text_at, text_size)
    else:
        memcpy(p, digits, digits_count)
        p = add(p + digits_count, second)
        p = add_json_text(p, text_at, text_size)
        p = add(p, third)
        memcpy(p, number_digits, number_count)
        p += number_count
    p = add(p, fourth)
    header_size = p - begin - PREFIX_BYTES
    if header_size > MOST_HEADER_BYTES:
        return None
    # Only here, where the sizes are known.
    put_int(begin, <uint32_t>(4 + header_size + body_size))
    put_int(begin + 4, (<uint32_t>kind << 24) | <uint32_t>header_size)
    p = add(p, body)
    # JSON has no unused room, so that the common case needs no copy.
    if p - begin == PyBytes_Size(scratch):
        return scratch
    return PyBytes_FromStringAndSize(<char*>begin, p - begin)


# ---- reading

cdef inline bint starts_with(Bytes p, Bytes end, const char* words, Py_ssize_t size) noexcept nogil:
    return end - p >= size and memcmp(p, words, size) == 0

cdef int64_t number_of(Bytes p, Py_ssize_t size, Py_ssize_t most) noexcept nogil:
    """Return a number of 1 to `most` (at most 18) decimal digits; -1 when it is none."""
    cdef int64_t found = 0
    cdef Py_ssize_t at
    if size < 1 or size > most:
        return -1
    for at in range(size):
        if not c"0" <= p[at] <= c"9":
            return -1
        found = found * 10 + (p[at] - c"0")
    return found

cdef Bytes json_number(Bytes p, Bytes end, int64_t* value) noexcept nogil:
    """Read a number of 31 bits; return what follows it, NULL when it is none."""
    cdef Py_ssize_t size = 0
    # One digit more than allowed: a longer number is then found to be too long.
    while size < 11 and size < end - p and c"0" <= p[size] <= c"9":
        size += 1
    value[0] = number_of(p, size, 10)
    if not 0 <= value[0] <= 0x7FFFFFFF or (size > 1 and p[0] == c"0"):
        return NULL
    return p + size

cdef Bytes msgpack_number(Bytes p, Bytes end, int64_t* value) noexcept nogil:
    """Read a number of 31 bits, short or not; return what follows it, NULL when it is none.

    A broker that fills in templates writes numbers at their full width (0xCD, 0xD2).
    """
    cdef Py_ssize_t left = end - p
    if left < 1:
        return NULL
    if p[0] < 0x80:
        value[0] = p[0]
        return p + 1
    if p[0] == 0xCC and left >= 2:
        value[0] = p[1]
        return p + 2
    if p[0] == 0xCD and left >= 3:
        value[0] = (<int64_t>p[1] << 8) | p[2]
        return p + 3
    if (p[0] == 0xCE or p[0] == 0xD2) and left >= 5:
        value[0] = get_int(p + 1)
        return p + 5 if value[0] <= 0x7FFFFFFF else NULL
    return NULL

cdef bint is_plain(Bytes p, Py_ssize_t size) noexcept nogil:
    """Whether a text is printable ASCII that JSON writes as it is."""
    cdef Py_ssize_t at
    for at in range(size):
        if not 32 <= p[at] < 127 or p[at] == c'"' or p[at] == c"\\":
            return False
    return True

cdef Bytes msgpack_text(Bytes p, Bytes end, Text* text) noexcept nogil:
    """Read a plain text; return what follows it, NULL when it is none."""
    cdef Py_ssize_t size
    if end - p < 1:
        return NULL
    if 0xA0 <= p[0] <= 0xBF:
        size = p[0] & 31
        p += 1
    elif p[0] == 0xD9 and end - p >= 2:
        size = p[1]
        p += 2
    elif p[0] == 0xDA and end - p >= 3:
        size = (<Py_ssize_t>p[1] << 8) | p[2]
        p += 3
    elif p[0] == 0xDB and end - p >= 5:
        size = get_int(p + 1)
        p += 5
    else:
        return NULL
    # The size first: the text is not read beyond the received bytes.
    if size > end - p or not is_plain(p, size):
        return NULL
    text.at = p
    text.size = size
    return p + size

cdef Bytes json_text(Bytes p, Bytes end, Text* text) noexcept nogil:
    """Read a plain text in quotes; return what follows it, NULL when it is none."""
    cdef Bytes begin
    if p >= end or p[0] != c'"':
        return NULL
    p += 1
    begin = p
    while p < end and p[0] != c'"':
        p += 1
    if p == end or not is_plain(begin, p - begin):
        return NULL
    text.at = begin
    text.size = p - begin
    return p + 1

cdef bint take(Answer* answer, Text* name, Text* value) noexcept nogil:
    """Note a field; False when it is not known, or was there before."""
    cdef int field
    for field in range(FIELDS):
        if name.size == NAME_SIZES[field] and memcmp(name.at, NAMES[field], name.size) == 0:
            # Twice in one header: the reference decides which one counts.
            if answer.seen >> field & 1:
                return False
            answer.seen |= <uint32_t>1 << field
            answer.texts[field] = value[0]
            return True
    return False

cdef bint read_msgpack(Bytes p, Bytes end, Answer* answer) noexcept nogil:
    """Read a header: seven items."""
    cdef int64_t code = 0, ignored = 0
    cdef Text name, value
    cdef int left
    # An array of seven items.
    if end - p < 3 or p[0] != 0x97:
        return False
    p = msgpack_number(p + 1, end, &code)
    # A response with another code is an error, which the reference reads.
    if p == NULL or code != 0 or end - p < 1 or p[0] >= 0x80:
        return False
    p = msgpack_number(p + 1, end, &ignored)
    if p == NULL:
        return False
    p = msgpack_number(p, end, &answer.opaque)
    # Flag 1 (a response), no remark, and a map of at most 15 fields.
    if p == NULL or end - p < 3 or p[0] != 1 or p[1] != 0xC0 or p[2] & 0xF0 != 0x80:
        return False
    left = p[2] & 15
    p += 3
    while left:
        p = msgpack_text(p, end, &name)
        if p == NULL:
            return False
        p = msgpack_text(p, end, &value)
        if p == NULL or not take(answer, &name, &value):
            return False
        left -= 1
    return p == end

cdef bint read_json(Bytes p, Bytes end, Answer* answer) noexcept nogil:
    """Read a header as servers write it."""
    cdef int64_t ignored = 0
    cdef Text name, value
    if not starts_with(p, end, JSON_BEGIN, 23):
        return False
    p += 23
    while True:
        p = json_text(p, end, &name)
        if p == NULL or p >= end or p[0] != c":":
            return False
        p = json_text(p + 1, end, &value)
        if p == NULL or p >= end or not take(answer, &name, &value):
            return False
        if p[0] != c",":
            break
        p += 1
    if not starts_with(p, end, JSON_FLAG, 23):
        return False
    p = json_text(p + 22, end, &value)
    if p == NULL:
        return False
    p -= 1  # its closing quote
    if not starts_with(p, end, JSON_OPAQUE, 11):
        return False
    p = json_number(p + 11, end, &answer.opaque)
    if p == NULL or not starts_with(p, end, JSON_VERSION, 44):
        return False
    p = json_number(p + 44, end, &ignored)
    return p != NULL and end - p == 1 and p[0] == c"}"

cdef inline object text_of(Answer* answer, Field field):
    """Return the text of a field, None when it is absent."""
    if not answer.seen >> <int>field & 1:
        return None
    return PyUnicode_FromStringAndSize(
        <const char*>answer.texts[<int>field].at, answer.texts[<int>field].size
    )

cdef object region_of(Answer* answer):
    cdef Text* text = &answer.texts[<int>REGION]
    if not answer.seen >> <int>REGION & 1:
        return USUAL_REGION
    if text.size == 13 and memcmp(text.at, b"DefaultRegion", 13) == 0:
        return USUAL_REGION
    return text_of(answer, REGION)


def read_answers(bytes data, Py_ssize_t most_frame_bytes):
    """Read the leading responses to sends: code 0, known fields, no body, no remark.

    Args:
        data: received bytes, from the first byte of a frame.
        most_frame_bytes: limit of a complete frame.

    Returns:
        Their size in bytes, and for each: opaque, end of its frame, queue id, queue offset, offset id,
        transaction id, region, recall handle.
    """
    cdef Bytes begin = <Bytes>PyBytes_AsString(data)
    cdef Bytes end = begin + PyBytes_Size(data)
    cdef Bytes p = begin
    cdef Py_ssize_t length, header_size
    cdef uint32_t word
    cdef Answer answer
    cdef bint is_read
    found = []
    while len(found) < MOST_ANSWERS and end - p >= PREFIX_BYTES:
        length = <int32_t>get_int(p)
        word = get_int(p + 4)
        header_size = word & 0xFFFFFF
        if length < 4 or length > most_frame_bytes - 4 or length > end - p - 4:
            break
        # Responses to sends have no body: the header fills the frame.
        if header_size != length - 4 or header_size > MOST_HEADER_BYTES:
            break
        answer.seen = 0
        if word >> 24 == MSGPACK:
            is_read = read_msgpack(p + PREFIX_BYTES, p + 4 + length, &answer)
        elif word >> 24 == JSON:
            is_read = read_json(p + PREFIX_BYTES, p + 4 + length, &answer)
        else:
            break
        # Message id, queue id and queue offset are present in each response to a send.
        if not is_read or answer.seen & 7 != 7:
            break
        if answer.seen >> <int>REGION & 1 and answer.texts[<int>REGION].size == 0:
            break
        answer.queue_id = number_of(
            answer.texts[<int>QUEUE_ID].at, answer.texts[<int>QUEUE_ID].size, 9
        )
        answer.offset = number_of(
            answer.texts[<int>QUEUE_OFFSET].at, answer.texts[<int>QUEUE_OFFSET].size, 18
        )
        if answer.queue_id < 0 or answer.offset < 0:
            break
        p += 4 + length
        found.append((
            answer.opaque, p - begin, answer.queue_id, answer.offset, text_of(&answer, MSG_ID),
            text_of(&answer, TRANSACTION_ID), region_of(&answer), text_of(&answer, RECALL_HANDLE),
        ))
    return p - begin, found
