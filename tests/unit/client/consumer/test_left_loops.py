"""Worker loops that are begun again after each exception, and how their messages are settled."""

import asyncio
import contextlib
import tempfile
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpy.errors import ClientError, ConfigError
from tests.unit.client.sim import SEND_BACK, Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing, until

KINDS = ["consumer", "pop_consumer"]
CHANGE_INVISIBLE, ACK = 200_053, 200_051


def make(client: Any, kind: str, **options: Any) -> Any:
    return getattr(client, kind)("t", **{"group": "c", "start": "earliest", **options})


def committed(cluster: Cluster) -> int:
    return sum(offset for key, offset in cluster.offsets.items() if key[2] == "t")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("in_batches", [False, True])
def test_worker_loop_with_a_message_that_always_fails_receives_the_others(
    kind: str, *, in_batches: bool
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 10)
        got: list[int] = []

        async def worker(consumer: Any) -> None:
            while True:
                with contextlib.suppress(ValueError):
                    async for item in consumer.batches(1) if in_batches else consumer:
                        message = item[0] if in_batches else item
                        got.append(int(message.body))
                        if message.body == b"2":
                            raise ValueError

        async with cluster.client() as client, make(client, kind) as consumer:
            working = asyncio.create_task(worker(consumer))
            await until(lambda: 9 in got)
            assert got[:10] == [0, 1, 2, 2, 3, 4, 5, 6, 7, 8]
            if kind == "consumer":
                [sent_back] = cluster.of_code(SEND_BACK)
                assert sent_back.ext_fields["delayLevel"] == "0", "it grows with each retry"
                await pass_time(6)
                assert committed(cluster) == 10, "the message is stored again"
                assert consumer.stats.counts["t"].failed == 1
            else:
                assert consumer.stats.counts["t"].failed >= 1
                await until(lambda: got.count(2) == 4)
                assert cluster.of_code(CHANGE_INVISIBLE), "it was invisible for the first delay"
            working.cancel()
            await asyncio.wait([working])

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_that_fails_twice_is_redelivered_later(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 6)
        got: list[list[int]] = []
        async with cluster.client() as client, make(client, kind) as consumer:
            await pass_time(5)
            for _ in range(3):
                with contextlib.suppress(ValueError):
                    async for messages in consumer.batches(2):
                        got.append([int(each.body) for each in messages])
                        raise ValueError
        assert got == [[0, 1], [0, 1], [2, 3]]
        if kind == "consumer":
            assert len(cluster.of_code(SEND_BACK)) == 2

    run_sim(main, queues=1)


