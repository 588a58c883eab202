"""Revival of popped messages at a slave that acts as master."""

from typing import Any

from rocketpy.broker.pop.acting import ActingOffsets, ActingRevive, EscapedRetryTopics
from rocketpy.broker.pop.check_points import CheckPointBuffer
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.revive.revive import ReviveQueue
from rocketpy.broker.pop.revive.revive_log import ReviveLog, key_of
from rocketpy.broker.pop.revive.revive_sink import JoinedQueue, ReviveSink
from rocketpy.proto.bodies.pop import CheckPoint, PopAck
from rocketpy.proto.pop import REVIVE_GROUP, revive_topic
from rocketpy.proto.record.properties import encode_properties
from rocketpy.store.results import PutMessage, PutMessageStatus
from tests.unit.broker.pop.parts_kit import Parts

TOPIC = revive_topic("c")
QUEUE = GroupQueue("T", "g", 0)


class Kit(Parts):
    """A slave with three messages, whose check points the master has stored."""

    def __init__(self) -> None:
        super().__init__()
        self.put(b"0", b"1", b"2")
        self.revived: list[tuple[int, list[int]]] = []
        self.is_there = True
        self.is_acting = True
        self.delivered_ms = self.clock.time_ms()
        self.sink = ReviveSink(TOPIC, lambda: self.is_acting)
        self.sink.make_queues = lambda: [JoinedQueue(self.store, TOPIC, 0)]
        self.log = ReviveLog(
            self.sink, self.store, cluster_name="c", queue_nums=lambda: 1, clock=self.clock
        )
        self.buffer = CheckPointBuffer(
            self.log, self.positions, config=self.config, sync_flush=False, clock=self.clock
        )
        self.service = ActingRevive(
            self.sink,
            self._reader,
            self.buffer,
            self,  # type: ignore[arg-type]
            clock=self.clock,
            interval_ms=1_000,
        )
        self.begin()

    def _reader(self, queue: JoinedQueue) -> ReviveQueue:
        return ReviveQueue(
            queue,
            self.store,
            self,  # type: ignore[arg-type]
            offsets=ActingOffsets(self.offsets, queue),
            timer=self.sink,
            clock=self.clock,
        )

    def begin(self) -> None:
        self.sink.begin(lambda: self.delivered_ms)

    def revive(self, point: CheckPoint, _queue_id: int) -> bool:
        if self.is_there:
            self.revived.append((point.start_offset, point.offsets(acked=False)))
        return self.is_there

    def run(self, elapsed_ms: int = 0) -> list[tuple[int, list[int]]]:
        self.clock.advance(elapsed_ms)
        self.delivered_ms = self.clock.time_ms()
        self.revived.clear()
        for _ in range(10):
            self.service.step(self.clock.monotonic_ms())
        return list(self.revived)

    def point(self, start: int, invisible_ms: int = 10_000, count: int = 1) -> CheckPoint:
        now_ms = self.clock.time_ms()
        offsets = list(range(count))
        return CheckPoint("T", "g", 0, start, now_ms, invisible_ms, count, offsets, "b")

    def deliver(self, one: CheckPoint | PopAck, tag: str, deliver_ms: int) -> bool:
        properties = {"TAGS": tag, "TIMER_DELIVER_MS": str(deliver_ms)}
        return self.sink.take(PutMessage(TOPIC, 0, one.encode(), encode_properties(properties)))

    def ack_of(self, point: CheckPoint, offset: int) -> PopAck:
        return PopAck("T", "g", 0, point.start_offset, point.pop_time_ms, "b", offset, None)

    @property
    def committed(self) -> int:
        return self.offsets.query(REVIVE_GROUP, TOPIC, 0)


def due_ms(point: CheckPoint) -> int:
    return point.pop_time_ms + point.invisible_ms


def test_acting_revive_joins_check_points_of_log_and_timer_with_their_acks() -> None:
    kit = Kit()
    old, new = kit.point(0, 2_000), kit.point(1, 3_000, count=2)
    properties = {"TAGS": "ck", "TIMER_DELIVER_MS": str(due_ms(old) - 1_000)}
    kit.put(old.encode(), topic=TOPIC, properties=encode_properties(properties))
    kit.begin()
    kit.deliver(new, "ck", due_ms(new) - 1_000)
    kit.deliver(kit.ack_of(new, 1), "ack", due_ms(new))
    kit.store.flush_log()
    assert kit.run() == []
    assert kit.run(10_000) == [(0, [0]), (1, [2])]
    assert kit.run(10_000) == []
    assert kit.committed == 0, "the offset does not pass the end of the log"


