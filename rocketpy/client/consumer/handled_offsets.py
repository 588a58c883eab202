"""Offsets that a pull consumer commits: those of handled messages, and where it began.

Source: DefaultLitePullConsumerImpl.commitAll, AssignedMessageQueue (5.4.0).
"""

from collections.abc import Callable, Iterable, Mapping

from rocketpy.client.consumer.dispatch.polled_messages import PolledMessages
from rocketpy.client.consumer.offset_store import FirstOffsets, OffsetStore
from rocketpy.client.consumer.pulling.process_queue import ProcessQueue
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.message_queue import MessageQueue


class HandledOffsets:
    """Offsets of one pull consumer that are to be committed, and those that are.

    Args:
        group: for the log.
        store: where they go.
        polled: messages and positions of the consumer.
        delivered: returns the messages that callers have not handled yet.
        queues: those that are read; messages that the filter skips have no position.

    Attributes:
        first: offsets at which it began in queues without a stored one.
    """

    def __init__(
        self,
        group: str,
        store: OffsetStore,
        polled: PolledMessages,
        delivered: Callable[[], Iterable[ReceivedMessage]],
        queues: Mapping[MessageQueue, ProcessQueue],
    ) -> None:
        self.first: FirstOffsets = FirstOffsets(group, store)
        self._store = store
        self._polled = polled
        self._delivered = delivered
        self._queues = queues
        self._committed: dict[MessageQueue, int] = {}
        self._sought: set[MessageQueue] = set()  # an exception after a seek must not commit it

    @property
    def has_work(self) -> bool:
        """Whether there is something to commit."""
        return bool(self._settled() or self.first)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Note a new position, which is not committed before `commit_sought`."""
        self._polled.positions[queue] = offset
        self._sought.add(queue)
        self._committed.pop(queue, None)

    def commit_sought(self) -> None:
        """Let the next commit store the positions of seeks, too."""
        self._sought.clear()

    def drop(self, queue: MessageQueue) -> None:
        """Forget a queue that was given up."""
        self.first.drop(queue)
        self._polled.positions.pop(queue, None)
        self._sought.discard(queue)
        self._committed.pop(queue, None)

    async def commit(self) -> None:
        """Store the offsets of handled messages; raises RocketPyError."""
        await self.first.commit(self._reached())
        offsets = self._settled()
        await self._store.save(offsets, final=True)
        # A seek during the request moved the position: its offset is still to be committed.
        reached = self._reached()
        self._committed.update({each: at for each, at in offsets.items() if each in reached})

    async def commit_one(self, queue: MessageQueue) -> None:
        """Store the offset of a queue that is released; raises RocketPyError."""
        await self.first.commit(self._reached())
        settled = self._settled().get(queue)
        if settled is not None:
            await self._store.save({queue: settled}, final=True)

    def _settled(self) -> dict[MessageQueue, int]:
        """Return the offsets to commit that are not committed."""
        return {
            queue: offset
            for queue, offset in self._polled.offsets(self._delivered(), self._reached()).items()
            if self._committed.get(queue) != offset and queue not in self._sought
        }

    def _reached(self) -> dict[MessageQueue, int]:
        """Return the positions, beyond what the filter skipped behind the last message."""
        found = dict(self._polled.positions)
        for queue, entry in self._queues.items():
            skipped_end = entry.skipped_end
            if skipped_end is not None:
                found[queue] = max(skipped_end, found.get(queue, 0))
        return found
