"""Types of bodies, as mypy (with all tests) and pyright (`tests.tidy`) see them."""

from dataclasses import dataclass
from typing import Any, assert_type

import pytest

import rocketpy
import rocketpy.sync
from rocketpy import Consumer, PopConsumer, PoppedMessage, PullConsumer, ReceivedMessage


@dataclass
class Order:
    id: str


ORDERS = rocketpy.TypedSerializer(Order)


async def check_consumers(client: rocketpy.Client) -> None:
    consumer = client.consumer("t", group="g", serializer=ORDERS)
    assert_type(consumer, Consumer[Order])
    async for message in consumer:
        assert_type(message, ReceivedMessage[Order])
        assert_type(message.decode(), Order)
        assert_type(message.decode(rocketpy.text), str)
    async for messages in consumer.batches():
        assert_type(messages, list[ReceivedMessage[Order]])
    assert_type(await consumer.getone(), ReceivedMessage[Order] | None)
    popped = client.pop_consumer("t", group="g", serializer=ORDERS)
    assert_type(popped, PopConsumer[Order])
    assert_type(await popped.getmany(), list[PoppedMessage[Order]])
    pulling = client.pull_consumer(group="g", serializer=ORDERS)
    assert_type(pulling, PullConsumer[Order])
    assert_type(await pulling.poll(), list[ReceivedMessage[Order]])
    assert_type(client.responder("t", group="g", serializer=ORDERS), Consumer[Order])
    async for message in client.read("t", serializer=ORDERS):
        assert_type(message.decode(), Order)


async def check_others(client: rocketpy.Client) -> None:
    untyped = client.consumer("t", group="g")
    assert_type(untyped, Consumer[Any])
    async for message in untyped:
        assert_type(message, ReceivedMessage[Any])
    text = client.consumer("t", group="g", serializer=rocketpy.text)
    assert_type(text, Consumer[str])
    optional = rocketpy.TypedSerializer[Order | None](Order | None)
    assert_type(optional.loads(b""), Order | None)
    producer = client.producer()
    assert_type(await producer.request("t", b"1"), ReceivedMessage[Any])
    assert_type(await producer.request("t", b"1", type=Order, timeout=1), Order)
    assert_type(await producer.request("t", b"1", type=list[Order]), list[Order])


def check_blocking(client: rocketpy.sync.Client) -> None:
    consumer = client.consumer("t", group="g", serializer=ORDERS)
    assert_type(consumer, rocketpy.sync.Consumer[Order])
    for message in consumer:
        assert_type(message, rocketpy.sync.ReceivedMessage[Order])
        assert_type(message.decode(), Order)
    popped = client.pop_consumer("t", group="g", serializer=ORDERS).getmany()
    assert_type(popped, list[rocketpy.sync.PoppedMessage[Order]])
    pulled = client.pull_consumer(group="g", serializer=ORDERS).poll()
    assert_type(pulled, list[rocketpy.sync.ReceivedMessage[Order]])
    assert_type(client.consumer("t", group="g"), rocketpy.sync.Consumer[Any])
    producer = client.producer()
    assert_type(producer.request("t", b"1"), rocketpy.sync.ReceivedMessage[Any])
    assert_type(producer.request("t", b"1", type=Order), Order)


@pytest.mark.parametrize("package", [rocketpy, rocketpy.sync])
def test_generic_classes_take_their_argument_at_run_time(package: Any) -> None:
    names = ("Consumer", "PopConsumer", "PullConsumer", "ReceivedMessage", "PoppedMessage")
    for name in names:
        assert getattr(package, name)[Order].__args__ == (Order,)
    assert rocketpy.Serializer[Order] is not None
