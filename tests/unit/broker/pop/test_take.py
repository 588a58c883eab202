"""Pop from one queue: messages returned, and the check point recorded before."""

from typing import Any

import pytest

from rocketpy.broker.filters.message_filters import TagFilter
from rocketpy.broker.operation.pull.pull import MAX_PULL_BYTES
from rocketpy.broker.pop.check_points import CheckPointBuffer
from rocketpy.broker.pop.pop_locks import GroupQueue, PopLocks
from rocketpy.broker.pop.revive.revive_log import ReviveLog, key_of
from rocketpy.broker.pop.take import PopInProgress, PopRequest, QueueTaker
from rocketpy.proto.bodies.pop import CheckPoint
from rocketpy.proto.record.compression import deflate
from rocketpy.proto.record.message import decode_message, decode_messages
from rocketpy.proto.record.properties import parse_properties
from rocketpy.proto.record.sys_flag import CompressionType, with_compression
from rocketpy.store.results import GetMessageResult, GetMessageStatus, PutMessageStatus
from tests.unit.broker.fakes import FakeStats
from tests.unit.broker.pop.parts_kit import GROUP, RETRY_V1, Parts, Timer

QUEUE = GroupQueue("T", GROUP, 0)
RETRY = GroupQueue(RETRY_V1, GROUP, 0)
INVISIBLE_MS = 60_000


class Kit(Parts):
    """Takes whose check points are stored at once, unless `buffers`."""

    def __init__(self, *, sync_flush: bool = False, buffers: bool = False, **config: Any) -> None:
        super().__init__(enable_pop_buffer_merge=buffers, **config)
        self.timer = Timer()
        self.locks = PopLocks()
        self.stats = FakeStats()
        revive_log = ReviveLog(
            self.timer, self.store, cluster_name="c", queue_nums=lambda: 8, clock=self.clock
        )
        self.buffer = CheckPointBuffer(
            revive_log,
            self.positions,
            config=self.config,
            sync_flush=sync_flush,
            clock=self.clock,
        )
        self.taker = QueueTaker(
            self.store,
            positions=self.positions,
            locks=self.locks,
            order=self.order,
            buffer=self.buffer,
            revive_log=revive_log,
            stats=self.stats,
            config=self.config,
            sync_flush=sync_flush,
        )

    def pop(
        self, message_filter: TagFilter | None = None, *, max_count: int = 32, **wanted: Any
    ) -> PopInProgress:
        request = PopRequest(
            GROUP, "T", -1, max_count, INVISIBLE_MS, self.clock.time_ms(), 0, 0, **wanted
        )
        return PopInProgress(request, message_filter, 5, self.clock.time_ms())

    def take(self, *queues: GroupQueue, **wanted: Any) -> PopInProgress:
        pop = self.pop(**wanted)
        for queue in queues or (QUEUE,):
            self.taker.take(pop, queue)
        return pop

    def waiting_point(self, pop: PopInProgress) -> CheckPoint:
        """The check point of a pop of two messages, as an ack names it."""
        wanted = pop.wanted
        return CheckPoint(
            "T", GROUP, 0, 0, pop.time_ms, wanted.invisible_ms, 2, [0, 1], self.config.broker_name
        )

    @property
    def committed(self) -> int:
        return self.offsets.query(GROUP, "T", 0)


def bodies(pop: PopInProgress) -> list[bytes]:
    return [message.body for message in decode_messages(b"".join(pop.records))]


def test_take_stores_check_point_of_handed_out_messages() -> None:
    kit = Kit()
    kit.put(b"0", b"1", b"2")
    now_ms = kit.clock.time_ms()
    pop = kit.take()
    assert bodies(pop) == [b"0", b"1", b"2"]
    assert (pop.start_offsets, pop.message_offsets) == (["0 0 0"], ["0 0 0,1,2"])
    assert (pop.count, pop.rest, pop.not_stored) == (3, 0, None)
    assert pop.size_bytes == sum(map(len, pop.records))
    [(point, revive_queue_id, deliver_ms)] = kit.timer.points
    assert (point.topic, point.group, point.queue_id) == ("T", GROUP, 0)
    assert (point.start_offset, point.count, point.offset_diffs) == (0, 3, [0, 1, 2])
    assert (point.pop_time_ms, point.invisible_ms, point.broker_name) == (now_ms, 60_000, "b")
    assert point.revive_time_ms == now_ms + INVISIBLE_MS
    assert revive_queue_id == 5
    assert deliver_ms == now_ms + INVISIBLE_MS - 1_000, "a second before they may come back"
    assert ("inc_get", GROUP, "T", 3, pop.size_bytes) in kit.stats.calls


