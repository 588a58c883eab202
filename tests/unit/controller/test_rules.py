"""Rules of requests: codes of refusals, and the elected replica."""

from dataclasses import replace

import pytest

from rocketpy.controller.events import (
    MAX_ID,
    AddressChanged,
    GroupRemoved,
    IdApplied,
    MasterElected,
    MasterLost,
    ReplicaRemoved,
    SetAltered,
)
from rocketpy.controller.replica_groups import ReplicaGroups
from rocketpy.controller.rules import (
    MAX_REPLICAS,
    Standing,
    Verdict,
    alter_set,
    apply_id,
    clean,
    elect,
    elect_first,
    elected,
    next_id,
    register,
)
from rocketpy.proto.wire.codes import ResponseCode
from tests.unit.controller.group_kit import (
    CLUSTER,
    NAME,
    address,
    applied,
    code_of,
    group_with,
    groups_of,
    only,
    standing,
)

Code = ResponseCode


def apply(groups: ReplicaGroups, number: int, check_code: str = "h:1;1", cluster: str = CLUSTER):
    return apply_id(groups, cluster, NAME, number, check_code, 2)


def test_apply_id_next_one_is_given_and_a_repeat_succeeds() -> None:
    groups = ReplicaGroups()
    assert next_id(None) == 1
    verdict = apply(groups, 1)
    assert verdict.events == [IdApplied(NAME, CLUSTER, 1, "h:1", "h:1;1")]
    groups.apply(verdict.events)
    repeated = apply(groups, 1)
    assert repeated.is_accepted
    assert not repeated.events


@pytest.mark.parametrize("number", [-1, 0, 1, 2, 4, MAX_ID + 1])
def test_apply_id_taken_or_not_next_is_refused(number: int) -> None:
    groups = groups_of(*applied(1, 2))
    assert code_of(apply(groups, number)) is Code.CONTROLLER_BROKER_ID_INVALID


def test_apply_id_of_a_removed_replica_is_refused() -> None:
    groups = groups_of(*applied(1, 2), ReplicaRemoved(NAME, 2))
    assert code_of(apply(groups, 2, f"{address(2)};1")) is Code.CONTROLLER_BROKER_ID_INVALID
    assert apply(groups, 3).is_accepted


@pytest.mark.parametrize("check_code", ["", ";1", "h;1", "h:0;1", "h:70000;1", "h:1;" + "1" * 999])
def test_apply_id_malformed_check_code_is_refused(check_code: str) -> None:
    assert code_of(apply(ReplicaGroups(), 1, check_code)) is Code.CONTROLLER_INVALID_REQUEST


def test_apply_id_beyond_the_limits_is_refused() -> None:
    groups = groups_of(*applied(1, name="x"), *applied(1, name="y"))
    assert code_of(apply(groups, 1)) is Code.CONTROLLER_INVALID_REQUEST
    groups = groups_of(*applied(*range(1, MAX_REPLICAS + 1)))
    assert code_of(apply(groups, MAX_REPLICAS + 1)) is Code.CONTROLLER_INVALID_REQUEST


def test_apply_id_in_another_cluster_is_refused() -> None:
    verdict = apply(groups_of(*applied(1)), 2, cluster="c2")
    assert code_of(verdict) is Code.CONTROLLER_INVALID_REQUEST
    assert "cluster c1" in verdict.remark
    assert code_of(apply(ReplicaGroups(), 1, cluster="a b")) is Code.CONTROLLER_INVALID_REQUEST


def test_election_has_an_epoch_above_those_of_all_logs() -> None:
    """The state of the controller was restored from an old backup."""
    group = group_with([1, 2], master=1, members=[2])
    epoch = group.master_epoch
    alive = {1: Standing(epoch + 6, 10, 0), 2: Standing(epoch + 6, 20, 0)}
    for designated in (1, 2):
        verdict = elect(group, alive, designated=designated)
        found = only(groups_of(group.stored(), *verdict.events))
        assert (found.master_id, found.master_epoch) == (designated, epoch + 7)
    assert elect(group, alive).code is Code.CONTROLLER_MASTER_STILL_EXIST
    knows = {2: Standing(epoch, 20, 0, known_epoch=epoch + 9)}
    assert elected(group, 2, knows)[-1] == MasterElected(NAME, 2, epoch + 10, group.set_epoch + 1)
    nonsense = {2: Standing(1 << 62, 20, 0)}
    assert elected(group, 2, nonsense) == [MasterElected(NAME, 2, epoch + 1, group.set_epoch + 1)]


