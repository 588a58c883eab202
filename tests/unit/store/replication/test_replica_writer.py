"""A store fed with another store's log answers as that one does."""

import random
import threading

import pytest

from rocketpy.errors import (
    LogGapError,
    ResourceShortError,
    StoreFormatError,
    StoreReadOnlyError,
)
from rocketpy.store.consume_queue import tail_memory as queue_space
from rocketpy.store.message_store import MessageStore
from rocketpy.store.read.selection import VerifiedRanges
from rocketpy.store.results import BatchColumns, BatchEntry, PutBatch
from tests.unit.store.store_kit import TOPIC, Kit, bodies, message, put_many


def raw_log(store: MessageStore, start: int = 0) -> bytes:
    """The bytes of a store's log from an offset on, blanks included."""
    data = b"".join(bytes(mapped.view) for mapped in store._log.files)
    return data[start : store.max_phy_offset]


def master() -> tuple[Kit, MessageStore, list[bytes]]:
    """A store of several files, with batches, several queues, keys and a half message."""
    kit = Kit()
    store = kit.open()
    sent = put_many(store, 150)
    store.put_batch(
        PutBatch(TOPIC, 1, BatchColumns.of([BatchEntry(b"b%d" % each) for each in range(30)]))
    )
    store.put_message(message(b"half", sys_flag=4))
    for number in range(40):
        put = message(b"keyed%d" % number, queue_id=2)
        put.properties = b"UNIQ_KEY\x01u%d\x02KEYS\x01a b%d\x02TAGS\x01t\x02" % (number, number)
        put.uniq_key, put.keys, put.tags = f"u{number}", f"a b{number}", "t"
        store.put_message(put)
    assert store.max_phy_offset > 2 * 16384
    return kit, store, sent


def feed(slave: MessageStore, data: bytes, rng: random.Random, start: int = 0) -> None:
    """Send the bytes in pieces of any length, as a connection delivers them."""
    at = start
    while at < start + len(data):
        size = rng.choice([1, 7, 91, 500, 4_000, 40_000])
        at = slave.append_raw(at, data[at - start : at - start + size])


def assert_same(slave: MessageStore, source: MessageStore) -> None:
    assert slave.max_phy_offset == source.max_phy_offset
    for queue_id in range(3):
        assert slave.max_offset(TOPIC, queue_id) == source.max_offset(TOPIC, queue_id)
        assert bodies(slave, queue_id) == bodies(source, queue_id)
    for key in ("k", "u7", "b39", "a"):
        expected = source.query_index(TOPIC, key, 64, 0, 1 << 60).phy_offsets
        assert slave.query_index(TOPIC, key, 64, 0, 1 << 60).phy_offsets == expected
        assert expected


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_replica_answers_pulls_and_look_ups_as_its_master(mode: str) -> None:
    _, source, _ = master()
    kit = Kit(flush_disk_type=mode)
    slave = kit.open()
    feed(slave, raw_log(source), random.Random(1))
    if mode == "SYNC_FLUSH":
        assert bodies(slave) == []
        kit.step(slave, "GroupCommitService")
    assert_same(slave, source)
    assert {queue_id: end for _, queue_id, end, _ in kit.arrivals} == {0: 150, 1: 30, 2: 40}
    assert (TOPIC, 2, 40, 116) in kit.arrivals


def test_replica_continues_after_restart_truncated_a_record() -> None:
    _, source, _ = master()
    kit = Kit()
    slave = kit.open()
    data = raw_log(source)
    feed(slave, data[:5_000], random.Random(2))
    kit.files.kill()
    again = kit.open()
    assert 4_000 < again.max_phy_offset < 5_000
    feed(again, data[again.max_phy_offset :], random.Random(3), again.max_phy_offset)
    assert_same(again, source)


def test_gap_or_an_overlap_is_refused() -> None:
    _, source, _ = master()
    data = raw_log(source)
    slave = Kit().open()
    end = slave.append_raw(0, data[:1_000])
    assert end == 1_000
    for wrong in (0, 999, 1_001, 1 << 40):
        with pytest.raises(LogGapError):
            slave.append_raw(wrong, data[1_000:1_100])
    feed(slave, data[1_000:], random.Random(4), 1_000)
    assert_same(slave, source)


