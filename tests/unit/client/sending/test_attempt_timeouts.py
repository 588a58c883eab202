"""Time-outs of attempts, all on one timer."""

from rocketpy.client.sending.attempt import RESOLUTION_MS, AttemptTimeouts
from rocketpy.client.sending.backoff import MAX_GRACE_MS
from rocketpy.runtime.clock import Clock
from rocketpy.testing.sim_loop import LoopClock, SimLoop
from tests.unit.client.sim import pass_time


class Attempt:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.began_ms = clock.monotonic_ms()
        self.told_ms: list[int] = []

    def attempt_timed_out(self) -> None:
        self.told_ms.append(self.clock.monotonic_ms() - self.began_ms)


class Kit:
    def __init__(self) -> None:
        self.loop = SimLoop(1)  # type: ignore[abstract]
        self.clock = LoopClock(self.loop)
        self.watch = AttemptTimeouts(self.loop, self.clock)

    def attempt(self, share_ms: int) -> tuple[Attempt, int]:
        attempt = Attempt(self.clock)
        return attempt, self.watch.add(attempt, self.clock.monotonic_ms() + share_ms)

    def pass_time(self, seconds: float) -> None:
        self.loop.run_until_complete(pass_time(seconds))


def test_each_timeout_is_reported_once_within_the_resolution() -> None:
    kit = Kit()
    shares = [700, 20, 333, 0, 20, 1000]
    attempts = [kit.attempt(share)[0] for share in shares]
    assert len(kit.watch) == 6
    kit.pass_time(5)
    for share, attempt in zip(shares, attempts, strict=True):
        (told_ms,) = attempt.told_ms
        assert share <= told_ms <= share + RESOLUTION_MS
    assert len(kit.watch) == 0


def test_discarded_timeout_is_not_reported() -> None:
    kit = Kit()
    kept, _ = kit.attempt(100)
    gone, slot = kit.attempt(100)
    alone, other = kit.attempt(400)
    kit.watch.discard(gone, slot)
    kit.watch.discard(alone, other)
    kit.watch.discard(alone, other)
    assert len(kit.watch) == 1
    kit.pass_time(5)
    assert (len(kept.told_ms), gone.told_ms, alone.told_ms) == (1, [], [])
    late, _ = kit.attempt(100)
    kit.pass_time(1)
    assert len(late.told_ms) == 1, "the timer is armed anew"


def test_timeout_callback_may_add_another_timeout() -> None:
    kit = Kit()

    class Again(Attempt):
        def attempt_timed_out(self) -> None:
            super().attempt_timed_out()
            if len(self.told_ms) < 3:
                kit.watch.add(self, self.clock.monotonic_ms() + 100)

    again = Again(kit.clock)
    kit.watch.add(again, kit.clock.monotonic_ms())
    kit.pass_time(5)
    assert len(again.told_ms) == 3
    assert again.told_ms[-1] <= 3 * (100 + RESOLUTION_MS)


class StalledClock(LoopClock):
    """Clock that advances while the loop stalls."""

    stalled_ms = 0

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.stalled_ms


def test_answers_that_came_while_the_loop_stood_still_are_read_first() -> None:
    kit = Kit()
    clock = kit.clock = StalledClock(kit.loop)
    kit.watch = AttemptTimeouts(kit.loop, clock)
    answered, slot = kit.attempt(1000)
    silent, _ = kit.attempt(1000)
    kit.pass_time(0.9)
    clock.stalled_ms = 2000
    kit.loop.call_later(0.16, kit.watch.discard, answered, slot)
    kit.pass_time(2)
    assert answered.told_ms == []
    (told_ms,) = silent.told_ms
    assert 3000 + MAX_GRACE_MS <= told_ms <= 3000 + MAX_GRACE_MS + 3 * RESOLUTION_MS
    later, _ = kit.attempt(100)
    kit.pass_time(1)
    assert later.told_ms[0] <= 100 + RESOLUTION_MS, "the loop runs again"
