"""Consumer that is polled: the caller controls queues, positions and pace.

`PollMixin` has the methods of group consumers that take one message or many, on top of `poll`.

Source: DefaultLitePullConsumerImpl (5.4.0).
"""

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import Generic

from rocketpy.client.callbacks.hooks import AssignmentHooks
from rocketpy.client.cluster.instance import Instance
from rocketpy.client.cluster.periodic_job import PeriodicJob
from rocketpy.client.config import PullConsumerConfig
from rocketpy.client.consumer.group_consumer import wait_for_first_round
from rocketpy.client.consumer.group_membership import PullMember
from rocketpy.client.consumer.offset_store import (
    BrokerOffsetStore,
    FirstOffsets,
    StartFinder,
    checked_offset,
    read_address,
)
from rocketpy.client.consumer.pulling.process_queue import (
    CacheTotal,
    Limits,
    ProcessQueue,
    queue_of,
)
from rocketpy.client.consumer.pulling.pull_loop import PullSettings
from rocketpy.client.consumer.pulling.queue_readers import QueueReaders, chosen
from rocketpy.client.consumer.rebalance import Balance, Rebalancer, find_allocation
from rocketpy.client.consumer.status_reports import consumer_health
from rocketpy.client.health import ConsumerHealth
from rocketpy.client.lifecycle import AsyncLifecycle
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import B_co
from rocketpy.client.options.durations import Duration, Moment, moment_ms, to_ms, to_s
from rocketpy.client.options.validation import (
    BATCH,
    checked_count,
    checked_group,
    checked_subscription,
)
from rocketpy.errors import ClientError, ClosedError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.proto.subscription import SubscriptionData, build_subscription


class PollMixin(ABC, Generic[B_co]):
    """Methods that take messages by polling; a poll may commit the messages before it."""

    _stopped = False

    @abstractmethod
    async def poll(
        self,
        max_messages: int = 32,
        timeout: Duration | None = 5.0,  # noqa: ASYNC109 - an empty list is no error
    ) -> list[ReceivedMessage[B_co]]:
        """Return up to `max_messages`, waiting up to `timeout` for the first.

        Args:
            max_messages: 1 or more.
            timeout: of waiting; None is no limit.

        Returns:
            The messages; none when none came in time, or after `stop`.

        Raises:
            RocketPyError: a queue cannot be read for a reason that does not pass by itself.
            ClosedError: the consumer is not started, or closed.
        """

    async def getone(self, timeout: Duration | None = None) -> ReceivedMessage[B_co] | None:  # noqa: ASYNC109
        """Return the next message, None when none comes in time.

        Args:
            timeout: of waiting; None is no limit.

        Raises:
            ClosedError: not started, stopped or closed.
        """
        messages = await self.getmany(1, timeout)
        return messages[0] if messages else None

    async def getmany(
        self,
        max_messages: int = BATCH,
        timeout: Duration | None = None,  # noqa: ASYNC109
    ) -> list[ReceivedMessage[B_co]]:
        """Do as `poll`, with no limit of time unless one is given.

        Raises:
            ClosedError: not started, stopped or closed.
            ValueError: `max_messages` is less than 1.
        """
        messages = await self.poll(checked_count(max_messages), timeout)
        if not messages and self._stopped:
            raise ClosedError("the consumer was stopped or closed")
        return messages

    async def batches(
        self, max_messages: int = BATCH
    ) -> AsyncIterator[list[ReceivedMessage[B_co]]]:
        """Yield lists of 1 to `max_messages` messages, until `stop`.

        Raises:
            ClosedError: not started, or closed.
            ValueError: `max_messages` is less than 1.
        """
        while messages := await self.poll(checked_count(max_messages), None):
            yield messages


logger: logging.Logger = logging.getLogger(__name__)

TAKEOVER_PAUSE_MS = 500


