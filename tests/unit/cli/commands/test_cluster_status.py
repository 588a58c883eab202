"""`rocketpy cluster status`: rows, warnings and exit code."""

import pytest

from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.wire.codes import RequestCode
from tests.unit.admin.fakes import FakeRemoting
from tests.unit.admin.test_failover import set_up
from tests.unit.cli.commands.test_silent_servers import run


def test_cluster_status_prints_warnings_and_ends_with_one(
    remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    remoting.down = set()
    set_up(remoting, {1, 2})
    rows, err, code = run(capsys, "cluster", "status")
    assert [(row["id"], row["in_set"], row["epoch"]) for row in rows] == [
        (1, True, 7),
        (2, True, 7),
        (3, False, 7),
    ]
    assert (err, code) == ("warning: a: replica 3 is not alive\n", 1)


def test_cluster_status_warns_of_a_broker_without_a_controller_that_does_not_answer(
    remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    for address in ("10.0.0.1:10911", "10.0.0.1:10921", "10.0.0.2:10921"):
        body = b'{"master":true}' if address.endswith("10911") else b'{"master":false}'
        remoting.response(RequestCode.GET_BROKER_HA_STATUS, at=address, body=body)
        table = KVTable(table={}).encode()
        remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO, at=address, body=table)
    rows, err, code = run(capsys, "cluster", "status")
    assert [(row["broker"], row["id"], row["alive"]) for row in rows] == [
        ("broker-a", 0, True),
        ("broker-a", 1, True),
        ("broker-b", 0, False),
        ("broker-b", 1, True),
    ]
    assert (err, code) == ("warning: broker-b: replica 0 does not answer\n", 1)
