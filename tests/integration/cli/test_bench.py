"""`rocketpy bench` against a cluster: every mode, several clients, figures and pages."""

from pathlib import Path

import pytest

from rocketpy.testing.cluster import ClusterThread
from tests.integration.cli.conftest import Cli


def stored(cluster: ClusterThread, cli: Cli, topic: str) -> int:
    return sum(row["max_offset"] for row in cli.json("topic", "status", topic))


@pytest.mark.parametrize(
    ("mode", "options", "warming"),
    [
        ("async", ["--in-flight", "32"], 1),
        ("sync", ["--in-flight", "3"], 1),
        ("batch", ["--batch", "7", "--clients", "2"], 2),
        ("async", ["--clients", "3"], 3),
    ],
)
def test_every_mode_sends_exactly_so_many(
    cli: Cli, rocketpy_cluster: ClusterThread, mode: str, options: list[str], warming: int
) -> None:
    arguments = ["--topic", "b", "--count", "300", "--size", "10", "--mode", mode, *options]
    [sent] = cli.json("bench", "send", *arguments)
    assert (sent["mode"], sent["messages"], sent["failed"]) == (mode, 300, 0)
    assert sent["size_bytes"] == 10
    assert "300 of 300" in cli.err
    assert 0 < sent["p50_ms"] <= sent["p90_ms"] <= sent["p99_ms"] <= sent["p999_ms"]
    assert sent["p999_ms"] <= sent["max_ms"]
    assert stored(rocketpy_cluster, cli, "b") == 300 + warming, "each client sends one first"


def test_several_sizes(cli: Cli) -> None:
    rows = cli.json("bench", "send", "--count", "40", "--size", "10", "--size", "2000")
    assert [(row["size_bytes"], row["messages"]) for row in rows] == [(10, 40), (2000, 40)]


def test_members_of_a_group_receive_together(cli: Cli) -> None:
    cli("bench", "send", "--count", "300", "--size", "10")
    [received] = cli.json("bench", "consume", "--count", "300", "--clients", "2")
    assert received["messages"] == 300
    assert received["clients"] == 2
    [some] = cli.json("bench", "consume", "--count", "7", "--clients", "3", "--group", "OTHER")
    assert some["messages"] == 7
    cli("bench", "consume", "--count", "300", "--timeout", "0.3", code=1)
    assert "no message arrived for 0.3 s" in cli.err


def test_plots(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "bench.html"
    out = cli("bench", "send", "--count", "50", "--plot", "--html", str(path))
    assert "messages a second, by time" in out
    assert "#" in out
    assert path.read_text().count("<svg") == 2
    assert "messages a second, by time" not in cli("bench", "send", "--count", "50")


def test_failures_are_counted_and_end_it(cli: Cli) -> None:
    cli("topic", "create", "small")
    cli(
        "bench", "send", "--topic", "small", "--count", "50", "--size", "5000000",
        "--in-flight", "4", code=2,
    )  # fmt: skip
    assert "bytes" in cli.err
