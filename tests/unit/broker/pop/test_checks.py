"""Late requests, and peers whose clocks are wrong."""

from rocketpy.broker.pop.checks import LATE_MS, PeerClocks
from rocketpy.testing.sim_clock import SimClock

POLL_MS = 5_000


class Kit:
    def __init__(self, behind_ms: int = 0) -> None:
        self.clock = SimClock()
        self.clocks = PeerClocks(self.clock)
        self.behind_ms = behind_ms

    def age_ms(self, under_way_ms: int = 0) -> int:
        """Age of a request as the check computes it."""
        told_ms = self.clock.time_ms() - self.behind_ms - under_way_ms
        return self.clock.time_ms() - self.clocks.born_ms("peer", told_ms, POLL_MS)

    def is_late(self, under_way_ms: int = 0) -> bool:
        return self.age_ms(under_way_ms) > POLL_MS + LATE_MS


def test_peer_clocks_delayed_request_is_late() -> None:
    kit = Kit()
    assert kit.age_ms() == 0
    assert not kit.is_late(POLL_MS)
    assert [kit.is_late(POLL_MS + 1_000) for _ in range(3)] == [True] * 3
    assert kit.age_ms() == 0


def test_peer_clock_behind_is_corrected_after_two_seconds() -> None:
    kit = Kit(behind_ms=20_000)
    assert kit.is_late()
    kit.clock.advance(1_999)
    assert kit.is_late()
    kit.clock.advance(1)
    assert kit.age_ms() == 0
    assert not kit.is_late(POLL_MS)
    assert kit.is_late(POLL_MS + 1_000), "late all the same"


def test_peer_clock_ahead_late_requests_are_detected() -> None:
    kit = Kit(behind_ms=-3_600_000)
    assert kit.age_ms() == 0
    assert kit.is_late(POLL_MS + 1_000)


def test_peer_clocks_local_clock_change_makes_no_request_late() -> None:
    kit = Kit()
    kit.age_ms()
    for step_ms in (3_600_000, -7_200_000):
        kit.clock.jump(step_ms)
        kit.behind_ms += step_ms
        assert kit.age_ms() == 0
    kit.behind_ms += 3_600_000
    assert kit.is_late(), "the peer's own was set back"
    kit.clock.advance(2_000)
    assert kit.age_ms() == 0


def test_peer_clocks_drift_is_followed() -> None:
    kit = Kit()
    for _ in range(2_000):
        kit.behind_ms += 16
        assert kit.age_ms() < 1_000


def test_peer_clocks_lost_or_silent_peer_is_not_kept() -> None:
    kit = Kit()
    assert kit.clocks.born_ms("other", None, 0) == kit.clock.time_ms()
    assert len(kit.clocks) == 0
    kit.age_ms()
    kit.clocks.forget("peer")
    assert len(kit.clocks) == 0
