"""Malformed frames: the connection is closed with a log event; others are not affected."""

import struct
import time
from pathlib import Path

import orjson
import pytest

from rocketpy.proto.wire.command import RemotingCommand, encode_command
from tests.bad_input.kit import EventLog, World, frame, running

SERVERS = ("broker", "namesrv")

HEADER = orjson.dumps({"code": 105, "opaque": 1, "flag": 0, "extFields": {"topic": "Kept"}})

MALFORMED = {
    "length_0": struct.pack(">i", 0) + b"\0" * 8,
    "length_3": struct.pack(">i", 3) + b"\0" * 8,
    "length_negative": struct.pack(">i", -5) + b"\0" * 8,
    "length_2_gib": struct.pack(">i", 2**31 - 1) + b"\0" * 8,
    "16_mib_and_1": struct.pack(">iI", (16 << 20) - 3, 20) + b"\0" * 64,
    "header_longer_than_frame": struct.pack(">iI", 20, 100) + b"\0" * 16,
    "header_over_8_mib": struct.pack(">iI", (9 << 20) + 4, 9 << 20) + b" " * (9 << 20),
    "zeros": b"\0" * 64,
    "header_not_json": frame(b"this is no JSON"),
    "header_is_a_list": frame(b"[1,2]"),
    "header_not_utf8": frame(b'{"code":105,"remark":"\xff\xfe"}'),
    "code_not_a_number": frame(b'{"code":"many","opaque":1}'),
    "opaque_over_32_bits": frame(b'{"code":105,"opaque":99999999999}'),
    "ext_fields_not_an_object": frame(b'{"code":105,"opaque":1,"extFields":[1]}'),
    "header_deep": frame(b'{"code":105,"opaque":1,"extFields":' + b"[" * 100_000),
    "serialize_type_unknown": frame(HEADER, serialize_type=9),
    "binary_header_cut": frame(b"\0\x69\0", serialize_type=1),
    "binary_ext_length_lies": frame(
        struct.pack(">hbhiiii", 105, 0, 493, 1, 0, 0, 1 << 20) + b"\0\1a", serialize_type=1
    ),
    "msgpack_header_broken": frame(b"\xc1\xff", serialize_type=2),
    "empty_header": frame(b""),
}


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(world: World, log: EventLog, server: str, name: str) -> None:
    with world.staying_well(), world.peer(server) as peer:
        peer.write(MALFORMED[name])
        assert peer.is_closed_by_peer()
        assert log.named("malformed frame, connection closed", peer.name, "reason")


@pytest.mark.parametrize("server", SERVERS)
def test_good_frames_before_a_malformed_one_are_answered(world: World, server: str) -> None:
    with world.staying_well(), world.peer(server) as peer:
        good = encode_command(peer.request(105, {"topic": "Kept"}))
        peer.write(good + MALFORMED["length_0"])
        response = peer.receive()
        assert response.code == (0 if server == "namesrv" else 3)
        assert peer.is_closed_by_peer()


@pytest.mark.parametrize("server", SERVERS)
def test_tls_without_certificate(world: World, log: EventLog, server: str) -> None:
    hello = bytes.fromhex("16030100c8010000c40303") + bytes(200)
    with world.staying_well(), world.peer(server) as peer:
        peer.write(hello)
        assert peer.is_closed_by_peer()
        assert log.named("malformed frame", peer.name, "TLS")


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(
    ("text", "guess"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "looks like HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "looks like gRPC"),
    ],
)
def test_http(world: World, log: EventLog, server: str, text: bytes, guess: str) -> None:
    with world.staying_well(), world.peer(server) as peer:
        peer.write(text)
        assert peer.is_closed_by_peer()
        assert log.named("malformed frame", peer.name, guess)


@pytest.mark.parametrize("server", SERVERS)
def test_truncated_then_closed(world: World, server: str) -> None:
    with world.staying_well():
        whole = frame(HEADER)
        for length in (1, 4, 7, 8, 20, len(whole) - 1):
            with world.peer(server) as peer:
                peer.write(whole[:length])


@pytest.mark.parametrize("server", SERVERS)
def test_byte_by_byte_is_only_slow(world: World, server: str) -> None:
    with world.staying_well(), world.peer(server) as peer:
        for byte in encode_command(peer.request(105, {"topic": "Kept"})):
            peer.write(bytes((byte,)))
            time.sleep(0.001)
        assert peer.receive().code == (0 if server == "namesrv" else 3)


@pytest.mark.parametrize("server", SERVERS)
def test_many_ext_fields(world: World, log: EventLog, server: str) -> None:
    fields = {f"field{number}": "x" * 10 for number in range(5_000)}
    with world.staying_well(), world.peer(server) as peer:
        some = dict(list(fields.items())[:4_000])
        assert peer.call(105, {"topic": "Kept", **some}).code == (0 if server == "namesrv" else 3)
        peer.write(encode_command(peer.request(105, fields)))
        assert peer.is_closed_by_peer()
        assert log.named("malformed frame", peer.name, "ext fields")


@pytest.mark.parametrize("server", SERVERS)
def test_header_without_code_means_code_0(world: World, server: str) -> None:
    with world.staying_well(), world.peer(server) as peer:
        peer.write(frame(b'{"opaque":7}'))
        response = peer.receive()
        assert (response.code, response.opaque) == (3, 7)


@pytest.mark.parametrize("server", SERVERS)
def test_unsolicited_responses_are_dropped(world: World, server: str) -> None:
    with world.staying_well(), world.peer(server) as peer:
        stray = RemotingCommand(0, 0, 493, 12345, 1, None, {})
        peer.write(encode_command(stray) * 100)
        assert peer.call(99_999).code == 3


def test_first_frame_that_never_ends_is_reset(tmp_path: Path) -> None:
    with running(tmp_path / "data", {"firstFrameTimeoutMs": "1500"}) as world:
        with world.peer() as silent, world.peer() as half:
            half.write(frame(HEADER)[:10])
            assert silent.is_closed_by_peer()
            assert half.is_closed_by_peer()
        with world.staying_well():
            pass
