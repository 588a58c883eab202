"""Masters and slaves of replication over a simulated network, on logs in memory."""

import asyncio
import zlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketpy.broker.cluster.membership import Membership
from rocketpy.broker.replication.acknowledgements import NO_BOUND, Acknowledgements
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.ha_client import HaClient
from rocketpy.broker.replication.ha_server import HaServer
from rocketpy.broker.replication.handshake import PairIdentity, Sample
from rocketpy.broker.replication.replica_state import State
from rocketpy.broker.replication.store_log import LogCopy, StoreLog
from rocketpy.errors import LogGapError
from rocketpy.proto.replication.pair_frames import FrameTags
from rocketpy.remoting.network.network import ListenEndpoint
from rocketpy.testing.sim_loop import LoopClock, SimLoop, pass_time
from rocketpy.testing.sim_network import SimHost, SimNetwork

FILE_BYTES = 4_096
HA_PORT = 10_912
SECRET = b"a secret of thirty-two characters"
MASTER, SLAVE = "10.0.0.1", "10.0.0.2"


@dataclass
class FakeReplicas:
    """Offsets of a store that depend on replicas."""

    on_wait: list[Callable[[], None]] = field(default_factory=list)
    timeout_ms: int = 0
    confirmed: int = 0
    released: int = 0
    is_required: bool = False
    give_up_count: int = 0
    may_be_cut: bool = False

    def confirm(self, phy_offset: int) -> None:
        assert self.is_required or phy_offset == NO_BOUND
        self.confirmed = max(self.confirmed, phy_offset)

    def release(self, phy_offset: int) -> None:
        self.released = max(self.released, phy_offset)

    def require(self) -> None:
        self.is_required = True

    def wait_for_none(self) -> None:
        self.is_required = False

    def let_cut(self) -> None:
        self.may_be_cut = True

    def give_up(self) -> None:
        self.give_up_count += 1


