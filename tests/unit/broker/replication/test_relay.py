"""Relay without the secret between a slave and its master: it confirms and adds no message."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from rocketpy.broker.replication.ha_client import HaClient
from rocketpy.broker.replication.ha_server import HaServer
from rocketpy.proto.replication.pair_frames import (
    DiskState,
    Report,
    encode_data_head,
    encode_report,
)
from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.network import ListenEndpoint
from rocketpy.testing.sim_loop import pass_time
from tests.unit.broker.replication.kit import (
    HA_PORT,
    MASTER,
    FakeStore,
    World,
    is_streaming,
    run,
)

RELAY = "10.0.0.66"
TEXT = bytes(range(200)) * 5


class End(asyncio.Protocol):
    """Endpoint of a relayed connection: forwards to the other endpoint, or swallows."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.other: End | None = None
        self.held = b""
        self.forwarded = b""
        self.is_swallowed = self.is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if self.is_swallowed:
            return
        self.forwarded += data
        if self.other is None:
            self.held += data
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
        if self.other is not None and self.other.transport is not None:
            self.other.transport.abort()


class Relay:
    """HA port of a stranger, to which the slave was redirected."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._tasks: list[asyncio.Task[None]] = []
        self.links: list[tuple[End, End]] = []

    async def open(self) -> None:
        endpoint = ListenEndpoint(name="ha", address=RELAY, port=HA_PORT)
        acceptor: Any = self
        admission = Admission(0, 0, self._world.clock)
        await self._world.host(RELAY).listen(endpoint, [acceptor], admission)
        self._world.addresses.ha_address = f"{RELAY}:{HA_PORT}"

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        pass

    def new_connection(self, ip: str, *, is_crowded: bool = False) -> End:
        slave, master = End(), End()
        self.links.append((slave, master))
        self._tasks.append(asyncio.ensure_future(self._connect(slave, master)))
        return slave

    async def _connect(self, slave: End, master: End) -> None:
        await self._world.host(RELAY).connect(lambda: master, MASTER, HA_PORT, tls=None)
        slave.other, master.other = master, slave
        master.transport.write(slave.held)


Case = Callable[[World, HaServer, HaClient, Relay], Awaitable[None]]


def with_relay(case: Case, log: FakeStore, copy: FakeStore) -> None:
    async def main(world: World) -> None:
        server = await world.master(log)
        relay = Relay(world)
        await relay.open()
        client = world.slave(copy)
        await world.until(lambda: is_streaming(client) and len(copy.data) == len(log.data))
        await pass_time(0.1)
        assert len(relay.links) == 1
        await case(world, server, client, relay)

    run(main)


def test_relay_inventing_reports_confirms_nothing() -> None:
    log, copy = FakeStore(TEXT, identity="x"), FakeStore()

    async def case(world: World, server: HaServer, client: HaClient, relay: Relay) -> None:
        slave, master = relay.links[0]
        assert log.replicas.confirmed == len(TEXT)
        slave.is_swallowed = master.is_swallowed = True
        end = log.put(b"never copied")
        await pass_time(0.05)
        invented = encode_report(Report(end, end, DiskState.WRITING))
        master.transport.write(invented + slave.forwarded[-16:])
        await pass_time(0.05)
        assert master.is_closed
        assert log.replicas.confirmed == len(TEXT)
        assert copy.data == TEXT

    with_relay(case, log, copy)


def test_relay_repeating_a_report_is_closed() -> None:
    log, copy = FakeStore(TEXT, identity="x"), FakeStore()

    async def case(world: World, server: HaServer, client: HaClient, relay: Relay) -> None:
        slave, master = relay.links[0]
        master.transport.write(slave.forwarded[-38:])
        await pass_time(0.05)
        assert master.is_closed

    with_relay(case, log, copy)


def test_relay_inventing_data_appends_nothing() -> None:
    log, copy = FakeStore(TEXT, identity="x"), FakeStore()

    async def case(world: World, server: HaServer, client: HaClient, relay: Relay) -> None:
        slave, _ = relay.links[0]
        invented = b"a message that the master never had, and more"
        slave.transport.write(encode_data_head(len(TEXT), invented, 0) + bytes(16) + invented)
        await pass_time(0.05)
        assert slave.is_closed
        assert copy.data == TEXT
        # The next connection carries the real log again.
        log.put(b"real")
        await world.until(lambda: copy.data == TEXT + b"real")

    with_relay(case, log, copy)