def test_message_that_fails_in_lists_of_a_poll_leaves_out_no_other() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 8)
        done: list[int] = []
        async with (
            cluster.client() as client,
            client.pull_consumer(group="p", start="earliest") as consumer,
        ):
            await consumer.subscribe("t")
            await pass_time(5)

            async def work() -> None:
                while messages := await consumer.poll(timeout=2):
                    for message in messages:
                        if message.body == b"3":
                            raise ValueError
                        done.append(int(message.body))

            for _ in range(3):
                await asyncio.wait([asyncio.create_task(work())])
        assert done == [0, 1, 2, 0, 1, 2, 4, 5, 6, 7]

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_task_that_fails_twice_with_a_message_sends_it_back(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        got: list[int] = []

        async def work(consumer: Any) -> None:
            while (message := await consumer.getone(timeout=2)) is not None:
                got.append(int(message.body))
                if message.body == b"1":
                    raise ValueError

        async with cluster.client() as client, make(client, kind) as consumer:
            for _ in range(3):
                await asyncio.wait([asyncio.create_task(work(consumer))])
        assert got == [0, 1, 1, 2]

    run_sim(main, queues=1)


def test_message_that_fails_twice_in_a_broadcast_loop_is_dropped() -> None:
    async def main(cluster: Cluster, directory: str) -> None:
        fill(cluster, 3)
        got: list[int] = []
        async with cluster.client() as client:
            options = {"broadcast": True, "offset_dir": directory}
            async with make(client, "consumer", **options) as consumer:
                for _ in range(3):
                    async for message in consumer:
                        got.append(int(message.body))
                        if message.body != b"2":
                            break
                        await message.ack()
                        break
        assert got == [0, 0, 1]

    import tempfile  # noqa: PLC0415 - one test

    with tempfile.TemporaryDirectory() as directory:
        run_sim(lambda cluster: main(cluster, directory), queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_manual_acknowledgement_leaves_messages_to_their_ack(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 6)
        waiting: asyncio.Queue[Any] = asyncio.Queue()

        async def receive(consumer: Any) -> None:
            async for message in consumer:
                waiting.put_nowait(message)

        async with cluster.client() as client:
            async with make(client, kind, auto_ack=False) as consumer:
                receiving = asyncio.create_task(receive(consumer))
                await until(lambda: waiting.qsize() == 6)
                messages = [waiting.get_nowait() for _ in range(6)]
                receiving.cancel()
                await asyncio.wait([receiving])
                assert await consumer.getone(timeout=2) is None, "a loop that ends returns none"
                for message in (messages[0], messages[1], messages[3]):
                    await message.ack()
                if kind == "consumer":
                    await consumer.commit()
                    assert committed(cluster) == 2, "the third message is not settled"
                else:
                    assert consumer.in_hand == 3
                assert consumer.stats.counts["t"].handled == 3
                await messages[2].ack()
                await messages[4].nack()
            if kind == "consumer":
                assert committed(cluster) == 5, "the last one was never settled"
                assert len(cluster.of_code(SEND_BACK)) == 1
            else:
                assert len(cluster.of_code(ACK)) == 4
            assert consumer.stats.counts["t"][1:3] == (4, 1)

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_manual_acknowledgement_of_getone_and_batches(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 6)
        async with cluster.client() as client:
            async with make(client, kind, auto_ack=False) as consumer:
                await pass_time(5)
                got = [await consumer.getone(timeout=5), *await consumer.getmany(2, timeout=5)]
                async for messages in consumer.batches():
                    got += messages
                    break
                assert [int(each.body) for each in got] == [*range(6)]
                for each in got[1:]:
                    await each.ack()
                with pytest.raises(ClientError, match="its ack"):
                    await consumer.ack_all()
            if kind == "consumer":
                assert committed(cluster) == 0
            else:
                assert len(cluster.of_code(ACK)) == 5

    run_sim(main, queues=1)


def test_manual_acknowledgement_after_the_consume_timeout_is_too_late() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        async with cluster.client(persist_interval=1) as client:
            options = {"auto_ack": False, "consume_timeout": 10}
            async with make(client, "consumer", **options) as consumer:
                [late, kept] = await consumer.getmany(2, timeout=5)
                await pass_time(5)
                await kept.in_progress()
                await pass_time(8)
                assert len(cluster.of_code(SEND_BACK)) == 1
                await late.ack()
                await kept.ack()
        assert committed(cluster) == 2

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_manual_acknowledgement_with_a_handler_is_refused(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(ConfigError, match="auto_ack"):
                make(client, kind, auto_ack=False, handler=nothing)

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["loop", "batches", "getmany"])
def test_ack_all_before_the_end_settles_the_last_messages(kind: str, way: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            async with make(client, kind) as consumer:
                await pass_time(5)
                if way == "getmany":
                    assert len(await consumer.getmany(4)) == 4
                    await consumer.ack_all()
                elif way == "batches":
                    async for _ in consumer.batches(4):
                        await consumer.ack_all()
                        break
                else:
                    async for message in consumer:
                        if message.body == b"3":
                            await consumer.ack_all()
                            break
            if kind == "consumer":
                assert committed(cluster) == 4
            else:
                assert len(cluster.of_code(ACK)) == 4

    run_sim(main, queues=1)


def test_ack_all_leaves_messages_of_other_tasks() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)

        async def other(consumer: Any) -> None:
            await consumer.getone(timeout=5)
            await pass_time(100)

        async with cluster.client() as client, make(client, "consumer") as consumer:
            working = asyncio.create_task(other(consumer))
            await pass_time(10)
            await consumer.getmany(2, timeout=5)
            await consumer.ack_all()
            await consumer.commit()
            assert committed(cluster) == 0
            working.cancel()
            await asyncio.wait([working])

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", [*KINDS, "pull_consumer"])
def test_awaited_stop_closes_the_consumer(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)
        async with cluster.client() as client:
            if kind == "pull_consumer":
                consumer = client.pull_consumer(group="c", start="earliest")
                await consumer.start()
            else:
                consumer = make(client, kind)
                await consumer.start()
                assert cluster.members("c")
            await consumer.stop()
            assert not cluster.members("c")
            await consumer.close()
        await consumer.close()
        await consumer.stop()

    run_sim(main, queues=1)


async def in_loop(consumer: Any, work: Callable[[Any], None]) -> None:
    async for message in consumer:
        work(message)


async def in_batches(consumer: Any, work: Callable[[Any], None]) -> None:
    async for messages in consumer.batches(1):
        work(messages[0])


async def one_by_one(consumer: Any, work: Callable[[Any], None]) -> None:
    while True:
        work(await consumer.getone())


async def in_task_group(consumer: Any, work: Callable[[Any], None]) -> None:
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(in_loop(consumer, work))


@pytest.mark.parametrize("receive", [in_loop, in_batches, one_by_one, in_task_group])
def test_worker_that_replaces_its_consumer_after_a_failure_receives_the_others(
    receive: Callable[[Any, Callable[[Any], None]], Awaitable[None]],
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 10)
        got: list[int] = []

        def work(message: Any) -> None:
            got.append(int(message.body))
            if message.body == b"2":
                raise ValueError

        async def worker(client: Any) -> None:
            while True:
                with contextlib.suppress(ValueError, ExceptionGroup):
                    async with make(client, "consumer") as consumer:
                        await receive(consumer, work)

        async with cluster.client() as client:
            working = asyncio.create_task(worker(client))
            await until(lambda: 9 in got)
            assert got[:10] == [0, 1, 2, 2, 3, 4, 5, 6, 7, 8]
            [sent_back] = cluster.of_code(SEND_BACK)
            assert sent_back.ext_fields["delayLevel"] == "0", "it grows with each retry"
            working.cancel()
            await asyncio.wait([working])

    run_sim(main, queues=1)


@pytest.mark.parametrize("error", [None, asyncio.CancelledError])
def test_consumers_that_are_closed_without_a_failure_send_nothing_back(
    error: type[BaseException] | None,
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        got: list[int] = []
        async with cluster.client() as client:
            for _ in range(4):
                with contextlib.suppress(asyncio.CancelledError):
                    async with make(client, "consumer") as consumer:
                        async for message in consumer:
                            got.append(int(message.body))
                            if error is not None:
                                raise error
                            break
        assert got == [0, 0, 0, 0]
        assert not cluster.of_code(SEND_BACK)

    run_sim(main, queues=1)


def test_message_handled_by_a_second_consumer_counts_from_the_start_again() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        async with cluster.client() as client:
            with contextlib.suppress(ValueError):
                async with make(client, "consumer") as consumer:
                    assert (await anext(consumer)).body == b"0"
                    raise ValueError
            async with make(client, "consumer") as consumer:
                assert (await anext(consumer)).body == b"0"
                assert (await anext(consumer)).body == b"1"
                await consumer.ack_all()
                [queue] = [each for each in consumer.assignment if each.topic == "t"]
                await consumer.seek(queue, 0)
                with contextlib.suppress(ValueError):
                    async for message in consumer:
                        assert message.body == b"0"
                        raise ValueError
        assert not cluster.of_code(SEND_BACK)

    run_sim(main, queues=1)


def test_broadcasting_worker_that_replaces_its_consumer_receives_the_others() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        got: list[int] = []
        with tempfile.TemporaryDirectory() as directory:
            options = {"broadcast": True, "offset_dir": directory}
            async with cluster.client() as client:
                for _ in range(3):
                    with contextlib.suppress(ValueError):
                        async with make(client, "consumer", **options) as consumer:
                            while message := await consumer.getone(timeout=5):
                                got.append(int(message.body))
                                if message.body == b"1":
                                    raise ValueError
        assert got == [0, 1, 1, 2, 3]

    run_sim(main, queues=1)
