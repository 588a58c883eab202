# Selection of records by an SQL92 condition, for _plain_sends_pulls.pxi. The values of its properties
# are found here; the condition itself, closures in Python, is evaluated for many records at once.
#
#     find_properties  proto/record/record.py      properties_of
#     find_values      sql92/condition.py   Condition.matches_stored
#     Matcher          store/read/selection.py Selection.take, .take_runs

cdef enum:
    MOST_NAMES = 8
    MOST_MET = 64  # cached rows of values during one pull
    MOST_PLACES = 4  # slots in which a row may be cached
    MOST_ASKED = 128  # records collected before the condition is evaluated
    FEWEST_ASKED = 8
    MOST_MET_BYTES = 64  # of the values of a cached row
    # Size of skipped records; above it Python continues, which has a higher limit.
    MOST_LEFT_BYTES = 4194304
    V6_EXTRA_BYTES = 12

cdef int64_t born_v6 = BORN_HOST_V6
cdef int64_t store_v6 = STORE_HOST_V6

cdef struct Asked:  # a collected record
    int64_t at
    int64_t size
    int row  # of its values; -1: already evaluated
    bint answer

cdef struct Met:  # a row of values
    Text values[MOST_NAMES]
    int row  # among those to evaluate; -1: already evaluated
    bint is_used, answer


cdef bint find_properties(Bytes record, Py_ssize_t size, Text* found) noexcept nogil:
    """Find the properties of a record; False when its layout is not eligible."""
    cdef Py_ssize_t at = RECORD_HEAD_BYTES, body_size, topic_size
    cdef uint32_t magic
    cdef int64_t sys_flag
    if size < RECORD_HEAD_BYTES:
        return False
    magic, sys_flag = get_int(record + 4), get_int(record + 36)
    if sys_flag & born_v6:
        at += V6_EXTRA_BYTES
    if sys_flag & store_v6:
        at += V6_EXTRA_BYTES
    if size < at:
        return False
    body_size = <Py_ssize_t>get_int(record + at - 4)
    if body_size > size - at:
        return False
    at += body_size
    if magic == magic_v1 and size - at >= 1:
        topic_size = record[at]
        at += 1
    elif magic == magic_v2 and size - at >= 2:
        topic_size = get_short(record + at)
        at += 2
    else:
        return False
    if topic_size > 0x7FFF or topic_size > size - at - 2:
        return False
    at += topic_size + 2
    found.at, found.size, found.escaped = record + at, size - at, False
    return get_short(record + at - 2) == found.size

cdef void find_values(Text* properties, Text* names, int count, Text* values) noexcept nogil:
    """Find the values of properties: of each name the last value that is not empty."""
    cdef Bytes p = properties.at, end = properties.at + properties.size, pair_end
    cdef Py_ssize_t size
    cdef int number
    for number in range(count):
        values[number].at, values[number].size, values[number].escaped = p, 0, False
    while p < end:
        pair_end = <Bytes>memchr(p, 2, end - p)
        if pair_end == NULL:
            pair_end = end
        for number in range(count):
            size = names[number].size
            if pair_end - p > size + 1 and p[size] == 1 and memcmp(p, names[number].at, size) == 0:
                values[number].at, values[number].size = p + size + 1, pair_end - p - size - 1
        p = pair_end + 1

cdef int first_slot(Text* values, int count) noexcept nogil:
    """Return the first slot in which a row may be cached; -1 when it is too long."""
    cdef uint32_t found = 2166136261U
    cdef Py_ssize_t at, left = MOST_MET_BYTES
    cdef int number
    for number in range(count):
        left -= values[number].size
        if left < 0:
            return -1
        found = (found ^ 0x102) * 16777619U
        for at in range(values[number].size):
            found = (found ^ values[number].at[at]) * 16777619U
    return <int>((found ^ (found >> 15)) % MOST_MET)

cdef bint is_row(Text* one, Text* other, int count) noexcept nogil:
    cdef int number
    for number in range(count):
        if not same(&one[number], &other[number]):
            return False
    return True

cdef int find_slot(Met* met, Text* values, int count, bint* is_met) noexcept nogil:
    """Return the slot of a cached row, or a free one; -1 without either."""
    cdef int first = first_slot(values, count), slot, number
    is_met[0] = False
    if first < 0:
        return -1
    for number in range(MOST_PLACES):
        slot = (first + number) % MOST_MET
        if not met[slot].is_used:
            return slot
        if is_row(met[slot].values, values, count):
            is_met[0] = True
            return slot
    return first

