"""Calls of a replica: shared by concurrent requests, or run to their end when cancelled.

Any client can send a replica the notification 1008, after which it asks its controller.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Generic, TypeVar

from rocketpy.runtime.clock import Clock

_T = TypeVar("_T")


class SharedCall(Generic[_T]):
    """Call whose concurrent callers share one result.

    Args:
        call: the call.
        pause_ms: least time between the starts of two calls; callers wait for it.
        clock: monotonic time.
    """

    def __init__(self, call: Callable[[], Awaitable[_T]], pause_ms: int, clock: Clock) -> None:
        self._call = call
        self._pause_ms = pause_ms
        self._clock = clock
        self._again_ms = 0
        self._task: asyncio.Task[_T] | None = None

    async def __call__(self) -> _T:
        """Return the result of a run that starts no earlier than this call."""
        task = self._task
        if task is None:
            task = self._task = asyncio.ensure_future(self._run())
            # All callers may have been cancelled when it fails.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        # Shielded: a cancelled caller must not end the run of the others.
        return await asyncio.shield(task)

    async def _run(self) -> _T:
        try:
            wait_ms = self._again_ms - self._clock.monotonic_ms()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1_000)
        finally:
            # Before the run starts: callers from here on need a newer result.
            self._task = None
        self._again_ms = self._clock.monotonic_ms() + self._pause_ms
        return await self._call()


async def run_to_end(work: Coroutine[None, None, None]) -> None:
    """Run a coroutine; a caller that is cancelled meanwhile waits for its end first."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    finally:
        await asyncio.wait([task])
