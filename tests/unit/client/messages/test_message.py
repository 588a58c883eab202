"""Received messages: attributes and settlement."""

import copy
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rocketpy.client.messages.message import Message, ReceivedMessage
from rocketpy.client.messages.outcomes import Rejection
from rocketpy.client.messages.serializers import json
from rocketpy.client.pop.popped_message import PoppedMessage
from rocketpy.errors import ClosedError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt

QUEUE = MessageQueue("t", "broker-a", 3)


def received(
    *, queue: MessageQueue = QUEUE, properties: dict[str, str] | None = None, **fields: Any
) -> ReceivedMessage:
    given = {
        name: fields.pop(name)
        for name in ("serializer", "settlement", "namespace")
        if name in fields
    }
    ext = MessageExt(
        topic=queue.topic, properties=properties or {}, store_host="10.0.0.1:10911", **fields
    )
    return ReceivedMessage(ext, queue, **given)


class Settlement:
    """Notes outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, ReceivedMessage, Any]] = []

    def ack(self, message: ReceivedMessage) -> None:
        self.outcomes.append(("ack", message, 0))

    async def nack(self, message: ReceivedMessage, rejection: Rejection) -> None:
        self.outcomes.append(("nack", message, (rejection.delay_level, rejection.delay_s)))


def test_message_has_what_it_was_sent_with() -> None:
    message = received(
        body=b"body",
        queue_offset=7,
        reconsume_times=2,
        properties={"TAGS": "paid", "KEYS": "a b", "UNIQ_KEY": "ID", "mine": "1"},
    )
    assert (message.topic, message.body, message.offset, message.retries) == ("t", b"body", 7, 2)
    assert (message.tag, message.keys) == ("paid", ["a", "b"])
    assert message.id == message.msg_id == "ID"
    assert message.headers == {"mine": "1"}, "without the system's"
    assert message.properties["TAGS"] == "paid"
    assert message.queue is QUEUE


def test_missing_properties_are_empty() -> None:
    message = received()
    assert (message.tag, message.keys, message.headers, message.retries) == ("", [], {}, 0)


def test_times_are_times_with_a_zone() -> None:
    message = received(born_timestamp_ms=1_700_000_000_123, store_timestamp_ms=1_700_000_000_456)
    assert message.born_at == datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC)
    assert message.stored_at == datetime(2023, 11, 14, 22, 13, 20, 456_000, tzinfo=UTC)


def test_redelivery_has_the_topic_it_was_sent_to() -> None:
    retry = MessageQueue("%RETRY%g", "broker-a", 0)
    message = received(queue=retry, properties={"RETRY_TOPIC": "orders"})
    assert (message.topic, message.origin_topic) == ("orders", "orders")
    assert message.queue.topic == "%RETRY%g"
    assert received(queue=retry).topic == "%RETRY%g", "nobody said where it was from"


def test_retry_topic_property_changes_no_ordinary_topic() -> None:
    message = received(properties={"RETRY_TOPIC": "orders"})
    assert (message.topic, message.origin_topic) == ("t", "orders")


def test_dead_letter_knows_where_it_was_from() -> None:
    message = received(
        queue=MessageQueue("%DLQ%g", "broker-a", 0),
        properties={"DLQ_ORIGIN_TOPIC": "orders", "RETRY_TOPIC": "other", "ORIGIN_MESSAGE_ID": "X"},
    )
    assert (message.origin_topic, message.origin_id) == ("orders", "X")


def test_id_of_a_first_delivery_is_its_own() -> None:
    message = received()
    assert message.origin_id == message.offset_id
    assert message.origin_topic == "t"


def test_namespace_is_not_shown() -> None:
    queue = MessageQueue("ns%orders", "broker-a", 0)
    assert received(queue=queue, namespace="ns").topic == "orders"
    assert received(queue=queue).topic == "ns%orders"
    retry = MessageQueue("%RETRY%ns%g", "broker-a", 0)
    again = received(queue=retry, namespace="ns", properties={"RETRY_TOPIC": "ns%orders"})
    assert again.topic == "orders"


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        ("ns%orders", {}),
        ("%RETRY%ns%g", {"RETRY_TOPIC": "ns%orders"}),
        ("%DLQ%ns%g", {"RETRY_TOPIC": "ns%orders"}),
        ("%DLQ%ns%g", {"DLQ_ORIGIN_TOPIC": "ns%orders", "RETRY_TOPIC": "%RETRY%ns%g"}),
    ],
    ids=["first", "retry", "dead letter of an old broker", "dead letter"],
)
def test_origin_topic_with_namespace_is_without_it(topic: str, properties: dict[str, str]) -> None:
    queue = MessageQueue(topic, "broker-a", 0)
    message = received(queue=queue, namespace="ns", properties=properties)
    assert copy.copy(message).origin_topic == message.origin_topic == "orders"


def test_decode_uses_the_serializer_of_the_consumer_or_the_call() -> None:
    message = received(body=b'{"a": 1}', serializer=json)
    assert message.decode() == {"a": 1}
    plain = received(body=b'{"a": 1}')
    assert plain.decode() == b'{"a": 1}'
    assert plain.decode(json) == {"a": 1}
    with pytest.raises(ValueError, match=r"."):
        received(body=b"{", serializer=json).decode()


async def test_outcomes_go_to_the_settlement() -> None:
    settlement = Settlement()
    message = received(settlement=settlement)
    await message.ack()
    await message.nack()
    await message.nack(delay_level=-1)
    await message.nack(delay=timedelta(minutes=1))
    assert settlement.outcomes == [
        ("ack", message, 0), ("nack", message, (0, None)), ("nack", message, (-1, None)),
        ("nack", message, (0, 60.0)),
    ]  # fmt: skip


async def test_message_without_settlement_can_be_acked_but_not_nacked() -> None:
    message = received()
    await message.ack()
    with pytest.raises(ClosedError, match="only messages of a group consumer"):
        await message.nack()


def test_message_says_where_it_is_from_and_keeps_its_body_to_itself() -> None:
    text = repr(received(body=b"a secret", queue_offset=7))
    assert text == "ReceivedMessage(t@broker-a:3+7, 8 bytes)"


def test_message_to_send_shares_nothing_with_the_next() -> None:
    one, other = Message(topic="t"), Message(topic="t", body={"a": 1}, keys=["k"])
    assert (one.body, one.tag, one.keys, one.order_key, one.flag) == (b"", "", (), None, 0)
    assert one.headers == {}
    assert one.headers is not other.headers
    with pytest.raises(TypeError):
        Message("t", b"x")  # type: ignore[call-arg] # by name only


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("value", "body"),
        ("key", "keys"),
        ("partition", "queue.queue_id"),
        ("timestamp", "born_at"),
        ("message_id", "id"),
    ],
)
def test_name_of_another_library_is_an_error_that_names_ours(name: str, ours: str) -> None:
    with pytest.raises(AttributeError, match=f"'{name}'; RocketPy's name is {ours}"):
        getattr(received(body=b"x"), name)


def test_unknown_attribute_is_a_plain_error() -> None:
    with pytest.raises(AttributeError, match=r"object has no attribute 'colour'$"):
        received(body=b"x").colour  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_message_of_a_consumer_is_not_copied_unless_the_copy_settles_it(
    copied: Callable[[Any], Any],
) -> None:
    ext, queue = MessageExt(topic="t", body=b"x"), MessageQueue("t", "b", 0)
    settlement: Any = object()
    words = r"a (Rec|Popp)\w+ cannot be pickled or copied, it belongs to a consumer"
    with pytest.raises(TypeError, match=words):
        copied(PoppedMessage(ext, queue, settlement))
    received = ReceivedMessage(ext, queue, settlement=settlement)
    if copied is copy.copy:
        assert copied(received)._settlement is settlement
    else:
        with pytest.raises(TypeError, match=words):
            copied(received)
    assert copied(ReceivedMessage(ext, queue))