def test_first_master_of_a_group_is_the_asker_or_one_with_a_newer_log() -> None:
    """The state of the controller was lost."""
    group = group_with([1, 2])
    assert elect_first(group, 1, {}).events == [MasterElected(NAME, 1, 1, 1)]
    level = {1: Standing(3, 10, 5), 2: Standing(3, 10, 1)}
    assert elect_first(group, 1, level).events[-1] == MasterElected(NAME, 1, 4, 1)
    newer = {1: Standing(2, 10, 5), 2: Standing(3, 5, 1)}
    assert elect_first(group, 1, newer).events[-1] == MasterElected(NAME, 2, 4, 1)


def none_alive(_number: int) -> bool:
    return False


def test_register_unknown_id_is_refused() -> None:
    group = group_with([1])
    code = Code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert code_of(register(group, CLUSTER, NAME, 2, "h:1", none_alive)) is code
    assert code_of(register(None, CLUSTER, NAME, 1, "h:1", none_alive)) is code
    malformed = register(group, CLUSTER, NAME, 1, "h", none_alive)
    assert code_of(malformed) is Code.CONTROLLER_INVALID_REQUEST


def test_register_another_address_is_stored() -> None:
    group = group_with([1, 2], master=1)
    assert register(group, CLUSTER, NAME, 2, address(2), none_alive).events == []
    changed = register(group, CLUSTER, NAME, 2, "h:9", none_alive)
    assert changed.events == [AddressChanged(NAME, 2, "h:9")]


def test_register_another_address_of_an_alive_replica_is_refused() -> None:
    """A machine was cloned: the copy must not get the place of the replica in the set."""
    group = group_with([1, 2], master=1)
    copy = register(group, CLUSTER, NAME, 2, "h:9", lambda number: number == 2)
    assert code_of(copy) is Code.CONTROLLER_INVALID_REQUEST
    assert address(2) in copy.remark
    again = register(group, CLUSTER, NAME, 2, address(2), lambda number: number == 2)
    assert again.events == []


def test_register_of_the_master_ends_its_mastership() -> None:
    group = group_with([1, 2], master=1)
    assert register(group, CLUSTER, NAME, 1, address(1), none_alive).events == [MasterLost(NAME)]


def alter(members: set[int], **changes: int):
    group = group_with([1, 2, 3], master=1, members=[2])
    asked = {"master_id": 1, "master_epoch": 1, "set_epoch": 1} | changes
    return alter_set(
        group,
        asked["master_id"],
        asked["master_epoch"],
        members,
        asked["set_epoch"],
        lambda number: number == 1,
    )


def test_alter_set_that_fences_gives_an_unchanged_set_a_new_epoch() -> None:
    group = group_with([1, 2, 3], master=1, members=[2])

    def asked(set_epoch: int) -> Verdict:
        return alter_set(group, 1, 1, {1, 2}, set_epoch, lambda _: False, fences=True)

    assert asked(1).events == [SetAltered(group.name, (1, 2), 2)]
    assert code_of(asked(0)) is Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH


def test_alter_set_smaller_set_needs_no_liveness() -> None:
    assert alter({1}).events == [SetAltered(NAME, (1,), 2)]


def test_alter_set_dead_member_that_stays_is_accepted() -> None:
    group = group_with([1, 2, 3], master=1, members=[2])
    verdict = alter_set(group, 1, 1, [1, 2, 3], 1, lambda number: number == 3)
    assert verdict.events == [SetAltered(NAME, (1, 2, 3), 2)]


