"""The timer of a slave that acts as master, and the master that takes its checkpoint back."""

from pathlib import Path

from rocketpy.broker.pop.revive.revive_sink import JoinedQueue, ReviveSink
from rocketpy.broker.timer.acting import ActingTimer
from rocketpy.broker.timer.flush import TimerFlush
from rocketpy.broker.timer.follower import TimerFollower
from rocketpy.broker.timer.service import TimerService
from rocketpy.proto.bodies.pop import CheckPoint
from rocketpy.proto.pop import revive_topic
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from rocketpy.store.timer.checkpoint import TimerMarks
from tests.unit.broker.timer.timer_kit import QUEUE, Kit

ROOT = Path("/store")
POPS = revive_topic("c")


def test_acting_timer_delivers_what_is_left_and_leaves_its_checkpoint() -> None:
    kit = Kit()
    kit.send(b"before", **kit.at(5_000))
    kit.send(b"while acting", **kit.at(20_000))
    kit.send(b"later", **kit.at(60_000))
    kit.run(10_000)
    kit.stop()
    master = kit.state.marks
    kit.files.remove(ROOT / "config" / "timercheck")
    follower = TimerFollower(ROOT, kit.files)
    follower.load()
    follower.follow(master)

    def make() -> tuple[TimerService, TimerFlush]:
        kit.open()
        return kit.timer, kit.flush

    acting = ActingTimer(follower, make)
    acting.restart()
    for _ in range(300):
        acting.step(kit.clock.monotonic_ms())
        kit.clock.advance(100)
    acting.end()
    acting.end()
    assert kit.bodies() == [b"before", b"while acting"]
    assert follower.marks.read_ms > master.read_ms
    assert follower.marks.queue_offset == 3


def test_master_that_returns_within_a_slot_delivers_only_the_rest_of_it() -> None:
    kit = Kit()
    slot_ms = kit.clock.time_ms() // 1_000 * 1_000 + 20_000
    for part_ms in (200, 700, 1_000):
        kit.send(b"%d" % part_ms, TIMER_DELIVER_MS=str(slot_ms + part_ms))
    kit.run(2_000)
    kit.stop()
    follower = TimerFollower(ROOT, kit.files)
    follower.load()
    follower.follow(kit.state.marks._replace(read_ms=kit.state.marks.read_ms + 1_000))

    def make() -> tuple[TimerService, TimerFlush]:
        kit.open()
        return kit.timer, kit.flush

    acting = ActingTimer(follower, make)
    acting.restart()
    while kit.clock.time_ms() < slot_ms + 400:
        acting.step(kit.clock.monotonic_ms())
        kit.clock.advance(50)
    acting.end()
    assert kit.bodies() == [b"200"]
    assert follower.marks.read_ms == slot_ms
    marks = follower.marks._replace(read_ms=acting.delivered_ms)

    master = Kit()
    for part_ms in (200, 700, 1_000):
        master.send(b"%d" % part_ms, TIMER_DELIVER_MS=str(slot_ms + part_ms))
    master.timer.take_delivered(marks)
    master.run(40_000)
    assert master.bodies() == [b"700", b"1000"]


def test_master_does_not_deliver_again_what_its_slave_delivered() -> None:
    kit = Kit()
    kit.send(b"at the slave", **kit.at(5_000))
    kit.send(b"later", **kit.at(30_000))
    kit.send(b"unknown to the slave", **kit.at(5_000))
    kit.run(2_000)
    read_ms = kit.clock.time_ms() + 10_000
    kit.timer.take_delivered(TimerMarks(read_ms, 1, 2, 2))
    kit.timer.take_delivered(TimerMarks(1, 1, 9, 9))
    kit.run(40_000)
    assert sorted(kit.bodies()) == [b"later", b"unknown to the slave"]


class PopKit:
    """A slave whose timer delivers to topic T, and check points to a sink."""

    def __init__(self) -> None:
        self.kit = Kit()
        self.taken: list[bytes] = []
        self.is_there = True
        self.queue = JoinedQueue(self.kit.store, POPS, QUEUE)
        self.sink = ReviveSink(POPS, lambda: True)
        self.sink.make_queues = lambda: [self.queue]
        self.follower = TimerFollower(ROOT, self.kit.files)

    def fail_over(self) -> None:
        """Let the slave have the master's checkpoint, and act."""
        kit = self.kit
        kit.stop()
        self.master = kit.state.marks
        kit.files.remove(ROOT / "config" / "timercheck")
        self.follower.load()
        self.follower.follow(self.master)
        self.acting = ActingTimer(self.follower, self._make, self.sink)
        self.acting.restart()

    def _make(self) -> tuple[TimerService, TimerFlush]:
        kit = self.kit
        kit.open()
        put_message = kit.picky.put_message

        def put(message: PutMessage) -> PutMessageResult:
            if not self.is_there:
                return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)
            if message.topic != POPS:
                return put_message(message)
            assert self.sink.take(message)
            self.taken.append(bytes(message.body))
            return PutMessageResult(PutMessageStatus.PUT_OK)

        kit.picky.put_message = put  # type: ignore[method-assign]
        return kit.timer, kit.flush

    def run(self, elapsed_ms: int) -> None:
        end_ms = self.kit.clock.monotonic_ms() + elapsed_ms
        while self.kit.clock.monotonic_ms() < end_ms:
            self.acting.step(self.kit.clock.monotonic_ms())
            self.kit.clock.advance(100)

    def point(self, name: bytes, later_ms: int) -> CheckPoint:
        now_ms = self.kit.clock.time_ms()
        self.kit.send(name, topic=POPS, TAGS="ck", **self.kit.at(later_ms))
        return CheckPoint("T", "g", 0, 0, now_ms, later_ms + 1_000, 1, [0], "b")


