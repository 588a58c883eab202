"""Resolves words, times and groups to the start and end offsets of a read."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.spark.connection import Connection
from rocketpy.spark.offsets import EARLIEST, LATEST, QueueRange, queue_range
from rocketpy.spark.planning import Offsets
from rocketpy.spark.read_options import Bound, ReadOptions
from rocketpy.spark.source.snapshot import Ends, Snapshot

_EARLIEST_WORD: Final = "earliest"
_STARTING_TIMES: Final = "startingOffsetsByTimestamp"
_LATEST_WORD: Final = "latest"


async def starting_offsets(
    connection: Connection, snapshot: Snapshot, options: ReadOptions, default: str
) -> dict[MessageQueue, int]:
    """Return the start of each queue.

    Args:
        connection: for times and groups.
        snapshot: of the queues.
        options: of the read.
        default: `earliest` or `latest`, when the options name no start.

    Raises:
        ConfigError: a queue has no offset or time in the options, does not exist, or has no
            message at or after its time.
    """
    if options.starting_timestamp is not None:
        times: Mapping[MessageQueue, int] = dict.fromkeys(snapshot.ends, options.starting_timestamp)
    elif options.starting_times is not None:
        times = _complete(options, snapshot, options.starting_times, _STARTING_TIMES)
    else:
        bound = options.starting_offsets or default
        if bound == "group":
            return await _group_offsets(connection, snapshot, options)
        return _at(bound, snapshot, options, "startingOffsets")
    found = await offsets_at(connection, snapshot, times)
    late = [
        queue
        for queue, offset in sorted(found.items())
        if offset >= snapshot.ends[queue].high > snapshot.ends[queue].low
    ]
    if late and options.starting_time_strategy == "error":
        raise ConfigError(
            f"no message at or after its time in {_words(late)}; "
            "startingOffsetsByTimestampStrategy=latest begins at the end there",
            key="startingTimestamp" if options.starting_times is None else _STARTING_TIMES,
        )
    return found


async def ending_offsets(
    connection: Connection, snapshot: Snapshot, options: ReadOptions
) -> dict[MessageQueue, int]:
    """Return the end of each queue; for a time after the last message the end of the queue.

    Raises:
        ConfigError: a queue has no offset or time in the options, or does not exist.
    """
    if options.ending_timestamp is not None:
        times: Mapping[MessageQueue, int] = dict.fromkeys(snapshot.ends, options.ending_timestamp)
    elif options.ending_times is not None:
        times = _complete(options, snapshot, options.ending_times, "endingOffsetsByTimestamp")
    else:
        return _at(options.ending_offsets or _LATEST_WORD, snapshot, options, "endingOffsets")
    return await offsets_at(connection, snapshot, times)


def has_end(options: ReadOptions) -> bool:
    """Return whether the options name an end."""
    given = (options.ending_offsets, options.ending_timestamp, options.ending_times)
    return any(each is not None for each in given)


def _at(
    bound: Bound, snapshot: Snapshot, options: ReadOptions, key: str
) -> dict[MessageQueue, int]:
    ends = snapshot.ends
    if bound == _EARLIEST_WORD:
        return {queue: each.low for queue, each in ends.items()}
    if bound == _LATEST_WORD:
        return {queue: each.high for queue, each in ends.items()}
    assert isinstance(bound, Mapping)
    given = _complete(options, snapshot, bound, key)
    return {queue: _offset(given[queue], each) for queue, each in ends.items()}


def _offset(wanted: int, ends: Ends) -> int:
    return {EARLIEST: ends.low, LATEST: ends.high}.get(wanted, wanted)


def _complete(
    options: ReadOptions, snapshot: Snapshot, given: Mapping[MessageQueue, int], key: str
) -> dict[MessageQueue, int]:
    """Return values by queue; raise unless they name exactly the existing queues."""
    wrapped = {
        queue._replace(topic=wrap_namespace(options.namespace, queue.topic)): value
        for queue, value in given.items()
    }
    absent = sorted(wrapped.keys() - snapshot.ends.keys())
    if absent:
        raise ConfigError(f"queue {_words(absent)} is not part of the read", key=key)
    unsaid = sorted(snapshot.ends.keys() - wrapped.keys())
    if unsaid:
        raise ConfigError(f"has no entry for {_words(unsaid)}", key=key)
    return wrapped


def _words(queues: list[MessageQueue]) -> str:
    more = f" and {len(queues) - 20} more" if len(queues) > 20 else ""
    return ", ".join("/".join(map(str, queue)) for queue in queues[:20]) + more


async def _by_queue(
    snapshot: Snapshot,
    queues: Collection[MessageQueue],
    ask: Callable[[str, MessageQueue], Awaitable[int]],
) -> dict[MessageQueue, int]:
    addresses = [min(snapshot.brokers[queue.broker_name].items())[1] for queue in queues]
    pairs = zip(addresses, queues, strict=True)
    found = await asyncio.gather(*(ask(address, queue) for address, queue in pairs))
    return dict(zip(queues, found, strict=True))


async def offsets_at(
    connection: Connection, snapshot: Snapshot, times: Mapping[MessageQueue, int]
) -> dict[MessageQueue, int]:
    """Return the first offset stored at or after a time, ms, for each queue.

    Without such a message it is the end of the queue.
    """

    async def ask(address: str, queue: MessageQueue) -> int:
        ends = snapshot.ends[queue]
        offset = await connection.api.search_offset(address, queue, times[queue])
        return min(max(offset, ends.low), ends.high)

    return await _by_queue(snapshot, times, ask)


async def _group_offsets(
    connection: Connection, snapshot: Snapshot, options: ReadOptions
) -> dict[MessageQueue, int]:
    group = wrap_namespace(options.namespace, options.starting_group)

    async def ask(address: str, queue: MessageQueue) -> int:
        offset = await connection.api.query_offset(address, group, queue)
        return snapshot.ends[queue].low if offset is None else offset

    return await _by_queue(snapshot, snapshot.ends, ask)


def out_of_range(snapshot: Snapshot, start: Offsets, end: Offsets) -> list[tuple[QueueRange, str]]:
    """Return requested ranges that do not exist, and the reasons."""
    found: list[tuple[QueueRange, str]] = []
    for queue, (low, high, _) in sorted(snapshot.ends.items()):
        first, last = start[queue], end[queue]
        if first < min(low, last):
            found.append((queue_range(queue, first, min(low, last)), f"the queue begins at {low}"))
        reason = f"the queue ends at {high}"
        if first > high:
            found.append((queue_range(queue, high, first), reason))
        elif last > high:
            found.append((queue_range(queue, high, last), reason))
    return found
