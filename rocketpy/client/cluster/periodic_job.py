"""A job that an event loop runs again and again, whose failures can be seen from outside."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

logger: logging.Logger = logging.getLogger(__name__)

RETRY_MS: Final = 5_000
_SHORTEST_PAUSE_S: Final = 0.05
"""Between two rounds, however often the job is woken: at the word of brokers, too."""


class PeriodicJob:
    """Runs `step` every `interval_ms`, or sooner when woken; never two at once.

    Args:
        name: for health reports and the log.
        step: one round; what it raises is kept as `failure` and the next round still comes. It
            may return how many ms to wait until the next round.
        interval_ms: pause between two rounds; after one that failed, `RETRY_MS` at most.
    """

    def __init__(
        self, name: str, step: Callable[[], Awaitable[int | None]], interval_ms: int
    ) -> None:
        self.name = name
        self.failure: Exception | None = None
        self._step = step
        self._interval_ms = interval_ms
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, first_after_ms: int = 0) -> None:
        """Start; the first round comes after `first_after_ms`."""
        assert self._task is None
        self._task = asyncio.create_task(self._run(first_after_ms), name=f"rocketpy-{self.name}")

    def wake(self) -> None:
        """Let the next round come at once, or 50 ms after the one before."""
        self._wake.set()

    async def stop(self) -> None:
        """Stop, and wait until the running round has ended."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        self._task = None

    async def _run(self, wait_ms: int) -> None:
        loop = asyncio.get_running_loop()
        ended_s = loop.time() - _SHORTEST_PAUSE_S
        while True:
            if wait_ms > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_ms / 1000):
                        await self._wake.wait()
                        await asyncio.sleep(ended_s + _SHORTEST_PAUSE_S - loop.time())
            self._wake.clear()
            wait_ms = self._interval_ms
            try:
                asked = await self._step()
            except Exception as error:  # noqa: BLE001 - a runner: kept for health(), tried again
                if self.failure is None:
                    logger.warning(
                        "background job failed, retried: job=%(job)s error=%(error)r",
                        {"job": self.name, "error": error},
                    )
                self.failure = error
                wait_ms = min(self._interval_ms, RETRY_MS)
            else:
                if self.failure is not None:
                    logger.warning("background job recovered: job=%(job)s", {"job": self.name})
                self.failure = None
                if asked is not None:
                    wait_ms = asked
            ended_s = loop.time()
