# Pulls of eligible records, for _plain_sends.pyx, one after the other. Permissions and statistics are
# handled in Python (fast_path/pull_service.py); header, queue entries and records in C.
#
#     read_pull     processor/pull_message.py  read_pull
#     take_entries  store/read/message_reader.py            MessageReader.begin_plain returns what may be taken
#     stands        operation/pull_checks.py   PullChecks.standing
#     pull_on       store/read/message_reader.py            MessageReader.begin_plain, with a cursor
#     entries_of    store/read/entry_cache.py        EntryCache.window
#     is_intact     proto/record/record_check.py      _is_plain_and_intact, of messages from before a restart
#
# A pull without a message is suspended in Python like any other; when resumed, it is served here.
#
# The plan of a consumer's pulls of one queue is made once and cached by the bytes of the common fields
# (`Pulls.known`); each pull checks whether it is still valid. At most 1,024 plans are cached, with keys
# of at most 512 bytes: 2 MB for a server.
#
# Nearly every pull continues where the one before ended. Its permissions and its cursor
# (`PullPlan.place`) are then compared with the current state instead of computed again
# (`Pulls.pull_on`). The comparison covers all inputs of the rule that it replaces; tests/unit/broker/fast_path/test_pull_service.py and
# test_pulls_that_go_on.py change each of it between two pulls.
#
# Records for a condition are selected in _plain_sends_conditions.pxi.

cdef enum:
    MOST_PULLS = 64  # in one call
    MOST_PULLED_BYTES = 1048576  # after which no further pull is started
    MOST_LOOKED_AT = 1024  # records checked by conditions, after which no further pull is started
    MOST_TAKEN = 1024
    MOST_CODES = 8
    MOST_KNOWN = 1024
    MOST_KEY_BYTES = 512
    HEAD_PARTS = 5
    MOST_DIGITS = 20

cdef struct Wanted:  # of a pull
    int64_t queue_id, queue_offset, max_count, sys_flag, commit_offset, suspend_ms, sub_version
    int64_t max_bytes

cdef struct Part:  # of the store, where a pull reads
    Bytes entries
    Py_ssize_t entry_count
    Bytes file
    int64_t base, end, first  # physical offsets: of the file, of its end, of the first eligible record
    int64_t check_before  # physical offset of the first record that needs no check
    Py_ssize_t proven  # leading entries of records that were checked before
    int64_t most, most_bytes
    int64_t codes[MOST_CODES]
    int code_count  # -1: all tags match

cdef struct Taken:
    int count, looked_at
    int64_t size
    int64_t at[MOST_TAKEN]  # position of each record in its file
    int32_t sizes[MOST_TAKEN]


cdef bint read_pull(Header* header, Wanted* wanted) noexcept nogil:
    """Parse the fields of a pull; False when one is missing, unusual or out of range."""
    cdef Text* fields = header.pull
    if not is_pull(header.code) or header.flag != 0:
        return False
    if fields[PULL_GROUP].at == NULL or fields[PULL_GROUP].escaped:
        return False
    if fields[PULL_TOPIC].at == NULL or fields[PULL_TOPIC].escaped:
        return False
    if fields[PULL_EXPRESSION].at != NULL and fields[PULL_EXPRESSION].escaped:
        return False
    if fields[PULL_EXPRESSION_TYPE].at != NULL and fields[PULL_EXPRESSION_TYPE].escaped:
        return False
    wanted.max_bytes = 0
    if fields[PULL_MAX_BYTES].at != NULL:
        if not text_number(&fields[PULL_MAX_BYTES], &wanted.max_bytes):
            return False
    return (
        text_number(&fields[PULL_QUEUE_ID], &wanted.queue_id)
        and text_number(&fields[PULL_QUEUE_OFFSET], &wanted.queue_offset)
        and text_number(&fields[PULL_MAX_COUNT], &wanted.max_count)
        and text_number(&fields[PULL_SYS_FLAG], &wanted.sys_flag)
        and text_number(&fields[PULL_COMMIT_OFFSET], &wanted.commit_offset)
        and text_number(&fields[PULL_SUSPEND_MS], &wanted.suspend_ms)
        and text_number(&fields[PULL_SUB_VERSION], &wanted.sub_version)
        and is_int(wanted.queue_id)
        and is_int(wanted.max_count)
        and is_int(wanted.sys_flag)
        and is_int(wanted.max_bytes)
    )

cdef inline bint takes_code(Part* part, int64_t code) noexcept nogil:
    cdef int number
    for number in range(part.code_count):
        if part.codes[number] == code:
            return True
    return part.code_count < 0

