"""Reading a topic without a group, up to an end."""

import asyncio
import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from rocketpy.errors import (
    ClientError,
    ClosedError,
    ConfigError,
    ConnectError,
    ExpressionError,
    NoRouteError,
    TopicNotExistError,
)
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import PULL, fill, moved_to

UPDATE_OFFSET = 15
MAX_OFFSET = 30


async def bodies(client: Any, **options: Any) -> list[bytes]:
    async with asyncio.timeout(60):
        return [message.body async for message in client.read("t", **options)]


async def rest(messages: Any) -> list[bytes]:
    async with asyncio.timeout(60):
        return [message.body async for message in messages]


def numbers(count: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(count))


def test_topic_is_read_to_the_end_that_it_had_at_first() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 300)
        got: list[bytes] = []
        async with cluster.client() as client:
            began_ms = cluster.clock.monotonic_ms()
            async for message in client.read("t"):
                got.append(message.body)
                if len(got) < 100:
                    cluster.put("t", b"later", queue_id=message.queue.queue_id)
            assert cluster.clock.monotonic_ms() - began_ms < 1_000, "the end is not waited for"
            assert sorted(got) == sorted(b"%d" % number for number in range(300))
            assert not client._parts, "the reader is closed"
        assert cluster.of_code(UPDATE_OFFSET) == []
        assert not list(cluster.offsets.items())

    run_sim(main)


def test_positions_are_those_of_consumers() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        await pass_time(10)
        ms = cluster.clock.time_ms()
        await pass_time(10)
        cluster.put("t", b"new")
        async with cluster.client() as client:
            moments: list[Any] = [ms, ms / 1_000, datetime.fromtimestamp(ms / 1_000, UTC)]
            moments.append(datetime.fromtimestamp(ms / 1_000))  # noqa: DTZ006 - local time
            for moment in moments:
                assert await bodies(client, start=moment) == [b"new"]
                assert await bodies(client, until=moment) == [b"0", b"1"]
            assert await bodies(client, start="latest") == []
            assert await bodies(client, until="earliest") == []
            assert await bodies(client, start=ms, until=ms) == []
            assert await bodies(client, until="latest") == [b"0", b"1", b"new"]

    run_sim(main, queues=1)


def test_end_that_is_none_is_refused_with_those_that_are() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            wrong: Any
            for wrong in ("End", True, float("nan"), "2026-01-01"):
                with pytest.raises(ConfigError, match="is not one of 'end', a datetime, a number"):
                    await bodies(client, until=wrong)

    run_sim(main)


def test_reading_without_an_end_waits_for_further_messages() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            asyncio.get_running_loop().call_later(20, cluster.put, "t", b"x")
            async for message in client.read("t", start="latest", until=None):
                assert message.body == b"x"
                break
            await pass_time(1)
            assert not client._parts, "a loop that is left closes its reader"

    run_sim(main)


@pytest.mark.parametrize("options", [{"filter": "b"}, {"sql": "TAGS = 'b'"}], ids=repr)
def test_messages_that_are_filtered_out_do_not_keep_the_end(options: Any) -> None:
    async def main(cluster: Cluster) -> None:
        for number in range(200):
            tag = "b" if number in {3, 70} else "a"
            cluster.put("t", b"%d" % number, properties={"TAGS": tag})
        async with cluster.client() as client:
            assert await bodies(client, **options) == [b"3", b"70"]

    run_sim(main, queues=1, properties={"enablePropertyFilter": "true"})


def test_reading_survives_failed_pulls_and_lost_offsets() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        cluster.script[PULL] = [ConnectError("gone"), "lost", 1, None]
        async with cluster.client() as client:
            assert len(await bodies(client)) == 40

    run_sim(main)


def test_reader_that_cannot_read_says_so() -> None:
    async def main(cluster: Cluster) -> None:
        client = cluster.client()
        with pytest.raises(ClosedError, match="not started"):
            client.read("t")
        async with client:
            with pytest.raises(NoRouteError, match="no broker serves topic nosuch"):
                async for _ in client.read("nosuch"):
                    pass
            for options, key in (
                ({"start": "begin"}, "start"),
                ({"until": "never"}, "until"),
                ({"until": 1e300}, "until"),
            ):
                with pytest.raises(ConfigError) as caught:
                    client.read("t", **options)
                assert caught.value.key == key
            with pytest.raises(ExpressionError):
                client.read("t", sql="a >")
            assert not client._parts

    run_sim(main)


