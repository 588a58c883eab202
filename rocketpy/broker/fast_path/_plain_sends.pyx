# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Serves fast-path eligible sends and pulls in received bytes by one call: docs/decisions/0008.

It does for the leading frames exactly what Python does for single ones. Any other frame ends the
bulk and is served by Python; `look_ahead` returns where the next bulk starts. The included parts name
the Python code that they mirror:

    _plain_sends_text.pxi     numbers, texts, hashes
    _plain_sends_crc.pxi      checksums of bodies
    _plain_sends_headers.pxi  headers in JSON, ROCKETMQ's form and MSGPACK
    _plain_sends_plan.pxi     messages of a request, checked before anything is changed
    _plain_sends_transactions.pxi  half messages, and commits of those in the log
    _plain_sends_delays.pxi   messages with a delay level, and due messages
    _plain_sends_write.pxi    records, queue entries, index entries, responses
    _plain_sends_conditions.pxi  selection of records by an SQL92 condition
    _plain_sends_pulls.pxi    pulls, tried where no send is first

Three steps: leading frames are parsed and checked without any change (`plan`); the store reserves
space under its append lock (`DirectAppend.begin`), the only step that may fail; then the bytes are
written (`write`) and published (`DirectAppend.end`).

Every read of received bytes is between a position and a checked end. Lengths are `Py_ssize_t`, and
compared with the remaining size before they are added, so that no sum overflows.
tests/unit/broker/fast_path/test_compiled_path.py checks that both paths give the same bytes.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AsString, PyBytes_FromStringAndSize, PyBytes_Size
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SetItem
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy

from rocketpy.broker.transaction.half_message import MAX_HALF_PROPERTIES_BYTES
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.record.properties import (
    PROPERTY_CHECK_IMMUNITY_TIME, PROPERTY_CLUSTER, PROPERTY_DELAY_TIME_LEVEL, PROPERTY_KEYS,
    PROPERTY_MSG_REGION, PROPERTY_PRODUCER_GROUP, PROPERTY_REAL_QUEUE_ID, PROPERTY_REAL_TOPIC, PROPERTY_TAGS,
    PROPERTY_TRACE_SWITCH, PROPERTY_TRANSACTION_CHECK_TIMES, PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED, PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, PROPERTY_UNIQ_KEY,
    PROPERTY_WAIT_STORE_MSG_OK,
)
from rocketpy.proto.record.record import FIXED_BYTES, HOST_FLAGS, MAGIC_V1, MAGIC_V2, topic_field
from rocketpy.proto.record.sys_flag import (
    BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_PREPARED,
)
from rocketpy.proto.topic_names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.store.append.dispatch import arrival_failed

cdef extern from *:
    """
    #ifndef ROCKETPY_SOURCES
    #define ROCKETPY_SOURCES ""
    #endif
    """
    const char* ROCKETPY_SOURCES

SOURCES = <bytes>ROCKETPY_SOURCES  # `rocketpy.compiled_module` compares it with those beside it

include "_plain_sends_text.pxi"
include "_plain_sends_crc.pxi"
include "_plain_sends_headers.pxi"
include "_plain_sends_plan.pxi"
include "_plain_sends_transactions.pxi"
include "_plain_sends_delays.pxi"
include "_plain_sends_write.pxi"
include "_plain_sends_conditions.pxi"
include "_plain_sends_pulls.pxi"

named = (
    PROPERTY_UNIQ_KEY, PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_WAIT_STORE_MSG_OK,
    PROPERTY_TRANSACTION_PREPARED, PROPERTY_PRODUCER_GROUP, PROPERTY_REAL_TOPIC,
    PROPERTY_REAL_QUEUE_ID, PROPERTY_CHECK_IMMUNITY_TIME, PROPERTY_TRANSACTION_ID,
    PROPERTY_DELAY_TIME_LEVEL,
)
owned = (PROPERTY_CLUSTER, PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH)
of_halves = (
    PROPERTY_TRANSACTION_ID, PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
)
half_field = topic_field(TRANS_HALF_TOPIC)
delay_field = topic_field(SCHEDULE_TOPIC)

