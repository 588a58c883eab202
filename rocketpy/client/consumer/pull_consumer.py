"""Consumer that is polled: the caller controls queues, positions and pace.

Source: DefaultLitePullConsumerImpl (5.4.0).
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from typing import Any, Generic

from rocketpy.client.callbacks.hooks import AssignmentHooks
from rocketpy.client.cluster.instance import Instance
from rocketpy.client.cluster.periodic_job import PeriodicJob
from rocketpy.client.config import DEFAULT_GROUP, NO_GROUP, PullConsumerConfig
from rocketpy.client.consumer.dispatch.polled_messages import PolledBatches, PolledMessages
from rocketpy.client.consumer.group_consumer import SAVE_S, wait_for_first_round, within
from rocketpy.client.consumer.group_membership import PullMember
from rocketpy.client.consumer.handled_offsets import HandledOffsets
from rocketpy.client.consumer.iteration import BatchIterator, Caller, current_caller
from rocketpy.client.consumer.offset_store import (
    BrokerOffsetStore,
    StartFinder,
    checked_offset,
    read_address,
)
from rocketpy.client.consumer.pulling.process_queue import CacheTotal, Limits, ProcessQueue
from rocketpy.client.consumer.pulling.pull_loop import PullSettings
from rocketpy.client.consumer.pulling.queue_readers import QueueReaders, chosen
from rocketpy.client.consumer.rebalance import Balance, Rebalancer, find_allocation
from rocketpy.client.consumer.status_reports import consumer_health
from rocketpy.client.health import ConsumerHealth
from rocketpy.client.lifecycle import AsyncLifecycle, Stopped
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import B_co
from rocketpy.client.options.durations import Duration, Moment, moment_ms, to_ms, to_s
from rocketpy.client.options.validation import (
    BATCH,
    checked_count,
    checked_group,
    checked_queue,
    checked_subscription,
    checked_texts,
    checked_timeout,
    checked_topic,
)
from rocketpy.errors import (
    ClientError,
    ClosedError,
    ConfigError,
    InvalidParameterError,
    RocketPyError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.proto.subscription import SubscriptionData, build_subscription

logger: logging.Logger = logging.getLogger(__name__)

TAKEOVER_PAUSE_MS = 500  # time for the former owner to store its offset


class PullConsumer(AsyncLifecycle, Generic[B_co]):
    """Reads queues you assign, or your share of topics you subscribe to.

    Messages belong to the task that polled them (with `rocketpy.sync`, to the thread), and are
    handled when the same task polls again. Several tasks may poll at the same time. Offsets are
    committed up to the first message that is not handled: with `auto_commit` by a later poll, so
    finish a batch before you poll again, and nothing is lost. A block of code that ends well
    commits the last batch, too; one that ends by an exception does not.

    Without a group, its own or that of the client, it can read assigned queues, and commits
    nothing.

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
        default_group = wrap_namespace(instance.config.namespace, DEFAULT_GROUP)
        self._has_group = group != default_group
        self._store = BrokerOffsetStore(instance, group)
        self._polled = PolledMessages(instance.clock, group)
        self._hooks = AssignmentHooks(group, config.on_assigned, config.on_revoked)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._subscribes = False
        # One `assign` or `subscribe` at a time: two would begin a queue twice, or be mixed.
        self._choosing = asyncio.Lock()
        self._has_queues = asyncio.Event()
        self._delivered: BatchIterator[ReceivedMessage[B_co]] | None = None
        self._last_commit_ms = instance.clock.monotonic_ms()
        self._running = False
        self._stopped = self._was_closed = False
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
        self._offsets = HandledOffsets(
            group, self._store, self._polled, self._delivered_messages, self._readers.queues
        )
        keep = self._offsets.first.note
        self._finder = StartFinder(instance, self._store, config.start, keep=keep)
        self._rebalancer = Rebalancer(
            instance,
            group,
            find_allocation(config.allocation),
            self._readers.queues,
            note_queues=self._finder.note_queues,
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
            positions=self._polled.positions,
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
        await self._rebalance_job.stop()  # a round must not take queues again
        if self._subscribes:
            await self._hooks.revoked(self._readers.queues)  # first: the hook may commit
        if not self._is_interrupted:
            self._offsets.commit_sought()
            if self._delivered is not None and self._delivered.callers < 2:
                self._delivered.clear()  # of several callers, some may still handle their messages
        if self.config.auto_commit and self._has_group:
            await within(SAVE_S, self._save_last(), self.group)
        for queue in list(self._readers.queues):
            await self._drop(queue)
        await self._instance.remove_consumer(self._member)
        self._has_queues.set()
        self._polled.halt()

    async def _save_last(self) -> None:
        try:
            await self._offsets.commit()
        except RocketPyError as error:
            logger.warning(
                "last offsets not stored: group=%(group)s error=%(error)r",
                {"group": self.group, "error": error},
            )

    # ---- which queues

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the readable queues of a topic, none when no broker serves it."""
        full_name = wrap_namespace(self._instance.config.namespace, checked_topic(topic))
        return list(await self._instance.routes.latest_subscribe_queues(full_name))

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
            TypeError: several topics, or another value that is no text.
            ExpressionError: `sql` is no condition; says where.
            ConfigError: the name or the filter cannot be used, or the consumer has no group.
            ClientError: queues were assigned already; it is one or the other.
            NoNameServerError: none responded within `start_timeout`.
            BrokerError: a broker does not take the condition.
        """
        checked_texts(topic, filter, sql)
        topic = wrap_namespace(self._instance.config.namespace, topic)
        self._check_running()
        self._check_group()
        async with self._choosing:
            if self._readers.queues and not self._subscribes:
                raise ClientError("subscribe and assign cannot be mixed")
            version = self._instance.next_sub_version()
            wanted = checked_subscription(topic, filter, sql, version)
            await self._instance.look_up([topic], to_s(self.config.start_timeout))
            await self._instance.check_subscriptions(self.group, [wanted])
            self._check_running()  # a close during the requests found no member to remove
            is_first = not self._subscribes
            if is_first:
                self._instance.add_consumer(self._member)
                self._subscribes = True
            self._subscriptions[topic] = wanted
            self._has_queues = asyncio.Event()
        if is_first:
            try:
                await self._instance.heartbeat()
            except RocketPyError as error:  # the heartbeat job tries again, health() shows it
                logger.warning(
                    "first heartbeat failed: group=%(group)s error=%(error)r",
                    {"group": self.group, "error": error},
                )
            self._check_running()  # a close during the heartbeat found no job to stop
            self._rebalance_job.start()
        else:
            self._instance.heartbeat_soon()
            self._rebalance_job.wake()
        await wait_for_first_round(
            self.group, self._has_queues, self._rebalance_job, to_s(self.config.start_timeout)
        )

    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, each from the group's offset, or where `start` says.

        Raises:
            ClientError: the consumer subscribes; it is one or the other.
            RocketPyError: an offset could not be learnt.
        """
        wanted = {checked_queue(each) for each in queues}
        async with self._choosing:
            self._check_running()
            if self._subscribes:
                raise ClientError("subscribe and assign cannot be mixed")
            for queue in sorted(self._readers.queues.keys() - wanted):
                await self._drop(queue)
            fresh = sorted(wanted - self._readers.queues.keys())
            # Before any first offset is stored: it would look like one of an old group.
            for topic in dict.fromkeys(queue.topic for queue in fresh):
                if queues_of_topic := await self._instance.routes.subscribe_queues(topic):
                    await self._finder.note_queues(topic, queues_of_topic)
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
        self._polled.wake()

    def _checked_choice(
        self, what: Iterable[str | MessageQueue]
    ) -> list[str | MessageQueue] | None:
        for each in what:
            if isinstance(each, MessageQueue):
                self._checked(each)
        return chosen(self._instance.config.namespace, what)

    # ---- messages

    def poll(
        self, max_messages: int = 32, timeout: Duration | None = 5.0
    ) -> Coroutine[Any, Any, list[ReceivedMessage[B_co]]]:
        """Return up to `max_messages`, waiting up to `timeout` for the first.

        The messages that this task (or thread) received before are handled by that. Messages of a
        task that ends by an exception or is cancelled are delivered again, once.

        Args:
            max_messages: 1 or more.
            timeout: of waiting; None is no limit.

        Returns:
            The messages; none when none came in time, or after `stop`.

        Raises:
            RocketPyError: a queue cannot be read for a reason that does not pass by itself.
            ClientError: another call of this task waits already.
            ClosedError: the consumer is not started, or closed.
        """
        return self._poll(current_caller(self._loop), max_messages, timeout)

    async def _poll(
        self, caller: Caller, max_messages: int, limit: Duration | None
    ) -> list[ReceivedMessage[B_co]]:
        max_messages, timeout_s = checked_count(max_messages), checked_timeout(limit)
        self._check_running()
        if self._delivered is None:
            self._delivered = BatchIterator(self._polled, BATCH)
        # Before the commit, which then covers them: `poll` means that they are handled.
        await self._delivered.finish(caller)
        self._delivered.redeliver_of_ended_threads()
        self._offsets.commit_sought()
        await self._auto_commit()
        messages = await self._delivered.take(caller, max_messages, timeout_s)
        if messages is None:
            self._check_running()  # not closed, but stopped
            return []
        return messages

    def getone(
        self, timeout: Duration | None = None
    ) -> Coroutine[Any, Any, ReceivedMessage[B_co] | None]:
        """Return the next message, None when none comes in time; see `poll`.

        Args:
            timeout: of waiting; None is no limit.

        Raises:
            ClosedError: not started, stopped or closed.
            ClientError: another call of this task waits already.
        """
        return self._getone(current_caller(self._loop), timeout)

    async def _getone(self, caller: Caller, limit: Duration | None) -> ReceivedMessage[B_co] | None:
        messages = await self._getmany(caller, 1, limit)
        return messages[0] if messages else None

    def getmany(
        self, max_messages: int = BATCH, timeout: Duration | None = None
    ) -> Coroutine[Any, Any, list[ReceivedMessage[B_co]]]:
        """Do as `poll`, with no limit of time unless one is given.

        Raises:
            ClosedError: not started, stopped or closed.
            ClientError: another call of this task waits already.
            ValueError: `max_messages` is less than 1.
        """
        return self._getmany(current_caller(self._loop), max_messages, timeout)

    async def _getmany(
        self, caller: Caller, max_messages: int, limit: Duration | None
    ) -> list[ReceivedMessage[B_co]]:
        messages = await self._poll(caller, checked_count(max_messages), limit)
        if not messages and self._stopped:
            raise ClosedError("the consumer was stopped or closed")
        return messages

    def batches(self, max_messages: int = BATCH) -> PolledBatches[B_co]:
        """Return a loop over lists of 1 to `max_messages` messages, until `stop`.

        Raises:
            ValueError: `max_messages` is less than 1.
        """
        return PolledBatches(functools.partial(self.poll, checked_count(max_messages), None))

    def stop(self) -> Stopped:
        """Deliver no more messages, for a signal handler: waiting polls return, and loops end.

        Delivered messages count as done, as at any end of the `async with` block without an
        exception. `await consumer.stop()` also closes.
        """
        self._stopped = True
        self._polled.halt()
        return Stopped(self)

    # ---- positions

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue with this offset of an assigned queue.

        Raises:
            TypeError: the offset is no whole number.
            ClientError: the queue is not assigned, also when it was released during the call, or
                the offset is outside of it.
            ClosedError: the consumer is not started, or closed.
        """
        await self._seek([queue], lambda each: checked_offset(self._instance, each, offset))

    async def seek_to_begin(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue with the oldest message of each queue (of all when None); see `seek`."""
        api = self._instance.api
        await self._seek(queues, lambda each: api.min_offset(self._address(each), each))

    async def seek_to_end(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Continue with messages that are not there yet; see `seek`."""
        api = self._instance.api
        await self._seek(queues, lambda each: api.max_offset(self._address(each), each))

    async def seek_to_time(self, queues: Iterable[MessageQueue] | None, time: Moment | str) -> None:
        """Continue with the first message stored at or after a time; see `seek`.

        Args:
            queues: which, None for all.
            time: a datetime (local time without a time zone), a float of seconds or an int of ms
                since 1970, or ISO 8601 text.
        """
        time_ms = moment_ms(datetime.fromisoformat(time) if isinstance(time, str) else time)
        api = self._instance.api
        await self._seek(queues, lambda each: api.search_offset(self._address(each), each, time_ms))

    async def _seek(
        self,
        queues: Iterable[MessageQueue] | None,
        find: Callable[[MessageQueue], Awaitable[int]],
    ) -> None:
        """Continue at the found offset of each queue (of all when None), or else of none."""
        chosen = list(self._readers.queues) if queues is None else list(queues)
        self._check_assigned(chosen)
        offsets = {queue: await find(queue) for queue in chosen}
        self._check_assigned(chosen)  # a rebalance or a close may have come during the requests
        for queue, offset in offsets.items():
            await self._restart(queue, offset)

    def commit(self) -> Coroutine[Any, Any, None]:
        """Store the offsets of handled messages, and wait for the brokers' responses.

        Handled by that are the messages that this task (or thread) received, and those of tasks
        that have ended. Messages that another task still works on are not committed.

        Raises:
            ConfigError: the consumer has no group.
            RocketPyError: an offset is not known to be stored.
        """
        return self._commit(current_caller(self._loop))

    async def _commit(self, caller: Caller) -> None:
        self._check_group()
        if self._delivered is not None:
            await self._delivered.finish(caller)
        self._offsets.commit_sought()
        await self._offsets.commit()

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's stored offset of a queue, None when there is none."""
        checked_queue(queue)
        await self._instance.routes.subscribe_queues(queue.topic)
        return await self._instance.api.query_offset(self._address(queue), self.group, queue)

    def position(self, queue: MessageQueue) -> int | None:
        """Return the offset after the last message handed out, None before the first."""
        return self._polled.positions.get(checked_queue(queue))

    async def _auto_commit(self) -> None:
        now = self._instance.clock.monotonic_ms()
        is_due = now - self._last_commit_ms >= to_ms(self.config.auto_commit_interval)
        if self.config.auto_commit and self._has_group and is_due and self._offsets.has_work:
            self._last_commit_ms = now  # before the await: a second poll must not commit, too
            await self._offsets.commit()

    def _delivered_messages(self) -> Sequence[ReceivedMessage]:
        return () if self._delivered is None else self._delivered.messages

    # ---- reading one queue

    async def _acquire(self, queue: MessageQueue) -> bool:
        offset = await self._finder.find(queue)
        self._check_running()  # a close during the request would not stop what begins now
        self._readers.begin(queue, offset)
        return True

    def _make_queue(self, queue: MessageQueue) -> ProcessQueue:
        return ProcessQueue(queue, self._limits, total=self._total)

    def _subscription(self, topic: str) -> SubscriptionData:
        return self._subscriptions.get(topic) or build_subscription(topic, "*")

    def _deliver(self, _queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        self._polled.deliver(messages)

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
        if self._subscribes and isinstance(error, InvalidParameterError):
            # The queue is no longer readable: the next round drops it, after the new route.
            return
        self._polled.fail(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    async def _restart(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset of a queue, if it is read; earlier messages do not count."""
        if self._running and self._readers.restart(queue, offset):
            self._offsets.seek(queue, offset)

    async def _drop(self, queue: MessageQueue) -> None:
        await self._readers.stop(queue)
        self._offsets.drop(queue)

    async def _release(self, process_queue: ProcessQueue) -> bool:
        queue = process_queue.queue
        await self._hooks.revoked([queue])
        if self.config.auto_commit:
            await self._offsets.commit_one(queue)
        await self._drop(queue)
        return True

    async def _rebalance(self) -> int | None:
        placed = self._has_queues  # a topic that comes during the round is for the next one
        had = set(self._readers.queues)
        try:
            balance = await self._rebalancer.round(self._subscriptions)
        finally:
            await self._hooks.assigned(self._readers.queues.keys() - had)
        if balance is not Balance.OUTSIDE:
            placed.set()
        return None if balance is Balance.COMPLETE else 1_000

    def _check_assigned(self, queues: Iterable[MessageQueue]) -> None:
        self._check_running()
        for queue in queues:
            self._checked(queue)

    def _checked(self, queue: MessageQueue) -> ProcessQueue:
        found = self._readers.queues.get(queue)
        if found is None:
            raise ClientError(f"{queue} is not assigned to this consumer")
        return found

    def _address(self, queue: MessageQueue) -> str:
        return read_address(self._instance, queue)

    def _check_group(self) -> None:
        if not self._has_group:
            raise ConfigError(NO_GROUP, key="group")

    def _check_running(self) -> None:
        self._check_loop()
        if not self._running:
            raise ClosedError("the pull consumer is not started, or closed")

    def health(self) -> ConsumerHealth:
        """Return the state of every queue and what fails in the background."""
        jobs, unserved = [self._rebalance_job], self._rebalancer.unserved
        return consumer_health(self.group, self._readers, jobs, self._polled.failure, unserved)


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
