"""`rocketpy store` on the directory of a running broker, and on copies of it."""

from pathlib import Path

from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage
from rocketpy.testing.cluster import ClusterThread
from rocketpy.testing.sim_clock import SimClock
from tests.integration.cli.conftest import Cli


def test_store_is_backed_up_and_restored_while_its_broker_runs(
    cli: Cli, rocketpy_cluster: ClusterThread, tmp_path: Path
) -> None:
    rocketpy_cluster.create_topic("saved", 1)
    cli("send", "saved", "one")
    (broker,) = rocketpy_cluster.brokers
    store = Path(broker.parts.configs.store.store_path_root_dir)
    (row,) = cli.json("store", "backup", str(store), str(tmp_path / "copy"))
    assert row["records"] >= 1
    assert row["damaged"] == []
    assert row["directory"] == str(tmp_path / "copy")
    assert row["log"]
    again = cli.json("store", "restore", str(tmp_path / "copy"), str(tmp_path / "again"))
    assert again == [row | {"directory": str(tmp_path / "again")}]
    refused = "is not an empty directory"
    cli("store", "restore", str(tmp_path / "copy"), str(tmp_path / "again"), code=1)
    assert refused in cli.err
    cli("store", "backup", str(store), str(tmp_path / "again"), code=1)
    assert refused in cli.err


def test_store_resync_cuts_what_the_master_does_not_have(
    cli: Cli, rocketpy_cluster: ClusterThread, tmp_path: Path
) -> None:
    rocketpy_cluster.create_topic("followed", 1)
    for number in range(5):
        cli("send", "followed", f"body {number}")
    (broker,) = rocketpy_cluster.brokers
    source = Path(broker.parts.configs.store.store_path_root_dir)
    slave = tmp_path / "slave"
    cli("store", "backup", str(source), str(tmp_path / "copy"))
    (made,) = cli.json("store", "restore", str(tmp_path / "copy"), str(slave))
    (master,) = rocketpy_cluster.broker_addresses
    (equal,) = cli.json("store", "resync", str(slave), "--master", master)
    assert (equal["end"], equal["cut_at"], equal["bytes"]) == (made["end"], made["end"], 0)
    assert equal["kept_in"] == ""
    assert not (slave / "config/logIdentity.json").exists(), "the master's is taken over"

    config = MessageStoreConfig(
        store_path_root_dir=str(slave),
        mapped_file_size_commit_log=broker.parts.configs.store.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=broker.parts.configs.store.mapped_file_size_consume_queue,
    )
    alone = MessageStore(config, clock=SimClock())
    alone.open()
    for number in range(3):
        alone.put_message(PutMessage("followed", 0, b"only here %d" % number))
    end = alone.max_phy_offset
    cli("store", "resync", str(slave), "--master", master, "--yes", code=1)
    assert "lock" in cli.err
    alone.close()

    for number in range(3):
        cli("send", "followed", f"only there {number}")
    (row,) = cli.json("store", "resync", str(slave), "--master", master, "--yes")
    assert (row["end"], row["cut_at"]) == (end, made["end"])
    kept = Path(row["kept_in"]) / f"{made['end']:020d}"
    assert kept.read_bytes().count(b"only here") == 3
    alone = MessageStore(config, clock=SimClock())
    alone.open()
    assert alone.max_phy_offset == made["end"]
    alone.close()
    beyond = str(made["end"] + 1)
    cli("store", "resync", str(slave), "--at", beyond, "--yes", code=2)
    assert f"{beyond} is outside the log" in cli.err
    (at,) = cli.json("store", "resync", str(slave), "--at", str(made["begin"]), "--yes")
    assert at["cut_at"] == made["begin"]
    assert not (slave / "commitlog").exists()


def test_store_resync_wrong_options_are_usage_errors(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    cli("store", "resync", str(tmp_path / "store"), code=2)
    assert "give either --master or --at" in cli.err
    cli("store", "resync", str(tmp_path / "nothing"), "--at", "0", code=2)
    cli("store", "resync", str(tmp_path / "store"), "--at", "-1", code=2)


def test_store_resync_of_other_directory_is_refused_and_leaves_no_file(
    cli: Cli, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    cli("store", "resync", str(other), "--at", "0", "--yes", code=1)
    assert "is not a store directory" in cli.err
    assert list(other.iterdir()) == []
