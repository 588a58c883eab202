"""Bodies of pulls of every kind, whole and damaged, as messages by both decoders."""

import random
import struct
from typing import Any, NamedTuple

import pytest

from rocketpy.client.consumer.pulling.process_queue import Limits, ProcessQueue
from rocketpy.client.messages.compiled_decoder import decode_compiled
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import PLAIN, Serializer
from rocketpy.errors import CorruptRecordError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.compression import deflate
from rocketpy.proto.record.message import MessageExt, decode_messages, host_to_bytes
from rocketpy.proto.record.record import body_crc, pack_record, record_size, topic_field
from rocketpy.proto.record.sys_flag import BORN_HOST_V6, CompressionType, with_compression

TOPICS = ("orders", "space%orders", "тема", "T" * 127, "x")
_PROPERTIES = (
    b"",
    b"UNIQ_KEY\x017F000001\x02KEYS\x01k1 k2\x02TAGS\x01paid\x02",
    b"TAGS\x01paid",
    "name\x01鍵\x02".encode(),
    b"n\x01" + b"v" * 400 + b"\x02",
    b"\xff\x00\x01\x02\x02",
)
_LENGTHS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


class Case(NamedTuple):
    """A pull's body, and the queue it was pulled from."""

    records: bytes
    queue: MessageQueue
    namespace: str


def stored(
    body: bytes,
    properties: bytes = b"",
    *,
    topic: str = "orders",
    offset: int = 7,
    sys_flag: int = 0,
    born_host: str = "10.1.2.3:4567",
    retries: int = 0,
) -> bytes:
    """Return a stored record."""
    born, store = host_to_bytes(born_host), host_to_bytes("127.0.0.1:10911")
    sys_flag |= BORN_HOST_V6 if len(born) == 20 else 0
    field = topic_field(topic)
    size = record_size(len(body), len(field), len(properties), sys_flag)
    buffer = bytearray(size)
    pack_record(
        buffer, 0, size, body_crc(body), 3, 5, offset, 1 << 40, sys_flag, 1_700_000_000_123, born,
        1_700_000_000_456, store, retries, -1, body, field, properties,
    )  # fmt: skip
    return bytes(buffer)


def random_case(seed: int) -> Case:
    """Make records, most of them plain, and damage some of the bytes."""
    chance = random.Random(seed)
    topic = chance.choice(TOPICS)
    oddness = chance.choice((0.0, 0.0, 0.1))
    records = [_record(chance, number, topic, oddness) for number in range(chance.randrange(20))]
    data = bytearray(b"".join(records))
    starts = [sum(map(len, records[:number])) for number in range(len(records))]
    for _ in range(chance.choice((0, 0, 1, 2, 20)) if data else 0):
        data[chance.randrange(len(data))] = chance.choice((0, 1, 0x7F, 0xFF, chance.randrange(256)))
    if starts and chance.random() < 0.2:  # a length that leads out, or nearly
        at = chance.choice(starts) + chance.choice((0, 84, 36, 4))
        length = chance.choice((*_LENGTHS, len(data), len(data) - at, len(data) - at - 88))
        struct.pack_into(">I", data, min(at, len(data) - 4), length & 0xFFFFFFFF)
    if chance.random() < 0.2:
        del data[chance.randrange(len(data) + 1) :]
    namespace = chance.choice(("", "space"))
    return Case(bytes(data), MessageQueue(topic, "broker-a", 3), namespace)


def _record(chance: random.Random, number: int, topic: str, oddness: float) -> bytes:
    body = chance.choice((b"", b"b", b"body", bytes(range(256)), b"x" * 5000))
    more: dict[str, Any] = {"topic": topic, "offset": chance.choice((number, 1 << 62, -1))}
    more["retries"] = chance.choice((0, 3, -1))
    if chance.random() < oddness:
        odd = chance.randrange(4)
        if odd == 0:
            more["topic"] = chance.choice((*TOPICS, "T" * 200))
        elif odd == 1:
            more["born_host"] = "[fe80::1]:5"
        else:
            body = deflate(body, CompressionType.ZLIB)
            more["sys_flag"] = with_compression(0, CompressionType.ZLIB)
    return stored(body, chance.choice(_PROPERTIES), **more)


def shown(message: ReceivedMessage) -> dict[str, object]:
    """Return all that a user may see of a message; a time that is none is an error."""
    found: dict[str, object] = {}
    for name in dir(ReceivedMessage):
        if name.startswith("__") or name == "_rest":
            continue
        try:
            value = getattr(message, name)
        except (ValueError, OverflowError) as error:
            value = repr(error)
        if not callable(value):
            found[name] = value
    return found


def received(
    queue: ProcessQueue,
    ext: MessageExt,
    serializer: Serializer | None = None,
    namespace: str = "",
) -> ReceivedMessage:
    """Return a message as the pull loop of a queue makes it of a stored one."""
    return ReceivedMessage(
        ext, queue.queue, serializer=serializer, settlement=queue, namespace=namespace
    )


def compare(case: Case) -> int:
    """Make messages by both decoders; return how many the compiled one made.

    Raises:
        AssertionError: they differ.
    """
    entry = ProcessQueue(case.queue, Limits())
    plain = decode_compiled(
        case.queue, serializer=PLAIN, settlement=entry, namespace=case.namespace
    )
    if plain is None:
        pytest.skip("this installation is pure")
    found = plain(case.records)
    try:
        exts = decode_messages(case.records)
    except CorruptRecordError:
        assert found is None, "a body that is no row of records"
        return 0
    if found is None:
        return 0
    reference = [received(entry, ext, PLAIN, case.namespace) for ext in exts]
    assert [type(message) for message in found] == [ReceivedMessage] * len(reference)
    assert [shown(message) for message in found] == [shown(message) for message in reference]
    return len(found)
