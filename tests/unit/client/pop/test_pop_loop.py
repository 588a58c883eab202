"""Popping again and again: what is asked, what is handed over, and what a failure changes."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from rocketpy.client.pop.pop_loop import FULL_PAUSE_MS, PopLoop, PopSettings
from rocketpy.client.pop.popped_message import PoppedMessage
from rocketpy.errors import BrokerError, ConnectError, NoRouteError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import build_subscription
from rocketpy.testing.sim_loop import pass_time
from tests.unit.client import pop_kit
from tests.unit.client.pop_kit import ACK, CHANGE, POP, popped, run, stored

SETTINGS = PopSettings(
    group="g",
    batch=16,
    invisible_ms=60_000,
    poll_ms=15_000,
    init_mode=1,
    is_ordered=False,
    error_pause_ms=3_000,
)


class Kit(pop_kit.Kit):
    def __init__(
        self, expression: str = "*", max_messages: int = 9, *, ordered: bool = False
    ) -> None:
        super().__init__(max_messages=max_messages)
        self.subscription = build_subscription("T", expression)
        self.delivered: list[list[PoppedMessage]] = []
        self.settling: list[asyncio.Task[None]] = []
        self.loop = PopLoop(
            self.instance,  # type: ignore[arg-type]
            MessageQueue("T", "b", -1),
            replace(SETTINGS, is_ordered=ordered),
            self.hand,
            subscription=lambda: self.subscription,
            deliver=self.delivered.append,
            settle=self._settle,
        )

    def _settle(self, work: Coroutine[None, None, None]) -> None:
        self.settling.append(asyncio.ensure_future(work))

    async def pop(self, *steps: Any, seconds: float = 1) -> None:
        """Run the loop for a while on these responses; then the broker holds each pop."""
        held: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.broker.script[POP] = [*steps, held]
        task = asyncio.ensure_future(self.loop.run())
        await pass_time(seconds)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        held.cancel()


def test_pop_says_what_is_wanted() -> None:
    async def case() -> None:
        kit = Kit("a || b")
        now_ms = kit.clock.time_ms()
        await kit.pop()
        fields = kit.broker.of_code(POP)[0]
        assert fields == {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": "-1",
            "maxMsgNums": "16",
            "invisibleTime": "60000",
            "pollTime": "0",
            "bornTime": str(now_ms),
            "initMode": "1",
            "expType": "TAG",
            "exp": "a || b",
            "order": "false",
            "bname": "b",
        }
        assert kit.loop.last_pop_ms == now_ms

    run(case)


def test_only_the_first_pop_waits_for_nothing() -> None:
    async def case() -> None:
        kit = Kit()
        assert not kit.loop.began.is_set()
        await kit.pop(210, 210)
        assert kit.loop.began.is_set()
        assert [each["pollTime"] for each in kit.broker.of_code(POP)] == ["0", "15000", "15000"]
        assert kit.broker.timeouts[1] > 15_000, "the broker may take the whole poll time"

    run(case)


def test_messages_are_handed_over_together_and_the_next_pop_follows_at_once() -> None:
    async def case() -> None:
        kit = Kit()
        await kit.pop(popped(stored(0), stored(1)), popped(stored(2)))
        assert [[each.offset for each in batch] for batch in kit.delivered] == [[0, 1], [2]]
        assert len(kit.hand) == 3
        assert len(kit.broker.of_code(POP)) == 3

    run(case)


def test_message_of_another_tag_with_the_same_hash_is_acked_and_not_handed_over() -> None:
    async def case() -> None:
        kit = Kit("Aa")
        await kit.pop(popped(stored(0, tag="Aa"), stored(1, tag="BB")), popped(stored(2, tag="BB")))
        assert [[each.tag for each in batch] for batch in kit.delivered] == [["Aa"]]
        await asyncio.gather(*kit.settling)
        assert [each["offset"] for each in kit.broker.of_code(ACK)] == ["1", "2"]

    run(case)


def test_filter_that_changes_holds_from_the_next_pop_on() -> None:
    async def case() -> None:
        kit = Kit("a")
        await kit.pop(210)
        kit.subscription = build_subscription("T", "b")
        await kit.pop(210)
        assert {each["exp"] for each in kit.broker.of_code(POP)[2:]} == {"b"}

    run(case)


def test_body_that_cannot_be_read_is_given_back_and_the_rest_handed_over() -> None:
    async def case() -> None:
        kit = Kit()
        damaged = stored(1)
        damaged.sys_flag = 1  # says that it is compressed, which it is not
        await kit.pop(popped(stored(0), damaged))
        assert [[each.offset for each in batch] for batch in kit.delivered] == [[0]]
        await asyncio.gather(*kit.settling)
        [fields] = kit.broker.of_code(CHANGE)
        assert (fields["offset"], fields["invisibleTime"]) == ("1", "10000")

    run(case)


def test_messages_behind_a_body_that_cannot_be_read_are_given_back_in_order() -> None:
    async def case() -> None:
        kit = Kit(ordered=True)
        damaged, other = stored(1), stored(5)
        damaged.sys_flag = 1  # says that it is compressed, which it is not
        other.queue_id = 4
        await kit.pop(popped(stored(0), damaged, stored(2), other))
        assert [[each.offset for each in batch] for batch in kit.delivered] == [[0, 5]]
        await asyncio.gather(*kit.settling)
        changed = {each["offset"]: each["invisibleTime"] for each in kit.broker.of_code(CHANGE)}
        assert changed == {"1": "10000", "2": "0"}

    run(case)


def test_broker_with_no_room_to_wait_is_asked_again_later() -> None:
    async def case() -> None:
        kit = Kit()
        await kit.pop(209, seconds=FULL_PAUSE_MS / 1000 - 0.1)
        assert len(kit.broker.of_code(POP)) == 1
        assert kit.loop.failure is None
        kit.broker.asked.clear()
        await kit.pop(209, seconds=FULL_PAUSE_MS / 1000 + 0.1)
        assert len(kit.broker.of_code(POP)) == 2

    run(case)


@pytest.mark.parametrize(
    ("failure", "kind", "refreshes"),
    [(ConnectError("gone"), ConnectError, 1), (16, BrokerError, 0)],
)
def test_failure_is_shown_and_tried_again_after_a_pause(
    failure: Any, kind: type[Exception], refreshes: int
) -> None:
    async def case() -> None:
        kit = Kit()
        await kit.pop(failure, seconds=2.9)
        assert isinstance(kit.loop.failure, kind)
        assert not kit.loop.began.is_set()
        assert len(kit.broker.of_code(POP)) == 1
        assert kit.instance.refreshes == refreshes, "a broker that is gone may be elsewhere now"
        await kit.pop(failure, 210, seconds=3.5)
        assert kit.loop.failure is None

    run(case)


def test_without_a_master_nothing_is_popped() -> None:
    async def case() -> None:
        kit = Kit()
        kit.instance.masters.clear()
        await kit.pop(seconds=1)
        assert isinstance(kit.loop.failure, NoRouteError)
        assert kit.broker.asked == []

    run(case)


def test_pop_waits_while_the_limit_of_messages_is_reached() -> None:
    async def case() -> None:
        kit = Kit(max_messages=2)
        await kit.pop(popped(stored(0), stored(1)), popped(stored(2)))
        assert len(kit.delivered) == 1
        assert len(kit.broker.of_code(POP)) == 1

    run(case)


def test_pop_loop_without_room_does_not_delay_the_start() -> None:
    async def case() -> None:
        kit = Kit(max_messages=1)
        kit.take()
        await kit.pop()
        assert kit.loop.began.is_set()
        assert kit.broker.of_code(POP) == []

    run(case)


def test_failure_is_logged_once_not_at_each_try(caplog: pytest.LogCaptureFixture) -> None:
    async def case() -> None:
        kit = Kit()
        await kit.pop(16, 16, 16, 210, 16, seconds=20)

    run(case)
    assert caplog.text.count("popping failed, retried") == 2, "again after it had worked"


@pytest.mark.parametrize("answer", [210, 19, popped()], ids=["timeout", "nothing", "found none"])
def test_broker_that_holds_no_pop_is_not_asked_as_fast_as_it_answers(answer: Any) -> None:
    async def case() -> None:
        kit = Kit()
        await kit.pop(*[answer] * 1_000, seconds=30)
        assert 10 <= len(kit.broker.of_code(POP)) <= 20

    run(case)
