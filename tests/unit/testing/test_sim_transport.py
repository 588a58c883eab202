"""Ends of a simulated connection: order, windows, closes and resets, as in TCP."""

import pytest

from rocketpy.testing.sim_loop import pass_time
from rocketpy.testing.sim_transport import WINDOW_BYTES
from tests.unit.testing.network_kit import PORT, End, Pair, run


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


def test_close_comes_after_what_was_written() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        one.transport.write(b"last words")
        one.transport.close()
        await pass_time(1)
        assert (other.data, other.end, one.end) == (b"last words", None, None)
        assert pair.network.connections == []

    run(case)


def test_peer_that_does_not_read_pauses_the_writer() -> None:
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


def test_slow_reader_takes_its_time() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        pair.b.read_bytes_per_s = 1_000
        one.transport.write(bytes(10_000))
        await pass_time(5)
        assert 4_000 < len(other.data) < 6_000
        await pass_time(10)
        assert len(other.data) == 10_000

    run(case)


def test_abort_is_a_reset_for_the_peer() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        one.transport.abort()
        await pass_time(1)
        assert one.end is None
        assert isinstance(other.end, ConnectionResetError)

    run(case)


def test_end_knows_both_addresses() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        assert one.transport.get_extra_info("peername") == ("b", PORT)
        assert other.transport.get_extra_info("sockname") == ("b", PORT)
        assert one.transport.get_extra_info("sockname")[0] == "a"
        assert one.transport.get_extra_info("socket", "none") == "none"

    run(case)


def test_writer_is_paused_and_resumed_at_its_marks() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        one.transport.set_write_buffer_limits(1_000, 100)
        assert one.transport.get_write_buffer_limits() == (100, 1_000)
        other.transport.pause_reading()
        one.transport.write(bytes(WINDOW_BYTES))
        await pass_time(1)
        one.transport.write(bytes(1_000))
        assert one.pauses == 0
        one.transport.write(b"x")
        assert one.pauses == 1
        assert one.transport.get_write_buffer_size() == 1_001
        other.transport.resume_reading()
        await pass_time(1)
        assert (one.resumes, one.transport.get_write_buffer_size()) == (1, 0)

    run(case)


def test_paused_reader_gets_no_data_but_a_reset() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        other.transport.pause_reading()
        assert not other.transport.is_reading()
        one.transport.write(b"x")
        await pass_time(1)
        assert other.data == b""
        one.transport.abort()
        await pass_time(1)
        assert other.data == b""
        assert isinstance(other.end, ConnectionResetError)

    run(case)


def test_data_written_after_close_is_dropped() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        one.transport.close()
        one.transport.close()
        assert one.transport.is_closing()
        one.transport.write(b"too late")
        await pass_time(1)
        assert (other.data, other.end) == (b"", None)
        one.transport.abort()  # nothing happens any more
        assert other.end is None

    run(case)


def test_abort_drops_unsent_data() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        other.transport.pause_reading()
        one.transport.write(bytes(WINDOW_BYTES))
        one.transport.write(bytes(WINDOW_BYTES))
        one.transport.abort()
        assert one.transport.get_write_buffer_size() == 0
        other.transport.resume_reading()
        await pass_time(1)
        assert len(other.data) <= WINDOW_BYTES
        assert isinstance(other.end, ConnectionResetError)

    run(case)


def test_write_to_a_closed_peer_is_reset() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        other.transport.vanish()
        await pass_time(1)
        assert one.end == "open"
        one.transport.write(b"x")
        await pass_time(1)
        assert isinstance(one.end, ConnectionResetError)
        assert pair.network.connections == []

    run(case)


def test_close_towards_a_peer_that_is_gone_ends_all_the_same() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        other.transport.vanish()
        one.transport.close()
        await pass_time(1)
        assert one.end is None
        assert pair.network.connections == []

    run(case)


@pytest.mark.parametrize("seed", range(5))
def test_write_is_torn_somewhere_and_no_byte_is_lost(seed: int) -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        pieces: list[bytes] = []
        other.data_received = pieces.append  # type: ignore[assignment,method-assign]
        for _ in range(100):
            one.transport.write(b"0123456789")
        await pass_time(1)
        assert b"".join(pieces) == b"0123456789" * 100
        assert len(pieces) > 100

    run(case, seed)


def test_protocol_may_be_replaced() -> None:
    async def case(pair: Pair) -> None:
        one, other = await pair.open()
        second = End()
        other.transport.set_protocol(second)
        assert other.transport.get_protocol() is second
        one.transport.write(b"x")
        await pass_time(1)
        assert (other.data, second.data) == (b"", b"x")
        assert not one.transport.can_write_eof()

    run(case)
