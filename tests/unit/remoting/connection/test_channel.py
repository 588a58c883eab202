from functools import partial

import pytest

from rocketpy.proto.wire.command import make_request, make_response
from rocketpy.remoting.connection.channel import Channel, format_address, host_bytes
from tests.unit.remoting.fakes import FakeLoop, FakeTransport, Held, make_channel, on_other_thread


@pytest.fixture
def loop() -> FakeLoop:
    return FakeLoop()


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def channel(loop: FakeLoop, transport: FakeTransport) -> Channel:
    return make_channel(loop, transport)


def test_address_is_formatted_as_text_and_bytes() -> None:
    assert format_address("10.0.0.7", 4321) == "10.0.0.7:4321"
    assert format_address("fe80::1%eth0", 5) == "[fe80::1]:5"
    assert host_bytes("10.0.0.7", 4321) == bytes.fromhex("0a000007000010e1")
    assert host_bytes("::1", 5) == bytes(15) + b"\x01" + b"\x00\x00\x00\x05"


def test_channel_has_address_of_peer(channel: Channel) -> None:
    assert channel.remote_address == "10.0.0.7:4321"
    assert channel.remote_host_bytes == bytes.fromhex("0a000007000010e1")
    assert repr(channel) == "<Channel 10.0.0.7:4321 open>"


def test_frames_sent_in_one_iteration_share_one_write(
    channel: Channel, loop: FakeLoop, transport: FakeTransport
) -> None:
    channel.send(b"one")
    channel.send([b"two", memoryview(b"three")])
    channel.send(bytearray(b"four"))
    assert transport.writes == []
    assert channel.has_unwritten
    loop.run()
    assert transport.writes == [b"onetwothreefour"]
    assert loop.wake_ups == 0


def test_large_frames_are_written_at_once_in_order(
    channel: Channel, loop: FakeLoop, transport: FakeTransport
) -> None:
    channel.send(b"small")
    channel.send(bytes(1 << 20))
    assert b"".join(transport.writes) == b"small" + bytes(1 << 20)
    loop.run()
    assert len(transport.writes) == 1


def test_sends_of_other_threads_share_one_wake_up(
    channel: Channel, loop: FakeLoop, transport: FakeTransport
) -> None:
    def send() -> None:
        channel.send(b"a")
        channel.send([b"b", b"c"])
        channel.send(bytearray(b"d"))

    on_other_thread(send)
    assert transport.writes == []
    assert loop.wake_ups == 1
    loop.run()
    assert transport.writes == [b"abcd"]
    on_other_thread(lambda: channel.send(b"e"))
    assert loop.wake_ups == 2
    loop.run()
    assert transport.writes == [b"abcd", b"e"]


def test_closed_channel_drops_frames(channel: Channel, transport: FakeTransport) -> None:
    channel.close("test")
    channel.close("again")
    channel.send(b"late")
    assert transport.is_closed
    assert transport.writes == []
    assert channel.close_reason == "test"


def test_close_from_other_thread_sends_queued_frames_first(
    channel: Channel, loop: FakeLoop, transport: FakeTransport
) -> None:
    def send_and_close() -> None:
        channel.send(b"last words")
        channel.close("done")

    on_other_thread(send_and_close)
    loop.run()
    assert transport.writes == [b"last words"]
    assert transport.is_closed


def test_closed_loop_drops_frames(channel: Channel, loop: FakeLoop) -> None:
    loop.is_closed = True
    on_other_thread(lambda: channel.send(b"x"))
    assert loop.wake_ups == 0


def test_oneway_calls_get_consecutive_opaques(
    channel: Channel, loop: FakeLoop, transport: FakeTransport
) -> None:
    channel.invoke_oneway(make_request(40))
    channel.invoke_oneway(make_request(40))
    loop.run()
    first, second = transport.responses()
    assert (first.opaque, first.flag, second.opaque) == (0, 2, 1)


def test_send_command_names_msgpack_once(
    channel: Channel, loop: FakeLoop, transport: FakeTransport
) -> None:
    channel.offers_msgpack = True
    channel.send_command(make_request(40))
    channel.send_command(make_response(make_request(11), 0, None, {"a": "b"}))
    channel.send_command(make_response(make_request(11), 0))
    loop.run()
    fields = [command.ext_fields for command in transport.responses()]
    assert fields == [{}, {"a": "b", "rocketpy": "msgpack"}, {}]


def test_proxied_peer_has_address_of_header(channel: Channel) -> None:
    channel.set_remote("192.168.1.9", 77)
    assert channel.remote_address == "192.168.1.9:77"
    assert channel.remote_host_bytes == bytes([192, 168, 1, 9, 0, 0, 0, 77])


def test_held_requests_run_in_order_while_peer_keeps_up(channel: Channel, loop: FakeLoop) -> None:
    seen: list[int] = []
    channel.resume(Held(lambda: seen.append(1)))
    on_other_thread(lambda: channel.resume(Held(lambda: seen.append(2))))
    assert seen == []
    loop.run()
    assert seen == [1, 2]


def test_held_request_waits_for_slow_peer(channel: Channel, loop: FakeLoop) -> None:
    seen: list[int] = []

    def respond(number: int) -> None:
        seen.append(number)
        channel.set_writable(False)

    for number in range(3):
        channel.resume(Held(partial(respond, number)))
    for expected in ([0], [0, 1], [0, 1, 2]):
        loop.run()
        assert seen == expected
        channel.set_writable(True)


@pytest.mark.parametrize("how", ["close", "abort", "lost"])
def test_closed_channel_drops_held_requests(channel: Channel, loop: FakeLoop, how: str) -> None:
    seen: list[int] = []
    channel.resume(Held(lambda: seen.append(1)))
    getattr(channel, how)("test")
    channel.resume(Held(lambda: seen.append(2)))
    loop.run()
    assert seen == []
