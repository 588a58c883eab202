"""Mastership of a replica: order of waiting and asking, refusals, lease."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rocketpy.broker.failover.controller_client import ControllerClient, GroupInfo
from rocketpy.broker.failover.mastership import Mastership
from rocketpy.broker.failover.node_state import MasterInfo
from rocketpy.broker.replication.acknowledgements import ReplicaKey, ReplicaProgress
from rocketpy.broker.replication.ha_server import HaServer
from rocketpy.errors import ConnectError, RocketPyError
from rocketpy.proto.replication.pair_frames import DiskState
from rocketpy.proto.wire.codes import ROLE_CHANGE

MASTER = MasterInfo(1, "a:1", 4)


class FakeServer:
    """HA port with connected replicas, whose store shows how far it has acknowledged."""

    def __init__(self) -> None:
        self.confirmed_by: dict[int, int] = {}
        self.unproven: dict[int, ReplicaProgress] = {}
        self.full: set[int] = set()
        self.acknowledged_end = 100
        self.log = SimpleNamespace(end_phy_offset=100)
        self.acknowledgements = SimpleNamespace(confirmed_end=100)
        self.changes = 0

    @property
    def streaming(self) -> Sequence[Any]:
        return [
            SimpleNamespace(
                broker_id=number,
                stream=SimpleNamespace(
                    progress=self.unproven.get(number)
                    or SimpleNamespace(
                        confirmed=end,
                        counts=True,
                        state=DiskState.FULL if number in self.full else DiskState.WRITING,
                    )
                ),
            )
            for number, end in self.confirmed_by.items()
        ]

    def membership_changed(self) -> None:
        self.changes += 1


class FakeController:
    """Controller that stores what it is asked for, or fails."""

    def __init__(self) -> None:
        self.members, self.set_epoch = frozenset({1}), 5
        self.asked: list[frozenset[int]] = []
        self.failure: RocketPyError | None = None
        self.refuses = False
        self.stores_without_answer = False
        self.knows_fences = False
        self.ids = frozenset({1, 2})
        self.lists = 0

    async def replica_ids(self) -> frozenset[int]:
        self.lists += 1
        if self.failure is not None:
            raise self.failure
        return self.ids

    async def alter(
        self,
        _id: int,
        epoch: int,
        members: frozenset[int],
        set_epoch: int,
        *,
        fences: bool = False,
    ) -> GroupInfo | None:
        self.asked.append(members)
        if fences and self.knows_fences and set_epoch == self.set_epoch:
            self.set_epoch += 1
            return GroupInfo(MasterInfo(1, "", epoch), members, self.set_epoch)
        if self.stores_without_answer and set_epoch == self.set_epoch:
            self.members, self.set_epoch = members, self.set_epoch + 1
        if self.failure is not None:
            raise self.failure
        if self.refuses or set_epoch != self.set_epoch:
            return None
        self.members, self.set_epoch = members, self.set_epoch + 1
        return GroupInfo(MasterInfo(1, "", epoch), members, self.set_epoch)

    async def replica_info(self) -> GroupInfo:
        return GroupInfo(MASTER, self.members, self.set_epoch)


class Kit:
    def __init__(self, *, needs_all: bool = True, min_in_sync: int = 1) -> None:
        self.now_ms = 0
        self.server, self.controller = FakeServer(), FakeController()
        self.mastership = Mastership(
            1,
            GroupInfo(MASTER, frozenset({1}), 5),
            min_in_sync=lambda: min_in_sync,
            needs_all=needs_all,
            not_level_ms=15_000,
            now_ms=lambda: self.now_ms,
        )
        self.mastership.opened(100)

    def tick(self, passed_ms: int = 100) -> None:
        self.now_ms += passed_ms
        asyncio.run(
            self.mastership.tick(
                cast("HaServer", self.server), cast("ControllerClient", self.controller)
            )
        )


def test_replica_with_a_full_disk_leaves_the_set_and_joins_again_later() -> None:
    kit = Kit()
    kit.server.confirmed_by = {2: 100}
    kit.tick()
    assert kit.mastership.members == {1, 2}
    kit.server.full = {2}
    for _ in range(12):
        kit.tick()
    assert kit.mastership.members == {1}
    kit.server.full = set()
    kit.tick()
    assert kit.mastership.members == {1, 2}


def test_replica_is_proposed_once_it_has_all_acknowledged_messages() -> None:
    kit = Kit()
    kit.server.confirmed_by = {2: 100}
    # Messages were acknowledged while the master began to wait.
    kit.server.acknowledged_end = 150
    kit.tick()
    assert kit.controller.asked == []
    assert kit.mastership.needed() == frozenset({2})
    kit.server.confirmed_by = {2: 150}
    kit.tick()
    assert kit.controller.asked == [{1, 2}]
    assert (kit.mastership.members, kit.mastership.needed()) == (frozenset({1, 2}), frozenset({2}))


def test_replica_that_leaves_while_it_joins_is_not_waited_for() -> None:
    kit = Kit()
    kit.server.confirmed_by, kit.server.acknowledged_end = {2: 100}, 150
    kit.tick()
    kit.server.confirmed_by = {}
    kit.tick()
    assert kit.mastership.needed() == frozenset()
    assert kit.controller.asked == []


def test_set_request_without_answer_keeps_its_members_needed_and_is_repeated() -> None:
    kit = Kit()
    kit.server.confirmed_by = {2: 100}
    kit.controller.failure = ConnectError("away")
    kit.controller.stores_without_answer = True
    kit.tick()
    kit.server.confirmed_by = {}
    kit.tick()
    assert kit.mastership.needed() == frozenset({2})
    kit.controller.failure = None
    kit.tick()
    # The controller had stored it: the second request was refused, and the set read.
    assert kit.mastership.members == {1, 2}


def test_refused_request_is_given_up_unless_an_earlier_one_may_arrive() -> None:
    kit = Kit()
    kit.server.confirmed_by = {2: 100}
    kit.controller.refuses = True
    kit.tick()
    assert kit.mastership.needed() == frozenset()
    kit.controller.failure = ConnectError("away")
    kit.tick()
    kit.controller.failure = None
    kit.tick()
    assert kit.mastership.needed() == frozenset({2})


def test_sends_are_refused_below_the_least_set_and_clients_try_again_at_first() -> None:
    kit = Kit(min_in_sync=2)
    refusal = kit.mastership.send_refusal()
    assert refusal is not None
    assert refusal.startswith(ROLE_CHANGE)
    kit.now_ms = 10_000
    assert kit.mastership.send_refusal() == "in-sync replicas not enough"
    assert not kit.mastership.may_acknowledge(), "also not what was stored before"
    kit.server.confirmed_by = {2: 100}
    kit.tick()
    assert kit.mastership.send_refusal() is None
    assert kit.mastership.may_acknowledge()


def test_hand_over_refuses_sends_for_some_seconds() -> None:
    kit = Kit()
    assert kit.mastership.send_refusal() is None
    assert kit.mastership.hand_over()
    refusal = kit.mastership.send_refusal()
    assert refusal is not None
    assert refusal.startswith(ROLE_CHANGE)
    kit.now_ms = 3_000
    assert kit.mastership.send_refusal() is None


def test_hand_over_is_refused_where_copies_are_counted_and_final_at_the_end() -> None:
    kit = Kit(needs_all=False)
    kit.mastership.lease_renewed(0, 10_000)
    assert not kit.mastership.hand_over()
    assert kit.mastership.send_refusal() is None
    kit.mastership.end()
    kit.mastership.lease_renewed(1_000, 10_000)
    assert not kit.mastership.may_acknowledge()
    assert kit.mastership.send_refusal() is not None


@pytest.mark.parametrize("needs_all", [True, False])
def test_lease_is_needed_where_copies_are_counted(needs_all: bool) -> None:
    kit = Kit(needs_all=needs_all)
    assert kit.mastership.may_acknowledge() is needs_all
    kit.mastership.lease_renewed(0, 10_000)
    assert kit.mastership.may_acknowledge()
    kit.now_ms = 9_000
    assert kit.mastership.may_acknowledge() is needs_all
    assert (kit.mastership.send_refusal() is None) is needs_all


def test_request_that_may_still_arrive_is_fenced_by_a_new_epoch_of_the_stored_set() -> None:
    kit = Kit()
    kit.server.confirmed_by = {2: 100}
    kit.controller.failure = ConnectError("away")
    kit.tick()
    # The replica is gone for good, so that the controller refuses the set.
    kit.server.confirmed_by = {}
    kit.controller.failure = None
    kit.controller.refuses, kit.controller.knows_fences = True, True
    kit.tick()
    assert kit.mastership.needed() == frozenset()
    assert kit.controller.asked[-1] == {1}
    assert kit.controller.set_epoch == 6


def unproven(kit: Kit, number: int, *, is_learner: bool = False) -> ReplicaProgress:
    key = ("learner", number) if is_learner else ReplicaKey("autoswitch", number)
    found = ReplicaProgress(key, 100, 100, DiskState.WRITING, 0, counts=False)
    kit.server.confirmed_by[number] = 100
    kit.server.unproven[number] = found
    return found


def test_id_without_proof_counts_once_the_controller_lists_it() -> None:
    kit = Kit()
    found = unproven(kit, 2)
    kit.controller.failure = ConnectError("away")
    kit.tick(1_000)
    assert (found.counts, kit.mastership.needed()) == (False, frozenset())
    kit.controller.failure = None
    kit.tick()
    assert kit.controller.lists == 1  # asked once a second
    kit.tick(1_000)
    assert found.counts
    assert kit.controller.asked == [{1, 2}]
    kit.server.unproven.clear()
    again = unproven(kit, 2)
    kit.tick()
    assert (again.counts, kit.controller.lists) == (True, 2)


def test_id_of_an_unlisted_peer_or_learner_never_counts_and_blocks_no_replica() -> None:
    kit = Kit()
    learner, own, stranger = unproven(kit, 2, is_learner=True), unproven(kit, 1), unproven(kit, 77)
    kit.controller.ids = frozenset({1, 2, 3})
    kit.server.confirmed_by[3] = 100
    for _ in range(5):
        kit.tick(1_000)
    assert kit.controller.asked == [{1, 3}]
    assert kit.mastership.needed() == frozenset({3})
    assert not any(each.counts for each in (learner, own, stranger))
