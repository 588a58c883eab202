"""Failed messages: sent back once, or handled here again, never both at a time."""

import asyncio
from typing import Any

from rocketpy.client.consumer.dispatch.redelivery import FailedMessages, level_of
from rocketpy.client.consumer.pulling.process_queue import Limits, ProcessQueue
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Backoff, Rejection
from rocketpy.errors import RequestTimeoutError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from tests.unit.client.received_cases import received
from tests.unit.client.sim import Cluster, pass_time, run_sim


class Brokers:
    """Takes messages back, or fails a scripted number of times."""

    def __init__(self) -> None:
        self.failures = 0
        self.taken: list[tuple[int, int]] = []
        self.rejections: list[Rejection] = []
        self.asked = 0
        self.delay_s = 1.0

    async def request(self, message: ReceivedMessage, rejection: Rejection) -> None:
        self.asked += 1
        await pass_time(self.delay_s)
        if self.failures:
            self.failures -= 1
            raise RequestTimeoutError("no response")
        self.taken.append((message.offset, level_of(rejection)))
        self.rejections.append(rejection)


class Kit:
    def __init__(
        self, cluster: Cluster, *, broadcast: bool = False, backoff: Backoff | None = None
    ) -> None:
        self.clock = cluster.clock
        self.brokers = Brokers()
        self.again: list[int] = []
        self.queue = ProcessQueue(MessageQueue("t", "b", 0), Limits())
        redelivery: Any = None if broadcast else self.brokers
        self.returns = FailedMessages(
            redelivery,
            clock=cluster.clock,
            deliver=lambda _, messages: self.again.extend(m.offset for m in messages),
            local_retry_ms=5_000,
            consume_timeout_ms=60_000,
            backoff=backoff,
        )
        self.messages = [
            received(self.queue, MessageExt("t", queue_offset=offset, body=b"x"))
            for offset in (0, 1)
        ]
        self.queue.put(self.messages)
        self.queue.next_pull_offset = 2


def test_message_sent_back_to_a_broker_is_finished() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        await kit.returns.give_back(kit.queue, kit.messages[0], Rejection(7))
        assert kit.brokers.taken == [(0, 7)]
        assert kit.queue.commit_offset == 1
        await kit.returns.give_back(kit.queue, kit.messages[0], Rejection(7))
        assert kit.brokers.asked == 1, "it is finished"
        kit.queue.drop()
        await kit.returns.give_back(kit.queue, kit.messages[1], Rejection(7))
        assert kit.brokers.asked == 1, "it is not ours"

    run_sim(main)


def test_message_without_redelivery_is_handled_here_and_the_offset_stays() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        kit.brokers.failures = 1
        message = kit.messages[0]
        await kit.returns.give_back(kit.queue, message, Rejection())
        assert (message.retries, message.ext.reconsume_times) == (1, 1)
        await pass_time(4.9)
        assert not kit.again
        await pass_time(0.2)
        assert kit.again == [0]
        assert kit.queue.commit_offset == 0
        await kit.returns.give_back(kit.queue, message, Rejection())
        assert kit.queue.commit_offset == 1

    run_sim(main)


def test_message_nacked_by_a_running_handler_is_not_redelivered_beside_it() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        kit.brokers.failures = 1
        message = kit.messages[0]
        kit.queue.begin([message], kit.clock.monotonic_ms())
        await kit.returns.give_back(kit.queue, message, Rejection())
        await pass_time(30)
        assert not kit.again, "the handler that gave it back still runs"
        kit.queue.end([message])
        assert kit.queue.finish([message], kit.clock.monotonic_ms())[0] == 0, (
            "its success does not undo the giving back"
        )
        await pass_time(6)
        assert kit.again == [0]

    run_sim(main)


def test_consume_timeout_redelivers_message_and_ignores_late_result() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        first, second = kit.messages
        kit.queue.begin([first], kit.clock.monotonic_ms())
        await pass_time(59)
        kit.queue.begin([second], kit.clock.monotonic_ms())
        await kit.returns.give_back_overdue([kit.queue])
        assert not kit.brokers.asked
        await pass_time(2)
        await kit.returns.give_back_overdue([kit.queue])
        assert kit.brokers.taken == [(0, 3)]
        assert kit.queue.finish([first], kit.clock.monotonic_ms())[0] == 0
        assert kit.queue.finish([second], kit.clock.monotonic_ms())[0] == 1

    run_sim(main)


def test_sweep_that_fails_leaves_the_message_to_its_handler() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        kit.brokers.failures = 1
        message = kit.messages[0]
        kit.queue.begin([message], kit.clock.monotonic_ms())
        await pass_time(61)
        await kit.returns.give_back_overdue([kit.queue])
        await pass_time(60)
        assert not kit.again, "no second handler beside the first"
        kit.queue.end([message])
        assert kit.queue.finish([message], kit.clock.monotonic_ms())[0] == 1

    run_sim(main)


def test_handler_that_ends_while_a_sweep_fails_is_followed_by_another() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        kit.brokers.failures = 1
        message = kit.messages[0]
        kit.queue.begin([message], kit.clock.monotonic_ms())
        await pass_time(61)
        sweep = asyncio.create_task(kit.returns.give_back_overdue([kit.queue]))
        await pass_time(0.5)
        kit.queue.end([message])
        await kit.returns.give_back(kit.queue, message, Rejection())
        assert kit.brokers.asked == 1, "the sweep is at it"
        await sweep
        await pass_time(6)
        assert kit.again == [0]

    run_sim(main)


def test_giving_back_that_is_cancelled_leaves_the_message_here() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster)
        message = kit.messages[0]
        task = asyncio.create_task(kit.returns.give_back(kit.queue, message, Rejection()))
        await pass_time(0.5)
        task.cancel()
        await asyncio.wait([task])
        assert kit.queue.commit_offset == 0
        assert kit.queue.leave(message), "somebody else may try"

    run_sim(main)


def test_broadcast_message_is_dropped() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster, broadcast=True)
        await kit.returns.give_back(kit.queue, kit.messages[0], Rejection())
        assert kit.queue.commit_offset == 1
        assert not kit.brokers.asked

    run_sim(main)


def test_backoff_chooses_delays_of_retries_unless_the_handler_does() -> None:
    async def main(cluster: Cluster) -> None:
        asked: list[int] = []

        def backoff(retry: int) -> float:
            asked.append(retry)
            return 2.0**retry

        kit = Kit(cluster, backoff=backoff)
        first, second = kit.messages
        first.retries = 4
        await kit.returns.give_back(kit.queue, first, Rejection())
        await kit.returns.give_back(kit.queue, second, Rejection(delay_s=3))
        assert asked == [5]
        assert [each.delay_s for each in kit.brokers.rejections] == [32, 3]
        assert [level for _, level in kit.brokers.taken] == [5, 2], "1 min and 5 s: rounded up"

    run_sim(main)


def test_message_that_timed_out_says_so() -> None:
    async def main(cluster: Cluster) -> None:
        kit = Kit(cluster, backoff=lambda _: 1)
        kit.queue.begin(kit.messages[:1], kit.clock.monotonic_ms())
        await pass_time(61)
        await kit.returns.give_back_overdue([kit.queue])
        assert "consume_timeout" in kit.brokers.rejections[0].reason

    run_sim(main)