cdef enum:
    MOST_KEPT_BYTES = 2097152  # of buffers, so that one large bulk does not keep its memory
    MOST_KEPT_TOPICS = 4  # of a bulk, reused by the next one
    LOG_FIELD = 2  # of `SpaceFields`
    MOST_DUE_BYTES = 1048576  # of due messages in one call: more would block the loop for long


cdef uint8_t* enlarged(uint8_t* buffer, Py_ssize_t* room, Py_ssize_t wanted) except NULL:
    """Return a buffer of at least a size; its content is undefined."""
    if buffer != NULL and room[0] >= wanted:
        return buffer
    cdef uint8_t* larger = <uint8_t*>realloc(buffer, wanted + 1)
    if larger == NULL:
        raise MemoryError
    room[0] = wanted + 1
    return larger

cdef int take_names(Text* texts, list names) except -1:
    """Set names; they are valid as long as the rules."""
    cdef int number
    for number in range(len(names)):
        texts[number] = text_of(names[number])
    return 0

cdef Py_ssize_t take_parts(Text* texts, tuple parts, int count) except -1:
    """Set the parts of a response template, valid as long as the rules; returns their size."""
    cdef int number
    cdef Py_ssize_t size = 0
    if len(parts) != count:
        raise ValueError("the response's template has other fields")
    for number in range(count):
        texts[number] = text_of(parts[number])
        size += texts[number].size
    return size

cdef int open_index(Writer* writer, Py_buffer* index, tuple run) except -1:
    cdef int64_t seconds
    _, slots, entries_at, first, stop, slots_used, begin_ms = run
    seconds = (writer.store_ms - <int64_t>begin_ms) // 1000
    writer.index = <uint8_t*>index.buf
    writer.slots, writer.entries_at = slots, entries_at
    writer.count, writer.index_end, writer.slots_used = first, stop, slots_used
    writer.seconds = <uint32_t>min(max(seconds, 0), 0x7FFFFFFF)
    if (
        writer.slots < 1
        or writer.count < 1
        or INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * <int64_t>writer.slots > writer.entries_at
        or writer.entries_at + INDEX_ENTRY_BYTES * writer.index_end > index.len
    ):
        raise ValueError("room beyond the index file")
    return 0

cdef int open_place(Place* place, queue, tail) except -1:
    cdef Py_ssize_t at
    place.room = place.phy_end = 0
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


