"""Lanes: one handler at a time in each, beside each other, and nothing overtakes what failed."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.dispatch.ordered_service import OrderedService, key_lane, queue_lane
from rocketpy.client.consumer.pulling.process_queue import Limits, ProcessQueue
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Rejection, Retry, ToDLQ
from rocketpy.errors import RequestTimeoutError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from tests.unit.client.received_cases import received
from tests.unit.client.sim import Cluster, pass_time, run_sim


class Kit:
    """Two queues of one consumer; `log` has when which message's handler began and ended."""

    def __init__(self, cluster: Cluster, **options: Any) -> None:
        self.clock = cluster.clock
        self.began_ms = cluster.clock.monotonic_ms()
        self.queues = [
            ProcessQueue(MessageQueue("t", "b", number), Limits(), give_back=self.give_back)
            for number in range(2)
        ]
        self.log: list[tuple[str, str]] = []
        self.failing: dict[str, list[Exception]] = {}
        self.buried: list[str] = []
        self.reasons: list[str] = []
        self.bury_fails = 0
        self.blocked = False
        self.takes_s = 1.0
        self.service = OrderedService(
            self.handle,
            **{
                "concurrency": 4,
                "batch": 1,
                "lane_of": queue_lane,
                "may_run": lambda _: not self.blocked,
                "bury": self.bury,
                "max_retries": -1,
                "suspend_ms": 5_000,
                "stats": ConsumeStats(cluster.clock),
                "clock": cluster.clock,
                **options,
            },
        )

    async def give_back(
        self, queue: ProcessQueue, message: ReceivedMessage, rejection: Rejection
    ) -> None:
        await self.service.give_back(queue, message, rejection)

    async def handle(self, messages: list[ReceivedMessage]) -> None:
        names = ",".join(message.body.decode() for message in messages)
        self.log.append(("began", names))
        await pass_time(self.takes_s)
        self.log.append(("ended", names))
        for message in messages:
            failures = self.failing.get(message.body.decode())
            if failures:
                raise failures.pop(0)

    async def bury(self, message: ReceivedMessage, rejection: Rejection) -> None:
        if self.bury_fails:
            self.bury_fails -= 1
            raise RequestTimeoutError("no response")
        self.buried.append(message.body.decode())
        self.reasons.append(rejection.reason)

    def put(self, queue_id: int, *names: str, **keys: str) -> list[ReceivedMessage]:
        queue = self.queues[queue_id]
        first = max(0, queue.pulled_end_offset)
        messages = [
            received(
                queue,
                MessageExt(
                    topic="t",
                    queue_offset=first + at,
                    body=name.encode(),
                    properties={"key": keys[name]} if name in keys else {},
                ),
            )
            for at, name in enumerate(names)
        ]
        queue.put(messages)
        queue.next_pull_offset = queue.pulled_end_offset
        self.service.deliver(queue, messages)
        return messages

    @property
    def began(self) -> list[str]:
        return [names for what, names in self.log if what == "began"]


def run(scenario: Callable[[Cluster], Coroutine[Any, Any, None]]) -> None:
    run_sim(scenario)


def key_of(message: ReceivedMessage) -> str | None:
    return message.properties.get("key")


def test_queue_has_one_handler_at_a_time_and_queues_are_beside_each_other() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        kit.put(0, "a", "b", "c")
        kit.put(1, "x", "y")
        await pass_time(1.5)
        assert sorted(kit.log[:2]) == [("began", "a"), ("began", "x")]
        assert kit.log.index(("ended", "a")) < kit.log.index(("began", "b"))
        assert "c" not in kit.began
        await pass_time(2)
        assert [queue.commit_offset for queue in kit.queues] == [3, 2]
        assert not kit.service._lanes, "nothing is kept of what is done"

    run(main)


