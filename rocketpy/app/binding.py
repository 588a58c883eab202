"""Arguments of an app's handlers, chosen by the annotations of their parameters.

```
annotation                          argument
ReceivedMessage                     the message
ReceivedMessage[Order]              the message; its `decode()` returns an Order
Headers                             its headers
Producer                            the app's producer
bytes, str, a dataclass, ...        the body, decoded as that type
none; the name is `message`         the message
none; the name is `headers`         its headers
none; any other name                the body, decoded by the app's serializer
```

With `batch` above 1 the arguments of a message are lists: `list[ReceivedMessage]`, `list[Order]`.
"""

import dataclasses
import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from rocketpy.client.callbacks.handler_signature import NOT_BOUND, not_bound
from rocketpy.client.callbacks.handlers import Handler, is_coroutine_function
from rocketpy.client.config import ConsumerConfig
from rocketpy.client.messages.body_types import has_json_form, unreadable_field, unwritable_part
from rocketpy.client.messages.message import Message, ReceivedMessage
from rocketpy.client.messages.serializers import (
    PLAIN,
    Serializer,
    json,
    json_or_text,
    msgpack,
    text,
)
from rocketpy.client.messages.typed_serializer import ConvertingSerializer, TypedSerializer
from rocketpy.client.producer.producer import Producer
from rocketpy.errors import IllegalMessageError

H = TypeVar("H", bound=Handler)

Part = Literal["message", "headers", "producer", "body"]
MakeProducer = Callable[[], Producer]
_LISTS: Final = (list, Sequence)
_ANYTHING: Final = (None, Any, object)
_ONE_MESSAGE: Final = "return one, or send each with a parameter of type rocketpy.Producer"
_TEXTS: Final[tuple[Serializer, ...]] = (json_or_text, PLAIN, text)
_JSONS: Final[tuple[Serializer, ...]] = (*_TEXTS, json)
"""Serializers whose bodies are JSON, if a handler wants another type than text or bytes."""
_OURS: Final = (*_JSONS, msgpack)


class Headers(dict[str, str]):
    """Properties set by a message's sender; annotates a handler's parameter."""


@dataclasses.dataclass(frozen=True, slots=True)
class HandlerParameters:
    """Parameters of a handler, and the argument that each of them gets.

    Attributes:
        name: of the handler, for errors.
        parts: the argument of each parameter, by the parameter's name.
        body: type of the body; None without an annotation.
        body_name: the parameter with that annotation.
    """

    name: str
    parts: dict[str, Part]
    body: Any
    body_name: str

    @property
    def wants_body(self) -> bool:
        """Return whether a parameter takes the body."""
        return "body" in self.parts.values()

    def serializer(self, given: Serializer, default: Serializer) -> Serializer:
        """Return the serializer of the body.

        Args:
            given: serializer of the subscription; `PLAIN` means that none was set.
            default: serializer of the app, used if the subscription has none.

        Raises:
            TypeError: bodies of the annotated type cannot be read; names the field.
        """
        used = default if given is PLAIN else given
        if self.body in _ANYTHING:
            return used
        if isinstance(used, TypedSerializer):
            if used.kind != self.body:
                raise TypeError(
                    f"{self.name}(): parameter {self.body_name} has another type than the "
                    f"serializer reads, {used.kind!r}"
                )
            return used
        body = _bare(self.body)
        if body is bytes and given is PLAIN:
            return PLAIN
        if body is str and used in _TEXTS:
            return text  # text is sent unchanged
        if used in _TEXTS and _may_be_text(body):
            # Text and bytes are sent unchanged, everything else as JSON: "5" could be either.
            raise TypeError(
                f"{self.name}(): parameter {self.body_name}: {self.body!r} has text or bytes "
                "among other types or constraints, which bodies do not tell apart; annotate str "
                "or bytes, or set serializer=rocketpy.json for app and producers"
            )
        try:
            if used in _JSONS:
                return TypedSerializer(self.body)
            return ConvertingSerializer(used, self.body)
        except TypeError as error:
            if used not in _OURS and isinstance(self.body, type):
                return used  # a class that only the user's serializer knows
            raise TypeError(f"{self.name}(): parameter {self.body_name}: {error}") from error


class Decorator(Protocol):
    """Decorator that registers a handler and returns it unchanged."""

    def __call__(self, handler: H, /) -> H:
        """Register `handler`."""
        ...


@dataclasses.dataclass(frozen=True, slots=True)
class Subscription:
    """Handler of an app, with the settings of its consumer.

    Attributes:
        kind: whether its result is an answer.
        handler: the decorated function.
        config: settings of its consumer, with the handler in the form that consumers call.
    """

    kind: Literal["consumer", "responder"]
    handler: Handler
    config: ConsumerConfig


