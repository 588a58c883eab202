"""A remoting server and clients in simulated time: real frames, no sockets, no waiting."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.server import RemotingServer
from rocketpy.testing.sim_loop import LoopClock, SimLoop, pass_time
from rocketpy.testing.sim_network import SimNetwork

T = TypeVar("T")

PORT = 10_911
ADDRESS = f"10.0.0.1:{PORT}"
ECHO, FAIL, SILENT, LATER, LEAVE = 10, 12, 13, 14, 15


def echo(_channel: Channel, command: RemotingCommand) -> RemotingCommand:
    return make_response(command, 0, "echo", dict(command.ext_fields), command.body)


def fail(_channel: Channel, _command: RemotingCommand) -> RemotingCommand:
    raise ValueError("deliberate")


def silent(_channel: Channel, _command: RemotingCommand) -> None:
    return None


async def later(_channel: Channel, command: RemotingCommand) -> RemotingCommand:
    await pass_time(1)
    return make_response(command, 0, "later")


class World:
    """A network with one server, and as many clients as a test makes."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.clock = LoopClock(loop)
        self.network = SimNetwork(loop)
        self.host = self.network.host("10.0.0.1")
        self.clients: list[RemotingClient] = []
        self.servers: list[RemotingServer] = []

    def make_server(self, **settings: Any) -> RemotingServer:
        config = RemotingServerConfig(listen_port=PORT, **settings)
        server = RemotingServer(config, clock=self.clock, name="test", network=self.host)
        server.register(ECHO, echo)
        server.register(FAIL, fail)
        server.register(SILENT, silent)
        server.register(LATER, later)
        self.servers.append(server)
        return server

    async def serve(self, **settings: Any) -> RemotingServer:
        server = self.make_server(**settings)
        await server.start()
        return server

    def client(self, **settings: Any) -> RemotingClient:
        made = RemotingClient(
            RemotingClientConfig(**settings),
            clock=self.clock,
            rng=random.Random(7),
            network=self.network.host(f"10.0.9.{len(self.clients) + 1}"),
        )
        self.clients.append(made)
        return made


def run(case: Callable[[World], Coroutine[Any, Any, T]]) -> T:
    """Run a case, and close everything it made."""
    loop = SimLoop(1)  # type: ignore[abstract] # as in run_simulation

    async def main() -> T:
        assert isinstance(loop, SimLoop)
        world = World(loop)
        try:
            return await case(world)
        finally:
            for client in world.clients:
                await client.close()
            await asyncio.gather(*(server.stop(1_000) for server in world.servers))

    try:
        found = loop.run_until_complete(main())
        assert loop.errors == []
        return found
    finally:
        loop.end_tasks()
        loop.close()
