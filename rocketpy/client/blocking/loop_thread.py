"""Event loop on a separate thread, for code that does not await."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from rocketpy.client.lifecycle import ProcessBound
from rocketpy.errors import ClientError, ClosedError

T = TypeVar("T")

NAME: Final = "rocketpy-sync"
_ENDED: Final = "the client is closed, or belongs to a parent process: connect() again"


class _Thread(threading.Thread):
    """Thread of a loop; blocking calls are errors on it."""


class LoopThread(ProcessBound):
    """Runs coroutines for other threads, until closed.

    When the thread ends for any reason, the waiting callers get an error instead of hanging.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._has_ended = False
        self._thread = _Thread(target=self._work, name=NAME, daemon=True)
        self._thread.start()

    @property
    def is_of_parent(self) -> bool:
        """Whether this process was forked after the start: the thread stayed in the parent."""
        return os.getpid() != self._pid

    @property
    def is_alive(self) -> bool:
        """Whether it still runs coroutines."""
        return not self._has_ended

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop and return a future of its result.

        Raises:
            ClosedError: the thread has ended, or stayed in a parent process.
        """
        if not self.is_of_parent:
            with self._turn:
                if not self._has_ended:
                    return asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        coroutine.close()
        raise ClosedError(_ENDED)

    def check_alive(self) -> None:
        """Raise ClosedError when the thread has ended, or stayed in a parent process."""
        if self._has_ended or self.is_of_parent:
            raise ClosedError(_ENDED)

    def call_soon(self, function: Callable[[], None]) -> None:
        """Call a function on the loop, without waiting for it; raises as `submit`."""
        self.check_alive()
        with self._turn:
            if self._has_ended:
                raise ClosedError(_ENDED)
            self.loop.call_soon_threadsafe(function)

    @staticmethod
    def check() -> None:
        """Raise ClientError on the thread of a loop, which would wait for itself."""
        if isinstance(threading.current_thread(), _Thread):
            raise ClientError(
                "a blocking call in an `async def` handler would wait for itself: make the handler "
                "a plain `def`, which runs on another thread, or use the client of `rocketpy`"
            )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result.

        Raises:
            ClosedError: as `submit`, or the thread ended before the result.
            ClientError: called on the thread of a loop.
        """
        try:
            self.check()
        except ClientError:
            coroutine.close()
            raise
        future = self.submit(coroutine)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise
        except CancelledError:
            raise ClosedError("the client was closed before the call completed") from None

    def call(self, function: Callable[[], T]) -> T:
        """Call a function on the loop; raises as `run`."""

        async def called() -> T:
            return function()

        return self.run(called())

    def close(self) -> None:
        """End the thread and wait for its end."""
        if self.is_of_parent:
            return
        with self._turn:
            if not self._has_ended:
                self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _work(self) -> None:
        loop = self.loop
        try:
            loop.run_forever()
        finally:
            with self._turn:
                self._has_ended = True
            loop.run_until_complete(_end_all())
            loop.close()


async def _end_all() -> None:
    """Cancel all tasks, including those about to start."""
    await asyncio.sleep(0)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
