"""Base of the members of a consumer group: lifecycle and subscriptions.

Source: DefaultMQPushConsumerImpl (5.4.0).

A start waits for the first rebalance round, which finds the queues of the consumer and where they
begin: until then, a group that begins with the latest message would miss messages.
"""

import asyncio
import contextlib
import logging
import weakref
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

from rocketpy.client.callbacks.handler_threads import HandlerThreads
from rocketpy.client.callbacks.handlers import Answer, Invoke, check_not_in_own_handler, make_invoke
from rocketpy.client.cluster.instance import LEAVE_S, Instance
from rocketpy.client.cluster.periodic_job import PeriodicJob
from rocketpy.client.config import ConsumerConfig, PopConsumerConfig, check_handler
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.dispatch.concurrent_service import ConcurrentService
from rocketpy.client.consumer.group_membership import HandlerMember
from rocketpy.client.consumer.iteration import (
    BatchIterator,
    Caller,
    CallerMessages,
    MessageIterator,
    Source,
    current_caller,
)
from rocketpy.client.health import ConsumerHealth
from rocketpy.client.lifecycle import AsyncLifecycle, Stopped
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.options.durations import Duration, to_s
from rocketpy.client.options.validation import (
    BATCH,
    checked_count,
    checked_group,
    checked_subscription,
    checked_texts,
    checked_timeout,
)
from rocketpy.errors import ClientError, ClosedError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.proto.subscription import SubscriptionData

logger: logging.Logger = logging.getLogger(__name__)

_ROUND_PAUSE_S: Final = 1.0
"""Pause between two rounds of a start: a broker or topic may come up within its time-out."""


async def _no_further_wait() -> None:
    pass


async def wait_for_first_round(
    group: str,
    done: asyncio.Event,
    rounds: PeriodicJob,
    limit_s: float,
    then: Callable[[], Awaitable[None]] = _no_further_wait,
) -> None:
    """Wait until a round has found the queues of a consumer, with a new round each second.

    Args:
        group: for the warning at the time-out.
        done: set by the round.
        rounds: job of the rounds; continues in the background after the time-out.
        limit_s: time-out; 0 does not wait.
        then: waits, within the same time-out, for the readers that the round has started.
    """
    if not limit_s:
        return
    try:
        async with asyncio.timeout(limit_s):
            while not done.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ROUND_PAUSE_S):
                        await done.wait()
                        break
                # A failed round is followed by a pause of seconds, which a start cannot wait for.
                rounds.wake()
            await then()
    except TimeoutError:
        logger.warning(
            "start position still unknown, messages sent before it is known may be missed, "
            "request repeated: group=%(group)s limit_s=%(limit_s)s error=%(error)r",
            {"group": group, "limit_s": limit_s, "error": rounds.failure},
        )


async def within(limit_s: float, work: Coroutine[Any, Any, None], group: str) -> None:
    """Run the last requests of a consumer up to a time-out.

    Args:
        limit_s: the time-out.
        work: the requests.
        group: for the warning at the time-out.
    """
    try:
        async with asyncio.timeout(limit_s):
            await work
    except TimeoutError:
        logger.warning(
            "broker did not answer before the close ended: group=%(group)s", {"group": group}
        )


C = TypeVar("C", ConsumerConfig, PopConsumerConfig)
M = TypeVar("M", bound=ReceivedMessage)
NOT_TO_ITERATE: Final = "start the consumer first (async with), and give it no handler, to iterate"

QUICK_ROUNDS: Final = 15
"""Number of quick rounds for a missing topic; later rounds have the usual interval."""
_QUICK_PAUSE_MS: Final = 1_000
SAVE_S: Final = 3.0
"""Time-out of the requests that save offsets and settle messages when a consumer closes. All
brokers are asked at the same time, so that one that does not answer delays no other. With
`LEAVE_S` for consumers, and then for producers, a client closes within 5 s when brokers are frozen.
"""


