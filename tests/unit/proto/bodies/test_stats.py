"""Replication status (907) as Apache's tools read it."""

from rocketpy.proto.bodies.stats import HAClientInfo, HAConnectionInfo, HARuntimeInfo
from rocketpy.proto.wire.fastjson import loads


def test_master_status_has_the_keys_of_apache_and_ours() -> None:
    connection = HAConnectionInfo(addr="10.0.0.2:1", slave_ack_offset=5, in_sync=True, broker_id=1)
    status = HARuntimeInfo(
        master=True,
        master_commit_log_max_offset=7,
        in_sync_slave_nums=1,
        ha_connection_info=[connection.to_json()],
        pair_protocol=1,
    )

    found = loads(status.encode())

    assert found["masterCommitLogMaxOffset"] == 7
    assert found["inSyncSlaveNums"] == 1
    (row,) = found["haConnectionInfo"]
    assert row == {
        "addr": "10.0.0.2:1",
        "brokerId": 1,
        "diff": 0,
        "inSync": True,
        "slaveAckOffset": 5,
        "transferFromWhere": 0,
        "transferredByteInSecond": 0,
    }
    assert HAConnectionInfo.from_json(row) == connection


def test_status_of_apache_is_read_without_our_fields() -> None:
    body = (
        b'{"haClientRuntimeInfo":{"activated":true,"lastReadTimestamp":3,"masterAddr":"a:1"},'
        b'"haConnectionInfo":[],"inSyncSlaveNums":0,"master":false,"masterCommitLogMaxOffset":0}'
    )

    status = HARuntimeInfo.decode(body)
    client = HAClientInfo.from_json(status.ha_client_runtime_info)

    assert status.pair_protocol is None
    assert (client.is_activated, client.master_addr, client.last_read_timestamp) == (True, "a:1", 3)
    assert client.state is None
