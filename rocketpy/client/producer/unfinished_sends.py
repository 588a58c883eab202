"""Sends without a result when the program ends: completed for a short time, or reported."""

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from rocketpy.client.sending.result import SendStats
from rocketpy.errors import ClientError

logger: logging.Logger = logging.getLogger(__name__)

EXIT_TIMEOUT_S: Final = 5.0
"""Most time that the end of a program waits for its sends."""

Submit = Callable[[Coroutine[Any, Any, None]], concurrent.futures.Future[None]]


class _Sender(Protocol):
    @property
    def in_flight(self) -> int: ...

    def __hash__(self) -> int: ...


class _BlockingSender(_Sender, Protocol):
    @property
    def stats(self) -> SendStats: ...

    async def flush(self) -> None: ...


class UnfinishedSends:
    """Producers of this process that were not closed.

    The loop of a blocking producer runs on a daemon thread, which lives until the interpreter
    ends: its sends can still be completed. The loop of an asynchronous producer has ended by then,
    so that its sends are lost, and only reported.
    """

    def __init__(self) -> None:
        self._loops: weakref.WeakKeyDictionary[_Sender, asyncio.AbstractEventLoop] = (
            weakref.WeakKeyDictionary()
        )
        # Not weak: a program may have dropped a blocking producer whose sends are in flight.
        self._blocking: dict[_BlockingSender, Submit] = {}
        self._is_late = False
        self._failed_before: int | None = None  # failures that the program could have seen

    def watch(self, producer: _Sender, loop: asyncio.AbstractEventLoop) -> None:
        """Report the sends of a producer that are lost with its loop."""
        self._loops[producer] = loop

    def complete(self, producer: _BlockingSender, submit: Submit) -> None:
        """Complete the sends of a producer whose loop runs on a daemon thread.

        Args:
            producer: the producer.
            submit: starts a coroutine on its loop.
        """
        self._blocking[producer] = submit

    def closed(self, producer: _BlockingSender) -> None:
        """Forget a producer that has waited for its sends."""
        self._loops.pop(producer, None)
        self._blocking.pop(producer, None)

    def forget(self) -> None:
        """Forget the producers of a parent process."""
        self.__init__()  # type: ignore[misc]

    def flush(self) -> None:
        """Wait until the sends of blocking producers have their results, or the time is over."""
        if self._failed_before is None:
            self._failed_before = self._failed()
        flushes = []
        for producer, submit in list(self._blocking.items()):
            with contextlib.suppress(ClientError):  # a closed client has waited for its sends
                flushes.append(submit(producer.flush()))
        if not self._is_late:
            late = concurrent.futures.wait(flushes, EXIT_TIMEOUT_S).not_done
            self._is_late = bool(late)  # `report` flushes again and must not wait again

    def report(self) -> None:
        """Log how many sends have no result; at the very end, after other threads."""
        self.flush()
        lost: set[_Sender] = {each for each, loop in self._loops.items() if not loop.is_running()}
        lost.update(self._blocking)
        unfinished = sum(each.in_flight for each in lost)
        failed = self._failed() - (self._failed_before or 0)
        if unfinished or failed:
            logger.warning(
                "program ended before its sends, close the client or use a with block: "
                "unfinished=%(unfinished)d failed=%(failed)d",
                {"unfinished": unfinished, "failed": failed},
            )

    def _failed(self) -> int:
        return sum(producer.stats.failed for producer in list(self._blocking))


UNFINISHED_SENDS: Final = UnfinishedSends()

# The first hook runs before the interpreter refuses work for thread pools, in which addresses are
# looked up; it is not public, and without it only that look-up is missed.
getattr(threading, "_register_atexit", atexit.register)(UNFINISHED_SENDS.flush)
atexit.register(UNFINISHED_SENDS.report)
os.register_at_fork(after_in_child=UNFINISHED_SENDS.forget)
