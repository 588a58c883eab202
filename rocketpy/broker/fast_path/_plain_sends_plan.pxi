# Checks of requests before anything is changed, for _plain_sends.pyx: the messages they contain.
#
#     read_properties  property_templates.py          PropertyScanner.scan
#     plan_batch       proto/record/message.py        iter_batch
#                      operation/send/send.py         _batch_messages

cdef enum:
    MAX_SENDS = 1024
    MAX_MESSAGES = 4096
    MAX_KEYS = 8192
    MAX_PLACES = 64
    MAX_TOPICS = 16
    MAX_PAIRS = 64
    MAX_LEVELS = 64
    MAX_SPECIAL_NAMES = 32
    OWN_NAMES = 3
    HALF_NAMES = 3
    RESPONSE_PARTS = 7
    BINARY_PARTS = 6
    MSGPACK_PARTS = 5
    BATCH_HEAD_BYTES = 20
    MOST_RESPONSE_NUMBERS = 128  # words, lengths, four decimal numbers and one in hexadecimal
    MOST_PACKED_KEY_BYTES = 64  # longer ones have another msgpack format
    ONEWAY = 2

cdef int64_t transaction_bits = TRANSACTION_MASK
cdef int64_t host_bits = HOST_FLAGS
cdef int64_t born_v6_bit = BORN_HOST_V6
cdef Py_ssize_t most_properties = MAX_PROPERTIES_BYTES
cdef Py_ssize_t record_fixed_size = FIXED_BYTES

cdef const char* TAG_MARK = b"T#"
cdef const char* TOPIC_MARK = b"#"

cdef struct Message:
    Bytes body
    Py_ssize_t body_size
    Bytes properties  # as they were sent
    Py_ssize_t properties_size
    int first_key, key_count
    uint32_t crc
    int64_t flag, tags_code
    int64_t size  # of the record

cdef struct Ended:  # the record that is stored again: a committed half, or a due message
    int64_t size  # of the record; 0 for a send
    int64_t at  # position in the current log file
    int64_t properties_at  # position in the record
    int64_t phy_offset
    int64_t queue_offset  # by which it is named
    int64_t prepared_offset  # of the half that it was, as its new record has it

cdef struct Send:  # or a message that was sent before and is stored again
    Py_ssize_t following  # position of the next frame
    int first, count  # its messages: one, or those of a batch
    int key_count
    int place
    uint32_t kind  # of its header
    bint is_batch, is_oneway, is_half
    bint waits  # for the disk, with SYNC_FLUSH
    Py_ssize_t out_at, out_size  # its response
    int topic  # that was sent to
    int64_t queue_id  # that was sent to
    int64_t level  # that it waits for; 0 for none
    Ended half  # or the due message: source of what is stored again
    int64_t sys_flag, born_ms, reconsume_times, opaque
    int64_t size  # of its records
    int64_t queue_offset  # of its first message
    Text uniq_key

cdef struct Topic:
    Text name, field
    uint32_t key_hash  # of the name and "#"
    int64_t sys_flag, queue_limit, read_queues
    int opened  # transactions started by the bulk, less those that it ended

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
    bint is_reported  # whether the listener is notified of
    int64_t reported_code  # this tag code, the last one

cdef struct Rules:
    Text uniq_key_name, keys_name, tags_name, wait_name
    Text prepared_name, group_name, real_topic_name, real_queue_name, immunity_name
    Text transaction_id_name, delay_name
    Text special[MAX_SPECIAL_NAMES]  # except for those with a constant here
    int special_count
    Text own[OWN_NAMES]  # those that the broker adds
    Text of_half[HALF_NAMES]  # those that only the broker gives a half
    Text own_properties
    Text next_id  # what stands before the physical offset of a batch's second message
    Text part[RESPONSE_PARTS]
    Text binary_part[BINARY_PARTS]
    Text msgpack_part[MSGPACK_PARTS]
    Text packed_part[MSGPACK_PARTS]
    Py_ssize_t parts_size
    Py_ssize_t max_body_size
    Text delay_field  # the topic of what waits, as records hold it
    int64_t delays_ms[MAX_LEVELS]
    int level_count
    bint has_index, answers_wait

cdef struct Ends:
    bint is_known  # the rest is
    uint8_t* log  # of the current log file; NULL: none
    int64_t base_offset, visible  # its place, and the position before which records may be read
    Py_ssize_t op_room, op_size  # of the next op message

