"""Offsets and members of consumer groups."""

from typing import Any

import orjson
import pytest

from rocketpy.broker.clients.client_registry import ClientChannel, ConsumerTable
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.consumer_progress import ConsumerProgress
from rocketpy.broker.processor.consumer_manage import ConsumerManageProcessor
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.store.config import MessageStoreConfig
from tests.unit.broker.fakes import FakeChannel, FakeClock, MemoryFile, request

QUEUE = {"consumerGroup": "g", "topic": "T", "queueId": "0"}


class QueueStart:
    def __init__(self) -> None:
        self.first = 0
        self.recent = True

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.first

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        return self.recent


class Kit:
    def __init__(self) -> None:
        clock = FakeClock()
        config = BrokerConfig(broker_name="b")
        self.start = QueueStart()
        self.offsets = ConsumerOffsets(config, MemoryFile(), clock)
        self.consumers = ConsumerTable()
        self.groups = SubscriptionGroupTable(config, MemoryFile(), clock)
        self.topics = TopicTable(config, MemoryFile(), clock)
        progress = ConsumerProgress(
            self.start,
            configs=LiveBrokerConfig(config, MessageStoreConfig(), RemotingServerConfig(), clock),
            topics=self.topics,
            groups=self.groups,
            offsets=self.offsets,
        )
        self.processor = ConsumerManageProcessor(progress, self.consumers)

    def ask(self, code: int, **ext: str) -> RemotingCommand:
        run: Any = self.processor.processors[code]
        response = run(FakeChannel(), request(code, {**QUEUE, **ext}))
        assert isinstance(response, RemotingCommand)
        return response


@pytest.mark.parametrize(
    ("first", "recent", "ext", "code"),
    [
        (0, True, {}, 0),
        (-1, True, {}, 0),
        (0, True, {"setZeroIfNotFound": "false"}, 22),
        (5, True, {}, 22),
        (0, False, {}, 22),
    ],
)
def test_query_offset_without_commit(
    first: int, recent: bool, ext: dict[str, str], code: int
) -> None:
    kit = Kit()
    kit.start.first, kit.start.recent = first, recent
    response = kit.ask(14, **ext)
    assert response.code == code
    assert response.ext_fields.get("offset") == ("0" if code == 0 else None)


def test_commit_then_query_offset() -> None:
    kit = Kit()
    assert kit.ask(15, commitOffset="5").code == 26
    kit.groups.get_or_create("g")
    assert kit.ask(15, commitOffset="5").code == 17
    kit.topics.put(TopicConfig("T"))
    assert kit.ask(15, commitOffset="5").code == 0
    assert kit.ask(14).ext_fields == {"offset": "5"}


def test_commit_during_pending_reset_is_ignored() -> None:
    kit = Kit()
    kit.groups.get_or_create("g")
    kit.topics.put(TopicConfig("T"))
    kit.offsets.assign_reset("g", "T", 0, 2)
    response = kit.ask(15, commitOffset="5")
    assert (response.code, response.remark) == (0, "Offset has been previously reset")
    assert kit.ask(14).ext_fields == {"offset": "2"}


def test_list_members_of_group() -> None:
    kit = Kit()
    assert kit.ask(38).code == 1
    client = ClientChannel(FakeChannel(), "c", 0, 0, 0)  # type: ignore[arg-type]
    kit.consumers.register(
        "g", client, [], consume_type="", message_model="", consume_from_where=""
    )
    assert orjson.loads(kit.ask(38).body) == {"consumerIdList": ["c"]}
    kit.consumers.expect({"g": ["expected"]}, 1)
    assert orjson.loads(kit.ask(38).body) == {"consumerIdList": ["c", "expected"]}


@pytest.mark.parametrize("queue_id", ["-1", "2", "99", str(2**31 - 1)])
def test_commit_to_missing_queue_is_accepted_and_not_stored(queue_id: str) -> None:
    kit = Kit()
    kit.groups.get_or_create("g")
    kit.topics.put(TopicConfig("T", 1, 2, 6))
    assert kit.ask(15, queueId=queue_id, commitOffset="5").code == 0
    assert kit.ask(15, queueId="1", commitOffset="5").code == 0
    assert kit.offsets.query_all("g", "T") == {1: 5}


def test_commit_to_full_table_is_refused() -> None:
    kit = Kit()
    kit.groups.get_or_create("g")
    kit.topics.put(TopicConfig("T", 2, 2, 6))
    kit.offsets._table.max_count = 1
    assert kit.ask(15, commitOffset="5").code == 0
    response = kit.ask(15, queueId="1", commitOffset="5")
    assert (response.code, response.remark) == (
        1,
        "the broker keeps no more offsets: too many queues, topics or groups",
    )
