"""Iterators over a consumer's messages: `async for`, or `anext` with a time-out.

A message belongs to the caller that received it: a task, or with `rocketpy.sync` a thread. States
of a message:

    from        event                                                     to
    (none)      a caller requests the next message                        delivered
    delivered   the same caller requests the next message                 handled
    delivered   the task of the caller ends without an exception, and
                any caller requests a message                             handled
    delivered   the task of the caller ends by an exception or is
                cancelled, or the thread of the caller ends               redelivered
    delivered   the loop is left (break, an exception, `aclose`)          redelivered

A redelivered message is the next one of any iterator. A request that is cancelled or times out
loses no message: the iterator can be used again. Without `auto_ack` a message is never delivered
in this sense: it is settled by `ack` and `nack` alone.

A message is redelivered at once, because `break` leaves a loop, too. One that is to be redelivered
a second time (`LeftMessages`) has failed: otherwise a loop that is begun again after each exception
would receive nothing but this message. What a failure means depends on the kind of consumer. So
does a message with which the block of a consumer ended by an exception, when the next consumer of
the group, made by the same client, is left with it: a worker may begin again with a new consumer.
"""

import asyncio
import contextlib
import functools
import logging
import threading
import weakref
from collections.abc import Awaitable, Coroutine, Iterable, Sequence
from itertools import chain
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from rocketpy.client.callbacks.loop_watch import IterationWatch
from rocketpy.client.lifecycle import ProcessBound, running_loop
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import ClientError
from rocketpy.proto.message_queue import MessageQueue

logger: logging.Logger = logging.getLogger(__name__)

M = TypeVar("M", bound=ReceivedMessage)
LeftPositions = dict[tuple[MessageQueue, int], None]
"""Queues and offsets of messages, in the order in which they were left."""
MOST_POSITIONS: Final = 1000
"""Bound of `LeftPositions`: handled messages whose consumer did not learn of it stay in it."""
Caller = asyncio.Task[Any] | threading.Thread
"""Owner of the messages that a call returns."""

_ASKING: Final[list[Any]] = []
"""Value of a caller whose call waits; compared by identity."""
_TWICE: Final = (
    "this {kind} already waits for messages of the consumer: await or cancel that call before the "
    "next one, or use several tasks or threads, which may wait at the same time"
)


def current_caller(loop: asyncio.AbstractEventLoop | None) -> Caller:
    """Return the running task of a loop; elsewhere the running thread.

    Called where a method is called, not where its coroutine runs: `create_task(consumer.getone())`
    and `wait_for` run it in another task, but the message is for the task that made the call.
    """
    if loop is not None and running_loop() is loop:
        task = asyncio.current_task(loop)
        if task is not None:
            return task
    return threading.current_thread()


class Source(Protocol[M]):
    """Provider of messages for iterators.

    Attributes:
        auto_ack: whether the next request of a caller settles its messages.
        watch: of the tasks that have received messages.
    """

    auto_ack: bool
    watch: IterationWatch

    def take(self) -> M | None:
        """Return the next message if there is one."""
        ...

    async def next(self) -> M | None:
        """Wait for the next message; None after the end. May be cancelled."""
        ...

    def done(self, message: M) -> Awaitable[None] | None:
        """Settle a handled message; return an awaitable when that takes a request."""
        ...

    def done_all(self, messages: list[M]) -> Sequence[Awaitable[None]]:
        """Settle handled messages in their order, as `done`."""
        ...

    def done_soon(self, messages: list[M]) -> None:
        """Settle handled messages in the background."""
        ...

    def take_more(self, most: int) -> list[M]:
        """Return up to `most` messages without waiting."""
        ...

    def redeliver(self, messages: list[M]) -> None:
        """Deliver messages again, before all others, unless they were settled or have failed."""
        ...


class LeftMessages(Generic[M]):
    """Messages that were redelivered once, and are not settled since.

    Args:
        earlier: positions of messages that an earlier consumer of the group was left with, the
            oldest first; shared with the consumers that follow.
    """

    __slots__ = ("_earlier", "_once")

    def __init__(self, earlier: LeftPositions | None = None) -> None:
        self._once: set[M] = set()
        self._earlier: LeftPositions = {} if earlier is None else earlier

    def leave(self, message: M) -> bool:
        """Note that a message was not handled; return whether it has failed by that."""
        position = (message.queue, message.offset)
        if message in self._once or position in self._earlier:
            self._once.discard(message)
            self._earlier.pop(position, None)
            return True
        self._once.add(message)
        return False

    def settle(self, messages: Iterable[M]) -> None:
        """Forget messages that were handled, or whose outcome does not count any more."""
        if self._once:
            self._once.difference_update(messages)
        if self._earlier:
            for message in messages:
                self._earlier.pop((message.queue, message.offset), None)

    def hand_down(self) -> None:
        """Keep the positions of the messages for the next consumer of the group."""
        for message in self._once:
            self._earlier[message.queue, message.offset] = None
        for oldest in list(self._earlier)[:-MOST_POSITIONS]:
            del self._earlier[oldest]
        self._once.clear()


