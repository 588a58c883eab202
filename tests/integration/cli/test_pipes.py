"""Commands in pipes and under signals, as separate processes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rocketpy.admin
from rocketpy.sync import connect
from rocketpy.testing.cluster import ClusterThread

WAIT_S = 60.0
BOTH: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path) as running:
        running.create_topic("t", queues=1)
        yield running


def start(cluster: ClusterThread, *arguments: str, **pipes: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "rocketpy", *arguments, "-n", cluster.namesrv],
        stderr=subprocess.PIPE,
        **pipes,
    )


def lag(cluster: ClusterThread, group: str) -> int:
    async def ask() -> int:
        async with rocketpy.admin.connect(cluster.namesrv) as admin:
            return (await admin.group_lag(group, "t")).lag

    return cluster.run(ask())


def fill(cluster: ClusterThread, count: int) -> None:
    with connect(cluster.namesrv) as client:
        producer = client.producer()
        for number in range(count):
            producer.send("t", b"line %d" % number)


def stored(cluster: ClusterThread, count: int) -> bool:
    deadline = time.monotonic() + WAIT_S
    while cluster.message_count("t") < count and time.monotonic() < deadline:
        time.sleep(0.05)
    return cluster.message_count("t") == count


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_lines_stopped_by_a_signal_are_sent_and_counted(
    cluster: ClusterThread, number: signal.Signals
) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup
    try:
        process = start(cluster, "send", "t", "--lines", **BOTH)
    finally:
        signal.signal(signal.SIGHUP, before)
    with process:
        assert process.stdin is not None
        try:
            process.stdin.write(b"a\nb\nhalf of a line")
            process.stdin.flush()
            assert stored(cluster, 2)
            process.send_signal(number)
            assert process.wait(WAIT_S) == 1  # before the input is closed
        finally:
            process.kill()
        out, err = process.communicate()
    assert out.count(b"SEND_OK") == 2
    assert err == b"rocketpy: stopped before the end of the input\n"
    assert cluster.message_count("t") == 2


def test_lines_of_a_pipe_are_sent_as_they_come(cluster: ClusterThread) -> None:
    with start(
        cluster, "send", "t", "--lines", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as it:
        assert it.stdin is not None
        for number in range(3):
            it.stdin.write(b"line %d\n\n" % number)
            it.stdin.flush()
            assert stored(cluster, number + 1), "while the pipe is open"
        out, err = it.communicate(timeout=WAIT_S)
    assert it.returncode == 0
    assert out.count(b"SEND_OK") == 3
    assert b"skipped 3 lines: empty" in err


def test_send_failure_ends_the_command_with_an_open_pipe(cluster: ClusterThread) -> None:
    long = "x" * (5 * 1024 * 1024)
    with start(
        cluster, "send", "t", "--lines", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as it:
        assert it.stdin is not None
        it.stdin.write(b"fine\n" + long.encode() + b"\n")
        it.stdin.flush()
        assert it.wait(WAIT_S) == 1
        assert it.stderr is not None
        assert b"exceeds the limit" in it.stderr.read()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_consume_signal_stores_offsets_and_exits_with_0(
    cluster: ClusterThread, number: signal.Signals
) -> None:
    fill(cluster, 3)
    consume = ("consume", "t", "--group", "g", "--from", "earliest", "--body-only")
    with start(cluster, *consume, stdout=subprocess.PIPE) as it:
        assert it.stdout is not None
        assert [it.stdout.readline() for _ in range(3)] == [b"line 0\n", b"line 1\n", b"line 2\n"]
        it.send_signal(number)
        assert it.wait(WAIT_S) == 0
    assert lag(cluster, "g") == 0


def test_consume_does_not_commit_lines_that_the_reader_left(cluster: ClusterThread) -> None:
    fill(cluster, 10)
    consume = ("consume", "t", "--group", "g", "--from", "earliest", "--body-only")
    with start(cluster, *consume, stdout=subprocess.PIPE) as it:
        head = subprocess.run(
            ["head", "-2"], stdin=it.stdout, capture_output=True, timeout=WAIT_S, check=True
        )
        assert it.stdout is not None
        it.stdout.close()
        assert it.wait(WAIT_S) == 0
        assert it.stderr is not None
        assert it.stderr.read() == b""
    assert head.stdout == b"line 0\nline 1\n"
    assert lag(cluster, "g") == 8


def test_top_shows_page_after_page_until_a_signal_comes(cluster: ClusterThread) -> None:
    fill(cluster, 3)
    top = ("top", "--interval", "0.1", "-o", "json")
    with start(cluster, *top, stdout=subprocess.PIPE) as it:
        assert it.stdout is not None
        first, second = (json.loads(it.stdout.readline()) for _ in range(2))
        fill(cluster, 2)
        while (page := json.loads(it.stdout.readline()))["topics"][0]["messages"] < 5:
            pass
        it.send_signal(signal.SIGTERM)
        assert it.wait(WAIT_S) == 0
    assert [row["messages"] for row in first["topics"] + second["topics"]] == [3, 3]
    assert second["topics"][0]["in_per_s"] == 0.0
    assert [row["broker"] for row in page["brokers"]] == ["broker-a"]


def test_consume_ends_without_a_message_when_its_reader_is_gone(cluster: ClusterThread) -> None:
    fill(cluster, 2)
    consume = ("consume", "t", "--group", "g", "--from", "earliest", "--body-only")
    with start(cluster, *consume, stdout=subprocess.PIPE) as it:
        assert it.stdout is not None
        assert [it.stdout.readline() for _ in range(2)] == [b"line 0\n", b"line 1\n"]
        it.stdout.close()
        assert it.wait(WAIT_S) == 0
        assert it.stderr is not None
        assert it.stderr.read() == b""
    assert lag(cluster, "g") == 0


@pytest.mark.parametrize(
    "words", ["top --interval 3600", "top --interval 3600 -o json", "spark lag --every 3600"]
)
def test_repeated_output_ends_when_its_reader_is_gone(cluster: ClusterThread, words: str) -> None:
    fill(cluster, 2)
    with connect(cluster.namesrv, group="g") as client, client.consumer("t") as consumer:
        consumer.start()
    with start(cluster, *words.split(), stdout=subprocess.PIPE) as it:
        assert it.stdout is not None
        assert it.stdout.readline()
        it.stdout.close()
        assert it.wait(WAIT_S) == 0


@pytest.mark.parametrize("words", ["topic list --all", "topic peek t", "group list -o json"])
def test_closed_reader_of_a_list_is_success(cluster: ClusterThread, words: str) -> None:
    fill(cluster, 1)
    reader, writer = os.pipe()
    os.close(reader)
    with start(cluster, *words.split(), stdout=writer) as it:
        os.close(writer)
        _, err = it.communicate(timeout=WAIT_S)
    assert (it.returncode, err) == (0, b"")


def test_output_in_another_encoding_is_escaped(cluster: ClusterThread) -> None:
    with connect(cluster.namesrv) as client:
        client.producer().send("t", "zoë ✓", keys="schlüssel✓")
    latin = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    line = "zoë \\u2713".encode("latin-1")
    consume = ["consume", "t", "--no-group", "--end", "--from", "earliest"]
    for words, expected in (
        (["topic", "peek", "t"], line),
        (consume, line),
        ([*consume, "--format", "{body} {keys}"], line),
        (["topic", "peek", "t", "-o", "json"], "zoë ✓".encode()),
        (["message", "find", "t", "--key", "✗✓"], b"has no message with the key \\u2717\\u2713"),
    ):
        with start(cluster, *words, stdout=subprocess.PIPE, env=latin) as it:
            out, err = it.communicate(timeout=WAIT_S)
        assert expected in out + err, words
        assert b"Traceback" not in err


def test_bytes_of_the_command_line_are_sent_or_refused(cluster: ClusterThread) -> None:
    none = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL}

    def send(*words: bytes, **pipes: Any) -> tuple[int, bytes]:
        with subprocess.Popen(
            [sys.executable, "-m", "rocketpy", "send", "-n", cluster.namesrv, *words],
            stderr=subprocess.PIPE,
            **{**none, **pipes},
        ) as it:
            _, err = it.communicate(timeout=WAIT_S)
        assert b"Traceback" not in err
        return it.returncode, err

    assert send(b"t", b"\xff\x80") == (0, b"")
    for wrong in ([b"--tag", b"\xff"], [b"--key", b"\xff"], [b"--header", b"a=\xff"]):
        code, err = send(b"t", b"x", *wrong)
        assert code == 2
        assert b"is not text" in err
    assert send(b"\xff", b"x")[0] == 2
    assert send(b"t", b"")[0] == 2
    code, err = send(b"t", preexec_fn=lambda: os.close(0))
    assert code == 2
    assert err.splitlines()[-1].startswith(b"rocketpy: ")
    with connect(cluster.namesrv) as client:
        with client.pop_consumer("t", group="g", start="earliest") as consumer:
            assert next(iter(consumer)).body == b"\xff\x80"


@pytest.mark.parametrize(
    "words", ["topic list", "group list", "send t x", "message find t --key k"]
)
def test_address_of_a_broker_for_a_name_server_is_one_sentence(
    cluster: ClusterThread, words: str
) -> None:
    address = cluster.brokers[0].address
    done = subprocess.run(
        [sys.executable, "-m", "rocketpy", *words.split(), "-n", address],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    [line] = done.stderr.splitlines()
    assert line.startswith("rocketpy: ")
    assert f"{address} is no name server; is it a broker's address?" in line
    assert (done.returncode, done.stdout) == (1, "")


def test_consume_reads_several_topics(cluster: ClusterThread) -> None:
    cluster.create_topic("u", queues=1)
    with connect(cluster.namesrv) as client:
        for topic in ("t", "u"):
            client.producer().send(topic, topic)
    for options in (["--no-group", "--end"], ["--group", "g", "--max", "2"]):
        words = ("consume", "t", "u", *options, "--from", "earliest")
        with start(cluster, *words, stdout=subprocess.PIPE) as it:
            out, _ = it.communicate(timeout=WAIT_S)
        assert sorted(out.split()) == [b"t", b"t@broker-a:0+0", b"u", b"u@broker-a:0+0"]


def test_send_names_a_topic_that_it_creates(cluster: ClusterThread) -> None:
    for expected in (b"rocketpy: created topic orders\n", b""):
        with start(cluster, "send", "orders", "x", stdout=subprocess.PIPE) as it:
            assert it.communicate(timeout=WAIT_S)[1] == expected
    with start(cluster, "send", "ordesr", "x", stdout=subprocess.PIPE) as it:
        _, err = it.communicate(timeout=WAIT_S)
    assert err == b"rocketpy: created topic ordesr; did you mean orders?\n"
