"""Handlers and loops that block the event loop are named in the log, by every kind of consumer."""

import asyncio
import logging
from functools import partial
from typing import Any

import pytest

from rocketpy.client.callbacks.loop_watch import BLOCKED_MS, LINE_INTERVAL_MS
from rocketpy.client.messages.message import ReceivedMessage
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill

KINDS = ["consumer", "ordered", "pop_consumer"]
SECONDS = BLOCKED_MS / 1000 + 0.1


def block(seconds: float) -> None:
    """Let time pass within a step of the loop, as a computation does."""
    loop: Any = asyncio.get_running_loop()
    loop._now_s += seconds


async def blocking(message: ReceivedMessage) -> None:
    block(SECONDS)


async def blocking_with_body(body: bytes, message: ReceivedMessage) -> None:
    block(SECONDS)


async def blocking_in_the_end(message: ReceivedMessage) -> None:
    await pass_time(3)
    block(SECONDS)
    await pass_time(3)


FUNCTION = lambda message: blocking(message)  # noqa: E731, PLW0108 - as users write it


class Blocking:
    async def __call__(self, message: ReceivedMessage) -> None:
        block(SECONDS)


async def waiting(message: ReceivedMessage) -> None:
    await pass_time(5)


async def computing_a_little(message: ReceivedMessage) -> None:
    block(BLOCKED_MS / 1000 - 0.1)


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        dict(each.args)
        for each in caplog.records
        if each.levelno == logging.WARNING
        and each.getMessage().startswith("event loop blocked")
        and isinstance(each.args, dict)
    ]


async def consume(cluster: Cluster, kind: str, handler: Any, count: int, seconds: float) -> None:
    fill(cluster, count)
    options: dict[str, Any] = {"group": "c", "start": "earliest", "handler": handler}
    if kind == "ordered":
        kind, options["ordered"] = "consumer", True
    async with cluster.client() as client, getattr(client, kind)("t", **options):
        await pass_time(seconds)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("handler", "name"),
    [
        (blocking, "blocking"),
        (blocking_with_body, "blocking_with_body"),
        (blocking_in_the_end, "blocking_in_the_end"),
        (Blocking(), "Blocking"),
        (FUNCTION, "<lambda>"),
        (partial(blocking), "partial"),
    ],
    ids=["plain", "body", "end", "object", "lambda", "partial"],
)
def test_handler_that_blocks_the_loop_is_named(
    kind: str, handler: Any, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    run_sim(lambda cluster: consume(cluster, kind, handler, 1, 20), queues=1)
    [line] = lines(caplog)
    assert line["handler"].endswith(name)
    assert BLOCKED_MS <= line["blocked_ms"] <= SECONDS * 1_000
    assert line["times"] == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("handler", "count"), [(waiting, 3), (computing_a_little, 1)])
def test_handler_that_lets_the_loop_run_is_not_named(
    kind: str, handler: Any, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    run_sim(lambda cluster: consume(cluster, kind, handler, count, 60), queues=1)
    assert lines(caplog) == []


def test_handler_that_always_blocks_is_named_once_a_minute_with_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def often(message: ReceivedMessage) -> None:
        block(SECONDS)
        await pass_time(1)

    async def main(cluster: Cluster) -> None:
        await consume(cluster, "ordered", often, 100, 1.5 * LINE_INTERVAL_MS / 1000)

    run_sim(main, queues=1)
    counts = [line["times"] for line in lines(caplog)]
    assert len(counts) == 2
    assert counts[0] == 1
    assert counts[1] > 20


LOOPS = ["consumer", "pop_consumer", "pull_consumer"]
WAYS = ["loop", "batches", "getone", "getmany"]


async def iterate(client: Any, kind: str, way: str, work: Any, **options: Any) -> None:
    """Call `work` between two requests for messages, for as long as there are some."""
    options = {"group": "c", "start": "earliest", **options}
    if kind == "pull_consumer":
        options.pop("auto_ack", None)
        consumer = client.pull_consumer(**options)
    else:
        consumer = getattr(client, kind)("t", **options)
    async with consumer:
        if kind == "pull_consumer":
            await consumer.subscribe("t")
        if way in {"loop", "batches"} and not (kind == "pull_consumer" and way == "loop"):
            async for given in consumer.batches(1) if way == "batches" else consumer:
                await work(given[0] if way == "batches" else given)
            return
        while True:
            given = await (consumer.getmany(1) if way == "getmany" else consumer.getone())
            await work(given[0] if way == "getmany" else given)


async def run_loop(
    cluster: Cluster, seconds: float, count: int, *args: Any, **options: Any
) -> None:
    fill(cluster, count)
    async with cluster.client() as client:
        task = asyncio.create_task(iterate(client, *args, **options))
        await pass_time(seconds)
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("work", [blocking, blocking_in_the_end])
def test_loop_that_blocks_the_event_loop_is_named_by_its_group(
    kind: str, way: str, work: Any, caplog: pytest.LogCaptureFixture
) -> None:
    run_sim(lambda cluster: run_loop(cluster, 20, 1, kind, way, work), queues=1)
    [line] = lines(caplog)
    assert line["group"] == "c"
    assert BLOCKED_MS <= line["blocked_ms"] <= SECONDS * 1_000
    assert line["times"] == 1


@pytest.mark.parametrize("kind", LOOPS)
@pytest.mark.parametrize(("work", "count"), [(waiting, 3), (computing_a_little, 1)])
def test_loop_that_lets_the_event_loop_run_is_not_named(
    kind: str, work: Any, count: int, caplog: pytest.LogCaptureFixture
) -> None:
    run_sim(lambda cluster: run_loop(cluster, 60, count, kind, "loop", work), queues=1)
    assert lines(caplog) == []


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
def test_loop_with_manual_acknowledgement_that_blocks_is_named(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(message: ReceivedMessage) -> None:
        block(SECONDS)
        await message.ack()

    run_sim(lambda cluster: run_loop(cluster, 20, 1, kind, "loop", work, auto_ack=False), queues=1)
    assert [line["group"] for line in lines(caplog)] == ["c"]


def test_loop_that_always_blocks_is_named_once_a_minute_with_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def often(message: ReceivedMessage) -> None:
        block(SECONDS)
        await pass_time(1)

    seconds = 1.5 * LINE_INTERVAL_MS / 1000
    run_sim(lambda cluster: run_loop(cluster, seconds, 100, "consumer", "loop", often), queues=1)
    counts = [line["times"] for line in lines(caplog)]
    assert len(counts) == 2
    assert counts[0] == 1
    assert counts[1] > 20


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
def test_loop_that_was_left_or_waits_is_not_named(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)
        async with (
            cluster.client() as client,
            getattr(client, kind)("t", group="c", start="earliest") as consumer,
        ):
            async for _ in consumer:
                break
            await pass_time(1)
            block(SECONDS)
            await pass_time(1)
            assert await consumer.getone() is not None
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2):
                    await consumer.getone()
            block(SECONDS)
            await pass_time(1)

    run_sim(main, queues=1)
    assert lines(caplog) == []
