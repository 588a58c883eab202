"""Queues of a topic in the whole cluster."""

import asyncio

from rocketpy.broker.cluster import topic_queues
from rocketpy.broker.cluster.topic_queues import FetchRoute, RouteResponse, TopicQueues
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.proto.bodies.route import QueueData, TopicRouteData
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.broker.fakes import FakeClock, MemoryFile


class Kit:
    def __init__(self, *, has_name_servers: bool = True) -> None:
        self.clock = FakeClock()
        topics = TopicTable(BrokerConfig(broker_name="b"), MemoryFile(), self.clock)
        topics.put(TopicConfig("T", 2, 4))
        topics.put(TopicConfig("W", 2, 2, perm=2))
        self.response = RouteResponse(
            True, TopicRouteData(queue_datas=[QueueData("o", 1, 1, 6, 0)])
        )
        self.asked: list[str] = []
        fetch: FetchRoute | None = self.fetch if has_name_servers else None
        self.queues = TopicQueues(lambda: fetch, topics, "b", self.clock)

    async def fetch(self, topic: str) -> RouteResponse:
        self.asked.append(topic)
        await asyncio.sleep(0)
        return self.response


async def test_topic_queues_response_is_cached() -> None:
    kit = Kit()
    expected = [MessageQueue("T", "o", 0)]
    assert [*await asyncio.gather(kit.queues.of("T"), kit.queues.of("T"))] == [expected] * 2
    assert await kit.queues.of("T") == expected
    assert kit.asked == ["T"]
    kit.clock.now_ms += topic_queues.REMEMBER_MS
    kit.response = RouteResponse(was_reached=True)
    assert await kit.queues.of("T") is None
    assert kit.asked == ["T", "T"]


async def test_topic_queues_without_response_keep_last_result() -> None:
    kit = Kit()
    expected = await kit.queues.of("T")
    kit.clock.now_ms += topic_queues.REMEMBER_MS
    kit.response = RouteResponse(was_reached=False)
    assert await kit.queues.of("T") == expected
    assert await kit.queues.of("other") is None


async def test_topic_queues_without_name_servers_are_local() -> None:
    kit = Kit(has_name_servers=False)
    assert await kit.queues.of("T") == [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]
    assert await kit.queues.of("W") == []
    assert await kit.queues.of("other") is None
    assert kit.asked == []


async def test_topic_queues_cache_is_bounded() -> None:
    kit = Kit()
    for number in range(topic_queues.MAX_REMEMBERED + 1):
        await kit.queues.of(f"t{number}")
    await kit.queues.of("t1")
    await kit.queues.of("t0")
    assert len(kit.asked) == topic_queues.MAX_REMEMBERED + 2


async def test_topic_queues_too_long_name_is_not_requested() -> None:
    kit = Kit()
    assert await kit.queues.of("T" * 256) is None
    assert kit.asked == []
    assert not kit.queues._known
