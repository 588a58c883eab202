# Writer of records, queue entries, index entries and responses, for _plain_sends.pyx. It cannot fail:
# all space was reserved before, so that a bulk is never written in part.
#
#     write_record           proto/record/record.py             pack_record
#     write_send             store/consume_queue/consume_queue.py      ConsumeQueue.put
#     write_index_entries    store/index/index_file.py         IndexFile.put
#     write_*_response       processor/send_response.py  SendResponses.frame, SendResponses.general

cdef enum:
    V4_HOST_BYTES = 8
    V6_HOST_BYTES = 20
    QUEUE_ENTRY_BYTES = 20
    INDEX_HEADER_BYTES = 40
    INDEX_SLOT_BYTES = 4
    INDEX_ENTRY_BYTES = 20

cdef uint32_t magic_v1 = MAGIC_V1 & 0xFFFFFFFF
cdef uint32_t magic_v2 = MAGIC_V2 & 0xFFFFFFFF

cdef extern from *:
    """
    #define WRITTEN_BEFORE() __atomic_signal_fence(__ATOMIC_SEQ_CST)
    """
    void WRITTEN_BEFORE() noexcept nogil

cdef struct Writer:
    uint8_t* log
    uint8_t* source  # file of the records that are stored again; usually the log's
    int64_t position, end, base_offset, last_phy_offset
    int64_t store_ms
    Text born_host, store_host
    bint has_index
    uint8_t* index
    uint32_t slots, seconds
    int64_t entries_at, count, index_end, slots_used


cdef int write_run(Run* run, Writer* writer) noexcept nogil:
    """Write sends in order, each completely, while there is space; return their number."""
    cdef int number
    cdef Send* send
    cdef Place* place
    for number in range(run.send_count):
        send = &run.sends[number]
        place = &run.places[send.place]
        if send.count > place.room - place.done or send.size > writer.end - writer.position:
            return number
        if writer.has_index and send.key_count > writer.index_end - writer.count:
            return number
        write_send(run, writer, send, place)
    return run.send_count

cdef void write_send(Run* run, Writer* writer, Send* send, Place* place) noexcept nogil:
    cdef int number
    cdef int64_t phy_offset = writer.base_offset + writer.position
    cdef int64_t first_phy_offset = phy_offset
    cdef Message* message
    send.queue_offset = place.queue_offset + place.done
    if send.half.size:
        take_from_log(writer, send, &run.messages[send.first])
    for number in range(send.first, send.first + send.count):
        message = &run.messages[number]
        if send.level:
            message.tags_code = writer.store_ms + run.rules.delays_ms[send.level - 1]
        phy_offset = writer.base_offset + writer.position
        write_record(run, writer, send, message, place, phy_offset)
        put_long(place.entry, <uint64_t>phy_offset)
        put_int(place.entry + 8, <uint32_t>message.size)
        put_long(place.entry + 12, <uint64_t>message.tags_code)
        place.entry += QUEUE_ENTRY_BYTES
        place.done += 1
        if writer.has_index:
            write_index_entries(
                writer, run.keys + message.first_key, message.key_count, phy_offset
            )
        writer.position += message.size
    place.size += send.size
    place.phy_end = writer.base_offset + writer.position
    writer.last_phy_offset = phy_offset
    send.out_at = run.out_size
    if not send.is_oneway:
        write_response(run, send, first_phy_offset)
    send.out_size = run.out_size - send.out_at


# ---- into the files

cdef void take_from_log(Writer* writer, Send* send, Message* message) noexcept nogil:
    """Set the positions of body and properties of a message that is stored again."""
    message.body = writer.source + send.half.at + RECORD_HEAD_BYTES
    message.properties = writer.source + send.half.at + send.half.properties_at