def parameters_of(handler: Handler, *, is_list: bool) -> HandlerParameters:
    """Return the parameters of a handler.

    Raises:
        TypeError: a parameter without a matching argument, or two bodies.
    """
    name = getattr(handler, "__name__", type(handler).__name__)
    _check_bound(handler, name)
    hints = _hints_of(handler, name)
    parts: dict[str, Part] = {}
    body: Any = None
    body_name = ""
    decoded: dict[str, Any] = {}
    for each, parameter in inspect.signature(handler).parameters.items():
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            if parameter.default is parameter.empty:
                raise TypeError(
                    f"{name}(): parameter {parameter} cannot be passed by name, as handlers require"
                )
            continue
        wanted = hints.get(each)
        if is_list and wanted is not None and wanted is not Producer:
            wanted = _element(wanted, f"{name}(): {each}")
        part = _part(each, wanted)
        if part != "body" and get_origin(wanted) is Annotated:
            wanted = get_args(wanted)[0]
        if part == "message" and get_args(wanted):
            (decoded[each],) = get_args(wanted)
        if part == "body":
            if "body" in parts.values():
                if parameter.default is not parameter.empty:
                    continue  # a parameter with a default may stay without an argument
                raise TypeError(
                    f"{name}(): parameters {body_name} and {each} both want the body; annotate one "
                    f"as ReceivedMessage, Headers or Producer"
                )
            body, body_name = wanted, each
        parts[each] = part
    for each, wanted in decoded.items():
        if body_name and wanted != body:
            raise TypeError(f"{name}(): parameters {body_name} and {each} want different bodies")
        body, body_name = wanted, each
    _check_sends(handler, name, parts)
    return HandlerParameters(name, parts, body, body_name)


def result_of(handler: Handler) -> Any:  # noqa: ANN401 - an annotation
    """Return the annotation of a handler's result, None without one."""
    return _hints_of(handler, getattr(handler, "__name__", type(handler).__name__)).get("return")


def check_result(handler: Handler, serializer: Serializer) -> None:
    """Refuse a handler whose results cannot be written, or cannot be read, or hold messages.

    Args:
        handler: its results are sent; the annotation decides.
        serializer: of the results.

    Raises:
        TypeError: names the field.
    """
    name = getattr(handler, "__name__", type(handler).__name__)
    kind = result_of(handler)
    if kind in _ANYTHING:
        return
    if any(_holds_message(member) for member in _serialized(kind)):
        raise TypeError(f"{name}(): its result has messages in it; {_ONE_MESSAGE}")
    for known, form, has_form in _FORMS:
        for member in _serialized(kind) if serializer is known else ():
            if problem := unwritable_part(member, has_form):
                raise TypeError(f"{name}(): its result cannot be written as {form}: {problem}")
    if serializer not in (json, json_or_text):
        return
    if problem := unreadable_field(kind):
        raise TypeError(f"{name}(): no reader could get its result {problem}")


def checked_body(result: Any) -> Any:  # noqa: ANN401
    """Return a result; raises IllegalMessageError for messages, which JSON would write as one."""
    if isinstance(result, list | tuple) and any(isinstance(each, Message) for each in result):
        raise IllegalMessageError(f"the result has messages in it; {_ONE_MESSAGE}")
    return result


def _holds_message(kind: Any) -> bool:  # noqa: ANN401 - an annotation
    if isinstance(kind, type) and get_origin(kind) is None:
        return issubclass(kind, Message)
    return any(_holds_message(each) for each in get_args(kind))


def _serialized(kind: Any) -> list[Any]:  # noqa: ANN401 - an annotation
    """Return the members of a result's type that a serializer writes: no None, no message."""
    bare = _bare(kind)
    members = get_args(bare) if get_origin(bare) in {Union, UnionType} else (bare,)
    return [
        each
        for each in map(_bare, members)
        if not (isinstance(each, type) and issubclass(each, Message | NoneType))
    ]


def _is_plain(owner: type) -> bool:
    return issubclass(owner, str | bytes | bytearray | memoryview)


def _is_text(owner: type) -> bool:
    return issubclass(owner, str)


def _is_packed(owner: type) -> bool:
    return issubclass(owner, _PACKED) or dataclasses.is_dataclass(owner)


_PACKED: Final = (
    *(str, bytes, bytearray, memoryview),
    *(int, float, dict, list, tuple, NoneType),
)
_FORMS: Final[tuple[tuple[Serializer, str, Callable[[type], bool]], ...]] = (
    (PLAIN, "bytes", _is_plain),
    (text, "text", _is_text),
    (json, "JSON", has_json_form),
    (json_or_text, "JSON", has_json_form),
    (msgpack, "MessagePack", _is_packed),
)
"""Form that each serializer writes, and the classes of that form."""


def _element(wanted: Any, where: str) -> Any:  # noqa: ANN401 - an annotation
    if get_origin(wanted) not in _LISTS:
        raise TypeError(f"{where} must be a list, because batch is above 1")
    return get_args(wanted)[0]