def test_replica_may_start_at_later_file() -> None:
    _, source, _ = master()
    slave = Kit().open()
    with pytest.raises(LogGapError):
        slave.append_raw(16384 + 5, b"x")
    data = raw_log(source, 16384)
    feed(slave, data, random.Random(5), 16384)
    assert slave.max_phy_offset == source.max_phy_offset
    assert slave.min_phy_offset == 16384
    low = slave.min_offset(TOPIC, 0)
    assert 0 < low < 150
    assert bodies(slave) == bodies(source)[low:]


def test_bytes_that_are_not_a_record_are_refused() -> None:
    slave = Kit().open()
    with pytest.raises(StoreFormatError, match="no record"):
        slave.append_raw(0, b"\xff" * 200)


def test_closed_store_refuses_parts_of_the_log() -> None:
    slave = Kit().open()
    slave.close()
    with pytest.raises(StoreReadOnlyError):
        slave.append_raw(0, b"")


def test_many_entries_in_memory_do_not_stop_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    """It appends under the lock that listing the queues takes; flushing is the service's."""
    _, source, sent = master()
    monkeypatch.setattr(queue_space, "_RELIEF_BYTES", 400)
    slave = Kit().open()
    feeding = threading.Thread(
        target=feed, args=(slave, raw_log(source), random.Random(1)), daemon=True
    )
    feeding.start()
    feeding.join(20)
    assert not feeding.is_alive()
    assert bodies(slave) == sent


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_more_entries_than_memory_holds_are_refused_and_none_is_lost(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = Kit()
    source = kit.open()
    sent = put_many(source, 600)
    kit = Kit(flush_disk_type=mode)
    slave = kit.open()
    monkeypatch.setattr(slave._table._space, "_limit_bytes", 5_000)
    data, at, refused = raw_log(source), 0, 0
    while at < source.max_phy_offset or slave.max_phy_offset < source.max_phy_offset:
        piece = data[at : at + 3_000]
        try:
            slave.append_raw(at, piece)
        except ResourceShortError:
            refused += 1
            slave._parts.flusher.flush()
            assert slave._parts.flush_queues.flush(thorough=True)
        at += len(piece)
    slave._parts.flusher.flush()
    assert refused >= 2
    assert bodies(slave) == sent
    slave.close()
    assert bodies(kit.open()) == sent


def test_log_that_begins_late_gives_its_queues_their_place() -> None:
    kit = Kit()
    source = kit.open()
    sent = put_many(source, 400)
    slave = Kit(flush_disk_type="SYNC_FLUSH").open()
    start = source._log.files[1].base_offset
    feed(slave, raw_log(source, start), random.Random(1), start)
    slave._parts.flusher.flush()
    low = slave.min_offset(TOPIC, 0)
    assert 0 < low < 200
    assert bodies(slave) == sent[low:]


def to_disk(store: MessageStore) -> None:
    """Let a queue hold no entry in memory."""
    queue = store._table.get(TOPIC, 0)
    assert queue is not None
    queue.flush()
    queue.settle()


def test_recreated_topic_is_read_with_new_entries() -> None:
    """Cached entries belong to the old topic after it was recreated."""
    source = Kit().open()
    slave = Kit().open()
    put_many(source, 40)
    slave.append_raw(0, raw_log(source))
    to_disk(slave)
    assert bodies(slave) == bodies(source)
    source.delete_topics([TOPIC])
    put_many(source, 40, start=1_000)
    begin = slave.max_phy_offset
    slave.append_raw(begin, raw_log(source, begin))
    to_disk(slave)
    assert bodies(slave) == bodies(source)


def test_verified_ranges_belong_to_one_life_of_a_queue() -> None:
    source = Kit().open()
    put_many(source, 4)
    queue = source._table.get(TOPIC, 0)
    assert queue is not None
    proven = VerifiedRanges()
    proven.add(queue, 0, 4)
    assert proven.covers(queue, 0, 4)
    queue.restart_at(0)
    assert not proven.covers(queue, 0, 4)


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_record_damaged_on_the_master_is_reported_and_skipped(mode: str) -> None:
    source = Kit().open()
    sent = put_many(source, 20)
    data = bytearray(raw_log(source))
    third = data.index(sent[3])
    data[third] ^= 1
    slave = Kit(flush_disk_type=mode, broker_role="SLAVE").open()
    feed(slave, bytes(data), random.Random(6))
    slave.flush_log()
    assert slave.damaged_phy_offsets == [source.queue_entry(TOPIC, 0, 3)[0]]  # type: ignore[index]
    assert bodies(slave) == sent[:3] + sent[4:]
    assert slave.max_phy_offset == source.max_phy_offset


@pytest.mark.parametrize("kept", [1, 7, 50, 150])
@pytest.mark.parametrize("is_first_in_file", [False, True])
def test_incomplete_record_is_dropped_and_another_one_takes_its_place(
    kept: int, is_first_in_file: bool
) -> None:
    source, other = Kit().open(), Kit().open()
    put_many(source, 20)
    put_many(other, 20)
    end = source.max_phy_offset
    put_many(source, 1)
    while is_first_in_file and source.max_phy_offset < 16_384:
        put_many(other, 1)
        put_many(source, 1)
        end = 16_384
    other.put_message(message(b"another" * 30))
    kit = Kit()
    slave = kit.open()
    slave.append_raw(0, raw_log(source)[: end + kept])
    to_disk(slave)
    slave.flush_log()
    assert slave.write_end == end + kept
    slave.drop_incomplete()
    assert (slave.write_end, slave.max_phy_offset) == (end, end)
    assert not any(slave._log.files[-1].view[end % 16_384 :])

    slave.append_raw(end, raw_log(other, end))
    assert slave.flush_log()
    kit.files.power_cut(random.Random(kept))
    kit.files.start_process()
    again = kit.open()
    assert raw_log(again) == raw_log(other)
    assert bodies(again) == bodies(other)


def test_bytes_that_are_not_a_record_are_dropped_with_their_files() -> None:
    source = Kit().open()
    put_many(source, 20)
    end = source.max_phy_offset
    kit = Kit()
    slave = kit.open()
    slave.append_raw(0, raw_log(source))
    with pytest.raises(StoreFormatError):
        slave.append_raw(end, b"\xff" * 40_000)
    slave.drop_incomplete()
    assert (slave.write_end, len(slave._log.files)) == (end, 1)

    put_many(source, 300)
    slave.append_raw(end, raw_log(source, end))
    assert bodies(slave) == bodies(source)


def test_complete_log_and_closed_store_keep_everything_when_the_incomplete_is_dropped() -> None:
    source = Kit().open()
    put_many(source, 20)
    slave = Kit().open()
    slave.drop_incomplete()
    slave.append_raw(0, raw_log(source)[:-1])
    slave.drop_incomplete()
    slave.drop_incomplete()
    assert len(bodies(slave)) == 19
    slave.close()
    slave.drop_incomplete()


@pytest.mark.parametrize("first", [0, 16_384])
@pytest.mark.parametrize("restarts", [False, True])
def test_log_without_a_complete_record_may_begin_at_a_later_file(
    first: int, restarts: bool
) -> None:
    """The master deletes the file of which the slave has the begin of a record only."""
    source = Kit().open()
    put_many(source, 300)
    kit = Kit(broker_role="SLAVE")
    slave = kit.open()
    slave.append_raw(first, raw_log(source, first)[:50])
    if restarts:
        slave.close()
        slave = kit.open()
    slave.drop_incomplete()
    assert (slave.min_phy_offset, slave.max_phy_offset, slave.write_end) == (0, 0, 0)

    slave.append_raw(32_768, raw_log(source, 32_768))
    assert slave.min_phy_offset == 32_768
    assert raw_log_from(slave, 32_768) == raw_log(source, 32_768)
    slave.close()
    slave = kit.open()
    assert bodies(slave) == bodies(source, start=slave.min_offset(TOPIC, 0))


def raw_log_from(store: MessageStore, start: int) -> bytes:
    """The bytes of a log whose first file begins at an offset."""
    return raw_log(store)[: store.max_phy_offset - start]
