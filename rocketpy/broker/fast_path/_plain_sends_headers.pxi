# Parser of request headers in their three formats, for _plain_sends.pyx: sends, ends of transactions,
# and pulls.
#
#     read_json_header     proto/wire/json_header.py     decode_json_header
#     read_binary_header   proto/wire/binary_header.py   decode_binary_header
#     read_msgpack_header  proto/wire/msgpack_header.py  decode_msgpack_header

cdef enum:
    JSON = 0
    ROCKETMQ = 1
    MSGPACK = 2
    MAX_EXT_FIELDS = 64
    BINARY_FIXED_BYTES = 17
    PULL_FIELDS = 12
    MAX_HEADER_BYTES = 65536

cdef enum:  # the fields of a pull
    PULL_GROUP
    PULL_TOPIC
    PULL_QUEUE_ID
    PULL_QUEUE_OFFSET
    PULL_MAX_COUNT
    PULL_SYS_FLAG
    PULL_COMMIT_OFFSET
    PULL_SUSPEND_MS
    PULL_EXPRESSION
    PULL_EXPRESSION_TYPE
    PULL_SUB_VERSION
    PULL_MAX_BYTES

cdef int64_t send_code = RequestCode.SEND_MESSAGE_V2
cdef int64_t batch_code = RequestCode.SEND_BATCH_MESSAGE
cdef int64_t end_code = RequestCode.END_TRANSACTION
cdef int64_t pull_code = RequestCode.PULL_MESSAGE
cdef int64_t lite_pull_code = RequestCode.LITE_PULL_MESSAGE

cdef struct Header:
    int64_t code, flag, opaque
    Text ext[26]  # by letter
    Text group, half_offset, phy_offset, decision, msg_id  # of a transaction's end
    Text pull[PULL_FIELDS]


cdef inline Text* ext(Header* header, char letter) noexcept nogil:
    return &header.ext[letter - c'a']

cdef Text* end_field(Header* header, Text* name) noexcept nogil:
    """Return the variable of a field of a transaction's end; NULL for any other field."""
    if equals(name, "producerGroup", 13):
        return &header.group
    if equals(name, "tranStateTableOffset", 20):
        return &header.half_offset
    if equals(name, "commitLogOffset", 15):
        return &header.phy_offset
    if equals(name, "commitOrRollback", 16):
        return &header.decision
    return &header.msg_id if equals(name, "msgId", 5) else NULL

cdef int pull_field(Text* name) noexcept nogil:
    """Return the number of a field of a pull; -1 for any other."""
    if equals(name, "consumerGroup", 13):
        return PULL_GROUP
    if equals(name, "topic", 5):
        return PULL_TOPIC
    if equals(name, "queueId", 7):
        return PULL_QUEUE_ID
    if equals(name, "queueOffset", 11):
        return PULL_QUEUE_OFFSET
    if equals(name, "maxMsgNums", 10):
        return PULL_MAX_COUNT
    if equals(name, "sysFlag", 7):
        return PULL_SYS_FLAG
    if equals(name, "commitOffset", 12):
        return PULL_COMMIT_OFFSET
    if equals(name, "suspendTimeoutMillis", 20):
        return PULL_SUSPEND_MS
    if equals(name, "subscription", 12):
        return PULL_EXPRESSION
    if equals(name, "expressionType", 14):
        return PULL_EXPRESSION_TYPE
    if equals(name, "subVersion", 10):
        return PULL_SUB_VERSION
    return PULL_MAX_BYTES if equals(name, "maxMsgBytes", 11) else -1

cdef bint take_ext(Header* header, Text* name, Text* value) noexcept nogil:
    """Store an ext field of a send (one letter), an end or a pull; False for a repeated one."""
    cdef int field
    cdef Text* found
    if name.size == 1 and c'a' <= name.at[0] <= c'z':
        found = ext(header, <char>name.at[0])
    else:
        field = pull_field(name)
        found = &header.pull[field] if field >= 0 else end_field(header, name)
    if found != NULL:
        if found.at != NULL:
            return False
        found[0] = value[0]
    return True

cdef bint text_number(Text* text, int64_t* value) noexcept nogil:
    """Parse a text that is only a number; False when it is missing or anything else."""
    if text.at == NULL or text.escaped:
        return False
    return read_number(text.at, text.at + text.size, value) == text.at + text.size

cdef inline bint ext_number(Header* header, char letter, int64_t* value) noexcept nogil:
    """Parse an ext field that is only a number; False when it is missing or anything else."""
    return text_number(ext(header, letter), value)

cdef inline bint is_pull(int64_t code) noexcept nogil:
    return code == pull_code or code == lite_pull_code

cdef inline bint is_taken(int64_t code) noexcept nogil:
    return code == send_code or code == batch_code or code == end_code or is_pull(code)

