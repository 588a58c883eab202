"""Offsets of queues: in options, in checkpoints, and as ranges to read.

An offset is that of the next message to read. In options -2 is the earliest and -1 the latest, as
in Spark's Kafka source. Keys of a checkpoint are sorted, so that equal offsets are equal texts.
"""

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue

EARLIEST: Final = -2
LATEST: Final = -1
VERSION: Final = 1

_MAX_OFFSET: Final = (1 << 63) - 1


class QueueRange(NamedTuple):
    """Messages of one queue: offsets from `start` to before `end`."""

    topic: str
    broker_name: str
    queue_id: int
    start: int
    end: int

    @property
    def queue(self) -> MessageQueue:
        """The queue."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)

    @property
    def size(self) -> int:
        """Number of offsets; 0 when the range is empty."""
        return max(0, self.end - self.start)

    def __str__(self) -> str:
        return f"{self.topic}/{self.broker_name}/{self.queue_id} [{self.start}, {self.end})"


def queue_range(queue: MessageQueue, start: int, end: int) -> QueueRange:
    """Return a range of a queue."""
    return QueueRange(*queue, start, end)


def range_words(ranges: Iterable[QueueRange], most: int = 20) -> str:
    """Return ranges as words for an error; only the first of a long list."""
    listed = sorted(ranges)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(map(str, listed[:most])) + more


# ---- checkpoints


class StreamOffset(NamedTuple):
    """Position of a stream, as checkpoints store it.

    Attributes:
        offsets: the next to read, by queue.
        is_first: the position only makes the stream's start durable; no batch ends here.
        seen_ms: store time of the last message seen, by broker name, ms since 1970 by that
            broker's clock. It separates old messages from new ones in a queue that lost some.
            Not compared: positions are equal when their offsets are.
    """

    offsets: Mapping[MessageQueue, int]
    is_first: bool = False
    seen_ms: Mapping[str, int] = MappingProxyType({})


def to_json(position: StreamOffset) -> dict[str, Any]:
    """Return the JSON object that Spark writes, keys sorted.

    `{"v":1,"o":{"T":{"broker-a":{"0":123}}},"t":{"broker-a":1732233600000}}`
    """
    table: dict[str, dict[str, dict[str, int]]] = {}
    for queue, offset in sorted(position.offsets.items()):
        brokers = table.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = offset
    found: dict[str, Any] = {"v": VERSION}
    if position.is_first:
        found["first"] = True
    found["o"] = table
    if position.seen_ms:
        found["t"] = dict(sorted(position.seen_ms.items()))
    return found


def from_json(found: object) -> StreamOffset:
    """Decode the object of `to_json`.

    Raises:
        ConfigError: it belongs to another source, or to a later version.
    """
    if not isinstance(found, dict) or "v" not in found or not isinstance(found.get("o"), dict):
        raise ConfigError(
            f"{json.dumps(found)[:200]} is not an offset of this source: "
            "the checkpoint belongs to another one",
            key="checkpointLocation",
        )
    if found["v"] != VERSION:
        reason = f"its offsets have version {found['v']}, this RocketPy reads version {VERSION}"
        raise ConfigError(reason, key="checkpointLocation")
    try:
        offsets = _by_queue(found["o"], minimum=0)
        times = _mapping(found.get("t", {}), "t")
        seen_ms = {name: _number(value, f"t/{name}", 0) for name, value in times.items()}
    except ValueError as error:
        raise ConfigError(f"its offsets {error}", key="checkpointLocation") from None
    return StreamOffset(offsets, found.get("first") is True, seen_ms)


# ---- options


def parse_offsets(text: str) -> dict[MessageQueue, int]:
    """Read `{"T":{"broker-a":{"0":23,"1":-2}}}`; -2 is the earliest, -1 the latest.

    Raises:
        ValueError: the text is invalid; the message ends the sentence "option: ...".
    """
    return _by_queue(_object(text), minimum=EARLIEST)


def parse_times(text: str) -> dict[MessageQueue, int]:
    """Read `{"T":{"broker-a":{"0":1732233600000}}}`: ms since 1970, by queue.

    Raises:
        ValueError: the text is invalid; the message ends the sentence "option: ...".
    """
    return _by_queue(_object(text), minimum=0)


def parse_queues(text: str) -> tuple[MessageQueue, ...]:
    """Read `{"T":{"broker-a":[0,1]}}`.

    Raises:
        ValueError: the text is invalid, or names no queue; the message ends the sentence
            "option: ...".
    """
    queues: dict[MessageQueue, None] = {}
    for topic, brokers in _object(text).items():
        for broker, ids in _mapping(brokers, topic).items():
            if not isinstance(ids, list):
                raise ValueError(f"has no list of ids at {topic}/{broker}")  # noqa: TRY004 - as below
            for each in ids:
                queues[MessageQueue(topic, broker, _number(each, f"{topic}/{broker}", 0))] = None
    if not queues:
        raise ValueError("names no queue")
    return tuple(sorted(queues))


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    return _mapping(found, "the top")


def _by_queue(table: dict[str, Any], minimum: int) -> dict[MessageQueue, int]:
    found: dict[MessageQueue, int] = {}
    for topic, brokers in table.items():
        for broker, queues in _mapping(brokers, topic).items():
            for key, value in _mapping(queues, f"{topic}/{broker}").items():
                place = f"{topic}/{broker}/{key}"
                if not key.isascii() or not key.isdigit():
                    raise ValueError(f"has {key!r} for a queue id at {topic}/{broker}")
                queue = MessageQueue(topic, broker, int(key))
                found[queue] = _number(value, place, minimum)
    return found


def _mapping(found: object, place: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise ValueError(f"has no object at {place}")  # noqa: TRY004 - a wrong text, not a type
    return found


def _number(found: object, place: str, minimum: int) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not minimum <= found <= _MAX_OFFSET:
        raise ValueError(f"has {found!r} at {place}, which is not a number of at least {minimum}")
    return found