class PullConsumer(AsyncLifecycle, PollMixin[B_co]):
    """Reads queues you assign, or your share of topics you subscribe to.

    With `auto_commit`, what earlier polls handed out is committed by a later poll: finish a
    batch before you poll again, and nothing is lost. A block of code that ends well commits the
    last batch, too; one that ends by an exception does not.

    Example:
        ::

            async with client.pull_consumer(group="etl", auto_commit=False) as consumer:
                await consumer.assign(await consumer.queues("orders"))
                await consumer.seek_to_begin()
                while messages := await consumer.poll(max_messages=100, timeout=5.0):
                    ...
                    await consumer.commit()
    """

    def __init__(self, instance: Instance, group: str, config: PullConsumerConfig) -> None:
        self.group: str = checked_group(group)
        self.config = config
        self._instance = instance
        self._store = BrokerOffsetStore(instance, group)
        self._first_offsets = FirstOffsets(group, self._store)
        self._finder = StartFinder(
            instance, self._store, config.start, keep=self._first_offsets.note
        )
        self._hooks = AssignmentHooks(group, config.on_assigned, config.on_revoked)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._subscribes = False
        self._placed = asyncio.Event()
        self._arrived: deque[ReceivedMessage] = deque()
        self._positions: dict[MessageQueue, int] = {}  # after what poll handed out
        self._committable: dict[MessageQueue, int] = {}  # handed out by an earlier poll
        self._last_commit_ms = instance.clock.monotonic_ms()
        self._waiter: asyncio.Future[None] | None = None
        self._failure: Exception | None = None
        self._running = False
        self._was_closed = False
        self._limits = Limits(config.max_cached_messages, config.max_cached_bytes, span=1 << 62)
        self._total = CacheTotal(config.max_cached_messages_all)
        self._readers = QueueReaders(
            instance,
            _pull_settings(group, config),
            self._make_queue,
            subscription=self._subscription,
            deliver=self._deliver,
            reject=self._reject,
            moved=self._restart,
            broken=self._broken,
        )
        self._rebalancer = Rebalancer(
            instance,
            group,
            find_allocation(config.allocation),
            self._readers.queues,
            saw=self._finder.saw,
            acquire=self._acquire,
            release=self._release,
            takeover_pause_ms=TAKEOVER_PAUSE_MS,
        )
        self._rebalance_job = PeriodicJob(
            f"rebalance {group}", self._rebalance, to_ms(config.rebalance_interval)
        )
        self._member = PullMember(
            group,
            config,
            subscriptions=self._subscriptions,
            readers=self._readers,
            positions=self._positions,
            seek=self._restart,
            wake=self._rebalance_job.wake,
        )

    # ---- life

    async def start(self) -> None:
        """Be ready for `assign` or `subscribe`.

        Raises:
            ClosedError: the client is not started, or the consumer was closed.
        """
        if not self._instance.is_running or self._was_closed:
            raise ClosedError("the pull consumer's client is not started, or it was closed")
        self._running = True

    async def close(self) -> None:
        """Stop pulling, commit what was handed out (with `auto_commit`), leave.

        After an exception in its `async with` block, the last batch is not committed: it comes
        again. Every call waits for the one close; without a start there is nothing to close.
        """
        if self._running or self._closing is not None:
            await super().close()

    async def _close(self) -> None:
        self._running = False
        self._was_closed = True
        await self._rebalance_job.stop()
        if self._subscribes:
            await self._hooks.revoked(self._readers.queues)
        if self.config.auto_commit:
            try:
                if not self._is_interrupted:
                    self._committable.update(self._positions)
                await self._store_committable()
            except RocketPyError as error:
                logger.warning(
                    "last offsets not stored: group=%(group)s error=%(error)r",
                    {"group": self.group, "error": error},
                )
        for queue in list(self._readers.queues):
            await self._drop(queue)
        await self._instance.remove_consumer(self._member)
        self._placed.set()
        self._wake()

    # ---- which queues

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, none when no broker serves it."""
        full_name = wrap_namespace(self._instance.config.namespace, topic)
        return list(await self._instance.routes.subscribe_queues(full_name))

    async def subscribe(
        self,
        topic: str,
        filter: str = "*",  # noqa: A002
        sql: str = "",
    ) -> None:
        """Read this member's share of a topic; members of the group deal the queues out.

        Returns when it is known which queues these are and where they begin, or after
        `start_timeout`, with a warning; not so for a topic that does not exist yet, which is
        read from its first message on.

        Args:
            topic: its name.
            filter: tags, `"a || b"` or `"*"`.
            sql: instead of tags, a condition on properties.

        Raises:
            ExpressionError: `sql` is no condition; says where.
            ConfigError: the name or the filter cannot be used.
            ClientError: queues were assigned already; it is one or the other.
            NoNameServerError: none responded within `start_timeout`.
            BrokerError: a broker does not take the condition.
        """
        topic = wrap_namespace(self._instance.config.namespace, topic)
        self._check_running()
        if self._readers.queues and not self._subscribes:
            raise ClientError("subscribe and assign cannot be mixed")
        version = self._instance.next_sub_version()
        wanted = checked_subscription(topic, filter, sql, version)
        await self._instance.look_up([topic], to_s(self.config.start_timeout))
        self._check_running()
        await self._instance.check_subscriptions(self.group, [wanted])
        if not self._subscribes:
            self._instance.add_consumer(self._member)
            self._subscribes = True
            self._subscriptions[topic] = wanted
            self._placed = asyncio.Event()
            try:
                await self._instance.heartbeat()
            except RocketPyError as error:  # the heartbeat job tries again, health() shows it
                logger.warning(
                    "first heartbeat failed: group=%(group)s error=%(error)r",
                    {"group": self.group, "error": error},
                )
            self._rebalance_job.start()
        else:
            self._subscriptions[topic] = wanted
            self._placed = asyncio.Event()
            self._instance.heartbeat_soon()
            self._rebalance_job.wake()
        await wait_for_first_round(
            self.group, self._placed, self._rebalance_job, to_s(self.config.start_timeout)
        )

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, each from the group's offset, or where `start` says.

        Raises:
            ClientError: the consumer subscribes; it is one or the other.
            RocketPyError: an offset could not be learnt.
        """
        self._check_running()
        if self._subscribes:
            raise ClientError("subscribe and assign cannot be mixed")
        wanted = set(queues)
        for queue in sorted(self._readers.queues.keys() - wanted):
            await self._drop(queue)
        fresh = sorted(wanted - self._readers.queues.keys())
        for topic in dict.fromkeys(queue.topic for queue in fresh):
            if queues_of_topic := await self._instance.routes.subscribe_queues(topic):
                await self._finder.saw(topic, queues_of_topic)
        for queue in fresh:
            await self._acquire(queue)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues read now."""
        return sorted(self._readers.queues)

    def pause(self, *what: str | MessageQueue) -> None:
        """Hand out nothing of these topics and queues until `resume`; of all when none is named.

        A pause lasts, also for queues that come later, and over seeks.

        Raises:
            ClientError: a queue that is not assigned.
        """
        self._readers.pause(self._checked_choice(what))

    def resume(self, *what: str | MessageQueue) -> None:
        """Hand these topics and queues out again; all when none is named.

        Raises:
            ClientError: a queue that is not assigned.
        """
        self._readers.resume(self._checked_choice(what))
        self._wake()

    def _checked_choice(
        self, what: Iterable[str | MessageQueue]
    ) -> list[str | MessageQueue] | None:
        for each in what:
            if isinstance(each, MessageQueue):
                self._checked(each)
        return chosen(self._instance.config.namespace, what)

    # ---- messages

    async def poll(
        self,
        max_messages: int = 32,
        timeout: Duration | None = 5.0,  # noqa: ASYNC109 - an empty list is no error
    ) -> list[ReceivedMessage[B_co]]:
        """Return up to `max_messages`, waiting up to `timeout` for the first; see `Polls.poll`."""
        self._check_running()
        self._committable.update(self._positions)
        await self._auto_commit()
        timeout_s = None if timeout is None else to_s(timeout)
        messages = self._take(max_messages)
        if not messages and (timeout_s is None or timeout_s > 0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    while not messages and not self._stopped:
                        await self._wait()
                        messages = self._take(max_messages)
        return messages

    def stop(self) -> None:
        """Deliver no more messages, for a signal handler: waiting polls return, and loops end.

        What was handed out counts as done, as at any end of the `async with` block without an
        exception.
        """
        self._stopped = True
        self._wake()

    def _take(self, max_messages: int) -> list[ReceivedMessage[B_co]]:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._check_running()
        if self._stopped:
            return []
        taken: list[ReceivedMessage] = []
        held_back: list[ReceivedMessage] = []
        while self._arrived and len(taken) < max_messages:
            message = self._arrived.popleft()
            queue = queue_of(message)
            if queue.dropped:
                continue
            if queue.paused:
                held_back.append(message)
                continue
            queue.remove(message)
            self._positions[queue.queue] = message.ext.queue_offset + 1
            taken.append(message)
        self._arrived.extendleft(reversed(held_back))
        return taken

    async def _wait(self) -> None:
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    # ---- positions

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue with this offset of an assigned queue.

        Raises:
            ClientError: the queue is not assigned, or the offset outside of it.
        """
        self._checked(queue)
        await self._restart(queue, await checked_offset(self._instance, queue, offset))

    async def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue with the oldest message of each queue (of all when None)."""
        for queue in self._chosen(queues):
            offset = await self._instance.api.min_offset(self._address(queue), queue)
            await self._restart(queue, offset)

    async def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue with messages that are not there yet."""
        for queue in self._chosen(queues):
            offset = await self._instance.api.max_offset(self._address(queue), queue)
            await self._restart(queue, offset)

    async def seek_to_time(self, queues: Iterable[MessageQueue] | None, time: Moment | str) -> None:
        """Continue with the first message stored at or after a time.

        Args:
            queues: which, None for all.
            time: a datetime (local time without a time zone), a float of seconds or an int of ms
                since 1970, or ISO 8601 text.
        """
        time_ms = moment_ms(datetime.fromisoformat(time) if isinstance(time, str) else time)
        for queue in self._chosen(queues):
            address = self._address(queue)
            offset = await self._instance.api.search_offset(address, queue, time_ms)
            await self._restart(queue, offset)

    async def commit(self) -> None:
        """Store the positions after everything handed out, and wait for the brokers' responses."""
        self._committable.update(self._positions)
        await self._store_committable()

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset of a queue, None when there is none."""
        await self._instance.routes.subscribe_queues(queue.topic)
        return await self._instance.api.query_offset(self._address(queue), self.group, queue)

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset after the last message handed out, None before the first."""
        return self._positions.get(queue)

    async def _auto_commit(self) -> None:
        now = self._instance.clock.monotonic_ms()
        is_due = now - self._last_commit_ms >= to_ms(self.config.auto_commit_interval)
        if self.config.auto_commit and is_due and (self._committable or self._first_offsets):
            self._last_commit_ms = now
            await self._store_committable()

    async def _store_committable(self) -> None:
        await self._first_offsets.commit(self._positions)
        offsets = dict(self._committable)
        await self._store.save(offsets, final=True)
        for queue, offset in offsets.items():
            if self._committable.get(queue) == offset:
                del self._committable[queue]

    # ---- reading one queue

    async def _acquire(self, queue: MessageQueue) -> bool:
        self._readers.begin(queue, await self._finder.find(queue))
        return True

    def _make_queue(self, queue: MessageQueue) -> ProcessQueue:
        return ProcessQueue(queue, self._limits, total=self._total)

    def _subscription(self, topic: str) -> SubscriptionData:
        return self._subscriptions.get(topic) or build_subscription(topic, "*")

    def _deliver(self, _queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self._arrived.extend(messages)
        self._wake()

    async def _reject(
        self, queue: ProcessQueue, message: ReceivedMessage, error: Exception
    ) -> None:
        """Hand the message out as stored: only its reader can say what to do with it."""
        logger.error(
            "message body not inflated: message=%(message)r error=%(error)s",
            {"message": message, "error": error},
        )
        self._deliver(queue, [message])

    def _broken(self, error: BaseException) -> None:
        """Raise a lasting failure from the next poll."""
        self._failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
        self._wake()

    async def _restart(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of a queue; earlier deliveries are not committed."""
        await self._readers.restart(queue, offset)
        self._positions[queue] = offset
        self._committable.pop(queue, None)

    async def _drop(self, queue: MessageQueue) -> None:
        await self._readers.stop(queue)
        self._first_offsets.drop(queue)
        self._positions.pop(queue, None)
        self._committable.pop(queue, None)

    async def _release(self, process_queue: ProcessQueue) -> bool:
        queue = process_queue.queue
        await self._hooks.revoked([queue])
        if self.config.auto_commit:
            await self._first_offsets.commit(self._positions)
        done = self._committable.get(queue)
        if done is not None and self.config.auto_commit:
            await self._store.save({queue: done}, final=True)
        await self._drop(queue)
        return True

    async def _rebalance(self) -> int | None:
        placed = self._placed  # a topic that comes during the round is for the next one
        had = set(self._readers.queues)
        try:
            balance = await self._rebalancer.round(self._subscriptions)
        finally:
            await self._hooks.assigned(self._readers.queues.keys() - had)
        if balance is not Balance.OUTSIDE:
            placed.set()
        return None if balance is Balance.COMPLETE else 1_000

    def _checked(self, queue: MessageQueue) -> ProcessQueue:
        found = self._readers.queues.get(queue)
        if found is None:
            raise ClientError(f"{queue} is not assigned to this consumer")
        return found

    def _chosen(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        chosen = list(self._readers.queues) if queues is None else list(queues)
        for queue in chosen:
            self._checked(queue)
        return chosen

    def _address(self, queue: MessageQueue) -> str:
        return read_address(self._instance, queue)

    def _check_running(self) -> None:
        self._check_loop()
        if not self._running:
            raise ClosedError("the pull consumer is not started, or closed")

    def health(self) -> ConsumerHealth:
        """Return the state of every queue and what fails in the background."""
        jobs, unserved = [self._rebalance_job], self._rebalancer.unserved
        return consumer_health(self.group, self._readers, jobs, self._failure, unserved)


def _pull_settings(group: str, config: PullConsumerConfig) -> PullSettings:
    return PullSettings(
        group=group,
        batch=config.pull_batch,
        suspend_ms=to_ms(config.pull_wait),
        timeout_ms=to_ms(config.pull_timeout),
        error_pause_ms=to_ms(config.pull_error_pause),
        post_subscription=True,
        commit_offset=False,
        serializer=config.serializer,
    )