cdef bint read_header(uint32_t kind, Bytes p, Bytes end, Header* header) noexcept nogil:
    """Parse the header of a send, a batch, an end or a pull; False for anything else."""
    cdef int letter, field
    for field in range(PULL_FIELDS):
        header.pull[field].at = NULL
    for letter in range(26):
        header.ext[letter].at = NULL
    header.group.at = header.half_offset.at = header.phy_offset.at = NULL
    header.decision.at = header.msg_id.at = NULL
    if kind == JSON:
        return read_json_header(p, end, header)
    if kind == ROCKETMQ:
        return read_binary_header(p, end, header)
    return kind == MSGPACK and read_msgpack_header(p, end, header)

cdef Bytes read_frame(
    Bytes base, Py_ssize_t position, Py_ssize_t following, uint32_t* kind, Header* header
) noexcept nogil:
    """Parse the header of a complete frame; return the start of its body, NULL if not eligible."""
    cdef uint32_t word = get_int(base + position + 4)
    cdef Py_ssize_t size = <Py_ssize_t>(word & 0xFFFFFF)
    cdef Bytes header_at = base + position + 8
    kind[0] = word >> 24
    if size > MAX_HEADER_BYTES or size > following - position - 8:
        return NULL
    if not read_header(kind[0], header_at, header_at + size, header):
        return NULL
    return header_at + size


# ---- JSON

cdef inline int hex_digit(uint8_t c) noexcept nogil:
    if c'0' <= c <= c'9':
        return c - c'0'
    if c'a' <= c <= c'f':
        return c - c'a' + 10
    if c'A' <= c <= c'F':
        return c - c'A' + 10
    return -1

cdef inline uint8_t short_escape(uint8_t c) noexcept nogil:
    """Return the meaning of an escaped character; 0 if there is none."""
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

cdef Bytes read_unit(Bytes p, Bytes end, uint32_t* unit) noexcept nogil:
    """Read a backslash, u and four digits; return what follows, NULL when it is anything else."""
    cdef int i, digit
    if end - p < 6 or p[0] != c'\\' or p[1] != c'u':
        return NULL
    unit[0] = 0
    for i in range(2, 6):
        digit = hex_digit(p[i])
        if digit < 0:
            return NULL
        unit[0] = unit[0] * 16 + <uint32_t>digit
    return p + 6

cdef Bytes read_escape(Bytes p, Bytes end, uint32_t* character) noexcept nogil:
    """Read what a backslash begins; return what follows, NULL when it stands for no character."""
    cdef uint32_t low = 0
    if end - p < 2:
        return NULL
    if p[1] != c'u':
        character[0] = short_escape(p[1])
        if character[0] == 0:
            return NULL
        return p + 2
    p = read_unit(p, end, character)
    if p == NULL or not 0xD800 <= character[0] <= 0xDFFF:
        return p
    if character[0] >= 0xDC00:
        return NULL
    p = read_unit(p, end, &low)
    if p == NULL or not 0xDC00 <= low <= 0xDFFF:
        return NULL
    character[0] = 0x10000 + ((character[0] - 0xD800) << 10) + (low - 0xDC00)
    return p

cdef uint8_t* add_character(uint8_t* p, uint32_t character) noexcept nogil:
    """Write a character as UTF-8, which takes less than its escape."""
    if character < 0x80:
        p[0] = <uint8_t>character
        return p + 1
    if character < 0x800:
        p[0] = <uint8_t>(0xC0 | (character >> 6))
    else:
        if character < 0x10000:
            p[0] = <uint8_t>(0xE0 | (character >> 12))
        else:
            p[0] = <uint8_t>(0xF0 | (character >> 18))
            p += 1
            p[0] = <uint8_t>(0x80 | ((character >> 12) & 0x3F))
        p += 1
        p[0] = <uint8_t>(0x80 | ((character >> 6) & 0x3F))
    p[1] = <uint8_t>(0x80 | (character & 0x3F))
    return p + 2

cdef Py_ssize_t unescape(Text* text, uint8_t* out) noexcept nogil:
    """Write what an escaped JSON string stands for, less than it is; its size, -1 if it is none."""
    cdef Bytes p = text.at
    cdef Bytes end = p + text.size
    cdef uint8_t* start = out
    cdef uint32_t character = 0
    while p < end:
        if p[0] != c'\\':
            out[0] = p[0]
            out += 1
            p += 1
        else:
            p = read_escape(p, end, &character)
            if p == NULL:
                return -1
            out = add_character(out, character)
    return out - start