cdef struct Run:
    Rules rules
    Py_ssize_t born_size  # of the address that is sent from
    Send* sends
    Message* messages
    uint32_t* keys
    int send_count, message_count, key_count, place_count, topic_count, end_count
    Ends ends
    Topic topics[MAX_TOPICS]
    int delay_topic  # number of the topic of what waits; -1: not looked for
    Place places[MAX_PLACES]
    uint8_t* arena  # unescaped properties
    Py_ssize_t arena_size, arena_room
    uint8_t* out  # responses
    Py_ssize_t out_size, out_room, out_bound

cdef struct Properties:
    Text uniq_key, keys, tags
    bint waits  # for the disk
    Text prepared, group, real_topic, real_queue, delay
    bint is_special, has_own, is_immune
    bint has_half  # what only the broker gives a half


cdef inline uint32_t key_hash_of(Topic* topic) noexcept nogil:
    return string_hash(string_hash(0, topic.name.at, topic.name.size), <Bytes>TOPIC_MARK, 1)

cdef inline bint is_ordinary(Properties* found) noexcept nogil:
    """Whether no property of a sent message has a meaning to the broker."""
    return (
        not found.is_special
        and not found.has_own
        and found.prepared.at == NULL
        and found.delay.at == NULL
    )

cdef void note_meaning(Rules* rules, Text* name, Text* value, Properties* found) noexcept nogil:
    """Store a property with a meaning to the broker, other than those of the index."""
    cdef int other
    if same(name, &rules.prepared_name):
        found.prepared = value[0]
    elif same(name, &rules.group_name):
        found.group = value[0]
    elif same(name, &rules.real_topic_name):
        found.real_topic, found.has_half = value[0], True
    elif same(name, &rules.real_queue_name):
        found.real_queue, found.has_half = value[0], True
    elif same(name, &rules.immunity_name):
        found.is_immune = True
    elif same(name, &rules.delay_name):
        found.delay = value[0]
    else:
        for other in range(rules.special_count):
            found.is_special |= same(name, &rules.special[other])
        for other in range(OWN_NAMES):
            found.has_own |= same(name, &rules.own[other])
        for other in range(HALF_NAMES):
            found.has_half |= same(name, &rules.of_half[other])

cdef bint read_properties(Rules* rules, Text* given, Properties* found) noexcept nogil:
    """Parse properties; False when they are malformed."""
    cdef Text names[MAX_PAIRS]
    cdef Text value
    cdef Text* name
    cdef int count = 0, other
    cdef Bytes p = given.at
    cdef Bytes end = p + given.size
    cdef Bytes pair_end
    found.uniq_key.at = found.keys.at = found.tags.at = NULL
    found.prepared.at = found.group.at = found.real_topic.at = found.real_queue.at = NULL
    found.delay.at = NULL
    found.is_special = found.has_own = found.is_immune = found.has_half = False
    found.waits = True
    value.escaped = False
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
        if same(name, &rules.uniq_key_name):
            found.uniq_key = value
        elif same(name, &rules.keys_name):
            found.keys = value
        elif same(name, &rules.tags_name):
            found.tags = value
        elif same(name, &rules.wait_name):
            found.waits = not equals(&value, b"false", 5)
        else:
            note_meaning(rules, name, &value, found)
        count += 1
        p = pair_end + 1
    return found.uniq_key.at == NULL or is_alphanumeric(found.uniq_key.at, found.uniq_key.size)

cdef inline bint plan_key(Run* run, Send* send, Message* message, uint32_t value) noexcept nogil:
    cdef int number = run.key_count + send.key_count
    if number >= MAX_KEYS:
        return False
    run.keys[number] = index_hash(value)
    send.key_count += 1
    message.key_count += 1
    return True

cdef bint plan_keys(
    Run* run, Topic* topic, Send* send, Message* message, Properties* found
) noexcept nogil:
    """Collect the index keys of a message, in the order of the index; False if too many."""
    cdef Bytes p, end, key_end
    cdef uint32_t value = string_hash(topic.key_hash, found.uniq_key.at, found.uniq_key.size)
    if not plan_key(run, send, message, value):
        return False
    if found.keys.at != NULL:
        p, end = found.keys.at, found.keys.at + found.keys.size
        while p < end:
            key_end = <Bytes>memchr(p, c" ", end - p)
            if key_end == NULL:
                key_end = end
            if key_end > p:
                value = string_hash(topic.key_hash, p, key_end - p)
                if not plan_key(run, send, message, value):
                    return False
            p = key_end + 1
    if found.tags.at == NULL:
        return True
    value = string_hash(topic.key_hash, <Bytes>TAG_MARK, 2)
    return plan_key(
        run, send, message, string_hash(value, found.tags.at, found.tags.size)
    )

