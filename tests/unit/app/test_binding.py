"""Arguments of handlers follow the annotations of their parameters."""

import functools
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NewType, cast

import msgspec
import pytest

import rocketpy
from rocketpy import Headers, Producer, ReceivedMessage, TypedSerializer
from rocketpy.app.binding import bound, parameters_of
from rocketpy.client.messages.serializers import PLAIN, json, json_or_text, msgpack, plain, text


@dataclass
class Order:
    id: str


@dataclass
class Other:
    name: str


def of_body(body: Order) -> None: ...
def of_text(body: str, message: ReceivedMessage) -> None: ...
def of_bytes(body: bytes) -> None: ...
def of_anything(order, message, headers): ...
def of_list(body: dict[str, int]) -> None: ...
def of_nothing() -> None: ...
async def of_more(
    order: Order, producer: Producer, headers: Headers, *, limit: int = 5
) -> None: ...


@pytest.mark.parametrize(
    ("handler", "parts", "serializer"),
    [
        (of_body, ["body"], TypedSerializer),
        (of_text, ["body", "message"], type(text)),
        (of_bytes, ["body"], type(plain)),
        (of_anything, ["body", "message", "headers"], type(json_or_text)),
        (of_list, ["body"], TypedSerializer),
        (of_nothing, [], type(json_or_text)),
        (of_more, ["body", "producer", "headers"], TypedSerializer),
    ],
)
def test_parameters_get_arguments_by_their_annotations(
    handler: Any, parts: list[str], serializer: type
) -> None:
    parameters = parameters_of(handler, is_list=False)
    assert list(parameters.parts.values()) == parts
    assert type(parameters.serializer(plain, json_or_text)) is serializer
    if parameters.body is None:
        assert parameters.serializer(msgpack, json_or_text) is msgpack, "the subscription's own"


def test_text_is_read_as_the_app_s_serializer_writes_it() -> None:
    parameters = parameters_of(of_text, is_list=False)
    for written_by in (json_or_text, json, msgpack, plain):
        data = written_by.dumps('a "text", ä')
        assert parameters.serializer(plain, written_by).loads(data) == 'a "text", ä'


def test_parameters_without_an_argument_raise_in_the_decorator() -> None:
    def two(first: Order, second: Order) -> None: ...
    def by_place(first: Order, /) -> None: ...
    def single(order: Order) -> None: ...

    words = r"^two\(\): parameters first and second both want the body; annotate one as Received"
    with pytest.raises(TypeError, match=words):
        parameters_of(two, is_list=False)
    with pytest.raises(TypeError, match=r"^by_place\(\): parameter first: .* be passed by name"):
        parameters_of(by_place, is_list=False)
    with pytest.raises(TypeError, match=r"^single\(\): order must be a list"):
        parameters_of(single, is_list=True)


def of_files(files: list[Path]) -> None: ...
def of_union(body: Order | Other) -> None: ...
def of_lost(order: "Lost") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def of_typed_message(message: ReceivedMessage[Order]) -> None: ...
def of_two_types(order: Order, message: ReceivedMessage[Other]) -> None: ...
def of_object(body: object) -> None: ...
def of_annotated(message: Annotated[ReceivedMessage, "m"]) -> None: ...


def test_body_that_cannot_be_read_is_refused_with_handler_and_parameter() -> None:
    for handler, words in (
        (of_files, r"^of_files\(\): parameter files: .*Path has no form in JSON"),
        (of_union, r"^of_union\(\): parameter body: .*could not tell them apart"),
    ):
        parameters = parameters_of(handler, is_list=False)
        for default in (json_or_text, json, msgpack, plain):
            with pytest.raises(TypeError, match=words):
                parameters.serializer(plain, default)
    with pytest.raises(TypeError, match=r"^of_lost\(\): name 'Lost' is not defined"):
        parameters_of(of_lost, is_list=False)
    with pytest.raises(TypeError, match="order and message want different bodies"):
        parameters_of(of_two_types, is_list=False)


def test_annotation_of_message_decides_the_type_of_decode() -> None:
    parameters = parameters_of(of_typed_message, is_list=False)
    assert (parameters.parts, parameters.wants_body) == ({"message": "message"}, False)
    assert parameters.serializer(plain, json_or_text).loads(b'{"id":"1"}') == Order("1")
    assert parameters_of(of_object, is_list=False).serializer(plain, json) is json
    assert parameters_of(of_annotated, is_list=False).parts == {"message": "message"}


class Upper:
    """Serializer of a user."""

    def dumps(self, value: Any) -> bytes:
        return json.dumps(value).upper()

    def loads(self, data: bytes) -> Any:
        return json.loads(data.lower())


class Proto:
    """Class that only the user's serializer knows."""


def of_proto(body: Proto) -> None: ...


