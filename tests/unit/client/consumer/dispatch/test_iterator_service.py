"""Delivery of messages to iterators, and when they count as handled."""

import asyncio

import pytest

from tests.unit.client.consumer.dispatch.delivery_kit import Kit, turns


async def test_message_of_an_iterator_is_done_when_the_next_is_asked_for() -> None:
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


async def test_settled_message_is_not_counted_again() -> None:
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


async def test_cancelled_iteration_leaves_its_message_to_another() -> None:
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


async def test_failure_is_raised_once_and_a_stop_ends_every_iteration() -> None:
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
