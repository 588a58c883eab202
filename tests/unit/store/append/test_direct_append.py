"""Direct append: space under the append lock, published in one step."""

from rocketpy.errors import ResourceShortError
from rocketpy.proto.record.record import body_crc, pack_record, record_size, topic_field
from rocketpy.proto.record.tags import IndexKeyHasher
from rocketpy.store.append.direct_append import AppendedRun, AppendSpace
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue.queue_entry import ENTRY
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import GetMessageStatus, PutMessage, PutMessageStatus
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles

HOST = b"\x0a\0\0\1\0\0\x2a\x9f"
PROPERTIES = b"UNIQ_KEY\x01A1\x02"
SIZE = record_size(4, len(topic_field("t")), len(PROPERTIES))
FILE_BYTES = 4_096


def message(number: int = 0) -> PutMessage:
    return PutMessage("t", number % 2, b"body", PROPERTIES, HOST, 0, 0, 7, 0, "A1", None, None)


def opened(index: bool = True, sync: bool = False) -> tuple[MessageStore, SimFiles]:
    files = SimFiles()
    config = MessageStoreConfig(
        store_path_root_dir="/store",
        mapped_file_size_commit_log=FILE_BYTES,
        max_index_num=10,
        max_hash_slot_num=3,
        message_index_enable=index,
        flush_disk_type="SYNC_FLUSH" if sync else "ASYNC_FLUSH",
    )
    store = MessageStore(config, clock=SimClock(), files=files)
    store.open()
    store.store_host = HOST
    return store, files


def with_two_queues(index: bool = True) -> MessageStore:
    store, _ = opened(index)
    for number in range(2):
        assert store.put_message(message(number)).status is PutMessageStatus.PUT_OK
    return store


def begin(
    store: MessageStore, places: list[tuple[str, int, int]], log_bytes: int, key_count: int
) -> AppendSpace | None:
    space = store.direct.begin(places, log_bytes, key_count)
    return None if space is None else AppendSpace._make(space)


def write(store: MessageStore, space: AppendSpace, count: int) -> AppendedRun:
    """Append like the compiled path, for queue 0 and without keys."""
    queue, tail, index = space.queues[0], space.tails[0], space.index_run
    assert queue is not None
    assert tail is not None
    position = last = space.log.write_position
    for number in range(count):
        last = space.log.base_offset + position
        pack_record(
            space.log.buffer, position, SIZE, body_crc(b"body"), 0, 0, queue.next_offset + number,
            last, 0, 7, HOST, space.store_ms, space.store_host, 0, 0, b"body", topic_field("t"),
            PROPERTIES,
        )  # fmt: skip
        ENTRY.pack_into(tail[0], tail[1] + number * ENTRY.size, last, SIZE, 0)
        position += SIZE
    return AppendedRun(
        position,
        [count] + [0] * (len(space.queues) - 1),
        [last + SIZE] * len(space.queues),
        index.first if index is not None else 0,
        index.slots_used if index is not None else 0,
        last,
    )


def test_direct_append_is_readable_and_extendable() -> None:
    store = with_two_queues()
    end = store.max_phy_offset
    space = begin(store, [("t", 0, 3)], 3 * SIZE, 3)
    assert space is not None
    store.direct.end(space, write(store, space, 3))
    assert store.max_phy_offset == end + 3 * SIZE
    assert store.max_offset("t", 0) == 4
    assert store.dispatch_behind_bytes == 0
    found = store.get_message("t", 0, 0, 10, 1 << 20)
    assert (found.status, found.count) == (GetMessageStatus.FOUND, 4)
    assert store.put_message(message()).queue_offset == 4
    store.close()


def test_direct_append_is_invisible_and_exclusive_until_end() -> None:
    store = with_two_queues()
    end = store.max_phy_offset
    space = begin(store, [("t", 0, 3)], 3 * SIZE, 3)
    assert space is not None
    write(store, space, 3)
    assert (store.max_phy_offset, store.max_offset("t", 0)) == (end, 1)
    assert begin(store, [("t", 0, 1)], SIZE, 1) is None
    store.direct.end(space, None)
    assert (store.max_phy_offset, store.max_offset("t", 0)) == (end, 1)
    assert store.put_message(message()).phy_offset == end
    store.close()


def test_less_may_be_written_than_was_asked_for() -> None:
    store = with_two_queues(index=False)
    space = begin(store, [("t", 0, 9), ("t", 1, 9)], 18 * SIZE, 18)
    assert space is not None
    assert space.index_run is None
    store.direct.end(space, write(store, space, 2))
    assert (store.max_offset("t", 0), store.max_offset("t", 1)) == (3, 1)
    assert store.put_message(message(1)).queue_offset == 1
    store.close()


