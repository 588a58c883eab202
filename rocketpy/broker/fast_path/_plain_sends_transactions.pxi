# Half messages and ends of transactions, for _plain_sends.pyx; without any change of state.
#
#     is_half, add_half_properties  transaction/half_message.py HalfMessages
#     read_half                     proto/record/record_check.py   is_intact
#                                   proto/record/raw_record.py     split_record
#     read_end                      transaction/end_transaction.py EndTransactions._find, ._commit
#     add_end                       transaction/half_message.py committed_message

cdef enum:
    RECORD_HEAD_BYTES = 88  # with IPv4 hosts, up to the body
    BORN_HOST_AT = 48
    STORE_HOST_AT = 64

cdef int64_t prepared_bits = TRANSACTION_PREPARED
cdef int64_t commit_bits = TRANSACTION_COMMIT
cdef Py_ssize_t most_half_properties = MAX_HALF_PROPERTIES_BYTES

cdef struct Stored:
    Ended ended
    Text topic, body, properties
    Properties found
    int64_t queue_id, flag, sys_flag, born_ms, reconsume_times


cdef Py_ssize_t decimal_size(int64_t value) noexcept nogil:
    """Return the number of digits of a non-negative number."""
    cdef Py_ssize_t size = 1
    while value >= 10:
        value //= 10
        size += 1
    return size


# ---- halves

cdef inline Py_ssize_t pair_size(Text* name, Py_ssize_t value_size) noexcept nogil:
    return name.size + 1 + value_size + 1

cdef Py_ssize_t real_place_size(Run* run, Send* send) noexcept nogil:
    """Return the size of the properties with the real topic and queue of a redirected message."""
    return (
        pair_size(&run.rules.real_topic_name, run.topics[send.topic].name.size)
        + pair_size(&run.rules.real_queue_name, decimal_size(send.queue_id))
    )

cdef Py_ssize_t half_properties_size(Run* run, Send* send, Py_ssize_t key_size) noexcept nogil:
    """Return the size of a half's properties after those of the sender and the broker."""
    return pair_size(&run.rules.transaction_id_name, key_size) + real_place_size(run, send)

cdef uint8_t* add_pair(uint8_t* p, Text* name, Text* value) noexcept nogil:
    p = add_text(p, name)
    p[0] = 1
    p = add_text(p + 1, value)
    p[0] = 2
    return p + 1

cdef uint8_t* add_half_properties(uint8_t* p, Run* run, Send* send) noexcept nogil:
    return add_real_place(add_pair(p, &run.rules.transaction_id_name, &send.uniq_key), run, send)

cdef uint8_t* add_real_place(uint8_t* p, Run* run, Send* send) noexcept nogil:
    p = add_pair(p, &run.rules.real_topic_name, &run.topics[send.topic].name)
    p = add_text(p, &run.rules.real_queue_name)
    p[0] = 1
    p = add_decimal(p + 1, send.queue_id)
    p[0] = 2
    return p + 1

cdef bint is_half(
    Run* run, int half_topic, Send* send, Text* properties, Properties* found
) noexcept nogil:
    """Whether a send starts a transaction, and needs nothing else."""
    if half_topic < 0 or send.sys_flag & transaction_bits != prepared_bits:
        return False
    if found.prepared.at == NULL or not equals(&found.prepared, "true", 4):
        return False
    if found.is_special or found.has_own or found.has_half or found.group.at == NULL:
        return False
    if found.delay.at != NULL:
        return False
    return (
        send.reconsume_times == 0
        and found.uniq_key.at != NULL
        and properties.size
        + run.rules.own_properties.size
        + half_properties_size(run, send, found.uniq_key.size) <= most_half_properties
    )


# ---- ends

cdef bint read_half(Ends* ends, int64_t phy_offset, Stored* half) noexcept nogil:
    """Read the record at a position of the current log file; False when there is none."""
    cdef int64_t at = phy_offset - ends.base_offset
    cdef Bytes p
    cdef Bytes topic
    cdef Py_ssize_t size, body_end
    if at < 0 or at > ends.visible - RECORD_HEAD_BYTES - 3:
        return False
    p = ends.log + at
    size = <Py_ssize_t>get_int(p)
    half.body.size = <Py_ssize_t>get_int(p + 84)
    if size > ends.visible - at or get_int(p + 4) != magic_v1 or get_long(p + 28) != phy_offset:
        return False
    if size < RECORD_HEAD_BYTES + 3 or half.body.size > size - RECORD_HEAD_BYTES - 3:
        return False
    half.sys_flag = <int32_t>get_int(p + 36)
    if half.sys_flag & host_bits:
        return False
    half.body.at = p + RECORD_HEAD_BYTES
    body_end = RECORD_HEAD_BYTES + half.body.size
    topic = p + body_end
    half.topic.at, half.topic.size = topic + 1, topic[0]
    if half.topic.size > size - body_end - 3:
        return False
    half.properties.at = topic + 1 + half.topic.size + 2
    half.properties.size = size - (half.properties.at - p)
    half.ended.properties_at = half.properties.at - p
    if get_short(half.properties.at - 2) != half.properties.size:
        return False
    half.topic.escaped = half.body.escaped = half.properties.escaped = False
    half.flag, half.ended.queue_offset = <int32_t>get_int(p + 16), get_long(p + 20)
    half.born_ms, half.reconsume_times = get_long(p + 40), <int32_t>get_int(p + 72)
    half.ended.size, half.ended.at, half.ended.phy_offset = size, at, phy_offset
    half.ended.prepared_offset = get_long(p + 76)
    return half.body.size == 0 or body_crc(half.body.at, half.body.size) == get_int(p + 8)

