"""Plan of a read from numbers alone: ranges, their split, and the limits of a trigger.

The functions are pure, so a plan that is made again is the same.
"""

import itertools
from collections.abc import Mapping, Sequence

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import QueueRange, queue_range

Offsets = Mapping[MessageQueue, int]


def ranges_between(start: Offsets, end: Offsets) -> list[QueueRange]:
    """Return the ranges between two positions, without empty ones, sorted.

    Queues in only one of the positions are skipped: the start of a new queue has to be durable,
    in an earlier position, before the queue is read.
    """
    return [
        queue_range(queue, offset, end[queue])
        for queue, offset in sorted(start.items())
        if end.get(queue, offset) > offset
    ]


def ranges_cut(start: Offsets, end: Offsets) -> list[QueueRange]:
    """Return the ranges of queues in which the second position precedes the first, sorted.

    Their broker lost these messages after they were read, and assigns their offsets again.
    """
    return [
        queue_range(queue, end[queue], offset)
        for queue, offset in sorted(start.items())
        if end.get(queue, offset) < offset
    ]


def split_ranges(
    ranges: Sequence[QueueRange],
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[QueueRange]:
    """Split ranges for more tasks, as Spark's Kafka source does.

    Args:
        ranges: without empty ones, one per queue.
        min_partitions: approximate least number of results; small ranges are not split.
        max_records: most messages of one range.

    Source: KafkaOffsetRangeCalculator.scala (4.x).
    """
    found = [part for each in ranges for part in _equal_parts(each, _count(each, max_records))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(each.size for each in ranges)
    large = [each for each in ranges if _share(each.size, total, min_partitions) > 1]
    large_total = sum(each.size for each in large)
    rest = max(1, min_partitions - (len(ranges) - len(large)))
    parts: list[QueueRange] = []
    for each in ranges:
        wanted = _share(each.size, large_total, rest) if each in large else 1
        parts += _equal_parts(each, max(wanted, _count(each, max_records)))
    return parts


def split_present(
    ranges: Sequence[QueueRange],
    firsts: Offsets,
    min_partitions: int | None = None,
    max_records: int | None = None,
) -> list[QueueRange]:
    """Split ranges as `split_ranges` does, but not between messages that are lost.

    The lost messages at the start of a range are part of its first result, so they are reported as
    one range.

    Args:
        ranges: without empty ones, one per queue.
        firsts: the first message that a queue has; 0 by default.
        min_partitions: approximate least number of results.
        max_records: most messages of one range, without the lost ones.
    """
    present = [
        each._replace(start=max(each.start, firsts.get(each.queue, 0)))
        for each in ranges
        if firsts.get(each.queue, 0) < each.end
    ]
    parts: dict[MessageQueue, list[QueueRange]] = {}
    for part in split_ranges(present, min_partitions, max_records):
        parts.setdefault(part.queue, []).append(part)
    found: list[QueueRange] = []
    for each in ranges:
        first, *others = parts.get(each.queue, [each])
        found += [first._replace(start=each.start), *others]
    return found


def _share(size: int, total: int, count: int) -> int:
    return max(1, int(size * count / total + 0.5))


def _count(each: QueueRange, max_records: int | None) -> int:
    return 1 if max_records is None else -(-each.size // max_records)


def _equal_parts(each: QueueRange, count: int) -> list[QueueRange]:
    count = min(count, each.size)
    bounds = [each.start + each.size * index // count for index in range(count + 1)]
    return [each._replace(start=begin, end=end) for begin, end in itertools.pairwise(bounds)]


def shared_limit(
    limit: int, sizes: Mapping[MessageQueue, int], turn: int
) -> dict[MessageQueue, int]:
    """Divide a limit among queues in proportion to their backlog, without exceeding it.

    Queues with a share below one take turns, so that no queue waits forever.

    Args:
        limit: for all queues together.
        sizes: backlog of each queue.
        turn: number of the trigger.

    Returns:
        The share of each queue with a backlog.
    """
    waiting = {queue: size for queue, size in sorted(sizes.items()) if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return waiting
    shares = {queue: limit * size // total for queue, size in waiting.items()}
    left = limit - sum(shares.values())
    small = [queue for queue, share in shares.items() if share == 0]
    first = turn * left % len(small) if small else 0
    others = sorted(
        (queue for queue, share in shares.items() if share),
        key=lambda queue: -(limit * waiting[queue] % total),
    )
    for queue in [*small[first:], *small[:first], *others][:left]:
        shares[queue] += 1
    return {queue: share for queue, share in shares.items() if share}
