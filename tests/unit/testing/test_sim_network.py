"""Bytes keep their order whatever happens, and each fault does what its name says."""

import asyncio
from typing import Any

import pytest

from rocketpy.remoting.network import ListenEndpoint
from rocketpy.testing.sim_loop import SimLoop, pass_time
from rocketpy.testing.sim_network import SimHost, SimNetwork
from rocketpy.testing.sim_transport import WINDOW_BYTES

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
    """Two hosts, a connection from ``a`` to ``b``."""

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


@pytest.mark.parametrize("seed", range(10))
def test_bytes_arrive_in_order_in_pieces_of_any_size(seed: int) -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        sent = [bytes([number]) * (number * 7 % 50) for number in range(1, 100)]
        for data in sent:
            one.transport.write(data)
            other.transport.write(data)
            await pass_time(0.0003)
        await pass_time(1)
        assert one.data == other.data == b"".join(sent)

    run(case, seed)


def test_a_close_comes_after_what_was_written() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        one.transport.write(b"last words")
        one.transport.close()
        await pass_time(1)
        assert (other.data, other.end, one.end) == (b"last words", None, None)
        assert pair.network.connections == []

    run(case)


def test_who_reads_nothing_stops_the_writer() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        other.transport.pause_reading()
        for _ in range(20):
            one.transport.write(bytes(WINDOW_BYTES // 10))
        await pass_time(1)
        assert (one.pauses, one.resumes) == (1, 0)
        assert one.transport.get_write_buffer_size() >= WINDOW_BYTES // 2
        other.transport.resume_reading()
        await pass_time(1)
        assert one.resumes == 1
        assert len(other.data) == 20 * (WINDOW_BYTES // 10)

    run(case)


def test_a_slow_reader_takes_its_time() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        pair.b.read_bytes_per_s = 1_000
        one.transport.write(bytes(10_000))
        await pass_time(5)
        assert 4_000 < len(other.data) < 6_000
        await pass_time(10)
        assert len(other.data) == 10_000

    run(case)


@pytest.mark.parametrize("seed", range(10))
def test_a_cut_delivers_a_prefix_and_resets_both(seed: int) -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        sent = bytes(range(200))
        one.transport.write(sent)
        assert pair.network.cut_one()
        await pass_time(1)
        assert sent.startswith(other.data)
        assert isinstance(one.end, ConnectionResetError)
        assert isinstance(other.end, ConnectionResetError)
        assert not pair.network.cut_one()

    run(case, seed)


def test_a_partition_delays_and_healing_delivers() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        pair.network.partition(["a"], ["b"])
        one.transport.write(b"x")
        attempt = asyncio.ensure_future(connect(pair.a, End()))
        await pass_time(30)
        assert other.data == b""
        assert not attempt.done()
        pair.network.heal()
        await pass_time(2)
        assert other.data == b"x"
        assert attempt.done()

    run(case)


def test_power_loss_leaves_the_peer_half_open_until_it_writes() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        pair.b.lose_power()
        one.transport.write(b"x")
        await pass_time(60)
        assert (one.end, other.end) == ("open", "open")
        pair.b.boot()
        await pass_time(1)
        assert isinstance(one.end, ConnectionResetError)
        assert other.end == "open"  # its process is gone: it is never told
        with pytest.raises(ConnectionRefusedError):
            await connect(pair.a, End())

    run(case)


def test_a_killed_process_resets_its_peers() -> None:
    async def case(pair: Pair) -> None:
        one, _ = await pair.open()
        pair.b.kill_process()
        await pass_time(1)
        assert isinstance(one.end, ConnectionResetError)

    run(case)


def test_an_abort_is_a_reset_for_the_peer() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        one.transport.abort()
        await pass_time(1)
        assert one.end is None
        assert isinstance(other.end, ConnectionResetError)

    run(case)
