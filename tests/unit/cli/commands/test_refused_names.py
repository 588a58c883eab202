"""Commands that are given a name, a key, a queue or an id that no server has."""

import json

import pytest

from rocketpy.cli.commands import cluster
from rocketpy.cli.main import command
from rocketpy.proto.bodies.stats import ConsumeStats, OffsetWrapper
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message_id import encode_message_id
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.terminal.error_exit import run_command
from tests.unit.admin.fakes import BROKERS, FakeRemoting

HERE = encode_message_id("10.0.0.1:10911", 7)
ELSEWHERE = encode_message_id("10.9.9.9:10911", 7)


@pytest.fixture
def answering(remoting: FakeRemoting) -> FakeRemoting:
    remoting.down = set()
    values = KVTable(table={"putTps": "1", "getTotalTps": "2"}).encode()
    remoting.response(RequestCode.GET_BROKER_RUNTIME_INFO, body=values)
    for address in BROKERS.values():
        remoting.response(
            RequestCode.GET_BROKER_CONFIG, at=address, body=b"logLevel=info\nbrokerName=x\n"
        )
        remoting.response(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            26,
            at=address,
            remark="Group gg does not exist",
        )
    remoting.response(
        RequestCode.VIEW_MESSAGE_BY_ID, 1, remark="can not find message by the offset, 7"
    )
    return remoting


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "group reset gg t --to earliest --yes",
            "group gg does not exist; did you mean g?",
        ),
        (
            "group reset gg t --to earliest --dry-run",
            "group gg does not exist; did you mean g?",
        ),
        ("group clone gg g t --yes", "group gg does not exist; did you mean g?"),
        ("cluster brokers --key putTpss", "unknown key putTpss; did you mean putTps?"),
        ("broker-config get logLevell", "unknown key logLevell; did you mean logLevel?"),
        ("namesrv-config get listenPrt", "unknown key listenPrt; did you mean listenPort?"),
        (
            "topic peek t --queue broker-z:0",
            "broker broker-z does not serve topic t; did you mean broker-b?",
        ),
        (
            "message find t --queue brokr-a:0 --offset 0",
            "broker brokr-a does not serve topic t; did you mean broker-a?",
        ),
        (
            "group reset g t --queue brokr-a:0 --to-offset 0 -y",
            "broker brokr-a does not serve topic t; did you mean broker-a?",
        ),
        (
            "topic update t --queues 9 --broker brokr-a",
            "broker brokr-a does not serve topic t; did you mean broker-a?",
        ),
        ("topic peek t --queue other:0", "broker other does not serve topic t"),
        ("topic peek t --queue broker-a:9", "topic t has no readable queue 9 on broker broker-a"),
        ("topic peek t --queue 9", "topic t has no readable queue 9"),
    ],
)
def test_command_with_unknown_name_fails_with_one_sentence(
    words: str, sentence: str, answering: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", words.split())
    out, err = capsys.readouterr()
    assert (out, err, ended.value.code) == ("", f"rocketpy: {sentence}\n", 1)


def test_key_of_one_broker_only_is_known(
    answering: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    values = KVTable(table={"only": "1"}).encode()
    answering.response(RequestCode.GET_BROKER_RUNTIME_INFO, at=BROKERS["broker-b"], body=values)
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", ["cluster", "brokers", "--key", "only", "-o", "json"])
    assert ended.value.code == 0
    assert [row["broker"] for row in json.loads(capsys.readouterr().out)] == ["broker-b"]


@pytest.mark.parametrize(
    ("message_id", "words"),
    [
        (HERE, "can not find message by the offset"),
        (ELSEWHERE, "not a broker of this cluster; a producer's id (msg_id) needs --topic"),
    ],
)
def test_get_of_absent_message_prints_empty_array_and_fails(
    message_id: str,
    words: str,
    answering: FakeRemoting,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", ["message", "get", message_id, "-o", "json"])
    out, err = capsys.readouterr()
    assert (json.loads(out), ended.value.code) == ([], 1)
    assert words in err


@pytest.mark.parametrize("words", ["topic list", "cluster list"])
def test_cluster_that_does_not_exist_fails_with_a_similar_name(
    words: str, answering: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", [*words.split(), "--cluster", "c11"])
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert error == ("rocketpy: cluster c11 does not exist; did you mean c1?\n")


@pytest.mark.parametrize(
    "words",
    [
        "send t x --timeout nan", "send t x --timeout inf", "send t x --delay nan",
        "consume t --timeout nan", "top --interval nan", "cluster ping --timeout nan",
        "group dlq g --requeue --all --rate nan", "bench consume --timeout nan",
    ],
)  # fmt: skip
def test_number_that_is_not_finite_is_wrong_usage(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", words.split())
    assert ended.value.code == 2
    assert "is not a number in the range" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["table", "json"])
def test_lag_of_a_group_beyond_its_queue_is_a_warning(
    output: str, answering: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    table = {MessageQueue("t", "broker-a", 0): OffsetWrapper(broker_offset=3, consumer_offset=10)}
    body = ConsumeStats(offset_table=table).encode()
    answering.response(RequestCode.GET_CONSUME_STATS, at=BROKERS["broker-a"], body=body)
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", ["group", "lag", "g", "-o", output])
    out, err = capsys.readouterr()
    assert ended.value.code == 0
    assert err.startswith("warning: t queue 0 on broker-a ends at 3, before the group's offset 10")
    if output == "json":
        assert [row["lag"] for row in json.loads(out)] == [0, 4]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("send bad,topic x", "'bad,topic' is not the name of a topic"),
        ("topic status bad,topic", "'bad,topic' is not the name of a topic"),
        ("group create bad,group", "'bad,group' is not the name of a group"),
        ("message get abc", "'abc' is not a message id"),
        ("cluster ping -b nowhere", "'nowhere' is not HOST:PORT"),
    ],
)
def test_name_that_no_server_can_have_is_wrong_usage(
    words: str, sentence: str, answering: FakeRemoting, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", words.split())
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err.splitlines()[-1]
    assert answering.asked == []


def test_search_of_a_time_span_that_ends_before_it_begins_is_wrong_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = "message find t --key k --from 2026-01-02 --until 2026-01-01"
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", words.split())
    assert ended.value.code == 2
    assert "--from is later than --until" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["topic peek t --offset", "message find t --queue a:0 --offset",
              "group reset g t --queue a:0 --to-offset"],
)  # fmt: skip
def test_offset_beyond_64_bits_is_a_usage_error(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", [*words.split(), "9223372036854775808"])
    assert ended.value.code == 2
    assert "9223372036854775808 does not fit in 64 bits" in capsys.readouterr().err


def test_check_of_replication_without_brokers_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cluster, "ask", lambda *_: ([], []))
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", ["check", "replication", "-o", "json"])
    assert ended.value.code == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["problem"] == "no broker is registered"