class GroupConsumer(AsyncLifecycle, Generic[C, M]):
    """A member of a consumer group; `Consumer` and `PopConsumer` are the two kinds.

    Args:
        instance: connections, routes, heartbeats.
        group: its group, the namespace included.
        config: its settings.
    """

    config: C

    def __init__(self, instance: Instance, group: str, config: C) -> None:
        self.group: str = checked_group(group)
        check_handler(config)
        self.config = config
        self._instance = instance
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._unannounced: dict[str, SubscriptionData | None] = {}  # by topic, the one before
        self._stats = ConsumeStats(instance.clock)
        self._jobs: list[PeriodicJob] = []
        self._member: HandlerMember[C]
        self._running = False
        self._failure: BaseException | None = None
        self._was_begun = False
        self._was_closed = False
        self._ended = asyncio.Event()  # closed, or failed in a way that does not pass
        self._has_queues = asyncio.Event()
        self._quick_rounds = QUICK_ROUNDS
        self._executor: ThreadPoolExecutor | None = None
        self._answer: Answer | None = None
        self._failed_before: dict[ReceivedMessage, BaseException] | None = None
        self._taking: BatchIterator[M] | None = None  # of `getone`, `getmany` and `anext`
        # Weak: the end of a loop object is the end of its loop, and redelivers its messages.
        self._iterators: weakref.WeakSet[CallerMessages[M]] = weakref.WeakSet()

    def __repr__(self) -> str:
        """Name the group, the topics and the state."""
        topics = ", ".join(self._subscriptions)
        state = "" if self._running else ", closed" if self._was_closed else ", not started"
        return f"<{type(self).__name__} of group {self.group}, topics: {topics}{state}>"

    def _subscribe_all(self) -> None:
        config = self.config
        for topic in [config.topic] if isinstance(config.topic, str) else config.topic:
            self.subscribe(topic, config.filter, config.sql)

    def subscribe(self, topic: str, filter: str = "*", sql: str = "") -> None:  # noqa: A002
        """Subscribe to one more topic, or to the same one with another filter.

        Before the start or after it; after it, the topic's queues are read within a second or two,
        and `start="latest"` means from then on.

        Args:
            topic: its name.
            filter: tags, `"a || b"` or `"*"`.
            sql: instead of tags, a condition on properties.

        Raises:
            TypeError: several topics, or another value that is no text.
            ExpressionError: `sql` is no condition; says where.
            ConfigError: the name or the filter is not usable.
        """
        checked_texts(topic, filter, sql)
        topic = wrap_namespace(self._instance.config.namespace, topic)
        version = self._instance.next_sub_version()
        before = self._subscriptions.get(topic)
        wanted = checked_subscription(topic, filter, sql, version)
        self._subscriptions[topic] = wanted
        if self._running:
            # Of several changes in a row, brokers know only the one before the first.
            self._unannounced.setdefault(topic, before)
            self._instance.let_finish(asyncio.create_task(self._announce(wanted)))

    async def _announce(self, wanted: SubscriptionData) -> None:
        """Send a new subscription to brokers, then use it: they refuse pulls by unknown ones."""
        topic = wanted.topic
        # The route first, because heartbeats are sent to the brokers that routes name.
        with contextlib.suppress(RocketPyError):  # the rounds say it
            await self._instance.routes.refresh(topic)
        with contextlib.suppress(RocketPyError):  # the heartbeat job says it
            await self._instance.heartbeat()
        # A newer one may have come during the requests; its task announces it.
        if self._subscriptions.get(topic) is wanted:
            self._unannounced.pop(topic, None)
            self._wake()

    @property
    def _topics(self) -> list[str]:
        """The topics to read: those that brokers have heard of."""
        return [
            each for each in self._subscriptions if self._unannounced.get(each, ...) is not None
        ]

    def _subscription(self, topic: str) -> SubscriptionData:
        """Return the subscription that brokers know of a topic: they refuse pulls by newer ones."""
        return self._unannounced.get(topic) or self._subscriptions[topic]

    async def start(self) -> None:
        """Join the group, find the queues and their first positions, and begin to receive.

        Messages that are sent after this returned are received. When the brokers of the topics do
        not answer within `start_timeout`, a warning is logged, and they are asked again in the
        background. A topic that does not exist yet is not waited for: it is read from its
        first message on.

        Raises:
            NoNameServerError: none is configured, or none answered within `start_timeout`.
            ClosedError: the client is not started, or the consumer was closed.
            ClientError: this client already has a consumer of the group.
            BrokerError: a broker does not take a condition it subscribes with.
            OffsetFileError: the file of a broadcasting group's offsets cannot be read.
        """
        self._check_loop()
        self._was_begun = True
        if self._running:
            return
        instance = self._instance
        if not instance.is_running or self._was_closed:
            raise ClosedError("the consumer's client is not started, or the consumer was closed")
        self._before_joining()
        await self._open_offsets()
        self._check_not_closed()
        await instance.look_up(list(self._subscriptions), to_s(self.config.start_timeout))
        self._check_not_closed()
        # Before joining: a wrong condition fails the start once, not every pull. A copy, because
        # `subscribe` may be called during the requests.
        await instance.check_subscriptions(self.group, list(self._subscriptions.values()))
        self._check_not_closed()
        if self._running:  # another call of `start` was faster
            return
        instance.add_consumer(self._member)
        self._running = True
        self._start_service(self._make_invoke())
        try:
            try:
                # Before the first round: a broker does not list members that it does not know.
                await instance.heartbeat()
            except RocketPyError as error:  # the heartbeat job tries again, health() shows it
                logger.warning(
                    "first heartbeat failed: group=%(group)s error=%(error)r",
                    {"group": self.group, "error": error},
                )
            self._check_not_closed()
            for job in self._jobs:
                job.start()
            await wait_for_first_round(
                self.group,
                self._has_queues,
                self._jobs[0],
                to_s(self.config.start_timeout),
                self._wait_for_positions,
            )
        except asyncio.CancelledError:  # the caller has no consumer to close
            await self.close()
            raise

    def _check_not_closed(self) -> None:
        """Raise ClosedError after a close during the start, which had nothing to end yet.

        A consumer that joined or started its jobs now would remain.
        """
        if self._was_closed:
            raise ClosedError("the consumer was closed during its start")

    def _make_invoke(self) -> Invoke | None:
        """Return the function that calls the user's handler, None without one."""
        config = self.config
        if config.handler is None:
            return None
        self._executor = ThreadPoolExecutor(config.concurrency, f"rocketpy-{self.group}")
        return make_invoke(
            config.handler,
            batch=config.batch,
            threads=HandlerThreads(self._executor, config.concurrency, self._instance.clock),
            on_error=config.on_error,
            middlewares=config.middlewares,
            answer=self._answer,
            failed=self._failed_before,
        )

    def _warn_if_forgotten(self) -> None:
        """Warn about a handler whose consumer was never started."""
        if not self._was_begun and self.config.handler is not None:
            logger.warning(
                "consumer never started, its handler got no message, use `async with` or "
                "await start(): group=%(group)s",
                {"group": self.group},
            )

    async def close(self) -> None:
        """Take no more messages, wait for running handlers, leave the group.

        Offsets are stored; popped messages that are not settled are nacked. Messages that callers
        of `getone`, `getmany` and loops have are delivered again to the group, unless they were
        acknowledged: see `ack_all`.

        Handlers have `stop_timeout` to finish. Brokers have up to 4 s, and less when `stop_timeout`
        is shorter: one that does not answer by then notices the end of the connection. There is one
        close, and every call waits for its end.

        Raises:
            ClientError: called by the consumer's own handler, which it waits for: see `stop`.
        """
        check_not_in_own_handler(self._workers())
        await super().close()

    async def _close(self) -> None:
        self._was_closed = True
        if not self._running:
            self._ended.set()
            return
        self._running = False
        # A round that still ran would take queues that the close has just released.
        for job in self._jobs:
            await job.stop()
        save_s = min(SAVE_S, max(LEAVE_S, to_s(self.config.stop_timeout)))
        await within(save_s, await self._finish(), self.group)
        await self._leave()
        if self._executor is not None:
            # Without a wait: a handler that hangs on its thread cannot be cancelled.
            self._executor.shutdown(wait=False, cancel_futures=True)
        # Ends a start that still waits for its first round.
        self._has_queues.set()
        self._ended.set()

    async def _leave(self) -> None:
        """Leave the group, after the offsets were saved: the next owners of queues read them."""
        await self._instance.remove_consumer(self._member)

    async def wait_closed(self) -> None:
        """Wait until closed, or until a background task fails in a way that does not pass.

        Raises:
            Exception: that failure.
        """
        self._check_loop()
        await self._ended.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> Stopped:
        """Take no more messages, for a signal handler; delivered ones are finished.

        Loops end after the delivered message, which is handled then; handlers finish theirs;
        `wait_closed` returns. `close`, or the end of the `async with` block, does the rest;
        `await consumer.stop()` also closes.

        Example:
            ::

                loop.add_signal_handler(signal.SIGTERM, consumer.stop)
        """
        if self._running:
            self._halt()
        self._ended.set()
        return Stopped(self)

    @abstractmethod
    def _workers(self) -> Sequence[asyncio.Task[None]]:
        """The tasks that call the handler."""

    @abstractmethod
    def _halt(self) -> None:
        """End the deliveries of the service."""

    def _fail(self, error: BaseException) -> None:
        """Have `wait_closed` and `health` tell of a failure that does not pass by itself."""
        self._failure = error
        self._ended.set()

    # ---- receiving

    def __aiter__(self) -> MessageIterator[M]:
        """Return a new iterator; raises ClosedError before the start, or with a handler."""
        self._check_loop()
        messages = MessageIterator(self._source())
        self._iterators.add(messages)
        return messages

    def __anext__(self) -> Coroutine[Any, Any, M]:
        """Return the next message, as `getone`; for `anext(consumer)`."""
        return self._next(current_caller(self._loop))

    async def _next(self, caller: Caller) -> M:
        messages = await self._take(caller, 1, None)
        if messages is None:
            raise StopAsyncIteration
        return messages[0]

    def getone(self, timeout: Duration | None = None) -> Coroutine[Any, Any, M | None]:
        """Return the next message, None when none comes in time.

        A message belongs to the task that calls `getone`, `getmany` or `anext` (with
        `rocketpy.sync`, to the thread). It counts as done when the same task calls one of them
        again, unless the consumer has `auto_ack=False`. Several tasks may call them at the same
        time. A call that is cancelled or times out loses no message.

        A message of a task that ends by an exception or is cancelled is delivered again.

        Args:
            timeout: of waiting; None is no limit.

        Raises:
            ClosedError: not started, stopped or closed, or there is a handler.
            ClientError: another call of this task waits already.
        """
        return self._getone(current_caller(self._loop), timeout)

    async def _getone(self, caller: Caller, limit: Duration | None) -> M | None:
        messages = await self._getmany(caller, 1, limit)
        return messages[0] if messages else None

    def getmany(
        self, max_messages: int = BATCH, timeout: Duration | None = None
    ) -> Coroutine[Any, Any, list[M]]:
        """Return up to `max_messages` that are available, waiting for the first.

        All of them are done when the same task asks for more: see `getone`.

        Args:
            max_messages: 1 or more.
            timeout: of waiting; None is no limit.

        Returns:
            The messages; none when none came in time.

        Raises:
            ClosedError: not started, stopped or closed, or there is a handler.
            ClientError: another call of this task waits already.
            ValueError: `max_messages` is less than 1.
        """
        return self._getmany(current_caller(self._loop), max_messages, timeout)

    async def _getmany(self, caller: Caller, max_messages: int, limit: Duration | None) -> list[M]:
        messages = await self._take(caller, checked_count(max_messages), checked_timeout(limit))
        if messages is None:
            raise ClosedError("the consumer was stopped or closed")
        return messages

    def batches(self, max_messages: int = BATCH) -> BatchIterator[M]:
        """Return a loop over lists of messages, of 1 to `max_messages` that are available.

        A list is handled when the next one is requested. When the loop is left (`break`, an
        exception), the last list is delivered again, as in a loop over single messages: `await
        consumer.ack_all()` before `break` prevents that.

        Raises:
            ClosedError: not started, or there is a handler.
            ValueError: `max_messages` is less than 1.

        Example:
            ::

                async for messages in consumer.batches(max_messages=500):
                    await store([message.body for message in messages])
        """
        self._check_loop()
        messages = BatchIterator(self._source(), checked_count(max_messages))
        self._iterators.add(messages)
        return messages

    def ack_all(self) -> Coroutine[Any, Any, None]:
        """Acknowledge the messages that this task (or thread) has received and not settled.

        Those of its loops are included; messages of other tasks are not. To be called before
        `break` and before the end of a program that counts its messages, because these deliver the
        last messages again.

        Raises:
            ClosedError: not started, or there is a handler.
            ClientError: the consumer has `auto_ack=False`; acknowledge each message.
        """
        return self._ack_all(current_caller(self._loop))

    async def _ack_all(self, caller: Caller) -> None:
        self._check_loop()
        if not self._source().auto_ack:
            raise ClientError("with auto_ack=False, each message is settled by its ack() or nack()")
        # A copy: during the awaits loops begin, and others are collected.
        for each in list(self._iterators):
            await each.finish(caller)

    async def _take(
        self, caller: Caller, max_messages: int, timeout_s: float | None
    ) -> list[M] | None:
        self._check_loop()
        if self._taking is None:
            self._taking = BatchIterator(self._source(), BATCH)
            self._iterators.add(self._taking)
        self._taking.redeliver_of_ended_threads()
        return await self._taking.take(caller, max_messages, timeout_s)

    def _redeliver_of_ended_threads(self) -> None:
        """Redeliver messages of threads that ended without `ack`; nothing reports their end."""
        if self._taking is not None:
            self._taking.redeliver_of_ended_threads()

    @abstractmethod
    def _source(self) -> Source[M]:
        """Return the provider of messages; raises ClosedError when iterating is not possible."""

    @property
    @abstractmethod
    def assignment(self) -> list[MessageQueue]:
        """Queues that this member reads now."""

    @property
    def stats(self) -> ConsumeStats:
        """Counts and rates by topic."""
        return self._stats

    @abstractmethod
    def health(self) -> ConsumerHealth:
        """Return the state of each queue and the failures of background jobs."""

    # ---- rounds

    def _next_round_ms(self, *, is_complete: bool) -> int | None:
        """Return the pause before the next round: short for some rounds when queues are missing."""
        if is_complete:
            self._quick_rounds = QUICK_ROUNDS
            return None
        self._quick_rounds -= 1
        return _QUICK_PAUSE_MS if self._quick_rounds >= 0 else None

    def _wake(self) -> None:
        """Start a rebalance round at once."""
        if self._running:
            self._quick_rounds = QUICK_ROUNDS
            self._jobs[0].wake()

    # ---- differences between the kinds

    def _before_joining(self) -> None:
        """Subscribe to internal topics of the group."""

    async def _open_offsets(self) -> None:
        """Check that stored offsets can be read, as `OffsetStore.open`; once, not in each round."""

    @abstractmethod
    def _start_service(self, invoke: Invoke | None) -> None:
        """Make the service that delivers messages; `invoke` calls the handler, None without one."""

    def _make_concurrent(self, invoke: Invoke) -> ConcurrentService[M]:
        """Make the service of handlers that need no order."""
        return ConcurrentService(
            invoke,
            concurrency=self.config.concurrency,
            batch=self.config.batch,
            stats=self._stats,
            clock=self._instance.clock,
        )

    async def _wait_for_positions(self) -> None:
        """Wait until the first positions in the queues are known."""

    @abstractmethod
    async def _finish(self) -> Coroutine[Any, Any, None]:
        """Stop receiving and wait for handlers; return the final requests to brokers."""