def test_queue_continues_after_an_unexpected_failure_of_its_worker() -> None:
    async def main(cluster: Cluster) -> None:
        stats = ConsumeStats(cluster.clock)

        def fail_once(topic: str, count: int, handle_ms: int, *, ok: bool) -> None:
            del stats.handled
            raise LookupError

        stats.handled = fail_once  # type: ignore[method-assign]
        kit = Kit(cluster, stats=stats, concurrency=1)
        kit.put(0, "a", "b")
        await pass_time(20)
        assert kit.began == ["a", "a", "b"]
        assert kit.queues[0].commit_offset == 2

    run(main)


def test_failed_message_is_handled_again_before_its_queue() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        kit.failing = {"a": [ValueError("no"), Retry(7)]}
        first, *_ = kit.put(0, "a", "b")
        await pass_time(5.9)
        assert kit.began == ["a"], "the queue waits"
        assert kit.queues[0].commit_offset == 0
        await pass_time(12)
        assert kit.began == ["a", "a", "a", "b"]
        assert first.retries == 2

    run(main)


def test_keys_are_in_order_also_across_queues_and_beside_each_other() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster, lane_of=key_lane(key_of))
        kit.failing = {"a1": [ValueError("no")]}
        kit.put(0, "a1", "b1", "a2", "free", a1="a", b1="b", a2="a")
        kit.put(1, "a3", a3="a")
        await pass_time(0.5)
        assert sorted(kit.began) == ["a1", "b1", "free"]
        await pass_time(60)
        assert [name for name in kit.began if name[0] == "a"] == ["a1", "a1", "a2", "a3"]
        assert [queue.commit_offset for queue in kit.queues] == [4, 1]

    run(main)


def test_offset_does_not_pass_a_key_that_waits() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster, lane_of=key_lane(key_of))
        kit.failing = {"a1": [ValueError("no")]}
        kit.put(0, "b1", "a1", "b2", "b3", b1="b", a1="a", b2="b", b3="b")
        await pass_time(4.5)
        assert kit.queues[0].commit_offset == 1
        assert len(kit.queues[0].messages) == 1

    run(main)


def test_batch_is_of_one_lane_and_one_queue() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster, batch=2, lane_of=key_lane(key_of))
        kit.put(0, "a1", "a2", "a3", a1="a", a2="a", a3="a")
        kit.put(1, "a4", a4="a")
        await pass_time(10)
        assert kit.began == ["a1,a2", "a3", "a4"]

    run(main)


@pytest.mark.parametrize("max_retries", [0, 2])
def test_after_the_last_try_a_message_is_among_the_dead_letters(max_retries: int) -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster, max_retries=max_retries)
        kit.failing = {"a": [ValueError("no")] * 9}
        kit.put(0, "a", "b")
        await pass_time(30)
        assert kit.began == ["a"] * (1 + max_retries) + ["b"]
        assert kit.buried == ["a"]
        assert kit.queues[0].commit_offset == 2

    run(main)


def test_dead_letter_that_no_broker_stores_blocks_its_lane() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        kit.failing = {"a": [ToDLQ("hopeless"), ToDLQ("hopeless")]}
        kit.bury_fails = 1
        kit.put(0, "a", "b")
        await pass_time(5)
        assert kit.queues[0].commit_offset == 0
        await pass_time(10)
        assert (kit.began, kit.buried) == (["a", "a", "b"], ["a"])

    run(main)


def test_broadcasting_drops_a_message_after_its_last_retry() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster, bury=None)
        kit.failing = {"a": [ToDLQ("hopeless")]}
        kit.put(0, "a", "b")
        await pass_time(5)
        assert kit.began == ["a", "b"]

    run(main)


def test_queue_that_may_not_be_worked_on_waits_and_a_dropped_one_is_forgotten() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        kit.blocked = True
        kit.put(0, "a")
        kit.put(1, "x")
        await pass_time(10)
        assert not kit.began
        kit.queues[1].drop()
        kit.blocked = False
        await pass_time(1)
        assert kit.began == ["a"]
        await pass_time(1)
        assert not kit.service._lanes

    run(main)


