"""States of a replica, and the lease of a master."""

from rocketpy.broker.failover.lease import Lease
from rocketpy.broker.failover.node_state import Assignment, MasterInfo, NodeRole, NodeState


def test_replica_takes_the_role_that_the_controller_names() -> None:
    state = NodeState(2)
    assert state.current.role is NodeRole.WAITING
    assert state.observe(MasterInfo(1, "a:1", 3))
    due = Assignment(NodeRole.SLAVE, MasterInfo(1, "a:1", 3))
    assert state.due == due
    state.taken(due)
    assert state.observe(MasterInfo(2, "b:2", 4))
    assert state.due == Assignment(NodeRole.MASTER, MasterInfo(2, "b:2", 4))


def test_answers_of_lower_epochs_are_ignored() -> None:
    state = NodeState(2)
    state.observe(MasterInfo(2, "b:2", 4))
    assert not state.observe(MasterInfo(1, "a:1", 3))
    assert not state.observe(MasterInfo(2, "b:2", 4))
    assert state.known == MasterInfo(2, "b:2", 4)


def test_lost_master_leaves_the_role_until_another_epoch() -> None:
    state = NodeState(2)
    state.observe(MasterInfo(1, "a:1", 3))
    due = state.due
    assert due is not None
    state.taken(due)
    assert state.observe(MasterInfo(None, "", 3))
    assert state.due is None
    # A late answer of the same epoch does not bring the lost master back.
    assert not state.observe(MasterInfo(1, "a:1", 3))
    assert state.observe(MasterInfo(3, "c:3", 4))
    assert state.due == Assignment(NodeRole.SLAVE, MasterInfo(3, "c:3", 4))


def test_replica_ends_its_role_when_a_copy_of_it_is_elected() -> None:
    state = NodeState(2, "b:2")
    state.observe(MasterInfo(2, "b:2", 4))
    due = state.due
    assert due is not None
    state.taken(due)
    copy = MasterInfo(2, "copy:2", 5)
    state.observe(copy)
    assert state.due == Assignment(NodeRole.WAITING, copy)
    state.released()
    assert state.due is None
    state.observe(MasterInfo(2, "b:2", 6))
    assert state.due == Assignment(NodeRole.MASTER, MasterInfo(2, "b:2", 6))


def test_released_role_is_due_again() -> None:
    state = NodeState(2)
    state.observe(MasterInfo(1, "a:1", 3))
    due = state.due
    assert due is not None
    state.taken(due)
    state.released()
    assert state.due == due
    assert state.current.role is NodeRole.WAITING


def test_replica_that_is_elected_again_takes_the_new_epoch() -> None:
    state = NodeState(2)
    state.observe(MasterInfo(2, "b:2", 4))
    due = state.due
    assert due is not None
    state.taken(due)
    state.observe(MasterInfo(2, "b:2", 5))
    assert state.due == Assignment(NodeRole.MASTER, MasterInfo(2, "b:2", 5))


def test_lease_ends_a_tenth_before_the_controller_may_elect() -> None:
    lease = Lease()
    assert not lease.is_held(0)
    lease.renewed(1_000, 10_000)
    assert lease.is_held(9_999)
    assert not lease.is_held(10_000)


def test_lease_is_not_shortened_by_a_late_answer() -> None:
    lease = Lease()
    lease.renewed(5_000, 10_000)
    lease.renewed(1_000, 10_000)
    assert lease.is_held(13_999)
