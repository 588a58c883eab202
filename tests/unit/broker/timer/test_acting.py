"""The timer of a slave that acts as master, and the master that takes its checkpoint back."""

from pathlib import Path

from rocketpy.broker.timer.acting import ActingTimer
from rocketpy.broker.timer.flush import TimerFlush
from rocketpy.broker.timer.follower import TimerFollower
from rocketpy.broker.timer.service import TimerService
from rocketpy.store.timer.checkpoint import TimerMarks
from tests.unit.broker.timer.timer_kit import Kit

ROOT = Path("/store")


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
