"""Faults between simulated hosts."""

import asyncio

import pytest

from rocketpy.errors import StartError
from rocketpy.remoting.network.network import ListenEndpoint
from rocketpy.testing.sim_loop import pass_time
from tests.unit.testing.network_kit import PORT, End, Pair, connect, run


@pytest.mark.parametrize("seed", range(10))
def test_cut_delivers_a_prefix_and_resets_both(seed: int) -> None:
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


def test_partition_delays_and_healing_delivers() -> None:
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


def test_killed_process_resets_its_peers() -> None:
    async def case(pair: Pair) -> None:
        one, _ = await pair.open()
        pair.b.kill_process()
        await pass_time(1)
        assert isinstance(one.end, ConnectionResetError)

    run(case)


def test_port_is_opened_once_and_given_back() -> None:
    async def case(pair: Pair) -> None:
        await pair.open()
        endpoint = ListenEndpoint(name="s", address="b", port=PORT)
        with pytest.raises(StartError, match="port 7 on b is taken"):
            await pair.b.listen(endpoint, [pair.server], pair.server)
        pair.b.listening[PORT].stop_accepting()
        with pytest.raises(ConnectionRefusedError):
            await connect(pair.a, End())
        await pair.b.listen(endpoint, [pair.server], pair.server)
        await connect(pair.a, End())

    run(case)


def test_hosts_in_no_group_reach_everybody() -> None:
    async def case(pair: Pair) -> None:
        pair.network.partition(["a"], ["b"])
        assert not pair.network.can_pass("a", "b")
        assert pair.network.can_pass("a", "a")
        assert pair.network.can_pass("a", "c")
        assert pair.network.can_pass("c", "b")
        pair.network.heal()
        assert pair.network.can_pass("a", "b")

    run(case)


def test_tls_is_not_simulated_and_says_so() -> None:
    async def case(pair: Pair) -> None:
        await pair.open()
        with pytest.raises(OSError, match="no TLS"):
            await pair.a.connect(End, "b", PORT, tls=object())  # type: ignore[arg-type]

    run(case)
