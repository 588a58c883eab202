"""Our slave below Apache's master: its log, its tables, reads, and commits that go back."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.remoting.client import RemotingClient
from rocketpy.testing.cluster import SMALL_STORE
from tests.integration.broker.pair import Pair, Requests, new_client, until
from tests.integration.client.daemons import Daemon
from tests.peer.apache import Apache, require_peer
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

TOPIC, GROUP = "orders", "billing"


class Mixed(Pair):
    """Apache's master and our slave, with the interface of a pair of ours."""

    def __init__(self, directory: Path, apache: Apache) -> None:
        self.directory = directory
        self.namesrv = apache.namesrv
        self.apache = apache
        self.addresses = {"master": apache.address, "slave": f"127.0.0.1:{free_port()}"}
        values = {
            **SMALL_STORE,
            "brokerName": "apache-a",
            "brokerId": "1",
            "brokerRole": "SLAVE",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": self.addresses["slave"].rpartition(":")[2],
            "haAllowedPeers": "127.0.0.1",
            "slaveReadEnable": "true",
            "storePathRootDir": str(self.store("slave")),
        }
        settings = [word for pair in values.items() for word in ("-D", "=".join(pair))]
        log = directory / "slave.log"
        self._daemons = {"slave": Daemon(log, "broker", "-n", apache.namesrv, *settings)}


@pytest.fixture
def apache(tmp_path: Path) -> Iterator[Apache]:
    require_peer()
    settings = (
        f"haListenPort={free_port()}",
        "mappedFileSizeCommitLog=67108864",
        "brokerRole=SYNC_MASTER",
        "inSyncReplicas=2",
        "brokerIP2=127.0.0.1",
        "slaveReadEnable=true",
    )
    with Apache(tmp_path / "apache", settings).borrowed() as servers:
        yield servers


async def test_slave_below_apache_has_log_and_tables_and_hands_commits_back(
    tmp_path: Path, apache: Apache
) -> None:
    pair = Mixed(tmp_path, apache)
    client: RemotingClient = new_client()
    ask = Requests(pair, client)
    try:
        pair.start("slave")
        async with rocketpy.admin.connect(apache.namesrv) as admin:
            await admin.create_topic(TOPIC, queues=1)
            await admin.create_group(GROUP)

        async def is_in_sync() -> bool:
            async with rocketpy.admin.connect(apache.namesrv) as admin:
                found = {each.broker_id: each for each in await admin.replicas()}
            return 1 in found and found[1].in_sync

        await until(is_in_sync, "Apache's master counts the slave")
        async with rocketpy.connect(apache.namesrv) as clients, clients.producer() as producer:
            sent = [b"message %d" % number for number in range(50)]
            for body in sent:
                result = await producer.send(TOPIC, body)
                assert result.status.name == "SEND_OK"
        assert await ask.commit("master", TOPIC, GROUP, 20) == 0

        async def has_offset() -> bool:
            return await ask.committed("slave", TOPIC, GROUP) == 20

        await until(has_offset, "the slave has topic, group and offset")
        assert await ask.read_queue("slave", TOPIC, GROUP, 0) == sent
        apache.signal(signal.SIGSTOP)
        assert await ask.read_queue("slave", TOPIC, GROUP, 0) == sent
        assert await ask.commit("slave", TOPIC, GROUP, 44) == 0
        apache.signal(signal.SIGCONT)

        async def is_back() -> bool:
            return await ask.committed("master", TOPIC, GROUP) == 44

        await until(is_back, "Apache's master has the commits of the slave")
        delays = await ask.ask("slave", RequestCode.GET_ALL_DELAY_OFFSET)
        assert delays.code == 0
    finally:
        await client.close()
        pair.end()
