"""A consumer that is asked: its queues, its positions, and what it commits when."""

import asyncio
from datetime import UTC, datetime

import pytest

from rocketpy.client.consumer.pull_consumer import PullConsumer
from rocketpy.errors import ClientError, ClosedError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, until

STORE, PULL = 15, 11
QUEUE = MessageQueue("t", "broker-a", 0)


async def polled(consumer: PullConsumer, count: int) -> list[int]:
    """Bodies of so many messages, as numbers."""
    found: list[int] = []
    async with asyncio.timeout(120):
        while len(found) < count:
            found += [int(each.body) for each in await consumer.poll(max_messages=count)]
    return found


def committed(cluster: Cluster, queue_id: int = 0) -> int:
    try:
        return cluster.offsets["p", "broker-a", "t", queue_id]
    except KeyError:
        return -1


def test_poll_returns_at_most_so_many_and_at_least_one_or_none_in_time() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 10)
        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                assert await consumer.poll(timeout=0) == []
                await consumer.assign([QUEUE])
                assert len(await consumer.poll(max_messages=4)) == 4
                assert len(await consumer.poll(max_messages=100)) == 6
                began_ms = cluster.elapsed_ms
                assert await consumer.poll(timeout=3) == []
                assert 2_900 <= cluster.elapsed_ms - began_ms <= 3_200

    run_sim(main, queues=1)


def test_message_that_comes_ends_a_poll_that_waits() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                await consumer.assign([QUEUE])
                waiting = asyncio.ensure_future(consumer.poll(timeout=60))
                await pass_time(5)
                cluster.put("t", b"1")
                [message] = await waiting
                assert message.body == b"1"

    run_sim(main, queues=1)


def test_positions_follow_what_is_handed_out_and_commits_the_positions() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 10)
        async with cluster.client() as client:
            async with client.pull_consumer(
                group="p", start="earliest", auto_commit=False
            ) as consumer:
                await consumer.assign([QUEUE])
                assert consumer.position(QUEUE) is None
                assert await consumer.committed(QUEUE) is None
                await consumer.poll(max_messages=4)
                assert consumer.position(QUEUE) == 4
                assert committed(cluster) == -1
                await consumer.commit()
                assert await consumer.committed(QUEUE) == 4
                await consumer.poll(max_messages=3)
        assert committed(cluster) == 4, "without auto_commit nobody commits but you"

    run_sim(main, queues=1)


def test_auto_commit_stores_what_earlier_polls_handed_out() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 10)
        async with cluster.client() as client:
            async with client.pull_consumer(
                group="p", start="earliest", auto_commit_interval=5
            ) as consumer:
                await consumer.assign([QUEUE])
                await consumer.poll(max_messages=4)
                await pass_time(6)
                assert committed(cluster) == -1, "they may still be worked on"
                await consumer.poll(max_messages=3)
                assert committed(cluster) == 4
                await consumer.poll(max_messages=1)
                assert committed(cluster) == 4, "not again so soon"
        assert committed(cluster) == 8, "a close commits what was handed out"

    run_sim(main, queues=1)


@pytest.mark.parametrize("is_read", [False, True])
def test_commit_passes_what_the_filter_skips_behind_the_last_message(*, is_read: bool) -> None:
    async def main(cluster: Cluster) -> None:
        for tag in ("other", "wanted", "wanted", "other", "other") if is_read else ("other",) * 5:
            cluster.put("t", b"1", properties={"TAGS": tag})
        async with cluster.client() as client:
            async with client.pull_consumer(
                group="p", start="earliest", auto_commit=False
            ) as consumer:
                await consumer.subscribe("t", filter="wanted")
                if is_read:
                    [first] = await consumer.poll(max_messages=1)
                    await pass_time(5)
                    await consumer.commit()
                    assert committed(cluster) == first.offset + 1, "the second one waits here"
                    [_] = await consumer.poll(max_messages=1)
                    assert consumer.position(QUEUE) == 3
                else:
                    assert await consumer.poll(timeout=5) == []
                await consumer.commit()
                assert committed(cluster) == 5

    run_sim(main, queues=1)


def test_exception_after_skipped_messages_commits_none_that_was_polled() -> None:
    async def main(cluster: Cluster) -> None:
        for tag in ("wanted", "other"):
            cluster.put("t", b"1", properties={"TAGS": tag})
        async with cluster.client() as client:

            async def fail() -> None:
                async with client.pull_consumer(group="p", start="earliest") as consumer:
                    await consumer.subscribe("t", filter="wanted")
                    assert len(await consumer.poll()) == 1
                    await pass_time(5)
                    raise ValueError("while it was handled")

            with pytest.raises(ValueError, match="while it was handled"):
                await fail()
            assert committed(cluster) == 0

    run_sim(main, queues=1)


def test_group_continues_at_its_committed_offset() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 6)
        for expected in ([0, 1], [2, 3], [4, 5]):
            async with cluster.client() as client:
                async with client.pull_consumer(group="p", start="earliest") as consumer:
                    await consumer.assign([QUEUE])
                    assert await polled(consumer, 2) == expected

    run_sim(main, queues=1)