def test_queue_that_was_not_put_to_is_left_to_the_store() -> None:
    store = with_two_queues()
    space = begin(store, [("t", 0, 1), ("t", 7, 1), ("new", 0, 1)], 3 * SIZE, 3)
    assert space is not None
    assert [queue is None for queue in space.queues] == [False, True, True]
    assert [tail is None for tail in space.tails] == [False, True, True]
    store.direct.end(space, None)
    store.close()


def test_deleted_topic_has_no_queue() -> None:
    store = with_two_queues()
    store.delete_topics(["t"])
    space = begin(store, [("t", 0, 1)], SIZE, 1)
    assert space is not None
    assert space.tails == [None]
    store.direct.end(space, None)
    store.close()


def test_no_file_is_rolled() -> None:
    store = with_two_queues()
    space = begin(store, [("t", 0, 90)], 90 * SIZE, 90)
    assert space is not None
    assert space.log_end == FILE_BYTES - 8
    assert space.index_run is not None
    assert space.index_run.stop == 10
    store.direct.end(space, None)
    while store.max_phy_offset + SIZE + 8 <= FILE_BYTES:
        store.put_message(message())
    space = begin(store, [("t", 0, 1)], SIZE, 1)
    assert space is None or space.log_end - space.log.write_position < SIZE
    if space is not None:
        store.direct.end(space, None)
    store.close()


def test_index_file_that_is_full_or_new_is_left_to_the_store() -> None:
    store = with_two_queues()
    for _ in range(7):
        assert store.direct.has_index
        store.put_message(message())
    assert begin(store, [("t", 0, 1)], SIZE, 1) is None
    store.put_message(message())
    space = begin(store, [("t", 0, 1)], SIZE, 1)
    assert space is not None
    store.direct.end(space, None)
    store.close()


def test_empty_store_and_a_closed_one_take_no_run() -> None:
    store, _ = opened()
    assert begin(store, [("t", 0, 1)], SIZE, 1) is None
    store.close()
    assert begin(store, [("t", 0, 1)], SIZE, 1) is None


def test_with_sync_flush_a_run_is_seen_when_the_disk_has_it() -> None:
    store, _ = opened(sync=True)
    told: list[tuple[str, int, int, int]] = []
    store.on_arrival = lambda *arrival: told.append(arrival)
    store.put_message(message())
    space = begin(store, [("t", 0, 3)], 3 * SIZE, 3)
    assert space is not None
    assert space.index_run is None
    run = write(store, space, 3)
    first = store.max_phy_offset
    store.direct.end(
        space,
        run._replace(
            key_hashes=[IndexKeyHasher().hash("t", "A2")] * 3,
            key_phy_offsets=[first, first + SIZE, first + 2 * SIZE],
            arrivals=[("t", 0, 4, 0)],
        ),
    )
    assert store.put_message(message()).queue_offset == 4, "the lock is free"
    assert (store.max_offset("t", 0), told) == (0, [])
    assert store.flush_log()
    assert store.max_offset("t", 0) == 5
    assert told == [("t", 0, 1, 0), ("t", 0, 4, 0), ("t", 0, 5, 0)]
    found = store.get_message("t", 0, 1, 3, 1 << 20)
    assert [bytes(each)[28:36] for each in found.buffers] == [
        (first + n * SIZE).to_bytes(8, "big") for n in range(3)
    ]
    assert store.query_index("t", "A2", 9, 0, 1 << 62).phy_offsets == [
        first + n * SIZE for n in (2, 1, 0)
    ]
    store.close()


def test_clock_set_back_begins_no_run_before_the_last_record() -> None:
    store = with_two_queues()
    clock = store._clock
    assert isinstance(clock, SimClock)
    first = begin(store, [("t", 0, 1)], SIZE, 1)
    assert first is not None
    store.direct.end(first, None)
    clock.jump(-60_000)
    second = begin(store, [("t", 0, 1)], SIZE, 1)
    assert second is not None
    assert second.store_ms == first.store_ms
    store.direct.end(second, None)
    store.close()


def test_direct_append_shortage_releases_lock_without_error() -> None:
    store = with_two_queues()
    queue = store._parts.table.get("t", 0)
    assert queue is not None

    def short(size_bytes: int) -> None:
        if size_bytes > 1_000:
            raise ResourceShortError("listener failed")

    queue._space.take = short  # type: ignore[method-assign]
    assert begin(store, [("t", 0, 500)], 1, 1) is None
    assert store.put_message(message()).status is PutMessageStatus.PUT_OK
    store.close()


def test_wide_hosts_are_left_to_the_store() -> None:
    store = with_two_queues()
    store.store_host = b"\0" * 20
    assert begin(store, [("t", 0, 1)], SIZE, 1) is None
    store.close()
