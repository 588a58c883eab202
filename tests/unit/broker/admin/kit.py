"""A broker's parts with a store and channels made of memory."""

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any, TypeVar

from rocketpy.broker.clients.client_registry import ClientChannel, ConsumerTable, ProducerTable
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.stats.broker_stats import BrokerStats
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.subscription import SubscriptionData, build_subscription
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files.store_files import DiskUsage

T = TypeVar("T")


class FakeClock:
    def __init__(self) -> None:
        self.wall_ms = 1_795_000_000_000
        self.mono_ms = 1_000

    def time_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.mono_ms


class MemoryDocument:
    def __init__(self) -> None:
        self.value: Any = None
        self.saves = 0
        self.failure: Exception | None = None

    def load(self) -> Any:
        return self.value

    def save(self, value: object) -> None:
        if self.failure is not None:
            raise self.failure
        self.value = value
        self.saves += 1


class FakeChannel:
    """Answers what the test says; remembers what it was asked."""

    def __init__(self, address: str = "127.0.0.1:5000") -> None:
        self.remote_address = address
        self.asked: list[RemotingCommand] = []
        self.oneways: list[RemotingCommand] = []
        self.response: RemotingCommand | Exception | None = None

    async def invoke(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.asked.append(command)
        await asyncio.sleep(0)
        if isinstance(self.response, Exception):
            raise self.response
        assert self.response is not None
        return self.response

    def invoke_oneway(self, command: RemotingCommand) -> None:
        self.oneways.append(command)


class FakeStore:
    """Queues as lists of (phy offset, size, tags code, store time)."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {}
        self.records: dict[int, bytes] = {}
        self.deleted: list[str] = []
        self.calls: list[str] = []
        self.max_phy_offset = 5_000
        self.flushed_phy_offset = 4_000
        self.dispatch_behind_bytes = 0
        self.lock_time_ms = 0

    def disk_usage(self) -> DiskUsage:
        return DiskUsage(4 << 30, 3 << 30, 1 << 30)

    def runtime_info(self) -> dict[str, str]:
        return {"fromTheStore": "yes"}

    def queue_entry(self, topic: str, queue_id: int, offset: int) -> tuple[int, int, int] | None:
        return self.queues[topic, queue_id][offset][:3]

    def earliest_store_time_ms(self, topic: str | None = None, queue_id: int = 0) -> int:
        return -1 if topic is None else self.store_time_ms(topic, queue_id, 0)

    def fill(self, topic: str, queue_id: int, count: int, first_ms: int = 1_000) -> None:
        self.queues[topic, queue_id] = [
            (index * 100, 100, 7, first_ms + index * 10) for index in range(count)
        ]

    def min_offset(self, topic: str, queue_id: int) -> int:
        return 0 if (topic, queue_id) in self.queues else -1

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.queues.get((topic, queue_id), ()))

    def store_time_ms(self, topic: str, queue_id: int, offset: int) -> int:
        queue = self.queues.get((topic, queue_id), [])
        return queue[offset][3] if 0 <= offset < len(queue) else -1

    def offset_by_time(self, topic: str, queue_id: int, ts_ms: int) -> int:
        queue = self.queues.get((topic, queue_id), [])
        return next((at for at, one in enumerate(queue) if one[3] >= ts_ms), len(queue))

    def look_message(self, phy_offset: int) -> memoryview | None:
        record = self.records.get(phy_offset)
        return None if record is None else memoryview(record)

    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.queues})

    def delete_topics(self, topics: list[str]) -> None:
        self.deleted.extend(topics)

    def clean_expired_consume_queues(self) -> None:
        self.calls.append("clean_expired_consume_queues")

    def delete_expired_files(self) -> None:
        self.calls.append("delete_expired_files")


class Kit:
    """The parts, and short ways to fill and to ask them."""

    def __init__(self, **config: Any) -> None:
        self.clock = FakeClock()
        broker = BrokerConfig(broker_name="b", broker_cluster_name="C", **config)
        self.configs = LiveBrokerConfig(
            broker,
            MessageStoreConfig(store_path_root_dir="/nowhere"),
            RemotingServerConfig(),
            self.clock,
        )
        self.store = FakeStore()
        self.topics_file, self.groups_file = MemoryDocument(), MemoryDocument()
        self.topics = TopicTable(broker, self.topics_file, self.clock)
        self.groups = SubscriptionGroupTable(broker, self.groups_file, self.clock)
        self.offsets = ConsumerOffsets(broker, MemoryDocument(), self.clock)
        self.producers = ProducerTable()
        self.consumers = ConsumerTable()
        self.stats = BrokerStats(self.clock, cluster_name="C")
        self.parts: dict[str, Any] = {
            "configs": self.configs,
            "identity": SimpleNamespace(address="127.0.0.1:10911", broker_name="b"),
            "start_ms": self.clock.wall_ms - 3_661_000,
            "store": self.store,
            "topics": self.topics,
            "groups": self.groups,
            "offsets": self.offsets,
            "producers": self.producers,
            "consumers": self.consumers,
            "stats": self.stats,
            "clock": self.clock,
            "pools": {},
            "readiness": SimpleNamespace(reasons=list),
            "features": (),
        }

    def admin(self, kind: type[T]) -> T:
        """Build an admin module from the parts it names in its constructor."""
        names = inspect.signature(kind).parameters
        return kind(**{name: self.parts[name] for name in names})

    def add_topic(self, name: str, queue_nums: int = 2, **more: Any) -> None:
        self.topics.put(TopicConfig(name, queue_nums, queue_nums, **more))

    def add_consumer(
        self, group: str, topic: str, client_id: str = "cid", channel: FakeChannel | None = None
    ) -> FakeChannel:
        channel = channel or FakeChannel()
        self.groups.get_or_create(group)
        self.consumers.register(
            group,
            ClientChannel(channel, client_id, 0, 493, self.clock.wall_ms),  # type: ignore[arg-type]
            [subscription(topic)],
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )
        return channel

    def add_producer(self, group: str, client_id: str = "pid") -> FakeChannel:
        channel = FakeChannel("127.0.0.1:6000")
        client = ClientChannel(channel, client_id, 12, 493, self.clock.wall_ms)  # type: ignore[arg-type]
        self.producers.register(group, client)
        return channel


def subscription(topic: str) -> SubscriptionData:
    return build_subscription(topic, "a || b", sub_version=3)


def ask(processor: Any, ext: dict[str, Any] | None = None, body: bytes = b"") -> RemotingCommand:
    """Call a processor as the server does."""
    request = make_request(1, {key: str(value) for key, value in (ext or {}).items()}, body)
    response = processor(FakeChannel(), request)
    assert isinstance(response, RemotingCommand)
    assert response.is_response
    return response


async def ask_async(processor: Any, ext: dict[str, Any], body: bytes = b"") -> RemotingCommand:
    """Call a processor whose answer is a coroutine."""
    request = make_request(1, {key: str(value) for key, value in ext.items()}, body)
    response = await processor(FakeChannel(), request)
    assert isinstance(response, RemotingCommand)
    return response
