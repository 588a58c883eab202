"""Process queue, and services that deliver its messages."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.dispatch.concurrent_service import ConcurrentService
from rocketpy.client.consumer.dispatch.iterator_service import PulledIterator
from rocketpy.client.consumer.pulling.process_queue import Limits, ProcessQueue
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Rejection
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from rocketpy.testing.sim_clock import SimClock
from tests.unit.client.received_cases import received

Handle = Callable[[list[ReceivedMessage]], Coroutine[Any, Any, Any]]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Kit:
    def __init__(self) -> None:
        self.clock = SimClock()
        self.stats = ConsumeStats(self.clock)
        self.queue = ProcessQueue(
            MessageQueue("t", "b", 0), Limits(), give_back=self.give_back, clock=self.clock
        )
        self.given_back: list[tuple[int, int]] = []
        self.rejections: list[Rejection] = []

    def messages(self, *offsets: int) -> list[ReceivedMessage]:
        pulled = [received(self.queue, MessageExt(topic="t", queue_offset=one)) for one in offsets]
        self.queue.put(pulled)
        return pulled

    async def give_back(
        self, queue: ProcessQueue, message: ReceivedMessage, rejection: Rejection
    ) -> None:
        assert queue is self.queue
        self.given_back.append((message.offset, rejection.delay_level))
        self.rejections.append(rejection)

    def handlers(
        self, invoke: Handle, *, concurrency: int = 1, batch: int = 1
    ) -> ConcurrentService[ReceivedMessage]:
        return ConcurrentService(
            invoke,
            concurrency=concurrency,
            batch=batch,
            stats=self.stats,
            clock=self.clock,
        )

    def iterator(self) -> PulledIterator:
        return PulledIterator(stats=self.stats, clock=self.clock, group="g")

    @property
    def rates(self) -> tuple[float, float]:
        """Messages that were handled well and badly."""
        self.clock.advance(1_000)
        status = self.stats.report("t")
        return status.consume_ok_tps, status.consume_failed_tps
