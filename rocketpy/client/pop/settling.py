"""Requests that settle popped messages, as tasks that outlast the workers at a close."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Final

from rocketpy.client.messages.outcomes import Rejection
from rocketpy.client.pop.invisible_messages import InvisibleMessages
from rocketpy.client.pop.popped_message import PoppedMessage
from rocketpy.errors import RocketPyError
from rocketpy.runtime.ordered_set import OrderedSet

logger: logging.Logger = logging.getLogger(__name__)

# Bounds the requests at a time: a close nacks all messages that no handler has.
_SETTLED_AT_A_TIME: Final = 64


class Settling:
    """Settles the messages of workers, and of a consumer itself; a `Settlement`.

    A worker waits for the outcome of its messages until `release`: the time for handlers at a close
    is not for brokers that do not answer.

    Args:
        leases: of the messages.
    """

    def __init__(self, leases: InvisibleMessages) -> None:
        self._leases = leases
        self._slots = asyncio.Semaphore(_SETTLED_AT_A_TIME)
        self._tasks: OrderedSet[asyncio.Task[None]] = OrderedSet()
        self._workers: OrderedSet[asyncio.Future[None]] = OrderedSet()
        self._is_released = False

    def begin(self, messages: list[PoppedMessage], now_ms: int) -> list[PoppedMessage]:
        """See `Settlement.begin`."""
        return self._leases.begin(messages, now_ms)

    def end(self, messages: list[PoppedMessage]) -> None:
        """See `Settlement.end`."""
        self._leases.end(messages)

    async def settle(self, messages: list[PoppedMessage], now_ms: int) -> None:
        """See `Settlement.settle`."""
        await self._outcome(self._leases.settle(messages, now_ms))

    async def redeliver(self, messages: list[PoppedMessage], rejection: Rejection) -> None:
        """See `Settlement.redeliver`."""
        # So that a close does not nack them without their delay before these requests do.
        self._leases.keep(messages)
        await self._outcome(self._leases.redeliver(messages, rejection))

    async def _outcome(self, work: Coroutine[None, None, None]) -> None:
        """Run requests in a task, and wait for its end or for `release`."""
        task = self.start(work)
        if self._is_released:
            return
        ended = asyncio.get_running_loop().create_future()
        task.add_done_callback(lambda _: _end(ended))
        self._workers.add(ended)
        try:
            await ended
        finally:
            self._workers.discard(ended)
        if task.done() and not task.cancelled():
            task.result()

    def release(self) -> None:
        """Let workers wait for outcomes no more; the requests continue."""
        self._is_released = True
        for ended in self._workers:
            _end(ended)

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run requests in a task that `wait` waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def start_bounded(self, work: Coroutine[None, None, None]) -> None:
        """Settle a message in the background; after a failure it expires and is redelivered."""
        self.start(self._bounded(work))

    async def _bounded(self, work: Coroutine[None, None, None]) -> None:
        try:
            async with self._slots:
                await work
        except RocketPyError as error:
            logger.info("message not settled, it expires: error=%(error)r", {"error": error})
        finally:
            work.close()  # when it did not begin

    async def wait(self) -> None:
        """Wait for the requests; when cancelled, cancel them."""
        try:
            while self._tasks:
                await asyncio.wait(self._tasks)
        finally:
            # At the time-out of a close: unsettled messages come again after their time.
            for task in self._tasks:
                task.cancel()


def _end(waited_for: asyncio.Future[None]) -> None:
    if not waited_for.done():
        waited_for.set_result(None)
