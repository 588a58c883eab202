"""How messages reach a handler or an iterator, and what becomes of their outcome."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.dispatch.concurrent_service import ConcurrentService
from rocketpy.client.consumer.dispatch.iterator_service import PulledIterator
from rocketpy.client.consumer.pulling.process_queue import Limits, ProcessQueue
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Retry, ToDLQ
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from rocketpy.testing.sim_clock import SimClock
from tests.unit.client.received_cases import received

Handle = Callable[[list[ReceivedMessage]], Awaitable[Any]]


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

    def messages(self, *offsets: int) -> list[ReceivedMessage]:
        pulled = [received(self.queue, MessageExt(topic="t", queue_offset=one)) for one in offsets]
        self.queue.put(pulled)
        return pulled

    async def give_back(
        self, queue: ProcessQueue, message: ReceivedMessage, delay_level: int
    ) -> None:
        assert queue is self.queue
        self.given_back.append((message.offset, delay_level))

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
        return PulledIterator(stats=self.stats, clock=self.clock)

    @property
    def rates(self) -> tuple[float, float]:
        """Messages that were handled well and badly."""
        self.clock.advance(1_000)
        status = self.stats.report("t")
        return status.consume_ok_tps, status.consume_failed_tps


async def test_handlers_get_batches_in_order_and_finish_their_messages() -> None:
    kit = Kit()
    seen: list[list[int]] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        seen.append([message.offset for message in messages])
        kit.clock.advance(7)

    service = kit.handlers(handle, batch=2)
    service.deliver(kit.queue, kit.messages(0, 1, 2))
    await turns()
    assert seen == [[0, 1], [2]]
    assert kit.queue.messages == {}
    assert kit.queue.last_consume_ms == kit.clock.time_ms()
    assert kit.given_back == []
    await service.stop(1)


@pytest.mark.parametrize(
    ("outcome", "delay_level"),
    [
        (ValueError("no"), 0),
        (Retry(delay_level=5), 5),
        (ToDLQ("never"), -1),
        (asyncio.CancelledError(), 0),
    ],
    ids=repr,
)
async def test_what_a_handler_raises_says_how_it_is_delivered_again(
    outcome: BaseException, delay_level: int
) -> None:
    kit = Kit()
    handled: list[int] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        handled.append(messages[0].offset)
        if len(handled) == 1:
            raise outcome

    service = kit.handlers(handle)
    service.deliver(kit.queue, kit.messages(0, 1))
    await turns()
    assert kit.given_back == [(0, delay_level)]
    assert handled == [0, 1], "the worker goes on"
    assert list(kit.queue.messages) == [0], "giving back finishes it, nobody else"
    await service.stop(1)


async def test_as_many_handlers_run_at_once_as_are_allowed() -> None:
    kit = Kit()
    running: set[int] = set()
    gate = asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        running.add(messages[0].offset)
        await gate.wait()

    service = kit.handlers(handle, concurrency=2)
    await turns()
    service.deliver(kit.queue, kit.messages(0, 1, 2))
    await turns()
    assert running == {0, 1}
    gate.set()
    await turns()
    assert running == {0, 1, 2}
    await service.stop(1)


async def test_messages_of_a_queue_given_up_are_not_handled() -> None:
    kit = Kit()
    seen: list[int] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        seen.append(messages[0].offset)

    service = kit.handlers(handle)
    service.deliver(kit.queue, kit.messages(0, 1))
    kit.queue.drop()
    await turns()
    assert seen == []
    await service.stop(1)


async def test_a_stop_lets_the_handler_in_hand_finish_and_begins_no_other() -> None:
    kit = Kit()
    began = asyncio.Event()
    gate = asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        began.set()
        await gate.wait()

    service = kit.handlers(handle)
    service.deliver(kit.queue, kit.messages(0, 1))
    await began.wait()
    stop = asyncio.create_task(service.stop(60))
    await turns()
    assert not stop.done()
    gate.set()
    await stop
    assert list(kit.queue.messages) == [1]


async def test_a_handler_that_outlasts_the_stop_is_cancelled_and_nothing_given_back() -> None:
    kit = Kit()
    ended: list[str] = []
    began = asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    service = kit.handlers(handle)
    service.deliver(kit.queue, kit.messages(0))
    await began.wait()
    await service.stop(0)
    assert ended == ["cancelled"]
    assert kit.given_back == []
    assert list(kit.queue.messages) == [0], "another member gets it"


async def test_a_message_of_an_iterator_is_done_when_the_next_is_asked_for() -> None:
    kit = Kit()
    service = kit.iterator()
    service.deliver(kit.queue, kit.messages(0, 1))
    first = await service.next()
    assert first is not None
    assert kit.queue.started_ms(first) is not None
    assert list(kit.queue.messages) == [0, 1]
    service.done(first)
    assert list(kit.queue.messages) == [1]
    service.done(first)
    assert kit.rates == (1.0, 0.0), "counted once"


async def test_what_was_acked_or_given_up_is_not_counted_again() -> None:
    kit = Kit()
    service = kit.iterator()
    service.deliver(kit.queue, kit.messages(0, 1, 2))
    acked, dropped = await service.next(), await service.next()
    assert acked is not None
    assert dropped is not None
    await acked.ack()
    service.done(acked)
    kit.queue.drop()
    service.done(dropped)
    assert kit.rates == (0.0, 0.0)
    await service.stop(0)
    assert await service.next() is None, "the rest belongs to a queue that was given up"


async def test_a_cancelled_iteration_leaves_its_message_to_another() -> None:
    kit = Kit()
    service = kit.iterator()
    one, two = asyncio.create_task(service.next()), asyncio.create_task(service.next())
    await turns()
    service.deliver(kit.queue, kit.messages(0))
    one.cancel()
    await turns()
    assert one.cancelled()
    assert two.done()
    message = two.result()
    assert message is not None
    assert message.offset == 0


async def test_a_failure_is_raised_once_and_a_stop_ends_every_iteration() -> None:
    kit = Kit()
    service = kit.iterator()
    waiting = [asyncio.create_task(service.next()) for _ in range(3)]
    await turns()
    service.fail(ValueError("broken"))
    await turns()
    assert [task.done() for task in waiting] == [True, False, False]
    with pytest.raises(ValueError, match="broken"):
        waiting[0].result()
    await service.stop(0)
    assert await asyncio.gather(*waiting[1:]) == [None, None]
