"""Requests that a slave refuses, by code."""

from typing import Any

import pytest

from rocketpy.broker.requests import build_requests
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand
from tests.unit.broker.fakes import FakeChannel, request
from tests.unit.broker.replication.slave_kit import parts

PULL = {
    "consumerGroup": "g", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
    "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
    "subscription": "*",
}  # fmt: skip


def answer(code: int, ext: dict[str, str] | None = None, **config: Any) -> RemotingCommand:
    routes = build_requests(parts("SLAVE", **config)).routes
    response = routes[code].processor(FakeChannel(), request(code, ext or {}))  # type: ignore[arg-type]
    assert isinstance(response, RemotingCommand)
    return response


@pytest.mark.parametrize(
    ("codes", "result", "words"),
    [
        ((10, 310, 320, 36, 324, 325), 2, "[REJECTREQUEST]system busy, start flow control"),
        ((11, 361), 2, "[REJECTREQUEST]"),
        ((37, 370, 323), 11, "send the request to the master"),
        ((17, 18, 215, 200, 225, 207, 401, 222, 314), 1, "the master, 127.0.0.1:10911"),
    ],
)
def test_slave_refuses_what_it_cannot_store(
    codes: tuple[int, ...], result: int, words: str
) -> None:
    for code in codes:
        response = answer(code)
        assert response.code == result, code
        assert words in (response.remark or ""), code


def test_slave_with_reads_enabled_serves_pulls() -> None:
    response = answer(int(RequestCode.PULL_MESSAGE), PULL, slave_read_enable=True)
    assert response.code == 17, "an unknown topic, not a refusal of the slave"


def test_slave_answers_queries_and_locks() -> None:
    built = parts("SLAVE")
    routes = build_requests(built).routes
    for code, expected in ((21, 0), (43, 0), (45, 0), (201, 0), (402, 0), (907, 0), (28, 0)):
        response = routes[code].processor(FakeChannel(), request(code, {}))  # type: ignore[arg-type]
        assert isinstance(response, RemotingCommand)
        assert response.code == expected, code


def test_slave_does_not_run_what_stores_messages() -> None:
    slave, master = parts("SLAVE"), parts()
    names = {each.name for each in (*slave.background_services, *slave.loop_services)}
    at_master = {each.name for each in (*master.background_services, *master.loop_services)}
    assert at_master - names == {
        "DelayDelivery", "PopCheckPointBuffer", "PopRevive", "Timer", "TimerCounts", "TimerFlush",
        "TransactionCheck", "TransactionOps",
    }  # fmt: skip
    assert names - at_master == {"SlaveCommits", "TimerFollower"}


def test_slave_names_role_and_state_in_its_runtime_information() -> None:
    table = KVTable.decode(answer(28).body).table
    assert table["rocketpyRole"] == "SLAVE"
    assert table["rocketpyReplicaState"] == "NO_MASTER"
    assert table["brokerActive"] == "false"


def test_acting_master_refuses_sends_so_that_producers_leave_and_serves_pulls() -> None:
    built = parts("SLAVE", enable_slave_acting_master=True, namesrv_addr="n:1")
    routes = build_requests(built).routes
    assert built.acting is not None
    acting = built.acting.slave
    assert acting is not None

    def code_and_remark(code: int, ext: dict[str, str] | None = None) -> tuple[int, str]:
        response = routes[code].processor(FakeChannel(), request(code, ext or {}))  # type: ignore[arg-type]
        assert isinstance(response, RemotingCommand)
        return response.code, response.remark or ""

    assert code_and_remark(310)[0] == 2
    assert code_and_remark(36)[0] == 2
    acting.members({1: "127.0.0.1:10921"})
    for code in (10, 310, 320, 324, 325):
        assert code_and_remark(code)[0] == 14, code
    assert code_and_remark(36) == (1, "no master available along with 127.0.0.1")
    assert code_and_remark(37)[0] == 11
    assert code_and_remark(11, PULL)[0] == 17, "served, and the topic is unknown"
    acting.members({0: "127.0.0.1:10911", 1: "127.0.0.1:10921"})
    assert code_and_remark(310)[0] == 2


def test_acting_master_refuses_changes_of_tables_until_its_master_is_back() -> None:
    built = parts("SLAVE", enable_slave_acting_master=True, namesrv_addr="n:1")
    routes = build_requests(built).routes
    assert built.acting is not None
    acting = built.acting.slave
    assert acting is not None

    def remark(code: int) -> str:
        response = routes[code].processor(FakeChannel(), request(code, {}))  # type: ignore[arg-type]
        assert isinstance(response, RemotingCommand)
        assert response.code == 1
        return response.remark or ""

    acting.members({1: "127.0.0.1:10921"})
    for code in (17, 200):
        assert "try again when it is back" in remark(code)
    acting.members({0: "127.0.0.1:10911", 1: "127.0.0.1:10921"})
    for code in (17, 200):
        assert "send the request to the master" in remark(code)
