"""Objects that start and close, also by `async with` or `await`.

All calls must be in one event loop: waiting callers are woken in that loop only.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Final, NoReturn, Self, SupportsIndex

from rocketpy.errors import ClientError, ClosedError

running_loop: Final[Callable[[], asyncio.AbstractEventLoop | None]] = asyncio._get_running_loop  # noqa: SLF001 - None where none runs
"""Return the event loop that runs on this thread, None without one."""


def require_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs on this thread.

    Raises:
        ClientError: none does: another library runs the coroutines, or a plain function was called
            on another thread.
    """
    loop = running_loop()
    if loop is None:
        raise ClientError(
            "no asyncio event loop runs on this thread, and RocketPy needs asyncio: use "
            "asyncio.run(), the asyncio backend of anyio (not trio), from another thread "
            "asyncio.run_coroutine_threadsafe() or loop.call_soon_threadsafe(); or use "
            "rocketpy.sync, which works on any thread"
        )
    return loop


class ProcessBound:
    """Object with connections or threads, which cannot be pickled or copied."""

    __slots__ = ()

    def __reduce_ex__(self, _protocol: SupportsIndex, /) -> NoReturn:
        """Raise TypeError, as sockets and locks do."""
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled or copied, its connections belong to this "
            "process: connect() in the other process"
        )


class AsyncClosable(ProcessBound, ABC):
    """Is closed at the end of its `async with` block."""

    _closing: asyncio.Task[None] | None = None
    _closes_with_it: "AsyncClosable | None" = None
    _when_closed: Callable[[], None] | None = None
    _is_interrupted = False
    _loop: asyncio.AbstractEventLoop | None = None
    group: str

    def __repr__(self) -> str:
        """Say what it is, and of which group."""
        return f"<{type(self).__name__} of group {self.group}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc is not None:
            self._interrupt(exc)
        await self.close()

    def _interrupt(self, _error: BaseException, /) -> None:
        """Note that an exception came in between: what was handed out last is not done."""
        self._is_interrupted = True

    async def close(self) -> None:
        """Finish pending work and close.

        Whoever calls it, and however often: there is one close, and every call waits for its end.
        The close continues when a call is cancelled. It has no effect on a closed object.

        Raises:
            ClosedError: it began in another event loop.
        """
        self._check_loop()
        if self._closing is None:
            self._closing = asyncio.create_task(self._close_all())
            self._closing.add_done_callback(self._end)
        await asyncio.shield(self._closing)

    async def _close_all(self) -> None:
        await self._close()
        if self._closes_with_it is not None:
            await self._closes_with_it.close()

    def _end(self, _closing: asyncio.Task[None]) -> None:
        self._closing = None
        self._loop = None  # what is closed says that, wherever it is used
        if self._when_closed is not None:
            self._when_closed()

    def _check_loop(self) -> None:
        """Raise ClosedError in another event loop than the one in which it began."""
        own, running = self._loop, running_loop()
        if own is None or running is None or running is own:
            return
        state = "has ended" if own.is_closed() else "is another one"
        raise ClosedError(
            f"the client was started in an event loop that {state}: connect() and start a client "
            "in each loop (each asyncio.run has a new one), or use rocketpy.sync"
        )

    @abstractmethod
    async def _close(self) -> None:
        """Close; nothing to do when it is closed already."""


class Stopped:
    """Result of a `stop`, which took effect already; awaiting it closes the object.

    Args:
        stopped: the object.
    """

    __slots__ = ("_stopped",)

    def __init__(self, stopped: AsyncClosable) -> None:
        self._stopped = stopped

    def __await__(self) -> Generator[Any, None, None]:
        return self._stopped.close().__await__()


class AsyncLifecycle(AsyncClosable):
    """Starts with its `async with` block, too, or when it is awaited."""

    async def __aenter__(self) -> Self:
        require_loop()
        await self.start()
        return self

    def __await__(self) -> Generator[None, None, Self]:
        """Start it and return it, as `client = await rocketpy.connect(...)`; close it later."""
        return self.__aenter__().__await__()

    @abstractmethod
    async def start(self) -> None:
        """Begin to work."""
