"""Fills topics of a RocketPy broker, and reads its queues without Spark."""

import zlib
from collections import Counter
from collections.abc import Callable

from rocketpy.broker.broker import Broker
from rocketpy.proto.record.message import decode_message
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.results import PutMessage, PutMessageStatus
from rocketpy.testing.cluster import ClusterThread

TAGS = ("TagA", "TagB", "TagC")
FIRST_MS = 1_700_000_000_000

Row = tuple[str, int, int, int]
"""Broker, queue, offset, crc of the body."""


def body_of(number: int) -> bytes:
    """Return a body of 0, 1, 100 or 1024 bytes, sometimes of 100 KB."""
    size = 100_000 if number % 199 == 5 else (0, 1, 100, 1024)[number % 4]
    return (f"{number}-".encode() * size)[:size]


def message_of(
    topic: str, queue_id: int, number: int, body: Callable[[int], bytes] = body_of
) -> PutMessage:
    """Return a message with a tag, a key and a user property."""
    tag = TAGS[number % 3]
    properties = {"KEYS": f"key-{number}", "TAGS": tag, "number": str(number)}
    return PutMessage(
        topic,
        queue_id,
        body(number),
        encode_properties(properties),
        born_timestamp_ms=FIRST_MS + number,
        tags_code=tags_code(tag),
        keys=properties["KEYS"],
        tags=tag,
    )


def fill(
    cluster: ClusterThread,
    topic: str,
    *,
    queues: int,
    count: int,
    first: int = 0,
    body: Callable[[int], bytes] = body_of,
) -> None:
    """Create a topic and store messages in all of its queues in turn."""
    cluster.create_topic(topic, queues)

    async def put() -> None:
        brokers = cluster.brokers
        for number in range(first, first + count):
            broker = brokers[number % len(brokers)]
            queue_id = number // len(brokers) % queues
            result = broker.parts.store.put_message(message_of(topic, queue_id, number, body))
            assert result.status is PutMessageStatus.PUT_OK

    cluster.run(put())


def queue_rows(broker: Broker, topic: str, queue_id: int) -> Counter[Row]:
    """Return all messages of a queue."""
    store = broker.parts.store
    found: Counter[Row] = Counter()
    offset = max(0, store.min_offset(topic, queue_id))
    while (result := store.get_message(topic, queue_id, offset, 1024, 8 << 20)).buffers:
        for buffer in result.buffers:
            message = decode_message(buffer)
            crc = zlib.crc32(message.body)
            found[broker.parts.identity.broker_name, queue_id, message.queue_offset, crc] += 1
        offset = result.next_begin_offset
    return found


def stored(cluster: ClusterThread, topic: str) -> Counter[Row]:
    """Return all messages of a topic."""
    found: Counter[Row] = Counter()
    for broker in cluster.brokers:
        config = broker.parts.topics.get(topic)
        for queue_id in range(config.read_queue_nums if config else 0):
            found += queue_rows(broker, topic, queue_id)
    return found