cdef bint plan_message(
    Run* run, Topic* topic, Send* send, Text* body, Text* properties, Properties* found,
    int64_t flag,
) noexcept nogil:
    """Add a message to a send; False when it is too large, or a required part is missing."""
    cdef int number = run.message_count + send.count
    cdef Message* message
    if number >= MAX_MESSAGES or found.uniq_key.at == NULL:
        return False
    message = &run.messages[number]
    message.body, message.body_size = body.at, body.size
    message.properties, message.properties_size = properties.at, properties.size
    message.flag, message.tags_code = flag, 0
    if found.tags.at != NULL:
        message.tags_code = <int32_t>string_hash(0, found.tags.at, found.tags.size)
    message.first_key, message.key_count = run.key_count + send.key_count, 0
    if run.rules.has_index and not plan_keys(run, topic, send, message, found):
        return False
    message.size = record_fixed_size + body.size + topic.field.size + properties.size
    if send.half.size == 0:
        message.size += run.born_size - V4_HOST_BYTES
        if not send.is_batch:
            message.size += run.rules.own_properties.size
    message.crc = body_crc(body.at, body.size)
    if send.count == 0 and send.uniq_key.at == NULL:
        send.uniq_key = found.uniq_key
    send.count += 1
    send.size += message.size
    return True

cdef bint plan_batch(
    Run* run, Header* header, Topic* topic, Send* send, Text* body, Text* properties
) noexcept nogil:
    """Add the messages of a batch; False when it is empty or has an ineligible message."""
    cdef Bytes p = body.at
    cdef Bytes end = p + body.size
    cdef Properties own, each
    cdef Text each_body, each_properties
    cdef int64_t number = 0
    cdef Py_ssize_t size
    # Python parses the complete header of a batch, so its fields are checked here as well.
    if ext(header, c"a").at == NULL or ext(header, c"c").at == NULL:
        return False
    if not ext_number(header, c"d", &number) or not is_int(number):
        return False
    if ext(header, c"l").at != NULL and not (ext_number(header, c"l", &number) and is_int(number)):
        return False
    if not read_properties(&run.rules, properties, &own) or not is_ordinary(&own):
        return False
    send.uniq_key, send.waits = own.uniq_key, own.waits
    each_body.escaped = each_properties.escaped = False
    while p < end:
        if end - p < BATCH_HEAD_BYTES + 2:
            return False
        # Unsigned: a negative size is too large.
        size, each_body.size = <Py_ssize_t>get_int(p), <Py_ssize_t>get_int(p + 16)
        if size < BATCH_HEAD_BYTES + 2 or size > end - p:
            return False
        if each_body.size > size - BATCH_HEAD_BYTES - 2:
            return False
        each_body.at = p + BATCH_HEAD_BYTES
        each_properties.at = each_body.at + each_body.size + 2
        each_properties.size = size - BATCH_HEAD_BYTES - 2 - each_body.size
        if (
            each_properties.size > most_properties
            or get_short(each_properties.at - 2) != each_properties.size
            or not is_utf8(each_properties.at, each_properties.size)
            or not read_properties(&run.rules, &each_properties, &each)
            or not is_ordinary(&each)
            or not plan_message(
                run, topic, send, &each_body, &each_properties, &each, <int32_t>get_int(p + 12)
            )
        ):
            return False
        p += size
    return send.count > 0

cdef int find_place(Run* run, int topic, int64_t queue_id) noexcept nogil:
    cdef int number
    cdef Place* place
    for number in range(run.place_count - 1, -1, -1):
        if run.places[number].queue_id == queue_id and run.places[number].topic == topic:
            return number
    if run.place_count == MAX_PLACES:
        return -1
    place = &run.places[run.place_count]
    place.topic, place.queue_id, place.count, place.done = topic, queue_id, 0, 0
    place.size = 0
    run.place_count += 1
    return run.place_count - 1

cdef void count_send(Run* run, Send* send) noexcept nogil:
    """Add a planned send to the bulk."""
    run.places[send.place].count += send.count
    run.message_count += send.count
    run.key_count += send.key_count
    run.send_count += 1

