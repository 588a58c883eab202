"""Tasks and threads that receive from one consumer: each has its messages until it asks again."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.client.consumer.iteration import BatchIterator, MessageIterator
from rocketpy.errors import ClientError, ClosedError
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, until

KINDS = ["consumer", "pop_consumer", "pull_consumer"]
COUNT = 200


async def start(client: Any, kind: str, **options: Any) -> Any:
    options = {"group": "c", "start": "earliest", **options}
    if kind == "consumer":
        options |= {"max_cached_messages": 20, "max_span": 40}  # a stall shows soon
    if kind == "pull_consumer":
        consumer = client.pull_consumer(**options)
        await consumer.start()
        await consumer.subscribe("t")
    else:
        consumer = getattr(client, kind)("t", **options)
        await consumer.start()
    return consumer


def committed(cluster: Cluster) -> int:
    return sum(offset for key, offset in cluster.offsets.items() if key[2] == "t")


async def by_getone(consumer: Any, got: Callable[[int], None]) -> None:
    while (message := await consumer.getone(timeout=20)) is not None:
        got(int(message.body))


async def by_getmany(consumer: Any, got: Callable[[int], None]) -> None:
    while messages := await consumer.getmany(7, timeout=20):
        for each in messages:
            got(int(each.body))


async def by_wait_for(consumer: Any, got: Callable[[int], None]) -> None:
    while True:
        try:
            message = await asyncio.wait_for(consumer.getone(), 20)
        except TimeoutError:
            return
        got(int(message.body))


async def by_own_task(consumer: Any, got: Callable[[int], None]) -> None:
    """Await each call beside another future, as a worker with a stop event does."""
    while True:
        asking = asyncio.create_task(consumer.getone())
        await asyncio.wait({asking}, timeout=20)
        if not asking.done():
            asking.cancel()
            await asyncio.wait({asking})
            return
        got(int(asking.result().body))


async def by_batches(consumer: Any, got: Callable[[int], None]) -> None:
    batches = aiter(consumer.batches(9))
    while True:
        try:
            messages = await asyncio.wait_for(anext(batches), 20)
        except TimeoutError:
            return
        for each in messages:
            got(int(each.body))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("work", [by_getone, by_getmany, by_wait_for, by_own_task, by_batches])
def test_consumer_of_several_tasks_delivers_everything_once(kind: str, work: Any) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, COUNT)
        got: list[int] = []
        async with cluster.client() as client:
            consumer = await start(client, kind)
            await asyncio.gather(*(work(consumer, got.append) for _ in range(3)))
            await consumer.close()
        assert sorted(got) == list(range(COUNT))
        if kind != "pop_consumer":
            assert committed(cluster) == COUNT

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_message_of_one_task_is_not_done_when_another_asks(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 8)
        async with cluster.client() as client:
            consumer = await start(client, kind)
            is_working = asyncio.Event()

            async def slow() -> None:
                message = await consumer.getone(timeout=20)
                assert message.body == b"0"
                is_working.set()
                await pass_time(40)
                await consumer.getone(timeout=0)

            slow_task = asyncio.create_task(slow())
            await is_working.wait()
            for body in (b"1", b"2", b"3"):
                message = await asyncio.wait_for(consumer.getone(), 20)
                assert message.body == body
            if kind == "pop_consumer":
                assert consumer.in_hand == 6, "two of eight are acked"
            else:
                await consumer.commit()
                assert committed(cluster) == 0, "the first message is not handled"
            await slow_task
            await consumer.getone(timeout=20)
            if kind != "pop_consumer":
                await consumer.commit()
                assert committed(cluster) >= 4
            await consumer.close()

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_second_call_of_a_task_that_waits_is_refused(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = await start(client, kind)
            waiting = asyncio.create_task(consumer.getone())
            await pass_time(1)
            for call in (consumer.getone(), consumer.getmany(5, timeout=1)):
                with pytest.raises(ClientError, match="this task already waits"):
                    await call
            assert await asyncio.create_task(another_task(consumer)) is None
            fill(cluster, 1)
            message = await waiting
            assert message.body == b"0", "the refused calls did no harm"
            await consumer.close()

    async def another_task(consumer: Any) -> Any:
        return await consumer.getone(timeout=1)

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("end", ["exception", "cancelled"])
def test_message_of_a_task_that_failed_is_delivered_to_a_waiting_one(kind: str, end: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)

        async def fails(consumer: Any) -> None:
            message = await consumer.getone(timeout=20)
            assert message.body == b"0"
            await pass_time(1)
            if end == "exception":
                raise KeyError
            await pass_time(1_000)

        async with cluster.client() as client:
            consumer = await start(client, kind)
            failing = asyncio.create_task(fails(consumer))
            await pass_time(0.5)
            waiting = asyncio.create_task(consumer.getone())
            await pass_time(2)
            failing.cancel()
            await asyncio.wait([failing])
            message = await asyncio.wait_for(waiting, 10)
            assert message.body == b"0"
            await consumer.close()

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_of_one_message_each_do_not_stall(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, COUNT)
        got: list[int] = []

        async def one(consumer: Any) -> None:
            message = await consumer.getone(timeout=50)
            got.append(int(message.body))

        async with cluster.client() as client:
            consumer = await start(client, kind)
            await asyncio.gather(*(one(consumer) for _ in range(COUNT)))
            assert sorted(got) == list(range(COUNT))
            assert await consumer.getone(timeout=1) is None
            await consumer.close()
        if kind != "pop_consumer":
            assert committed(cluster) == COUNT

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_close_ends_every_waiting_call(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = await start(client, kind)

            async def ask() -> None:
                await consumer.getone()

            waiting = [asyncio.create_task(ask()) for _ in range(3)]
            await pass_time(1)
            await consumer.close()
            for task in waiting:
                with pytest.raises(ClosedError):
                    await asyncio.wait_for(task, 5)

    run_sim(main)


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
@pytest.mark.parametrize("in_batches", [False, True])
def test_loop_object_shared_by_tasks_keeps_their_messages(kind: str, *, in_batches: bool) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        got: list[int] = []

        async def work(shared: Any, pause_s: float) -> None:
            async for item in shared:
                got.extend(int(each.body) for each in (item if in_batches else [item]))
                await pass_time(pause_s)

        async with cluster.client() as client:
            consumer = await start(client, kind)
            shared = consumer.batches(3) if in_batches else aiter(consumer)
            assert isinstance(shared, BatchIterator if in_batches else MessageIterator)
            tasks = [asyncio.create_task(work(shared, pause)) for pause in (0.1, 0.3, 1_000)]
            await until(lambda: len(got) == 40, 30)
            await pass_time(5)
            if kind == "consumer":
                await consumer.commit()
                assert committed(cluster) < 20, "the third task has an early message"
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await consumer.close()
        assert sorted(got) == list(range(40))

    run_sim(main, queues=1)


def test_poll_in_two_tasks_serves_both() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, client.pull_consumer(group="p") as consumer:
            await consumer.assign([MessageQueue("t", "broker-a", 0)])

            async def poll() -> bytes:
                [message] = await consumer.poll(max_messages=1, timeout=None)
                return message.body

            waiting = [asyncio.create_task(poll()) for _ in range(2)]
            await pass_time(1)
            cluster.put("t", b"0")
            await pass_time(5)
            cluster.put("t", b"1")
            assert sorted(await asyncio.wait_for(asyncio.gather(*waiting), 30)) == [b"0", b"1"]

    run_sim(main, queues=1)


def test_pull_commit_does_not_pass_a_message_of_another_task() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 9)

        async def slow(consumer: Any) -> None:
            await consumer.poll(max_messages=3)
            await pass_time(100)
            await consumer.commit()

        async with cluster.client() as client:
            async with client.pull_consumer(
                group="p", start="earliest", auto_commit=False
            ) as consumer:
                await consumer.assign([MessageQueue("t", "broker-a", 0)])
                working = asyncio.create_task(slow(consumer))
                await pass_time(20)
                assert len(await consumer.poll(max_messages=3)) == 3
                await consumer.commit()
                assert committed(cluster) == 0
                await working
                assert committed(cluster) == 6

    run_sim(main, queues=1)


def test_pulled_batch_that_fails_in_two_tasks_does_not_block_the_others() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        got: list[int] = []

        async def fails(consumer: Any) -> None:
            [message] = await consumer.poll(max_messages=1)
            got.append(int(message.body))
            if message.body == b"1":
                raise KeyError

        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign([MessageQueue("t", "broker-a", 0)])
                for _ in range(4):
                    await asyncio.wait([asyncio.create_task(fails(consumer))])
        assert got == [0, 1, 1, 2]
        assert committed(cluster) == 3

    run_sim(main, queues=1)


def test_message_of_an_ended_thread_is_redelivered(caplog: Any) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        async with cluster.client() as client:
            consumer = await start(client, "consumer")
            calls: list[Any] = []
            thread = threading.Thread(target=lambda: calls.append(consumer.getone(timeout=20)))
            thread.start()
            thread.join()
            message = await calls[0]  # as the thread of a blocking client runs it
            assert message.body == b"0"
            await pass_time(10)  # a job looks for ended threads
            message = await consumer.getone(timeout=20)
            assert message.body == b"0"
            assert "thread ended without ack" in caplog.text
            await consumer.close()

    run_sim(main, queues=1)