cdef void write_record(
    Run* run, Writer* writer, Send* send, Message* message, Place* place, int64_t phy_offset
) noexcept nogil:
    cdef Topic* topic = &run.topics[place.topic]
    cdef uint8_t* p = writer.log + writer.position
    cdef uint8_t* start = p
    cdef Bytes born_host = writer.born_host.at
    cdef Bytes store_host = writer.store_host.at
    cdef Py_ssize_t born_size = V4_HOST_BYTES if send.half.size else run.born_size
    cdef Py_ssize_t own_size = run.rules.own_properties.size
    cdef Py_ssize_t properties_size
    if send.is_batch or send.half.size:  # stored unchanged
        own_size = 0
    if send.half.size:
        born_host = writer.source + send.half.at + BORN_HOST_AT
        store_host = writer.source + send.half.at + STORE_HOST_AT
    properties_size = message.properties_size + own_size
    if send.is_half:
        properties_size += half_properties_size(run, send, send.uniq_key.size)
    elif send.level:
        properties_size += real_place_size(run, send)
    put_int(p + 8, message.crc)
    put_int(p + 12, <uint32_t>place.queue_id)
    put_int(p + 16, <uint32_t>message.flag)
    put_long(p + 20, <uint64_t>(place.queue_offset + place.done))
    put_long(p + 28, <uint64_t>phy_offset)
    put_int(p + 36, <uint32_t>send.sys_flag)
    put_long(p + 40, <uint64_t>send.born_ms)
    memcpy(p + BORN_HOST_AT, born_host, born_size)
    p += born_size - V4_HOST_BYTES  # all following fields are shifted
    put_long(p + 56, <uint64_t>writer.store_ms)
    memcpy(p + STORE_HOST_AT, store_host, V4_HOST_BYTES)
    put_int(p + 72, <uint32_t>send.reconsume_times)
    put_long(p + 76, <uint64_t>send.half.prepared_offset if send.half.size else 0)
    put_int(p + 84, <uint32_t>message.body_size)
    p = add(p + RECORD_HEAD_BYTES, message.body, message.body_size)
    p = add_text(p, &topic.field)
    p[0], p[1] = <uint8_t>(properties_size >> 8), <uint8_t>properties_size
    p = add(p + 2, message.properties, message.properties_size)
    p = add(p, run.rules.own_properties.at, own_size)
    if send.is_half:
        add_half_properties(p, run, send)
    elif send.level:
        add_real_place(p, run, send)
    # Written last: if the process is killed before, the log ends here and not in half a record.
    WRITTEN_BEFORE()
    put_int(start, <uint32_t>message.size)
    put_int(start + 4, magic_v1 if topic.field.size <= 128 else magic_v2)

cdef void write_index_entries(
    Writer* writer, uint32_t* keys, int count, int64_t phy_offset
) noexcept nogil:
    cdef int number
    cdef int32_t previous
    cdef uint8_t* slot
    cdef uint8_t* entry
    for number in range(count):
        slot = writer.index + INDEX_HEADER_BYTES + INDEX_SLOT_BYTES * (keys[number] % writer.slots)
        entry = writer.index + writer.entries_at + INDEX_ENTRY_BYTES * writer.count
        previous = <int32_t>get_int(slot)
        if not 0 < previous < writer.count:
            previous = 0
            writer.slots_used += 1
        put_int(entry, keys[number])
        put_long(entry + 4, <uint64_t>phy_offset)
        put_int(entry + 12, writer.seconds)
        put_int(entry + 16, <uint32_t>previous)
        WRITTEN_BEFORE()
        put_int(slot, <uint32_t>writer.count)
        writer.count += 1


# ---- responses

cdef void write_response(Run* run, Send* send, int64_t phy_offset) noexcept nogil:
    if send.kind == JSON:
        write_json_response(run, send, phy_offset)
    elif send.kind == ROCKETMQ:
        write_binary_response(run, send, phy_offset)
    elif send.is_batch:
        write_packed_response(run, send, phy_offset)
    else:
        write_msgpack_response(run, send, phy_offset)

cdef inline Py_ssize_t ids_size(Run* run, Send* send) noexcept nogil:
    """Length of a response's message ids; one has the broker's address and 16 digits."""
    return run.rules.next_id.size + 15 + (send.count - 1) * (run.rules.next_id.size + 16)

cdef uint8_t* add_offsets(uint8_t* p, Run* run, Send* send, int64_t phy_offset) noexcept nogil:
    """Write the physical offset of a send's message, and the whole ids of a batch's others."""
    cdef int number
    p = add_hex(p, <uint64_t>phy_offset)
    for number in range(send.first, send.first + send.count - 1):
        phy_offset += run.messages[number].size
        p = add_text(p, &run.rules.next_id)
        p = add_hex(p, <uint64_t>phy_offset)
    return p

cdef uint8_t* add_counted_decimal(uint8_t* p, int64_t value) noexcept nogil:
    """Write a number as text, after its length."""
    cdef uint8_t* end = add_decimal(p + 4, value)
    put_int(p, <uint32_t>(end - p - 4))
    return end

cdef uint8_t* add_packed_decimal(uint8_t* p, int64_t value) noexcept nogil:
    """Write a number as a packed text."""
    cdef uint8_t* end = add_decimal(p + 1, value)
    p[0] = <uint8_t>(0xA0 | (end - p - 1))
    return end

cdef uint8_t* add_packed_size(uint8_t* p, Py_ssize_t size) noexcept nogil:
    """Write the start of a packed text, in the shortest form."""
    if size < 32:
        p[0] = <uint8_t>(0xA0 | size)
        return p + 1
    if size < 256:
        p[0], p[1] = 0xD9, <uint8_t>size
        return p + 2
    if size < 65536:
        p[0], p[1], p[2] = 0xDA, <uint8_t>(size >> 8), <uint8_t>size
        return p + 3
    p[0] = 0xDB
    put_int(p + 1, <uint32_t>size)
    return p + 5

