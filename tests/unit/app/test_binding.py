"""Arguments of handlers follow the annotations of their parameters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

import rocketpy
from rocketpy import Headers, Producer, ReceivedMessage, TypedSerializer
from rocketpy.app.binding import bound, wishes_of
from rocketpy.client.messages.serializers import json, json_or_text, msgpack, plain, text


@dataclass
class Order:
    id: str


def of_body(body: Order) -> None: ...
def of_text(body: str, message: ReceivedMessage) -> None: ...
def of_any_text(body: str | None) -> None: ...
def of_bytes(body: bytes) -> None: ...
def of_anything(order, message, headers): ...
def of_list(body: dict[str, int]) -> None: ...
def of_nothing() -> None: ...
def of_more(order: Order, producer: Producer, headers: Headers, *, limit: int = 5) -> None: ...


@pytest.mark.parametrize(
    ("handler", "parts", "serializer"),
    [
        (of_body, ["body"], TypedSerializer),
        (of_text, ["body", "message"], type(text)),
        (of_any_text, ["body"], TypedSerializer),
        (of_bytes, ["body"], type(plain)),
        (of_anything, ["body", "message", "headers"], type(json_or_text)),
        (of_list, ["body"], TypedSerializer),
        (of_nothing, [], type(json_or_text)),
        (of_more, ["body", "producer", "headers"], TypedSerializer),
    ],
)
def test_annotations_say_what_a_parameter_is(
    handler: Any, parts: list[str], serializer: type
) -> None:
    wishes = wishes_of(handler, is_list=False)
    assert list(wishes.parts.values()) == parts
    assert type(wishes.serializer(plain, json_or_text)) is serializer
    assert wishes.serializer(msgpack, json_or_text) is msgpack, "the subscription's own"


def test_text_is_read_as_the_app_s_serializer_writes_it() -> None:
    wishes = wishes_of(of_text, is_list=False)
    for written_by in (json_or_text, json, msgpack, plain):
        data = written_by.dumps('a "text", ä')
        assert wishes.serializer(plain, written_by).loads(data) == 'a "text", ä'


def test_parameters_without_an_argument_raise_in_the_decorator() -> None:
    def two(first: Order, second: Order) -> None: ...
    def by_place(first: Order, /) -> None: ...
    def single(order: Order) -> None: ...

    with pytest.raises(TypeError, match="parameter second would be a second body"):
        wishes_of(two, is_list=False)
    with pytest.raises(TypeError, match="cannot be passed by name"):
        wishes_of(by_place, is_list=False)
    with pytest.raises(TypeError, match="order must be a list"):
        wishes_of(single, is_list=True)


async def test_lists_are_lists_of_everything() -> None:
    got: list[Any] = []

    async def handle(
        orders: list[Order], messages: Sequence[ReceivedMessage], headers: list[Headers]
    ) -> None:
        got.append((orders, messages, headers))

    class Some:
        headers = {"a": "b"}  # noqa: RUF012

    wishes = wishes_of(handle, is_list=True)
    call = bound(handle, wishes, lambda: cast("rocketpy.Producer", None), is_list=True)
    message = Some()
    await call([Order("1")], [message])
    assert got == [([Order("1")], [message], [{"a": "b"}])]


async def test_objects_that_can_be_called_are_handlers_too() -> None:
    class Handler:
        async def __call__(self, order: Order) -> str:
            return order.id

    handler = Handler()
    wishes = wishes_of(handler, is_list=False)
    call = bound(handler, wishes, lambda: cast("rocketpy.Producer", None), is_list=False)
    assert await call(Order("7"), None) == "7"
