"""What a stream has waiting: its position beside what there is, decided from values alone.

A queue's state, as a trigger sees it:

    the queue                                      what the trigger does
    has messages after the position                offers them
    is new                                         begins at its earliest: durable first, read next
    begins after the position (expired)            the messages between are lost
    ends before the position (cut, or made again)  what is missing is lost; goes on with what was
                                                   stored since, at its end when that is unknown
    is not served any more, and has messages left  those are lost
    was deleted with its topic                     what came after the position is lost
    is on a broker that nobody reaches             waits
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import QueueRange, queue_range
from rocketpy.spark.planning import Offsets
from rocketpy.spark.source.snapshot import Snapshot

Loss = tuple[QueueRange, str]


@dataclass(frozen=True, slots=True)
class Waiting:
    """What may be read from a position on.

    Attributes:
        position: where the stream is, with new queues at their earliest, and cut ones where they go
            on.
        begins: the first offset that is there, by queue, where something waits.
        ends: the offset after the last that may be read, of the same queues.
        lost: what is gone, and why.
    """

    position: dict[MessageQueue, int]
    begins: dict[MessageQueue, int] = field(default_factory=dict)
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    lost: list[Loss] = field(default_factory=list)

    @property
    def sizes(self) -> dict[MessageQueue, int]:
        """How many offsets wait in each queue."""
        return {queue: self.ends[queue] - begin for queue, begin in self.begins.items()}


def what_waits(
    position: Offsets,
    snapshot: Snapshot,
    until: Offsets | None = None,
    resumed: Offsets | None = None,
) -> Waiting:
    """Return what may be read now.

    Args:
        position: where the stream is.
        snapshot: what there is.
        until: read no further; queues that it does not have are left for later. None: no such end.
        resumed: where to go on in queues that end before the position; at their end without it.
    """
    found = Waiting(dict(position))
    for queue, (low, high, _) in sorted(snapshot.ends.items()):
        if until is not None and queue not in until:
            continue
        start = position.get(queue)
        if start is None:
            found.position[queue] = low
            continue
        if start > high:
            resume = (resumed or {}).get(queue, high)
            reason = (
                f"the queue ends at {high}: its broker lost messages, or its topic was made again; "
                f"whoever skips this goes on at {resume}"
            )
            found.lost.append((queue_range(queue, high, start), reason))
            found.position[queue] = resume
            continue
        end = high if until is None else min(high, until[queue])
        if start < min(low, end):
            gone = queue_range(queue, start, min(low, end))
            found.lost.append((gone, f"the queue begins at {low}"))
        begin = max(start, low)
        if begin < end or start < end:
            found.begins[queue] = min(begin, end)
            found.ends[queue] = end
    return found


def cut_queues(position: Offsets, snapshot: Snapshot) -> list[MessageQueue]:
    """Return the queues that end before the position."""
    return [
        queue
        for queue, offset in position.items()
        if queue in snapshot.ends and offset > snapshot.ends[queue].high
    ]


def without_queue(
    position: Offsets, snapshot: Snapshot, brokers: Collection[str]
) -> list[MessageQueue]:
    """Return the queues that nobody may read any more, although their broker is there.

    Args:
        position: where the stream is.
        snapshot: what there is.
        brokers: names of those that are registered and answer; queues of others only wait.
    """
    return [
        queue
        for queue in sorted(position)
        if queue not in snapshot.ends and queue.broker_name in brokers
    ]


def lost_with_their_queue(
    position: Offsets,
    gone: Collection[MessageQueue],
    topics: Collection[str],
    highs: Mapping[MessageQueue, int],
) -> list[Loss]:
    """Return what is lost with queues that nobody may read any more.

    Args:
        position: where the stream is.
        gone: those queues.
        topics: those that there still are.
        highs: where each of the queues ends, or ended when it was last seen; unknown without.
    """
    lost: list[Loss] = []
    for queue in sorted(gone):
        start = position[queue]
        high = highs.get(queue, start)
        if queue.topic not in topics:
            what = queue_range(queue, start, max(start, high))
            lost.append((what, "the topic was deleted; whatever came later is gone, too"))
        elif high > start:  # otherwise it was read to its end before it went
            reason = "nobody may read the queue any more (readQueueNums was lowered)"
            lost.append((queue_range(queue, start, high), reason))
    return lost
