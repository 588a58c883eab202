"""Send-backs: where the copy goes, and what is refused."""

import random
from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.send_back import Copied, SendBack, SendBackRequest
from rocketpy.broker.processor.send_back import SendBackProcessor
from rocketpy.broker.stats.broker_stats import BrokerStats
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.errors import CorruptRecordError, DiskFullError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.message import MessageExt, encode_message
from rocketpy.proto.record.properties import parse_properties
from rocketpy.proto.wire.command import make_request
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from tests.unit.broker.fakes import FakeChannel, FakeClock, MemoryFile

OFFSET = 4_000


class Store:
    """Fake store with one message at `OFFSET`; records puts."""

    def __init__(self) -> None:
        self.record = b""
        self.put: list[PutMessage] = []
        self.status = PutMessageStatus.PUT_OK

    def look_message(self, phy_offset: int) -> memoryview | None:
        if phy_offset == OFFSET + 1:
            raise CorruptRecordError(phy_offset, "in the middle of a record")
        return memoryview(self.record) if phy_offset == OFFSET else None

    def put_message(self, message: PutMessage) -> PutMessageResult:
        if self.status is PutMessageStatus.PUT_OK:
            self.put.append(message)
        return PutMessageResult(self.status, 5_000, 100)

    def when_durable(self, phy_end: int, callback: Any) -> None:
        callback(phy_end == 5_100)


class Kit:
    def __init__(self, *, delayed: bool = True, **config: Any) -> None:
        broker = BrokerConfig(broker_name="b", **config)
        self.file = MemoryFile()
        self.topics = TopicTable(broker, self.file, FakeClock())
        self.groups = SubscriptionGroupTable(broker, MemoryFile(), FakeClock())
        self.groups.put(SubscriptionGroupConfig("g"))
        self.stats = BrokerStats(FakeClock())
        self.store = Store()
        self.levels: list[int] = []

        def delay(message: PutMessage, properties: dict[str, str], level: int) -> None:
            self.levels.append(level)
            assert properties["DELAY"] == str(level)
            assert message.topic.startswith("%RETRY%")

        self.operation = SendBack(
            self.store,
            SystemWriter(self.store, lambda *_: None),
            delay if delayed else None,
            topics=self.topics,
            groups=self.groups,
            stats=self.stats,
            config=broker,
            rng=random.Random(1),
        )
        self.message()

    def message(self, *, tries: int = 0, topic: str = "T", **properties: str) -> MessageExt:
        """Let this be the message at `OFFSET`."""
        message = MessageExt(
            topic=topic,
            queue_id=2,
            phy_offset=OFFSET,
            flag=7,
            born_timestamp_ms=1_000,
            born_host="10.0.0.1:5",
            store_host="10.0.0.2:6",
            reconsume_times=tries,
            body=b"x",
            properties={"UNIQ_KEY": "U1", "KEYS": "k", "TAGS": "a", **properties},
        )
        self.store.record = encode_message(message)
        return message

    def back(self, level: int = 0, **request: Any) -> Copied | Refusal:
        return self.operation.send_back(
            SendBackRequest(**{"group": "g", "phy_offset": OFFSET, "delay_level": level, **request})
        )

    def end(self, level: int = 0, **request: Any) -> int:
        """Give the message back; return where its copy ends."""
        copied = self.back(level, **request)
        assert isinstance(copied, Copied)
        return copied.phy_end

    def code(self, **request: Any) -> int:
        refused = self.back(**request)
        assert isinstance(refused, Refusal)
        assert not self.store.put
        return refused.code


def test_send_back_first_retry_uses_level_3() -> None:
    kit = Kit()
    assert kit.end() == 5_100
    (copy,) = kit.store.put
    assert (copy.topic, copy.queue_id) == ("%RETRY%g", 0)
    assert kit.topics.all()["%RETRY%g"].write_queue_nums == 1
    assert (copy.body, copy.flag, copy.born_timestamp_ms) == (b"x", 7, 1_000)
    assert (copy.reconsume_times, copy.tags, copy.keys, copy.uniq_key) == (1, "a", "k", "U1")
    assert copy.store_host == b"", "the copy lies with this broker"
    properties = parse_properties(copy.properties)
    assert properties["RETRY_TOPIC"] == "T"
    assert properties["WAIT"] == "false"
    assert len(properties["ORIGIN_MESSAGE_ID"]) == 32
    assert kit.levels == [3]
    assert kit.stats.stats_data("SNDBCK_PUT_NUMS", "T@g") is not None