cdef bint plan_single(
    Run* run, int half_topic, Send* send, Text* body, Text* properties, int64_t flag
) noexcept nogil:
    """Add an ordinary, half or delayed message of a send; False for any other."""
    cdef Properties found
    cdef Topic* topic = &run.topics[send.topic]
    cdef Message* message = &run.messages[send.first]
    if not read_properties(&run.rules, properties, &found):
        return False
    send.waits = found.waits
    if send.sys_flag & transaction_bits:
        if not is_half(run, half_topic, send, properties, &found):
            return False
        topic = &run.topics[half_topic]
        send.is_half, send.sys_flag = True, send.sys_flag & ~transaction_bits
    elif found.delay.at != NULL:
        if not is_delayed(run, send, properties, &found):
            return False
        topic = &run.topics[run.delay_topic]
    elif not is_ordinary(&found):
        return False
    if (
        properties.size + run.rules.own_properties.size > most_properties
        or not plan_message(run, topic, send, body, properties, &found, flag)
        or (send.kind == MSGPACK and send.uniq_key.size >= MOST_PACKED_KEY_BYTES)
    ):
        return False
    if send.is_half:
        send.size += half_properties_size(run, send, send.uniq_key.size)
    elif send.level:
        send.size += real_place_size(run, send)
    message.size = send.size
    return True

cdef bint plan_send(
    Run* run, Header* header, uint32_t kind, int topic_number, int half_topic, Text* body,
    Py_ssize_t following,
) noexcept nogil:
    """Add a request to the bulk; False when it is not an eligible send."""
    cdef Send* send = &run.sends[run.send_count]
    cdef Topic* topic = &run.topics[topic_number]
    cdef Text* batch = ext(header, c"m")
    cdef Text properties = ext(header, c"i")[0]
    cdef int64_t queue_id = 0, flag = 0
    send.is_oneway = header.flag == ONEWAY
    if header.flag != 0 and not send.is_oneway:
        return False
    send.is_batch = header.code == batch_code
    if batch.at != NULL:
        if equals(batch, b"true", 4):
            send.is_batch = True
        elif not equals(batch, b"false", 5):  # any other spelling may mean true
            return False
    send.reconsume_times = send.half.size = send.level = 0
    send.is_half = False
    if (
        not ext_number(header, c"e", &queue_id)
        or not ext_number(header, c"h", &flag)
        or not ext_number(header, c"f", &send.sys_flag)
        or not ext_number(header, c"g", &send.born_ms)
        or (ext(header, c"j").at != NULL and not ext_number(header, c"j", &send.reconsume_times))
        or not is_int(flag)
        or not is_int(send.sys_flag)
        or not is_int(send.reconsume_times)
        or (send.is_batch and send.sys_flag & transaction_bits)
        or body.size > run.rules.max_body_size
        or not 0 <= queue_id < topic.queue_limit
    ):
        return False
    send.sys_flag = (send.sys_flag | topic.sys_flag) & ~host_bits
    if run.born_size != V4_HOST_BYTES:
        send.sys_flag |= born_v6_bit
    send.first, send.count, send.key_count, send.size = run.message_count, 0, 0, 0
    send.kind, send.opaque, send.following = kind, header.opaque, following
    send.topic, send.queue_id = topic_number, queue_id
    send.uniq_key.at = NULL
    if properties.at == NULL:
        return False
    if properties.escaped:
        properties.at = run.arena + run.arena_size
        properties.size = unescape(ext(header, c"i"), run.arena + run.arena_size)
        if properties.size < 0:
            return False
    if send.is_batch:
        if not plan_batch(run, header, topic, send, body, &properties):
            return False
    elif not plan_single(run, half_topic, send, body, &properties, flag):
        return False
    if send.is_half:
        send.place = find_place(run, half_topic, 0)
    elif send.level:
        send.place = find_place(run, run.delay_topic, send.level - 1)
    else:
        send.place = find_place(run, topic_number, queue_id)
    if send.place < 0:
        return False
    if ext(header, c"i").escaped:
        run.arena_size += properties.size
    run.out_bound += (
        MOST_RESPONSE_NUMBERS + run.rules.parts_size + send.uniq_key.size
        + (send.count - 1) * (run.rules.next_id.size + 16)
    )
    count_send(run, send)
    return True
