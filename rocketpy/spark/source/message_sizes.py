"""Offsets up to a limit of bytes, from the message sizes in consume queues.

An entry of a consume queue has the size of its message, so the bytes of a range are known without
reading messages. Brokers return entries on request (321). They are requested page by page, until
the limit is reached.

Source: AdminBrokerProcessor.queryConsumeQueue (5.4.0).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from rocketpy.admin.servers import Servers
from rocketpy.proto.bodies.stats import QueryConsumeQueueResponseBody
from rocketpy.proto.headers.admin import QueryConsumeQueueRequestHeader
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.spark.planning import shared_limit

PAGE: Final = 1_000

Sizes = Callable[[MessageQueue, int, int], Awaitable[list[int]]]
"""Returns the stored sizes of messages from an offset, at most a number of them."""


def sizes_at(servers: Servers, addresses: Mapping[str, str]) -> Sizes:
    """Return a function that requests sizes from brokers.

    Args:
        servers: of the cluster.
        addresses: of each broker, by name.
    """

    async def ask(queue: MessageQueue, start: int, count: int) -> list[int]:
        header = QueryConsumeQueueRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, index=start, count=count
        )
        code = RequestCode.QUERY_CONSUME_QUEUE
        response = await servers.ask(addresses[queue.broker_name], code, header)
        entries = QueryConsumeQueueResponseBody.decode(response.body).queue_data
        return [each.physic_size for each in entries]

    return ask


async def within_bytes(
    limit: int,
    begins: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
    sizes: Sizes,
    turn: int,
) -> dict[MessageQueue, int]:
    """Divide a limit of bytes among queues in proportion to their backlog.

    Args:
        limit: stored bytes of all queues together.
        begins: start of each queue.
        ends: end of each of these queues.
        sizes: of messages.
        turn: number of the trigger.

    Returns:
        An end offset for each queue. The messages before the ends have at most `limit` bytes,
        unless the first one alone is larger.
    """
    readers = {
        queue: _Reader(queue, begin, ends[queue], sizes)
        for queue, begin in begins.items()
        if ends[queue] > begin
    }
    if not readers:
        return dict(begins)
    await asyncio.gather(*(each.look() for each in readers.values()))
    left = limit - _step_of_one(limit, readers, turn)
    waiting = {queue: each.estimate for queue, each in readers.items() if not each.is_done}
    shares = shared_limit(left, waiting, turn) if left > 0 else {}
    used = await asyncio.gather(
        *(readers[queue].advance(min(left, share)) for queue, share in shares.items())
    )
    left -= sum(used)
    order = sorted(readers)
    first = turn % len(order)
    for queue in [*order[first:], *order[:first]]:
        left -= await readers[queue].advance(left)
    return {**begins, **{queue: each.position for queue, each in readers.items()}}


def _step_of_one(limit: int, readers: "Mapping[MessageQueue, _Reader]", turn: int) -> int:
    """Advance one queue with a next message larger than its share; return its bytes.

    Such queues take turns. Otherwise queues with a larger backlog would use the limit in every
    trigger, and a queue with a large message would starve until they are empty.
    """
    shares = shared_limit(limit, {queue: each.estimate for queue, each in readers.items()}, turn)
    stuck = [queue for queue in sorted(readers) if readers[queue].next_size > shares.get(queue, 0)]
    return readers[stuck[turn % len(stuck)]].step() if stuck else 0


class _Reader:
    """Cursor over the message sizes of one queue."""

    def __init__(self, queue: MessageQueue, begin: int, end: int, sizes: Sizes) -> None:
        self._queue = queue
        self._end = end
        self._sizes = sizes
        self._page: list[int] = []
        self.position = begin

    async def look(self) -> None:
        """Load the sizes of the next messages, if there are more."""
        if not self._page and self.position < self._end:
            count = min(PAGE, self._end - self.position)
            page = await self._sizes(self._queue, self.position, count)
            # Entries that a broker cannot return count as zero bytes.
            self._page = page[:count] + [0] * (count - len(page))

    @property
    def estimate(self) -> int:
        """Return the estimated bytes of the backlog, by the average of the page; at least one."""
        average = sum(self._page) / max(1, len(self._page))
        return max(1, int(average * (self._end - self.position)))

    @property
    def next_size(self) -> int:
        """Size of the next message; 0 without one."""
        return self._page[0] if self._page else 0

    @property
    def is_done(self) -> bool:
        """Whether all messages were passed."""
        return self.position >= self._end

    def step(self) -> int:
        """Advance by one message of any size; return its bytes."""
        self.position += 1
        return self._page.pop(0)

    async def advance(self, budget: int) -> int:
        """Advance within a budget of bytes; return the used bytes."""
        used = 0
        while self.position < self._end:
            await self.look()
            taken = 0
            for size in self._page:
                if used + size > budget:
                    break
                used += size
                taken += 1
            self.position += taken
            self._page = self._page[taken:]
            if self._page:
                break
        return used
