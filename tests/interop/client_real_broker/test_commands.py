"""The command line against Apache's name server and broker."""

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

import rocketpy
from rocketpy.sync import ReceivedMessage, connect

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

WAIT_S = 120


class Commands:
    """Runs `rocketpy` as a separate process."""

    def __init__(self, namesrv: str) -> None:
        self.namesrv = namesrv
        self.err = ""

    def __call__(self, *arguments: str, given: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "rocketpy", "-n", self.namesrv, *arguments],
            input=given, capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
        self.err = done.stderr
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@pytest.fixture
def run(namesrv: str) -> Commands:
    return Commands(namesrv)


def test_topics_lines_and_following(run: Commands) -> None:
    create = ("topic", "create", "cliLines", "--queues")
    run(*create, "2")
    run(*create, "4", code=1)
    assert "topic cliLines exists on" in run.err
    run(*create, "1", "--update")
    out = run(
        "send", "cliLines", "--lines", "-T", "|", "-K", ":",
        given="paid|o1:first\n\nopen|o2:a:b\n",
    )  # fmt: skip
    assert out.count("SEND_OK") == 2
    assert "skipped 1 lines: empty" in run.err
    follow = ("consume", "cliLines", "--no-group", "--end", "--from", "earliest")
    followed = run(*follow, "--format", "{tag} {keys} {body}").splitlines()
    assert sorted(followed) == ["open o2 a:b", "paid o1 first"]
    consume = ("consume", "cliLines", "--from", "earliest", "--max", "1", "--body-only")
    assert run(*consume, "--sql", "TAGS = 'open'") == "a:b\n"


def test_lines_with_an_order_key_keep_their_order(run: Commands) -> None:
    run("topic", "create", "cliOrder", "--queues", "2")
    lines = [f"line {n}" for n in range(300)]
    run("send", "cliOrder", "--lines", "--order-key", "o", given="\n".join(lines))
    follow = ("consume", "cliOrder", "--no-group", "--end", "--from", "earliest", "--body-only")
    assert run(*follow).splitlines() == lines


def test_groups_are_moved_when_that_is_confirmed(run: Commands) -> None:
    run("topic", "create", "cliMoved", "--queues", "1")
    for body in ("a", "b", "c"):
        run("send", "cliMoved", body)
    consume = ("consume", "cliMoved", "--group", "cliG", "--body-only")
    assert run(*consume, "--from", "earliest", "--max", "3") == "a\nb\nc\n"
    reset = ("group", "reset", "cliG", "cliMoved", "--to", "earliest")
    run(*reset, given="n\n", code=1)
    run(*reset, "--yes")
    assert run(*consume, "--max", "3") == "a\nb\nc\n"
    [row] = [
        each for each in run.json("group", "lag", "cliG") if each["topic"] == "cliMoved"
    ]  # its retry topic has a row, too
    assert row["lag"] == 0


def test_signal_stores_the_offsets(run: Commands) -> None:
    run("topic", "create", "cliSignal", "--queues", "1")
    run("send", "cliSignal", "a")
    with subprocess.Popen(
        [
            sys.executable, "-m", "rocketpy", "-n", run.namesrv, "consume", "cliSignal",
            "--group", "cliS", "--from", "earliest", "--body-only",
        ],
        stdout=subprocess.PIPE,
    ) as it:  # fmt: skip
        assert it.stdout is not None
        assert it.stdout.readline() == b"a\n"
        it.send_signal(signal.SIGTERM)
        assert it.wait(WAIT_S) == 0
    rows = [each for each in run.json("group", "lag", "cliS") if each["topic"] == "cliSignal"]
    assert [(each["consumer_offset"], each["lag"]) for each in rows] == [(1, 0)]


def test_condition_that_the_broker_refuses_is_one_sentence(run: Commands) -> None:
    run("topic", "create", "cliSql", "--queues", "1")
    run("broker-config", "set", "--all", "enablePropertyFilter=false")
    try:
        consume = ("consume", "cliSql", "--sql", "a > 1", "--group", "cliSql")
        run(*consume, "--timeout", "30", code=1)
        said = run.err
    finally:
        run("broker-config", "set", "--all", "enablePropertyFilter=true")
    assert said.startswith("rocketpy: [1] The broker does not support consumer to filter")
    assert said.count("\n") == 1


def test_top_and_bench(run: Commands) -> None:
    [sent] = run.json("bench", "send", "--topic", "cliBench", "--count", "200", "--clients", "2")
    assert (sent["messages"], sent["failed"], sent["clients"]) == (200, 0, 2)
    assert sent["p50_ms"] <= sent["p99_ms"]
    page = json.loads(run("top", "--once", "-o", "json"))
    assert "cliBench" in {row["topic"] for row in page["topics"]}
    assert page["brokers"]


def test_configuration_of_a_broker(run: Commands) -> None:
    run("broker-config", "set", "--all", "flushDelayOffsetInterval=9000")
    [row] = run.json("broker-config", "get", "flushDelayOffsetInterval")
    assert row["value"] == "9000"


def test_dead_letters_are_requeued_once(run: Commands, namesrv: str) -> None:
    run("topic", "create", "cliDead", "--queues", "1")

    def refuse(message: ReceivedMessage) -> None:
        raise rocketpy.ToDLQ("no such shop")

    with connect(namesrv) as client:
        client.producer().send("cliDead", b"one", tag="paid", keys="k1", headers={"shop": "west"})
        with client.consumer("cliDead", group="cliDead", start="earliest", handler=refuse):
            deadline = time.monotonic() + WAIT_S
            while "%DLQ%cliDead" not in run("topic", "list", "--all"):
                assert time.monotonic() < deadline
    requeue = ("group", "dlq", "cliDead", "--requeue", "--all", "--yes")
    while not (rows := run.json(*requeue)):
        assert time.monotonic() < deadline
    assert [row["result"] for row in rows] == ["requeued"]
    assert [row["result"] for row in run.json(*requeue)] == ["requeued before"]
    first, copy = run.json("topic", "peek", "cliDead")
    assert (copy["body"], copy["tag"], copy["keys"]) == ("one", "paid", ["k1"])
    assert (copy["msg_id"], copy["properties"]["shop"]) == (first["msg_id"], "west")
    assert copy["reconsume_times"] == 0
