"""Commands while one of two brokers does not respond."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketpy.testing.cluster import ClusterThread
from tests.integration.cli.conftest import Cli

FROZEN = "broker-b"


@pytest.fixture
def cluster(tmp_path: Path, quiet_servers: None) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path, brokers=2) as running:
        running.create_topic("t", queues=1)
        yield running
        running.freeze_broker(1, frozen=False)


@pytest.fixture
def cli(
    cluster: ClusterThread, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Cli:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.namesrv)
    return Cli(cluster.namesrv, capsys)


def test_commands_show_what_other_brokers_answer_and_wait_once(
    cli: Cli, cluster: ClusterThread
) -> None:
    for broker in ("broker-a", FROZEN):
        cli("send", "t", "x", "--queue", f"{broker}:0", "--key", "k")
    cli("consume", "t", "--group", "g", "--from", "earliest", "--max", "2")
    cluster.freeze_broker(1)
    assert [row["brokers"] for row in cli.json("topic", "list")] == [["broker-a", FROZEN]]
    for words in (
        ("topic", "peek", "t"),
        ("message", "find", "t", "--key", "k"),
        ("group", "list"),
        ("cluster", "stats"),
    ):
        began_s = time.monotonic()
        assert json.loads(cli(*words, "-o", "json", code=1))
        assert time.monotonic() - began_s < 20, (
            "one time-out of 5 s; the rest is for a slow machine"
        )
        [line] = cli.err.splitlines()
        assert line.startswith(f"rocketpy: {FROZEN}: "), line
    lines = cli("consume", "t", "--no-group", "--end", "--from", "earliest", "--body-only", code=1)
    assert lines == "x\n", cli.err
    assert cli.err.startswith(f"rocketpy: {FROZEN}: ")


def test_consume_without_group_fails_while_no_broker_responds(
    cli: Cli, cluster: ClusterThread
) -> None:
    cli("send", "t", "x")
    for number in range(2):
        cluster.freeze_broker(number)
    assert cli("consume", "t", "--no-group", "--end", code=1) == ""
    assert cli.err.count("rocketpy: broker-") == 2
    cluster.freeze_broker(0, frozen=False)