class FakeStore:
    """Log in memory; every byte counts as a complete record, except the last `incomplete_bytes`.

    Attributes:
        data: bytes from `min_phy_offset` on.
        incomplete_bytes: bytes at the end in which there is no complete record.
        error: raised by the next appends.
        flushed: end of the part on disk; None: everything.
    """

    def __init__(self, data: bytes = b"", *, start: int = 0, identity: str = "") -> None:
        self.replicas = FakeReplicas()
        self.log_identity = identity
        self.log_refusal: str | None = None
        self.min_phy_offset = start
        self.data = bytearray(data)
        self.incomplete_bytes = 0
        self.error: Exception | None = None
        self.flushed: int | None = None
        self.fails_flushes = False
        self.waiting: list[Callable[[bool], None]] = []
        self.appends: list[int] = []

    @property
    def max_phy_offset(self) -> int:
        return self.write_end - self.incomplete_bytes

    @property
    def write_end(self) -> int:
        return self.min_phy_offset + len(self.data)

    @property
    def flushed_phy_offset(self) -> int:
        return self.max_phy_offset if self.flushed is None else self.flushed

    def put(self, data: bytes) -> int:
        self.data += data
        for wake in self.replicas.on_wait:
            wake()
        return self.max_phy_offset

    def adopt_log_identity(self, text: str) -> None:
        self.log_identity = text

    def log_part(self, phy_offset: int, max_bytes: int) -> memoryview | None:
        end = min(phy_offset + max_bytes, phy_offset - phy_offset % FILE_BYTES + FILE_BYTES)
        start = phy_offset - self.min_phy_offset
        return (
            memoryview(bytes(self.data[start : end - self.min_phy_offset])) if start >= 0 else None
        )

    def log_samples(
        self, count: int, sample_bytes: int, start: int = 0, last_bytes: int = 0
    ) -> Sequence[Sample]:
        start = max(start, self.min_phy_offset)
        last = max(start, self.max_phy_offset - max(64, last_bytes))
        parts = [(start, min(16, last - start)), (last, self.max_phy_offset - last)]
        return [self._sample(*each) for each in parts if each[1] > 0]

    def _sample(self, offset: int, length: int) -> Sample:
        at = offset - self.min_phy_offset
        return offset, length, zlib.crc32(self.data[at : at + length])

    def first_difference(self, samples: Sequence[Sample]) -> int | None:
        low, end = self.min_phy_offset, self.max_phy_offset
        for offset, length, crc in samples:
            if low <= offset <= end - length and self._sample(offset, length)[2] != crc:
                return offset
        return None

    def append_raw(self, phy_offset: int, data: bytes | memoryview) -> int:
        if self.error is not None:
            raise self.error
        if not self.data and phy_offset % FILE_BYTES == 0:
            self.min_phy_offset = phy_offset
        if phy_offset != self.write_end:
            raise LogGapError(expected=self.write_end, got=phy_offset)
        if data:
            self.appends.append(len(data))
        self.data += data
        return self.write_end

    def drop_incomplete(self) -> None:
        del self.data[len(self.data) - self.incomplete_bytes :]
        self.incomplete_bytes = 0

    def when_flushed(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        if phy_end <= self.flushed_phy_offset or self.fails_flushes:
            callback(not self.fails_flushes)
        else:
            self.waiting.append(callback)

    def flush(self) -> None:
        self.flushed = self.max_phy_offset
        waiting, self.waiting = self.waiting, []
        for callback in waiting:
            callback(True)


@dataclass
class Addresses:
    """Known addresses of a master."""

    address: str = f"{MASTER}:10911"
    ha_address: str = f"{MASTER}:{HA_PORT}"


class World:
    """Hosts, brokers and time of one test.

    Attributes:
        protocols: answer of the master's ordinary port; an error is raised.
    """

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.network = SimNetwork(loop)
        self.clock = LoopClock(loop)
        self.addresses = Addresses()
        self.protocol: int | Exception = 1

    def host(self, name: str) -> SimHost:
        return self.network.host(name)

    def nonce(self) -> bytes:
        return self.loop.rng.randbytes(32)

    async def master(
        self,
        store: FakeStore,
        *,
        waits: bool = True,
        secret: bytes = SECRET,
        name: str = "broker-a",
        membership: Membership | None = None,
        **settings: Any,
    ) -> HaServer:
        settings = {"in_sync_replicas": 2, "replication_secret_file": "s", **settings}
        config = ReplicationConfig(**settings)
        identity = PairIdentity(cluster="c", name=name, broker_id=0, secret=secret)
        log = StoreLog(store, FILE_BYTES)
        if membership is not None:
            log.current_epochs = membership.epochs
        server = HaServer(
            config,
            identity=identity,
            log=log,
            replicas=store.replicas,
            acknowledgements=Acknowledgements(config, waits=waits, membership=membership),
            clock=self.clock,
            timer=lambda: 0.0,
            new_nonce=self.nonce,
        )
        endpoint = ListenEndpoint(name="ha", address=MASTER, port=HA_PORT)
        await server.start(self.host(MASTER), endpoint)
        return server

    def slave(
        self,
        store: FakeStore,
        *,
        broker_id: int = 1,
        host: str = SLAVE,
        sync: bool = False,
        secret: bytes = SECRET,
        name: str = "broker-a",
        membership: Membership | None = None,
        **settings: Any,
    ) -> HaClient:
        settings = {"replication_secret_file": "s", **settings}
        config = ReplicationConfig(**settings)
        copy = LogCopy(store, FILE_BYTES, confirms_disk=sync)
        if membership is not None:
            copy.current_epochs = membership.epochs
        client = HaClient(
            config,
            identity=PairIdentity(
                cluster="c", name=name, broker_id=broker_id, secret=secret, reports_disk=sync
            ),
            copy=copy,
            network=self.host(host),
            tls=None,
            master=lambda: self.addresses,
            ask_protocol=self._ask,
            clock=self.clock,
            new_nonce=self.nonce,
            membership=membership,
        )
        client.start()
        return client

    async def _ask(self, _address: str) -> int:
        if isinstance(self.protocol, Exception):
            raise self.protocol
        return self.protocol

    async def connect(self, host: str = "10.0.0.9") -> "Peer":
        """A stranger on the HA port."""
        peer = Peer()
        await self.host(host).connect(lambda: peer, MASTER, HA_PORT, tls=None)
        return peer

    async def until(self, condition: Callable[[], bool], limit_s: float = 60.0) -> None:
        end_s = self.loop.time() + limit_s
        while not condition():
            assert self.loop.time() < end_s, "it does not happen"
            await pass_time(0.005)


class Peer(asyncio.Protocol):
    """Peer that writes what a test says.

    Attributes:
        master_tags: tags of the master's frames, after a handshake.
        slave_tags: tags of the slave's frames.
    """

    def __init__(self) -> None:
        self.data = b""
        self.is_open = True
        self.master_tags: FrameTags | None = None
        self.slave_tags: FrameTags | None = None
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False

    def write(self, data: bytes) -> None:
        self.transport.write(data)


def run(case: Callable[[World], Awaitable[None]], seed: int = 0) -> None:
    """Run a test in virtual time."""
    loop = SimLoop(seed)  # type: ignore[abstract]  # as in run_simulation

    async def main() -> None:
        await case(World(loop))

    try:
        loop.run_until_complete(main())
        assert loop.errors == []
    finally:
        loop.end_tasks()
        loop.close()


def is_streaming(client: HaClient) -> bool:
    return client.state.state is State.STREAMING