def test_acting_revive_takes_acks_of_consumers_only_while_acting() -> None:
    kit = Kit()
    point = kit.point(0, count=2)
    kit.is_acting = False
    put = kit.log.put_ack(kit.ack_of(point, 0), 0, due_ms(point))
    assert put.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    kit.is_acting = True
    put = kit.log.put_ack(kit.ack_of(point, 1), 0, due_ms(point))
    assert put.status is PutMessageStatus.PUT_OK
    kit.clock.advance(9_000)
    kit.deliver(point, "ck", due_ms(point) - 1_000)
    assert kit.run(5_000) == [(0, [0])]


def test_acting_revive_stores_no_check_point_of_a_change_of_invisible_time() -> None:
    kit = Kit()
    put = kit.log.put_check_point(kit.point(0), 0)
    assert put.status is PutMessageStatus.SERVICE_NOT_AVAILABLE


def test_acting_revive_names_the_time_since_when_nothing_is_processed() -> None:
    kit = Kit()
    assert kit.sink.unrevived_ms > due_ms(kit.point(0)), "all is processed"
    first, second = kit.point(0), kit.point(1, 20_000)
    kit.deliver(first, "ck", due_ms(first) - 1_000)
    kit.deliver(second, "ck", due_ms(second) - 1_000)
    assert kit.sink.unrevived_ms == due_ms(first) - 1_001, "not read yet"
    kit.run()
    assert kit.sink.unrevived_ms == due_ms(first) - 1_001, "read, not due"
    assert kit.run(15_000) == [(0, [0])]
    assert kit.sink.unrevived_ms == due_ms(second) - 1_001
    kit.is_there = False
    assert kit.run(15_000) == []
    assert kit.sink.unrevived_ms == due_ms(second) - 1_001, "it could not be sent"
    kit.is_there = True
    assert kit.run() == [(1, [1])]
    assert kit.sink.unrevived_ms > due_ms(second)


def test_acting_revive_begins_again_without_what_it_had_in_memory() -> None:
    kit = Kit()
    point = kit.point(0)
    kit.deliver(point, "ck", due_ms(point) - 1_000)
    kit.run()
    kit.begin()
    assert kit.run(20_000) == [], "the timer delivers it again"
    kit.deliver(point, "ck", due_ms(point) - 1_000)
    assert kit.run(20_000) == [(0, [0])]


def test_acting_revive_full_memory_holds_the_timer(monkeypatch: Any) -> None:
    monkeypatch.setattr("rocketpy.broker.pop.revive.revive_sink.MAX_ENTRIES", 2)
    kit = Kit()
    points = [kit.point(each) for each in range(3)]
    assert [kit.deliver(each, "ck", due_ms(each) - 1_000) for each in points] == [True, True, False]
    kit.run()
    assert kit.deliver(points[2], "ck", due_ms(points[2]) - 1_000)


def test_acting_revive_refuses_messages_before_the_slave_acts() -> None:
    kit = Kit()
    kit.sink.queues = []
    point = kit.point(0)
    assert not kit.deliver(point, "ck", due_ms(point) - 1_000)
    assert kit.run() == []


def test_acting_revive_redelivers_what_was_popped_here_and_passes_it() -> None:
    kit = Kit()
    kit.offsets.commit("g", "T", 0, 0)
    point = kit.point(0, count=2)
    assert kit.buffer.add(point, QUEUE, 2, 0)
    assert kit.buffer.ack(key_of(point), [1])
    assert kit.run(11_000) == [], "acks may be on their way"
    kit.is_there = False
    assert kit.run(5_000) == []
    kit.is_there = True
    assert kit.run() == [(0, [0])]
    kit.positions.commit_flushed()
    assert kit.offsets.query("g", "T", 0) == 2
    assert len(kit.buffer) == 0


def test_escaped_retry_topic_is_found_by_the_route_of_its_messages() -> None:
    routes: dict[str, str] = {}
    point = CheckPoint("T", "g", 0, 0, 0, 1, 1, [0], "b")
    assert EscapedRetryTopics(routes, is_v2=False).topic_of(point) == "%RETRY%g_T"
    assert EscapedRetryTopics(routes, is_v2=True).topic_of(point) == "%RETRY%g+T"
    again = CheckPoint("%RETRY%g_T", "g", 0, 0, 0, 1, 1, [0], "b")
    assert EscapedRetryTopics(routes, is_v2=True).topic_of(again) == "%RETRY%g_T"
    assert routes == {"%RETRY%g_T": "T", "%RETRY%g+T": "T"}
