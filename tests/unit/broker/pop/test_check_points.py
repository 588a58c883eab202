"""Buffered check points are stored in time, and the committed offset does not pass them earlier."""

from dataclasses import replace
from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.pop.check_points import CheckPointBuffer
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.positions import PopPositions
from rocketpy.broker.pop.revive.revive_log import PopKey, ReviveLog, key_of
from rocketpy.proto.bodies.pop import CheckPoint, PopAck
from rocketpy.proto.pop import BATCH_ACK_TAG, CHECK_POINT_TAG
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from tests.unit.broker.fakes import FakeClock, MemoryFile
from tests.unit.broker.pop.kit import after, send, simulate
from tests.unit.broker.pop.test_positions import Store

QUEUE = GroupQueue("T", "g", 0)


class Timer:
    """Fake store that postpones its confirmations on request."""

    store_host = bytes(8)

    def __init__(self) -> None:
        self.put: list[PutMessage] = []
        self.status = PutMessageStatus.PUT_OK
        self.refused: dict[str, PutMessageStatus] = {}
        self.too_far_count = 0
        self.error: OSError | None = None

    def put_at(self, message: PutMessage, _properties: Any, _deliver_ms: int) -> PutMessageResult:
        if self.error is not None:
            raise self.error
        status = self.refused.get(message.tags or "", self.status)
        if self.too_far_count:
            self.too_far_count -= 1
            status = PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL
        if status is PutMessageStatus.PUT_OK:
            self.put.append(message)
        return PutMessageResult(status, phy_offset=0, size_bytes=100 * len(self.put))

    def delivered_before_ms(self) -> int:
        return 1 << 62


class Kit:
    def __init__(self, *, sync_flush: bool = False, **changes: Any) -> None:
        self.config = replace(BrokerConfig(), **changes)
        self.clock = FakeClock()
        self.timer = Timer()
        self.store = Store()
        self.offsets = ConsumerOffsets(self.config, MemoryFile(), self.clock)
        self.offsets.commit("g", "T", 0, 10)
        self.positions = PopPositions(self.offsets, self.store, self.store)
        log = ReviveLog(
            self.timer, self.timer, cluster_name="c", queue_nums=lambda: 8, clock=self.clock
        )
        self.buffer = CheckPointBuffer(
            log, self.positions, config=self.config, sync_flush=sync_flush, clock=self.clock
        )

    def pop(self, start: int = 10, count: int = 3, invisible_ms: int = 60_000) -> PopKey | None:
        point = CheckPoint(
            "T", "g", 0, start, self.clock.now_ms, invisible_ms, count, list(range(count)), "b"
        )
        added = self.buffer.add(point, QUEUE, start + count, 3)
        return key_of(point) if added else None

    def step(self) -> int:
        return self.buffer.step(self.clock.monotonic_ms()) - self.clock.monotonic_ms()

    @property
    def committed(self) -> int:
        self.positions.commit_flushed()
        return self.offsets.query("g", "T", 0)

    @property
    def stored(self) -> list[str | None]:
        return [message.tags for message in self.timer.put]


def test_check_point_all_acked_is_never_stored() -> None:
    kit = Kit()
    key = kit.pop()
    assert key is not None
    assert kit.positions.next_offset(QUEUE) == 13
    assert kit.buffer.ack(key, [10])
    assert kit.buffer.ack(key, [12, 10])
    assert kit.committed == 10, "the message between is in somebody's hand"
    assert kit.buffer.ack(key, [11])
    assert (kit.committed, len(kit.buffer), len(kit.positions)) == (13, 0, 0)
    kit.clock.now_ms += 60_000
    kit.step()
    assert not kit.timer.put