@pytest.mark.parametrize(("tries", "asked", "level"), [(0, 5, 5), (1, 0, 4), (15, 0, 18)])
def test_send_back_delay_is_as_requested_or_grows_with_attempts(
    tries: int, asked: int, level: int
) -> None:
    kit = Kit()
    kit.message(tries=tries)
    kit.back(asked)
    assert kit.levels == [level]


@pytest.mark.parametrize("named", ["%RETRY%g", "T"])
def test_send_back_keeps_original_topic_and_id(named: str) -> None:
    """Clients name a retried message by its first topic."""
    kit = Kit()
    kit.message(tries=3, topic="%RETRY%g", RETRY_TOPIC="T", ORIGIN_MESSAGE_ID="first")
    kit.back(origin_topic=named)
    properties = parse_properties(kit.store.put[0].properties)
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("T", "first")
    assert kit.store.put[0].reconsume_times == 4


@pytest.mark.parametrize(
    ("tries", "asked", "limit"), [(16, 0, None), (2, 0, 2), (2, 4, 2), (0, -1, None), (0, 0, 0)]
)
def test_send_back_after_last_attempt_is_dead_letter(
    tries: int, asked: int, limit: int | None
) -> None:
    kit = Kit()
    kit.message(tries=tries)
    assert kit.end(asked, max_reconsume_times=limit) == 5_100
    (copy,) = kit.store.put
    assert (copy.topic, copy.queue_id, copy.reconsume_times) == ("%DLQ%g", 0, tries + 1)
    assert parse_properties(copy.properties)["DELAY"] == "0"
    assert not kit.levels
    assert kit.topics.all()["%DLQ%g"].read_queue_nums == 1
    assert kit.stats.stats_data("DLQ_PUT_NUMS", "T@g") is not None


def test_send_back_without_limit_uses_group_limit() -> None:
    kit = Kit()
    kit.groups.put(SubscriptionGroupConfig("g", retry_max_times=1))
    kit.message(tries=1)
    kit.back()
    assert kit.store.put[0].topic == "%DLQ%g"


def test_send_back_group_without_retry_queues_stores_nothing() -> None:
    kit = Kit()
    kit.groups.put(SubscriptionGroupConfig("g", retry_queue_nums=0))
    assert kit.end() == 0
    assert not kit.store.put


def test_send_back_invalid_message_is_refused() -> None:
    kit = Kit()
    assert kit.code(phy_offset=OFFSET + 1) == 1
    assert kit.code(phy_offset=99) == 1
    assert kit.code(phy_offset=-1) == 1
    assert kit.code(origin_topic="other") == 1
    assert kit.code(group="a/../b") == 26
    assert Kit(auto_create_subscription_group=False).code(group="unknown") == 26
    assert Kit(broker_permission=4).code() == 16


def test_send_back_retry_topic_without_permission_is_refused() -> None:
    kit = Kit()
    kit.topics.put(TopicConfig("%RETRY%g", 1, 1, 4))
    assert kit.code() == 16
    kit = Kit()
    kit.topics.put(TopicConfig("%DLQ%g", 1, 1, 4))
    assert kit.code(level=-1) == 16


def test_send_back_failed_put_is_refused() -> None:
    kit = Kit()
    kit.store.status = PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert kit.code() == 1
    kit = Kit()

    def full(value: object) -> None:
        raise DiskFullError("no space")

    kit.file.save = full  # type: ignore[method-assign]
    assert kit.code() == 14


def test_send_back_reports_durable_copy() -> None:
    kit = Kit()
    heard: list[bool] = []
    kit.operation.when_durable(5_100, heard.append)
    assert heard == [True]


def test_send_back_changed_settings_apply() -> None:
    kit = Kit()
    kit.operation.configure(BrokerConfig(broker_name="b", broker_permission=4))
    assert kit.code() == 16