cdef uint8_t* add_packed_int(uint8_t* p, int64_t value) noexcept nogil:
    """Write a packed number of 32 bits, in the shortest form."""
    if -32 <= value < 128:
        p[0] = <uint8_t>value
        return p + 1
    if -128 <= value < 256:
        p[0], p[1] = 0xD0 if value < 0 else 0xCC, <uint8_t>value
        return p + 2
    if -32768 <= value < 65536:
        p[0] = 0xD1 if value < 0 else 0xCD
        p[1], p[2] = <uint8_t>(value >> 8), <uint8_t>value
        return p + 3
    p[0] = 0xD2 if value < 0 else 0xCE
    put_int(p + 1, <uint32_t>value)
    return p + 5

cdef void end_response(Run* run, uint8_t* start, uint8_t* end, uint32_t kind) noexcept nogil:
    """Write the two length words before a header."""
    cdef Py_ssize_t size = end - start - 8
    put_int(start, <uint32_t>(size + 4))
    put_int(start + 4, <uint32_t>size | (kind << 24))
    run.out_size += size + 8

cdef void write_json_response(
    Run* run, Send* send, int64_t phy_offset
) noexcept nogil:
    cdef uint8_t* start = run.out + run.out_size
    cdef uint8_t* p = start + 8
    cdef Text* part = run.rules.part
    p = add_text(p, &part[0])
    p = add_decimal(p, 0)
    p = add_text(p, &part[1])
    p = add_offsets(p, run, send, phy_offset)
    p = add_text(p, &part[2])
    p = add_decimal(p, send.queue_id)
    p = add_text(p, &part[3])
    p = add_decimal(p, send.queue_offset)
    p = add_text(p, &part[4])
    p = add_text(p, &send.uniq_key)
    p = add_text(p, &part[5])
    p = add_decimal(p, send.opaque)
    p = add_text(p, &part[6])
    end_response(run, start, p, JSON)

cdef void write_binary_response(
    Run* run, Send* send, int64_t phy_offset
) noexcept nogil:
    cdef uint8_t* start = run.out + run.out_size
    cdef uint8_t* p = start + 8
    cdef uint8_t* fields
    cdef Text* part = run.rules.binary_part
    p = add_text(p, &part[0])
    put_int(p, <uint32_t>send.opaque)
    p = add_text(p + 4, &part[1])
    fields = p + 4
    p = add_text(fields, &part[2])
    # The template ends with the length of a single id and the broker's address; replace that length.
    put_int(p - (run.rules.next_id.size - 1) - 4, <uint32_t>ids_size(run, send))
    p = add_offsets(p, run, send, phy_offset)
    p = add_text(p, &part[3])
    p = add_counted_decimal(p, send.queue_id)
    p = add_text(p, &part[4])
    p = add_counted_decimal(p, send.queue_offset)
    p = add_text(p, &part[5])
    put_int(p, <uint32_t>send.uniq_key.size)
    p = add_text(p + 4, &send.uniq_key)
    put_int(fields - 4, <uint32_t>(p - fields))
    end_response(run, start, p, ROCKETMQ)

cdef void write_msgpack_response(
    Run* run, Send* send, int64_t phy_offset
) noexcept nogil:
    cdef uint8_t* start = run.out + run.out_size
    cdef uint8_t* p = start + 8
    cdef Text* part = run.rules.msgpack_part
    p = add_text(p, &part[0])
    put_int(p, <uint32_t>send.opaque)
    p = add_text(p + 4, &part[1])
    p = add_hex(p, <uint64_t>phy_offset)
    p = add_text(p, &part[2])
    p = add_packed_decimal(p, send.queue_id)
    p = add_text(p, &part[3])
    p = add_packed_decimal(p, send.queue_offset)
    p = add_text(p, &part[4])
    p[0] = <uint8_t>send.uniq_key.size
    p = add_text(p + 1, &send.uniq_key)
    end_response(run, start, p, MSGPACK)

cdef void write_packed_response(
    Run* run, Send* send, int64_t phy_offset
) noexcept nogil:
    """The same for a batch, as the general encoder packs it."""
    cdef uint8_t* start = run.out + run.out_size
    cdef uint8_t* p = start + 8
    cdef Text* part = run.rules.packed_part
    p = add_text(p, &part[0])
    p = add_packed_int(p, send.opaque)
    p = add_text(p, &part[1])
    p = add_packed_size(p, ids_size(run, send))
    p = add(p, run.rules.next_id.at + 1, run.rules.next_id.size - 1)
    p = add_offsets(p, run, send, phy_offset)
    p = add_text(p, &part[2])
    p = add_packed_decimal(p, send.queue_id)
    p = add_text(p, &part[3])
    p = add_packed_decimal(p, send.queue_offset)
    p = add_text(p, &part[4])
    p = add_packed_size(p, send.uniq_key.size)
    p = add_text(p, &send.uniq_key)
    end_response(run, start, p, MSGPACK)