def test_take_next_pop_continues_and_offset_follows_flush() -> None:
    kit = Kit()
    kit.put(b"0", b"1", b"2")
    assert bodies(kit.take(max_count=2)) == [b"0", b"1"]
    assert kit.committed == 0
    second = kit.take()
    assert bodies(second) == [b"2"]
    assert second.start_offsets == ["0 0 2"]
    assert kit.take().count == 0
    assert kit.committed == 0, "neither check point is on disk"


def test_take_buffered_check_point_keeps_committed_offset() -> None:
    kit = Kit(buffers=True)
    kit.put(b"0", b"1")
    pop = kit.take()
    assert bodies(pop) == [b"0", b"1"]
    assert (kit.timer.points, len(kit.buffer)) == ([], 1)
    assert kit.take().count == 0, "the next pop begins behind"
    assert kit.committed == 0
    assert kit.buffer.ack(key_of(kit.waiting_point(pop)), [0, 1])
    kit.positions.commit_flushed()
    assert kit.committed == 2


def test_take_full_buffer_stores_check_point() -> None:
    kit = Kit(buffers=True, pop_ck_max_buffer_size=0)
    kit.put(b"0")
    assert kit.take().count == 1
    assert (len(kit.timer.points), len(kit.buffer)) == (1, 0)


def test_take_check_point_not_stored_hands_out_nothing() -> None:
    kit = Kit()
    kit.put(b"0", b"1")
    kit.timer.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    pop = kit.take()
    assert (pop.records, pop.count, pop.start_offsets, pop.message_offsets) == ([], 0, [], [])
    assert pop.not_stored is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert pop.rest == 2
    kit.timer.status = PutMessageStatus.PUT_OK
    assert bodies(kit.take()) == [b"0", b"1"]


def test_take_locked_queue_is_only_counted() -> None:
    kit = Kit()
    kit.put(b"0", b"1")
    assert kit.locks.try_lock(QUEUE)
    pop = kit.take()
    assert (pop.count, pop.rest) == (0, 2)
    assert kit.take(is_ordered=True).rest == 0, "in order the messages are in somebody's hand"
    kit.locks.unlock(QUEUE)
    assert kit.take().count == 2


def test_take_failure_releases_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()

    def fail(*_: object) -> GetMessageResult:
        raise OSError("a bad sector")

    monkeypatch.setattr(kit.store, "get_message", fail)
    with pytest.raises(OSError, match="a bad sector"):
        kit.take()
    assert kit.locks.try_lock(QUEUE)


def test_take_queues_share_max_count() -> None:
    kit = Kit()
    kit.put(b"0", b"1", b"2")
    kit.put(b"3", b"4", queue_id=1)
    other = GroupQueue("T", GROUP, 1)
    pop = kit.take(QUEUE, other, max_count=4)
    assert bodies(pop) == [b"0", b"1", b"2", b"3"]
    assert pop.start_offsets == ["0 0 0", "0 1 0"]
    assert pop.rest == 1
    assert [(point.queue_id, point.count) for point, *_ in kit.timer.points] == [(0, 3), (1, 1)]
    full = kit.take(other, QUEUE, max_count=1)
    assert bodies(full) == [b"4"]
    assert full.rest == 0


def test_take_full_pop_only_counts_rest() -> None:
    kit = Kit()
    kit.put(b"0", b"1")
    kit.put(b"2", b"3", queue_id=1)
    pop = kit.take(QUEUE, GroupQueue("T", GROUP, 1), max_count=2)
    assert (bodies(pop), pop.rest) == ([b"0", b"1"], 2)
    assert len(kit.timer.points) == 1
    by_size = kit.pop()
    by_size.size_bytes = MAX_PULL_BYTES
    kit.taker.take(by_size, GroupQueue("T", GROUP, 1))
    assert (by_size.count, by_size.rest) == (0, 2)


