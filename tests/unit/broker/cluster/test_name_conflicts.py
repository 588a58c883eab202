"""Order in which brokers of one name register at a restarted name server."""

from rocketpy.broker.cluster.name_conflicts import FREE, NameConflicts
from rocketpy.proto.headers.namesrv import NO_ROUTES_REMARK

REMARK = f"b is also registered by 10.0.0.9:1: {NO_ROUTES_REMARK}"


def waiting(*addresses: str) -> NameConflicts:
    conflicts = NameConflicts()
    for each in addresses:
        conflicts.note(each, REMARK)
    return conflicts


def yields(conflicts: NameConflicts, address: str, reached: set[str], now_s: float) -> bool:
    return conflicts.must_yield(address, reached, now_s=now_s, period_s=30)


def test_second_restart_begins_the_period_again() -> None:
    conflicts = waiting("n1:1")
    conflicts.note_holder("n1:1", FREE, 0)
    assert yields(conflicts, "n1:1", {"n1:1"}, 29)
    conflicts.note_holder("n1:1", None, 29)  # it restarts
    conflicts.note_holder("n1:1", FREE, 31)
    assert yields(conflicts, "n1:1", {"n1:1"}, 60)
    assert not yields(conflicts, "n1:1", {"n1:1"}, 61)


def test_registered_holder_begins_the_period_again() -> None:
    conflicts = waiting("n1:1")
    conflicts.note_holder("n1:1", FREE, 0)
    conflicts.note_holder("n1:1", "10.0.0.9:1", 10)
    assert not yields(conflicts, "n1:1", {"n1:1"}, 11), "the registration waits there"
    conflicts.note_holder("n1:1", FREE, 20)
    assert yields(conflicts, "n1:1", {"n1:1"}, 31)


def test_broker_yields_at_a_name_server_while_another_one_has_the_holder() -> None:
    conflicts = waiting("n1:1")
    conflicts.note_holder("n2:2", FREE, 0)
    assert not conflicts.may_be_first("n2:2", {"n1:1", "n2:2"})
    assert yields(conflicts, "n2:2", {"n1:1", "n2:2"}, 1_000)
    assert not yields(conflicts, "n2:2", {"n2:2"}, 1_000), "that one cannot be reached"


def test_restart_of_all_name_servers_delays_by_one_period() -> None:
    conflicts = waiting("n1:1", "n2:2")
    for each in ("n1:1", "n2:2"):
        conflicts.note_holder(each, FREE, 0)
    assert yields(conflicts, "n1:1", {"n1:1", "n2:2"}, 29)
    assert not yields(conflicts, "n1:1", {"n1:1", "n2:2"}, 30)


def test_broker_without_a_conflict_may_be_first() -> None:
    conflicts = waiting("n1:1")
    assert not conflicts.may_be_first("n1:1", set())
    conflicts.note("n1:1", "")
    assert conflicts.may_be_first("n1:1", {"n1:1"})
    assert conflicts.remark_without_routes({"n1:1"}) is None
