"""Events change groups, and the invariants of a group hold after any of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.controller.events import (
    AddressChanged,
    AnyEvent,
    GroupRemoved,
    IdApplied,
    MasterElected,
    MasterLost,
    ReplicaRemoved,
    SetAltered,
    decode_events,
    encode_events,
)
from rocketpy.controller.replica_groups import ReplicaGroup, ReplicaGroups
from rocketpy.controller.rules import (
    alter_set,
    apply_id,
    clean,
    elect,
    elected,
    next_id,
    register,
)
from rocketpy.errors import StoreFormatError
from tests.unit.controller.group_kit import (
    CLUSTER,
    NAME,
    address,
    applied,
    groups_of,
    only,
    standing,
)


def test_id_applied_first_makes_the_group() -> None:
    group = only(groups_of(*applied(1)))
    assert (group.cluster, group.name, group.last_id) == (CLUSTER, NAME, 1)
    assert group.replicas[1].address == address(1)
    assert group.is_new
    assert group.master_address is None
    assert group.members == frozenset()


def test_master_elected_is_alone_in_the_set() -> None:
    groups = groups_of(*applied(1, 2), MasterElected(NAME, 2, 1, 1))
    group = only(groups)
    assert (group.master_id, group.master_epoch, group.set_epoch) == (2, 1, 1)
    assert group.members == {2}
    assert group.master_address == address(2)


def test_master_lost_keeps_epochs_and_set() -> None:
    groups = groups_of(
        *applied(1, 2), MasterElected(NAME, 1, 1, 1), SetAltered(NAME, (1, 2), 2), MasterLost(NAME)
    )
    group = only(groups)
    assert (group.master_id, group.master_epoch, group.set_epoch) == (None, 1, 2)
    assert group.members == {1, 2}


def test_replica_removed_leaves_the_set_and_its_id_unused() -> None:
    groups = groups_of(*applied(1, 2), MasterElected(NAME, 1, 1, 1), SetAltered(NAME, (1, 2), 2))
    groups.apply([ReplicaRemoved(NAME, 2)])
    group = only(groups)
    assert group.members == {1}
    assert group.set_epoch == 3
    assert next_id(group) == 3


def test_last_replica_removed_ends_the_group() -> None:
    groups = groups_of(*applied(1), ReplicaRemoved(NAME, 1))
    assert groups.get(NAME) is None
    groups = groups_of(*applied(1, 2), GroupRemoved(NAME))
    assert len(groups) == 0


def test_address_changed_keeps_the_check_code() -> None:
    group = only(groups_of(*applied(1), AddressChanged(NAME, 1, "h:2")))
    assert group.replicas[1].address == "h:2"
    assert group.replicas[1].check_code == f"{address(1)};1"


@pytest.mark.parametrize(
    "event",
    [
        MasterElected(NAME, 3, 2, 2),
        MasterElected(NAME, 1, 3, 2),
        MasterElected(NAME, 1, 1, 2),
        MasterElected(NAME, 1, 2, 1),
        SetAltered(NAME, (1, 3), 2),
        SetAltered(NAME, (2,), 2),
        SetAltered(NAME, (1, 2), 3),
        IdApplied(NAME, CLUSTER, 2, "h:1", "h:1;1"),
        AddressChanged(NAME, 3, "h:1"),
        ReplicaRemoved(NAME, 3),
        MasterLost("another"),
    ],
)
def test_event_that_does_not_follow_is_refused(event: AnyEvent) -> None:
    groups = groups_of(*applied(1, 2), MasterElected(NAME, 1, 1, 1))
    before = groups.snapshot()
    with pytest.raises(StoreFormatError, match=type(event).__name__):
        groups.apply([event])
    assert groups.snapshot() == before


def test_decode_events_of_other_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="event"):
        decode_events(encode_events(applied(1)).replace(b"id_applied", b"id_unknown"))
    with pytest.raises(ValueError, match="clusteR"):
        decode_events(encode_events(applied(1)).replace(b"cluster", b"clusteR"))


NUMBERS = st.integers(0, 5)
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["apply", "register", "alter", "elect", "clean", "lose"]),
        NUMBERS,
        st.frozensets(NUMBERS, max_size=4),
        st.booleans(),
    ),
    max_size=30,
)


def events_of(
    groups: ReplicaGroups, kind: str, number: int, some: frozenset[int], flag: bool
) -> list[AnyEvent]:
    """Return the events of a request with any numbers."""
    group = groups.get(NAME)
    if kind == "apply":
        identifier = next_id(group) if flag else number
        return [*apply_id(groups, CLUSTER, NAME, identifier, f"h:{number + 1};1", 9).events]
    if kind == "register":
        return [*register(group, CLUSTER, NAME, number, f"h{number}:7", lambda _: flag).events]
    if group is None:
        return []
    if kind == "alter":
        epochs = (group.master_epoch, group.set_epoch) if flag else (number, number)
        master = group.master_id if flag and group.master_id else number
        verdict = alter_set(
            group, master, epochs[0], some | {master}, epochs[1], lambda each: each != number
        )
        return [*verdict.events]
    if kind == "elect":
        if group.is_new:
            return [*elected(group, number, {})] if number in group.replicas else []
        alive = {each: standing(end=each) for each in some}
        return [*elect(group, alive, replaced=flag).events]
    if kind == "clean":
        return [*clean(group, some, lambda each: each == number, living=flag).events]
    return [MasterLost(NAME)]


def check_step(before: ReplicaGroup | None, after: ReplicaGroup | None) -> None:
    """Check what holds for any change of a group."""
    if after is None:
        return
    assert after.members <= after.replicas.keys()
    assert after.master_id is None or after.master_id in after.members
    assert not after.replicas or max(after.replicas) <= after.last_id
    if before is None:
        return
    assert after.master_epoch >= before.master_epoch
    assert after.set_epoch >= before.set_epoch
    assert after.last_id >= before.last_id
    if after.members != before.members:
        assert after.set_epoch > before.set_epoch
    if after.master_epoch > before.master_epoch and not before.is_new:
        assert after.master_id in before.members
    if after.master_id is not None and after.master_id != before.master_id:
        assert after.master_epoch > before.master_epoch
    new = after.replicas.keys() - before.replicas.keys()
    assert all(each > before.last_id for each in new)


@given(REQUESTS)
def test_groups_after_any_requests_keep_their_invariants(
    requests: list[tuple[str, int, frozenset[int], bool]],
) -> None:
    groups, history = ReplicaGroups(), list[AnyEvent]()
    for request in requests:
        before = groups.get(NAME)
        events = events_of(groups, *request)
        groups.apply(events)
        history += events
        check_step(before, groups.get(NAME))

    assert groups_of(*history).snapshot() == groups.snapshot()
    assert groups_of(*decode_events(encode_events(history))).snapshot() == groups.snapshot()
    assert groups_of(*groups.snapshot()).snapshot() == groups.snapshot()
