"""A master and a slave without a network: the slave's requests go to the master's processors."""

import random
from typing import Any

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.parts import BrokerParts
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.feature import ReplicationSettings
from rocketpy.broker.replication.metadata_sync import MetadataSync
from rocketpy.broker.requests import build_requests
from rocketpy.errors import ConnectError
from rocketpy.proto.wire.command import RemotingCommand, encode_command
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.store.config import MessageStoreConfig
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles
from tests.unit.broker.fakes import FakeChannel

MASTER = "127.0.0.1:10911"


def parts(role: str = "ASYNC_MASTER", files: SimFiles | None = None, **config: Any) -> BrokerParts:
    clock, rng = SimClock(), random.Random(1)
    configs = LiveBrokerConfig(
        BrokerConfig(
            broker_name="b",
            broker_ip1="127.0.0.1",
            broker_id=1 if role == "SLAVE" else 0,
            **config,
        ),
        MessageStoreConfig(
            store_path_root_dir="/store",
            mapped_file_size_commit_log=1 << 16,
            mapped_file_size_consume_queue=2_000,
            max_hash_slot_num=20,
            max_index_num=50,
            broker_role=role,
        ),
        RemotingServerConfig(),
        clock,
    )
    built = BrokerParts(
        configs,
        client=RemotingClient(RemotingClientConfig(), clock=clock, rng=rng),
        clock=clock,
        rng=rng,
        files=files or SimFiles(),
        threads=False,
        replication=ReplicationSettings(
            config=ReplicationConfig(ha_master_address="127.0.0.1:10912")
        ),
    )
    built.store.open()
    built.topics.load()
    built.groups.load()
    built.offsets.load()
    built.slave_commits.load()
    for feature in built.features:
        for state in feature.states:
            state.load()
    return built


class Master:
    """The master's processors, as a client of the network."""

    def __init__(self, built: BrokerParts) -> None:
        self.parts = built
        self.table = build_requests(built)
        self.is_down = False
        self.asked: list[tuple[int, dict[str, str]]] = []
        self.answers: dict[int, RemotingCommand] = {}

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        assert address == MASTER
        assert timeout_ms > 0
        if self.is_down:
            raise ConnectError(f"cannot connect to {address}")
        self.asked.append((command.code, dict(command.ext_fields)))
        (request,) = CommandReader().feed(encode_command(command))
        if request.code in self.answers:
            return self.answers[request.code]
        channel = FakeChannel()
        response: Any = self.table.routes[request.code].processor(channel, request)  # type: ignore[arg-type]
        assert response is not None
        frame = response if isinstance(response, bytes) else encode_command(response)
        (decoded,) = CommandReader().feed(frame)
        return decoded

    def codes(self) -> list[int]:
        codes, self.asked = [code for code, _ in self.asked], []
        return codes


class Pair:
    """A master, and a slave that follows it."""

    def __init__(self, **config: Any) -> None:
        self.master = Master(parts(**config))
        self.files = SimFiles()
        self.slave = parts("SLAVE", self.files, **config)
        self.sync = self.following(self.slave)

    def following(self, slave: BrokerParts) -> MetadataSync:
        found = slave.metadata_sync
        assert found is not None
        found._client = self.master
        return found
