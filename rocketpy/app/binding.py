"""Arguments of an app's handlers, chosen by the annotations of their parameters.

```
annotation                          gets
ReceivedMessage                     the message
Headers                             its headers
Producer                            the app's producer
bytes, str, a dataclass, ...        the body, decoded as that type
none, named message or headers      the message, its headers
none, of another name               the body, decoded by the app's serializer
```

With `batch` above 1 the arguments of a message are lists: `list[ReceivedMessage]`, `list[Order]`.
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
    """Properties set by a message's sender; annotates a handler's parameter."""


@dataclasses.dataclass(frozen=True, slots=True)
class Wishes:
    """Arguments that a handler takes.

    Attributes:
        parts: one for each parameter, by its name.
        body: annotation of the body; None without one, or if no parameter takes it.
    """

    parts: dict[str, Part]
    body: Any

    @property
    def wants_body(self) -> bool:
        """Return whether a parameter takes the body."""
        return "body" in self.parts.values()

    def serializer(self, given: Serializer, default: Serializer) -> Serializer:
        """Return the serializer of the body.

        Args:
            given: that of the subscription; the plain one means none.
            default: that of the app, for bodies without an annotation.
        """
        if given is not PLAIN:
            return given
        if self.body is bytes:
            return PLAIN
        is_json = default is json or default is json_or_text
        if self.body is str and (default is json_or_text or default is PLAIN):
            return text  # text is sent unchanged
        if self.body in {None, Any}:
            return default
        is_own = dataclasses.is_dataclass(self.body) or hasattr(self.body, "model_validate_json")
        return TypedSerializer(self.body) if is_own or is_json else default


def wishes_of(handler: Handler, *, is_list: bool) -> Wishes:
    """Return the arguments that a handler takes.

    Raises:
        TypeError: a parameter without a matching argument, or two bodies.
    """
    hints = get_type_hints(handler if inspect.isroutine(handler) else type(handler).__call__)
    parts: dict[str, Part] = {}
    body: Any = None
    for name, parameter in inspect.signature(handler).parameters.items():
        if parameter.kind not in {parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY}:
            if parameter.default is parameter.empty:
                raise TypeError(
                    f"{handler!r}: {parameter} cannot be passed by name, as handlers require"
                )
            continue
        wanted = hints.get(name)
        if is_list and wanted is not None and wanted is not Producer:
            if get_origin(wanted) not in _LISTS:
                raise TypeError(f"{handler!r}: {name} must be a list, because batch is above 1")
            (wanted,) = get_args(wanted)
        part = _part(name, wanted)
        if part == "body":
            if "body" in parts.values():
                if parameter.default is not parameter.empty:
                    continue  # a parameter with a default may stay without an argument
                raise TypeError(f"{handler!r}: parameter {name} would be a second body")
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