cdef inline bint is_enough(Part* part, Taken* taken, int64_t size) noexcept nogil:
    """Whether a record of a size, and all after it, are left to the next pull."""
    return taken.count > 0 and (taken.count >= part.most or taken.size + size > part.most_bytes)

cdef inline bint is_plain(Part* part, int64_t place, int64_t size, int64_t last_end) noexcept nogil:
    return size > 0 and last_end <= place <= part.end and size <= part.end - place

cdef inline bint take_one(Taken* taken, int64_t at, int64_t size) noexcept nogil:
    """Take a record; False when the limit is reached."""
    if taken.count == MOST_TAKEN:
        return False
    taken.at[taken.count], taken.sizes[taken.count] = at, <int32_t>size
    taken.count += 1
    taken.size += size
    return True

cdef bint is_intact(Bytes record, Py_ssize_t size, int64_t place) noexcept nogil:
    """Whether a record is one of version 1 with IPv4 hosts, as it was stored."""
    cdef Py_ssize_t body, topic_end
    if size < RECORD_HEAD_BYTES + 3:
        return False
    if get_int(record) != size or get_int(record + 4) != magic_v1 or get_long(record + 28) != place:
        return False
    if <int32_t>get_int(record + 36) & host_bits:
        return False
    body = <Py_ssize_t>get_int(record + 84)
    if body > size - RECORD_HEAD_BYTES - 3:
        return False
    topic_end = RECORD_HEAD_BYTES + body + 1 + record[RECORD_HEAD_BYTES + body]
    if topic_end > size - 2 or record[topic_end] > 0x7F:
        return False
    if get_short(record + topic_end) != size - topic_end - 2:
        return False
    return body == 0 or body_crc(record + RECORD_HEAD_BYTES, body) == get_int(record + 8)

cdef bint take_entries(Part* part, Taken* taken) noexcept nogil:
    """Take the records of entries until there are enough; False when one is ineligible or damaged."""
    cdef Py_ssize_t number
    cdef Bytes entry = part.entries
    cdef int64_t place, size, last_end = part.base
    for number in range(part.entry_count):
        place, size = get_long(entry), <int32_t>get_int(entry + 8)
        if is_enough(part, taken, size):
            break
        if place < part.first:
            return False
        if takes_code(part, get_long(entry + 12)):
            if not is_plain(part, place, size, last_end):
                return False
            if number >= part.proven and place < part.check_before:
                if not is_intact(part.file + (place - part.base), size, place):
                    return False
            if not take_one(taken, place - part.base, size):
                return False
            last_end = place + size
        taken.looked_at += 1
        entry += QUEUE_ENTRY_BYTES
    return True

cdef inline uint8_t* add_number(uint8_t* p, int64_t value) noexcept nogil:
    memcpy(p, &value, 8)
    return p + 8

cdef Py_ssize_t write_key(uint8_t* key, Header* header, Wanted* wanted) noexcept nogil:
    """Write the key of a consumer's pulls of one queue; 0 when it is too long."""
    cdef Text* text
    cdef int number
    cdef int[4] texts = [PULL_GROUP, PULL_TOPIC, PULL_EXPRESSION, PULL_EXPRESSION_TYPE]
    cdef Py_ssize_t left = MOST_KEY_BYTES - 10 * 8  # after six numbers and four lengths
    cdef uint8_t* p = key
    for number in texts:
        text = &header.pull[number]
        if text.at != NULL:
            if text.size > left:
                return 0
            left -= text.size
    p = add_number(p, header.code)
    p = add_number(p, wanted.queue_id)
    p = add_number(p, wanted.max_count)
    p = add_number(p, wanted.sys_flag)
    p = add_number(p, wanted.sub_version)
    p = add_number(p, wanted.max_bytes)
    for number in texts:
        text = &header.pull[number]
        if text.at == NULL:
            p = add_number(p, -1)
        else:
            p = add(add_number(p, text.size), text.at, text.size)
    return p - key

cdef object text_or_none(Text* text):
    if text.at == NULL:
        return None
    return PyBytes_FromStringAndSize(<char*>text.at, text.size).decode()


