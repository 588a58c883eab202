"""Role, state and lag of replicas, from 907."""

import json

from rocketpy.admin import Admin, ReplicaStatus
from rocketpy.cli.commands.cluster import problems_of
from rocketpy.proto.bodies.route import BrokerData, ClusterInfo
from rocketpy.proto.wire.codes import RequestCode
from tests.unit.admin.fakes import FakeRemoting

MASTER, SLAVE, OTHER = "10.0.0.1:10911", "10.0.0.9:10911", "10.0.0.2:10911"
CODE = RequestCode.GET_BROKER_HA_STATUS


def set_up(remoting: FakeRemoting, slave: dict[str, object], in_sync: bool) -> None:
    info = ClusterInfo(
        broker_addr_table={
            "broker-a": BrokerData("c1", "broker-a", {0: MASTER, 1: SLAVE}),
            "broker-b": BrokerData("c1", "broker-b", {2: OTHER}),
        },
        cluster_addr_table={"c1": {"broker-a", "broker-b"}},
    )
    remoting.response(RequestCode.GET_BROKER_CLUSTER_INFO, body=info.encode())
    master = {
        "master": True,
        "masterCommitLogMaxOffset": 1_000,
        "inSyncSlaveNums": int(in_sync),
        "haConnectionInfo": [
            {"addr": "10.0.0.9:40000", "inSync": in_sync, "brokerId": 1, "slaveAckOffset": 900}
        ],
    }
    remoting.response(CODE, body=json.dumps(master).encode(), at=MASTER)
    for address in (SLAVE, OTHER):
        body = {"master": False, "haClientRuntimeInfo": slave}
        remoting.response(CODE, body=json.dumps(body).encode(), at=address)


async def test_replicas_have_state_and_lag(admin: Admin, remoting: FakeRemoting) -> None:
    set_up(remoting, {"maxOffset": 900, "state": "STREAMING"}, in_sync=True)
    master, slave, lonely = await admin.replicas()
    assert (master.role, master.state, master.end) == ("MASTER", "SERVING", 1_000)
    assert (master.lag_bytes, master.in_sync, master.copies_in_sync) == (0, True, 2)
    assert (slave.broker_id, slave.role, slave.state) == (1, "SLAVE", "STREAMING")
    assert (slave.end, slave.lag_bytes, slave.in_sync) == (900, 100, True)
    assert (lonely.broker, lonely.lag_bytes, lonely.in_sync) == ("broker-b", -1, False)
    assert [each.broker for each in await admin.replicas("c2")] == []


async def test_replicas_of_apache_without_a_state_are_streaming(
    admin: Admin, remoting: FakeRemoting
) -> None:
    set_up(remoting, {"maxOffset": 1_000}, in_sync=True)
    master = {
        "master": True,
        "masterCommitLogMaxOffset": 1_000,
        "inSyncSlaveNums": 1,
        "haConnectionInfo": [{"addr": "/10.0.0.9:40000", "inSync": True}],
    }
    remoting.response(CODE, body=json.dumps(master).encode(), at=MASTER)
    _, slave, _ = await admin.replicas()
    assert (slave.state, slave.in_sync, slave.lag_bytes) == ("STREAMING", True, 0)


async def test_replicas_silent_broker_has_an_error(admin: Admin, remoting: FakeRemoting) -> None:
    set_up(remoting, {"maxOffset": 900, "state": "STREAMING"}, in_sync=True)
    remoting.down = {MASTER}
    master, slave, _ = await admin.replicas()
    assert master.error == f"cannot connect to {MASTER}"
    assert (slave.state, slave.lag_bytes, slave.in_sync) == ("STREAMING", -1, False)


def replica(broker_id: int, **changes: object) -> ReplicaStatus:
    values: dict[str, object] = {
        "cluster": "c", "broker": "b", "broker_id": broker_id, "address": "h:1",
        "role": "SLAVE" if broker_id else "MASTER",
        "state": "STREAMING" if broker_id else "SERVING",
        "lag_bytes": 0, "copies_in_sync": 2,
    }  # fmt: skip
    return ReplicaStatus(**{**values, **changes})  # type: ignore[arg-type]


def problems(*replicas: ReplicaStatus, copies: int = 1, lag: int | None = None) -> list[object]:
    return [row["problem"] for row in problems_of(list(replicas), copies, lag)]


def test_check_replication_names_each_problem() -> None:
    assert problems(replica(0), replica(1), copies=2, lag=0) == []
    assert problems(replica(0, copies_in_sync=1), copies=2) == ["1 of 2 copies in sync"]
    assert problems(replica(1)) == ["no master is registered"]
    assert problems(replica(0), replica(1, state="DIFFERENT_LOG", reason="at 5")) == [
        "DIFFERENT_LOG: at 5"
    ]
    assert problems(replica(0), replica(1, lag_bytes=9), lag=8) == ["lag 9 bytes, allowed 8"]
    assert problems(replica(0), replica(1, lag_bytes=-1), lag=8) == ["lag unknown, allowed 8"]
    assert problems(replica(0, error="no answer"), replica(1)) == ["no answer"]


def test_check_replication_names_a_master_whose_sends_fail() -> None:
    refuses = replica(0, copies_in_sync=1, copies_needed=2, send_refusal="not enough")
    assert problems(refuses, copies=2) == ["sends are refused: not enough (1 in sync)"]
    waits = replica(0, copies_in_sync=1, copies_needed=3)
    assert problems(waits) == ["sends are not confirmed: 1 of 3 copies in sync"]
    assert problems(replica(0, copies_needed=2), copies=2) == []
    assert problems(replica(0, copies_in_sync=1), copies=1) == [], "a broker of Apache"


def test_check_replication_names_a_master_that_is_not_ready_for_sends() -> None:
    reason = "sends_not_accepted_yet: startAcceptSendRequestTimeStamp is not reached yet"
    found = problems_of([replica(0), replica(1)], 1, None, {"h:1": reason})
    assert [row["problem"] for row in found] == [f"sends are refused: {reason}"]
    assert problems_of([replica(0), replica(1)], 1, None, {"h:2": reason}) == []


async def test_replicas_master_says_what_its_sends_wait_for(
    admin: Admin, remoting: FakeRemoting
) -> None:
    set_up(remoting, {"maxOffset": 900, "state": "STREAMING"}, in_sync=False)
    status = {"master": True, "neededReplicas": 2, "sendRefusal": "not enough"}
    remoting.response(CODE, body=json.dumps(status).encode(), at=MASTER)
    master, slave, _ = await admin.replicas()
    assert (master.copies_in_sync, master.copies_needed) == (1, 2)
    assert (master.send_refusal, slave.send_refusal) == ("not enough", "")
