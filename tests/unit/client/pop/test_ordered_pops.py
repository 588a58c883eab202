"""Popped messages of an ordered consumer: the queue's order, and its stop at a failure."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.messages.outcomes import Rejection, Retry, ToDLQ
from rocketpy.client.pop.ordered_pops import OrderedPops
from rocketpy.client.pop.popped_message import PoppedMessage
from rocketpy.client.pop.settling import Settling
from rocketpy.testing.sim_loop import pass_time
from tests.unit.client import pop_kit
from tests.unit.client.pop_kit import ACK, CHANGE, INVISIBLE_MS, run, stored


class Kit(pop_kit.Kit):
    """Service with a handler that runs one step for each message offset."""

    def __init__(self, steps: dict[int, Any] | None = None, *, batch: int = 1) -> None:
        super().__init__(max_messages=99)
        self.steps = steps or {}
        self.calls: list[tuple[int, int]] = []  # queue id and offset
        self.running: list[int] = []
        self.together: list[list[int]] = []
        self.settling = Settling(self.hand)
        self.stats = ConsumeStats(self.clock)
        self.service = OrderedPops(
            self._invoke,
            concurrency=20,
            batch=batch,
            stats=self.stats,
            clock=self.clock,
            leases=self.hand,
            return_soon=lambda message: self.settling.start_bounded(
                self.hand.nack(message, Rejection(delay_s=0))
            ),
        )

    async def _invoke(self, messages: list[Any]) -> None:
        for message in messages:
            queue = message.queue.queue_id
            self.calls.append((queue, message.offset))
            self.running.append(queue)
            self.together.append(sorted(self.running))
            await pass_time(1)
            self.running.remove(queue)
            step = self.steps.get(message.offset)
            if isinstance(step, BaseException):
                raise step
            if step is not None:
                await step(message)

    def deliver(self, *offsets: int, retries: int = 0, queue: int = 3) -> list[PoppedMessage]:
        messages = []
        for offset in offsets:
            ext = stored(offset, retries=retries)
            ext.queue_id = queue
            messages.append(self.hand.take(ext, "b", INVISIBLE_MS))
        self.service.deliver(self.settling, messages)
        return messages

    @property
    def handled(self) -> list[int]:
        return [offset for _, offset in self.calls]

    def acked(self) -> list[str]:
        return [fields["offset"] for fields in self.broker.of_code(ACK)]

    def given_back(self) -> dict[str, str]:
        changed = self.broker.of_code(CHANGE)
        return {fields["offset"]: fields["invisibleTime"] for fields in changed}


def check(case: Callable[[], Awaitable[None]]) -> None:
    run(case)


def test_queue_continues_after_an_unexpected_failure_of_its_worker() -> None:
    async def case() -> None:
        kit = Kit()

        def fail_once(topic: str, count: int, handle_ms: int, *, ok: bool) -> None:
            del kit.stats.handled
            raise LookupError

        kit.stats.handled = fail_once  # type: ignore[method-assign]
        kit.deliver(0, 1)
        await pass_time(5)
        assert kit.given_back() == {"0": "10000", "1": "0"}
        kit.deliver(2)
        await pass_time(5)
        assert kit.handled == [0, 2]

    check(case)


def test_one_queue_is_handled_one_message_after_the_other() -> None:
    async def case() -> None:
        kit = Kit()
        kit.deliver(0, 1, 2)
        kit.deliver(3)
        await pass_time(10)
        assert kit.handled == [0, 1, 2, 3]
        assert kit.together == [[3]] * 4
        assert kit.acked() == ["0", "1", "2", "3"]
        assert kit.given_back() == {}

    check(case)


def test_queues_of_one_pop_are_handled_concurrently() -> None:
    async def case() -> None:
        kit = Kit()
        kit.deliver(0, 1)
        kit.deliver(0, 1, queue=4)
        await pass_time(2.5)
        assert sorted(kit.calls) == [(3, 0), (3, 1), (4, 0), (4, 1)]
        assert [3, 4] in kit.together

    check(case)


async def nacks(message: PoppedMessage) -> None:
    await message.nack(delay=5)


@pytest.mark.parametrize("step", [Retry(delay=5), nacks], ids=["raised", "nacked"])
def test_rest_of_a_pop_is_given_back_when_a_message_fails(step: Any) -> None:
    async def case() -> None:
        kit = Kit({1: step})
        kit.deliver(0, 1, 2, 3)
        await pass_time(10)
        assert kit.handled == [0, 1]
        assert kit.acked() == ["0"]
        assert kit.given_back() == {"1": "5000", "2": "0", "3": "0"}
        assert len(kit.hand) == 0
        kit.steps.clear()
        kit.deliver(1, 2, 3, retries=1)
        await pass_time(10)
        assert kit.handled == [0, 1, 1, 2, 3]

    check(case)


def test_rest_of_a_pop_is_given_back_when_a_batch_fails() -> None:
    async def case() -> None:
        kit = Kit({1: Retry(delay=5)}, batch=2)
        kit.deliver(0, 1, 2, 3)
        await pass_time(10)
        assert kit.handled == [0, 1]
        assert kit.given_back() == {"0": "5000", "1": "5000", "2": "0", "3": "0"}

    check(case)


def test_rest_of_a_pop_is_given_back_when_an_ack_is_refused() -> None:
    async def case() -> None:
        kit = Kit()
        kit.broker.script[ACK] = [1]
        kit.deliver(0, 1)
        await pass_time(10)
        assert kit.handled == [0]
        assert kit.given_back() == {"1": "0"}

    check(case)


def test_rest_of_a_pop_is_given_back_when_a_message_expired() -> None:
    async def case() -> None:
        kit = Kit()
        messages = kit.deliver(0, 1, 2)
        await kit.hand.renew([messages[2]], 3 * INVISIBLE_MS)
        kit.steps[0] = lambda _: pass_time(INVISIBLE_MS / 1000)
        await pass_time(100)
        assert kit.handled == [0]
        assert kit.given_back()["2"] == "0"

    check(case)


def test_queue_continues_behind_a_dead_letter() -> None:
    async def case() -> None:
        kit = Kit({0: ToDLQ("bad")})
        kit.deliver(0, 1)
        await pass_time(10)
        assert kit.handled == [0, 1]
        assert len(kit.instance.sent_back) == 1
        assert kit.given_back() == {}

    check(case)


def test_messages_behind_a_failed_one_do_not_count_its_retries() -> None:
    async def case() -> None:
        kit = Kit({0: Retry(delay=1)})
        for retries in range(3):
            delivered = kit.deliver(0, 1, retries=retries)
            assert [each.retries for each in delivered] == [retries, 0]
            await pass_time(5)
        kit.steps = {1: Retry(delay=1)}
        delivered = kit.deliver(0, 1, retries=3)
        await pass_time(5)
        assert [each.retries for each in delivered] == [3, 0]
        assert [each.retries for each in kit.deliver(1, retries=4)] == [1]

    check(case)


def test_halt_returns_every_message_that_no_handler_has() -> None:
    async def case() -> None:
        kit = Kit()
        messages = kit.deliver(0, 1, 2)
        await pass_time(0.5)
        assert kit.service.waiting == messages[1:]
        assert kit.service.halt() == messages[1:]
        await kit.service.stop(5)
        assert kit.handled == [0]
        assert kit.acked() == ["0"]

    check(case)
