"""Queues that one consumer reads, a process queue and a pull loop each, and their pauses.

States of a queue:

    from       event                                                    to
    (none)     begin: it is assigned, and its first offset is known     READING
    READING    a pull fails temporarily: shown in `failures`            READING
    READING    restart: a reset, a seek, an offset outside the queue    READING, new
    READING    the pull loop ends by a fault of this client: `broken`   BROKEN
    BROKEN     restart, or no pull for two minutes                      READING, new
    any        stop: no longer assigned, or the consumer closes         (none)

New means a new process queue: outcomes of messages of the old one no longer count.

Source: RebalanceImpl.processQueueTable, PullMessageService (5.4.0).
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.consumer.pulling.process_queue import ProcessQueue
from rocketpy.client.consumer.pulling.pull_loop import PullLoop, PullSettings
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.proto.subscription import SubscriptionData


def chosen(namespace: str, what: Iterable[str | MessageQueue]) -> list[str | MessageQueue] | None:
    """Return the topics and queues that a user named, with namespaces; None for everything.

    Raises:
        TypeError: neither a topic's name nor a queue.
    """
    found: list[str | MessageQueue] = []
    for each in what:
        if isinstance(each, MessageQueue):
            found.append(each)
        elif isinstance(each, str):
            found.append(wrap_namespace(namespace, each))
        else:
            raise TypeError(f"{each!r} is neither the name of a topic nor a MessageQueue")
    return found or None


class PausedQueues:
    """Pauses of topics and queues; the latest call counts, that of a queue before its topic's.

    A pause also holds for queues that are not read now.
    """

    def __init__(self) -> None:
        self._everything = False
        self._states: dict[str | MessageQueue, bool] = {}

    def holds(self, queue: MessageQueue) -> bool:
        """Whether a queue is paused."""
        states = self._states
        return states.get(queue, states.get(queue.topic, self._everything))

    def set(self, what: Iterable[str | MessageQueue] | None, *, paused: bool) -> None:
        """Pause or resume topics and queues, everything when None."""
        if what is None:
            self._everything = paused
            self._states.clear()
            return
        for each in what:
            if isinstance(each, str):  # replaces the states of its queues
                for queue in [one for one in self._states if _is_of(one, each)]:
                    del self._states[queue]
            self._states[each] = paused


def _is_of(one: str | MessageQueue, topic: str) -> bool:
    return isinstance(one, MessageQueue) and one.topic == topic


logger: logging.Logger = logging.getLogger(__name__)


class QueueReaders:
    """Starts, restarts and stops the pull loops of queues.

    Args:
        instance: connections and routes.
        settings: shared by all pulls.
        make_queue: makes an empty process queue.
        subscription: returns the present subscription of a topic.
        deliver: called with messages that were put into their process queue.
        reject: called with a message whose body cannot be inflated.
        moved: called with the right offset of a queue when ours is outside of it.
        broken: called with a lasting failure.
    """

    def __init__(
        self,
        instance: Instance,
        settings: PullSettings,
        make_queue: Callable[[MessageQueue], ProcessQueue],
        *,
        subscription: Callable[[str], SubscriptionData],
        deliver: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        reject: Callable[[ProcessQueue, ReceivedMessage, Exception], Awaitable[None]],
        moved: Callable[[MessageQueue, int], Awaitable[None]],
        broken: Callable[[BaseException], None],
    ) -> None:
        self._instance = instance
        self._settings = settings
        self._make_queue = make_queue
        self._subscription = subscription
        self._deliver = deliver
        self._reject = reject
        self._moved = moved
        self._broken = broken
        self._queues: dict[MessageQueue, ProcessQueue] = {}
        self._loops: dict[MessageQueue, asyncio.Task[None]] = {}
        self._failures: dict[MessageQueue, str] = {}
        self._moved_ms: dict[
            MessageQueue, int
        ] = {}  # time of the last move by the broker, monotonic
        self._pauses = PausedQueues()
        self.queues: Mapping[MessageQueue, ProcessQueue] = MappingProxyType(self._queues)
        self.failures: Mapping[MessageQueue, str] = MappingProxyType(self._failures)

    def begin(self, queue: MessageQueue, offset: int) -> None:
        """Start to read a queue from an offset."""
        assert queue not in self._queues, queue
        self._start_loop(self._put(queue, offset))

    def _put(self, queue: MessageQueue, offset: int) -> ProcessQueue:
        entry = self._make_queue(queue)
        entry.begin_offset = entry.next_pull_offset = offset
        # Until the first pull the rebalance round counts the idle time from here.
        entry.pulled_at_ms = self._instance.clock.monotonic_ms()
        # Before the loop starts, because a restart during a pause must not pull.
        if self._pauses.holds(queue):
            entry.pause()
        self._queues[queue] = entry
        return entry

    def _start_loop(self, entry: ProcessQueue) -> None:
        queue = entry.queue
        loop = PullLoop(
            self._instance,
            entry,
            functools.partial(self._subscription, queue.topic),
            self._settings,
            deliver=self._deliver_or_park,
            reject=self._reject,
            offset_moved=self._offset_moved,
            on_failure=self._note,
        )
        task = asyncio.create_task(loop.run(), name=f"rocketpy-pull-{queue}")
        task.add_done_callback(self._loop_ended)
        self._loops[queue] = task
        logger.info(
            "queue reading started: group=%(group)s queue=%(queue)s offset=%(offset)d",
            {
                "group": self._settings.group,
                "queue": queue,
                "offset": entry.next_pull_offset,
            },
        )

    async def stop(self, queue: MessageQueue) -> None:
        """Stop reading a queue, if it is read; outcomes of its messages no longer count."""
        self._moved_ms.pop(queue, None)
        entry = self._queues.pop(queue, None)
        if entry is None:
            return
        # Before the wait: a response that arrives meanwhile must not be delivered.
        entry.drop()
        self._failures.pop(queue, None)
        await self.stop_pulling([queue])

    def restart(self, queue: MessageQueue, offset: int) -> bool:
        """Continue to read a queue at another offset; a pause stays.

        Returns:
            False when the queue is not read; it is not begun then.
        """
        # No await in here: a release or a close during one would not find the queue, and a loop
        # that was started after it would never be stopped.
        old = self._queues.get(queue)
        if old is None:
            return False
        old.drop()
        self._failures.pop(queue, None)
        entry = self._put(queue, offset)
        entry.closing = old.closing
        loop = self._loops.pop(queue, None)
        if loop is not None:  # otherwise the queue is being released, or the consumer closes
            # A pull loop that restarts its own queue has a move to finish; it ends by the drop.
            if loop is not asyncio.current_task():
                loop.cancel()
            self._start_loop(entry)
        return True

    async def stop_pulling(self, queues: Iterable[MessageQueue]) -> None:
        """End the pull loops of queues; outcomes of their messages still count."""
        current = asyncio.current_task()
        tasks = [task for queue in queues if (task := self._loops.pop(queue, None)) is not None]
        # A pull loop that stops its queue cannot wait for itself; it ends by the drop.
        waited = [task for task in tasks if task is not current]
        for task in waited:
            task.cancel()
        if waited:
            await asyncio.wait(waited)

    def pause(self, what: Iterable[str | MessageQueue] | None = None) -> None:
        """Pause topics and queues, read now or later; all when None."""
        self._pauses.set(what, paused=True)
        self._follow_pauses()

    def resume(self, what: Iterable[str | MessageQueue] | None = None) -> None:
        """End a `pause`."""
        self._pauses.set(what, paused=False)
        self._follow_pauses()

    def _deliver_or_park(self, entry: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Deliver pulled messages, or keep them: a broker may answer a pull after the pause."""
        if entry.paused:
            entry.parked += messages
        else:
            self._deliver(entry, messages)

    def _follow_pauses(self) -> None:
        for queue, entry in self._queues.items():
            paused = self._pauses.holds(queue)
            if paused and not entry.paused:
                entry.pause()
            elif entry.paused and not paused:
                entry.resume()
                parked, entry.parked = entry.parked, []
                if parked:
                    self._deliver(entry, parked)

    async def _offset_moved(self, entry: ProcessQueue, offset: int) -> None:
        queue, clock = entry.queue, self._instance.clock
        moved_ms = self._moved_ms.get(queue)
        if moved_ms is not None:  # a broker that moves offsets again and again must not spin us
            left_ms = moved_ms + self._settings.error_pause_ms - clock.monotonic_ms()
            await asyncio.sleep(max(0, left_ms) / 1000)
        # A seek or a release may have replaced the queue during the sleep.
        if self._queues.get(queue) is entry:
            self._moved_ms[queue] = clock.monotonic_ms()
            await self._moved(queue, offset)

    def _note(self, entry: ProcessQueue, error: Exception | None) -> None:
        # A late failure of a replaced queue must not be shown for the present one.
        if self._queues.get(entry.queue) is not entry:
            return
        if error is None:
            self._recovered(entry.queue)
            return
        broker_name = entry.queue.broker_name
        # One warning for each broker: one that is down fails all of its queues.
        if not any(queue.broker_name == broker_name for queue in self._failures):
            logger.warning(
                "reading from broker failed, retried: broker=%(broker_name)s "
                "pause_s=%(pause_s)s group=%(group)s queue=%(queue)s error=%(error)r",
                {
                    "broker_name": broker_name,
                    "pause_s": self._settings.error_pause_ms / 1000,
                    "group": self._settings.group,
                    "queue": entry.queue,
                    "error": error,
                },
            )
        self._failures[entry.queue] = repr(error)
        if isinstance(error, RocketPyError) and not error.retriable:
            self._broken(error)

    def _recovered(self, queue: MessageQueue) -> None:
        if self._failures.pop(queue, None) is None:
            return
        if not any(other.broker_name == queue.broker_name for other in self._failures):
            logger.warning(
                "reading from broker recovered: broker=%(broker_name)s group=%(group)s",
                {"broker_name": queue.broker_name, "group": self._settings.group},
            )

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        # The loop retries every RocketPyError: this is a fault of the client or of its user.
        logger.error("pull loop failed: error=%(error)r", {"error": error}, exc_info=error)
        self._broken(error)
