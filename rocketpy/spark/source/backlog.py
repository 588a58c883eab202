"""Backlog of a stream: compares its position with a snapshot of the queues, from values alone.

States of a queue in a trigger:

    queue                                          effect
    has messages after the position                they are read
    is new                                         starts at its earliest: durable first, read next
    begins after the position (expired)            the messages between are lost
    ends before the position (cut, or recreated)   the missing messages are lost; it resumes with
                                                   those stored since, or at its end if unknown
    has another message at the last offset seen    its messages are lost; it resumes with those
                                                   stored since
    is not served any more, but has messages       they are lost
    was deleted with its topic                     known messages after the position are lost
    is on an unreachable broker                    waits
    is on a broker whose master is away, and its   waits: the master may have the messages
    slave does not have the position, or it is new
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import LastSeen, QueueRange, queue_range
from rocketpy.spark.planning import Offsets
from rocketpy.spark.source.snapshot import Snapshot

Loss = tuple[QueueRange, str]


@dataclass(frozen=True, slots=True)
class Waiting:
    """Messages that may be read from a position.

    Attributes:
        position: position of the stream, with new queues at their earliest offset, and cut queues
            where they resume.
        begins: first available offset, by queue with a backlog.
        ends: offset after the last readable one, of the same queues.
        lost: lost ranges, and the reasons.
        lagging: queues that wait for a slave or its master.
    """

    position: dict[MessageQueue, int]
    begins: dict[MessageQueue, int] = field(default_factory=dict)
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    lost: list[Loss] = field(default_factory=list)
    lagging: list[MessageQueue] = field(default_factory=list)

    @property
    def sizes(self) -> dict[MessageQueue, int]:
        """Number of offsets in the backlog of each queue."""
        return {queue: self.ends[queue] - begin for queue, begin in self.begins.items()}


def what_waits(
    position: Offsets,
    snapshot: Snapshot,
    until: Offsets | None = None,
    resumed: Mapping[MessageQueue, int] | None = None,
    seen: Mapping[MessageQueue, LastSeen] | None = None,
) -> Waiting:
    """Return the backlog of a stream.

    Args:
        position: of the stream.
        snapshot: of the queues.
        until: end of the read; queues without an end are skipped. None: unlimited.
        resumed: offset at which queues resume that end before the position (default: their end),
            or that are others than before.
        seen: the last message seen in each queue.
    """
    resumed, seen = resumed or {}, seen or {}
    found = Waiting(dict(position))
    for queue, (low, high, _) in sorted(snapshot.ends.items()):
        if until is not None and queue not in until:
            continue
        start = position.get(queue)
        is_at_slave = queue.broker_name in snapshot.slaves
        if is_at_slave and (start is None or not low <= start <= high):
            found.lagging.append(queue)
            continue
        if start is None:
            found.position[queue] = low
            continue
        if start > high:
            resume = resumed.get(queue, high)
            reason = (
                f"the queue ends at {high}: its broker lost messages, or its topic was made again; "
                f"with skip the read resumes at {resume}"
            )
            found.lost.append((queue_range(queue, high, start), reason))
            found.position[queue] = resume
            continue
        if queue in resumed:
            resume = resumed[queue]
            end = max(start, seen[queue].offset + 1)
            reason = (
                "the queue has other messages now: its topic was made again, or its broker lost "
                f"messages; with skip the read resumes at {min(resume, start)}"
            )
            found.lost.append((queue_range(queue, resume, end), reason))
            if resume < start:
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
    """Return the queues that end before the position, without those at slaves, which may lag."""
    return [
        queue
        for queue, offset in position.items()
        if queue in snapshot.ends
        and queue.broker_name not in snapshot.slaves
        and offset > snapshot.ends[queue].high
    ]


def without_queue(
    position: Offsets, snapshot: Snapshot, brokers: Collection[str]
) -> list[MessageQueue]:
    """Return the queues that are no longer readable although their broker is reachable.

    Args:
        position: of the stream.
        snapshot: of the queues.
        brokers: names of registered brokers that answer; queues of others only wait.
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
    """Return the lost ranges of queues that are no longer readable.

    Args:
        position: of the stream.
        gone: those queues.
        topics: existing topics.
        highs: last known end of each queue; without an entry it was read to its end, as far as is
            known.
    """
    lost: list[Loss] = []
    for queue in sorted(gone):
        start = position[queue]
        high = highs.get(queue, start)
        if high <= start:  # it was read to its end before it disappeared
            continue
        if queue.topic not in topics:
            reason = "the topic was deleted"
        else:
            reason = "the queue is no longer readable (readQueueNums was lowered)"
        lost.append((queue_range(queue, start, high), reason))
    return lost