def test_offsets_of_a_topic_are_those_of_its_queues() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3)
        async with cluster.client() as client:
            queues = [MessageQueue("t", "broker-a", number) for number in range(2)]
            assert await client.end_offsets("t") == {queues[0]: 2, queues[1]: 1}
            assert await client.begin_offsets("t") == {queues[0]: 0, queues[1]: 0}
            with pytest.raises(NoRouteError):
                await client.end_offsets("nosuch")

    run_sim(main, queues=2)


def test_topic_of_a_namespace_is_read_by_its_own_name() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("ns%t", b"x")
        async with cluster.client(namespace="ns") as client:
            assert await bodies(client) == [b"x"]
            assert sum((await client.end_offsets("t")).values()) == 1

    run_sim(main, topics=("ns%t",))


def test_topics_are_those_of_users_and_of_the_namespace() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, cluster.client(namespace="ns") as other:
            async with client.consumer("t", group="c"):
                await pass_time(5)
            assert await client.topics() == ["ns%u", "t"]
            assert await other.topics() == ["u"]

    run_sim(main, topics=("t", "ns%u", "%DLQ%c"))


def test_calls_that_time_out_while_reading_begins_lose_no_message() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 100)
        cluster.latency_ms = 50
        async with cluster.client() as client:
            messages = client.read("t")
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(messages), 0.01)
            assert sorted(await rest(messages)) == numbers(100)
            with pytest.raises(StopAsyncIteration):
                await anext(messages)

    run_sim(main)


def test_calls_shorter_than_each_request_read_everything() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 100)
        cluster.latency_ms = 50
        got: list[bytes] = []
        async with cluster.client() as client:
            messages = client.read("t")
            while True:
                try:
                    got.append((await asyncio.wait_for(anext(messages), 0.004)).body)
                except TimeoutError:
                    continue
                except StopAsyncIteration:
                    break
        assert sorted(got) == numbers(100)

    run_sim(main)


@pytest.mark.parametrize("begun", [0, 1])
@pytest.mark.parametrize("tasks", [2, 3, 8])
def test_tasks_that_share_an_iterator_read_each_message_once(tasks: int, begun: int) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 500)
        async with cluster.client() as client:
            messages = client.read("t")
            got = [(await anext(messages)).body for _ in range(begun)]
            parts = await asyncio.gather(*(rest(messages) for _ in range(tasks)))
            for part in parts:
                got += part
            assert sorted(got) == numbers(500)
            assert not client._parts

    run_sim(main)


def test_cancelled_task_leaves_messages_to_the_others() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 100)
        async with cluster.client() as client:
            messages = client.read("t")
            got: list[bytes] = []

            async def one_and_wait() -> None:
                got.append((await anext(messages)).body)
                await asyncio.Event().wait()

            task = asyncio.create_task(one_and_wait())
            await pass_time(1)
            task.cancel()
            await asyncio.wait([task])
            assert sorted(got + await rest(messages)) == numbers(100)

    run_sim(main)


def test_beginning_that_failed_is_repeated_by_the_next_call() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        cluster.script[MAX_OFFSET] = [ConnectError("gone")]
        async with cluster.client() as client:
            messages = client.read("t")
            calls = [asyncio.ensure_future(anext(messages)) for _ in range(2)]
            failures = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(each) for each in failures] == [ConnectError, ConnectError]
            assert sorted(await rest(messages)) == numbers(40)

    run_sim(main)


def test_reading_continues_after_a_lasting_failure_was_raised() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 40)
        cluster.script[PULL] = [None, 17]  # the second pull finds no such topic
        async with cluster.client() as client:
            messages = client.read("t")
            got = [(await anext(messages)).body for _ in range(32)]
            with pytest.raises(TopicNotExistError):
                await anext(messages)
            assert sorted(got + await rest(messages)) == numbers(40)

    run_sim(main, queues=1)


def test_client_that_closes_before_the_end_is_no_end() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 100)
        client = cluster.client()
        await client.start()
        begun, fresh = client.read("t"), client.read("t")
        waiting = client.read("t", start="latest", until=None)
        await anext(begun)
        call = asyncio.ensure_future(anext(waiting))
        await pass_time(1)
        await client.close()
        with pytest.raises(ClosedError, match="before topic t was read to its end"):
            await call
        for messages in (begun, fresh):
            with pytest.raises(ClosedError):
                await rest(messages)

    run_sim(main)


