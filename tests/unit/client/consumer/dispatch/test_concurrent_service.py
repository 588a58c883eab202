"""Delivery of messages to handlers, and what follows from their outcome."""

import asyncio
import contextlib
from contextvars import ContextVar

import pytest

from rocketpy.client.callbacks.failure_log import FailureLog
from rocketpy.client.consumer.dispatch.concurrent_service import run_handler
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Retry, ToDLQ
from tests.unit.client.consumer.dispatch.delivery_kit import Kit, turns


class Stop(BaseException):
    """An exception outside of Exception, as test frameworks raise it."""


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
        (Stop("no Exception"), 0),
        (GeneratorExit(), 0),
        (ExceptionGroup("in a TaskGroup", [OSError(), ToDLQ("never")]), -1),
        (ExceptionGroup("g", [ExceptionGroup("h", [Retry(delay_level=5)])]), 5),
        (ExceptionGroup("g", [OSError()]), 0),
    ],
    ids=repr,
)
async def test_handler_exception_selects_the_delay_level(
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


async def test_context_variable_of_a_handler_is_not_seen_by_the_next_message() -> None:
    kit = Kit()
    order: ContextVar[int] = ContextVar("order", default=-1)
    seen: list[tuple[int, int]] = []

    async def handle(messages: list[ReceivedMessage]) -> None:
        before = order.get()
        order.set(messages[0].offset)
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        seen.append((before, order.get()))
        if messages[0].offset == 1:
            raise ValueError

    service = kit.handlers(handle)
    service.deliver(kit.queue, kit.messages(0, 1, 2))
    await turns()
    await turns()
    assert seen == [(-1, 0), (-1, 1), (-1, 2)]
    assert kit.given_back == [(1, 0)]
    await service.stop(1)


async def test_concurrency_limits_handlers_at_the_same_time() -> None:
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


async def test_stop_waits_for_the_running_handler_and_starts_no_other() -> None:
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


async def test_handler_that_outlasts_the_stop_is_cancelled_and_nothing_given_back() -> None:
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


@pytest.mark.parametrize("error", [LookupError(), Stop(), asyncio.CancelledError()], ids=repr)
async def test_worker_continues_after_an_unexpected_failure(error: BaseException) -> None:
    kit, seen = Kit(), list[int]()

    async def handle(messages: list[ReceivedMessage]) -> None:
        seen.append(messages[0].offset)

    def fail_once(topic: str, count: int, handle_ms: int, *, ok: bool) -> None:
        del kit.stats.handled
        raise error

    kit.stats.handled = fail_once  # type: ignore[method-assign]
    service = kit.handlers(handle)
    service.deliver(kit.queue, kit.messages(0, 1))
    await turns()
    assert seen == [0, 1]
    assert kit.given_back == [(0, 0)]
    await service.stop(1)


async def test_worker_whose_coroutine_is_closed_does_not_continue() -> None:
    kit = Kit()

    async def handle(messages: list[ReceivedMessage]) -> None:
        await asyncio.Event().wait()

    working = run_handler(handle, kit.messages(0), FailureLog(kit.clock))
    working.send(None)
    working.close()  # as Python does with the task of a loop that has ended
    assert kit.given_back == []
