"""Calling the user's handler: coroutine or function, one message or a list, decoded or not."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from rocketpy.client.message import ReceivedMessage

Handler = Callable[..., Any]
Invoke = Callable[[list[ReceivedMessage]], Awaitable[Any]]


def make_invoke(handler: Handler, *, batch: int, executor: Executor) -> Invoke:
    """Return what calls the handler with a list of messages.

    A plain function runs in `executor`, so that it cannot block the loop. With `batch` above 1
    it gets the list, else one message. A handler of two parameters gets the decoded body (or
    bodies) first.
    """
    wants_body = _positional_count(handler) >= 2
    is_async = is_coroutine_function(handler)

    def arguments(messages: list[ReceivedMessage]) -> tuple[Any, ...]:
        if batch > 1:
            return (([m.decode() for m in messages], messages)) if wants_body else (messages,)
        message = messages[0]
        return (message.decode(), message) if wants_body else (message,)

    if is_async and batch == 1 and not wants_body:
        return lambda messages: handler(messages[0])
    if is_async:
        return lambda messages: handler(*arguments(messages))

    async def in_thread(messages: list[ReceivedMessage]) -> None:
        loop = asyncio.get_running_loop()
        result = await loop.run_in_executor(executor, lambda: handler(*arguments(messages)))
        if inspect.isawaitable(result):  # a lambda or partial around a coroutine function
            await result

    return in_thread


def is_coroutine_function(handler: Handler) -> bool:
    """Whether calling a handler makes a coroutine: it runs on the loop then, not on a thread."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def _positional_count(handler: Handler) -> int:
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature
        return 1
    return sum(
        1
        for parameter in parameters
        if parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
        and parameter.default is parameter.empty
    )
