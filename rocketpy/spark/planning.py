"""What to read, decided from numbers alone: ranges, their split, and the limits of a trigger.

Nothing here asks anybody, so that a plan is the same whenever it is made again.
"""

import itertools
from collections.abc import Mapping, Sequence

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import QueueRange, queue_range

Offsets = Mapping[MessageQueue, int]


def ranges_between(start: Offsets, end: Offsets) -> list[QueueRange]:
    """Return what lies between two positions, without empty ranges, sorted.

    A queue that only one of them has contributes nothing: where a new queue begins is made durable
    first, by a position that has it.
    """
    return [
        queue_range(queue, offset, end[queue])
        for queue, offset in sorted(start.items())
        if end.get(queue, offset) > offset
    ]


def ranges_cut(start: Offsets, end: Offsets) -> list[QueueRange]:
    """Return what lies between two positions where the second one comes before the first, sorted.

    Their broker lost these messages after they had been read, and gives their offsets again.
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
        ranges: not empty ones, one a queue.
        min_partitions: about how many there are to be at least; small ranges stay whole.
        max_records: most messages of one.

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
    """Share a limit among queues by what each has waiting; never more than the limit in all.

    A queue whose share is less than one gets its turn: no queue waits for ever.

    Args:
        limit: what may be taken in all.
        sizes: what each queue has.
        turn: counts up from trigger to trigger.

    Returns:
        What to take of each queue that has something.
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
