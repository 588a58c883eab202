"""Elections happen when no wait applies."""

from dataclasses import replace

from rocketpy.controller.elections import START_WAIT_MS, ElectionRequest, Elections
from rocketpy.controller.events import MasterElected
from rocketpy.controller.liveness import LEASE_MS, Liveness, ReplicaKey
from rocketpy.controller.replica_groups import ReplicaGroup
from rocketpy.proto.wire.codes import ResponseCode
from tests.unit.controller.group_kit import (
    NAME,
    code_of,
    group_with,
    hear_another_group,
    heartbeat,
)

Code = ResponseCode
LATER_MS = START_WAIT_MS + 1_000


class World:
    """Elections with heartbeats that a test controls."""

    def __init__(self, *, unclean: bool = False) -> None:
        self.liveness = Liveness()
        self.elections = Elections(self.liveness, lambda: unclean)
        self.elections.start(0)
        self._heard_ms = 0

    def hear(self, number: int, at_ms: int, *, needs_all: bool | None = None, end: int = 0) -> None:
        hear_another_group(self.liveness, self._heard_ms, at_ms)
        self._heard_ms = at_ms
        self.hear_alone(number, at_ms, needs_all=needs_all, end=end)

    def hear_alone(
        self, number: int, at_ms: int, *, needs_all: bool | None = None, end: int = 0
    ) -> None:
        """Take a heartbeat after a silence of all replicas, if it comes late."""
        beat = heartbeat(at_ms, connection=f"c{number}", needs_all=needs_all, end=end)
        key = ReplicaKey(NAME, number)
        self.liveness.take(key, beat)
        if needs_all is False:
            self.liveness.grant_lease(key, at_ms)

    def lose(self, number: int) -> None:
        assert self.liveness.close(f"c{number}")

    def elected_by(self, group: ReplicaGroup, now_ms: int) -> int | None:
        verdict = self.elections.decide(group, now_ms).verdict
        if verdict is None or not verdict.events:
            return None
        (event,) = verdict.events
        assert isinstance(event, MasterElected)
        return event.replica_id


TWO = group_with([1, 2, 3], master=1, members=[2])


def test_decide_closed_connection_of_a_master_elects_at_once() -> None:
    world = World()
    world.hear(1, LATER_MS)
    world.hear(2, LATER_MS)
    assert world.elections.decide(TWO, LATER_MS).verdict is None
    world.lose(1)
    assert world.elected_by(TWO, LATER_MS) == 2


def test_decide_silent_master_is_replaced_after_its_timeout() -> None:
    world = World()
    world.hear(1, LATER_MS)
    world.hear(2, LATER_MS + 9_000)
    assert world.elected_by(TWO, LATER_MS + 9_999) is None
    assert world.elected_by(TWO, LATER_MS + 10_000) == 2


def test_decide_after_a_silence_of_all_waits_until_the_master_is_heard_again() -> None:
    world = World()
    world.hear(1, LATER_MS)
    world.hear(2, LATER_MS)
    world.lose(1)
    world.lose(2)
    again_ms = LATER_MS + 4_000
    world.hear_alone(2, again_ms)
    decision = world.elections.decide(TWO, again_ms)
    assert (decision.verdict, decision.retry_ms) == (None, again_ms + 10_000)
    assert not world.elections.answer(TWO, ElectionRequest(asker=2), again_ms).is_accepted
    world.hear_alone(1, again_ms + 50)
    assert world.elections.decide(TWO, again_ms + 50).retry_ms is None
    world.lose(1)
    assert world.elected_by(TWO, again_ms + 60) is None, "it was sent before the silence"
    world.hear_alone(1, again_ms + 1_000)
    world.hear_alone(2, again_ms + 1_000)
    world.lose(1)
    assert world.elected_by(TWO, again_ms + 1_010) == 2


def test_decide_after_a_silence_of_all_elects_when_the_master_stays_away() -> None:
    world = World()
    world.hear(1, LATER_MS)
    world.hear(2, LATER_MS)
    for at_ms in range(LATER_MS + 60_000, LATER_MS + 70_000, 1_000):
        world.hear_alone(2, at_ms)
        assert world.elected_by(TWO, at_ms) is None
    assert world.elected_by(TWO, LATER_MS + 70_000) == 2


def test_decide_after_a_silence_of_all_elects_at_once_without_a_master() -> None:
    world = World()
    world.hear(2, LATER_MS)
    world.hear_alone(2, LATER_MS + 20_000)
    assert world.elected_by(replace(TWO, master_id=None), LATER_MS + 20_000) == 2


def test_decide_new_group_waits_for_a_request() -> None:
    world = World()
    world.hear(1, LATER_MS)
    assert world.elections.decide(group_with([1]), LATER_MS).verdict is None


def test_decide_after_a_start_waits_for_heartbeats() -> None:
    world = World()
    world.hear(2, 100)
    decision = world.elections.decide(TWO, 200)
    assert decision.verdict is None
    assert decision.retry_ms == START_WAIT_MS
    world.hear(2, START_WAIT_MS)
    assert world.elected_by(TWO, START_WAIT_MS) == 2


def test_decide_after_a_start_with_the_whole_set_heard_does_not_wait() -> None:
    world = World()
    world.hear(1, 100)
    world.hear(2, 100)
    world.lose(1)
    assert world.elected_by(TWO, 200) == 2


