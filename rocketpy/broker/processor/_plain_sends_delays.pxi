# Sends that wait for a delay level, for _plain_sends.pyx; nothing is touched.
#
#     is_delayed     operation/postponement.py  delay_level, Postponement.delay
#     add_own_topic  where halves wait, and what is delivered later

cdef int add_own_topic(Run* run, Text field) noexcept nogil:
    """Make a topic that nobody sends to one of the run's; return its number, -1 if that is too many."""
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
    """Whether a send waits for a level, which is noted, and nothing else is to be done with it."""
    if found.is_special or found.has_own or found.has_half or found.prepared.at != NULL:
        return False
    if send.reconsume_times or not text_number(&found.delay, &send.level):
        return False
    # Levels above the last one count as the last, and are told so in the message: left to Python.
    if not 1 <= send.level <= run.rules.level_count:
        return False
    if run.delay_topic < 0:
        run.delay_topic = add_own_topic(run, run.rules.delay_field)
    return (
        run.delay_topic >= 0
        and properties.size + run.rules.own_properties.size + real_place_size(run, send)
        <= most_properties
    )
