"""Closing: once, whoever asks and how often, in time, and nothing unfinished is taken for done."""

import asyncio
from typing import Any

import pytest

from rocketpy.client.client import Client
from rocketpy.client.life import Closes
from rocketpy.client.message import ReceivedMessage
from rocketpy.errors import ClosedError
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sends import freeze
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing, until

QUEUE = MessageQueue("t", "broker-a", 0)
STORE_OFFSET, UNREGISTER = 15, 35


def stored(cluster: Cluster, group: str) -> int:
    return sum(
        offset for key, offset in cluster.offsets.items() if key[0] == group and key[2] == "t"
    )


class Slow(Closes):
    def __init__(self) -> None:
        self.begun = 0
        self.gate = asyncio.Event()
        self.is_closed = False

    async def _close(self) -> None:
        self.begun += 1
        await self.gate.wait()
        self.is_closed = True


async def test_every_call_waits_for_the_one_close() -> None:
    one = Slow()
    calls = [asyncio.create_task(one.close()) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not any(call.done() for call in calls)
    one.gate.set()
    await asyncio.gather(*calls)
    assert one.begun == 1
    assert one.is_closed


async def test_a_close_goes_on_when_the_call_is_cancelled() -> None:
    one = Slow()
    call = asyncio.create_task(one.close())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not one.is_closed
    one.gate.set()
    await one.close()
    assert (one.begun, one.is_closed) == (1, True)


async def test_a_failure_reaches_every_call() -> None:
    class Failing(Slow):
        async def _close(self) -> None:
            await super()._close()
            raise ValueError("it cannot be closed")

    one = Failing()
    calls = [asyncio.create_task(one.close()) for _ in range(2)]
    one.gate.set()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in outcomes] == [ValueError, ValueError]
    assert one.begun == 1


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
def test_a_second_close_does_not_cut_handlers_off(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 20)
        handled: list[bytes] = []

        async def handler(message: ReceivedMessage) -> None:
            await pass_time(2)
            handled.append(message.body)

        client = cluster.client()
        async with client:
            consumer = getattr(client, kind)("t", group="c", start="earliest", handler=handler)
            await consumer.start()
            await until(lambda: getattr(consumer, "in_hand", 20) == 20)
            await pass_time(1)
            stopping = asyncio.ensure_future(consumer.close())  # as a handler of SIGTERM does
            await pass_time(0.1)
            assert not stopping.done()
        assert stopping.done(), "the end of the block waits, too"
        assert len(handled) == 20
        if kind == "consumer":
            assert stored(cluster, "c") == 20

    run_sim(main, queues=1)


@pytest.mark.parametrize("whole_client", [False, True])
def test_what_a_pull_consumer_had_in_hand_when_an_exception_came_is_read_again(
    whole_client: bool,
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 6)

        async def work(client: Client, consumer: Any) -> None:
            await consumer.assign([QUEUE])
            assert len(await consumer.poll(max_messages=2)) == 2
            assert len(await consumer.poll(max_messages=3)) == 3
            raise KeyError("while it worked on the second batch")

        options: dict[str, Any] = {"group": "p", "start": "earliest"}

        async def block() -> None:
            async with cluster.client() as client:
                if whole_client:
                    consumer = client.pull_consumer(**options)
                    await consumer.start()
                    await work(client, consumer)
                async with client.pull_consumer(**options) as consumer:
                    await work(client, consumer)

        with pytest.raises(KeyError):
            await block()
        assert stored(cluster, "p") == 2, "the first batch was done when the second was asked for"
        async with cluster.client() as client, client.pull_consumer(**options) as consumer:
            await consumer.assign([QUEUE])
            assert [message.body for message in await consumer.poll()] == [b"2", b"3", b"4", b"5"]
        assert stored(cluster, "p") == 6, "a block that ends well commits all"

    run_sim(main, queues=1)


def test_a_cancelled_block_commits_no_batch_in_hand() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)

        async def work() -> None:
            async with (
                cluster.client() as client,
                client.pull_consumer(group="p", start="earliest") as consumer,
            ):
                await consumer.assign([QUEUE])
                assert len(await consumer.poll()) == 2
                await pass_time(1_000)

        working = asyncio.ensure_future(work())
        await pass_time(5)
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        assert stored(cluster, "p") == 0

    run_sim(main, queues=1)


def test_a_pull_consumer_that_was_closed_says_so() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = client.pull_consumer(group="p")
            async with consumer:
                pass
            with pytest.raises(ClosedError):
                await consumer.start()
        with pytest.raises(ClosedError, match="again"):
            await client.start()

    run_sim(main)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_frozen_broker_does_not_hold_a_close_up(ordered: bool) -> None:
    async def main(cluster: Cluster) -> None:
        for broker in ("broker-a", "broker-b"):
            for number in range(8):
                cluster.put("t", b"x", number, broker)
        handled: list[MessageQueue] = []

        async def handler(message: ReceivedMessage) -> None:
            handled.append(message.queue)

        async with cluster.client() as client:
            consumer = client.consumer(
                "t", group="c", start="earliest", handler=handler, ordered=ordered
            )
            async with consumer:
                await until(lambda: len(handled) == 16)
                freeze(cluster, 1)
                began_ms = cluster.elapsed_ms
            assert cluster.elapsed_ms - began_ms <= 10_000, "stop_timeout"
        saved = {
            key[3]: at for key, at in cluster.offsets.items() if key[:3] == ("c", "broker-a", "t")
        }
        assert saved == dict.fromkeys(range(8), 1)
        assert cluster.members("c") == []

    run_sim(main, brokers=2, queues=8)


def test_a_close_ends_in_time_although_no_broker_answers() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            consumer = client.consumer("t", group="c", handler=nothing, stop_timeout=2)
            async with consumer:
                await pass_time(5)
                freeze(cluster, 0)
                began_ms = cluster.elapsed_ms
                await consumer.close()
                assert cluster.elapsed_ms - began_ms <= 3_100
            assert client.health().consumers == {}

    run_sim(main)


def test_what_is_closed_is_not_kept() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            for number in range(50):
                producer = client.producer()
                if not number % 10:
                    await producer.send("t", b"x")
                await producer.close()
                async with client.pull_consumer(group="p"):
                    pass
                responder = client.responder("t", group="r", handler=nothing)
                if number < 2:
                    await responder.start()
                await responder.close()
            assert len(client._parts) == 0
            assert list(client._running().producers_of("g")) == []
            assert list(client._running().producers_of("r")) == []

    run_sim(main)


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
def test_who_waits_for_the_end_is_told_of_a_fault_that_does_not_pass(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        code = 11 if kind == "consumer" else 200_050
        async with cluster.client() as client:
            options: Any = {"group": "c", "handler": nothing}
            async with getattr(client, kind)("t", **options) as consumer:
                waiting = asyncio.ensure_future(consumer.wait_closed())
                await pass_time(1)
                assert not waiting.done()
                cluster.script[code] = [ZeroDivisionError("a bug")] * 3
                await pass_time(20)
                with pytest.raises(ZeroDivisionError):
                    await waiting
                assert not consumer.health().ok

    run_sim(main)