def test_acting_timer_keeps_its_checkpoint_before_check_points_that_wait() -> None:
    pops = PopKit()
    pops.kit.send(b"message", **pops.kit.at(4_000))
    waiting = pops.point(b"waits", 4_500)
    pops.fail_over()
    pops.run(5_000)
    assert pops.taken == [b"waits"]
    pops.queue.settle(pops.queue.start + 1, [waiting])
    pops.run(10_000)
    over_ms = waiting.pop_time_ms + waiting.invisible_ms
    assert pops.sink.unrevived_ms == over_ms - 1_001
    pops.acting.end()
    assert pops.follower.marks.read_ms == (over_ms - 1_001) // 1_000 * 1_000
    assert pops.acting.unrevived_ms == over_ms - 1_001
    assert pops.acting.delivered_ms > over_ms


def test_timer_that_acts_again_delivers_only_check_points_twice() -> None:
    pops = PopKit()
    pops.kit.send(b"message", **pops.kit.at(4_000))
    done = pops.point(b"done", 4_200)
    waiting = pops.point(b"waits", 4_500)
    pops.fail_over()
    pops.run(8_000)
    assert pops.taken == [b"done", b"waits"]
    pops.queue.settle(pops.queue.start + 2, [waiting])
    assert done.invisible_ms < waiting.invisible_ms
    pops.acting.end()
    pops.kit.store.close()
    pops.acting.restart()
    pops.run(2_000)
    assert pops.taken == [b"done", b"waits", b"waits"]
    assert pops.kit.bodies() == [b"message"]


def test_acting_timer_killed_while_it_reads_its_queue_again_delivers_nothing_old() -> None:
    pops = PopKit()
    kit = pops.kit
    for number in range(100):
        kit.send(b"old %d" % number, **kit.at(2_000))
    kit.send(b"new", **kit.at(60_000))
    kit.run(10_000)
    pops.fail_over()
    assert len(kit.bodies()) == 100
    kit.clock.advance(2_000)
    for end in (kit.store.close, pops.acting.end):
        pops.acting.step(kit.clock.monotonic_ms())
        kit.clock.advance(1_000)
        end()
        pops.follower.load()
        assert pops.follower.marks.queue_offset >= 100
        if end is not kit.store.close:
            kit.store.close()
        pops.acting = ActingTimer(pops.follower, pops._make, pops.sink)
        pops.acting.restart()
    pops.run(10_000)
    assert len(kit.bodies()) == 100


def test_acting_timer_that_ends_while_it_reads_its_queue_again_claims_nothing() -> None:
    pops = PopKit()
    kit = pops.kit
    kit.send(b"cannot leave", **kit.at(4_000))
    for number in range(40):
        kit.send(b"later %d" % number, **kit.at(60_000))
    kit.send(b"behind it", **kit.at(6_000))
    kit.run(1_000)
    pops.fail_over()
    pops.is_there = False
    kit.clock.advance(10_000)
    pops.run(3_000)
    pops.acting.end()
    assert pops.acting.delivered_ms == 0
    assert pops.acting.unrevived_ms is None
    assert pops.follower.marks.queue_offset == 42
    kit.store.close()
    pops.is_there = True
    pops.acting.restart()
    pops.run(3_000)
    pops.acting.end()
    assert kit.bodies() == [b"cannot leave", b"behind it"]
    assert pops.acting.delivered_ms > 0


def test_returning_master_delivers_check_points_that_its_slave_has_not_processed() -> None:
    pops = PopKit()
    kit = pops.kit
    for name, later_ms in ((b"1", 4_000), (b"2", 4_500), (b"3", 30_000)):
        pops.point(name, later_ms)
    kit.send(b"message", **kit.at(4_500))
    now_ms = kit.clock.time_ms()
    kit.timer.take_unrevived(now_ms + 4_200)
    kit.timer.take_unrevived(now_ms)
    kit.timer.take_delivered(TimerMarks(now_ms + 10_000, 1, 9, 9))
    kit.run(40_000)
    assert kit.bodies(POPS) == [b"2", b"3"]
    assert kit.bodies() == []