cdef class PlainSends:
    """Serves eligible sends at the start of received bytes; a `rocketpy.remoting.connection.dispatch.ByteHandler`.

    One call at a time: its buffers are shared, so a concurrent or nested call serves nothing.

    Args:
        processor: owner of the current rules (`SendMessageProcessor.plain_rules`).
        direct: reserves space for records (`rocketpy.store.append.direct_append.DirectAppend`).
        max_frame_bytes: maximal size of a frame.
        transactions: bulk handling of half messages and commits
            (`rocketpy.broker.transaction.fast_path.BulkTransactions`).
        pulls: starts and ends pulls (`rocketpy.broker.fast_path.pull_service.FastPullService`); None
            serves no pulls.
    """

    cdef object processor, direct, dispatchers, rules, transactions, count_stored
    cdef object sent_to, lookup  # policies of topics; those of the current bulk
    cdef bint delivers  # due messages: the bulk has topics, not policies
    cdef bint waits  # the stored bulk is not visible at once
    cdef list kept  # owners of the texts of the rules
    cdef bint is_busy
    cdef Py_ssize_t max_frame_size
    cdef list names, policies, fields  # of the topics of this bulk, and of those before it
    cdef bint is_stale  # the next bulk must not reuse the topics
    cdef int half_topic  # number of the half topic; -1: none, -2: not determined
    cdef object log  # log file that halves are read from
    cdef Py_buffer log_view
    cdef bint has_log_view
    cdef list claimed  # queue offsets of the halves that the bulk commits
    cdef Text half_name
    cdef Pulls pulls
    cdef Run run

    def __cinit__(self, *_arguments):
        self.run.sends = <Send*>malloc(MAX_SENDS * sizeof(Send))
        self.run.messages = <Message*>malloc(MAX_MESSAGES * sizeof(Message))
        self.run.keys = <uint32_t*>malloc(MAX_KEYS * sizeof(uint32_t))
        if self.run.sends == NULL or self.run.messages == NULL or self.run.keys == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.run.sends)
        free(self.run.messages)
        free(self.run.keys)
        free(self.run.arena)
        free(self.run.out)

    def __init__(self, processor, direct, Py_ssize_t max_frame_bytes, transactions, pulls=None):
        self.processor = processor
        self.direct = direct
        self.dispatchers = direct.dispatchers
        self.transactions = transactions
        self.half_name = text_of(half_field)
        self.half_name.at, self.half_name.size = self.half_name.at + 1, self.half_name.size - 1
        self.run.rules.delay_field = text_of(delay_field)
        self.run.rules.has_index = direct.has_index
        self.run.rules.answers_wait = direct.answers_wait
        self.max_frame_size = max_frame_bytes
        self.pulls = None if pulls is None else Pulls(pulls)
        self.rules = None
        self.forget_topics()

    def __call__(self, channel, bytes data not None):
        """Serve leading frames; return the number of bytes served, and the responses."""
        # Concurrent, or nested in a listener: the buffers are in use.
        if self.is_busy:
            return 0, b""
        self.begin()
        try:
            return self.serve(channel, channel.remote_host_bytes, data)
        finally:
            self.end()

    def look_ahead(self, bytes data not None):
        """Return the start of the first eligible send or, after the first frame, any pull; else 0."""
        cdef Bytes base = <Bytes>PyBytes_AsString(data)
        cdef Py_ssize_t position = 0, following, end = PyBytes_Size(data)
        cdef uint32_t kind = 0
        cdef Header header
        if self.is_busy or self.rules is None:
            return 0
        self.begin()
        try:
            while True:
                following = self.frame_end(base, position, end)
                if following == 0:
                    return 0
                if self.plan_frame(base, position, following, end):
                    return position
                if position and self.pulls is not None:
                    if read_frame(base, position, following, &kind, &header) != NULL:
                        if is_pull(header.code):
                            return position
                position = following
        finally:
            self.end()

    def answer(self, known, int64_t queue_offset, int64_t opaque, uint32_t kind):
        """Return the response to a resumed pull; None when Python must make it.

        Args:
            known: its plan (`rocketpy.broker.fast_path.pull_service.PullPlan`).
            queue_offset: its offset.
            opaque: opaque of the request.
            kind: header type of the request.
        """
        if self.is_busy or self.pulls is None:
            return None
        self.is_busy = True
        try:
            # -1: its commit offset was committed before it was suspended.
            if not self.pulls.pull(known, queue_offset, -1, opaque, kind):
                return None
            return self.pulls.responses()
        finally:
            self.is_busy = False
            self.pulls.forget()

    def deliver(self, topic_of, tuple part not None, list entries not None, int64_t queue_offset):
        """Store due messages of a delay level in their topics.

        Args:
            topic_of: returns the `TopicConfig` of a name; None for a deleted topic.
            part: memory of a log file, its first physical offset, and the end of its content.
            entries: due entries of the level's queue: physical offset, size, and any number.
            queue_offset: queue offset of the first entry.

        Returns:
            The number of leading messages that were stored, and the physical offset after them;
            Python handles the next message.
        """
        cdef int done = 0
        cdef int64_t phy_end = 0
        if self.is_busy:
            return 0, 0
        self.begin()
        try:
            rules = self.processor.plain_rules
            if rules is not self.rules:
                self.take(rules)
            self.forget_topics()  # cached for due messages, not for sends
            self.lookup, self.delivers = topic_of, True
            self.plan_due(part, entries, queue_offset)
            if self.run.send_count:
                done = self.store(b"", &phy_end)
            if done:
                self.announce(done)
        finally:
            self.end()
        return done, phy_end

    cdef int begin(self) except -1:
        """Start a bulk."""
        cdef Run* run = &self.run
        cdef int number
        self.is_busy = self.is_stale = True
        run.send_count = run.message_count = run.key_count = 0
        run.place_count = run.end_count = 0
        for number in range(run.topic_count):
            run.topics[number].opened = 0
        run.born_size = V4_HOST_BYTES
        run.ends.is_known = False
        run.ends.log = NULL
        run.ends.op_size = 0
        run.delay_topic = -1
        self.half_topic = -2
        self.lookup = self.sent_to
        self.delivers = False
        run.arena_size = run.out_size = run.out_bound = 0
        return 0

    cdef int end(self) except -1:
        """Drop the bulk except for its topics, and free large buffers.

        The topics are kept with their policies; `store` checks under the append lock whether those
        are still current.
        """
        cdef Run* run = &self.run
        self.close_log()
        self.log = self.claimed = None
        if (
            self.is_stale
            or self.half_topic >= 0
            or run.delay_topic >= 0
            or run.topic_count > MOST_KEPT_TOPICS
        ):
            self.forget_topics()
        self.is_busy = self.delivers = False
        self.lookup = None
        if run.arena_room + run.out_room > MOST_KEPT_BYTES:
            free(run.arena)
            free(run.out)
            run.arena = run.out = NULL
            run.arena_room = run.out_room = 0
        return 0

    cdef int forget_topics(self) except -1:
        """Make the next bulk look up its topics again."""
        self.run.topic_count = 0
        self.names, self.policies, self.fields = [], [], []
        return 0

    cdef tuple serve(self, channel, bytes born_host, bytes data):
        cdef Run* run = &self.run
        cdef int done
        cdef int64_t phy_end = 0
        rules = self.processor.plain_rules
        if rules is not self.rules:
            self.take(rules)
        run.born_size = PyBytes_Size(born_host)
        # A peer without an IP address: records need one, pulls do not.
        if run.born_size != V4_HOST_BYTES and run.born_size != V6_HOST_BYTES:
            return self.serve_pulls(channel, data)
        self.plan(<Bytes>PyBytes_AsString(data), PyBytes_Size(data))
        if run.send_count == 0:
            self.is_stale = False
            return self.serve_pulls(channel, data)
        # Before the space is reserved: from there on nothing may fail.
        run.out = enlarged(run.out, &run.out_room, run.out_bound)
        done = self.store(born_host, &phy_end)
        if done == 0:
            return 0, b""
        self.announce(done)
        self.is_stale = False
        following = run.sends[done - 1].following
        if self.waits and run.out_size:
            return following, self.answer_later(channel, phy_end, done)
        return following, PyBytes_FromStringAndSize(<char*>run.out, run.out_size)

    cdef tuple serve_pulls(self, channel, bytes data):
        """Serve leading pulls; return the number of bytes served, and the responses."""
        cdef Bytes base = <Bytes>PyBytes_AsString(data)
        cdef Py_ssize_t position = 0, following, end = PyBytes_Size(data)
        cdef uint32_t kind = 0
        cdef Header header
        if self.pulls is None:
            return 0, b""
        try:
            while self.pulls.has_room():
                following = self.frame_end(base, position, end)
                if following == 0:
                    break
                if read_frame(base, position, following, &kind, &header) == NULL:
                    break
                if not self.pulls.serve(&header, kind, channel):
                    break
                position = following
            return position, self.pulls.responses()
        finally:
            self.pulls.forget()

    cdef int take(self, given) except -1:
        """Apply changed rules."""
        cdef Rules* rules = &self.run.rules
        cdef int number
        # Unset until all are applied: an error below must not leave half of the rules in use.
        self.rules = None
        self.forget_topics()
        self.sent_to = self.lookup = given.known.get
        self.count_stored = given.count_stored
        special = given.special_properties.difference(named, owned)
        encoded = [
            [name.encode() for name in names] for names in (named, special, owned, of_halves)
        ]
        # `Text` holds pointers into these objects.
        self.kept = [given, encoded]
        if len(special) > MAX_SPECIAL_NAMES:
            raise ValueError("too many properties have a meaning")
        uniq_key, keys, tags, wait, prepared, group, topic, queue_id, *others = encoded[0]
        immunity, own_id, delay = others
        rules.uniq_key_name, rules.keys_name = text_of(uniq_key), text_of(keys)
        rules.tags_name, rules.wait_name = text_of(tags), text_of(wait)
        rules.prepared_name, rules.group_name = text_of(prepared), text_of(group)
        rules.real_topic_name, rules.real_queue_name = text_of(topic), text_of(queue_id)
        rules.immunity_name, rules.transaction_id_name = text_of(immunity), text_of(own_id)
        rules.delay_name = text_of(delay)
        rules.level_count = min(len(given.delays_ms), MAX_LEVELS)
        for number in range(rules.level_count):
            rules.delays_ms[number] = given.delays_ms[number]
        rules.special_count = len(special)
        take_names(rules.special, encoded[1])
        take_names(rules.own, encoded[2])
        take_names(rules.of_half, encoded[3])
        rules.max_body_size = given.max_body_bytes
        rules.own_properties, rules.next_id = text_of(given.own_properties), text_of(given.next_id)
        rules.parts_size = (
            take_parts(rules.part, given.json_parts, RESPONSE_PARTS)
            + take_parts(rules.binary_part, given.binary_parts, BINARY_PARTS)
            + take_parts(rules.msgpack_part, given.msgpack_parts, MSGPACK_PARTS)
            + take_parts(rules.packed_part, given.batch_msgpack_parts, MSGPACK_PARTS)
            + rules.next_id.size
        )
        if not 1 <= rules.next_id.size <= rules.binary_part[2].size - 3:
            raise ValueError("the response's template has no room for ids")
        self.rules = given
        return 0

    # ---- reading

    cdef int plan(self, Bytes base, Py_ssize_t end) except -1:
        """Parse leading frames, up to the first one that is not an eligible send."""
        cdef Py_ssize_t position = 0, following
        while self.run.send_count < MAX_SENDS:
            following = self.frame_end(base, position, end)
            if following == 0 or not self.plan_frame(base, position, following, end):
                break
            position = following
        self.close_log()
        return 0

    cdef Py_ssize_t frame_end(self, Bytes base, Py_ssize_t position, Py_ssize_t end) noexcept:
        """Return the end of a complete frame; 0 when it is incomplete or too long."""
        cdef Py_ssize_t size
        if end - position < 8:
            return 0
        size = <Py_ssize_t>get_int(base + position)
        # Compared with the remaining bytes before it is added.
        if size < 4 or size > end - position - 4 or size > self.max_frame_size - 4:
            return 0
        return position + 4 + size

    cdef bint plan_frame(
        self, Bytes base, Py_ssize_t position, Py_ssize_t following, Py_ssize_t end
    ) except -1:
        """Add a complete frame to the bulk; False when it is not an eligible send."""
        cdef Run* run = &self.run
        cdef uint32_t kind = 0
        cdef int topic_number, half_topic = -1
        cdef int64_t sys_flag = 0
        cdef bint is_planned
        cdef Header header
        cdef Text body
        body.at, body.escaped = read_frame(base, position, following, &kind, &header), False
        if body.at == NULL or is_pull(header.code):
            return False
        if header.code == end_code:
            return self.plan_end(&header, following)
        topic_number = self.find_topic(ext(&header, c"b"))
        if topic_number < 0:
            return False
        if ext_number(&header, c"f", &sys_flag) and sys_flag & transaction_bits:
            half_topic = self.find_half_topic()
        if ext(&header, c"i").escaped:
            # The arena cannot overflow: no text is longer than its escaped form in the frame.
            run.arena = enlarged(run.arena, &run.arena_room, end)
        body.size = base + following - body.at
        is_planned = plan_send(run, &header, kind, topic_number, half_topic, &body, following)
        if run.topic_count > len(self.names):
            self.name_own_topic(SCHEDULE_TOPIC, delay_field)
        return is_planned

    cdef bint plan_end(self, Header* header, Py_ssize_t following) except -1:
        """Add the end of a transaction to the bulk; False when it is not an eligible commit."""
        cdef Stored half
        cdef int topic_number
        if not self.run.ends.is_known:
            self.open_log()
        if self.run.ends.log == NULL:
            return False
        if not read_end(&self.run, header, &self.half_name, &half):
            return False
        topic_number = self.find_topic(&half.found.real_topic)
        return topic_number >= 0 and add_end(&self.run, &half, topic_number, following)

    cdef int plan_due(self, tuple part, list entries, int64_t queue_offset) except -1:
        """Read due messages, up to the first one that is not eligible."""
        cdef Ends* ends = &self.run.ends
        cdef Stored due
        cdef int topic_number
        cdef int64_t phy_offset, size, left = MOST_DUE_BYTES
        view, ends.base_offset, written_end = part
        PyObject_GetBuffer(view, &self.log_view, PyBUF_SIMPLE)
        self.has_log_view = True
        ends.log = <uint8_t*>self.log_view.buf
        ends.visible = min(<int64_t>written_end - ends.base_offset, <int64_t>self.log_view.len)
        for phy_offset, size, _ in entries:
            # The first message is stored at any size, or a large one would never be delivered.
            if self.run.send_count and size > left:
                break
            if not read_due(&self.run, phy_offset, size, queue_offset, &due):
                break
            left -= size
            topic_number = self.find_topic(&due.found.real_topic)
            if topic_number < 0 or not add_stored(&self.run, &due, topic_number, 0):
                break
            queue_offset += 1
        return 0

    cdef int open_log(self) except -1:
        """Get the log file to read halves from, and the number that can be committed now."""
        cdef Ends* ends = &self.run.ends
        ends.is_known = True
        ends.op_room = 0 if self.run.rules.answers_wait else self.transactions.op_room_bytes
        if ends.op_room <= 0:
            return 0
        found = self.direct.readable()
        if found is None:
            return 0
        self.log, visible = found
        PyObject_GetBuffer(self.log.buffer, &self.log_view, PyBUF_SIMPLE)
        self.has_log_view = True
        ends.log, ends.base_offset = <uint8_t*>self.log_view.buf, self.log.base_offset
        ends.visible = min(<int64_t>visible, <int64_t>self.log_view.len)
        return 0

    cdef int close_log(self) except -1:
        """Release the log file that halves were read from."""
        self.run.ends.log = NULL
        if self.has_log_view:
            self.has_log_view = False
            PyBuffer_Release(&self.log_view)
        return 0

    cdef int find_half_topic(self) except -2:
        """Return the number of the half topic; -1 when halves are not accepted."""
        cdef Run* run = &self.run
        if self.half_topic == -2:
            self.half_topic = -1
            if run.topic_count < MAX_TOPICS and self.transactions.takes_halves:
                self.half_topic = add_own_topic(run, text_of(half_field))
                self.name_own_topic(TRANS_HALF_TOPIC, half_field)
        return self.half_topic

    cdef int name_own_topic(self, name, field) except -1:
        """Add the name of a system topic to the topics of the bulk."""
        self.names.append(name)
        self.policies.append(None)
        self.fields.append(field)
        return 0

    cdef int find_topic(self, Text* name) except -2:
        """Return the number of a topic that accepts the messages of the bulk; -1 for any other."""
        cdef Run* run = &self.run
        cdef int number
        cdef Topic* topic
        if name.at == NULL or name.escaped:
            return -1
        # Backwards: consecutive messages usually have the topic that was added last.
        for number in range(run.topic_count - 1, -1, -1):
            if same(&run.topics[number].name, name):
                return number
        text = PyBytes_FromStringAndSize(<char*>name.at, name.size).decode()
        policy = self.lookup(text)
        if policy is None or run.topic_count == MAX_TOPICS:
            return -1
        if self.delivers:
            config, sys_flag, queue_limit = policy, 0, 0
            # A due half message: Python stores it.
            if text == TRANS_HALF_TOPIC:
                return -1
        elif policy.is_simple:
            config, sys_flag, queue_limit = policy.config, policy.sys_flag, policy.queue_limit
        else:
            return -1
        field = topic_field(text)
        topic = &run.topics[run.topic_count]
        topic.field, topic.name.size, topic.name.escaped = text_of(field), name.size, False
        topic.name.at = topic.field.at + topic.field.size - name.size
        topic.key_hash = key_hash_of(topic)
        topic.sys_flag, topic.queue_limit = sys_flag, queue_limit
        topic.read_queues, topic.opened = config.read_queue_nums, 0
        self.names.append(text)
        self.policies.append(policy)
        self.fields.append(field)
        run.topic_count += 1
        return run.topic_count - 1

    # ---- writing

    cdef int store(self, bytes born_host, int64_t* phy_end) except -1:
        """Write the bulk as far as there is space; return the number of sends, and their end."""
        cdef Run* run = &self.run
        cdef int number, done = 0
        cdef int64_t log_size = 0
        cdef Place* place
        for number in range(run.send_count):
            log_size += run.sends[number].size
        places = []
        for number in range(run.place_count):
            place = &run.places[number]
            places.append((self.names[place.topic], place.queue_id, place.count))
        space = self.direct.begin(places, log_size, run.key_count)
        if space is None:
            return 0
        appended = None
        is_done = False
        try:
            # A deletion drops the policy first and then waits for the append lock, which is held here.
            # So a policy that is still current belongs to a topic whose queues are not deleted yet.
            for number in range(run.topic_count):
                if self.lookup(self.names[number]) is not self.policies[number]:
                    return 0
            if run.end_count and not self.claim((<tuple>space)[LOG_FIELD]):
                return 0
            appended = self.write(<tuple>space, born_host, &done, phy_end)
            is_done = True
        finally:
            try:
                # In any case, because `begin` has taken the append lock.
                self.direct.end(space, appended)
            except BaseException:
                is_done = False
                raise
            finally:
                if self.claimed:
                    self.settle(done if is_done else 0)
        return done

    cdef bint claim(self, log) except -1:
        """Claim the halves that the bulk commits; the bulk ends before one that is decided."""
        cdef Run* run = &self.run
        cdef int number, claimed_count
        # The log has begun another file: the halves were read from the one before.
        if log is not self.log:
            return False
        places = []
        for number in range(run.send_count):
            if run.sends[number].half.size:
                places.append(run.sends[number].half.queue_offset)
        claimed_count = self.transactions.claim(places)
        self.claimed = places[:claimed_count]
        if claimed_count < len(places):
            for number in range(run.send_count):
                if run.sends[number].half.size:
                    if claimed_count == 0:
                        run.send_count = number
                        break
                    claimed_count -= 1
        return run.send_count > 0

    cdef int settle(self, int done) except -1:
        """Record the committed halves, and release the others."""
        cdef int number, count = 0
        for number in range(done):
            if self.run.sends[number].half.size:
                count += 1
        if count < len(self.claimed):
            self.transactions.release(self.claimed[count:])
        if count:
            self.transactions.committed(self.claimed[:count])
        return 0

    cdef object write(self, tuple space, bytes born_host, int* done, int64_t* phy_end):
        cdef Run* run = &self.run
        cdef Py_buffer log, index
        cdef bint has_log = False, has_index = False
        cdef int number, held = 0
        cdef Writer writer
        store_ms, host, mapped, log_end, queues, tails, _, index_run, self.waits = space
        base_offset, position = mapped.base_offset, mapped.write_position
        try:
            PyObject_GetBuffer(mapped.buffer, &log, PyBUF_WRITABLE)
            has_log = True
            writer.log = writer.source = <uint8_t*>log.buf
            if self.delivers:
                writer.source = run.ends.log
            writer.position, writer.end = position, log_end
            if run.end_count and log.len < self.run.ends.visible:
                raise ValueError("the log file has become shorter")
            writer.base_offset = base_offset
            writer.store_ms = store_ms
            writer.born_host, writer.store_host = text_of(born_host), text_of(host)
            if not 0 <= writer.position <= writer.end <= log.len or writer.store_host.size != 8:
                raise ValueError("room beyond the log file")
            writer.has_index = index_run is not None
            writer.count = writer.slots_used = 0
            if writer.has_index:
                PyObject_GetBuffer((<tuple>index_run)[0], &index, PyBUF_WRITABLE)
                has_index = True
                open_index(&writer, &index, <tuple>index_run)
            for number in range(run.place_count):
                run.places[number].has_tail = False
                held = number + 1
                open_place(&run.places[number], queues[number], tails[number])
            done[0] = write_run(run, &writer)
        finally:
            for number in range(held):
                if run.places[number].has_tail:
                    PyBuffer_Release(&run.places[number].tail)
            if has_index:
                PyBuffer_Release(&index)
            if has_log:
                PyBuffer_Release(&log)
        if done[0] == 0:
            return None
        phy_end[0] = writer.base_offset + writer.position
        hashes = phy_offsets = arrivals = ()
        if self.waits:
            hashes, phy_offsets = self.keys_of(done[0], <int64_t>base_offset + <int64_t>position)
            arrivals = self.arrivals_of(done[0])
        return (
            writer.position,
            [run.places[number].done for number in range(run.place_count)],
            [run.places[number].phy_end for number in range(run.place_count)],
            writer.count,
            writer.slots_used,
            writer.last_phy_offset,
            hashes,
            phy_offsets,
            arrivals,
        )

    cdef tuple keys_of(self, int done, int64_t phy_offset):
        """Return the hashes of the bulk's keys, each with the position of its message."""
        cdef Run* run = &self.run
        cdef int number, key
        cdef Message* message
        hashes, phy_offsets = [], []
        for number in range(run.sends[done - 1].first + run.sends[done - 1].count):
            message = &run.messages[number]
            for key in range(message.first_key, message.first_key + message.key_count):
                hashes.append(run.keys[key])
                phy_offsets.append(phy_offset)
            phy_offset += message.size
        return hashes, phy_offsets

    cdef list arrivals_of(self, int done):
        """Return the arrivals of the bulk for the listener: each queue and tag once."""
        cdef Run* run = &self.run
        cdef int number, each
        cdef int64_t code
        cdef Send* send
        cdef Place* place
        arrivals = []
        reported = None  # a set once there are two of them
        for number in range(run.place_count):
            run.places[number].is_reported = False
        for number in range(done):
            send = &run.sends[number]
            place = &run.places[send.place]
            for each in range(send.first, send.first + send.count):
                code = run.messages[each].tags_code
                if place.is_reported and place.reported_code == code:
                    continue  # the common case: one tag in a bulk
                place.is_reported, place.reported_code = True, code
                arrival = (
                    self.names[place.topic],
                    place.queue_id,
                    place.queue_offset + place.done,
                    code,
                )
                if arrivals:
                    if reported is None:
                        reported = set(arrivals)
                    if arrival in reported:
                        continue
                    reported.add(arrival)
                arrivals.append(arrival)
        return arrivals

    cdef bytes answer_later(self, channel, int64_t phy_end, int done):
        """Defer the responses that wait for disk or replicas; return the other responses."""
        cdef Run* run = &self.run
        cdef int number
        asked = []
        for number in range(done):
            if run.sends[number].waits and not run.sends[number].is_oneway:
                asked.append((run.sends[number].opaque, run.sends[number].kind))
        if asked:
            self.rules.answer_later(channel, phy_end, self.responses_of(done, True), asked)
        return self.responses_of(done, False)

    cdef bytes responses_of(self, int done, bint waits):
        """Return the responses that wait for disk or replicas, or the others."""
        cdef Run* run = &self.run
        cdef int number
        cdef Py_ssize_t size = 0
        cdef Send* send
        cdef uint8_t* p
        for number in range(done):
            if run.sends[number].waits == waits:
                size += run.sends[number].out_size
        responses = PyBytes_FromStringAndSize(NULL, size)
        p = <uint8_t*>PyBytes_AsString(responses)
        for number in range(done):
            send = &run.sends[number]
            if send.waits == waits:
                p = add(p, run.out + send.out_at, send.out_size)
        return responses

    cdef int announce(self, int done) except -1:
        """Count stored messages, and notify the listener."""
        cdef Run* run = &self.run
        cdef int number
        cdef Place* place
        for number in range(run.place_count):
            place = &run.places[number]
            if place.done:
                self.count_stored(self.names[place.topic], place.done, place.size)
        if not self.delivers:
            self.count_transactions(done)
        listener = self.dispatchers.on_arrival
        if listener is None or self.waits:
            return 0
        for arrival in self.arrivals_of(done):
            try:
                listener(*arrival)
            except Exception as error:  # the messages are stored, and must not be stored again
                arrival_failed(arrival[0], arrival[1], error)
        return 0

    cdef int count_transactions(self, int done) except -1:
        """Count started and ended transactions."""
        cdef Run* run = &self.run
        cdef int number
        cdef Send* send
        for number in range(done):
            send = &run.sends[number]
            if send.is_half or send.half.size:
                run.topics[send.topic].opened += 1 if send.is_half else -1
        for number in range(run.topic_count):
            if run.topics[number].opened:
                self.transactions.count(self.names[number], run.topics[number].opened)
        return 0
