"""Heartbeats, closed connections, leases."""

from rocketpy.controller.liveness import LEASE_MS, Liveness, ReplicaKey, bounded_timeout_ms
from tests.unit.controller.group_kit import heartbeat, standing

ONE, TWO = ReplicaKey("a", 1), ReplicaKey("a", 2)


def test_replica_is_alive_until_its_timeout() -> None:
    liveness = Liveness()
    assert not liveness.is_alive(ONE, 0)
    assert liveness.is_overdue(ONE, 0)
    liveness.take(ONE, heartbeat(0, timeout_ms=3_000))
    assert liveness.is_alive(ONE, 2_999)
    assert not liveness.is_alive(ONE, 3_000)
    assert liveness.is_overdue(ONE, 3_000)
    liveness.take(ONE, heartbeat(3_500, timeout_ms=3_000))
    assert liveness.is_alive(ONE, 6_499)


def test_closed_connection_ends_its_replicas_but_not_their_silence() -> None:
    liveness = Liveness()
    liveness.take(ONE, heartbeat(0, connection="x"))
    liveness.take(TWO, heartbeat(0, connection="x"))
    assert liveness.close("x") == [ONE, TWO]
    assert liveness.close("x") == []
    assert not liveness.is_alive(ONE, 1)
    assert not liveness.is_overdue(ONE, 9_999)
    liveness.take(ONE, heartbeat(2, connection="y"))
    assert liveness.is_alive(ONE, 3)


def test_older_connection_that_closes_ends_nothing() -> None:
    liveness = Liveness()
    liveness.take(ONE, heartbeat(0, connection="x"))
    liveness.take(ONE, heartbeat(1, connection="y"))
    assert liveness.close("x") == []
    assert liveness.is_alive(ONE, 2)
    assert liveness.close("y") == [ONE]


def test_forgotten_replica_is_unknown() -> None:
    liveness = Liveness()
    liveness.take(ONE, heartbeat(0, connection="x"))
    liveness.forget(ONE)
    liveness.forget(TWO)
    assert len(liveness) == 0
    assert liveness.get(ONE) is None
    assert liveness.close("x") == []
    assert liveness.standings("a", 1) == {}


def test_standings_are_of_alive_replicas() -> None:
    liveness = Liveness()
    liveness.take(ONE, heartbeat(0, end=5))
    liveness.take(TWO, heartbeat(0, timeout_ms=1_000))
    liveness.take(ReplicaKey("b", 1), heartbeat(0))
    assert liveness.standings("a", 1_000) == {1: standing(end=5)}


def test_lease_lasts_although_its_holder_is_forgotten() -> None:
    liveness = Liveness()
    assert liveness.lease("a") is None
    liveness.take(ONE, heartbeat(7))
    liveness.grant_lease(ONE, 7)
    liveness.forget(ONE)
    assert liveness.lease("a") == (1, 7 + LEASE_MS)
    liveness.end_lease("a")
    assert liveness.lease("a") is None
    liveness.grant_lease(ONE, 8)
    liveness.forget_group("a")
    assert liveness.lease("a") is None


def test_deadlines_are_of_replicas_that_are_not_overdue() -> None:
    liveness = Liveness()
    assert liveness.next_deadline_ms(0) is None
    liveness.take(ONE, heartbeat(0, timeout_ms=2_000))
    liveness.take(ReplicaKey("b", 1), heartbeat(0, timeout_ms=3_000))
    assert liveness.next_deadline_ms(1) == 2_000
    assert liveness.overdue_groups(1) == set()
    assert liveness.next_deadline_ms(2_000) == 3_000
    assert liveness.overdue_groups(2_000) == {"a"}


def test_timeout_of_a_peer_is_bounded() -> None:
    assert bounded_timeout_ms(None) == 10_000
    assert bounded_timeout_ms(-5) == 1_000
    assert bounded_timeout_ms(3_000) == 3_000
    assert bounded_timeout_ms(1 << 62) == 60_000
