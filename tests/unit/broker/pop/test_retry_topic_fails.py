"""A retry topic that fails for long delays the popped messages of no other group."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.pop.revive.revive import ReviveService
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from rocketpy.testing.sim_cluster import SimCluster
from tests.unit.broker.pop.kit import Popper, after, send, simulate

Refused = Callable[[str], bool]


class Gate:
    """Topics that currently reject messages."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.refuses: Refused = lambda _topic: False
        put = MessageStore.put_message

        def picky(store: MessageStore, message: PutMessage) -> PutMessageResult:
            if self.refuses(message.topic):
                return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
            return put(store, message)

        patch.setattr(MessageStore, "put_message", picky)


def _of_g(topic: str) -> bool:
    return topic == f"{RETRY_PREFIX}g_T"


async def _all_of(popper: Popper) -> list[bytes]:
    """Pop and ack until nothing comes."""
    found: list[bytes] = []
    while messages := (await popper.pop()).messages:
        for message in messages:
            assert (await popper.ack(message)).code == 0
            found.append(message.body)
    return sorted(found)


BODIES = [b"0", b"1", b"2", b"3"]


def test_revive_full_retry_topic_delays_others_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def scenario(cluster: SimCluster, g: Popper) -> None:
        h = Popper(cluster, "h", "10.0.9.2")
        await send(cluster, 4)
        gate.refuses = _of_g
        for popper in (g, h):  # the check points of g come first
            assert len((await popper.pop(invisibleTime=1_000)).messages) == 4
            await after(0.1)
        await after(8)
        assert await _all_of(h) == []
        await after(12)
        assert await _all_of(h) == BODIES
        await after(300)
        assert await _all_of(g) == []
        (broker,) = cluster.brokers
        await broker.stop()
        await broker.start()
        gate.refuses = lambda _topic: False
        await after(40)
        assert await _all_of(g) == BODIES
        await after(300)
        assert await _all_of(g) == await _all_of(h) == [], "acked, and not kept anywhere"

    simulate(scenario, queues=1, reviveQueueNum="1")


def test_revive_full_delay_level_delays_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)

    async def scenario(cluster: SimCluster, g: Popper) -> None:
        h = Popper(cluster, "h", "10.0.9.2")
        await send(cluster, 4)
        gate.refuses = lambda topic: _of_g(topic) or topic.startswith("SCHEDULE_TOPIC")
        for popper in (g, h):
            assert len((await popper.pop(invisibleTime=1_000)).messages) == 4
            await after(0.1)
        await after(120)
        assert await _all_of(g) == await _all_of(h) == []
        gate.refuses = lambda _topic: False
        await after(10)
        assert await _all_of(g) == await _all_of(h) == BODIES

    simulate(scenario, queues=1, reviveQueueNum="1")


def test_revive_retry_topic_not_created_delays_others_ten_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`topics.json` cannot be written: what was popped waits as check points, acks count."""
    put = TopicTable._put
    is_full = True

    def full(table: TopicTable, topics: dict[str, TopicConfig], topic: TopicConfig) -> TopicConfig:
        if is_full and _of_g(topic.topic_name):
            raise DiskFullError("no space for topics.json")
        return put(table, topics, topic)

    monkeypatch.setattr(TopicTable, "_put", full)

    async def scenario(cluster: SimCluster, g: Popper) -> None:
        nonlocal is_full
        h = Popper(cluster, "h", "10.0.9.2")
        await send(cluster, 4)
        popped = [await popper.pop(invisibleTime=1_000) for popper in (g, h)]
        assert [len(each.messages) for each in popped] == [4, 4]
        await after(8)
        assert await _all_of(h) == []
        await after(12)
        assert await _all_of(h) == BODIES
        await after(120)  # put off several times
        assert await _all_of(g) == []
        assert (await g.ack(popped[0].messages[2])).code == 0, "late, and not too late"
        (broker,) = cluster.brokers
        await broker.stop()
        await broker.start()
        is_full = False
        await after(40)
        assert await _all_of(g) == [b"0", b"1", b"3"]
        await after(300)
        assert await _all_of(g) == await _all_of(h) == [], "acked, and not kept anywhere"

    simulate(scenario, queues=1, reviveQueueNum="1")


class BadDisk:
    """A topic whose queue cannot be read, and retry topics whose puts raise, while it is bad."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.unreadable = self.raising = ""
        get, put = MessageStore.get_message, MessageStore.put_message

        def get_message(store: MessageStore, topic: str, *args: Any, **kwargs: Any) -> Any:
            if topic == self.unreadable:
                raise OSError(errno.EIO, "a bad sector in the file of a queue")
            return get(store, topic, *args, **kwargs)

        def put_message(store: MessageStore, message: PutMessage) -> PutMessageResult:
            if self.raising and message.topic.startswith(self.raising):
                raise ValueError("simulated failure")
            return put(store, message)

        patch.setattr(MessageStore, "get_message", get_message)
        patch.setattr(MessageStore, "put_message", put_message)

    def fail(self, way: str) -> None:
        self.unreadable = "U" if way == "read" else ""
        self.raising = f"{RETRY_PREFIX}g" if way == "put" else ""


@pytest.mark.parametrize("revive_queues", ["1", "8"])
@pytest.mark.parametrize("way", ["read", "put"])
def test_revive_unreadable_message_or_failed_put_does_not_delay_others(
    monkeypatch: pytest.MonkeyPatch, way: str, revive_queues: str
) -> None:
    """Nor is it lost: it comes when the disk is well again."""
    disk = BadDisk(monkeypatch)

    async def scenario(cluster: SimCluster, g: Popper) -> None:
        cluster.create_topic("U", 1)
        h = Popper(cluster, "h", "10.0.9.2")
        await send(cluster, 4)
        async with cluster.client(group="p") as client:
            for body in BODIES:
                await client.producer().send("U", body)
        for _ in BODIES:  # a check point each, in one revive queue after the other
            for popper, topic in ((g, "U"), (h, "T")):
                popped = await popper.pop(topic=topic, maxMsgNums=1, invisibleTime=1_000)
                assert len(popped.messages) == 1
        disk.fail(way)
        await after(30)
        assert await _all_of(h) == BODIES
        await after(300)
        disk.fail("")
        await after(60)
        back = (await g.pop(topic="U")).bodies
        assert sorted(back) == BODIES
        assert await _all_of(h) == [], "acked"

    simulate(scenario, queues=1, reviveQueueNum=revive_queues, enablePopBufferMerge="false")


def test_revive_queue_failure_does_not_stop_others() -> None:
    stepped: list[int] = []

    class Queue:
        def __init__(self, queue_id: int) -> None:
            self.queue_id = queue_id

        def step(self) -> bool:
            stepped.append(self.queue_id)
            if self.queue_id == 1:
                raise ValueError("simulated failure")
            return False

    queues = [Queue(number) for number in range(3)]
    service = ReviveService(lambda: queues, 1_000)  # type: ignore[arg-type, return-value]
    assert service.step(5) == 1_005
    assert stepped == [0, 1, 2]