def test_decide_lease_of_a_dead_master_is_waited_for() -> None:
    world = World()
    world.hear(1, LATER_MS, needs_all=False)
    world.hear(2, LATER_MS + 5_000)
    world.lose(1)
    decision = world.elections.decide(TWO, LATER_MS + 5_001)
    assert decision.verdict is None
    assert decision.retry_ms == LATER_MS + LEASE_MS
    assert world.elections.may_hold_lease(TWO, 1, LATER_MS + LEASE_MS - 1)
    assert not world.elections.may_hold_lease(TWO, 1, LATER_MS + LEASE_MS)
    assert not world.elections.may_hold_lease(TWO, 2, LATER_MS)
    assert world.elected_by(TWO, LATER_MS + LEASE_MS) == 2


def test_decide_lease_of_its_holder_does_not_hold_it_back() -> None:
    world = World()
    world.hear(1, LATER_MS, needs_all=False, end=9)
    world.hear(2, LATER_MS, end=8)
    lost = replace(TWO, master_id=None)  # it has registered again, or a late request says so
    world.liveness.forget(ReplicaKey(NAME, 1))
    decision = world.elections.decide(lost, LATER_MS + 1)
    assert decision.retry_ms == LATER_MS + LEASE_MS
    world.hear(1, LATER_MS + 2, end=9)
    assert world.elected_by(lost, LATER_MS + 2) == 1


def test_decide_without_candidates_keeps_the_master() -> None:
    world = World()
    world.hear(1, LATER_MS)
    world.hear(3, LATER_MS)
    world.lose(1)
    verdict = world.elections.decide(TWO, LATER_MS).verdict
    assert verdict is not None
    assert code_of(verdict) is Code.CONTROLLER_ELECT_MASTER_FAILED
    world.hear(1, LATER_MS + 1)
    assert world.elections.decide(TWO, LATER_MS + 1).verdict is None


def test_decide_unclean_waits_for_the_timeout_of_every_member() -> None:
    world = World(unclean=True)
    world.hear(1, LATER_MS)
    world.hear(3, LATER_MS + 9_000)
    world.lose(1)
    assert world.elected_by(TWO, LATER_MS + 9_999) is None
    assert world.elected_by(TWO, LATER_MS + 10_000) == 3


def answer(world: World, group: ReplicaGroup, now_ms: int, **request: object):
    return world.elections.answer(group, ElectionRequest(**request), now_ms)  # type: ignore[arg-type]


def test_answer_first_election_takes_the_asker() -> None:
    world, group = World(), group_with([1, 2])
    assert answer(world, group, 0, asker=2).events == [MasterElected(NAME, 2, 1, 1)]
    assert answer(world, group, 0, designated=1).events == [MasterElected(NAME, 1, 1, 1)]
    assert code_of(answer(world, group, 0, asker=3)) is Code.CONTROLLER_ELECT_MASTER_FAILED
    assert code_of(answer(world, group, 0)) is Code.CONTROLLER_ELECT_MASTER_FAILED


def test_answer_with_an_alive_master_names_it() -> None:
    world = World()
    world.hear(1, 0, needs_all=False)
    verdict = answer(world, TWO, 1, asker=2)
    assert code_of(verdict) is Code.CONTROLLER_MASTER_STILL_EXIST


def test_answer_designated_waits_for_the_lease_of_the_master() -> None:
    world = World()
    world.hear(1, LATER_MS, needs_all=False)
    world.hear(2, LATER_MS)
    verdict = answer(world, TWO, LATER_MS, designated=2)
    assert code_of(verdict) is Code.CONTROLLER_ELECT_MASTER_FAILED
    assert "lease" in verdict.remark


def test_answer_designated_without_a_lease_elects() -> None:
    world = World()
    world.hear(1, LATER_MS, needs_all=True)
    world.hear(2, LATER_MS)
    assert answer(world, TWO, LATER_MS, designated=2).events == [MasterElected(NAME, 2, 2, 2)]


def test_answer_during_the_start_wait_is_refused() -> None:
    world = World()
    world.hear(2, 0)
    assert code_of(answer(world, TWO, 1, asker=2)) is Code.CONTROLLER_ELECT_MASTER_FAILED


def test_answer_hand_over_elects_the_best_other_member() -> None:
    world = World()
    world.hear(1, 0, needs_all=False, end=9)
    assert code_of(answer(world, TWO, 1, asker=1, hand_over=True)) is (
        Code.CONTROLLER_ELECT_MASTER_FAILED
    )
    world.hear(2, 0, end=9)
    verdict = answer(world, TWO, 1, asker=1, hand_over=True)
    assert verdict.events == [MasterElected(NAME, 2, 2, 2)]


def test_answer_late_hand_over_is_refused() -> None:
    world = World()
    world.hear(1, 0)
    world.hear(2, 0)
    late = answer(world, TWO, 1, asker=1, hand_over=True, epoch=0)
    assert code_of(late) is Code.CONTROLLER_FENCED_MASTER_EPOCH
    assert answer(world, TWO, 1, asker=1, hand_over=True, epoch=1).is_accepted


def test_answer_hand_over_of_a_slave_is_refused() -> None:
    world = World()
    world.hear(1, 0)
    world.hear(2, 0)
    verdict = answer(world, TWO, 1, asker=2, hand_over=True)
    assert code_of(verdict) is Code.CONTROLLER_INVALID_MASTER