def test_seek_moves_the_position_and_drops_cached_messages() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        await pass_time(100)
        middle_ms = cluster.clock.time_ms()
        await pass_time(100)
        for number in range(4, 8):
            cluster.put("t", b"%d" % number)
        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign([QUEUE])
                assert await polled(consumer, 8) == list(range(8))
                await consumer.seek(QUEUE, 6)
                assert consumer.position(QUEUE) == 6
                assert await polled(consumer, 2) == [6, 7]
                await consumer.seek_to_begin()
                assert await polled(consumer, 8) == list(range(8))
                at = datetime.fromtimestamp(middle_ms / 1000, UTC)
                for time in (middle_ms, at, at.isoformat()):
                    await consumer.seek_to_time(None, time)
                    assert await polled(consumer, 4) == [4, 5, 6, 7]
                await consumer.seek_to_end([QUEUE])
                assert await consumer.poll(timeout=1) == []
                cluster.put("t", b"8")
                assert await polled(consumer, 1) == [8]

    run_sim(main, queues=1)


@pytest.mark.parametrize("offset", [-1, 5])
def test_place_outside_the_queue_is_refused_and_nothing_moves(offset: int) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign([QUEUE])
                assert await polled(consumer, 1) == [0]
                with pytest.raises(ClientError, match=rf"offset {offset} of .* is outside 0\.\.4"):
                    await consumer.seek(QUEUE, offset)
                assert await polled(consumer, 3) == [1, 2, 3]
                await consumer.seek(QUEUE, 4)  # the end itself is a place

    run_sim(main, queues=1)


def test_queue_that_is_not_assigned_has_no_position_to_change() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                for use in (consumer.seek(QUEUE, 0), consumer.seek_to_begin([QUEUE])):
                    with pytest.raises(ClientError, match="not assigned"):
                        await use
                with pytest.raises(ClientError, match="not assigned"):
                    consumer.pause(QUEUE)

    run_sim(main)


def test_paused_queue_keeps_its_messages_while_others_are_polled() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 8)
        first, second = (MessageQueue("t", "broker-a", number) for number in range(2))
        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign([first, second])
                await pass_time(1)  # both are pulled already
                consumer.pause(first)
                assert {number % 2 for number in await polled(consumer, 4)} == {1}
                assert await consumer.poll(timeout=1) == []
                consumer.resume()
                assert sorted(await polled(consumer, 4)) == [0, 2, 4, 6]

    run_sim(main, queues=2)


def test_assign_reads_exactly_the_assigned_queues() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                queues = await consumer.queues("t")
                assert len(queues) == 4
                await consumer.assign(queues[:3])
                await consumer.assign(queues[1:])
                assert consumer.assignment == queues[1:]
                await consumer.assign([])
                assert consumer.assignment == []
                assert await consumer.queues("nobody-serves-it") == []

    run_sim(main)


def test_subscribe_and_assign_exclude_each_other() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                await consumer.assign([QUEUE])
                with pytest.raises(ClientError, match="cannot be mixed"):
                    await consumer.subscribe("t")
            async with client.pull_consumer(group="q") as consumer:
                await consumer.subscribe("t")
                with pytest.raises(ClientError, match="cannot be mixed"):
                    await consumer.assign([QUEUE])

    run_sim(main)


def test_members_that_subscribe_share_the_queues() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as one, cluster.client() as other:
            async with (
                one.pull_consumer(group="p") as first,
                other.pull_consumer(group="p") as second,
            ):
                await first.subscribe("t")
                await second.subscribe("t")
                await until(
                    lambda: (
                        len([q for q in first.assignment if q.topic == "t"])
                        == len([q for q in second.assignment if q.topic == "t"])
                        == 2
                    )
                )

    run_sim(main)


def test_closed_or_unstarted_pull_consumer_raises() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = client.pull_consumer(group="p")
            with pytest.raises(ClosedError):
                await consumer.poll()
            await consumer.close()  # does nothing
            await consumer.start()
            await consumer.assign([QUEUE])
            waiting = asyncio.ensure_future(consumer.poll(timeout=60))
            await pass_time(1)
            await consumer.close()
            with pytest.raises(ClosedError):
                await waiting
            with pytest.raises(ClosedError):
                await consumer.subscribe("t")

    run_sim(main)


def test_failed_commit_raises_and_is_repeated_by_the_next() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        async with cluster.client() as client:
            async with client.pull_consumer(
                group="p", start="earliest", auto_commit=False
            ) as consumer:
                await consumer.assign([QUEUE])
                await polled(consumer, 2)
                cluster.script[STORE] = [16]
                with pytest.raises(RocketPyError):
                    await consumer.commit()
                assert committed(cluster) == -1
                await consumer.commit()
                assert committed(cluster) == 2

    run_sim(main, queues=1)
