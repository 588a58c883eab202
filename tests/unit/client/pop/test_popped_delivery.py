"""Popped messages on their way to the user: by workers or an iterator, each settled by outcome."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rocketpy.client.consumer.consume_stats import ConsumeCounts, ConsumeStats
from rocketpy.client.consumer.dispatch.concurrent_service import ConcurrentService
from rocketpy.client.messages.outcomes import Rejection, Retry, ToDLQ
from rocketpy.client.pop.pop_consumer import PoppedIterator
from rocketpy.client.pop.popped_message import PoppedMessage
from rocketpy.client.pop.settling import Settling
from rocketpy.errors import ConnectError
from rocketpy.testing.sim_loop import pass_time
from tests.unit.client import pop_kit
from tests.unit.client.pop_kit import ACK, CHANGE, INVISIBLE_MS, run

Invoke = Callable[[list[Any]], Coroutine[Any, Any, None]]


class Kit(pop_kit.Kit):
    def __init__(
        self, invoke: Invoke | None = None, *, concurrency: int = 1, batch: int = 1
    ) -> None:
        super().__init__(max_messages=99, max_retries=16)
        self.stats = ConsumeStats(self.clock)
        self.service: Any
        if invoke is None:
            self.service = PoppedIterator(
                self.hand, Settling(self.hand), self.stats, self.clock, group="g"
            )
        else:
            self.service = ConcurrentService(
                invoke, concurrency=concurrency, batch=batch, stats=self.stats, clock=self.clock
            )

    def deliver(self, *offsets: int, retries: int = 0) -> list[PoppedMessage]:
        messages = [self.take(offset, retries=retries) for offset in offsets]
        self.service.deliver(self.hand, messages)
        return messages

    def acked(self) -> list[str]:
        return [fields["offset"] for fields in self.broker.of_code(ACK)]

    def given_back(self) -> list[tuple[str, str]]:
        return [
            (fields["offset"], fields["invisibleTime"]) for fields in self.broker.of_code(CHANGE)
        ]


def handled(into: list[list[int]], seconds: float = 0) -> Invoke:
    async def invoke(messages: list[PoppedMessage]) -> None:
        await pass_time(seconds)
        into.append([message.offset for message in messages])

    return invoke


def failing(error: BaseException) -> Invoke:
    async def invoke(_messages: list[PoppedMessage]) -> None:
        raise error

    return invoke


def test_handled_messages_are_acked_in_order() -> None:
    async def case() -> None:
        seen: list[list[int]] = []
        kit = Kit(handled(seen))
        kit.deliver(0, 1)
        kit.deliver(2)
        await pass_time(1)
        assert seen == [[0], [1], [2]]
        assert kit.acked() == ["0", "1", "2"]
        await kit.service.stop(1)

    run(case)


def test_pop_concurrency_limits_handlers_at_the_same_time() -> None:
    async def case() -> None:
        seen: list[list[int]] = []
        kit = Kit(handled(seen, 1), concurrency=2)
        kit.deliver(0, 1, 2, 3)
        await pass_time(1.5)
        assert len(seen) == 2
        await pass_time(1)
        assert len(seen) == 4
        await kit.service.stop(1)

    run(case)


def test_handler_of_batches_gets_messages_of_one_pop_together() -> None:
    async def case() -> None:
        seen: list[list[int]] = []
        kit = Kit(handled(seen), batch=2)
        kit.deliver(0, 1, 2)
        kit.deliver(3)
        await pass_time(1)
        assert seen == [[0, 1], [2], [3]]
        assert kit.acked() == ["0", "1", "2", "3"]
        await kit.service.stop(1)

    run(case)


@pytest.mark.parametrize(
    ("error", "delay_ms"),
    [
        (ValueError("any"), 10_000),
        (Retry(), 10_000),
        (Retry(1), 1_000),
        (Retry(2), 5_000),
        (Retry(18), 7_200_000),
        (asyncio.CancelledError(), 10_000),
    ],
    ids=repr,
)
def test_failed_message_is_nacked_with_its_delay(error: BaseException, delay_ms: int) -> None:
    async def case() -> None:
        kit = Kit(failing(error))
        kit.deliver(0)
        await pass_time(1)
        assert kit.given_back() == [("0", str(delay_ms))]
        assert kit.acked() == []
        kit.deliver(1)  # the worker goes on
        await pass_time(1)
        assert len(kit.given_back()) == 2
        await kit.service.stop(1)

    run(case)


@pytest.mark.parametrize("error", [ToDLQ("hopeless"), Retry(-1)], ids=repr)
def test_dead_letter_is_one_at_once(error: Exception) -> None:
    async def case() -> None:
        kit = Kit(failing(error))
        kit.deliver(0)
        await pass_time(1)
        assert len(kit.instance.sent_back) == 1
        assert kit.given_back() == []
        await kit.service.stop(1)

    run(case)


def test_every_message_of_a_batch_that_failed_comes_back() -> None:
    async def case() -> None:
        kit = Kit(failing(ValueError()), batch=3)
        kit.deliver(0, 1)
        await pass_time(1)
        assert [offset for offset, _ in kit.given_back()] == ["0", "1"]
        await kit.service.stop(1)

    run(case)


def test_message_whose_time_is_over_before_its_turn_is_not_handled() -> None:
    async def case() -> None:
        seen: list[list[int]] = []
        kit = Kit(handled(seen, INVISIBLE_MS / 1000 + 5))
        kit.deliver(0, 1)
        await pass_time(3 * INVISIBLE_MS / 1000)
        assert seen == [[0]]
        assert kit.acked() == [], "not even the first: it took longer than its time"
        await kit.service.stop(1)

    run(case)


def test_failed_ack_is_logged_and_the_worker_continues(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def case() -> None:
        seen: list[list[int]] = []
        kit = Kit(handled(seen))
        kit.broker.script[ACK] = [1]
        kit.deliver(0, 1)
        await pass_time(1)
        assert seen == [[0], [1]]
        await kit.service.stop(1)

    run(case)
    assert "ack failed, message may be delivered again" in caplog.text


def test_message_whose_nack_failed_expires() -> None:
    async def case() -> None:
        kit = Kit(failing(ValueError()))
        kit.broker.script[CHANGE] = [ConnectError("gone")]
        kit.deliver(0, 1)
        await pass_time(1)
        assert [offset for offset, _ in kit.given_back()] == ["0", "1"]
        await kit.service.stop(1)

    run(case)


def test_outcomes_are_counted_with_the_time_they_took() -> None:
    async def case() -> None:
        kit = Kit(handled([], 2), batch=2)
        kit.deliver(0, 1)
        await pass_time(4)
        report = kit.stats.report("T")
        assert (report.consume_rt, report.consume_ok_tps) == (1_000, 1.0)
        assert (report.consume_failed_tps, report.consume_failed_msgs) == (0, 0)
        await kit.service.stop(1)

    run(case)


def test_iterator_gets_one_after_the_other_and_waits_for_more() -> None:
    async def case() -> None:
        kit = Kit()
        waiting = asyncio.ensure_future(kit.service.next())
        await pass_time(1)
        assert not waiting.done()
        kit.deliver(0, 1)
        first = await waiting
        second = await kit.service.next()
        assert first is not None
        assert second is not None
        assert (first.offset, second.offset) == (0, 1)
        await kit.service.done(first)
        await second.ack()
        await kit.service.done(second)
        assert kit.acked() == ["0", "1"], "each once"

    run(case)


def test_outcomes_of_an_iterator_are_counted_once() -> None:
    async def case() -> None:
        kit = Kit()
        messages = kit.deliver(0, 1, 2, 3, 4)
        for _ in range(4):
            await kit.service.next()
        await pass_time(2)
        await kit.service.done(messages[0])
        await messages[1].ack()
        await kit.service.done(messages[1])
        await messages[2].nack()
        await kit.service.done(messages[2])
        assert kit.stats.counts["T"] == ConsumeCounts(0, 2, 1, 6_000)
        kit.service.redeliver([messages[3]])
        for message in kit.hand.close():
            await kit.hand.nack(message, Rejection(delay_s=0))
        assert kit.stats.counts["T"] == ConsumeCounts(0, 2, 1, 6_000), "the others were not handled"

    run(case)


def test_message_of_a_cancelled_iteration_goes_to_another() -> None:
    async def case() -> None:
        kit = Kit()
        one, other = (asyncio.ensure_future(kit.service.next()) for _ in range(2))
        await pass_time(1)
        kit.deliver(0)
        one.cancel()
        found = await other
        assert found is not None
        assert found.offset == 0

    run(case)


def test_stopped_service_delivers_nothing_and_waits_for_its_handler() -> None:
    async def case() -> None:
        seen: list[list[int]] = []
        kit = Kit(handled(seen, 2))
        kit.deliver(0, 1)
        await pass_time(1)
        await kit.service.stop(10)
        assert seen == [[0]]
        assert kit.acked() == ["0"]

    run(case)


def test_handler_that_takes_too_long_for_a_stop_is_ended() -> None:
    async def case() -> None:
        seen: list[list[int]] = []
        kit = Kit(handled(seen, 30))
        kit.deliver(0)
        await pass_time(1)
        began_ms = kit.clock.monotonic_ms()
        await kit.service.stop(5)
        assert 5_000 <= kit.clock.monotonic_ms() - began_ms < 6_000
        assert (seen, kit.acked(), kit.given_back()) == ([], [], [])

    run(case)


def test_stop_ends_waiting_iterations() -> None:
    async def case() -> None:
        kit = Kit()
        waiting = [asyncio.ensure_future(kit.service.next()) for _ in range(2)]
        await pass_time(1)
        await kit.service.stop(1)
        assert [await each for each in waiting] == [None, None]
        kit.take(0)
        assert await kit.service.next() is None

    run(case)
