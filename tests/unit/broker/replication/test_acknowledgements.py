"""Copies that a send waits for, and messages that consumers see meanwhile."""

from typing import Any

import pytest

from rocketpy.broker.cluster.membership import Membership
from rocketpy.broker.replication.acknowledgements import (
    NO_BOUND,
    NOT_ENOUGH,
    Acknowledgements,
    ReplicaKey,
)
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.proto.replication.pair_frames import DiskState

W = DiskState.WRITING


def acks(
    needed: int = 2, *, waits: bool = True, early: bool = False, **more: Any
) -> Acknowledgements:
    config = ReplicationConfig(in_sync_replicas=needed, **more)
    return Acknowledgements(config, waits=waits, refuses_early=early)


def test_async_master_waits_for_nothing() -> None:
    assert acks(waits=False).confirmed == NO_BOUND


@pytest.mark.parametrize("needed", [0, 1])
def test_one_copy_is_the_master_itself(needed: int) -> None:
    assert acks(needed).confirmed == NO_BOUND


def test_confirmed_with_one_slave_follows_its_reports() -> None:
    found = acks()
    one = found.add("one", 0)
    found.advance(100, 0)
    assert found.confirmed == 0

    found.report(one, 80, 60, W, 1)
    assert found.confirmed == 60


def test_third_copy_is_counted_by_the_slowest_needed_slave() -> None:
    found = acks(3)
    one, other, third = (found.add(name, 0) for name in ("one", "other", "third"))
    found.report(one, 90, 90, W, 0)
    assert found.confirmed == 0
    found.report(other, 50, 50, W, 0)
    assert found.confirmed == 50
    found.report(third, 70, 70, W, 0)
    assert found.confirmed == 70


def test_two_connections_of_one_replica_count_once() -> None:
    found = acks(3)
    for _ in range(2):
        found.report(found.add("one", 0), 90, 90, W, 0)

    assert found.confirmed == 0


def test_confirmed_never_decreases() -> None:
    found = acks()
    one = found.add("one", 0)
    found.report(one, 90, 90, W, 0)
    found.remove(one)
    assert found.confirmed == 90

    found.report(found.add("one", 1), 40, 40, W, 1)
    assert found.confirmed == 90


@pytest.mark.parametrize("state", [DiskState.FULL, DiskState.FAILED])
def test_replica_that_does_not_write_does_not_count(state: DiskState) -> None:
    found = acks()
    one = found.add("one", 0)
    found.report(one, 90, 50, W, 0)
    found.report(one, 90, 90, state, 1)

    assert (found.confirmed, found.can_confirm, found.is_stalled) == (50, False, True)
    assert (found.in_sync_count, found.is_in_sync(one)) == (1, False)

    found.report(one, 90, 90, W, 2)
    assert (found.confirmed, found.is_stalled) == (90, False)


def test_stalled_replica_matters_only_if_too_few_others_write() -> None:
    found = acks()
    found.report(found.add("one", 0), 90, 90, DiskState.FULL, 0)
    found.report(found.add("other", 0), 80, 80, W, 0)

    assert (found.is_stalled, found.confirmed) == (False, 80)


def test_missing_replica_is_not_a_stalled_one() -> None:
    assert not acks().is_stalled


# -- release -------------------------------------------------------------------------------------


def test_message_is_released_after_the_timeout_and_not_before() -> None:
    found = acks(slave_timeout=3_000)
    found.advance(0, 0)
    for now_ms in range(100, 3_100, 100):
        found.advance(500, now_ms)
        assert found.released == 0
    found.advance(900, 3_100)

    assert found.released == 500
    assert found.confirmed == 0


def test_samples_are_bounded() -> None:
    found = acks(slave_timeout=3_000)
    for now_ms in range(0, 10_000, 3):
        found.advance(now_ms, now_ms)

    assert 6_000 <= found.released <= 7_000
    assert len(found._samples) <= 32


# -- needed copies and refusals ------------------------------------------------------------------


def test_needed_copies_with_auto_follow_those_in_sync() -> None:
    found = acks(3, enable_auto_in_sync_replicas=True)
    assert (found.needed, found.confirmed) == (1, NO_BOUND)

    one = found.add("one", 0)
    found.report(one, 0, 0, W, 0)
    assert found.needed == 2
    found.remove(one)
    assert found.needed == 1