cdef bint read_place(Rules* rules, Stored* half) noexcept nogil:
    """Remove the real topic and queue from the end of a half's properties; False without them."""
    cdef Properties* found = &half.found
    cdef Bytes topic_at = found.real_topic.at - rules.real_topic_name.size - 1
    cdef Bytes queue_at = found.real_queue.at - rules.real_queue_name.size - 1
    if found.real_topic.at == NULL or not text_number(&found.real_queue, &half.queue_id):
        return False
    if found.real_topic.at + found.real_topic.size + 1 != queue_at:
        return False
    if (
        found.real_queue.at + found.real_queue.size + 1
        != half.properties.at + half.properties.size
    ):
        return False
    half.properties.size = topic_at - half.properties.at
    return True

cdef bint read_end(Run* run, Header* header, Text* half_topic, Stored* half) noexcept nogil:
    """Find the half that a request commits; False for another request or a mismatch."""
    cdef int64_t half_offset = 0, phy_offset = 0, decision = 0
    if header.flag != ONEWAY or header.msg_id.at == NULL:
        return False
    if header.group.at == NULL or header.group.escaped:
        return False
    if (
        not text_number(&header.half_offset, &half_offset)
        or not text_number(&header.phy_offset, &phy_offset)
        or not text_number(&header.decision, &decision)
        or decision != commit_bits
        or not read_half(&run.ends, phy_offset, half)
        or not same(&half.topic, half_topic)
        or half.ended.queue_offset != half_offset
        or half.body.size > run.rules.max_body_size
        or not is_utf8(half.properties.at, half.properties.size)
        or not read_properties(&run.rules, &half.properties, &half.found)
    ):
        return False
    return (
        half.found.group.at != NULL
        and same(&half.found.group, &header.group)
        and not half.found.is_special
        and half.found.delay.at == NULL
        and not half.found.is_immune
        and read_place(&run.rules, half)
    )

cdef bint add_end(
    Run* run, Stored* half, int topic_number, Py_ssize_t following
) noexcept nogil:
    """Add a commit to the bulk; False when it is not eligible."""
    cdef Py_ssize_t op_size = decimal_size(half.ended.queue_offset) + 1
    # The commit that fills the next op message is left to Python, which then writes that message.
    if run.ends.op_size + op_size >= run.ends.op_room or half.ended.queue_offset < 0:
        return False
    half.sys_flag = (half.sys_flag & ~transaction_bits) | commit_bits
    half.ended.prepared_offset = half.ended.phy_offset
    if not add_stored(run, half, topic_number, following):
        return False
    run.ends.op_size += op_size
    run.end_count += 1
    return True

cdef bint add_stored(
    Run* run, Stored* stored, int topic_number, Py_ssize_t following
) noexcept nogil:
    """Add a message that is stored again in its topic; False when too large or not eligible."""
    cdef Send* send = &run.sends[run.send_count]
    cdef Topic* topic = &run.topics[topic_number]
    if run.send_count == MAX_SENDS or not 0 <= stored.queue_id < topic.read_queues:
        return False
    send.first, send.count, send.key_count, send.size = run.message_count, 0, 0, 0
    send.is_batch, send.is_half, send.is_oneway, send.level = False, False, True, 0
    send.waits = True
    send.topic, send.queue_id, send.following = topic_number, stored.queue_id, following
    send.sys_flag, send.born_ms = stored.sys_flag, stored.born_ms
    send.reconsume_times = stored.reconsume_times
    send.half = stored.ended
    send.uniq_key.at = NULL
    if not plan_message(
        run, topic, send, &stored.body, &stored.properties, &stored.found, stored.flag
    ):
        return False
    send.place = find_place(run, topic_number, stored.queue_id)
    if send.place < 0:
        return False
    count_send(run, send)
    return True
