"""Pairs of a broker of Apache and one of RocketPy, both ways: equal logs, statuses, mqadmin."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.client.sending.result import SendStatus
from rocketpy.proto.bodies.stats import HARuntimeInfo
from rocketpy.proto.wire.codes import RequestCode
from tests.bad_input.kit import Wire
from tests.integration.client.daemons import Daemon
from tests.peer.apache import JVM, PEER, Apache, require_peer
from tests.ports import free_port

FILE_BYTES = 1 << 20
COUNT = 2_500
BODY = bytes(500)
LIMIT_S = 200.0
PEERS = "haAllowedPeers=127.0.0.1"
COMMON = (f"mappedFileSizeCommitLog={FILE_BYTES}", "brokerName=broker-a", "inSyncReplicas=2")

pytestmark = [pytest.mark.timeout(900)]


def until(condition: Callable[[], bool], what: str) -> None:
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s, what
        time.sleep(0.2)


def ha_status(address: str) -> HARuntimeInfo:
    with Wire(address) as peer:
        return HARuntimeInfo.decode(peer.call(RequestCode.GET_BROKER_HA_STATUS).body)


def log_of(store: Path, end: int) -> bytes:
    files = sorted((store / "commitlog").iterdir())
    return b"".join(each.read_bytes() for each in files)[:end]


@contextmanager
def ours(directory: Path, namesrv: str, *settings: str) -> Iterator[str]:
    """A broker of RocketPy; yields its address."""
    port = free_port()
    words = [
        "brokerIP1=127.0.0.1",
        "bindAddress=127.0.0.1",
        f"listenPort={port}",
        f"haListenPort={free_port()}",
        f"storePathRootDir={directory / 'store'}",
        PEERS,
        *COMMON,
        *settings,
    ]
    defines = [word for each in words for word in ("-D", each)]
    directory.mkdir()
    daemon = Daemon(directory / "broker.log", "broker", "-n", namesrv, *defines)
    try:
        daemon.start()
        yield f"127.0.0.1:{port}"
    finally:
        daemon.end()


async def send(namesrv: str, count: int) -> list[SendStatus]:
    """Send messages that fill more than one file; a few at a time, for the machine is busy."""
    async with rocketpy.admin.connect(namesrv) as admin:
        await admin.create_topic("orders", queues=2)
    statuses: list[SendStatus] = []
    async with rocketpy.connect(namesrv) as client, client.producer() as producer:
        for _ in range(count // 50):
            sends = [producer.send("orders", BODY, timeout=30) for _ in range(50)]
            statuses += [each.status for each in await asyncio.gather(*sends)]
    return statuses


def check_copied(master: str, stores: tuple[Path, Path], namesrv: str) -> None:
    """Send through the master, and compare the logs and what it says of its slave."""
    statuses = asyncio.run(send(namesrv, COUNT))
    assert statuses.count(SendStatus.SEND_OK) >= COUNT * 9 // 10, statuses[-1]
    end = ha_status(master).master_commit_log_max_offset
    assert end > FILE_BYTES

    def row() -> dict[str, Any]:
        found: dict[str, Any] = ha_status(master).ha_connection_info[0]  # type: ignore[assignment]  # JSON
        return found

    until(lambda: row()["slaveAckOffset"] == end, "the slave has everything")
    assert row()["inSync"] is True
    one, other = (log_of(store, end) for store in stores)
    assert one == other
    shown = subprocess.run(
        ["bash", str(PEER), "admin", namesrv, "haStatus", "-b", master],
        env={**os.environ, "JAVA_TOOL_OPTIONS": JVM},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"#MasterCommitLogMaxOffset\t{end}" in shown
    assert "OK" in shown


def test_slave_of_ours_below_a_master_of_apache(tmp_path: Path) -> None:
    require_peer()
    apache = Apache(
        tmp_path / "apache",
        settings=(
            "brokerRole=SYNC_MASTER",
            "brokerIP2=127.0.0.1",
            f"haListenPort={free_port()}",
            *COMMON,
        ),
    )
    slave = ("brokerId=1", "brokerRole=SLAVE", "slaveReadEnable=true")
    with apache.borrowed(), ours(tmp_path / "ours", apache.namesrv, *slave) as address:
        until(lambda: ha_status(apache.address).in_sync_slave_nums == 1, "the slave follows")
        stores = apache.home / "store", tmp_path / "ours" / "store"
        check_copied(apache.address, stores, apache.namesrv)
        found = ha_status(address).ha_client_runtime_info
        assert (found["state"], found["protocol"]) == ("STREAMING", "classic")


def test_slave_of_apache_below_a_master_of_ours(tmp_path: Path) -> None:
    require_peer()
    port = free_port()
    namesrv = f"127.0.0.1:{port}"
    names = Daemon(
        tmp_path / "namesrv.log", "namesrv", "-p", str(port), "-D", "bindAddress=127.0.0.1",
        "-D", f"dataDir={tmp_path / 'namesrv'}",
    )  # fmt: skip
    apache = Apache(
        tmp_path / "apache",
        settings=("brokerId=1", "brokerRole=SLAVE", f"haListenPort={free_port()}", *COMMON),
        other_namesrv=namesrv,
    )
    try:
        names.start()
        with ours(tmp_path / "ours", namesrv, "brokerRole=SYNC_MASTER") as master:
            with apache.borrowed():
                until(lambda: ha_status(master).in_sync_slave_nums == 1, "the slave follows")
                (row,) = ha_status(master).ha_connection_info
                assert isinstance(row, dict)
                assert row["protocol"] == "classic"
                stores = tmp_path / "ours" / "store", apache.home / "store"
                check_copied(master, stores, namesrv)
    finally:
        names.end()