def test_take_filtered_messages_are_skipped_permanently() -> None:
    kit = Kit()
    for code in (1, 2, 1, 2):
        kit.put(b"%d" % code, tags_code=code)
    pop = kit.take(message_filter=TagFilter(frozenset({1})))
    assert bodies(pop) == [b"1", b"1"]
    assert pop.message_offsets == ["0 0 0,2"]
    assert kit.timer.points[0][0].offset_diffs == [0, 2]
    none = kit.take(message_filter=TagFilter(frozenset({9})))
    assert (none.count, none.rest) == (0, 0)
    assert kit.take().count == 0, "the last message was passed over too"


def test_take_without_match_commits_past_filtered_messages() -> None:
    kit = Kit()
    kit.put(b"0", b"1", tags_code=1)
    assert kit.take(message_filter=TagFilter(frozenset({9}))).count == 0
    assert kit.committed == 2
    assert kit.timer.points == []


def test_take_offset_beyond_queue_continues_at_end() -> None:
    kit = Kit()
    kit.put(b"0")
    kit.offsets.commit(GROUP, "T", 0, 50)
    assert kit.take().count == 0
    assert kit.committed == 1
    kit.put(b"1")
    assert bodies(kit.take()) == [b"1"]


class Shortened:
    """A store whose queue begins later than the group stands, by what it answers."""

    def __init__(self, results: list[GetMessageResult]) -> None:
        self.results = results
        self.asked: list[int] = []

    def get_message(self, *args: Any) -> GetMessageResult:
        self.asked.append(args[2])
        return self.results.pop(0)

    def max_offset(self, _topic: str, _queue_id: int) -> int:
        return 9


