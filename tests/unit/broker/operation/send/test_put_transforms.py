"""Put transforms: batches, retries and dead letters."""

from typing import Any

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.send.put_transforms import RetryRedirect, refuse_in_batch
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.store.results import PutMessage
from tests.unit.broker.fakes import FakeClock, MemoryFile

REQUEST = SendRequest("%RETRY%g", 0, b"x", b"", b"", "p", 0, 0, 0)


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({}, None),
        ({"TIMER_DELAY_SEC": "1"}, 13),
        ({"TIMER_DELAY_MS": "1"}, 13),
        ({"TIMER_DELIVER_MS": "1"}, 13),
    ],
)
def test_transform_delayed_batch_is_refused(properties: dict[str, str], code: int | None) -> None:
    refused = refuse_in_batch(properties)
    assert (None if refused is None else refused.code) == code


def test_transform_transactional_batch_is_refused() -> None:
    refused = refuse_in_batch({"TRAN_MSG": "TRUE"})
    assert refused is not None
    assert refused.code == 13
    assert refuse_in_batch({"TRAN_MSG": "false"}) is None


class Kit:
    def __init__(self, **config: Any) -> None:
        broker = BrokerConfig(broker_name="b", **config)
        self.file = MemoryFile()
        self.topics = TopicTable(broker, self.file, FakeClock())
        self.groups = SubscriptionGroupTable(broker, MemoryFile(), FakeClock())
        self.ordered: set[str] = set()
        self.redirect = RetryRedirect(self.topics, self.groups, self.ordered.__contains__)

    def run(self, topic: str, tries: int, limit: int | None = None) -> Any:
        message = PutMessage(topic, 3, b"x", reconsume_times=tries)
        request = REQUEST._replace(max_reconsume_times=limit)
        self.properties = {"DELAY": "3"}
        refused = self.redirect(message, self.properties, request)
        return refused.code if refused else (message.topic, message.queue_id)


def test_retry_redirect_after_last_attempt_is_dead_letter() -> None:
    kit = Kit()
    kit.groups.put(SubscriptionGroupConfig("g", retry_max_times=2))
    assert kit.run("%RETRY%g", 2) == ("%RETRY%g", 3)
    assert kit.run("%RETRY%g", 3) == ("%DLQ%g", 0)
    assert kit.run("%RETRY%g", 3, limit=3) == ("%RETRY%g", 3), "the client's limit counts"
    assert kit.run("%RETRY%g", 1, limit=0) == ("%DLQ%g", 0)
    assert kit.properties["DELAY"] == "-1", "a dead letter waits for nothing"
    assert kit.run("T", 99) == ("T", 3)
    assert kit.properties["DELAY"] == "3"


def test_retry_redirect_ordered_group_is_dead_letter_at_once() -> None:
    kit = Kit()
    kit.ordered.add("g")
    assert kit.run("%RETRY%g", 0) == ("%DLQ%g", 0)
    assert kit.run("%RETRY%other", 0) == ("%RETRY%other", 3)


def test_retry_redirect_unknown_group_is_refused() -> None:
    assert Kit(auto_create_subscription_group=False).run("%RETRY%g", 0) == 26


def test_retry_redirect_topic_not_created_is_refused() -> None:
    kit = Kit()

    def full(value: object) -> None:
        raise DiskFullError("no space")

    kit.file.save = full  # type: ignore[method-assign]
    assert kit.run("%RETRY%g", 99) == 14
    assert kit.topics.get("%DLQ%g") is None


def test_retry_redirect_pop_retry_topic_belongs_to_the_group_of_its_name() -> None:
    kit = Kit(auto_create_subscription_group=False)
    kit.groups.put(SubscriptionGroupConfig("a_group", retry_max_times=2))
    kit.topics.put(TopicConfig("a_topic", 4, 4))
    for name in ("a_group_a_topic", "a_group+a_topic"):
        assert kit.run(f"%RETRY%{name}", 2) == (f"%RETRY%{name}", 3)
        assert kit.run(f"%RETRY%{name}", 3) == ("%DLQ%a_group", 0)
    assert kit.run("%RETRY%a_group_other", 0) == 26
    assert kit.run("%RETRY%other_a_topic", 0) == 26