@pytest.mark.parametrize("latency_ms", [0, 50], ids=["reading", "beginning"])
def test_iterator_that_is_left_while_a_call_waits_closes_its_reader(latency_ms: int) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.latency_ms = latency_ms
        async with cluster.client() as client:
            messages = client.read("t", until=None)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(messages), 0.08)
            del messages
            await pass_time(5)
            assert not client._parts
            messages = client.read("t", until=None)
            call = asyncio.ensure_future(anext(messages))
            await pass_time(0.08)
            await messages.aclose()  # type: ignore[attr-defined]
            with pytest.raises(StopAsyncIteration):
                await call
            assert not client._parts

    run_sim(main)


def test_reading_without_an_end_follows_a_topic_that_grows() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            messages = client.read("t", start="latest", until=None)
            first = asyncio.ensure_future(anext(messages))
            await pass_time(1)
            cluster.create_topic("t", 3)
            for queue_id in range(3):
                cluster.put("t", b"%d" % queue_id, queue_id=queue_id)
            async with asyncio.timeout(120):
                got = [await first, await anext(messages), await anext(messages)]
            assert sorted(message.body for message in got) == numbers(3)

    run_sim(main, queues=1)


def test_end_in_the_future_is_waited_for() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        async with cluster.client() as client:
            loop = asyncio.get_running_loop()
            end_ms = cluster.clock.time_ms() + 20_000
            loop.call_later(10, cluster.put, "t", b"2")
            # Grown shortly before the end: the route is not refreshed by then.
            loop.call_later(18, cluster.create_topic, "t", 2)
            loop.call_later(19.9, cluster.put, "t", b"3", 1)
            loop.call_later(20.0, cluster.put, "t", b"late")
            loop.call_later(20.01, cluster.put, "t", b"later")
            assert sorted(await bodies(client, until=end_ms)) == numbers(4)
            assert 0 <= cluster.clock.time_ms() - end_ms < 1_000
            assert not client._parts

    run_sim(main, queues=1)


def test_times_before_and_after_all_messages_are_bounds() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        await pass_time(10)
        async with cluster.client() as client:
            now_ms = cluster.clock.time_ms()
            assert await bodies(client, until=now_ms - 3_600_000) == [], "messages are younger"
            assert await bodies(client, start=now_ms, until=now_ms - 5_000) == []
            assert await bodies(client, start=now_ms + 9_000, until=now_ms + 5_000) == []
            assert await bodies(client, start=now_ms + 9_000) == []
            assert cluster.clock.time_ms() - now_ms < 1_000, "nothing can come: nothing to wait for"
            loop = asyncio.get_running_loop()
            for after_s in (1, 6, 11):
                loop.call_later(after_s, cluster.put, "t", b"%d" % after_s)
            got = await bodies(client, start=now_ms + 5_000, until=now_ms + 10_000)
            assert got == [b"6"]

    run_sim(main, queues=2)


def test_head_that_is_deleted_during_the_reading_is_left_out() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 100)
        moved_to(cluster, 60)
        async with cluster.client() as client:
            assert len(await bodies(client)) == 40

    run_sim(main, queues=1)


def test_topic_that_is_created_again_during_the_reading_is_an_error() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 3_000)
        async with cluster.client() as client:
            messages = client.read("t")
            await anext(messages)
            cluster.store().delete_topics(["t"])
            cluster.put("t", b"new")
            with pytest.raises(ClientError, match="ended at offset 3000 when the reading began"):
                await rest(messages)

    run_sim(main, queues=1)


def test_reading_asks_for_the_route_again_after_queues_were_taken_away() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 8)
        async with cluster.client() as client:
            assert len(await bodies(client)) == 8
            cluster.create_topic("t", 2)
            await pass_time(1)
            assert len(await bodies(client)) == 4

    run_sim(main)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_loops_are_not_copied(copied: Callable[[Any], Any]) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, client.consumer("t", group="c") as consumer:
            for loop in (client.read("t"), aiter(consumer), consumer.batches()):
                with pytest.raises(TypeError, match="cannot be pickled or copied"):
                    copied(loop)

    run_sim(main)
