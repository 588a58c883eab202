"""Annotations of handlers are compared with the arguments that consumers pass."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypedDict

import pytest

import rocketpy
import rocketpy.sync
from rocketpy import PoppedMessage, ReceivedMessage, TypedSerializer
from rocketpy.client.callbacks.handler_signature import mismatch
from rocketpy.client.config import ConsumerConfig, PopConsumerConfig, ResponderConfig
from rocketpy.client.messages.serializers import JsonSerializer
from rocketpy.errors import ConfigError


@dataclass
class Order:
    id: str


class Row(TypedDict):
    id: str


class HasBody(Protocol):
    body: bytes


def of_message(message: ReceivedMessage) -> None: ...
def of_anything(message: Any) -> None: ...
def of_object(message: object) -> None: ...
def of_unnamed(message): ...
def of_protocol(message: HasBody) -> None: ...
def of_one_of(message: ReceivedMessage | None) -> None: ...
def of_annotated(message: Annotated[ReceivedMessage, "m"]) -> None: ...
def of_popped(message: PoppedMessage) -> None: ...
def of_blocking(message: rocketpy.sync.ReceivedMessage) -> None: ...
def of_messages(messages: list[ReceivedMessage]) -> None: ...
def of_sequence(messages: Sequence[ReceivedMessage]) -> None: ...
def of_bare_list(messages: list) -> None: ...  # type: ignore[type-arg]
def of_body(order: Order) -> None: ...
def of_text(text: str) -> None: ...
def of_row(row: Row) -> None: ...
def of_bodies(orders: list[Order]) -> None: ...
def of_both(order: Order, message: ReceivedMessage) -> None: ...
def of_json(body: dict[str, list[int] | None], message: ReceivedMessage) -> None: ...
def of_json_list(bodies: list[Sequence[Row]], messages: list[ReceivedMessage]) -> None: ...
def of_orders(orders: list[Order], message: ReceivedMessage) -> None: ...
def of_order_or_none(order: Order | None, message: ReceivedMessage) -> None: ...
def of_row_and_message(row: Row | None, message: ReceivedMessage) -> None: ...
def of_bytes(body: bytes, message: ReceivedMessage) -> None: ...
def of_text_and_message(body: str, message: ReceivedMessage) -> None: ...
def of_swapped(message: ReceivedMessage, order: Order) -> None: ...
def of_swapped_text(message: ReceivedMessage, body: Any) -> None: ...
def of_unknown(order: "Unknown") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def of_no_more(message: ReceivedMessage, limit: int = 5) -> None: ...
def of_list_of_both(orders: list[Order], messages: list[ReceivedMessage]) -> None: ...
async def of_body_awaited(order: Order) -> None: ...


class Callable_:  # noqa: N801
    def __call__(self, order: Order) -> None: ...

    def method(self, order: Order) -> None: ...


class _Own(JsonSerializer):
    """A serializer of a user."""


TYPED = TypedSerializer(Order)


@pytest.mark.parametrize(
    ("handler", "serializer", "is_list"),
    [
        (of_message, TYPED, False), (of_anything, TYPED, False), (of_object, TYPED, False),
        (of_unnamed, TYPED, False), (of_protocol, TYPED, False), (of_one_of, TYPED, False),
        (of_annotated, TYPED, False), (of_popped, TYPED, False), (of_blocking, TYPED, False),
        (of_messages, TYPED, True), (of_sequence, TYPED, True), (of_bare_list, TYPED, True),
        (of_both, TYPED, False), (of_bytes, rocketpy.plain, False), (of_unknown, TYPED, False),
        (of_no_more, TYPED, False), (of_list_of_both, TYPED, True), (print, TYPED, False),
        ([].append, TYPED, False), (lambda order: None, TYPED, False),
        (of_json, rocketpy.json, False), (of_json, rocketpy.msgpack, False),
        (of_json, TypedSerializer(dict), False),
        (of_row_and_message, rocketpy.json, False), (of_both, _Own(), False),
        (of_json_list, rocketpy.json, True), (of_bytes, rocketpy.msgpack, False),
        (of_text_and_message, rocketpy.text, False), (of_text_and_message, rocketpy.json, False),
        (functools.partial(of_both, Order("")), TYPED, False),
    ],
)  # fmt: skip
def test_handler_with_annotations_of_its_arguments_is_accepted(
    handler: Callable[..., Any], serializer: Any, is_list: bool
) -> None:
    assert mismatch(handler, serializer, is_list=is_list) == ""


@pytest.mark.parametrize(
    ("handler", "serializer", "is_list", "words"),
    [
        (of_body, TYPED, False, "of_body(): parameter order gets a ReceivedMessage, not Order"),
        (of_body, TYPED, False,
         "`of_body(body: Order, message: ReceivedMessage)` gets the decoded body"),
        (of_body_awaited, TYPED, False, "parameter order gets a ReceivedMessage"),
        (of_text, rocketpy.plain, False, "parameter text gets a ReceivedMessage, not str"),
        (of_row, TYPED, False, "parameter row gets a ReceivedMessage, not Row"),
        (of_bodies, TYPED, True, "parameter orders gets a list of ReceivedMessage, not list["),
        (of_bodies, TYPED, False, "parameter orders gets a ReceivedMessage"),
        (of_messages, TYPED, False, "parameter messages gets a ReceivedMessage"),
        (of_message, TYPED, True, "not ReceivedMessage; with batch above 1 a handler gets lists"),
        (of_swapped, TYPED, False, "the second parameter of a handler is the message"),
        (of_swapped_text, TYPED, False, "gets the body; the message comes second"),
        (of_text_and_message, rocketpy.plain, False, "parameter body gets bytes, not str"),
        (of_both, rocketpy.plain, False, "use serializer=rocketpy.TypedSerializer(Order)"),
        (of_text_and_message, TYPED, False, "parameter body gets Order, not str"),
        (of_both, rocketpy.json, False, "parameter order gets a value of JSON, not Order"),
        (of_both, rocketpy.json, False, "use serializer=rocketpy.TypedSerializer(Order)"),
        (of_both, rocketpy.msgpack, False, "parameter order gets a value of MessagePack, not"),
        (of_both, rocketpy.msgpack, False, "App(serializer=rocketpy.msgpack) gets it converted"),
        (of_list_of_both, rocketpy.json, True, "parameter orders gets a value of JSON, not Order"),
        (of_orders, rocketpy.json, False, "parameter orders gets a value of JSON, not list["),
        (of_order_or_none, rocketpy.json, False, "parameter order gets a value of JSON"),
        (of_bytes, rocketpy.json, False, "parameter body gets a value of JSON, not bytes"),
        (of_bytes, rocketpy.text, False, "parameter body gets str, not bytes"),
        (Callable_(), TYPED, False, "Callable_(): parameter order"),
        (Callable_().method, TYPED, False, "method(): parameter order"),
        (functools.partial(of_body), TYPED, False, "parameter order"),
    ],
)  # fmt: skip
def test_handler_with_annotations_of_other_arguments_is_refused(
    handler: Callable[..., Any], serializer: Any, is_list: bool, words: str
) -> None:
    assert words in mismatch(handler, serializer, is_list=is_list)


@pytest.mark.parametrize("kind", [ConsumerConfig, PopConsumerConfig, ResponderConfig])
def test_every_consumer_refuses_handler_of_other_arguments(kind: Any) -> None:
    with pytest.raises(ConfigError, match="parameter order gets a ReceivedMessage"):
        kind(topic="t", handler=of_body, serializer=TYPED)
    assert kind(topic="t", handler=of_both, serializer=TYPED).handler is of_both


def test_blocking_consumer_refuses_handler_of_other_arguments() -> None:
    with rocketpy.sync.connect("127.0.0.1:1", group="g") as client:
        for make in (client.consumer, client.pop_consumer, client.responder):
            with pytest.raises(ConfigError, match="parameter order gets a ReceivedMessage"):
                make("t", handler=of_body, serializer=TYPED)


class _Service:
    async def handle(self, message: ReceivedMessage) -> None:
        pass


def test_mismatch_method_without_object_is_named() -> None:
    assert "_Service.handle: a method of a class without its object" in mismatch(
        _Service.handle, rocketpy.plain, is_list=False
    )
    assert not mismatch(_Service().handle, rocketpy.plain, is_list=False)
