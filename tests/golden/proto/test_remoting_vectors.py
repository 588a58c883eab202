"""Frames written by Apache 5.4.0's own classes."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketpy.proto.wire.codes import LanguageCode
from rocketpy.proto.wire.command import RemotingCommand, encode_command, encode_head
from rocketpy.proto.wire.frame import CommandReader, decode_command

FOLDER = Path(__file__).parents[2] / "vectors" / "remoting"
FILES = sorted(path.name for path in FOLDER.glob("[0-9]*.json"))


def load(name: str) -> tuple[bytes, dict[str, Any]]:
    vector = json.loads((FOLDER / name).read_bytes())
    return bytes.fromhex(vector["frame_hex"]), vector


def summary(command: RemotingCommand) -> dict[str, Any]:
    return {
        "code": command.code,
        "language": LanguageCode(command.language).name,
        "version": command.version,
        "opaque": command.opaque,
        "flag": command.flag,
        "is_response": command.is_response,
        "is_oneway": command.is_oneway,
        "remark": command.remark or None,
        # Java reads an empty binary value back as null; both mean absent.
        "extFields": {key: value or None for key, value in command.ext_fields.items()},
        "body_hex": command.body.hex(),
        "body_length": len(command.body),
    }


def expected(decoded: dict[str, Any]) -> dict[str, Any]:
    return {
        **decoded,
        "remark": decoded["remark"] or None,
        "extFields": {key: value or None for key, value in (decoded["extFields"] or {}).items()},
        "body_hex": decoded["body_hex"] or "",
    }


def test_all_vectors_are_here():
    assert len(FILES) == 122


@pytest.mark.parametrize("name", FILES)
def test_decodes_as_java_does(name):
    frame, vector = load(name)
    command = decode_command(frame)
    assert summary(command) == expected(vector["decoded"])
    assert command.serialize_type == vector["serialize_code"]


@pytest.mark.parametrize("name", FILES)
def test_encodes_to_javas_bytes(name):
    frame, _ = load(name)
    command = decode_command(frame)
    assert encode_command(command) == frame
    assert encode_head(command, len(command.body)) + command.body == frame


@pytest.mark.parametrize("serialize_type", [0, 1, 2])
@pytest.mark.parametrize("name", FILES)
def test_survives_every_serialization(name, serialize_type):
    command = decode_command(load(name)[0])
    if serialize_type == 1 and command.code > 0x7FFF:
        pytest.skip("a binary header has 16 bits of code")
    command.serialize_type = serialize_type
    again = decode_command(encode_command(command))
    if serialize_type == 1:
        again.remark, command.remark = again.remark or None, command.remark or None
    assert again == command


def test_all_frames_as_one_stream():
    frames = [load(name)[0] for name in FILES]
    commands = CommandReader().feed(b"".join(frames))
    assert [encode_command(command) for command in commands] == frames