@pytest.mark.parametrize(
    "status", [GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_FOUND_NULL]
)
def test_take_wrong_offset_is_corrected_and_read_once_more(
    status: GetMessageStatus, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit = Kit()
    kit.offsets.commit(GROUP, "T", 0, 3)
    kit.put(b"x", b"y")
    record = kit.store.get_message("T", 0, 1, 1, 1 << 20).buffers[0]
    found = GetMessageResult(GetMessageStatus.FOUND, 8, 7, 9, [record], 1, len(record))
    shortened = Shortened([GetMessageResult(status, 7, 7, 9), found])
    monkeypatch.setattr(kit.store, "get_message", shortened.get_message)
    monkeypatch.setattr(kit.store, "max_offset", shortened.max_offset)
    pop = kit.take()
    assert shortened.asked == [3, 7]
    assert pop.start_offsets == ["0 0 7"]
    assert (pop.count, pop.rest, kit.committed) == (1, 1, 7)


def test_take_ordered_records_messages_and_keeps_offset() -> None:
    kit = Kit()
    kit.put(b"0", b"1", b"2")
    pop = kit.take(is_ordered=True, max_count=2)
    assert bodies(pop) == [b"0", b"1"]
    assert pop.order_counts == ["0 0 0"]
    assert kit.timer.points == []
    assert kit.committed == 0
    blocked = kit.take(is_ordered=True)
    assert (blocked.count, blocked.rest) == (0, 0)
    kit.clock.advance(INVISIBLE_MS)
    again = kit.take(is_ordered=True, max_count=1)
    assert bodies(again) == [b"0"]
    assert again.order_counts == ["0 qo0%0 1", "0 0 1"]


def test_take_ordered_same_attempt_gets_same_messages() -> None:
    kit = Kit()
    kit.put(b"0", b"1")
    kit.take(is_ordered=True, attempt_id="a", max_count=1)
    assert kit.take(is_ordered=True, attempt_id="b").count == 0
    assert bodies(kit.take(is_ordered=True, attempt_id="a", max_count=1)) == [b"0"]


def test_take_reset_applies_once_and_unblocks() -> None:
    kit = Kit()
    kit.put(b"0", b"1", b"2")
    kit.take(is_ordered=True)
    kit.offsets.assign_reset(GROUP, "T", 0, 1)
    reset = kit.take(is_ordered=True, max_count=1)
    assert bodies(reset) == [b"1"]
    assert reset.order_counts == ["0 0 0"], "what was in hand before is forgotten"
    assert kit.take(is_ordered=True).count == 0, "blocked by the pop after the reset"


def test_take_reset_overrides_check_points_not_on_disk() -> None:
    kit = Kit()
    kit.put(b"0", b"1", b"2")
    assert kit.take().count == 3
    kit.offsets.assign_reset(GROUP, "T", 0, 2)
    assert bodies(kit.take()) == [b"2"]


def retried(kit: Kit, body: bytes, properties: bytes = b"k\x01v\x02") -> None:
    kit.put(body, topic=RETRY_V1, properties=properties, reconsume_times=2)


def test_take_retried_message_has_original_topic_and_handle() -> None:
    kit = Kit()
    kit.put(b"other")
    retried(kit, b"0")
    retried(kit, b"1")
    now_ms = kit.clock.time_ms()
    pop = kit.take(RETRY)
    found = decode_messages(b"".join(pop.records))
    assert [(one.topic, one.body, one.reconsume_times) for one in found] == [
        ("T", b"0", 2), ("T", b"1", 2),
    ]  # fmt: skip
    assert [one.properties["POP_CK"] for one in found] == [
        f"0 {now_ms} 60000 5 1 b 0 0",
        f"0 {now_ms} 60000 5 1 b 0 1",
    ]
    assert found[0].properties["k"] == "v"
    assert pop.start_offsets == ["1 0 0"]
    assert kit.timer.points[0][0].topic == RETRY_V1


def test_take_retried_message_keeps_compressed_body() -> None:
    kit = Kit()
    body = deflate(b"text" * 100, CompressionType.ZLIB, 5)
    flag = with_compression(0, CompressionType.ZLIB)
    kit.put(body, topic=RETRY_V1, sys_flag=flag)
    [record] = kit.take(RETRY).records
    stored = decode_message(record, inflate=False)
    assert (stored.topic, stored.body, stored.sys_flag) == ("T", body, flag)


def test_take_retried_message_keeps_retry_topic_if_configured() -> None:
    kit = Kit(pop_response_return_actual_retry_topic=True)
    retried(kit, b"0")
    [message] = decode_messages(b"".join(kit.take(RETRY).records))
    assert message.topic == RETRY_V1
    assert "POP_CK" not in message.properties


def test_take_changed_settings_apply_to_next_pop() -> None:
    kit = Kit()
    retried(kit, b"0")
    kit.taker.configure(Kit(pop_response_return_actual_retry_topic=True).config)
    [message] = decode_messages(b"".join(kit.take(RETRY).records))
    assert message.topic == RETRY_V1


def test_take_retried_message_without_room_for_handle_is_unchanged() -> None:
    kit = Kit()
    properties = b"k\x01".ljust(32_766, b"v")
    retried(kit, b"0", properties)
    [message] = decode_messages(b"".join(kit.take(RETRY).records))
    assert (message.topic, message.properties) == (RETRY_V1, parse_properties(properties))


def test_take_damaged_retried_message_is_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    damaged = b"no record at all".ljust(64, b"\0")
    found = GetMessageResult(
        GetMessageStatus.FOUND, 1, 0, 1, [memoryview(damaged)], 1, len(damaged)
    )
    monkeypatch.setattr(kit.store, "get_message", lambda *_: found)
    assert kit.take(RETRY).records == [damaged]


@pytest.mark.parametrize(("sync_flush", "durable_at"), [(True, 20_500), (False, 0)])
def test_take_sync_flush_waits_for_last_check_point(sync_flush: bool, durable_at: int) -> None:
    kit = Kit(sync_flush=sync_flush)
    kit.put(b"0")
    kit.put(b"1", queue_id=1)
    assert kit.take(QUEUE, GroupQueue("T", GROUP, 1)).durable_at == durable_at