cdef class Pulls:
    """Serves eligible pulls, and collects the responses of one call.

    Args:
        runs: starts and ends pulls (`rocketpy.broker.fast_path.pull_service.FastPullService`).
    """

    cdef object runs, begin, ends, head, wait, settle, now_ms, has_reset
    cdef object checks, topics, groups, consumers, resets  # inputs of the permissions of pulls
    cdef object log_files, offsets, damaged, kept_reads  # where they read
    cdef int64_t scan_count, recent_bytes
    cdef dict known
    cdef list reads  # of this call, answered
    cdef object began_ms  # start of the first pull of this call
    cdef int count
    cdef uint8_t* out
    cdef Py_ssize_t out_size, out_room
    cdef Taken taken
    cdef Matcher matcher

    def __init__(self, runs):
        self.runs = runs
        self.begin, self.ends, self.head = runs.begin, runs.ends, runs.head
        self.wait, self.settle, self.now_ms = runs.wait, runs.settle, runs.now_ms
        self.checks, self.resets, self.has_reset = runs.checks, runs.resets, runs.has_reset
        self.topics, self.groups = self.checks.topics, self.checks.groups
        self.consumers = self.checks.consumers
        sources = runs.sources
        self.log_files, self.offsets = sources.log_files, sources.offsets
        self.damaged, self.kept_reads = sources.damaged, sources.kept_reads
        self.scan_count, self.recent_bytes = sources.scan_count, sources.recent_bytes
        self.known = {}
        self.reads = []
        self.began_ms = None
        self.matcher = Matcher()

    def __dealloc__(self):
        free(self.out)

    cdef bint has_room(self) noexcept:
        """Whether another pull may be served in this call."""
        return (
            self.count < MOST_PULLS
            and self.out_size < MOST_PULLED_BYTES
            and self.matcher.looked_at < MOST_LOOKED_AT
        )

    cdef bytes responses(self):
        """Return the responses so far."""
        return PyBytes_FromStringAndSize(<char*>self.out, self.out_size) if self.count else b""

    cdef int forget(self) except -1:
        """Settle the served pulls, start again, and free large buffers."""
        self.count = 0
        self.out_size = 0
        self.matcher.looked_at = 0
        if self.out_room > MOST_KEPT_BYTES:
            free(self.out)
            self.out = NULL
            self.out_room = 0
        return self.settle_reads()

    cdef int settle_reads(self) except -1:
        """Commit and count the pulls so far."""
        began_ms, self.began_ms = self.began_ms, None
        if self.reads:
            reads, self.reads = self.reads, []
            self.settle(reads, began_ms)
        return 0

    cdef bint serve(self, Header* header, uint32_t kind, channel) except -1:
        """Answer or suspend one pull; False when it is not eligible, and nothing was changed."""
        cdef Wanted wanted
        if not read_pull(header, &wanted):
            return False
        known = self.known_pull(header, &wanted)
        if self.pull(known, wanted.queue_offset, wanted.commit_offset, header.opaque, kind):
            return True
        self.settle_reads()  # earlier pulls are committed before this one
        response = self.wait(
            known,
            wanted.queue_offset,
            wanted.commit_offset,
            wanted.suspend_ms,
            header.opaque,
            kind,
            channel,
        )
        if response is None:
            return False
        if response:
            self.taken.count = 0
            self.taken.size = 0
            self.answer(response, 0, 0, 0, 0, NULL)
        self.count += 1
        return True

    cdef bint pull(
        self, known, int64_t queue_offset, int64_t commit_offset, int64_t opaque, uint32_t kind
    ) except -1:
        """Answer a pull; False without messages or when it is not eligible, and nothing was changed."""
        if self.began_ms is None:
            self.began_ms = self.now_ms()
        place = known.place
        if place is not None and self.stands(known):
            if self.is_at_end(place, queue_offset):
                return False  # as Python would find; it is suspended, and continues here when resumed
            if self.pull_on(known, place, queue_offset, commit_offset, opaque, kind):
                self.count += 1
                return True
        if self.pull_anew(known, queue_offset, commit_offset, opaque, kind):
            self.count += 1
            return True
        return False

    cdef bint pull_anew(
        self, known, int64_t queue_offset, int64_t commit_offset, int64_t opaque, uint32_t kind
    ) except -1:
        """Answer a pull that is started by Python."""
        cdef Py_buffer entries, file
        cdef bint has_entries = False, has_file = False
        cdef int64_t next_offset
        cdef Part part
        try:
            given = self.begin(known, queue_offset)
            if given is None:
                return False
            PyObject_GetBuffer(given[0], &entries, PyBUF_SIMPLE)
            has_entries = True
            PyObject_GetBuffer(given[1], &file, PyBUF_SIMPLE)
            has_file = True
            part.entries, part.entry_count = <Bytes>entries.buf, entries.len // QUEUE_ENTRY_BYTES
            part.base, part.end, part.first = given[2], given[3], given[4]
            part.check_before, part.proven = given[11], given[12]
            part.file = <Bytes>file.buf
            if part.base < 0 or part.end < part.base or part.end - part.base > file.len:
                return False
            if not self.take(&part, known, known.condition):
                return False
            next_offset = queue_offset + self.taken.looked_at
            if not (self.taken.count and given[15]):  # `BulkReadPlan.is_usual`
                if not self.ends(given, next_offset, self.taken.count):
                    return False
            self.give(known, &part, given[5], given[6], next_offset, commit_offset, opaque, kind)
        finally:
            if known.condition is not None:
                known.condition = None  # large, and set for each pull
            if has_file:
                PyBuffer_Release(&file)
            if has_entries:
                PyBuffer_Release(&entries)
        return True

    # ---- pulls that continue: `MessageReader.begin_plain` in a few comparisons

    cdef bint stands(self, known) except -1:
        """Whether the permissions of a plan are still valid, and no reset is pending."""
        last = self.checks.last
        return (
            last[0] == known.standing  # number
            and last[1] is self.checks.config
            and last[2] is self.topics.entries
            and last[3] is self.groups.entries
            and last[4] is self.groups.forbidden
            and last[5] == self.consumers.version
            and not (
                self.resets.count and self.has_reset(known.group, known.topic, known.queue_id)
            )
        )

    cdef bint is_at_end(self, place, int64_t queue_offset) except -1:
        """Whether a pull is at the end of its queue."""
        queue = place[0]
        return queue_offset == <int64_t>queue.max_offset and not queue.is_deleted

    cdef bint pull_on(
        self,
        known,
        place,
        int64_t queue_offset,
        int64_t commit_offset,
        int64_t opaque,
        uint32_t kind,
    ) except -1:
        """Answer a pull with the cursor of the one before; False when that is not valid."""
        cdef Py_buffer entries, file
        cdef bint has_entries = False, has_file = False
        cdef int64_t low, high, at, phy_offset
        cdef Py_ssize_t index
        cdef Part part
        queue, at_file = place[0], place[1]
        low, high = queue.min_offset, queue.max_offset
        if not low <= queue_offset < high or queue.is_deleted:
            return False
        try:
            found = self.entries_of(queue, queue_offset)
            if found is None:
                return False
            buffer, at = found
            PyObject_GetBuffer(buffer, &entries, PyBUF_SIMPLE)
            has_entries = True
            if not 0 <= at < entries.len:
                return False
            part.entries = <Bytes>entries.buf + at
            part.entry_count = (entries.len - at) // QUEUE_ENTRY_BYTES
            part.entry_count = min(part.entry_count, self.scan_count)
            part.entry_count = min(part.entry_count, high - queue_offset)
            if part.entry_count < 1:
                return False
            phy_offset = get_long(part.entries)
            if not <int64_t>place[3] <= phy_offset < <int64_t>place[6]:
                return False
            if len(self.damaged) != <Py_ssize_t>place[5]:
                return False
            if phy_offset < <int64_t>self.offsets.appended - self.recent_bytes:
                return False
            files, index = self.log_files.files, at_file
            if index >= len(files):
                return False
            mapped = files[index]
            part.base = mapped.base_offset
            if part.base != <int64_t>place[2]:
                return False
            part.end = min(part.base + <int64_t>mapped.write_position, <int64_t>place[4])
            PyObject_GetBuffer(mapped.view, &file, PyBUF_SIMPLE)
            has_file = True
            if not part.base <= phy_offset < part.end or part.end - part.base > file.len:
                return False
            part.file, part.first = <Bytes>file.buf, phy_offset
            part.check_before = part.proven = 0
            if not self.take(&part, known, None) or self.taken.count == 0:
                return False
            at = queue_offset + self.taken.looked_at
            self.give(known, &part, low, high, at, commit_offset, opaque, kind)
        finally:
            if has_file:
                PyBuffer_Release(&file)
            if has_entries:
                PyBuffer_Release(&entries)
        return True

    cdef tuple entries_of(self, queue, int64_t queue_offset):
        """Return memory with queue entries, and the position of one; None when it is not in memory.

        Like `EntryCache.window`, which also reads from disk.
        """
        cdef int64_t start, at
        first, tail = queue.tail
        start = first
        if queue_offset >= start:
            return tail, (queue_offset - start) * QUEUE_ENTRY_BYTES
        for first, memory, end in self.kept_reads.get(queue.life, ()):
            start = first
            at = (queue_offset - start) * QUEUE_ENTRY_BYTES
            if 0 <= at < <int64_t>end:
                return memory, at
        return None

    # ---- records and responses

    cdef int give(
        self,
        known,
        Part* part,
        int64_t low,
        int64_t high,
        int64_t next_offset,
        int64_t commit_offset,
        int64_t opaque,
        uint32_t kind,
    ) except -1:
        """Add the response to a pull, and record it for `settle_reads`."""
        cdef Taken* taken = &self.taken
        if kind == JSON:
            head = known.heads[taken.count > 0]
        else:
            offsets = (high, low, next_offset)
            head = self.head(known, offsets, opaque, kind, taken.count, taken.size)
        self.answer(head, low, high, next_offset, opaque, part.file)
        if not known.commits:
            commit_offset = -1
        self.reads.append((known, next_offset, commit_offset, taken.count, taken.size))
        return 0

    cdef object known_pull(self, Header* header, Wanted* wanted):
        """Return the plan of a consumer's pulls of one queue."""
        cdef uint8_t[MOST_KEY_BYTES] room
        cdef Py_ssize_t size = write_key(room, header, wanted)
        key = PyBytes_FromStringAndSize(<char*>room, size)
        known = self.known.get(key)
        if known is not None:
            return known
        known = self.runs.know(
            header.code,
            text_or_none(&header.pull[PULL_GROUP]),
            text_or_none(&header.pull[PULL_TOPIC]),
            wanted.queue_id,
            wanted.max_count,
            wanted.sys_flag,
            text_or_none(&header.pull[PULL_EXPRESSION]),
            text_or_none(&header.pull[PULL_EXPRESSION_TYPE]),
            wanted.sub_version,
            wanted.max_bytes,
        )
        if size:
            if len(self.known) >= MOST_KNOWN:
                self.known.clear()
            self.known[key] = known
        return known

    cdef bint take(self, Part* part, known, condition) except -1:
        """Select the records; False when they are not eligible."""
        part.most, part.most_bytes = known.limit
        self.taken.count = self.taken.looked_at = 0
        self.taken.size = 0
        if condition is not None:
            return self.matcher.take(part, part.file, &self.taken, condition)
        codes = known.codes
        part.code_count = -1
        if codes is not None:
            if len(codes) > MOST_CODES:
                return False
            part.code_count = 0
            for code in codes:
                part.codes[part.code_count] = code
                part.code_count += 1
        return take_entries(part, &self.taken)

    cdef uint8_t* room_for(self, Py_ssize_t head_size) except NULL:
        """Return the place of the response, with space for a head of a size and the records."""
        cdef Py_ssize_t room = self.out_size + head_size + <Py_ssize_t>self.taken.size
        cdef uint8_t* larger
        if self.out == NULL or room > self.out_room:
            room += room // 2
            larger = <uint8_t*>realloc(self.out, room)
            if larger == NULL:
                raise MemoryError
            self.out, self.out_room = larger, room
        return self.out + self.out_size

    cdef int answer(
        self,
        head,
        int64_t low,
        int64_t high,
        int64_t next_offset,
        int64_t opaque,
        Bytes file,
    ) except -1:
        """Add the response: head and records."""
        cdef Text[HEAD_PARTS] texts
        cdef Py_ssize_t size
        cdef uint8_t* start
        cdef uint8_t* p
        if isinstance(head, tuple):
            size = take_parts(texts, head, HEAD_PARTS)
            start = self.room_for(8 + size + (HEAD_PARTS - 1) * MOST_DIGITS)
            p = add_decimal(add_text(start + 8, &texts[0]), high)
            p = add_decimal(add_text(p, &texts[1]), low)
            p = add_decimal(add_text(p, &texts[2]), next_offset)
            p = add_decimal(add_text(p, &texts[3]), opaque)
            p = add_text(p, &texts[4])
            size = p - start - 8
            put_int(start, <uint32_t>(4 + size + self.taken.size))
            put_int(start + 4, <uint32_t>size)
        else:
            size = PyBytes_Size(head)
            p = add(self.room_for(size), <Bytes>PyBytes_AsString(head), size)
        self.out_size = self.add_records(p, file) - self.out
        return 0

    cdef uint8_t* add_records(self, uint8_t* p, Bytes file) noexcept nogil:
        """Append the taken records."""
        cdef int number = 0, following
        cdef int64_t at, size
        while number < self.taken.count:
            # Consecutive records are copied by one call.
            at, size = self.taken.at[number], self.taken.sizes[number]
            following = number + 1
            while following < self.taken.count and self.taken.at[following] == at + size:
                size += self.taken.sizes[following]
                following += 1
            p = add(p, file + at, size)
            number = following
        return p