@pytest.mark.parametrize("serializer", [json, json_or_text, msgpack, Upper()])
def test_typed_body_is_read_in_the_format_of_the_serializer(serializer: Any) -> None:
    parameters = parameters_of(of_body, is_list=False)
    for reads in (
        parameters.serializer(plain, serializer),
        parameters.serializer(serializer, plain),
    ):
        assert reads.loads(serializer.dumps(Order("a"))) == Order("a")
        with pytest.raises(ValueError, match="expected `str`"):
            reads.loads(serializer.dumps({"id": 5}))
    assert parameters_of(of_list, is_list=False).serializer(serializer, plain).loads(
        serializer.dumps({"a": 1})
    ) == {"a": 1}


def test_class_of_the_user_is_left_to_the_serializer_of_the_user() -> None:
    parameters = parameters_of(of_proto, is_list=False)
    own = Upper()
    assert parameters.serializer(own, json) is own
    with pytest.raises(TypeError, match="Proto has no form in JSON"):
        parameters.serializer(plain, json)


def test_serializer_of_another_type_is_refused() -> None:
    parameters = parameters_of(of_body, is_list=False)
    given = TypedSerializer(Order)
    assert parameters.serializer(given, json) is given
    with pytest.raises(TypeError, match="parameter body has another type than the serializer"):
        parameters.serializer(TypedSerializer(Other), json)


async def test_batch_parameters_are_lists() -> None:
    got: list[Any] = []

    async def handle(
        orders: list[Order], messages: Sequence[ReceivedMessage], headers: list[Headers]
    ) -> None:
        got.append((orders, messages, headers))

    class Some:
        headers = {"a": "b"}  # noqa: RUF012

    parameters = parameters_of(handle, is_list=True)
    call = bound(handle, parameters, lambda: cast("rocketpy.Producer", None), is_list=True)
    message = Some()
    await call([Order("1")], [message])
    assert got == [([Order("1")], [message], [{"a": "b"}])]


async def test_callable_objects_are_handlers() -> None:
    class Handler:
        async def __call__(self, order: Order) -> str:
            return order.id

    handler = Handler()
    parameters = parameters_of(handler, is_list=False)
    call = bound(handler, parameters, lambda: cast("rocketpy.Producer", None), is_list=False)
    assert await call(Order("7"), None) == "7"


UserName = NewType("UserName", str)


@pytest.mark.parametrize("kind", [UserName, Annotated[str, "a name"], Annotated[UserName, "x"]])
def test_parameters_name_of_text_is_read_as_text(kind: object) -> None:
    async def handler(body: object) -> None: ...

    handler.__annotations__["body"] = kind
    serializer = parameters_of(handler, is_list=False).serializer(PLAIN, json_or_text)
    assert serializer.loads(b"5") == "5"


@pytest.mark.parametrize(
    "kind",
    [
        str | None, bytes | None, str | int, UserName | None, bytearray, memoryview,
        Annotated[str, msgspec.Meta(max_length=3)],
    ],
)  # fmt: skip
def test_parameters_text_among_other_types_is_refused(kind: object) -> None:
    async def handler(body: object) -> None: ...

    handler.__annotations__["body"] = kind
    parameters = parameters_of(handler, is_list=False)
    with pytest.raises(TypeError, match=r"parameter body: .*annotate str or bytes"):
        parameters.serializer(PLAIN, json_or_text)


def test_parameters_optional_text_is_json_with_the_json_serializer() -> None:
    async def handler(body: str | None) -> None: ...

    serializer = parameters_of(handler, is_list=False).serializer(PLAIN, json)
    assert [serializer.loads(each) for each in (b'"5"', b"null")] == ["5", None]


def test_parameters_of_method_without_object_raises() -> None:
    class Service:
        async def handle(self, message: ReceivedMessage) -> None:
            pass

    with pytest.raises(TypeError, match=r"handle\(\): a method of a class without its object"):
        parameters_of(Service.handle, is_list=False)
    assert parameters_of(Service().handle, is_list=False).parts == {"message": "message"}


def test_plain_function_with_a_producer_is_refused() -> None:
    def send(order: Order, producer: Producer) -> None:
        producer.send("bills", order)  # type: ignore[unused-coroutine]

    with pytest.raises(TypeError, match=r"send\(\): a plain function .*make it `async def`"):
        parameters_of(send, is_list=False)


def test_function_that_returns_its_sends_may_have_a_producer() -> None:
    def send(order: Order, producer: Producer) -> Awaitable[Any]:
        return producer.send("bills", order)

    @functools.wraps(of_more)
    def around(*args: Any, **kwargs: Any) -> Any:
        return of_more(*args, **kwargs)

    for handler in (send, around, functools.partial(of_more, limit=3)):
        assert "producer" in parameters_of(handler, is_list=False).parts.values()
