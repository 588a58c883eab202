"""Frames of requests in the three forms of a header."""

import json
import struct

from rocketpy.proto.wire.binary_header import encode_binary_header
from rocketpy.proto.wire.msgpack_header import encode_msgpack_header


def frame(
    code: int,
    ext: dict[str, str],
    body: bytes,
    opaque: int,
    /,
    *,
    ensure_ascii: bool = False,
    **header: object,
) -> bytes:
    """Encode a request like the Java client."""
    fields = {
        "code": code,
        "extFields": ext,
        "flag": 0,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 493,
        **header,
    }
    text = json.dumps(fields, separators=(",", ":"), ensure_ascii=ensure_ascii).encode()
    return struct.pack(">ii", 4 + len(text) + len(body), len(text)) + text + body


def binary_frame(code: int, ext: dict[str, str], body: bytes, opaque: int, flag: int = 0) -> bytes:
    """The same with a header in ROCKETMQ's form."""
    head = encode_binary_header(code, 0, 493, opaque, flag, None, ext)
    return struct.pack(">ii", 4 + len(head) + len(body), 1 << 24 | len(head)) + head + body


def msgpack_frame(code: int, ext: dict[str, str], body: bytes, opaque: int, flag: int = 0) -> bytes:
    """The same with a header in MSGPACK, as RocketPy's own clients write it."""
    head = encode_msgpack_header(code, 12, 493, opaque, flag, None, ext)
    return struct.pack(">ii", 4 + len(head) + len(body), 2 << 24 | len(head)) + head + body


def ext_of(topic: str, queue_id: int, properties: str, **fields: str) -> dict[str, str]:
    """Header fields of a send."""
    return {
        "a": "group",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000123",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
        "n": "broker-a",
    } | fields
