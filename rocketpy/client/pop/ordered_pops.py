"""Ordered delivery of popped messages: one call of the handler at a time for each queue.

A broker gives a queue to one member, until all messages of the pop are acknowledged or visible
again. So when one of them is not acknowledged, the later ones of the same pop are given back and
not handled: the broker delivers them again behind it, once the delay of the failed one is over.

Source: ConsumeMessagePopOrderlyService, ConsumerOrderInfoManager (5.4.0).
"""

from collections import Counter, deque
from collections.abc import Callable
from itertools import chain

from rocketpy.client.callbacks.handlers import Invoke
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.dispatch.concurrent_service import (
    Chunk,
    ConcurrentService,
    Settlement,
)
from rocketpy.client.pop.invisible_messages import InvisibleMessages
from rocketpy.client.pop.popped_message import PoppedMessage
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.runtime.clock import Clock

Pop = deque[Chunk[PoppedMessage]]
"""Chunks of one queue that were popped together and are not handled yet."""


class OrderedPops(ConcurrentService[PoppedMessage]):
    """Calls a handler with the popped messages of each queue in order; queues run concurrently.

    Args:
        invoke: calls the user's handler.
        concurrency: number of queues that are handled at the same time.
        batch: most messages of one queue in one call.
        stats: counts outcomes.
        clock: measures the time a handler takes.
        leases: of the messages.
        return_soon: makes a message visible again at once.
    """

    def __init__(
        self,
        invoke: Invoke,
        *,
        concurrency: int,
        batch: int,
        stats: ConsumeStats,
        clock: Clock,
        leases: InvisibleMessages,
        return_soon: Callable[[PoppedMessage], None],
    ) -> None:
        super().__init__(invoke, concurrency=concurrency, batch=batch, stats=stats, clock=clock)
        self._leases = leases
        self._return = return_soon
        # A queue with an entry has one chunk in the line or at a worker; the others wait here.
        self._queues: dict[MessageQueue, deque[Pop]] = {}
        # Deliveries without a call of the handler, by queue offset; for messages that come again.
        self._unhandled: dict[MessageQueue, Counter[int]] = {}

    @property
    def waiting(self) -> list[PoppedMessage]:
        """Messages that no worker has taken."""
        chunks = chain.from_iterable(chain.from_iterable(self._queues.values()))
        return [*super().waiting, *(message for chunk in chunks for message in chunk.messages)]

    def halt(self) -> list[PoppedMessage]:
        """See `ConsumeService.halt`."""
        waiting = self.waiting
        super().halt()
        self._queues.clear()
        return waiting

    def deliver(self, settlement: Settlement[PoppedMessage], messages: list[PoppedMessage]) -> None:
        """Put the messages of one pop, split by queue and into chunks, behind earlier pops."""
        by_queue: dict[MessageQueue, list[PoppedMessage]] = {}
        for message in messages:
            by_queue.setdefault(message.queue, []).append(message)
        for queue, popped in by_queue.items():
            self._correct_retries(queue, popped)
            pops = self._queues.get(queue)
            is_free = pops is None
            if pops is None:
                pops = self._queues[queue] = deque()
            # Separate from the pop before: a queue is popped again beside one only when its time is
            # over, and then begins with the same messages.
            pops.append(deque(self._chunks(settlement, popped)))
            if is_free:
                self._continue(queue)

    def _correct_retries(self, queue: MessageQueue, messages: list[PoppedMessage]) -> None:
        """Subtract deliveries without a call of the handler from the broker's count.

        Otherwise a message behind one that failed often would become a dead letter at its first
        failure.
        """
        unhandled = self._unhandled.pop(queue, None)
        if unhandled is None:
            return
        again = Counter({each.offset: unhandled[each.offset] for each in messages})
        for message in messages:
            message.retries = max(0, message.retries - again[message.offset])
            message.ext.reconsume_times = message.retries
        if again := +again:  # without zeros
            self._unhandled[queue] = again

    def _continue(self, queue: MessageQueue) -> None:
        """Put the next chunk of a queue in the line."""
        pops = self._queues.get(queue)
        if pops is None:  # halted
            return
        while pops and not pops[0]:
            pops.popleft()
        if pops:
            self._workers.line.add([pops[0].popleft()])
        else:
            del self._queues[queue]

    async def _release(self, chunk: Chunk[PoppedMessage], error: BaseException) -> None:
        try:
            await super()._release(chunk, error)
        finally:
            if not self._workers.line.is_halted:
                self._return_rest(chunk.messages[0].queue, [])
                self._continue(chunk.messages[0].queue)

    async def _handle(self, chunk: Chunk[PoppedMessage]) -> None:
        queue = chunk.messages[0].queue
        leases = self._leases.leases_of(chunk.messages)
        # After the time of one is over, the broker delivers from that one on again.
        is_held = len(leases) == len(chunk.messages)
        if is_held:
            await super()._handle(chunk)
        # After a halt, the close nacks unhandled messages and finishes the acks.
        if self._workers.line.is_halted:
            return
        if not is_held or not all(lease.is_done for lease in leases):
            self._return_rest(queue, [] if is_held else chunk.messages)
        self._continue(queue)

    def _return_rest(self, queue: MessageQueue, messages: list[PoppedMessage]) -> None:
        """Return messages, and the rest of their pop, to the broker, which delivers them again."""
        pop = self._queues[queue][0]
        rest = [*messages, *(message for chunk in pop for message in chunk.messages)]
        pop.clear()
        if rest:
            self._unhandled.setdefault(queue, Counter()).update(each.offset for each in rest)
        for message in rest:
            self._return(message)