class CallerMessages(ProcessBound, Generic[M]):
    """Delivered messages of one iterator, by the caller that received them.

    Args:
        source: provides the messages.
    """

    __slots__ = ("__weakref__", "_busy", "_delivered", "_loop", "_ownerless", "_source")

    def __init__(self, source: Source[M]) -> None:
        self._delivered: dict[Caller, list[M]] = {}
        self._ownerless: list[M] = []  # of tasks that ended without an exception
        self._busy: set[asyncio.Task[Any]] = set()  # those that received messages and run now
        self._source = source
        self._loop = asyncio.get_running_loop()
        source.watch.add(self)

    @property
    def has_busy_task(self) -> bool:
        """Whether a task has received messages, and has not requested the next ones."""
        return bool(self._busy)

    @property
    def callers(self) -> int:
        """Number of callers that have messages."""
        return sum(map(bool, self._delivered.values()))

    @property
    def messages(self) -> list[M]:
        """All delivered messages."""
        return [*self._ownerless, *chain.from_iterable(self._delivered.values())]

    async def finish(self, caller: Caller) -> None:
        """Settle the messages of a caller, and those whose task has ended."""
        messages, self._ownerless = self._ownerless, []
        # The mark of a caller that waits is empty, and stays. Other lists are replaced before the
        # await, because calls that run meanwhile must not settle them again.
        if delivered := self._delivered.get(caller):
            messages = [*messages, *delivered]
            self._delivered[caller] = []
        await self._settle(messages)

    def clear(self) -> list[M]:
        """Remove and return all delivered messages."""
        messages = self.messages
        self._ownerless = []
        self._delivered.clear()
        self._busy.clear()
        return messages

    def redeliver_of_ended_threads(self) -> None:
        """Redeliver messages whose thread has ended: whether it handled them is not known."""
        ended = [
            each
            for each in self._delivered
            if isinstance(each, threading.Thread) and not each.is_alive()
        ]
        for thread in ended:
            messages = self._delivered.pop(thread)
            if messages:
                logger.warning(
                    "thread ended without ack, messages redelivered: thread=%(thread)s "
                    "count=%(count)d",
                    {"thread": thread.name, "count": len(messages)},
                )
                self._source.redeliver(messages)

    def _ask(self, caller: Caller) -> list[M]:
        """Note that a caller waits; return the messages that are handled by that.

        Raises:
            ClientError: it waits already. With two calls at a time, no message could ever count as
                handled, and the limits of the cache would end the delivery.
        """
        messages = self._delivered.get(caller)
        if messages is None:
            self._watch(caller)
            messages = []
        elif messages is _ASKING:
            kind = "thread" if isinstance(caller, threading.Thread) else "task"
            raise ClientError(_TWICE.format(kind=kind))
        self._delivered[caller] = _ASKING
        if isinstance(caller, asyncio.Task):
            self._busy.discard(caller)
        # Any caller settles these: their task has ended and requests nothing more.
        if self._ownerless:
            messages = [*self._ownerless, *messages]
            self._ownerless = []
        return messages

    def _answer(self, caller: Caller, messages: list[M]) -> None:
        """Note which messages a call returns."""
        # Threads of `rocketpy.sync` may block. A task that has ended is not in the table any more.
        if messages and isinstance(caller, asyncio.Task) and caller in self._delivered:
            self._busy.add(caller)
            self._source.watch.start()
        if not self._source.auto_ack:
            messages = []
        if caller in self._delivered:
            self._delivered[caller] = messages
        else:  # its task ended while another one awaited the call
            self._ownerless += messages

    async def _settle(self, messages: list[M]) -> None:
        if messages and (waited_for := self._source.done_all(messages)):
            # Acks of popped messages are requests: one after the other, they would add up.
            await asyncio.gather(*waited_for)

    def _watch(self, caller: Caller) -> None:
        """Learn of the end of a new caller."""
        if isinstance(caller, asyncio.Task):
            # A strong reference would keep a loop that was left, and its messages, until the
            # task ends.
            caller.add_done_callback(functools.partial(_task_ended, weakref.ref(self)))

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        messages = self._delivered.pop(task, None)
        self._busy.discard(task)
        if not messages:
            return
        # `task.exception()` would silence asyncio's report of an exception that is never retrieved.
        if task.cancelled() or task._exception is not None:  # noqa: SLF001
            self._source.redeliver(messages)
        elif any(each is _ASKING for each in self._delivered.values()):
            # Nothing else would settle them: the callers that wait do not ask again before the
            # next message, which may need the room of these.
            self._source.done_soon(messages)
        else:
            self._ownerless += messages

    async def aclose(self) -> None:
        """End the loop; redeliver its unhandled messages."""
        if messages := self.clear():
            self._source.redeliver(messages)

    def __del__(self) -> None:
        """Redeliver the unhandled messages of a loop that was left."""
        if messages := self.clear():
            _redeliver(self._source, self._loop, messages)


