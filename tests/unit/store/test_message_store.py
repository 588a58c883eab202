"""Stored messages are read back exactly once and in order."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError, StoreLockedError
from rocketpy.proto.record.message import decode_message
from rocketpy.store.results import (
    BatchColumns,
    BatchEntry,
    GetMessageStatus,
    PutBatch,
    PutMessage,
    PutMessageStatus,
)
from tests.unit.store.store_kit import OK, TOPIC, Kit, bodies, message, put_many

LOG = Path("/store/commitlog")


# -- put and get ---------------------------------------------------------------------------


def test_messages_come_back_over_many_files_and_a_restart() -> None:
    kit = Kit()
    store = kit.open()
    sent = put_many(store, 500)
    assert bodies(store) == sent
    assert store.max_phy_offset > 4 * 16384
    assert kit.files.unallocated_writes() == []
    store.close()
    assert not kit.files.exists(Path("/store/abort"))

    again = kit.open()
    assert bodies(again) == sent
    assert again.recovery.record_count <= 500
    sent += put_many(again, 10, 500)
    assert bodies(again) == sent
    again.close()


def test_result_says_where_the_message_is() -> None:
    kit = Kit()
    store = kit.open()
    first = store.put_message(message(b"one"))
    second = store.put_message(message(b"two"))
    assert (first.phy_offset, first.queue_offset) == (0, 0)
    assert (second.phy_offset, second.queue_offset) == (first.size_bytes, 1)
    assert second.phy_end == store.max_phy_offset
    record = store.look_message(second.phy_offset)
    assert record is not None
    found = decode_message(record)
    assert (found.body, found.queue_offset, found.phy_offset) == (b"two", 1, first.size_bytes)
    assert found.store_timestamp_ms == kit.clock.time_ms() == second.store_timestamp_ms
    assert kit.arrivals == [(TOPIC, 0, 1, 0), (TOPIC, 0, 2, 0)]
    assert store.look_message(1) is None
    assert store.look_message(-5) is None
    assert store.look_message(1 << 60) is None


def test_ipv6_hosts_and_long_topics_are_stored() -> None:
    store = Kit().open()
    topic = "%RETRY%" + "g" * 200
    host = bytes(range(16)) + struct.pack(">i", 10911)
    store.store_host = host
    result = store.put_message(PutMessage(topic, 3, b"body", born_host=host))
    record = store.look_message(result.phy_offset)
    assert record is not None
    found = decode_message(record, check_crc=True)
    assert (found.topic, found.queue_id, found.body) == (topic, 3, b"body")
    assert found.born_host.endswith(":10911")


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (PutMessage("a/b", 0, b""), PutMessageStatus.MESSAGE_ILLEGAL),
        (PutMessage("..", 0, b""), PutMessageStatus.MESSAGE_ILLEGAL),
        (PutMessage("", 0, b""), PutMessageStatus.MESSAGE_ILLEGAL),
        (PutMessage("t" * 128, 0, b""), PutMessageStatus.MESSAGE_ILLEGAL),
        (PutMessage("%RETRY%" + "t" * 250, 0, b""), PutMessageStatus.MESSAGE_ILLEGAL),
        (PutMessage(TOPIC, -1, b""), PutMessageStatus.MESSAGE_ILLEGAL),
        (PutMessage(TOPIC, 0, b"", flag=1 << 40), PutMessageStatus.MESSAGE_ILLEGAL),
        (PutMessage(TOPIC, 0, bytes(5000)), PutMessageStatus.MESSAGE_ILLEGAL),
        (
            PutMessage(TOPIC, 0, b"", properties=bytes(32768)),
            PutMessageStatus.PROPERTIES_SIZE_EXCEEDED,
        ),
    ],
)
def test_invalid_message_is_rejected_and_stores_nothing(
    bad: PutMessage, status: PutMessageStatus
) -> None:
    store = Kit(max_message_size=4096).open()
    assert store.put_message(bad).status is status
    assert store.max_phy_offset == 0
    assert store.put_message(message(b"good")).queue_offset == 0
    assert bodies(store) == [b"good"]


def test_record_larger_than_a_file_is_refused() -> None:
    store = Kit().open()
    assert store.put_message(message(bytes(17000))).status is PutMessageStatus.MESSAGE_ILLEGAL
    assert put_many(store, 3) == bodies(store)


def test_batch_stays_together() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 75)
    before = store.max_phy_offset
    assert 16384 - before < 2000
    entries = [BatchEntry(f"b{n}".encode() * 50, b"", n, n) for n in range(20)]
    result = store.put_batch(PutBatch(TOPIC, 0, BatchColumns.of(entries)))
    assert result.status is OK
    assert result.phy_offset == 16384
    assert (result.queue_offset, len(result.phy_offsets)) == (75, 20)
    assert bodies(store, start=75) == [each.body for each in entries]
    assert kit.arrivals[-1] == (TOPIC, 0, 95, 19)
    assert (
        store.put_batch(PutBatch(TOPIC, 0, BatchColumns.of([]))).status
        is PutMessageStatus.MESSAGE_ILLEGAL
    )
    bad = PutBatch(TOPIC, 0, BatchColumns.of([BatchEntry(b"a"), BatchEntry(b"b", flag=1 << 33)]))
    assert store.put_batch(bad).status is PutMessageStatus.MESSAGE_ILLEGAL
    assert store.max_offset(TOPIC, 0) == 95


def test_half_messages_are_not_for_consumers_but_can_be_looked_up() -> None:
    store = Kit().open()
    half = store.put_message(message(b"half", sys_flag=4))
    assert (half.status, half.queue_offset) == (OK, 0)
    store.put_message(message(b"committed", sys_flag=8))
    assert bodies(store) == [b"committed"]
    assert store.look_message(half.phy_offset) is not None


def test_delayed_message_carries_its_delivery_time_through_recovery() -> None:
    kit = Kit()
    store = kit.open()
    delayed = PutMessage("SCHEDULE_TOPIC_XXXX", 2, b"", properties=b"DELAY\x013\x02", delay_level=3)
    store.put_message(delayed)
    due_ms = kit.clock.time_ms() + 10_000
    assert kit.arrivals == [("SCHEDULE_TOPIC_XXXX", 2, 1, due_ms)]
    kit.files.kill()
    kit.files.remove(Path("/store/consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000"))
    again = kit.open()
    queue = again._table.get("SCHEDULE_TOPIC_XXXX", 2)
    assert queue is not None
    entry = queue.entry(0)
    assert entry is not None
    assert entry[2] == due_ms


def test_reads_report_status_and_next_offset_as_apache_does() -> None:
    kit = Kit()
    store = kit.open()

    def read(offset: int, count: int = 32, size: int = 1 << 20) -> tuple[GetMessageStatus, int]:
        result = store.get_message(TOPIC, 0, offset, count, size)
        return result.status, result.next_begin_offset

    assert read(7) == (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    put_many(store, 300)
    assert read(0) == (GetMessageStatus.FOUND, 32)
    assert read(0, count=0) == (GetMessageStatus.FOUND, 1)
    assert read(0, size=1) == (GetMessageStatus.FOUND, 1)
    assert read(98) == (GetMessageStatus.FOUND, 130)
    assert read(300) == (GetMessageStatus.OFFSET_OVERFLOW_ONE, 300)
    assert read(301) == (GetMessageStatus.OFFSET_OVERFLOW_BADLY, 300)
    assert read(-1) == (GetMessageStatus.OFFSET_TOO_SMALL, 0)


class OnlyCode:
    def __init__(self, code: int) -> None:
        self.code = code
        self.weight = 1

    def matches_tags_code(self, tags_code: int) -> bool:
        return tags_code == self.code

    def matches_record(self, record: memoryview) -> bool:
        return b"odd" not in bytes(record)

    def match_records(
        self, view: memoryview, positions: Sequence[int], sizes: Sequence[int]
    ) -> list[bool] | None:
        return None


def test_filter_sees_entry_and_record() -> None:
    store = Kit().open()
    for number in range(10):
        body = b"odd" if number == 3 else b"even%d" % number
        store.put_message(message(body, tags_code=number % 3))
    result = store.get_message(TOPIC, 0, 0, 32, 1 << 20, OnlyCode(0))
    assert [decode_message(each).body for each in result.buffers] == [b"even0", b"even6", b"even9"]
    assert result.next_begin_offset == 10
    nothing = store.get_message(TOPIC, 0, 0, 32, 1 << 20, OnlyCode(9))
    assert (nothing.status, nothing.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 10)


def test_offsets_are_found_by_store_time() -> None:
    kit = Kit()
    store = kit.open()
    begin_ms = kit.clock.time_ms()
    for number in range(250):
        store.put_message(message(b"%d" % number))
        if number % 2:
            kit.clock.advance(10)
    for upper, at_ms, expected in [
        (False, begin_ms - 1, 0),
        (False, begin_ms + 10, 2),
        (False, begin_ms + 11, 4),
        (False, begin_ms + 9999, 250),
        (True, begin_ms - 1, 0),
        (True, begin_ms + 10, 3),
        (True, begin_ms + 11, 3),
        (True, begin_ms + 9999, 249),
    ]:
        assert store.offset_by_time(TOPIC, 0, at_ms, upper) == expected
    assert store.store_time_ms(TOPIC, 0, 2) == begin_ms + 10
    assert store.store_time_ms(TOPIC, 0, 250) == -1
    assert store.earliest_store_time_ms() == begin_ms
    assert store.earliest_store_time_ms(TOPIC, 0) == begin_ms
    assert store.earliest_store_time_ms("None", 0) == -1


# -- life ----------------------------------------------------------------------------------


def test_only_one_process_opens_a_directory() -> None:
    kit = Kit()
    kit.open()
    with pytest.raises(StoreLockedError):
        kit.open()


def test_log_that_another_store_uses_is_refused_before_it_is_read() -> None:
    kit = Kit(store_path_commit_log="/shared/log")
    store = kit.open()
    put_many(store, 3)
    other = Kit(store_path_root_dir="/other", store_path_commit_log="/shared/log")
    other.files, other.clock = kit.files, kit.clock
    for _ in range(2):
        with pytest.raises(StoreLockedError, match="another store uses the commit log"):
            other.open()
    assert put_many(store, 2, 3) == bodies(store, start=3)
    store.close()
    with pytest.raises(StoreFormatError, match="/other has neither checkpoint"):
        other.open()
    kit.files.make_directories(Path("/other/config"))
    other.open()


def test_file_of_another_length_is_named_and_nothing_is_opened() -> None:
    kit = Kit()
    put_many(store := kit.open(), 10)
    store.close()
    kit.files.write_bytes(LOG / f"{16384:020d}", b"x" * 100)
    with pytest.raises(StoreFormatError, match="00000000000000016384"):
        kit.open()
    kit.files.write_bytes(LOG / f"{16384:020d}", b"")
    again = kit.open()
    assert len(bodies(again)) == 10


def test_closed_store_refuses() -> None:
    store = Kit().open()
    store.close()
    store.close()
    assert store.put_message(message(b"x")).status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert store.read_only_reason == "the store is closed"


def test_file_made_ahead_goes_at_a_clean_end_and_after_a_crash() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 60)
    kit.step(store, "AllocateService")
    assert kit.files.list_files(LOG)[-1] == f"{16384:020d}"
    kit.files.kill()
    again = kit.open()
    assert kit.files.list_files(LOG) == [f"{0:020d}"]
    put_many(again, 10, 60)
    kit.step(again, "AllocateService")
    put_many(again, 30, 70)
    assert len(bodies(again)) == 100
    kit.step(again, "AllocateService")
    again.close()
    assert kit.files.list_files(LOG) == [f"{0:020d}", f"{16384:020d}"]


def test_recreated_topic_starts_at_offset_zero() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 150)
    assert store.delete_topics([TOPIC, "../x"]) == 1
    assert store.max_offset(TOPIC, 0) == 0
    sent = put_many(store, 5, 500)
    assert bodies(store) == sent
    kit.files.kill()
    again = kit.open()
    assert bodies(again) == sent


def test_old_files_go_and_queues_follow() -> None:
    kit = Kit(delete_when="0;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;19;20;21;22;23")
    store = kit.open()
    sent = put_many(store, 500)
    kit.step(store, "FlushRealTimeService")
    kit.clock.advance(1)
    kit.step(store, "CleanCommitLogService")
    kit.clock.advance(80 * 3_600_000)
    for _ in range(3):
        kit.step(store, "CleanCommitLogService")
        kit.clock.advance(1_000)
    kit.step(store, "CleanConsumeQueueService")
    low = store.min_offset(TOPIC, 0)
    assert store.min_phy_offset == 3 * 16384
    assert 0 < low < 500
    assert bodies(store) == sent[low:]
    assert store.get_message(TOPIC, 0, 0, 1, 100).status is GetMessageStatus.OFFSET_TOO_SMALL
    store.close()

    again = kit.open()
    assert again.min_offset(TOPIC, 0) == low
    assert bodies(again) == sent[low:]
    kit.files.remove_tree(Path("/store/consumequeue"))
    kit.files.kill()
    rebuilt = kit.open()
    assert rebuilt.min_offset(TOPIC, 0) == low
    assert bodies(rebuilt) == sent[low:]


def test_queue_offset_from_is_the_first_message_that_a_deleted_file_leaves() -> None:
    kit = Kit()
    store = kit.open()
    put_many(store, 250)
    unread: list[int] = []

    def unread_by(end: int) -> list[str]:
        unread.append(end)
        return ["g"]

    store.set_unread_by(unread_by)
    clean = store._parts.clean_log
    clean.policy = replace(clean.policy, delete_hours=frozenset(range(24)), file_reserved_ms=0)
    end = store._log.files[0].end_offset
    first = store.queue_offset_from(TOPIC, 0, end)
    assert 0 < first < 250
    assert store.queue_offset_from("Unknown", 0, end) == -1
    for _ in range(2):
        kit.clock.advance(60_000)
        clean.step(kit.clock.monotonic_ms())
    assert unread == [end]
    assert store.min_phy_offset == end
    kit.step(store, "CleanConsumeQueueService")
    assert store.min_offset(TOPIC, 0) == first
