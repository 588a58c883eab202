# Numbers, texts and hashes of received and written bytes, for _plain_sends.pyx.

ctypedef const uint8_t* Bytes

cdef const char* HEX_DIGITS = b"0123456789ABCDEF"

cdef enum:
    MAX_NUMBER_DIGITS = 18

cdef struct Text:
    Bytes at  # NULL: missing
    Py_ssize_t size
    bint escaped  # in JSON form, with a backslash in it


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

cdef inline int64_t get_long(Bytes p) noexcept nogil:
    return <int64_t>((<uint64_t>get_int(p) << 32) | get_int(p + 4))

cdef inline Py_ssize_t get_short(Bytes p) noexcept nogil:
    return (<Py_ssize_t>p[0] << 8) | p[1]

cdef inline bint is_int(int64_t value) noexcept nogil:
    return -0x80000000LL <= value <= 0x7FFFFFFFLL

cdef Bytes read_number(Bytes p, Bytes end, int64_t* value) noexcept nogil:
    """Parse an integer in JSON form; return the position after it, NULL for anything else."""
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

cdef inline uint8_t* add(uint8_t* p, Bytes data, Py_ssize_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size

cdef inline uint8_t* add_text(uint8_t* p, Text* text) noexcept nogil:
    return add(p, text.at, text.size)

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

cdef uint8_t* add_hex(uint8_t* p, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(15, -1, -1):
        p[i] = HEX_DIGITS[value & 15]
        value >>= 4
    return p + 16


# ---- texts

cdef inline bint is_ascii(Bytes p, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint8_t seen = 0
    for i in range(size):
        seen |= p[i]
    return seen < 0x80

cdef bint is_utf8(Bytes p, Py_ssize_t size) noexcept nogil:
    """Whether bytes are UTF-8 as Python decodes it: no surrogates, no overlong forms."""
    cdef Bytes end = p + size
    cdef uint8_t first, low, high
    cdef Py_ssize_t left
    if is_ascii(p, size):
        return True
    while p < end:
        first = p[0]
        p += 1
        if first < 0x80:
            continue
        low, high = 0x80, 0xBF
        if 0xC2 <= first <= 0xDF:
            left = 1
        elif 0xE0 <= first <= 0xEF:
            left = 2
            low = 0xA0 if first == 0xE0 else 0x80
            high = 0x9F if first == 0xED else 0xBF
        elif 0xF0 <= first <= 0xF4:
            left = 3
            low = 0x90 if first == 0xF0 else 0x80
            high = 0x8F if first == 0xF4 else 0xBF
        else:
            return False
        if left > end - p or not low <= p[0] <= high:
            return False
        p += 1
        for left in range(left - 1, 0, -1):
            if p[0] & 0xC0 != 0x80:
                return False
            p += 1
    return True

cdef bint is_alphanumeric(Bytes p, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        if not (c'0' <= p[i] <= c'9' or c'A' <= p[i] <= c'Z' or c'a' <= p[i] <= c'z'):
            return False
    return size > 0

cdef inline Text text_of(bytes owner) except *:
    """Return the bytes of an object, which must outlive their use."""
    cdef Text text
    text.at, text.size, text.escaped = <Bytes>PyBytes_AsString(owner), PyBytes_Size(owner), False
    return text

cdef inline bint same(Text* one, Text* other) noexcept nogil:
    return one.size == other.size and memcmp(one.at, other.at, one.size) == 0

cdef inline bint equals(Text* text, const char* name, Py_ssize_t size) noexcept nogil:
    return text.size == size and memcmp(text.at, name, size) == 0


# ---- hashes

cdef uint32_t string_hash(uint32_t value, Bytes p, Py_ssize_t size) noexcept nogil:
    """Continue a Java string hash, which is over UTF-16; the text is valid UTF-8."""
    cdef Bytes end = p + size
    cdef uint32_t unit
    while p < end:
        unit = p[0]
        if unit < 0x80:
            p += 1
        elif unit < 0xE0:
            unit = ((unit & 0x1F) << 6) | (p[1] & 0x3F)
            p += 2
        elif unit < 0xF0:
            unit = ((unit & 0x0F) << 12) | ((<uint32_t>p[1] & 0x3F) << 6) | (p[2] & 0x3F)
            p += 3
        else:
            unit = (
                ((unit & 0x07) << 18) | ((<uint32_t>p[1] & 0x3F) << 12)
                | ((<uint32_t>p[2] & 0x3F) << 6) | (p[3] & 0x3F)
            ) - 0x10000
            value = value * 31 + (0xD800 | (unit >> 10))
            unit = 0xDC00 | (unit & 0x3FF)
            p += 4
        value = value * 31 + unit
    return value

cdef inline uint32_t index_hash(uint32_t value) noexcept nogil:
    """Return the form of a hash in the index."""
    if value & 0x80000000U:
        return 0 if value == 0x80000000U else <uint32_t>(0 - value)
    return value