def test_check_point_after_stay_time_is_stored_with_its_acks() -> None:
    kit = Kit()
    key = kit.pop()
    assert key is not None
    kit.buffer.ack(key, [11])
    kit.clock.now_ms += 9_999
    kit.step()
    assert not kit.stored
    kit.clock.now_ms += 1
    kit.step()
    assert kit.stored == [BATCH_ACK_TAG, CHECK_POINT_TAG]
    acked = PopAck.decode(kit.timer.put[0].body)
    point = CheckPoint.decode(kit.timer.put[1].body)
    assert (key_of(point), point.bit_map, point.count) == (key, 0, 3)
    assert (key_of(acked), acked.offsets) == (key, [11])
    assert {message.queue_id for message in kit.timer.put} == {3}
    assert not kit.buffer.ack(key, [10]), "an ack that comes now is stored"
    assert kit.committed == 10, "the check point is not on disk"
    kit.store.flushed_phy_offset = 200
    assert kit.committed == 13


def test_check_point_is_stored_before_invisible_time_ends() -> None:
    kit = Kit()
    assert kit.pop(invisible_ms=3_000) is None, "too soon: stored at once"
    assert kit.pop(invisible_ms=5_000) is not None
    kit.clock.now_ms += 2_000
    kit.step()
    assert kit.stored == [CHECK_POINT_TAG]


def test_committed_offset_waits_for_oldest_pop() -> None:
    kit = Kit()
    kit.store.flushed_phy_offset = 1_000
    first, second = kit.pop(10), kit.pop(13)
    assert first is not None
    assert second is not None
    kit.buffer.ack(second, [13, 14, 15])
    assert kit.committed == 10
    kit.clock.now_ms += 10_000
    kit.step()
    assert kit.stored == [CHECK_POINT_TAG], "of the first alone"
    assert kit.committed == 16


def test_check_point_buffer_disabled_buffers_nothing() -> None:
    assert Kit(sync_flush=True).pop() is None
    assert Kit(enable_pop_buffer_merge=False).pop() is None
    assert Kit(pop_ck_max_buffer_size=0).pop() is None
    kit = Kit(pop_ck_offset_max_queue_size=2)
    keys = [kit.pop(10), kit.pop(13), kit.pop(16)]
    assert [key is not None for key in keys] == [True, True, False]
    kit = Kit()
    assert kit.pop() is not None
    assert kit.pop() is None, "the same pop again: one of both is enough in memory"


def test_check_point_buffer_changed_setting_applies_at_once() -> None:
    kit = Kit()
    assert kit.pop() is not None
    kit.buffer.configure(replace(kit.config, enable_pop_buffer_merge=False))
    assert kit.pop(13) is None
    kit.clock.now_ms += 10_000
    kit.step()
    assert kit.stored == [CHECK_POINT_TAG], "what waited is stored in its time"


def test_check_point_refused_by_store_is_retried() -> None:
    kit = Kit()
    key = kit.pop()
    assert key is not None
    kit.buffer.ack(key, [12])
    kit.timer.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    kit.clock.now_ms += 10_000
    assert kit.step() == 1_000
    assert (len(kit.buffer), kit.committed) == (1, 10)
    kit.timer.status = PutMessageStatus.PUT_OK
    kit.step()
    assert PopAck.decode(kit.timer.put[0].body).offsets == [12]
    assert len(kit.buffer) == 0


@pytest.mark.parametrize("refused", [BATCH_ACK_TAG, CHECK_POINT_TAG])
def test_check_point_refused_after_its_acks_retries_both(refused: str) -> None:
    """An ack that was confirmed must not be forgotten between its check point and itself."""
    kit = Kit()
    key = kit.pop()
    assert key is not None
    kit.buffer.ack(key, [12])
    kit.timer.refused[refused] = PutMessageStatus.CREATE_MAPPED_FILE_FAILED
    kit.clock.now_ms += 10_000
    assert kit.step() == 1_000
    assert kit.buffer.ack(key, [10]), "it waits in memory again"
    kit.timer.refused.clear()
    kit.timer.put.clear()
    kit.step()
    assert kit.stored == [BATCH_ACK_TAG, CHECK_POINT_TAG]
    assert PopAck.decode(kit.timer.put[0].body).offsets == [10, 12]
    assert len(kit.buffer) == 0