@pytest.mark.parametrize(
    ("members", "changes", "code"),
    [
        ({1}, {"master_id": 2}, Code.CONTROLLER_INVALID_MASTER),
        ({1}, {"master_epoch": 0}, Code.CONTROLLER_FENCED_MASTER_EPOCH),
        ({1}, {"set_epoch": 0}, Code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
        ({1, 4}, {}, Code.CONTROLLER_INVALID_REPLICAS),
        ({1, 3}, {}, Code.CONTROLLER_BROKER_NOT_ALIVE),
        ({2}, {}, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        (set(), {}, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        ({1, 2}, {}, Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
    ],
)
def test_alter_set_refusals_have_codes(
    members: set[int], changes: dict[str, int], code: ResponseCode
) -> None:
    assert code_of(alter(members, **changes)) is code


def test_alter_set_of_an_unknown_group_is_refused() -> None:
    verdict = alter_set(None, 1, 1, [1], 1, lambda _: True)
    assert code_of(verdict) is Code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED


THREE = group_with([1, 2, 3, 4], master=1, members=[2, 3])


@pytest.mark.parametrize(
    ("alive", "best"),
    [
        ({2: standing(1, 5), 3: standing(1, 4)}, 2),
        ({2: standing(1, 5), 3: standing(2, 4)}, 3),
        ({2: standing(1, 5, 8), 3: standing(1, 5, 7)}, 3),
        ({2: standing(1, 5), 3: standing(1, 5)}, 2),
        ({2: standing(1, 0), 3: standing(1, 1 << 62)}, 3),  # gaps beyond 2 GiB keep the order
        ({2: standing(), 4: standing(9, 9)}, 2),
    ],
)
def test_elect_takes_the_longest_log_of_the_set(alive: dict[int, Standing], best: int) -> None:
    group = replace(THREE, master_epoch=9)
    assert elect(group, alive).events == [MasterElected(NAME, best, 10, 2)]


def test_elect_with_an_alive_master_is_refused_unless_it_is_replaced() -> None:
    alive = {1: standing(1, 9), 2: standing(1, 8), 4: standing()}
    assert code_of(elect(THREE, alive)) is Code.CONTROLLER_MASTER_STILL_EXIST
    assert code_of(elect(THREE, alive, designated=1)) is Code.CONTROLLER_MASTER_STILL_EXIST
    assert elect(THREE, alive, designated=2).events == [MasterElected(NAME, 2, 2, 2)]
    assert elect(THREE, alive, replaced=True).events == [MasterElected(NAME, 2, 2, 2)]
    alone = {1: standing(), 4: standing()}
    assert code_of(elect(THREE, alone, replaced=True)) is Code.CONTROLLER_ELECT_MASTER_FAILED


@pytest.mark.parametrize("designated", [3, 4, 5, -1])
def test_elect_designated_that_is_no_alive_member_is_refused(designated: int) -> None:
    alive = {2: standing(), 4: standing()}
    verdict = elect(THREE, alive, designated=designated)
    assert code_of(verdict) is Code.CONTROLLER_ELECT_MASTER_FAILED
    assert str(designated) in verdict.remark


def test_elect_outside_the_set_needs_unclean_elections() -> None:
    alive = {4: standing()}
    assert code_of(elect(THREE, alive)) is Code.CONTROLLER_ELECT_MASTER_FAILED
    assert elect(THREE, alive, unclean=True).events == [MasterElected(NAME, 4, 2, 2)]
    member, group = {2: standing(), 4: standing(9)}, replace(THREE, master_epoch=9)
    assert elect(group, member, unclean=True).events == [MasterElected(NAME, 2, 10, 2)]


def test_clean_alive_replica_needs_permission() -> None:
    code = Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert code_of(clean(THREE, [4], lambda _: True, living=False)) is code
    assert clean(THREE, [4], lambda _: True, living=True).events == [ReplicaRemoved(NAME, 4)]
    dead = clean(THREE, [1, 4], lambda _: False, living=False)
    assert dead.events == [ReplicaRemoved(NAME, 1), ReplicaRemoved(NAME, 4)]


def test_clean_alive_master_or_last_member_is_refused() -> None:
    code = Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert code_of(clean(THREE, [1], lambda _: True, living=True)) is code
    assert code_of(clean(THREE, [1, 2, 3], lambda _: False, living=True)) is code
    assert code_of(clean(THREE, [5], lambda _: False, living=True)) is code
    assert code_of(clean(None, [], lambda _: False, living=True)) is code


def test_clean_without_ids_removes_the_group() -> None:
    assert clean(THREE, [], lambda _: False, living=False).events == [GroupRemoved(NAME)]
    assert clean(THREE, [], lambda _: True, living=True).events == [GroupRemoved(NAME)]
    code = Code.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert code_of(clean(THREE, [], lambda each: each == 1, living=False)) is code


def test_clean_of_a_group_without_master_keeps_a_member() -> None:
    group = replace(only(groups_of(*applied(1, 2))), master_id=None)
    verdict = clean(group, [1], lambda _: False, living=False)
    assert verdict.events == [ReplicaRemoved(NAME, 1)]
