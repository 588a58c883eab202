"""Jobs from the command line, as far as they need no Spark."""

import importlib.util
import json
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner

from rocketpy.cli.commands import spark as spark_cli
from rocketpy.cli.main import command
from rocketpy.testing.cluster import ClusterThread
from tests.integration.cli.conftest import Cli


@pytest.mark.parametrize("job", sorted(spark_cli.JOBS))
def test_help_has_an_example(job: str) -> None:
    done = CliRunner().invoke(command, ["spark", job, "--help"])
    assert done.exit_code == 0
    assert f"Example: rocketpy spark {job} " in done.output


def test_lag_is_what_group_lag_says(cli: Cli, tmp_path: Path) -> None:
    cli("topic", "create", "orders", "--queues", "2")
    cli("send", "orders", "x", "--count", "10")
    cli("consume", "orders", "--group", "readers", "--from", "earliest", "--max", "4")
    shown = {
        (row["topic"], row["broker"], row["queue"]): (row["broker_offset"], row["consumer_offset"])
        for row in cli.json("group", "lag", "readers")
    }
    rows = cli.json("spark", "lag", "--once", "--group", "readers")
    assert shown
    assert shown == {
        (row["topic"], row["broker"], row["queue"]): (row["broker_offset"], row["consumer_offset"])
        for row in rows
    }
    behind = sum(row["lag"] for row in rows)
    assert behind == 6
    assert "readers: 6 messages behind" in cli("spark", "lag")
    cli("spark", "lag", "--max-lag", "6")
    cli("spark", "lag", "--max-lag", "5", code=3)
    assert "alert: group readers is 6 messages behind" in cli.err
    table = tmp_path / "lag"
    cli("spark", "lag", "--every", "1", "--samples", "2", "--to", str(table))
    found = ds.dataset(table, partitioning="hive").to_table().to_pylist()
    assert len(found) == 2 * len(rows)
    assert {row["group"] for row in found} == {"readers"}
    assert len({row["time"] for row in found}) == 2
    assert sum(row["lag"] for row in found) == 2 * behind


def test_lag_of_a_store_directory_is_what_its_broker_says(
    cli: Cli, rocketpy_cluster: ClusterThread, tmp_path: Path
) -> None:
    cli("topic", "create", "orders", "--queues", "2")
    cli("send", "orders", "x", "--count", "10")
    cli("consume", "orders", "--group", "readers", "--from", "earliest", "--max", "4")
    numbers = ("topic", "broker", "queue", "broker_offset", "consumer_offset", "lag")
    live = cli.json("spark", "lag", "--group", "readers")
    rocketpy_cluster.stop()  # the offsets are on disk now
    store = ["--store", str(tmp_path / "rocketpy" / "broker-a")]
    rows = cli.json("spark", "lag", *store, "--group", "readers")
    assert [[row[name] for name in numbers] for row in rows] == [
        [row[name] for name in numbers] for row in live
    ]
    assert sum(row["lag"] for row in rows) == 6
    assert cli.json("spark", "lag", *store, "--group", "readers", "--topic", "payments") == []
    cli("spark", "lag", *store, "--max-lag", "5", code=3)
    table = tmp_path / "lag"
    cli("spark", "lag", *store, "--to", str(table))
    found = ds.dataset(table, partitioning="hive").to_table().to_pylist()
    assert {row["last_consumed"] for row in found if row["group"] == "readers"} == {None}
    cli("spark", "lag", *store, "--group", "nobody", code=1)
    assert "has no offset of nobody" in cli.err
    cli("spark", "lag", "--store", str(tmp_path), code=1)
    assert "is not a store directory" in cli.err


def test_lag_of_an_unknown_group_is_an_error(cli: Cli) -> None:
    cli("spark", "lag", "--group", "nobody", code=1)
    assert "group nobody does not exist" in cli.err
    cli("spark", "lag", "--once", "--every", "3", code=2)


def test_lag_starts_no_spark(cli: Cli) -> None:
    before = set(sys.modules)
    cli("spark", "lag")
    assert not {each for each in set(sys.modules) - before if each.startswith("pyspark")}


def test_without_the_extra(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    archive = tmp_path / "archive"
    jobs = (
        ["trace"],
        ["dlq", "g"],
        ["replay", "t"],
        ["audit", str(tmp_path)],
        ["archive", "t", "--to", str(archive)],
        ["archive", "t", "--to", str(archive), "--format", "delta"],
    )
    for job in jobs:
        cli("spark", *job, code=1)
        assert "pyspark, pyarrow, numpy missing" in cli.err
        assert not archive.exists()
        assert "pip install 'rocketpy-mq[spark]'" in cli.err


def test_audit_of_what_a_broker_stores(cli: Cli, tmp_path: Path) -> None:
    cli("send", "orders", "x", "--count", "10")
    store = tmp_path / "rocketpy" / "broker-a"
    out = cli("spark", "audit", str(store), "--here", "-o", "json")
    (found,) = json.loads(out)
    assert found["damaged"] == 0
    assert found["messages"] >= 10
    cli("spark", "audit", str(tmp_path), "--here", code=1)
    assert "is not a store directory" in cli.err
    cli("spark", "audit", str(store), "--conf", "rocketmq.checkCrc=true", code=2)
    assert "rocketmq.checkCrc: no topic is read or written" in cli.err
