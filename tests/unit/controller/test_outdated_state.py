"""Elections of a controller whose state is older than the logs of its replicas."""

from dataclasses import replace

import pytest

from rocketpy.controller.elections import START_WAIT_MS, ElectionRequest, Elections
from rocketpy.controller.events import MasterElected
from rocketpy.controller.liveness import Liveness, ReplicaKey
from rocketpy.controller.replica_groups import ReplicaGroups
from rocketpy.controller.rules import Standing, Verdict
from rocketpy.proto.wire.codes import ResponseCode
from tests.unit.controller.group_kit import NAME, code_of, group_with, heartbeat, only

Code = ResponseCode
OLD = group_with([1, 2, 3], master=1, members=[2])
"""Epoch 1, set epoch 1."""
LATER_MS = START_WAIT_MS + 1_000


def world(**standings: Standing) -> tuple[Liveness, Elections]:
    liveness = Liveness()
    elections = Elections(liveness, lambda: True)
    elections.start(0)
    for name, each in standings.items():
        beat = replace(heartbeat(LATER_MS), standing=each)
        liveness.take(ReplicaKey(NAME, int(name[1:])), beat)
    return liveness, elections


def log(epoch: int, end: int = 0, set_epoch: int = 1) -> Standing:
    return Standing(epoch, end, 9, set_epoch)


def leads(epoch: int, *members: int, set_epoch: int = 1) -> Standing:
    return replace(log(epoch, 5, set_epoch), leads=epoch, members=frozenset(members))


def decided(elections: Elections) -> Verdict:
    verdict = elections.decide(OLD, LATER_MS).verdict
    assert verdict is not None
    return verdict


def elected_by(verdict: Verdict) -> tuple[int, int, int]:
    """Return the master, its epoch and that of its set, after the events are applied."""
    groups = ReplicaGroups()
    groups.apply([OLD.stored(), *verdict.events])
    assert isinstance(verdict.events[-1], MasterElected)
    group = only(groups)
    assert group.master_id is not None
    return group.master_id, group.master_epoch, group.set_epoch


def test_outdated_state_elects_the_present_master_outside_its_set_above_all_epochs() -> None:
    _, elections = world(r1=log(4), r2=log(7, 9), r3=leads(7, 1, 3, set_epoch=12))
    assert elected_by(decided(elections)) == (3, 8, 13)


def test_outdated_set_of_the_same_epoch_is_seen() -> None:
    _, elections = world(r1=leads(1, 1, 3, set_epoch=4), r2=log(1), r3=log(1))
    assert elections.is_outdated(OLD, LATER_MS)
    assert elected_by(decided(elections)) == (1, 2, 5)


def test_outdated_state_waits_for_all_heartbeats_after_a_start() -> None:
    _, elections = world(r1=log(7), r2=log(7), r3=leads(7, 3))
    decision = elections.decide(OLD, 100)
    assert (decision.verdict, decision.retry_ms) == (None, START_WAIT_MS)


@pytest.mark.parametrize(
    "standings",
    [
        {"r1": log(4), "r2": log(7)},  # no master
        {"r1": log(8), "r3": leads(7, 1, 3)},  # another one was elected after it
        {"r1": log(7), "r3": leads(7, 2, 3)},  # 2 may have been elected after it
        {"r1": log(7), "r3": leads(7, 3, 4)},  # 4 is not known here
    ],
    ids=["no master", "later election", "member away", "unknown member"],
)
def test_outdated_state_elects_no_other_replica_and_says_what_to_do(
    standings: dict[str, Standing],
) -> None:
    _, elections = world(**standings)
    verdict = decided(elections)
    assert code_of(verdict) is Code.CONTROLLER_ELECT_MASTER_FAILED
    assert "mqadmin electMaster" in verdict.remark
    for asked in (ElectionRequest(asker=1), ElectionRequest(asker=1, hand_over=True, epoch=1)):
        assert not elections.answer(OLD, asked, LATER_MS).events


def test_outdated_state_is_seen_by_a_replica_that_is_not_known() -> None:
    liveness, elections = world(r1=log(1), r2=log(1))
    assert not elections.is_outdated(OLD, LATER_MS)
    liveness.take_stranger(NAME, log(6), LATER_MS + 10)
    assert elections.is_outdated(OLD, LATER_MS)
    assert not decided(elections).events
    assert not elections.is_outdated(OLD, LATER_MS + 10)


def test_outdated_state_is_seen_by_an_epoch_list_that_is_newer_than_its_log() -> None:
    _, elections = world(r1=replace(log(1), known_epoch=6))
    assert elections.is_outdated(OLD, LATER_MS)


@pytest.mark.parametrize(("designated", "is_elected"), [(1, False), (2, True), (3, False)])
def test_outdated_state_follows_an_operator_to_the_newest_log(
    designated: int, is_elected: bool
) -> None:
    _, elections = world(r1=log(7, 8), r2=log(7, 9), r3=log(6, 99))
    verdict = elections.answer(OLD, ElectionRequest(designated=designated), LATER_MS)
    assert bool(verdict.events) is is_elected
    assert is_elected or "elect that one" in verdict.remark


@pytest.mark.parametrize(("designated", "is_elected"), [(1, False), (2, True), (3, False)])
def test_outdated_state_follows_an_operator_to_the_longest_log_whose_list_is_the_newest(
    designated: int, is_elected: bool
) -> None:
    """Replica 3 does not know of the last epoch: what it has may be cut."""
    knows = [replace(log(6, end), known_epoch=7) for end in (8, 9)]
    _, elections = world(r1=knows[0], r2=knows[1], r3=log(6, 99))
    verdict = elections.answer(OLD, ElectionRequest(designated=designated), LATER_MS)
    assert bool(verdict.events) is is_elected
