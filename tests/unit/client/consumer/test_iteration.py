"""A loop over messages may be left, timed out and begun again: nothing is lost by it."""

import asyncio
import contextlib
import gc
from typing import Any

import pytest

from rocketpy.errors import ClosedError
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing, until

KINDS = ["consumer", "pop_consumer"]


def make(client: Any, kind: str, **options: Any) -> Any:
    return getattr(client, kind)("t", **{"group": "c", "start": "earliest", **options})


def committed(cluster: Cluster) -> int:
    return sum(offset for key, offset in cluster.offsets.items() if key[2] == "t")


@pytest.mark.parametrize("kind", KINDS)
def test_message_of_a_left_loop_is_first_in_the_next_loop(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 6)
        got: list[int] = []
        async with cluster.client() as client, make(client, kind) as consumer:
            async for message in consumer:
                got.append(int(message.body))
                if len(got) == 2:
                    break
            with contextlib.suppress(KeyError):
                async for message in consumer:
                    got.append(int(message.body))
                    if len(got) == 4:
                        raise KeyError
            async for message in consumer:
                got.append(int(message.body))
                if len(got) == 8:
                    break
        assert got == [0, 1, 1, 2, 2, 3, 4, 5]

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_message_settled_before_the_loop_was_left_is_not_redelivered(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        got: list[int] = []
        async with cluster.client() as client, make(client, kind) as consumer:
            async for message in consumer:
                await message.ack()
                break
            messages = aiter(consumer)
            message = await anext(messages)
            await messages.aclose()
            await message.ack()  # while it waits to be given again
            async for message in consumer:
                got.append(int(message.body))
                await message.ack()
                break
        assert got == [2]

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own_loop", [False, True])
def test_time_out_costs_nothing(kind: str, own_loop: bool) -> None:
    async def main(cluster: Cluster) -> None:
        got: list[int] = []
        async with cluster.client() as client, make(client, kind) as consumer:
            messages = aiter(consumer) if own_loop else consumer
            for number in range(4):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(messages), 1)
                cluster.put("t", b"%d" % number)
                message = await asyncio.wait_for(anext(messages), 30)
                got.append(int(message.body))
        assert got == [0, 1, 2, 3]
        if kind == "consumer":
            assert committed(cluster) == 3, "the last one is still in hand"

    run_sim(main, queues=1)


def test_loops_of_several_tasks_do_not_finish_each_other_s_messages() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        hands: dict[str, int] = {}

        async def work(consumer: Any, name: str) -> None:
            async for message in consumer:
                hands[name] = message.offset
                await pass_time(1_000 if message.offset == 0 else 1)

        async with cluster.client() as client, make(client, "consumer") as consumer:
            tasks = [asyncio.ensure_future(work(consumer, name)) for name in ("one", "two")]
            await until(lambda: max(hands.values(), default=0) == 3)
            await pass_time(10)
            await consumer.commit()
            assert committed(cluster) == 0, "the first one is still in hand"
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    run_sim(main, queues=1)


def test_message_of_a_task_that_failed_goes_to_another() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        got: list[int] = []

        async def fails(consumer: Any) -> None:
            async for _ in consumer:
                raise KeyError

        async def works(consumer: Any) -> None:
            async for message in consumer:
                got.append(message.offset)  # noqa: PERF401 - one by one is what it is about

        async with cluster.client() as client, make(client, "consumer") as consumer:
            failing = asyncio.ensure_future(fails(consumer))
            await until(failing.done)
            assert isinstance(failing.exception(), KeyError)
            working = asyncio.ensure_future(works(consumer))
            await until(lambda: len(got) == 2)
            assert got == [0, 1]
            working.cancel()
            await asyncio.wait([working])

    run_sim(main, queues=1)


def test_iterator_that_is_closed_or_collected_gives_its_message_back() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        async with cluster.client() as client, make(client, "consumer") as consumer:
            messages: Any = aiter(consumer)
            assert aiter(messages) is messages
            assert (await anext(messages)).offset == 0
            await messages.aclose()
            await messages.aclose()
            assert (await anext(messages)).offset == 0
            assert (await anext(messages)).offset == 1
            del messages
            gc.collect()
            assert (await anext(consumer)).offset == 1

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_iterating_in_a_wrong_state_raises(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(ClosedError, match="iterate"):
                await anext(make(client, kind))
            async with make(client, kind, handler=nothing) as consumer:
                with pytest.raises(ClosedError, match="iterate"):
                    aiter(consumer)

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_close_ends_every_loop(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with make(client, kind) as consumer:
                waiting = [asyncio.ensure_future(anext(aiter(consumer), None)) for _ in range(3)]
                await pass_time(1)
            assert await asyncio.gather(*waiting) == [None] * 3
            with pytest.raises(StopAsyncIteration):
                await anext(consumer)

    run_sim(main)
