"""Commands that ask several servers, of which one does not answer."""

import json
from typing import Any

import pytest

from rocketpy.cli.main import command
from rocketpy.proto.bodies.stats import ConsumeStats
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.terminal.error_exit import run_command
from tests.unit.admin.fakes import BROKERS, NAMESRVS, FakeRemoting

A, B = BROKERS["broker-a"], BROKERS["broker-b"]


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[Any, str, object]:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", [*words, "-o", "json"])
    out, err = capsys.readouterr()
    return json.loads(out), err, ended.value.code


@pytest.mark.parametrize(
    ("words", "rows"),
    [
        ("topic status t", 1),
        ("topic peek t --queue 0", 1),
        ("topic update t --perm r", 1),
        ("topic create t2", 1),
        ("topic delete t --yes", 1),
        ("group list", 1),
        ("group lag g", 1),
        ("group lag g --owners", 1),
        ("group members g", 1),
        ("group create new", 1),
        ("group update g --retries 3", 1),
        ("group delete g --yes", 1),
        ("group reset g t --to earliest --yes", 1),
        ("group reset g t --to earliest --dry-run", 1),
        ("group clone g g t --yes", 1),
        ("group clone g g t --dry-run", 1),
        ("group dlq g", 2),
        ("message find t --key k", 1),
        ("message trace U", 0),
        ("cluster list", 4),
        ("cluster brokers", 2),
        ("cluster stats", 1),
        (f"cluster ping -b {A} -b {B}", 1),
        ("spark lag", 1),
        ("broker-config get", 1),
        ("broker-config set --all fileReservedTime=3", 1),
    ],
)
def test_command_with_a_silent_broker_shows_rows_of_the_others_and_fails(
    words: str, rows: int, remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO, at="10.0.0.1:10921",
                      body=KVTable(table={"putTps": "1"}).encode())  # fmt: skip
    remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO, at="10.0.0.2:10921",
                      body=KVTable(table={"putTps": "1"}).encode())  # fmt: skip
    found, err, code = run(capsys, *words.split())
    assert code == 1
    name = B if "ping" in words else "broker-b"
    assert err.splitlines() == [f"rocketpy: {name}: cannot connect to {B}"]
    assert len(found) == rows + ("brokers" in words)


def test_topic_list_asks_name_servers_only(
    remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    remoting.down = {A, B}
    [row], err, code = run(capsys, "topic", "list")
    assert (row["topic"], row["queues"], row["brokers"]) == ("t", 4, ["broker-a", "broker-b"])
    assert (err, code) == ("", 0)


@pytest.mark.parametrize(
    ("words", "row"),
    [
        ("topic create new --order", {"broker": "broker-a", "result": "created"}),
        ("topic delete t --yes", {"broker": "broker-a", "result": "deleted"}),
        ("group delete g --yes", {"broker": "broker-a", "result": "deleted"}),
        ("cluster writable broker-a off", {"broker": "broker-a", "topics": 3}),
        ("cluster writable broker-a on", {"broker": "broker-a", "topics": 3}),
    ],
)
def test_change_with_a_silent_name_server_shows_brokers_and_fails(
    words: str,
    row: dict[str, object],
    remoting: FakeRemoting,
    capsys: pytest.CaptureFixture[str],
) -> None:
    remoting.down = {NAMESRVS[1]}
    remoting.response(RequestCode.GET_KV_CONFIG, ext={"value": "broker-a:4"})
    for change in (RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG):
        remoting.response(change)
    remoting.response(RequestCode.WIPE_WRITE_PERM_OF_BROKER, ext={"wipeTopicCount": "3"})
    remoting.response(RequestCode.ADD_WRITE_PERM_OF_BROKER, ext={"addTopicCount": "3"})
    found, err, code = run(capsys, *words.split())
    assert row.items() <= found[0].items()
    assert (err, code) == (f"rocketpy: ns2:9876: cannot connect to {NAMESRVS[1]}\n", 1)


@pytest.mark.parametrize("words", ["namesrv-config get", "namesrv-config set listenPort=1"])
def test_name_server_that_is_down_hides_no_other(
    words: str, remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    remoting.down = {NAMESRVS[1]}
    rows, err, code = run(capsys, *words.split())
    assert [row["namesrv"] for row in rows] == [NAMESRVS[0]]
    assert (err, code) == (f"rocketpy: ns2:9876: cannot connect to {NAMESRVS[1]}\n", 1)


def test_command_without_an_answer_names_every_server(
    remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    remoting.down = {A, B}
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", ["topic", "status", "t"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        f"rocketpy: broker-a: cannot connect to {A}",
        f"rocketpy: broker-b: cannot connect to {B}",
    ]


@pytest.mark.parametrize(
    "words",
    ["group clone g new t --yes", "group clone new g t --dry-run", "group update new --retries 1"],
)
def test_group_that_no_answering_broker_has_is_reported_for_each_broker(
    words: str, remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", words.split())
    assert ended.value.code == 1
    assert capsys.readouterr().err.splitlines() == [
        "rocketpy: broker-a: [26] group new does not exist",
        f"rocketpy: broker-b: cannot connect to {B}",
    ]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("topic status tt", "topic tt does not exist; did you mean t?"),
        ("topic route tt", "topic tt does not exist; did you mean t?"),
        ("group lag gg", "group gg does not exist; did you mean g?"),
        ("group update gg --retries 1", "group gg does not exist; did you mean g?"),
    ],
)
def test_unknown_name_gets_a_suggestion(
    words: str, sentence: str, remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    remoting.down = set()
    remoting.response(RequestCode.GET_ROUTEINFO_BY_TOPIC, 17, remark="No topic route info")
    for address in (A, B):
        remoting.response(RequestCode.GET_CONSUME_STATS, at=address, body=ConsumeStats().encode())
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", words.split())
    assert (capsys.readouterr().err, ended.value.code) == (f"rocketpy: {sentence}\n", 1)


def test_top_once_with_a_silent_broker_fails(
    remoting: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    found, err, code = run(capsys, "top", "--once")
    assert code == 1
    assert f"rocketpy: broker-b: cannot connect to {B}" in err.splitlines()
    assert [row["broker"] for row in found["brokers"]].count("broker-a") == 2
