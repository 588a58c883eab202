"""A retry topic that takes nothing for long holds up no other group's popped messages."""

from collections.abc import Callable

import pytest

from rocketpy.broker.topics import TopicTable
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from rocketpy.testing.sim_cluster import SimCluster
from tests.unit.broker.pop.kit import Popper, after, send, simulate

Refused = Callable[[str], bool]


class Gate:
    """Which topics take nothing at the moment."""

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


def test_it_holds_up_the_others_for_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_when_the_delay_level_takes_nothing_either_everybody_waits(
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


def test_one_that_cannot_be_made_holds_up_the_others_for_ten_seconds(
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
