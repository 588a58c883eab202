"""Recognition of queues that are others than those a stream or a plan saw.

A topic that is deleted and created again assigns the same offsets to other messages, and so does a
broker that lost its last messages. Planners therefore store the last message that they saw in each
queue: its offset and its store time. A queue with another message there is another queue.
"""

import asyncio
from collections.abc import Collection, Mapping

from rocketpy.client.cluster.broker_api import PullStatus
from rocketpy.errors import BrokerError
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.record import record_store_timestamp_ms
from rocketpy.proto.record.sys_flag import PULL_SUBSCRIPTION
from rocketpy.proto.subscription import EXPRESSION_TAG, SUB_ALL
from rocketpy.spark.connection import Connection
from rocketpy.spark.offsets import LastSeen
from rocketpy.spark.planning import Offsets
from rocketpy.spark.source.fetch import PullApi
from rocketpy.spark.source.snapshot import Ends, Snapshot


async def stored_ms(
    api: PullApi, address: str, queue: MessageQueue, offset: int, *, group: str, timeout_ms: int
) -> int | None:
    """Return the store time of the message at an offset, ms; None if there is none.

    Args:
        api: sends the pull.
        address: of the queue's broker.
        queue: the queue.
        offset: of the message.
        group: consumer group of the pull.
        timeout_ms: of the pull.

    Raises:
        ClientError: the broker does not answer.
    """
    header = PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=SUB_ALL,
        sub_version=0,
        expression_type=EXPRESSION_TAG,
        bname=queue.broker_name,
    )
    try:
        result = await api.pull(address, header, timeout_ms)
    except BrokerError as error:
        if error.retriable:
            raise
        return None  # the topic was deleted meanwhile
    if result.status is not PullStatus.FOUND or not result.body:
        return None
    return record_store_timestamp_ms(result.body, 0)


def is_shown_by_ends(seen: LastSeen, ends: Ends) -> bool | None:
    """Return whether a queue is another one, from its ends; None if they do not show it."""
    if ends.last_ms <= 0:
        return None
    if seen.offset < 0 or ends.high <= seen.offset:
        # Without messages after the last one seen, the queue is the same, perhaps at a slave.
        is_later = ends.last_ms > seen.stored_ms
        return None if is_later and seen.offset < 0 else is_later
    if ends.high == seen.offset + 1:
        return ends.last_ms != seen.stored_ms
    return None


async def other_queues(
    connection: Connection,
    snapshot: Snapshot,
    position: Offsets,
    seen: Mapping[MessageQueue, LastSeen],
    *,
    group: str,
    timeout_ms: int,
) -> set[MessageQueue]:
    """Return the queues that are not those of the position.

    Only queues with messages after the last one seen are asked for that message.

    Args:
        connection: to the cluster.
        snapshot: of the queues.
        position: of the stream.
        seen: the last message seen in each queue.
        group: consumer group of pulls.
        timeout_ms: of a request.
    """
    found: set[MessageQueue] = set()
    doubtful: list[tuple[MessageQueue, int]] = []
    for queue in sorted(position.keys() & seen.keys() & snapshot.ends.keys()):
        last, ends = seen[queue], snapshot.ends[queue]
        shown = is_shown_by_ends(last, ends)
        if shown:
            found.add(queue)
        at = last.offset if last.offset >= 0 else position[queue] - 1
        if shown is None and ends.low <= at < ends.high:  # otherwise the message has expired
            doubtful.append((queue, at))
    times = await asyncio.gather(
        *(
            stored_ms(
                connection.api,
                snapshot.brokers[queue.broker_name][min(snapshot.brokers[queue.broker_name])],
                queue,
                offset,
                group=group,
                timeout_ms=timeout_ms,
            )
            for queue, offset in doubtful
        )
    )
    for (queue, _), time_ms in zip(doubtful, times, strict=True):
        if time_ms is not None and is_other(seen[queue], time_ms):
            found.add(queue)
    return found


def is_other(seen: LastSeen, time_ms: int) -> bool:
    """Return whether the store time of the message last seen shows another queue.

    Args:
        seen: the message.
        time_ms: of the message at its offset; without an offset that of an earlier message.
    """
    return time_ms > seen.stored_ms if seen.offset < 0 else time_ms != seen.stored_ms


def seen_after(
    seen: Mapping[MessageQueue, LastSeen], snapshot: Snapshot, others: Collection[MessageQueue]
) -> dict[MessageQueue, LastSeen]:
    """Return the last messages seen, with those of a snapshot.

    A snapshot with fewer messages than were seen (of a slave that lags behind) changes nothing.

    Args:
        seen: until now.
        snapshot: of the queues.
        others: queues for which `seen` is no longer true.
    """
    found = {queue: last for queue, last in seen.items() if queue not in others}
    for queue, ends in snapshot.ends.items():
        last = LastSeen(ends.high - 1, ends.last_ms)
        if ends.last_ms > 0 and (queue not in found or last.offset >= found[queue].offset):
            found[queue] = last
    return found