cdef tuple row_of(Text* values, int count):
    """Return the values in the form that a condition expects."""
    cdef int number
    row = PyTuple_New(count)
    for number in range(count):
        value = PyBytes_FromStringAndSize(<char*>values[number].at, values[number].size)
        Py_INCREF(value)
        PyTuple_SetItem(row, number, value)
    return row


cdef class Matcher:
    """Chooses the records of a pull by a condition; serves one pull at a time.

    The result of a condition depends only on the values, which repeat. It is evaluated once for
    each row of values as far as results are cached, during one pull.
    """

    cdef int64_t looked_at  # records since it was set to 0, each multiplied by the condition's weight
    cdef int64_t weight
    cdef int64_t last_end  # of the last collected record
    cdef Asked asked[MOST_ASKED]
    cdef Met met[MOST_MET]

    cdef bint take(self, Part* part, Bytes file, Taken* taken, condition) except -1:
        """Take matching records until there are enough; False when an entry is not eligible."""
        cdef tuple given = condition.stored_names
        cdef Text names[MOST_NAMES]
        cdef int number, asked_count, count = len(given)
        cdef int64_t left_size = 0, wanted = 2 * part.most
        cdef Asked* asked
        if count > MOST_NAMES:
            return False
        self.weight = condition.weight
        for number in range(count):
            names[number] = text_of(given[number])
        for number in range(MOST_MET):
            self.met[number].is_used = False
        self.last_end = max(part.base, part.first)
        while taken.looked_at < part.entry_count:
            asked_count = self.ask(
                part, file, taken.looked_at, min(max(wanted, FEWEST_ASKED), MOST_ASKED),
                names, count, condition,
            )
            for number in range(asked_count):
                asked = &self.asked[number]
                if is_enough(part, taken, asked.size):
                    return True
                if left_size > MOST_LEFT_BYTES:
                    return False
                if not asked.answer:
                    left_size += asked.size
                elif not take_one(taken, asked.at, asked.size):
                    return False
                taken.looked_at += 1
            if asked_count == 0:
                # An ineligible record does not matter to a pull that has enough.
                return is_enough(
                    part,
                    taken,
                    <int32_t>get_int(part.entries + taken.looked_at * QUEUE_ENTRY_BYTES + 8),
                )
            # Estimate from the hit rate so far how many records are needed.
            wanted = (part.most - taken.count) * taken.looked_at
            wanted = wanted * 17 // (16 * max(1, taken.count)) + 2
        return True

    cdef int ask(
        self, Part* part, Bytes file, int first, int64_t most, Text* names, int count, condition
    ) except -1:
        """Evaluate eligible records, up to one that is not; return their number."""
        cdef Bytes entry = part.entries + first * QUEUE_ENTRY_BYTES
        cdef Text properties
        cdef Text values[MOST_NAMES]
        cdef int64_t place, size
        cdef int found = 0, slot
        cdef bint is_met
        cdef Asked* asked
        rows = []
        while found < most and first + found < part.entry_count:
            place, size = get_long(entry), <int32_t>get_int(entry + 8)
            if not is_plain(part, place, size, self.last_end):
                break
            if not find_properties(file + (place - part.base), size, &properties):
                break
            find_values(&properties, names, count, values)
            asked = &self.asked[found]
            asked.at, asked.size = place - part.base, size
            slot = find_slot(self.met, values, count, &is_met)
            if is_met:
                asked.row, asked.answer = self.met[slot].row, self.met[slot].answer
            else:
                asked.row = len(rows)
                rows.append(row_of(values, count))
                if slot >= 0:
                    self.remember(slot, values, count, asked.row)
            self.last_end = place + size
            found += 1
            entry += QUEUE_ENTRY_BYTES
        self.looked_at += found * self.weight
        if rows:
            self.answer(condition.match_values(rows), len(rows), found)
        return found

    cdef void remember(self, int slot, Text* values, int count, int row) noexcept:
        cdef int number
        for number in range(count):
            self.met[slot].values[number] = values[number]
        self.met[slot].row, self.met[slot].is_used = row, True

    cdef int answer(self, list answers, Py_ssize_t count, int found) except -1:
        """Store the results of the condition for the rows."""
        cdef int number
        if len(answers) != count:
            raise ValueError("a condition answered other rows")
        for number in range(found):
            if self.asked[number].row >= 0:
                self.asked[number].answer = answers[self.asked[number].row]
        for number in range(MOST_MET):
            if self.met[number].is_used and self.met[number].row >= 0:
                self.met[number].answer, self.met[number].row = answers[self.met[number].row], -1
        return 0
