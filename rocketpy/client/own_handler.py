"""Closing a consumer from its own handler: the close would wait for the handler, and it for that.

There are two ways to see it. A coroutine function runs in a worker's own task. A plain function
runs on a thread, in a copy of the worker's context, and whatever it calls there blocks it. A task
that a handler starts has such a copy too, but the handler need not wait for it: it may close.
"""

import asyncio
from collections.abc import Collection
from contextvars import ContextVar
from typing import Any, Final

from rocketpy.errors import ClientError

WORKER: Final[ContextVar[asyncio.Task[Any] | None]] = ContextVar("WORKER", default=None)
"""The worker that calls the handler; each sets it once, for itself."""
_REASON: Final = (
    "a handler cannot close its own consumer, which waits for handlers to end: call its stop(), "
    "and close it where wait_closed() returns"
)


def refuse_in_task(workers: Collection[asyncio.Task[Any]]) -> None:
    """Raise ClientError in a handler that is a coroutine function.

    Args:
        workers: of the consumer that is to be closed.
    """
    if workers and asyncio.current_task() in workers:
        raise ClientError(_REASON)


def refuse_on_thread(workers: Collection[asyncio.Task[Any]]) -> None:
    """Raise ClientError in a handler that is a plain function, before it blocks."""
    if workers and WORKER.get() in workers:
        raise ClientError(_REASON)