def test_auto_confirms_nothing_back_when_a_slave_joins() -> None:
    found = acks(2, enable_auto_in_sync_replicas=True)
    found.advance(700, 0)
    found.report(found.add("one", 0), 600, 600, W, 0)

    assert found.confirmed == 700  # acknowledged before the slave was needed


def test_lagging_slave_is_not_in_sync() -> None:
    found = acks(2, enable_auto_in_sync_replicas=True, ha_max_gap_not_in_sync=100)
    one = found.add("one", 0)
    found.advance(1_000, 0)
    found.report(one, 900, 900, W, 0)
    assert found.in_sync_count == 1

    found.report(one, 901, 901, W, 0)
    assert found.in_sync_count == 2


@pytest.mark.parametrize(
    ("settings", "early", "refusal"),
    [
        ({"needed": 2}, False, None),
        ({"needed": 2}, True, NOT_ENOUGH),
        ({"needed": 2, "enable_auto_in_sync_replicas": True}, True, None),
        (
            {"needed": 2, "enable_auto_in_sync_replicas": True, "min_in_sync_replicas": 2},
            True,
            NOT_ENOUGH,
        ),
        ({"needed": 2, "min_in_sync_replicas": 2}, False, NOT_ENOUGH),
        ({"needed": 2, "min_in_sync_replicas": 2, "waits": False}, False, None),
    ],
)
def test_master_alone_refuses_as_apache_does(
    settings: dict[str, Any], early: bool, refusal: str | None
) -> None:
    assert acks(early=early, **settings).refusal == refusal


def test_changed_settings_apply_at_once() -> None:
    found = acks(2)
    found.report(found.add("one", 0), 90, 90, W, 0)
    found.configure(ReplicationConfig(in_sync_replicas=1))
    assert found.confirmed == NO_BOUND

    found.configure(ReplicationConfig(in_sync_replicas=3))
    assert found.confirmed == 90


class Group:
    """Membership that a test changes."""

    def __init__(self, *needed: int) -> None:
        self.needed: frozenset[int] | None = frozenset(needed)
        self.may_acknowledge = True
        self.refusal: str | None = None

    def acks(self) -> Acknowledgements:
        membership = Membership(
            needed=lambda: self.needed,
            may_acknowledge=lambda: self.may_acknowledge,
            send_refusal=lambda: self.refusal,
        )
        return Acknowledgements(ReplicationConfig(), waits=True, membership=membership)


def test_master_of_a_group_confirms_what_all_named_replicas_have() -> None:
    found = Group(2, 3).acks()
    two, three = (found.add(ReplicaKey("pair", number), 0) for number in (2, 3))
    found.report(two, 90, 90, W, 0)
    found.report(three, 70, 70, W, 0)
    assert (found.confirmed, found.needed) == (70, 3)
    # Another one does not stand in for a named one.
    found.report(found.add(ReplicaKey("pair", 4), 0), 90, 90, W, 0)
    found.remove(three)
    found.report(two, 95, 95, W, 0)
    assert (found.confirmed, found.can_confirm) == (70, False)


def test_replica_of_the_classic_protocol_is_never_a_named_one() -> None:
    found = Group(2).acks()
    found.report(found.add(("classic", 2), 0), 90, 90, W, 0)
    assert found.confirmed == 0


def test_master_alone_in_its_set_waits_for_none_and_for_the_first_that_joins() -> None:
    group = Group()
    found = group.acks()
    found.advance(100, 0)
    assert found.confirmed == NO_BOUND
    group.needed = frozenset({2})
    found.membership_changed()
    assert found.confirmed == 100


def test_messages_of_a_group_are_never_released_without_their_copies() -> None:
    found = Group(2).acks()
    for now_ms in range(0, 20_000, 100):
        found.advance(100, now_ms)
    assert (found.released, found.confirmed) == (0, 0)


def test_master_without_lease_confirms_nothing_more() -> None:
    group = Group()
    group.needed = None
    found = group.acks()
    found.advance(100, 0)
    # Bounded, because each message needs the lease.
    assert (found.confirmed, found.needs_lease) == (100, True)
    group.may_acknowledge = False
    found.advance(200, 0)
    assert found.confirmed == 100
    group.may_acknowledge = True
    found.advance(200, 0)
    assert found.confirmed == 200


def test_refusal_of_a_group_is_that_of_its_membership() -> None:
    group = Group(2)
    found = group.acks()
    assert found.refusal is None
    group.refusal = "no"
    assert found.refusal == "no"
