"""Arguments of an app's handlers, chosen by the annotation of each parameter.

```
annotation                          gets
ReceivedMessage                     the message
Headers                             its headers
Producer                            the app's producer
bytes, str, a dataclass, ...        the body, read as that
none, named message or headers      the message, its headers
none, of another name               the body, read by the app's serializer
```

With `batch` above 1 those of a message are lists: `list[ReceivedMessage]`, `list[Order]`.
"""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from rocketpy.client.callbacks.handlers import Handler, is_coroutine_function
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import PLAIN, Serializer, json, json_or_text, text
from rocketpy.client.messages.typed_serializer import TypedSerializer
from rocketpy.client.producer.producer import Producer

Part = Literal["message", "headers", "producer", "body"]
MakeProducer = Callable[[], Producer]
_LISTS: Final = (list, Sequence)


class Headers(dict[str, str]):
    """The properties a message's sender gave it; annotates a handler's parameter."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wishes:
    """Arguments that a handler asks for.

    Attributes:
        parts: one for each parameter, by its name.
        body: the annotation of the body; None when it has none, or is not wanted.
    """

    parts: dict[str, Part]
    body: Any

    @property
    def wants_body(self) -> bool:
        """Whether a parameter is the body."""
        return "body" in self.parts.values()

    def serializer(self, given: Serializer, default: Serializer) -> Serializer:
        """Return what reads the body.

        Args:
            given: the subscription's own; the plain one stands for none.
            default: the app's, for bodies without an annotation.
        """
        if given is not PLAIN:
            return given
        if self.body is bytes:
            return PLAIN
        is_json = default is json or default is json_or_text
        if self.body is str and (default is json_or_text or default is PLAIN):
            return text  # it is sent as it is
        if self.body in {None, Any}:
            return default
        is_own = dataclasses.is_dataclass(self.body) or hasattr(self.body, "model_validate_json")
        return TypedSerializer(self.body) if is_own or is_json else default


def wishes_of(handler: Handler, *, is_list: bool) -> Wishes:
    """Return what a handler wants.

    Raises:
        TypeError: a parameter that nothing fits, or two bodies.
    """
    hints = get_type_hints(handler if inspect.isroutine(handler) else type(handler).__call__)
    parts: dict[str, Part] = {}
    body: Any = None
    for name, parameter in inspect.signature(handler).parameters.items():
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            if parameter.default is parameter.empty:
                raise TypeError(f"{handler!r}: {parameter} cannot be given by name")
            continue
        wanted = hints.get(name)
        if is_list and wanted is not None and wanted is not Producer:
            if get_origin(wanted) not in _LISTS:
                raise TypeError(f"{handler!r}: {name} gets a list, for batch is above 1")
            (wanted,) = get_args(wanted)
        part = _part(name, wanted)
        if part == "body":
            if "body" in parts.values():
                if parameter.default is not parameter.empty:
                    continue  # an option of the function's own
                raise TypeError(f"{handler!r}: what is {name}? There is one body")
            body = wanted
        parts[name] = part
    return Wishes(parts, body)


def _part(name: str, wanted: Any) -> Part:  # noqa: ANN401 - an annotation
    if wanted is None:
        return "message" if name == "message" else "headers" if name == "headers" else "body"
    if isinstance(wanted, type):
        if issubclass(wanted, ReceivedMessage):
            return "message"
        if issubclass(wanted, Headers):
            return "headers"
        if issubclass(wanted, Producer):
            return "producer"
    return "body"


def bound(handler: Handler, wishes: Wishes, producer: MakeProducer, *, is_list: bool) -> Handler:
    """Return a handler as consumers call it: with the message, or the body and the message."""

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
        return {name: values[part]() for name, part in wishes.parts.items()}

    if wishes.wants_body:
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