def _bare(kind: Any) -> Any:  # noqa: ANN401 - an annotation
    """Return the type behind an alias, a new type or a plain comment."""
    while True:
        if hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType" and hasattr(kind, "__value__"):
            kind = kind.__value__
        elif get_origin(kind) is Annotated and all(
            isinstance(each, str) for each in kind.__metadata__
        ):
            kind = get_args(kind)[0]
        else:
            return kind


def _may_be_text(kind: Any) -> bool:  # noqa: ANN401
    if get_origin(kind) in {Union, UnionType}:
        return any(_may_be_text(_bare(each)) for each in get_args(kind))
    if get_origin(kind) is Annotated:
        return _may_be_text(_bare(get_args(kind)[0]))
    return kind in {str, bytes, bytearray, memoryview}


def _check_bound(handler: Handler, name: str) -> None:
    """Refuse a method without its object; raises TypeError."""
    if not_bound(handler):
        raise TypeError(f"{name}(): {NOT_BOUND}")


def _hints_of(handler: Handler, name: str) -> dict[str, Any]:
    function: Any = handler
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{name}(): {error}; annotations in quotes need classes defined in their module"
        ) from error


def _check_sends(handler: Handler, name: str, parts: dict[str, Part]) -> None:
    """Refuse a handler whose sends nothing would await; raises TypeError."""
    if "producer" in parts.values() and not _runs_on_loop(handler):
        raise TypeError(
            f"{name}(): a plain function runs on a thread and cannot await the sends of a "
            "Producer, which would be lost; make it `async def`, or return its result to a "
            "publisher"
        )


def _runs_on_loop(handler: Handler) -> bool:
    """Return whether a handler awaits what it calls, or returns it to be awaited."""
    function: Any = handler
    while True:
        if is_coroutine_function(function):
            return True
        if isinstance(function, functools.partial):
            function = function.func
        elif hasattr(function, "__wrapped__"):  # of a decorator that returns the coroutine
            function = function.__wrapped__
        else:
            break
    kind = _hints_of(handler, "").get("return")
    owner = get_origin(kind) or kind
    return isinstance(owner, type) and issubclass(owner, Awaitable)


def _part(name: str, wanted: Any) -> Part:  # noqa: ANN401 - an annotation
    if wanted is None:
        return "message" if name == "message" else "headers" if name == "headers" else "body"
    if get_origin(wanted) is Annotated:
        wanted = get_args(wanted)[0]
    owner = get_origin(wanted) or wanted
    if isinstance(owner, type):
        if issubclass(owner, ReceivedMessage):
            return "message"
        if issubclass(owner, Headers):
            return "headers"
        if issubclass(owner, Producer):
            return "producer"
    return "body"


def bound(
    handler: Handler, parameters: HandlerParameters, producer: MakeProducer, *, is_list: bool
) -> Handler:
    """Return a handler in the form that consumers call: with the message, or body and message."""

    def given(body: Any, messages: Any) -> dict[str, Any]:  # noqa: ANN401
        values: dict[Part, Callable[[], Any]] = {
            "body": lambda: body,
            "message": lambda: messages,
            "headers": lambda: (
                [Headers(each.headers) for each in messages]
                if is_list
                else Headers(messages.headers)
            ),
            "producer": producer,
        }
        return {name: values[part]() for name, part in parameters.parts.items()}

    if parameters.wants_body:
        if is_coroutine_function(handler):

            async def handle_body(body: Any, messages: Any) -> Any:  # noqa: ANN401
                return await handler(**given(body, messages))

            return handle_body
        return lambda body, messages: handler(**given(body, messages))
    if is_coroutine_function(handler):

        async def handle(messages: Any) -> Any:  # noqa: ANN401
            return await handler(**given(None, messages))

        return handle
    return lambda messages: handler(**given(None, messages))


def publishing(call: Handler, publish: Callable[[Any], Any]) -> Handler:
    """Return a bound handler whose result is published before its message is done.

    A plain handler runs on a thread; the coroutine that it returns here is awaited on the loop.

    Args:
        call: the bound handler.
        publish: coroutine function that sends a result.
    """

    async def published(result: Any) -> Any:  # noqa: ANN401
        if inspect.isawaitable(result):  # of a coroutine function, or of a partial around one
            result = await result
        await publish(result)
        return result

    takes_body = len(inspect.signature(call).parameters) > 1
    if not is_coroutine_function(call):
        if takes_body:
            return lambda body, messages: published(call(body, messages))
        return lambda messages: published(call(messages))
    if takes_body:

        async def handle_body(body: Any, messages: Any) -> Any:  # noqa: ANN401
            return await published(call(body, messages))

        return handle_body

    async def handle(messages: Any) -> Any:  # noqa: ANN401
        return await published(call(messages))

    return handle