def test_check_point_put_raises_stays_buffered() -> None:
    kit = Kit()
    key = kit.pop()
    assert key is not None
    kit.buffer.ack(key, [12])
    kit.timer.error = OSError(5, "Input/output error")
    kit.clock.now_ms += 10_000
    with pytest.raises(OSError, match="Input/output error"):
        kit.step()
    kit.timer.error = None
    kit.step()
    assert kit.stored == [BATCH_ACK_TAG, CHECK_POINT_TAG]
    assert PopAck.decode(kit.timer.put[0].body).offsets == [12]


def test_check_point_beyond_timer_reach_does_not_delay_others() -> None:
    kit = Kit()
    assert kit.pop(10) is not None
    kit.clock.now_ms += 1
    assert kit.pop(13) is not None
    kit.timer.too_far_count = 1
    kit.clock.now_ms += 10_000
    assert kit.step() == 500
    assert [CheckPoint.decode(each.body).start_offset for each in kit.timer.put] == [13]
    kit.clock.now_ms += 9_999
    kit.step()
    assert len(kit.timer.put) == 1
    kit.clock.now_ms += 1
    kit.step()
    assert [CheckPoint.decode(each.body).start_offset for each in kit.timer.put] == [13, 10]
    assert len(kit.buffer) == 0


def test_check_point_step_stores_bounded_number() -> None:
    kit = Kit()
    for number in range(150):
        assert kit.pop(10 + 3 * number) is not None
    kit.clock.now_ms += 10_000
    waits = [kit.step() for _ in range(3)]
    assert waits == [0, 0, 500]
    assert len(kit.stored) == 150


def test_check_point_persist_stores_all_and_closes_buffer() -> None:
    kit = Kit()
    kit.pop(10)
    kit.pop(13)
    kit.buffer.persist()
    assert kit.stored == [CHECK_POINT_TAG] * 2
    assert kit.pop(16) is None
    kit.positions.persist()
    assert kit.offsets.query("g", "T", 0) == 16


def test_broker_stop_redelivers_no_acked_message() -> None:
    async def scenario(cluster: Any, popper: Any) -> tuple[list[bytes], list[bytes], list[bytes]]:
        await send(cluster, 4)
        first = await popper.pop(invisibleTime=30_000)
        for message in first.messages[1:]:
            await popper.ack(message)
        broker = cluster.brokers[0]
        await broker.stop()
        await broker.start()
        again = await popper.pop()
        await after(40)
        back = await popper.pop()
        return first.bodies, again.bodies, back.bodies

    first, again, back = simulate(scenario, queues=1)
    assert first == [b"0", b"1", b"2", b"3"]
    assert again == []
    assert back == [b"0"], "the one that nobody acked"


def test_check_point_step_many_due_scans_once() -> None:
    kit = Kit(pop_ck_offset_max_queue_size=100_000)
    for number in range(1_000):
        kit.pop(10 + number, 1)
        kit.clock.now_ms += 1
    kit.clock.now_ms += 60_000
    waits, most, before, steps = 0, 0, 0, 0
    looks = Looks(kit.buffer._waiting)
    kit.buffer._waiting = looks
    while not waits:
        waits, steps = kit.step(), steps + 1
        before, most = len(kit.timer.put), max(most, len(kit.timer.put) - before)
    assert len(kit.timer.put) == 1_000
    assert most <= 64 < steps * 64
    assert looks.count <= 2
    kit.store.flushed_phy_offset = 1 << 40
    assert kit.committed == 1_010


class Looks(dict[Any, Any]):
    """Counts how often all of it is looked at."""

    count = 0

    def items(self) -> Any:
        self.count += 1
        return super().items()