def _task_ended(owner: "weakref.ref[CallerMessages[Any]]", task: asyncio.Task[Any]) -> None:
    messages = owner()
    if messages is not None:
        messages._end_task(task)  # noqa: SLF001 - same module


def _redeliver(source: Source[M], loop: asyncio.AbstractEventLoop, messages: list[M]) -> None:
    """Redeliver messages on their loop; a loop object may be collected on any thread."""
    with contextlib.suppress(RuntimeError):  # no loop runs here, or it is closed
        if asyncio.get_running_loop() is loop:
            source.redeliver(messages)
            return
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(source.redeliver, messages)


class MessageIterator(CallerMessages[M]):
    """Asynchronous iterator that survives a time-out, and loses no message when it is left.

    Args:
        source: provides the messages.
    """

    __slots__ = ()

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, M]:
        return self._next(current_caller(self._loop))

    async def _next(self, caller: Caller) -> M:
        source = self._source
        handled = self._delivered.get(caller)
        if not handled or self._ownerless:
            return await self._wait_for_next(caller, None)
        # The usual case, without the mark of a caller that waits: nothing else runs in between.
        settled = source.done(handled[0])
        if settled is None:
            message = source.take()
            if message is not None:
                handled[0] = message
                return message
        # Settled above: the wait must not settle it again.
        del handled[0]
        return await self._wait_for_next(caller, settled)

    async def _wait_for_next(self, caller: Caller, settled: Awaitable[None] | None) -> M:
        source = self._source
        handled = self._ask(caller)
        delivered: list[M] = []
        try:
            if settled is not None:
                await settled
            await self._settle(handled)
            message = source.take() or await source.next()
            if message is None:
                raise StopAsyncIteration
            delivered = [message]
            return message
        finally:
            # Also after a cancellation: a caller that stays marked could never ask again.
            self._answer(caller, delivered)


class BatchIterator(CallerMessages[M]):
    """Asynchronous iterator over lists of messages.

    Messages of a list are handled when the same caller requests the next list.

    Args:
        source: provides the messages.
        max_messages: most messages of one list.
    """

    __slots__ = ("_max_messages",)

    def __init__(self, source: Source[M], max_messages: int) -> None:
        super().__init__(source)
        self._max_messages = max_messages

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, list[M]]:
        return self._next(current_caller(self._loop))

    async def _next(self, caller: Caller) -> list[M]:
        messages = await self.take(caller, self._max_messages, None)
        if messages is None:
            raise StopAsyncIteration
        return messages

    async def take(
        self, caller: Caller, max_messages: int, timeout_s: float | None
    ) -> list[M] | None:
        """Return up to `max_messages`, waiting for the first; the caller's earlier ones are done.

        Args:
            caller: receives the messages.
            max_messages: 1 or more.
            timeout_s: time-out of waiting; None waits without limit.

        Returns:
            An empty list when none came in time, None when there will be none.

        Raises:
            ClientError: another call of the caller waits.
        """
        source = self._source
        handled = self._ask(caller)
        delivered: list[M] = []
        try:
            await self._settle(handled)
            first = source.take()
            if first is None:
                try:
                    async with asyncio.timeout(timeout_s):
                        first = await source.next()
                except TimeoutError:
                    return []
            if first is None:
                return None
            # No await from here on: a cancellation cannot lose the messages that were taken.
            delivered = [first, *source.take_more(max_messages - 1)]
            return delivered.copy()  # the caller may change its list
        finally:
            self._answer(caller, delivered)
