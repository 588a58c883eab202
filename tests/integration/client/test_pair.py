"""Clients of a master and its slave, which are processes that are killed and started again."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.client.cluster.route_table import MASTER_ID
from rocketpy.client.sending.result import SendStatus
from rocketpy.errors import NoRouteError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from tests.integration.broker.pair import Pair

pytestmark = pytest.mark.timeout(400)

QUEUES = 2
LIMIT_S = 60.0


class Readers:
    """Consumers of every kind, and the offsets that each has received by queue."""

    def __init__(self) -> None:
        self.received: dict[str, dict[MessageQueue, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._changed = asyncio.Event()

    def handler(self, name: str) -> Callable[[Any], Awaitable[None]]:
        async def note(message: Any) -> None:
            self.received[name][message.queue].append(message.offset)
            self._changed.set()

        return note

    async def pull(self, consumer: Any) -> None:
        note = self.handler("pull")
        while True:
            message = await consumer.getone()
            assert message is not None
            await note(message)

    async def have(self, count: int, names: set[str]) -> None:
        """Wait until each has received so many messages."""
        try:
            async with asyncio.timeout(LIMIT_S):
                while any(self._count(name) < count for name in names):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError({name: self._count(name) for name in names}) from None

    def _count(self, name: str) -> int:
        return sum(len(set(offsets)) for offsets in self.received[name].values())


async def send(client: rocketpy.Client, count: int) -> None:
    producer = client.producer(timeout=20)
    confirmed = 0
    while confirmed < count:  # a send takes `slaveTimeout` while the slave is away
        confirmed += (await producer.send("t", b"x")).status is SendStatus.SEND_OK


async def without_master(admin: rocketpy.admin.Admin) -> None:
    """Wait until the name server has noticed that the master is gone."""
    for _ in range(1_000):
        [broker] = (await admin.topic_route("t")).broker_datas
        if MASTER_ID not in broker.broker_addrs:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the name server still has the master in its routes")


async def stored(client: rocketpy.Client) -> int:
    return sum((await client.end_offsets("t")).values())


async def test_consumers_of_every_kind_read_from_the_slave_and_return(tmp_path: Path) -> None:
    pair = Pair(tmp_path, inSyncReplicas="2")
    names = {"group", "ordered", "broadcast", "pull"}
    async with pair.running():
        async with rocketpy.admin.connect(pair.namesrv) as admin:
            await admin.create_topic("t", queues=QUEUES)
        readers = Readers()
        options: dict[str, Any] = {"start": "earliest"}
        async with rocketpy.connect(pair.namesrv, route_refresh_interval=1) as client:
            await send(client, 20)
            async with (
                client.consumer("t", group="g", handler=readers.handler("group"), **options),
                client.consumer(
                    "t", group="o", ordered=True, handler=readers.handler("ordered"), **options
                ),
                client.consumer(
                    "t",
                    group="b",
                    broadcast=True,
                    offset_dir=str(tmp_path / "offsets"),
                    handler=readers.handler("broadcast"),
                    **options,
                ),
                client.pull_consumer(group="p", start="earliest") as puller,
            ):
                await puller.assign([MessageQueue("t", "broker-a", n) for n in range(QUEUES)])
                pulling = asyncio.create_task(readers.pull(puller))
                await readers.have(20, names)

                await send(client, 20)
                await asyncio.to_thread(pair.kill, "master")
                await readers.have(40, names)
                assert [message.body async for message in client.read("t", until="latest")]
                with pytest.raises(NoRouteError, match="no master of broker-a is registered"):
                    await client.producer(timeout=3).send("t", b"nowhere")
                await asyncio.sleep(6)  # offsets are committed every five seconds

                await asyncio.to_thread(pair.start, "master")
                await send(client, 20)
                count = await stored(client)  # with those that were sent again after a 12
                await readers.have(count, names)
                await asyncio.sleep(7)
                pulling.cancel()
            async with client.pull_consumer(group="g") as committed:
                total = 0
                for number in range(QUEUES):
                    total += await committed.committed(MessageQueue("t", "broker-a", number)) or 0
                assert total == count >= 60
        for name in names - {"group"}:
            for offsets in readers.received[name].values():
                seen = -1
                for offset in offsets:  # repeats after a change of locks, and no hole
                    assert offset <= seen + 1, (name, offsets)
                    seen = max(seen, offset)


async def test_operations_say_whether_they_need_the_master(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    async with pair.running():
        async with rocketpy.admin.connect(pair.namesrv) as admin:
            await admin.create_topic("t", queues=QUEUES)
            async with rocketpy.connect(pair.namesrv) as client:
                await send(client, 10)
                async with client.pull_consumer(group="g", start="earliest") as consumer:
                    queue = MessageQueue("t", "broker-a", 0)
                    await consumer.assign([queue])
                    for _ in range(3):
                        assert await consumer.getone(timeout=20) is not None
                    await consumer.commit()
            await asyncio.sleep(5)  # the slave has topics and offsets
            await asyncio.to_thread(pair.kill, "master")
            await without_master(admin)

            status = await admin.topic_status("t")
            assert sum(each.max_offset for each in status.queues) == 10
            assert len(await admin.peek("t", max_count=10)) == 10
            [moved] = [
                each for each in (await admin.group_lag("g", "t")).queues if each.queue == queue
            ]
            assert moved.consumer_offset == 3
            for change in (
                admin.delete_topic("t"),
                admin.update_topic("t", queues=4),
                admin.reset_offset("g", "t", "earliest"),
                admin.delete_group("g"),
                admin.create_topic("u"),
            ):
                with pytest.raises(RocketPyError, match="master"):
                    await change


class OrderedMembers:
    """Handlers of two members of an ordered group.

    Attributes:
        overlaps: messages whose queue had a running handler already.
        offsets: the handled offsets of each queue.
    """

    def __init__(self) -> None:
        self.overlaps: list[str] = []
        self.offsets: dict[MessageQueue, list[int]] = defaultdict(list)
        self._busy: set[MessageQueue] = set()
        self._changed = asyncio.Event()

    async def handle(self, message: Any) -> None:
        if message.queue in self._busy:
            self.overlaps.append(repr(message))
        self._busy.add(message.queue)
        await asyncio.sleep(0.02)
        self._busy.discard(message.queue)
        self.offsets[message.queue].append(message.offset)
        self._changed.set()

    async def handled(self, ends: dict[MessageQueue, int]) -> None:
        """Wait until every message before `ends` was handled."""
        async with asyncio.timeout(120):
            while any(len(set(self.offsets[queue])) < end for queue, end in ends.items()):
                self._changed.clear()
                await self._changed.wait()


@pytest.mark.alternate
async def test_ordered_members_handle_a_queue_one_at_a_time_while_replicas_are_killed(
    tmp_path: Path,
) -> None:
    pair, members = Pair(tmp_path, inSyncReplicas="2"), OrderedMembers()
    async with pair.running():
        async with rocketpy.admin.connect(pair.namesrv) as admin:
            await admin.create_topic("t", queues=4)
        options: dict[str, Any] = {"group": "o", "start": "earliest", "ordered": True}
        async with (
            rocketpy.connect(pair.namesrv, route_refresh_interval=1) as one,
            rocketpy.connect(pair.namesrv, route_refresh_interval=3) as two,
            one.consumer("t", handler=members.handle, **options),
            two.consumer("t", handler=members.handle, **options),
        ):
            await send(one, 100)
            for killed in ("master", "slave", "master"):
                await asyncio.to_thread(pair.kill, killed)
                await asyncio.sleep(3)
                await asyncio.to_thread(pair.start, killed)
                await send(one, 100)
            await members.handled(await one.end_offsets("t"))
    assert not members.overlaps
    for queue, offsets in members.offsets.items():
        seen = -1
        for offset in offsets:  # the last messages before a change are repeated, none is left out
            assert offset <= seen + 1, (queue, offsets)
            seen = max(seen, offset)