cdef Bytes read_string(Bytes p, Bytes end, Text* text) noexcept nogil:
    """Read a JSON string; return what follows it, NULL when it is not one."""
    cdef uint8_t seen = 0
    cdef uint32_t ignored = 0
    if p >= end or p[0] != c'"':
        return NULL
    p += 1
    text.at = p
    text.escaped = False
    while p < end:
        if p[0] == c'"':
            text.size = p - text.at
            if seen >= 0x80 and not is_utf8(text.at, text.size):
                return NULL
            return p + 1
        if p[0] < 0x20:
            return NULL
        if p[0] == c'\\':
            text.escaped = True
            p = read_escape(p, end, &ignored)
            if p == NULL:
                return NULL
        else:
            seen |= p[0]
            p += 1
    return NULL

cdef Bytes read_ext_fields(Bytes p, Bytes end, Header* header) noexcept nogil:
    cdef Text name, value
    cdef int count = 0
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
        if not take_ext(header, &name, &value):
            return NULL
        if p[0] == c'}':
            return p + 1
        if p[0] != c',':
            return NULL
        p += 1

cdef bint read_json_header(Bytes p, Bytes end, Header* header) noexcept nogil:
    cdef Text name, ignored
    cdef int seen = 0, bit
    cdef int64_t value = 0
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
                if not is_taken(value):
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


# ---- ROCKETMQ

cdef bint read_binary_header(Bytes p, Bytes end, Header* header) noexcept nogil:
    cdef Py_ssize_t size
    cdef Text name, value
    cdef int count = 0
    # Code, language, version, opaque, flag, no remark, and ext fields to the end.
    if end - p < BINARY_FIXED_BYTES + 4 or not is_taken(get_short(p)):
        return False
    header.code = get_short(p)
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
        name.at, name.size = p + 2, get_short(p)
        if name.size > end - name.at - 4:
            return False
        p = name.at + name.size
        value.at, value.size = p + 4, <Py_ssize_t>get_int(p)
        if value.size > end - value.at:
            return False
        p = value.at + value.size
        if not is_utf8(name.at, name.size) or not is_utf8(value.at, value.size):
            return False
        count += 1
        if not take_ext(header, &name, &value):
            return False
    return True


# ---- MSGPACK

cdef Bytes read_packed_int(Bytes p, Bytes end, int64_t* value) noexcept nogil:
    """Read a packed number of 32 bits at most; return what follows it, NULL when it is none."""
    cdef uint8_t kind
    if p >= end:
        return NULL
    kind = p[0]
    p += 1
    if kind < 0x80 or kind >= 0xE0:
        value[0] = <int8_t>kind
        return p
    if (kind == 0xCC or kind == 0xD0) and end - p >= 1:
        value[0] = p[0] if kind == 0xCC else <int8_t>p[0]
        return p + 1
    if (kind == 0xCD or kind == 0xD1) and end - p >= 2:
        value[0] = get_short(p) if kind == 0xCD else <int16_t>get_short(p)
        return p + 2
    if (kind == 0xCE or kind == 0xD2) and end - p >= 4:
        value[0] = <int64_t>get_int(p) if kind == 0xCE else <int32_t>get_int(p)
        return p + 4
    return NULL

cdef Bytes read_packed_text(Bytes p, Bytes end, Text* text) noexcept nogil:
    """Read a packed text of less than 64 KiB; return what follows it, NULL when it is none."""
    cdef uint8_t kind
    if p >= end:
        return NULL
    kind = p[0]
    p += 1
    if 0xA0 <= kind < 0xC0:
        text.size = kind & 0x1F
    elif kind == 0xD9 and end - p >= 1:
        text.size = p[0]
        p += 1
    elif kind == 0xDA and end - p >= 2:
        text.size = get_short(p)
        p += 2
    else:
        return NULL
    text.at, text.escaped = p, False
    if text.size > end - p or not is_utf8(p, text.size):
        return NULL
    return p + text.size

cdef bint read_msgpack_header(Bytes p, Bytes end, Header* header) noexcept nogil:
    cdef int64_t numbers[5]  # code, language, version, opaque, flag
    cdef Text name, value
    cdef int number, count
    if p >= end or p[0] != 0x97:  # an array of seven
        return False
    p += 1
    for number in range(5):
        p = read_packed_int(p, end, &numbers[number])
        if p == NULL or not is_int(numbers[number]):
            return False
    header.code, header.opaque, header.flag = numbers[0], numbers[3], numbers[4]
    # No remark, then a map.
    if not is_taken(header.code) or end - p < 2 or p[0] != 0xC0:
        return False
    if p[1] & 0xF0 == 0x80:
        count = p[1] & 0x0F
        p += 2
    elif p[1] == 0xDE and end - p >= 4:
        count = <int>get_short(p + 2)
        p += 4
    else:
        return False
    if count > MAX_EXT_FIELDS:
        return False
    for number in range(count):
        p = read_packed_text(p, end, &name)
        if p == NULL:
            return False
        p = read_packed_text(p, end, &value)
        if p == NULL or not take_ext(header, &name, &value):
            return False
    return p == end
