"""Two hosts of a simulated network, and ends of connections that note what becomes of them."""

import asyncio
from typing import Any

from rocketpy.remoting.network.network import ListenEndpoint
from rocketpy.testing.sim_loop import SimLoop
from rocketpy.testing.sim_network import SimHost, SimNetwork

PORT = 7


class End(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.pauses = self.resumes = 0
        self.end: object = "open"

    def connection_made(self, transport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc) -> None:
        self.end = exc

    def pause_writing(self) -> None:
        self.pauses += 1

    def resume_writing(self) -> None:
        self.resumes += 1


class Server:
    """Stands for a selector and an admission."""

    def __init__(self) -> None:
        self.ends: list[End] = []

    def bind(self, loop) -> None:
        pass

    def admit(self, ip: str) -> bool:
        return True

    def new_connection(self, ip: str) -> End:
        self.ends.append(End())
        return self.ends[-1]


class Pair:
    """Two hosts, a connection from `a` to `b`."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SimLoop)
        self.network = SimNetwork(loop)
        self.a, self.b = self.network.host("a"), self.network.host("b")
        self.server: Any = Server()

    async def open(self) -> tuple[End, End]:
        if PORT not in self.b.listening:
            endpoint = ListenEndpoint(name="s", address="b", port=PORT)
            await self.b.listen(endpoint, [self.server], self.server)
        end = End()
        await connect(self.a, end)
        return end, self.server.ends[-1]


async def connect(host: SimHost, end: End) -> None:
    await host.connect(lambda: end, "b", PORT, tls=None)


def run(case, seed=0):
    loop = SimLoop(seed)  # type: ignore[abstract]  # as in run_simulation

    async def main() -> None:
        await case(Pair())

    try:
        loop.run_until_complete(main())
        assert loop.errors == []
    finally:
        loop.end_tasks()
        loop.close()