def test_queue_that_begins_afresh_waits_for_the_handler_of_its_former_life() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        kit.put(0, "a", "b")
        await pass_time(0.5)
        kit.queues[0].drop()
        kit.queues[0] = ProcessQueue(MessageQueue("t", "b", 0), Limits())
        kit.put(0, "a", "b")
        await pass_time(5)
        assert [what for what, name in kit.log] == ["began", "ended"] * 3
        assert kit.began == ["a", "a", "b"]

    run(main)


def test_nack_has_the_same_message_come_again_though_its_handler_returns() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        first, _ = kit.put(0, "a", "b")
        await pass_time(0.5)
        await first.nack()
        await pass_time(8)
        assert kit.began[:2] == ["a", "a"]
        await pass_time(2)
        assert kit.queues[0].commit_offset == 2
        assert first.retries == 1

    run(main)


def test_nack_can_ask_for_the_dead_letters() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        first, _ = kit.put(0, "a", "b")
        await pass_time(0.5)
        await first.nack(-1)
        await pass_time(5)
        assert (kit.began, kit.buried) == (["a", "b"], ["a"])

    run(main)


def test_stop_waits_for_handlers_and_begins_no_more() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        kit.put(0, "a", "b")
        await pass_time(0.5)
        await asyncio.wait_for(kit.service.stop(5), 5)
        assert kit.log == [("began", "a"), ("ended", "a")]
        assert kit.queues[0].commit_offset == 1

    run(main)


@pytest.mark.parametrize(
    ("failure", "backoff", "pause_s"),
    [
        (ValueError(), None, 5),
        (Retry(delay=0.25), None, 0.25),
        (Retry(delay=timedelta(minutes=2)), lambda _: 7, 120),
        (ValueError(), lambda retry: 10 * retry, 10),
        (Retry(delay_level=9), None, 5),
        (ValueError(), lambda _: None, 5),
    ],
)
def test_lane_waits_as_long_as_the_handler_or_the_backoff_says(
    failure: Exception, backoff: Any, pause_s: float
) -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster, backoff=backoff)
        kit.takes_s = 0
        kit.failing["a"] = [failure]
        kit.put(0, "a", "b")
        await pass_time(pause_s - 0.05)
        assert kit.began == ["a"]
        await pass_time(0.1)
        assert kit.began == ["a", "a", "b"]

    run(main)


def test_nack_of_a_running_handler_holds_the_lane_for_its_delay() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        [message] = kit.put(0, "a")
        await pass_time(0.5)
        await message.nack(delay=30)
        await pass_time(29)
        assert kit.began == ["a"]
        await pass_time(2)
        assert kit.began == ["a", "a"]
        assert not kit.service._nacked

    run(main)


def test_buried_message_carries_the_reason_of_its_last_failure() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster, max_retries=1)
        kit.failing["a"] = [ValueError("first"), ValueError("second")]
        kit.put(0, "a")
        await pass_time(20)
        assert (kit.buried, kit.reasons) == (["a"], ["second"])

    run(main)


def test_message_whose_key_function_fails_waits_alone_and_is_asked_for_again() -> None:
    async def main(cluster: Cluster) -> None:
        asked: list[str] = []

        def key(message: ReceivedMessage) -> str:
            name = message.body.decode()
            asked.append(name)
            if name == "b" and asked.count("b") < 3:
                raise KeyError(name)
            return "k"

        failed: dict[ReceivedMessage, BaseException] = {}
        kit = Kit(cluster, lane_of=key_lane(key), failed=failed)
        handle = kit.service._invoke

        async def invoke(messages: list[ReceivedMessage]) -> None:
            if messages[0] in failed:
                raise failed[messages[0]]
            await handle(messages)

        kit.service._invoke = invoke
        messages = kit.put(0, "a", "b", "c")
        await pass_time(4)
        assert kit.began == ["a", "c"]
        await pass_time(20)
        assert kit.began == ["a", "c", "b"]
        assert messages[1].retries == 2
        assert (failed, kit.service._lanes) == ({}, {})
        assert kit.queues[0].commit_offset == 3

    run(main)