def test_send_back_of_dead_letter_stores_nothing() -> None:
    kit = Kit()
    kit.message(tries=17, topic="%DLQ%g", RETRY_TOPIC="T")
    assert kit.end() == 0
    assert kit.end(-1) == 0
    assert not kit.store.put, "else a handler that fails would make a copy of it again and again"
    kit.message(tries=17, topic="%DLQ%other", RETRY_TOPIC="T")
    assert kit.end() == 5_100
    assert kit.store.put[0].topic == "%DLQ%g", "another group's are messages as others are"


def test_send_back_waits_for_created_topics() -> None:
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    kit.message(tries=16)
    copied = kit.back()
    assert isinstance(copied, Copied)
    assert copied == (5_100, "%DLQ%g")
    assert not kit.operation.is_written(copied)
    told: list[Exception | None] = []
    kit.operation.when_settled(copied, told.append)
    assert told == []
    kit.topics.write()
    assert told == [None]
    assert kit.operation.is_written(copied)
    assert {"%RETRY%g", "%DLQ%g"} <= kit.topics.written.keys()


@pytest.mark.parametrize("tries", [0, 16])
def test_send_back_topic_undone_before_response_is_refused(tries: int) -> None:
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    kit.message(tries=tries)
    copied = kit.back()
    assert isinstance(copied, Copied)
    kit.topics._file = FullFile()
    kit.topics.write()
    assert not kit.operation.is_written(copied)
    told: list[Exception | None] = []
    kit.operation.when_settled(copied, told.append)
    assert [str(each) for each in told] == ["no space"]
    refused = kit.back()
    assert isinstance(refused, Refusal)
    assert (refused.code, "no space" in refused.remark) == (14, True)


class FullFile(MemoryFile):
    def save(self, value: object) -> None:
        raise DiskFullError("no space")


@pytest.mark.parametrize("answers_wait", [False, True])
def test_send_back_response_waits_for_topic_and_copy(answers_wait: bool) -> None:
    kit = Kit()
    kit.topics.use_writer(lambda: None)
    processor = SendBackProcessor(kit.operation, answers_wait=answers_wait)
    channel = FakeChannel()
    fields = {"offset": str(OFFSET), "group": "g", "delayLevel": "0", "originTopic": "T"}
    response = processor.process(channel, make_request(36, fields))  # type: ignore[arg-type]
    assert isinstance(response, DeferredResponse)
    assert channel.deferred == []
    kit.topics.write()
    assert [answer.code for _, answer in channel.deferred] == [0]
    again = processor.process(channel, make_request(36, fields))  # type: ignore[arg-type]
    assert isinstance(again, DeferredResponse) == answers_wait


CAUSE = ("ValueError", "no such\nsku", 1_700, "10.0.0.1@7")


@pytest.mark.parametrize(("tries", "level"), [(0, -1), (16, 0)])
def test_dead_letter_keeps_its_cause(tries: int, level: int) -> None:
    kit = Kit()
    kit.message(tries=tries, DLQ_REASON="of an earlier time")
    kit.end(level, cause=CAUSE)
    properties = parse_properties(kit.store.put[0].properties)
    assert kit.store.put[0].topic == "%DLQ%g"
    assert {name: value for name, value in properties.items() if name.startswith("DLQ_")} == {
        "DLQ_EXCEPTION": "ValueError",
        "DLQ_REASON": "no such sku",
        "DLQ_TIME": "1700",
        "DLQ_MEMBER": "10.0.0.1@7",
    }


def test_message_that_is_retried_keeps_no_cause() -> None:
    kit = Kit()
    kit.end(0, cause=CAUSE)
    assert "DLQ_REASON" not in parse_properties(kit.store.put[0].properties)


def test_dead_letter_with_full_properties_is_stored_without_its_cause() -> None:
    kit = Kit()
    kit.message(mine="x" * 32_400)
    kit.end(-1, cause=("E", "y" * 900, 1, "m"))
    properties = parse_properties(kit.store.put[0].properties)
    assert len(properties["mine"]) == 32_400
    assert "DLQ_EXCEPTION" not in properties


def test_dead_letter_of_an_apache_client_has_no_cause() -> None:
    kit = Kit()
    kit.end(-1, cause=(None, None, None, None))
    assert not [
        name for name in parse_properties(kit.store.put[0].properties) if name.startswith("DLQ_")
    ]
