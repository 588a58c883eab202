"""Offsets of queues: in options, in checkpoints, and as ranges to read.

An offset is that of the next message to read. In options -2 is the earliest and -1 the latest, as
in Spark's Kafka source. Keys of a checkpoint are sorted, so that equal offsets are equal texts.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue

T = TypeVar("T")

EARLIEST: Final = -2
LATEST: Final = -1
VERSION: Final = 1

_MAX_OFFSET: Final = (1 << 63) - 1
_LEAST_SECONDS: Final = 10**8
_MOST_SECONDS: Final = 10**11
"""As seconds these are the years 1973 to 5138, as ms days of 1970 to 1973."""


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


class LastSeen(NamedTuple):
    """Last message that a planner has seen in a queue, read or not.

    Another message at this offset shows that the queue is another one: its topic was deleted and
    created again, or its broker lost messages and assigned their offsets again.

    Attributes:
        offset: of the message; -1 if unknown (checkpoints of older versions).
        stored_ms: its store time by the broker's clock, ms since 1970.
    """

    offset: int
    stored_ms: int


class StreamOffset(NamedTuple):
    """Position of a stream, as checkpoints store it.

    Attributes:
        offsets: the next to read, by queue.
        is_first: the position only makes the stream's start durable; no batch ends here.
        seen: the last message seen, by queue. Not compared: positions are equal when their offsets
            are.
    """

    offsets: Mapping[MessageQueue, int]
    is_first: bool = False
    seen: Mapping[MessageQueue, LastSeen] = MappingProxyType({})


def to_json(position: StreamOffset) -> dict[str, Any]:
    """Return the JSON object that Spark writes, keys sorted.

    `{"v":1,"o":{"T":{"broker-a":{"0":123}}},"s":{"T":{"broker-a":{"0":[130,1732233600000]}}}}`
    """
    found: dict[str, Any] = {"v": VERSION}
    if position.is_first:
        found["first"] = True
    found["o"] = _to_table(position.offsets)
    if position.seen:
        found["s"] = _to_table({queue: list(seen) for queue, seen in position.seen.items()})
    return found


def _to_table(values: Mapping[MessageQueue, T]) -> dict[str, dict[str, dict[str, T]]]:
    table: dict[str, dict[str, dict[str, T]]] = {}
    for queue, value in sorted(values.items(), key=lambda item: item[0]):
        brokers = table.setdefault(queue.topic, {})
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = value
    return table


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
        seen = _seen_from(found, offsets)
    except ValueError as error:
        raise ConfigError(f"its offsets {error}", key="checkpointLocation") from None
    return StreamOffset(offsets, found.get("first") is True, seen)


def _seen_from(
    found: dict[str, Any], queues: Iterable[MessageQueue]
) -> dict[MessageQueue, LastSeen]:
    """Decode `s`, or `t` of older versions: a store time for all queues of a broker."""
    times = {
        name: _number(value, f"t/{name}", 0)
        for name, value in _mapping(found.get("t", {}), "t").items()
    }
    seen = {
        queue: LastSeen(-1, times[queue.broker_name])
        for queue in queues
        if queue.broker_name in times
    }
    return seen | _read_table(_mapping(found.get("s", {}), "s"), _last_seen)


def _last_seen(found: object, place: str) -> LastSeen:
    if not isinstance(found, list) or len(found) != 2:
        raise ValueError(f"has {found!r} at {place}, which is not an offset and a time")
    return LastSeen(_number(found[0], place, -1), _number(found[1], place, 0))


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
    times = _by_queue(_object(text), minimum=0)
    for time_ms in times.values():
        check_time(time_ms)
    return times


def parse_time(text: str) -> int:
    """Read a time, ms since 1970.

    Raises:
        ValueError: it is none, or in seconds; the message ends the sentence "option: ...".
    """
    if not re.fullmatch(r"\+?[0-9]{1,19}", text.strip()) or int(text) >= 1 << 63:
        raise ValueError("is not a time in ms since 1970")
    check_time(int(text))
    return int(text)


def check_time(time_ms: int) -> None:
    """Raise ValueError for a time that is surely in seconds: as ms it is before 1974."""
    if _LEAST_SECONDS <= time_ms < _MOST_SECONDS:
        raise ValueError(f"has {time_ms}, which seems to be in seconds: give ms since 1970")


def parse_queues(text: str) -> tuple[MessageQueue, ...]:
    """Read `{"T":{"broker-a":[0,1]}}`.

    Raises:
        ValueError: the text is invalid, or names no queue; the message ends the sentence
            "option: ...".
    """
    queues: dict[MessageQueue, None] = {}
    for topic, brokers in _object(text).items():
        if isinstance(brokers, list):
            raise ValueError(  # noqa: TRY004 - as below
                f"has {brokers} at {topic}, where a table of brokers is expected: between topic "
                'and queue ids is the name of the broker, {"T":{"broker-a":[0,1]}}'
            )
        for broker, ids in _mapping(brokers, topic).items():
            if not isinstance(ids, list):
                reason = f"has {ids!r} at {topic}/{broker}, where a list of queue ids is expected"
                raise ValueError(reason)  # noqa: TRY004 - as below
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
    return _read_table(table, lambda value, place: _number(value, place, minimum))


def _read_table(table: dict[str, Any], read: Callable[[object, str], T]) -> dict[MessageQueue, T]:
    found: dict[MessageQueue, T] = {}
    for topic, brokers in table.items():
        for broker, queues in _mapping(brokers, topic).items():
            if isinstance(queues, int) and broker.isdigit():
                raise ValueError(
                    f"has {queues} at {topic}/{broker}, where a table of queue ids is expected: "
                    "between topic and queue id is the name of the broker, "
                    '{"T":{"broker-a":{"0":23}}}'
                )
            for key, value in _mapping(queues, f"{topic}/{broker}").items():
                if not key.isascii() or not key.isdigit():
                    raise ValueError(f"has {key!r} for a queue id at {topic}/{broker}")
                queue = MessageQueue(topic, broker, int(key))
                found[queue] = read(value, f"{topic}/{broker}/{key}")
    return found


def _mapping(found: object, place: str) -> dict[str, Any]:
    if not isinstance(found, dict):
        reason = f"has {found!r} at {place}, where a JSON object is expected"
        raise ValueError(reason)  # noqa: TRY004 - a wrong text, not a type
    return found


def _number(found: object, place: str, minimum: int) -> int:
    if not isinstance(found, int) or isinstance(found, bool) or not minimum <= found <= _MAX_OFFSET:
        raise ValueError(f"has {found!r} at {place}, which is not a number of at least {minimum}")
    return found
