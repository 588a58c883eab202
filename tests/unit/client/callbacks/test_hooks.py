"""A send that is tried again is seen: by a hook, in a count, in the debug log."""

import asyncio
import logging
from typing import Any

import pytest

from rocketpy import SendRetry, SendStats
from rocketpy.client.callbacks.hooks import AssignmentHooks
from rocketpy.errors import FlowControlError, RocketPyError, ServiceNotAvailableError
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import BROKER_A, Cluster, pass_time, run_sim

SEND, BATCH = 310, 320


RAISED = [GeneratorExit, StopIteration, ValueError, asyncio.CancelledError]


@pytest.mark.parametrize("kind", RAISED)
async def test_plain_assignment_hook_that_raises_is_logged_only(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(queues: list[MessageQueue]) -> None:
        raise kind

    hooks = AssignmentHooks("g", fail, None)
    await hooks.assigned([MessageQueue("t", "b", 0)])
    assert "assignment hook failed" in caplog.text


def test_assignment_hook_that_leaks_a_cancellation_does_not_delay_the_start() -> None:
    async def awaited(queues: list[MessageQueue]) -> None:
        raise asyncio.CancelledError

    def plain(queues: list[MessageQueue]) -> None:
        raise asyncio.CancelledError

    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            for hook in (awaited, plain):
                began_ms = cluster.clock.monotonic_ms()
                async with client.consumer("t", group=hook.__name__, on_assigned=hook) as consumer:
                    assert consumer.assignment
                    assert cluster.clock.monotonic_ms() - began_ms < 1_000

    run_sim(main)


async def test_assignment_hook_of_a_cancelled_task_is_cancelled() -> None:
    async def wait(queues: list[MessageQueue]) -> None:
        await asyncio.Event().wait()

    hooks = AssignmentHooks("g", wait, None)
    calling = asyncio.create_task(hooks.assigned([MessageQueue("t", "b", 0)]))
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


def test_retry_hook_gets_reason_and_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(cluster: Cluster) -> None:
        seen: list[SendRetry] = []
        cluster.script[SEND] = [14, 215]
        async with cluster.client() as client:
            producer = client.producer(on_retry=seen.append)
            with caplog.at_level(logging.DEBUG, "rocketpy.client.callbacks.hooks"):
                result = await producer.send("t", b"x")
            assert producer.stats == SendStats(1, 0, 0, failed=0, retried=2, lost_oneway=0)
        assert [each.msg_id for each in seen] == [result.msg_id] * 2
        assert [(each.topic, each.attempt, each.broker) for each in seen] == [
            ("t", 1, "broker-a"),
            ("t", 2, "broker-a"),
        ]
        assert isinstance(seen[0].error, ServiceNotAvailableError)
        assert isinstance(seen[1].error, FlowControlError)
        assert seen[0].wait_s == 0
        assert 0.9 < seen[1].wait_s <= 1.2
        (first, _) = [record for record in caplog.records if record.args]
        assert isinstance(first.args, dict)
        assert first.args["topic"] == "t"

    run_sim(main)


def test_looking_for_a_broker_that_is_away_counts_too() -> None:
    async def main(cluster: Cluster) -> None:
        seen: list[SendRetry] = []
        async with cluster.client() as client:
            producer = client.producer(on_retry=seen.append)
            await producer.send("t", b"warm")
            cluster.down.add(BROKER_A)
            send = asyncio.create_task(producer.send("t", b"x"))
            await pass_time(0.5)
            cluster.down.clear()
            await send
            assert producer.stats.retried == len(seen) > 0
            assert all(each.wait_s > 0 for each in seen)

    run_sim(main)


def test_hook_that_fails_costs_no_send_and_one_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(cluster: Cluster) -> None:
        def fail(_retry: SendRetry) -> None:
            raise KeyError("hook")

        cluster.script[SEND] = [14]
        async with cluster.client() as client:
            producer = client.producer(on_retry=fail)
            await producer.send("t", b"x")
            cluster.script[SEND] = [14]
            await producer.send("t", b"x")
            assert producer.stats.retried == 2

    run_sim(main)
    assert caplog.text.count("Traceback") == 1
    assert "outcome=sent_again callback=on_retry failures=1" in caplog.text


@pytest.mark.parametrize("linger", [0, 0.01])
def test_counts_of_what_began_and_what_failed(linger: float) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.script[SEND] = [] if linger else [604, 604]
        cluster.script[BATCH] = [604]
        async with cluster.client() as client:
            producer = client.producer(linger=linger)
            assert producer.stats == SendStats(0, 0, 0, 0, 0, 0)
            sends: list[Any] = [producer.send_nowait("t", b"four") for _ in range(2)]
            assert producer.stats == SendStats(2, 2, 8, 0, 0, 0)
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert all(isinstance(each, RocketPyError) for each in outcomes)
            assert producer.stats == SendStats(2, 0, 0, failed=2, retried=0, lost_oneway=0)
            await producer.send("t", b"x")
            gone = MessageQueue("t", "nobody", 0)
            producer.send_oneway("t", b"x", queue=gone)
            await producer.flush()
            assert producer.stats == SendStats(4, 0, 0, failed=2, retried=0, lost_oneway=1)

    run_sim(main)
