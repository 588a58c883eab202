"""Queue locks for ordered consumption: checks of topics and members.

Source: AdminBrokerProcessor.lockBatchMQ, unlockBatchMQ (5.4.0).
"""

from collections.abc import Iterable

from rocketpy.broker.clients.client_registry import ConsumerTable
from rocketpy.broker.clients.queue_locks import QueueLocks
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.runtime.clock import Clock


class QueueLocking:
    """Grants locks of existing queues to connected members of a group.

    An unknown client gets no lock: it could not pull either. Its next heartbeat registers it.

    Args:
        locks: the locks.
        topics: topic table.
        consumers: connected consumers.
        clock: time.
    """

    def __init__(
        self, locks: QueueLocks, topics: TopicTable, consumers: ConsumerTable, clock: Clock
    ) -> None:
        self._locks = locks
        self._topics = topics
        self._consumers = consumers
        self._clock = clock

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Acquire or renew locks; returns the queues that the client holds now."""
        members = self._consumers.group(group)
        member = None if members is None else members.find_client(client_id)
        if members is None or member is None:
            return []
        # One time for all queues of the request, so that their locks expire together.
        now_ms = self._clock.monotonic_ms()
        held = []
        for queue in queues:
            topic = self._topics.get(queue.topic)
            # The names of the tables are kept, not those of the request, which would stay alive
            # as separate strings for each lock.
            if (
                topic is not None
                and 0 <= queue.queue_id < topic.read_queue_nums
                and self._locks.lock(
                    members.name, topic.topic_name, queue.queue_id, member.client_id, now_ms
                )
            ):
                held.append(queue)
        return held

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Release locks; locks of other clients stay."""
        self._locks.unlock(group, ((one.topic, one.queue_id) for one in queues), client_id)
