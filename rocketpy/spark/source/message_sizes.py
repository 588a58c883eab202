"""How far a number of bytes reaches: the sizes of messages, as consume queues have them.

A consume queue's entry names the size of its message, so the bytes of a range are known without
reading one. Brokers show entries on request (321); they are asked for page by page, until the
limit is reached.

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
"""Returns the bytes of messages as stored, from an offset on, at most so many of them."""


def sizes_at(servers: Servers, addresses: Mapping[str, str]) -> Sizes:
    """Return a function that asks brokers.

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
    """Return how far a limit reaches, shared among queues by the bytes they have waiting.

    Args:
        limit: bytes as stored, of all queues together.
        begins: where each queue begins.
        ends: where it ends, of the same queues.
        sizes: of messages.
        turn: counts up from trigger to trigger.

    Returns:
        An offset for each queue. The messages before them have at most `limit` bytes, unless the
        very first one has more.
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
    """Let one queue whose next message exceeds its share take it; return its bytes.

    Such queues take turns: else those with more waiting would use up the limit in every trigger,
    and a queue with a large message would stand still as long as they have anything.
    """
    shares = shared_limit(limit, {queue: each.estimate for queue, each in readers.items()}, turn)
    stuck = [queue for queue in sorted(readers) if readers[queue].next_size > shares.get(queue, 0)]
    return readers[stuck[turn % len(stuck)]].step() if stuck else 0


class _Reader:
    """Goes through the sizes of one queue."""

    def __init__(self, queue: MessageQueue, begin: int, end: int, sizes: Sizes) -> None:
        self._queue = queue
        self._end = end
        self._sizes = sizes
        self._page: list[int] = []
        self.position = begin

    async def look(self) -> None:
        """Have the sizes of the next messages, when there are more."""
        if not self._page and self.position < self._end:
            count = min(PAGE, self._end - self.position)
            page = await self._sizes(self._queue, self.position, count)
            # Entries that a broker cannot show count for nothing.
            self._page = page[:count] + [0] * (count - len(page))

    @property
    def estimate(self) -> int:
        """About how many bytes there are, by the average of the page; at least one."""
        average = sum(self._page) / max(1, len(self._page))
        return max(1, int(average * (self._end - self.position)))

    @property
    def next_size(self) -> int:
        """Bytes of the next message; 0 without one."""
        return self._page[0] if self._page else 0

    @property
    def is_done(self) -> bool:
        """Whether there are no more messages."""
        return self.position >= self._end

    def step(self) -> int:
        """Go on by one message, whatever its size; returns its bytes."""
        self.position += 1
        return self._page.pop(0)

    async def advance(self, budget: int) -> int:
        """Go on as far as a budget reaches; returns what was used."""
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
