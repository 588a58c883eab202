"""Request frames as the Java client writes them, for `bench.micro`."""

import time
from collections.abc import Iterable
from typing import Final

from rocketpy.proto.record.message import BatchItem, encode_batch
from rocketpy.proto.wire.command import encode_command, make_request

PROPERTIES: Final = "UNIQ_KEY\x017F00000100002A139A1F0000%08X\x02WAIT\x01true\x02"
"""Properties of a message; formatted with its number."""
BODY: Final = b"x" * 100


def ext_v2(topic: str, queue_id: int, number: int, *, batch: bool = False) -> dict[str, str]:
    """Return the header fields of a send of the Java client."""
    values = {
        "a": "load-producer",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
    }
    values |= {"g": str(time.time_ns() // 1_000_000), "h": "0", "i": PROPERTIES % number, "j": "0"}
    return values | {"k": "false", "m": "true" if batch else "false", "n": "broker-a"}


def frame(code: int, ext: dict[str, str], body: bytes, opaque: int, *, flag: int = 0) -> bytes:
    """Return a request frame with a JSON header."""
    command = make_request(code, ext, body)
    command.opaque, command.language, command.flag = opaque, 0, flag
    return encode_command(command)


def reads(frames: list[bytes], per_read: int) -> list[bytes]:
    """Return frames as socket reads, several a read."""
    return [b"".join(frames[at : at + per_read]) for at in range(0, len(frames), per_read)]


def batch_of(properties: Iterable[str], body: bytes = BODY) -> bytes:
    """Return the body of a batch with distinct properties."""
    return encode_batch(BatchItem(0, body, each.encode()) for each in properties)
