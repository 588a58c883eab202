"""State of broker groups with a controller, from 28, 907, 1005 and 1006."""

import json

import pytest

from rocketpy.admin import Admin
from rocketpy.proto.bodies.controller import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from rocketpy.proto.bodies.route import BrokerData, ClusterInfo
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.wire.codes import RequestCode
from tests.unit.admin.fakes import FakeRemoting

ONE, TWO, GONE = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
FIRST, LEADER = "10.0.0.8:9878", "10.0.0.9:9878"


def set_up(remoting: FakeRemoting, members: set[int], minimum: int = 1, lease: str = "") -> None:
    """Make a group of which replica 2 is the master, and replica 3 does not run."""
    info = ClusterInfo(
        broker_addr_table={"a": BrokerData("c1", "a", {0: TWO, 1: ONE})},
        cluster_addr_table={"c1": {"a"}},
    )
    remoting.response(RequestCode.GET_BROKER_CLUSTER_INFO, body=info.encode())
    table = {"rocketpyControllers": f"{FIRST};{LEADER}", "rocketpyMinInSyncReplicas": str(minimum)}
    remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO, body=KVTable(table).encode(), at=ONE)
    if lease:
        table = {**table, "rocketpyLeaseMs": lease}
    remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO, body=KVTable(table).encode(), at=TWO)
    status = {"master": True, "masterCommitLogMaxOffset": 1_000}
    code = RequestCode.GET_BROKER_HA_STATUS
    remoting.response(code, body=json.dumps(status).encode(), at=TWO)
    slave = {"master": False, "haClientRuntimeInfo": {"maxOffset": 900, "state": "STREAMING"}}
    remoting.response(code, body=json.dumps(slave).encode(), at=ONE)
    leads = {"controllerLeaderAddress": LEADER, "isLeader": "false"}
    remoting.response(RequestCode.CONTROLLER_GET_METADATA_INFO, at=FIRST, ext=leads)
    leads = {"controllerLeaderAddress": LEADER, "isLeader": "true"}
    remoting.response(RequestCode.CONTROLLER_GET_METADATA_INFO, at=LEADER, ext=leads)
    replicas = [
        ReplicaIdentity("a", number, address, address != GONE)
        for number, address in ((1, ONE), (2, TWO), (3, GONE))
    ]
    group = ReplicasInfo(
        master_broker_id=2,
        master_address=TWO,
        master_epoch=7,
        sync_state_set_epoch=12,
        in_sync_replicas=[each for each in replicas if each.broker_id in members],
        not_in_sync_replicas=[each for each in replicas if each.broker_id not in members],
    )
    body = BrokerReplicasInfo(replicas_info_table={"a": group}).encode()
    remoting.response(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body, at=LEADER)


async def test_group_status_has_all_replicas_that_the_controller_knows(
    admin: Admin, remoting: FakeRemoting
) -> None:
    set_up(remoting, {1, 2}, lease="4200")
    [group] = await admin.group_statuses("c1")
    assert (group.broker, group.master, group.epoch, group.set_epoch) == ("a", TWO, 7, 12)
    assert (group.controller, group.lease_ms, group.min_in_sync) == (LEADER, 4_200, 1)
    one, two, gone = group.replicas
    assert (one.role, one.is_alive, one.is_member, one.lag_bytes) == ("SLAVE", True, True, 100)
    assert (two.role, two.state, two.lag_bytes) == ("MASTER", "SERVING", 0)
    assert (gone.broker_id, gone.is_alive, gone.is_member, gone.lag_bytes) == (3, False, False, -1)
    assert group.warnings == ["replica 3 is not alive"]


@pytest.mark.parametrize(
    ("members", "minimum", "words"),
    [
        ({2}, 1, "the sync-state set is [2]: no other replica can be elected"),
        ({1, 2}, 2, "the sync-state set [1, 2] is at minInSyncReplicas=2"),
        ({2}, 2, "the sync-state set [2] is below minInSyncReplicas=2: sends are refused"),
    ],
)
async def test_group_status_warns_of_a_set_at_its_minimum(
    members: set[int], minimum: int, words: str, admin: Admin, remoting: FakeRemoting
) -> None:
    set_up(remoting, members, minimum)
    [group] = await admin.group_statuses()
    assert any(each.startswith(words) for each in group.warnings), group.warnings


async def test_group_status_without_a_leading_controller_shows_what_brokers_say(
    admin: Admin, remoting: FakeRemoting
) -> None:
    set_up(remoting, {1, 2})
    leads = {"isLeader": "false"}
    for address in (FIRST, LEADER):
        remoting.response(RequestCode.CONTROLLER_GET_METADATA_INFO, at=address, ext=leads)
    [group] = await admin.group_statuses()
    assert (group.master, group.warnings) == (TWO, ["no controller leads"])
    assert [each.address for each in group.replicas] == [TWO, ONE]
    remoting.down = {FIRST, LEADER}
    [group] = await admin.group_statuses()
    assert group.warnings[0].startswith("no controller answers: ")


async def test_group_status_of_a_pair_without_a_controller_warns_of_a_missing_master(
    admin: Admin, remoting: FakeRemoting
) -> None:
    set_up(remoting, {1, 2})
    remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO, body=KVTable({}).encode(), at=ONE)
    remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO, body=KVTable({}).encode(), at=TWO)
    [group] = await admin.group_statuses()
    assert (group.master, group.epoch, group.warnings) == (TWO, 0, [])
    info = ClusterInfo(
        broker_addr_table={"a": BrokerData("c1", "a", {1: ONE})}, cluster_addr_table={"c1": {"a"}}
    )
    remoting.response(RequestCode.GET_BROKER_CLUSTER_INFO, body=info.encode())
    [group] = await admin.group_statuses()
    assert (group.master, group.warnings) == ("", ["no master is registered"])


async def test_group_status_warns_of_a_replica_that_only_the_controller_believes_alive(
    admin: Admin, remoting: FakeRemoting
) -> None:
    set_up(remoting, {1, 2})
    remoting.down = {TWO}
    [group] = await admin.group_statuses()
    assert "replica 2 does not answer" in group.warnings
    assert "replica 1 does not answer" not in group.warnings
