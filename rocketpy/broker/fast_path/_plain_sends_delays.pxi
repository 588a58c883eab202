# Messages with a delay level, and due messages, for _plain_sends.pyx; without any change of state.
#
#     is_delayed  operation/scheduling/scheduling.py  delay_level, MessageScheduler.delay
#     read_due    delay/delivery.py          DelayDelivery._deliver_one

cdef int add_own_topic(Run* run, Text field) noexcept nogil:
    """Add a system topic to the topics of the bulk; return its number, -1 if there are too many."""
    cdef Topic* topic
    if run.topic_count == MAX_TOPICS:
        return -1
    topic = &run.topics[run.topic_count]
    topic.field, topic.name = field, field
    topic.name.at, topic.name.size = field.at + 1, field.size - 1
    topic.key_hash = key_hash_of(topic)
    topic.sys_flag = topic.queue_limit = topic.read_queues = topic.opened = 0
    run.topic_count += 1
    return run.topic_count - 1

cdef bint is_delayed(Run* run, Send* send, Text* properties, Properties* found) noexcept nogil:
    """Whether a send has a delay level, which is stored, and needs nothing else."""
    if found.is_special or found.has_own or found.has_half or found.prepared.at != NULL:
        return False
    if send.reconsume_times or not text_number(&found.delay, &send.level):
        return False
    # Levels above the last one are changed in the properties of the message: left to Python.
    if not 1 <= send.level <= run.rules.level_count:
        return False
    if run.delay_topic < 0:
        run.delay_topic = add_own_topic(run, run.rules.delay_field)
    return (
        run.delay_topic >= 0
        and properties.size + run.rules.own_properties.size + real_place_size(run, send)
        <= most_properties
    )

cdef bint read_due(
    Run* run, int64_t phy_offset, int64_t size, int64_t queue_offset, Stored* due
) noexcept nogil:
    """Find the due message of a queue entry; False when it is not eligible."""
    cdef Properties* found = &due.found
    cdef Text waiting = run.rules.delay_field
    waiting.at, waiting.size = waiting.at + 1, waiting.size - 1
    return (
        phy_offset >= run.ends.base_offset
        and read_half(&run.ends, phy_offset, due)
        and due.ended.size == size
        and due.ended.queue_offset == queue_offset
        and same(&due.topic, &waiting)
        and (due.sys_flag & transaction_bits == 0 or due.sys_flag & transaction_bits == commit_bits)
        and due.body.size <= run.rules.max_body_size
        and due.properties.size <= most_properties
        and is_utf8(due.properties.at, due.properties.size)
        and read_properties(&run.rules, &due.properties, found)
        and found.real_topic.at != NULL
        and text_number(&found.real_queue, &due.queue_id)
    )
