"""Apache's slave below our master: its log, and the tables that it fetches."""

from pathlib import Path

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.testing.cluster import SMALL_STORE
from tests.integration.broker.pair import Pair, Requests, new_client, until
from tests.integration.client.daemons import Daemon
from tests.peer.apache import Apache, require_peer
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(500)]

TOPIC, GROUP = "orders", "billing"
FULL_SYNC_S = 200.0
"""A new slave of Apache's fetches topics for the first time after a minute."""


class Mixed(Pair):
    """Our master and Apache's slave, with the interface of a pair of ours."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        port, master_port = free_port(), free_port()
        self.namesrv = f"127.0.0.1:{port}"
        self.apache = Apache(
            directory / "apache",
            (
                f"haListenPort={free_port()}",
                "mappedFileSizeCommitLog=67108864",
                "brokerRole=SLAVE",
                "brokerId=1",
                "slaveReadEnable=true",
            ),
            other_namesrv=self.namesrv,
        )
        self.addresses = {
            "master": f"127.0.0.1:{master_port}", "slave": self.apache.address,
        }  # fmt: skip
        namesrv = Daemon(
            directory / "namesrv.log", "namesrv", "-p", str(port), "-D", "bindAddress=127.0.0.1",
            "-D", f"dataDir={directory}/namesrv",
        )  # fmt: skip
        values = {
            **SMALL_STORE,
            "brokerName": "apache-a",
            "brokerRole": "SYNC_MASTER",
            "inSyncReplicas": "2",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(master_port),
            "haListenPort": str(free_port()),
            "haAllowedPeers": "127.0.0.1",
            "slaveReadEnable": "true",
            "storePathRootDir": str(self.store("master")),
        }
        settings = [word for pair in values.items() for word in ("-D", "=".join(pair))]
        master = Daemon(directory / "master.log", "broker", "-n", self.namesrv, *settings)
        self._daemons = {"namesrv": namesrv, "master": master}


async def test_slave_of_apache_above_has_log_and_tables(tmp_path: Path) -> None:
    require_peer()
    pair = Mixed(tmp_path)
    client = new_client()
    ask = Requests(pair, client)
    try:
        pair.start("namesrv")
        pair.start("master")
        with pair.apache.borrowed():
            async with rocketpy.admin.connect(pair.namesrv) as admin:
                await admin.create_topic(TOPIC, queues=1)
                await admin.create_group(GROUP)

            async def is_in_sync() -> bool:
                async with rocketpy.admin.connect(pair.namesrv) as admin:
                    return max(each.copies_in_sync for each in await admin.replicas()) == 2

            await until(is_in_sync, "our master counts the slave")
            async with rocketpy.connect(pair.namesrv) as clients, clients.producer() as producer:
                sent = [b"message %d" % number for number in range(50)]
                for body in sent:
                    result = await producer.send(TOPIC, body)
                    assert result.status.name == "SEND_OK"
            assert await ask.commit("master", TOPIC, GROUP, 20) == 0

            async def has_tables() -> bool:
                return await ask.committed("slave", TOPIC, GROUP) == 20

            await until(has_tables, "the slave has the offset", FULL_SYNC_S)
            assert await ask.read_queue("slave", TOPIC, GROUP, 0) == sent
    finally:
        await client.close()
        pair.end()
