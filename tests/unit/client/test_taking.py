"""`getone`, `getmany` and `batches`, hooks of the assignment, and `stop`."""

import asyncio
import contextlib
from datetime import timedelta
from typing import Any

import pytest

from rocketpy.errors import ClientError, ClosedError
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing, until

KINDS = ["consumer", "pop_consumer"]
GIVE_BACK, ACK = 36, 200_051


def make(client: Any, kind: str, **options: Any) -> Any:
    return getattr(client, kind)("t", **{"group": "c", "start": "earliest", **options})


def bodies(messages: Any) -> list[int]:
    return [int(each.body) for each in messages]


def committed(cluster: Cluster) -> int:
    return sum(offset for key, offset in cluster.offsets.items() if key[2] == "t")


@pytest.mark.parametrize("kind", KINDS)
def test_one_is_done_when_the_next_is_asked_for(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            async with make(client, kind) as consumer:
                assert (await consumer.getone()).body == b"0"
                assert (await consumer.getone(timeout=5)).body == b"1"
                assert (await anext(consumer)).body == b"2", "they share one hand"
                assert bodies(await consumer.getmany()) == [3]
                if kind == "pop_consumer":
                    assert consumer.in_hand == 1
            if kind == "consumer":
                assert committed(cluster) == 3, "the last one was in hand"

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_getmany_returns_available_messages_up_to_the_limit(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 30)
        async with cluster.client() as client, make(client, kind) as consumer:
            await pass_time(5)
            assert bodies(await consumer.getmany(8)) == [*range(8)]
            assert bodies(await consumer.getmany(8, timeout=timedelta(seconds=1))) == [
                *range(8, 16)
            ]
            assert bodies(await consumer.getmany()) == [*range(16, 30)]
            assert await consumer.getmany(timeout=3) == []
            assert await consumer.getone(timeout=0) is None
            with pytest.raises(ValueError, match="max_messages"):
                await consumer.getmany(0)

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_getone_without_messages_waits_for_its_timeout(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, make(client, kind) as consumer:
            began_ms = cluster.clock.monotonic_ms()
            assert await consumer.getone(timeout=2.5) is None
            assert cluster.clock.monotonic_ms() - began_ms == 2_500
            waiting = asyncio.create_task(consumer.getone())
            await pass_time(1)
            fill(cluster, 1)
            assert (await waiting).body == b"0"

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_of_a_left_loop_is_redelivered_in_order(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 12)
        got: list[list[int]] = []
        async with cluster.client() as client, make(client, kind) as consumer:
            await pass_time(5)
            with contextlib.suppress(KeyError):
                async for messages in consumer.batches(max_messages=4):
                    got.append(bodies(messages))
                    await messages[0].ack()
                    if len(got) == 2:
                        raise KeyError
            async for messages in consumer.batches(max_messages=6):
                got.append(bodies(messages))
                if len(got) == 4:
                    break
            with pytest.raises(ValueError, match="max_messages"):
                consumer.batches(-1)
        assert got == [[0, 1, 2, 3], [4, 5, 6, 7], [5, 6, 7, 8, 9, 10], [11]]

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_stop_ends_loops_after_the_delivered_message(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 10)
        got: list[int] = []
        async with cluster.client() as client:
            async with make(client, kind) as consumer:
                waiting = asyncio.create_task(consumer.wait_closed())
                async for message in consumer:
                    got.append(int(message.body))
                    if len(got) == 3:
                        consumer.stop()
                async for messages in consumer.batches():
                    got += bodies(messages)
                with pytest.raises(ClosedError, match="stopped"):
                    await consumer.getone()
                await waiting
                consumer.stop()
            consumer.stop()
        assert got == [0, 1, 2]
        if kind == "consumer":
            assert committed(cluster) == 3

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ordered", [False, True])
def test_stop_lets_handlers_finish_and_begins_no_other(kind: str, *, ordered: bool) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 10)
        ended: list[int] = []

        async def handle(message: Any) -> None:
            await pass_time(2)
            ended.append(int(message.body))

        async with cluster.client() as client:
            options = {"handler": handle, "concurrency": 1, "ordered": ordered}
            async with make(client, kind, **options) as consumer:
                await until(lambda: len(ended) == 1)
                await pass_time(0.5)
                consumer.stop()
                await consumer.wait_closed()
                assert ended == [0]
        assert ended == [0, 1], "the one in hand was finished by the close"

    run_sim(main, queues=1)


def test_stop_of_a_waiting_loop_ends_it() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, make(client, "consumer") as consumer:
            asyncio.get_running_loop().call_later(3, consumer.stop)
            async for _ in consumer:
                pytest.fail("there is no message")

    run_sim(main)


def test_pull_consumer_has_the_same_names() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 9)
        async with cluster.client() as client:
            async with client.pull_consumer(group="c", start="earliest") as consumer:
                await consumer.assign([MessageQueue("t", "broker-a", 0)])
                first = await consumer.getone()
                assert first is not None
                assert first.body == b"0"
                assert bodies(await consumer.getmany(3)) == [1, 2, 3]
                got = []
                async for messages in consumer.batches(max_messages=4):
                    got.append(bodies(messages))
                    if len(got) == 2:
                        consumer.stop()
                assert got == [[4, 5, 6, 7], [8]]
                assert await consumer.poll() == []
                with pytest.raises(ClosedError, match="stopped"):
                    await consumer.getmany()
            assert committed(cluster) == 9

    run_sim(main, queues=1)


