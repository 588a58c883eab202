"""Our consumers against the real broker: retries to the last, order with locks, broadcasting."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

import rocketpy
from rocketpy.client.messages.message import ReceivedMessage

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


async def _until(condition: Callable[[], object], limit_s: float = 120) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.05)


async def test_message_fails_to_the_last_and_is_a_dead_letter(namesrv: str) -> None:
    tries: list[ReceivedMessage] = []
    dead: list[ReceivedMessage] = []

    async def handler(message: ReceivedMessage) -> None:
        tries.append(message)
        raise rocketpy.Retry(delay_level=1)

    async def bury(message: ReceivedMessage) -> None:
        dead.append(message)

    async with rocketpy.connect(namesrv) as client:
        sent = await client.producer(timeout=30).send("doomed", b"x", keys="k")
        async with (
            client.consumer(
                "doomed", group="doomed", start="earliest", handler=handler, max_retries=2
            ),
            client.consumer("%DLQ%doomed", group="doomed_dead", start="earliest", handler=bury),
        ):
            await _until(lambda: dead)
    assert [each.retries for each in tries] == [0, 1, 2]
    assert {each.topic for each in tries} == {"doomed"}
    assert {each.id for each in [*tries, *dead]} == {sent.msg_id}
    assert tries[2].origin_id == tries[1].origin_id == sent.offset_msg_id
    assert (dead[0].origin_topic, dead[0].keys) == ("doomed", ["k"])


async def test_message_that_is_sent_to_the_retry_topic_comes_again(namesrv: str) -> None:
    """The way around a broker that cannot be asked to take a message back."""
    got: list[ReceivedMessage] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(message)
        if not message.retries:
            message.ext.phy_offset += 1  # the broker finds no message there
            raise rocketpy.Retry(delay_level=1)

    async with rocketpy.connect(namesrv) as client:
        await client.producer(timeout=30).send("around", b"x" * 5_000)
        async with client.consumer("around", group="around", start="earliest", handler=handler):
            await _until(lambda: len(got) == 2)
    assert (got[1].retries, got[1].topic, got[1].body) == (1, "around", b"x" * 5_000)
    assert got[1].id == got[0].id


async def test_ordered_members_share_queues_in_order(namesrv: str) -> None:
    order: dict[rocketpy.MessageQueue, list[int]] = defaultdict(list)
    busy: set[rocketpy.MessageQueue] = set()
    tries = 0

    async def handler(message: ReceivedMessage) -> None:
        nonlocal tries
        tries += 1
        assert message.queue not in busy
        busy.add(message.queue)
        await asyncio.sleep(0.02)
        busy.discard(message.queue)
        if tries % 5 == 0:
            raise ValueError("no")
        order[message.queue].append(message.offset)

    def share(consumer: rocketpy.Consumer) -> list[rocketpy.MessageQueue]:
        return [queue for queue in consumer.assignment if queue.topic == "inorder"]

    async with rocketpy.connect(namesrv) as one, rocketpy.connect(namesrv) as two:
        for n in range(80):
            await one.producer(timeout=30).send("inorder", b"%d" % n)
        consumers = [
            client.consumer(
                "inorder", group="inorder", start="earliest", handler=handler, ordered=True,
                ordered_retry_pause=0.05,
            )
            for client in (one, two)
        ]  # fmt: skip
        await consumers[0].start()
        await _until(lambda: len(order) == 4)
        await consumers[1].start()
        await _until(lambda: len(share(consumers[0])) == len(share(consumers[1])) == 2)
        await _until(lambda: sum(map(len, order.values())) == 80)
        await consumers[0].close()
        await _until(lambda: len(share(consumers[1])) == 4)
        await consumers[1].close()
    assert all(offsets == list(range(len(offsets))) for offsets in order.values()), order


async def test_broadcast_consumer_continues_after_restart(namesrv: str, tmp_path: Path) -> None:
    async def receive(count: int) -> set[bytes]:
        got: set[bytes] = set()

        async def handler(message: ReceivedMessage) -> None:
            got.add(message.body)

        async with rocketpy.connect(namesrv) as client:
            async with client.consumer(
                "everybody", group="everybody", start="earliest", handler=handler,
                broadcast=True, offset_dir=str(tmp_path),
            ):  # fmt: skip
                await _until(lambda: len(got) == count)
        return got

    async with rocketpy.connect(namesrv) as client:
        for n in range(8):
            await client.producer(timeout=30).send("everybody", b"%d" % n)
        assert await receive(8) == {b"%d" % n for n in range(8)}
        for n in range(8, 12):
            await client.producer(timeout=30).send("everybody", b"%d" % n)
        assert await receive(4) == {b"%d" % n for n in range(8, 12)}


async def test_latest_means_latest_in_a_young_queue(namesrv: str) -> None:
    got: list[bytes] = []

    async def handler(message: ReceivedMessage) -> None:
        got.append(message.body)

    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(timeout=30)
        for n in range(8):
            await producer.send("young", b"old %d" % n)
        async with client.consumer("young", group="young", handler=handler) as consumer:
            await _until(lambda: len(consumer.assignment) >= 4)
            await producer.send("young", b"new")
            await _until(lambda: got)
    assert got == [b"new"]
