"""Code around every send and around every call of a handler.

A middleware is a coroutine function of what is about to happen and of what does it. The first of a
list is the outermost: it begins first and ends last. What the inner ones raise, it sees; what it
raises, the caller sees. One that does not call on ends the matter there.

Example:
    ::

        async def stamped(sending: Sending, proceed: Proceed) -> object:
            sending.add_headers({"sent-by": "billing"})
            return await proceed(sending)
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import isawaitable
from typing import Any, Literal, TypeVar, cast

from rocketpy.client.messages.message import Message, ReceivedMessage
from rocketpy.client.messages.send_options import SendOptions

T = TypeVar("T")
R = TypeVar("R")


@dataclass(slots=True, kw_only=True)
class Sending:
    """A send that is about to happen; a middleware may change it, and pass it on.

    Attributes:
        kind: what was called; `send` is `send_nowait` too. Of a `transaction` it is the half
            message, of a `reply` the topic cannot be changed.
        topic: where to.
        body: what the serializer gets; of a `batch` the list of bodies and `Message` objects.
        options: as they were given.
    """

    kind: Literal["send", "oneway", "batch", "request", "reply", "transaction"]
    topic: str
    body: Any
    options: SendOptions

    def add_headers(self, headers: Mapping[str, str]) -> None:
        """Give the message, or each of a batch, more headers; they win over those it has."""
        given = self.options.get("headers")
        if self.kind == "batch" and not given:  # of options, they would replace those of messages
            self.body = [_with_headers(self.topic, each, headers) for each in self.body]
        else:
            self.options = {**self.options, "headers": {**(given or {}), **headers}}


def _with_headers(topic: str, item: object, headers: Mapping[str, str]) -> Message:
    if isinstance(item, Message):
        return replace(item, headers={**item.headers, **headers})
    return Message(topic=topic, body=item, headers=headers)


Proceed = Callable[[Sending], Awaitable[Any]]
"""Sends, and returns what the producer's method does."""
SendMiddleware = Callable[[Sending, Proceed], Awaitable[Any]]
"""Around a send; what it returns, the caller gets."""
Handle = Callable[[Sequence[ReceivedMessage]], Awaitable[Any]]
"""Calls the handler with these messages; one of them when `batch` is 1."""
HandleMiddleware = Callable[[Sequence[ReceivedMessage], Handle], Awaitable[Any]]
"""Around a call of a handler; returns, and the messages are done, or raises as a handler does."""


def surrounded(
    middlewares: Sequence[Callable[[T, Callable[[T], Awaitable[R]]], Awaitable[R]]],
    last: Callable[[T], Awaitable[R]],
) -> Callable[[T], Awaitable[R]]:
    """Return what goes through the middlewares, the first one first, to `last`."""
    call = last
    for middleware in reversed(middlewares):
        call = _layer(middleware, call)
    return call


def _layer(
    middleware: Callable[[T, Callable[[T], Awaitable[R]]], Awaitable[R]],
    inner: Callable[[T], Awaitable[R]],
) -> Callable[[T], Awaitable[R]]:
    def call(given: T) -> Awaitable[R]:
        work: object = middleware(given, inner)
        if not isawaitable(work):
            reason = f"{middleware!r} is to be a coroutine function: it returned {work!r}"
            raise TypeError(reason)
        return cast("Awaitable[R]", work)

    return call