def test_nothing_is_taken_before_the_start_or_beside_a_handler() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            for kind in KINDS:
                consumer = make(client, kind)
                with pytest.raises(ClosedError, match="start the consumer"):
                    await consumer.getone()
                handled = make(client, kind, group=f"h-{kind}", handler=nothing)
                async with handled:
                    with pytest.raises(ClosedError, match="no handler"):
                        handled.batches()

    run_sim(main)


def test_group_consumer_seek_continues_at_the_offset() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 10)
        queue = MessageQueue("t", "broker-a", 0)
        async with cluster.client() as client:
            async with make(client, "consumer") as consumer:
                assert bodies(await consumer.getmany(4, timeout=5)) == [0, 1, 2, 3]
                await consumer.seek(queue, 8)
                assert bodies(await consumer.getmany(4, timeout=5)) == [8, 9]
                with pytest.raises(ClientError, match=r"outside 0\.\.10"):
                    await consumer.seek(queue, 11)
                with pytest.raises(ClientError, match="not assigned"):
                    await consumer.seek(MessageQueue("u", "broker-a", 0), 0)
                await consumer.seek(queue, 0)
                assert bodies(await consumer.getmany(2, timeout=5)) == [0, 1]
            assert committed(cluster) == 0

    run_sim(main, queues=1)


@pytest.mark.parametrize("is_told", [False, True])
def test_message_in_progress_is_not_given_back(*, is_told: bool) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)
        async with cluster.client(persist_interval=1) as client:
            options: dict[str, Any] = {"consume_timeout": 10}
            async with make(client, "consumer", **options) as consumer:
                message = await consumer.getone()
                for _ in range(6):
                    await pass_time(5)
                    if is_told:
                        await message.in_progress()
                assert len(cluster.of_code(GIVE_BACK)) == (0 if is_told else 1)
                await consumer.getone(timeout=0)
                await message.in_progress()  # of one that is done: nothing

    run_sim(main, queues=1)


@pytest.mark.parametrize("is_told", [False, True])
def test_popped_message_in_progress_stays_ours(*, is_told: bool) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)
        async with cluster.client() as client:
            async with make(client, "pop_consumer", invisible_time=10) as consumer:
                message = await consumer.getone()
                for _ in range(4):
                    await pass_time(6)
                    if is_told:
                        await message.in_progress()
                await message.ack()
                assert len(cluster.of_code(ACK)) == is_told, "whose time is over cannot ack"

    run_sim(main, queues=1)


@pytest.mark.parametrize("as_coroutine", [False, True])
@pytest.mark.parametrize("kind", ["consumer", "pull_consumer"])
def test_assignment_hooks_get_gained_and_lost_queues(kind: str, *, as_coroutine: bool) -> None:
    async def main(cluster: Cluster) -> None:
        told: list[tuple[str, list[int]]] = []

        def hook(name: str) -> Any:
            def tell(queues: list[MessageQueue]) -> None:
                told.append((name, [each.queue_id for each in queues]))
                if name == "fails":
                    raise ValueError(name)

            async def tell_later(queues: list[MessageQueue]) -> None:
                tell(queues)

            return tell_later if as_coroutine else tell

        async def member(client: Any, **options: Any) -> Any:
            if kind == "consumer":
                consumer = client.consumer("t", group="c", **options)
                await consumer.start()
            else:
                consumer = client.pull_consumer(group="c", **options)
                await consumer.start()
                await consumer.subscribe("t")
            return consumer

        async with (
            cluster.client(instance_name="a") as one,
            cluster.client(instance_name="b") as two,
        ):
            await member(one, on_assigned=hook("got"), on_revoked=hook("lost"))
            assert told == [("got", [0, 1, 2, 3])]
            second = await member(two, on_assigned=hook("fails"))
            await pass_time(40)
            assert sorted(told[1:]) == [("fails", [2, 3]), ("lost", [2]), ("lost", [3])]
            told.clear()
            await second.close()
            await pass_time(40)
            assert told == [("got", [2, 3])]
        assert told[1:] == [("lost", [0, 1, 2, 3])]

    run_sim(main)


def test_revoked_hook_can_commit_handled_messages() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)

        async def revoked(queues: list[MessageQueue]) -> None:
            await consumer.commit()
            seen.append(committed(cluster))

        seen: list[int] = []
        async with cluster.client() as client:
            consumer = make(client, "consumer", on_revoked=revoked)
            async with consumer:
                await consumer.getmany(2, timeout=5)
                await consumer.getone(timeout=5)
        assert seen == [2]

    run_sim(main, queues=1)
