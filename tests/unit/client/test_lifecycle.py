"""Close: runs once for all callers, within its time, and settles no unfinished message."""

import asyncio
import copy
import inspect
import pickle
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from rocketpy.client.client import Client
from rocketpy.client.config import ClientConfig
from rocketpy.client.consumer.pull_consumer import PullConsumer
from rocketpy.client.consumer.push_consumer import Consumer
from rocketpy.client.lifecycle import AsyncClosable
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.pop.pop_consumer import PopConsumer
from rocketpy.client.producer.producer import Producer
from rocketpy.errors import ClientError, ClosedError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.testing.sim_loop import SimLoop
from tests.unit.client.sends import freeze
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing, until

T = TypeVar("T")
QUEUE = MessageQueue("t", "broker-a", 0)
STORE_OFFSET, UNREGISTER = 15, 35


def stored(cluster: Cluster, group: str) -> int:
    return sum(
        offset for key, offset in cluster.offsets.items() if key[0] == group and key[2] == "t"
    )


class Slow(AsyncClosable):
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


async def test_close_continues_when_its_call_is_cancelled() -> None:
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


async def test_failure_reaches_every_call() -> None:
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
def test_second_close_does_not_cut_handlers_off(kind: str) -> None:
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
def test_exception_in_the_block_redelivers_the_last_batch(
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


def test_cancelled_block_does_not_commit_its_last_batch() -> None:
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


def test_pull_consumer_that_was_closed_says_so() -> None:
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
def test_frozen_broker_does_not_hold_a_close_up(ordered: bool) -> None:
    async def main(cluster: Cluster) -> None:
        for broker in ("broker-a", "broker-b"):
            for number in range(8):
                cluster.put("t", b"x", number, broker)
        handled: list[MessageQueue] = []

        async def handler(message: ReceivedMessage) -> None:
            handled.append(message.queue)

        def saved() -> dict[int, int]:
            return {
                key[3]: at
                for key, at in cluster.offsets.items()
                if key[:3] == ("c", "broker-a", "t")
            }

        async def saved_after() -> None:
            await until(lambda: saved() == dict.fromkeys(range(8), 1))
            assert cluster.elapsed_ms - began_ms <= 500, "the other broker is not waited for"

        async with cluster.client() as client:
            consumer = client.consumer(
                "t", group="c", start="earliest", handler=handler, ordered=ordered
            )
            async with consumer:
                await until(lambda: len(handled) == 16)
                freeze(cluster, 1)
                began_ms = cluster.elapsed_ms
                saving = asyncio.create_task(saved_after())
            await saving
        assert cluster.elapsed_ms - began_ms <= 5_000, "of the consumer and the client together"
        assert cluster.members("c") == []

    run_sim(main, brokers=2, queues=8)


def test_close_ends_in_time_although_no_broker_answers() -> None:
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


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer", "pull_consumer"])
@pytest.mark.parametrize("is_nested", [False, True])
def test_close_of_client_and_consumers_beside_a_frozen_broker_takes_five_seconds(
    kind: str, *, is_nested: bool
) -> None:
    async def main(cluster: Cluster) -> None:
        for broker in ("broker-a", "broker-b"):
            for number in range(4):
                cluster.put("t", b"x", number, broker)
        async with cluster.client() as client:
            await client.producer().send("t", b"x")
            if kind == "pull_consumer":
                consumer: Any = client.pull_consumer(group="c", start="earliest")
                await consumer.start()
                await consumer.subscribe("t")
            else:
                consumer = getattr(client, kind)("t", group="c", start="earliest")
                await consumer.start()
            while await consumer.getmany(8, timeout=2):
                pass
            freeze(cluster, 1)
            began_ms = cluster.elapsed_ms
            if is_nested:
                await consumer.close()
        assert cluster.elapsed_ms - began_ms <= 5_100
        assert cluster.members("c") == []
        if kind != "pop_consumer":
            assert stored(cluster, "c") >= 4

    run_sim(main, brokers=2)


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer", "pull_consumer"])
@pytest.mark.parametrize("is_started", [False, True])
def test_close_of_a_consumer_after_its_client_does_no_harm(kind: str, *, is_started: bool) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            if kind == "pull_consumer":
                consumer: Any = client.pull_consumer(group="c")
            else:
                consumer = getattr(client, kind)("t", group="c")
            if is_started:
                await consumer.start()
        for _ in range(2):
            await consumer.close()
            consumer.stop()
        async with cluster.client() as client:
            async with client.pull_consumer(group="p"):
                await client.close()
            await client.close()

    run_sim(main)


def test_closed_parts_are_not_kept() -> None:
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
def test_wait_closed_raises_a_lasting_failure(kind: str) -> None:
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


def in_its_loop(loop: SimLoop, work: Coroutine[Any, Any, T]) -> T:
    try:
        return loop.run_until_complete(work)
    finally:
        loop.end_tasks()


@pytest.mark.parametrize("is_ended", [True, False])
def test_client_of_another_event_loop_says_so_instead_of_hanging(*, is_ended: bool) -> None:
    client = Client(ClientConfig("10.0.0.1:9876", group="g"))

    async def begin() -> tuple[Producer, Consumer, PopConsumer, PullConsumer]:
        await client.start()
        producer, pull_consumer = client.producer(), client.pull_consumer()
        assert producer.send_nowait("t", b"x").cancel()
        await pull_consumer.start()
        return producer, client.consumer("t"), client.pop_consumer("t"), pull_consumer

    first, second = SimLoop(1), SimLoop(2)  # type: ignore[abstract] # as in run_simulation
    producer, consumer, pop_consumer, pull_consumer = in_its_loop(first, begin())
    if is_ended:
        first.close()
    uses: list[Callable[[], Any]] = [
        lambda: producer.send("t", b"x"),
        lambda: producer.send_nowait("t", b"x"),
        lambda: producer.send_batch("t", [b"x"]),
        producer.ready,
        producer.flush,
        producer.close,
        consumer.start,
        consumer.getone,
        consumer.batches,
        consumer.wait_closed,
        lambda: aiter(consumer),
        pop_consumer.getone,
        pop_consumer.close,
        pull_consumer.poll,
        pull_consumer.close,
        client.producer,
        lambda: client.consumer("t"),
        lambda: client.pop_consumer("t"),
        client.pull_consumer,
        client.start,
        client.close,
    ]

    async def call(use: Callable[[], Any]) -> None:
        outcome = use()
        if inspect.isawaitable(outcome):
            await asyncio.wait_for(outcome, 1)

    async def misuse() -> None:
        for use in uses:
            with pytest.raises(ClosedError, match=r"in an event loop that .*: connect\(\)") as told:
                await call(use)
            assert ("has ended" in str(told.value)) is is_ended
            assert not told.value.retriable
        assert "running" in repr(client)

    in_its_loop(second, misuse())
    for loop in (first, second):
        loop.close()


def test_closed_client_can_be_closed_again_in_another_loop() -> None:
    client = Client(ClientConfig("10.0.0.1:9876"))

    async def whole() -> Producer:
        async with client:
            return client.producer()

    async def again(producer: Producer) -> None:
        await producer.close()
        await client.close()
        with pytest.raises(ClosedError, match="closed"):
            await client.start()

    first, second = SimLoop(1), SimLoop(2)  # type: ignore[abstract] # as in run_simulation
    in_its_loop(second, again(in_its_loop(first, whole())))
    for loop in (first, second):
        loop.close()


# ---- one loop, one process


def test_awaited_client_is_started_and_can_be_entered_too() -> None:
    async def main(cluster: Cluster) -> None:
        client = await cluster.client()
        await client.producer().send("t", b"x")
        async with client as same:
            assert same is client
        with pytest.raises(ClosedError):
            client.producer()

    run_sim(main)


def test_awaited_consumer_is_started() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = await client.consumer("t", group="c", start="earliest")
            await client.producer().send("t", b"x")
            message = await consumer.getone(timeout=60)
            assert message is not None
            await consumer.close()

    run_sim(main)


def test_start_without_asyncio_names_it() -> None:
    for coroutine in (
        Client(ClientConfig("h:1")).start(),
        Client(ClientConfig("h:1")).__aenter__(),
    ):
        with pytest.raises(ClientError, match="RocketPy needs asyncio"):
            coroutine.send(None)  # as trio would


@pytest.mark.parametrize("has_middleware", [False, True])
@pytest.mark.parametrize("name", ["send_nowait", "send_oneway", "transaction"])
@pytest.mark.parametrize("is_started", [False, True])
def test_call_on_another_thread_says_so(name: str, has_middleware: bool, is_started: bool) -> None:
    async def around(sending: Any, proceed: Any) -> Any:
        return await proceed(sending)

    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            middlewares = [around] if has_middleware else []
            producer = client.producer(group="tx", middlewares=middlewares)
            if is_started:
                await producer.send("t", b"x")
            errors: list[Exception] = []

            def call() -> None:
                try:
                    getattr(producer, name)("t", b"x")
                except ClientError as error:
                    errors.append(error)

            thread = threading.Thread(target=call)
            thread.start()
            thread.join()
            if name != "transaction":  # sends nothing before it is entered
                assert "call_soon_threadsafe" in str(errors[0])
            assert producer.in_flight == 0

    run_sim(main)


def test_parts_of_a_client_cannot_be_pickled_or_copied() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(group="tx")
            for part in (
                client,
                producer,
                producer.transaction("t", b"x"),
                client.consumer("t", group="c"),
                client.pull_consumer(group="p"),
                client.pop_consumer("t", group="o"),
            ):
                for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
                    with pytest.raises(TypeError, match="cannot be pickled or copied"):
                        attempt(part)

    run_sim(main)


def test_parts_are_closed_again_after_their_client_without_harm() -> None:
    async def main(cluster: Cluster) -> None:
        client = await cluster.client()
        parts: list[AsyncClosable] = [
            client.producer(),
            client.producer(linger=0.01),
            await client.consumer("t", group="c", handler=nothing),
            client.consumer("t", group="never-started"),
            client.pull_consumer(group="p"),
            await client.pop_consumer("t", group="o"),
            client.responder("t", group="r", handler=nothing),
        ]
        await client.close()
        for part in (*parts, client):
            for _ in range(2):
                await part.close()

    run_sim(main)
