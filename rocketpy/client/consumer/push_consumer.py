"""Consumer of a group that pulls: queues, offsets, and a handler or iterator.

Source: DefaultMQPushConsumerImpl (5.4.0).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from rocketpy.client.callbacks.handlers import Invoke
from rocketpy.client.callbacks.hooks import AssignmentHooks
from rocketpy.client.cluster.instance import LEAVE_S, Instance
from rocketpy.client.cluster.periodic_job import PeriodicJob
from rocketpy.client.config import ConsumerConfig
from rocketpy.client.consumer.dispatch.concurrent_service import ConcurrentService
from rocketpy.client.consumer.dispatch.iterator_service import PulledIterator
from rocketpy.client.consumer.dispatch.ordered_service import OrderedService, key_lane, queue_lane
from rocketpy.client.consumer.dispatch.redelivery import FailedMessages, Redelivery
from rocketpy.client.consumer.group_consumer import (
    NOT_TO_ITERATE,
    GroupConsumer,
    within,
)
from rocketpy.client.consumer.group_membership import PushMember
from rocketpy.client.consumer.iteration import Source
from rocketpy.client.consumer.offset_store import StartFinder, checked_offset, make_offset_store
from rocketpy.client.consumer.pulling.process_queue import GiveBack, Limits, ProcessQueue
from rocketpy.client.consumer.pulling.pull_loop import PullSettings
from rocketpy.client.consumer.pulling.queue_readers import QueueReaders, chosen
from rocketpy.client.consumer.queue_locks import RENEW_INTERVAL_MS, QueueLockKeeper
from rocketpy.client.consumer.rebalance import Balance, Rebalancer, find_allocation
from rocketpy.client.consumer.status_reports import consumer_health
from rocketpy.client.health import ConsumerHealth
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import DEAD_LETTER, Rejection
from rocketpy.client.messages.serializers import B_co
from rocketpy.client.options.durations import to_ms, to_s
from rocketpy.client.tracing import Tracer
from rocketpy.errors import ClientError, ClosedError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.topic_names import retry_topic

logger: logging.Logger = logging.getLogger(__name__)

# Ordered messages are handled one after the other: the span between them needs no limit.
_ANY_SPAN = 1 << 62
# Bounded, because the renewal of other locks and the next rounds wait for it.
_DRAIN_S = 1.0


class Consumer(GroupConsumer[ConsumerConfig, ReceivedMessage[B_co]]):
    """Receives a group's messages; made by `Client.consumer`.

    At least once: after a crash or a change of members a message may come again.
    With a handler, returning means done, raising means again later
    (`Retry` and `ToDLQ` say how).
    Without one, iterate: a message belongs to the task that received it, and is handled when the
    same task requests the next one. One that was delivered when a loop was left comes again in the
    next loop. Several tasks may iterate independently. With `auto_ack=False`, the user settles
    each message by its `ack` and `nack`.

    Example:
        ::

            async with client.consumer("orders", group="billing", filter="paid") as consumer:
                async for message in consumer:
                    print(message.queue, message.offset, message.body)
    """

    def __init__(self, instance: Instance, group: str, config: ConsumerConfig) -> None:
        super().__init__(instance, group, config)
        span = _ANY_SPAN if config.ordered else config.max_span
        self._limits = Limits(config.max_cached_messages, config.max_cached_bytes, span)
        self._store = make_offset_store(
            instance, group, broadcast=config.broadcast, directory=config.offset_dir
        )
        self._finder = StartFinder(instance, self._store, config.start, keep=self._keep_start)
        self._redelivery = Redelivery(instance, group, config.max_retries)
        self._returns = self._make_returns()
        # Replaced at the start by that of an ordered service or an iterator.
        self._give_back: GiveBack = self._returns.give_back
        self._on_ack: Callable[[ReceivedMessage], None] | None = None
        self._tracer: Tracer | None = None
        if callable(config.order_by_key):  # messages without a usable key
            self._failed_before = {}
        self._idle: list[MessageQueue] = []  # at the close, queues without a running handler
        self._service: (
            ConcurrentService[ReceivedMessage] | OrderedService | PulledIterator | None
        ) = None
        self._readers = QueueReaders(
            instance,
            _pull_settings(group, config),
            self._make_queue,
            subscription=self._subscription,
            deliver=self._deliver,
            reject=self._reject,
            moved=self._moved,
            broken=self._broken,
        )
        self._rebalancer = Rebalancer(
            instance,
            group,
            None if config.broadcast else find_allocation(config.allocation),
            self._readers.queues,
            note_queues=self._finder.note_queues,
            acquire=self._acquire,
            release=self._release,
            takeover_pause_ms=to_ms(config.takeover_pause),
        )
        self._hooks = AssignmentHooks(group, config.on_assigned, config.on_revoked)
        self._locks = self._make_locks()
        self._jobs = self._make_jobs()
        self._member: PushMember = PushMember(
            instance,
            group,
            config,
            subscriptions=self._subscriptions,
            readers=self._readers,
            store=self._store,
            stats=self._stats,
            wake=self._routes_changed,
        )
        self._subscribe_all()

    def _make_returns(self) -> FailedMessages:
        config = self.config
        return FailedMessages(
            None if config.broadcast else self._redelivery,
            clock=self._instance.clock,
            deliver=self._deliver_again,
            local_retry_ms=to_ms(config.local_retry_pause),
            consume_timeout_ms=to_ms(config.consume_timeout),
            backoff=config.retry_backoff,
        )

    def _make_locks(self) -> QueueLockKeeper | None:
        # When broadcasting, every member reads all queues: a lock would exclude the others.
        if not self.config.is_ordered or self.config.broadcast:
            return None
        queues = self._readers.queues
        return QueueLockKeeper(self._instance, self.group, queues, self._wake)

    def _make_jobs(self) -> list[PeriodicJob]:
        persist_ms = to_ms(self._instance.config.persist_interval)
        group, config = self.group, self.config
        jobs = [
            PeriodicJob(f"rebalance {group}", self._rebalance, to_ms(config.rebalance_interval)),
            PeriodicJob(f"offsets {group}", self._persist, persist_ms),
        ]
        if self._locks is not None:
            jobs.append(PeriodicJob(f"locks {group}", self._locks.renew, RENEW_INTERVAL_MS))
        elif not config.is_ordered:
            # Not for ordered consumers: later messages of a lane would overtake the redelivery.
            jobs.append(PeriodicJob(f"overdue {group}", self._sweep, persist_ms))
        return jobs

    # ---- life

    def _before_joining(self) -> None:
        if not self.config.broadcast:
            self.subscribe(retry_topic(self.group))

    async def _open_offsets(self) -> None:
        await self._store.open()

    def _start_service(self, invoke: Invoke | None) -> None:
        config, clock = self.config, self._instance.clock
        if config.trace:
            self._tracer = Tracer(self._instance, self.group, "CONSUME", config.trace_topic)
            invoke = None if invoke is None else self._tracer.traced(invoke)
        self._member.start(invoke)
        if invoke is None:
            trace = None if self._tracer is None else self._tracer.begin_consuming
            service = PulledIterator(
                stats=self._stats,
                clock=clock,
                group=self.group,
                trace=trace,
                auto_ack=config.auto_ack,
                earlier=self._instance.left_positions[self.group],
            )
            self._service = service
            self._give_back = self._make_rejection(service)
            self._on_ack = service.acked
        elif config.is_ordered:
            self._service = self._make_ordered(invoke)
        else:
            self._service = self._make_concurrent(invoke)

    def _make_rejection(self, service: PulledIterator) -> GiveBack:
        """Return what `nack` does to a message of an iterator."""

        async def reject(
            queue: ProcessQueue, message: ReceivedMessage, rejection: Rejection
        ) -> None:
            # Before `give_back`, which reserves the message: it would not count as failed then.
            service.nacked(message)
            await self._returns.give_back(queue, message, rejection)

        return reject

    def _make_ordered(self, invoke: Invoke) -> OrderedService:
        config, redelivery = self.config, self._redelivery

        async def bury(message: ReceivedMessage, rejection: Rejection) -> None:
            await redelivery.send_copy(message, rejection._replace(delay_level=DEAD_LETTER))

        service = OrderedService(
            invoke,
            concurrency=config.concurrency,
            batch=config.batch,
            lane_of=queue_lane if config.ordered else key_lane(config.key_of),
            may_run=self._may_run,
            bury=None if config.broadcast else bury,
            max_retries=config.max_retries,
            suspend_ms=to_ms(config.ordered_retry_pause),
            backoff=config.retry_backoff,
            stats=self._stats,
            clock=self._instance.clock,
            failed=self._failed_before,
        )
        self._give_back = service.give_back
        return service

    def _interrupt(self, error: BaseException, /) -> None:
        super()._interrupt(error)
        service = self._service
        # A cancelled worker is stopped on purpose, and its messages did not fail.
        if self._running and isinstance(service, PulledIterator) and isinstance(error, Exception):
            self._halt()  # the messages go to the next consumer, not to another task of this one
            service.leave_by_exception(
                [message for each in list(self._iterators) for message in each.clear()]
            )

    async def _finish(self) -> Coroutine[Any, Any, None]:
        # First the pulls, whose messages no handler would get. Outcomes still count.
        await self._readers.stop_pulling(list(self._readers.queues))
        assert self._service is not None
        await self._service.stop(to_s(self.config.stop_timeout))
        # After the handlers, so that the hook can commit what they have done.
        await self._hooks.revoked(self._readers.queues)
        offsets = self._member.offsets()
        for queue, entry in list(self._readers.queues.items()):
            entry.consumer_closed = True
            await self._readers.stop(queue)
            if await entry.wait_idle(0):
                self._idle.append(queue)
        return self._save_last(offsets)

    async def _save_last(self, offsets: dict[MessageQueue, int]) -> None:
        work: list[Coroutine[Any, Any, None]] = [self._save(offsets)]
        if self._tracer is not None:  # beside the offsets: its brokers may be other ones
            work.append(self._tracer.close())
        await asyncio.gather(*work)

    async def _save(self, offsets: dict[MessageQueue, int]) -> None:
        try:
            await self._store.save(offsets, final=True)
        except RocketPyError as error:
            logger.warning(
                "last offsets not stored: group=%(group)s error=%(error)r",
                {"group": self.group, "error": error},
            )

    async def _leave(self) -> None:
        work: list[Coroutine[Any, Any, None]] = [super()._leave()]
        if self._locks is not None:
            # After the offsets were saved: the next owners of the queues begin with them. A queue
            # whose handler still runs keeps its lock until that expires.
            work.insert(0, within(LEAVE_S, self._locks.give_back(self._idle), self.group))
        await asyncio.gather(*work)

    # ---- receiving

    def _source(self) -> Source[ReceivedMessage[B_co]]:
        if not isinstance(self._service, PulledIterator):
            raise ClosedError(NOT_TO_ITERATE)
        return self._service

    def _workers(self) -> Sequence[asyncio.Task[None]]:
        return () if self._service is None else self._service.tasks

    def _halt(self) -> None:
        assert self._service is not None
        self._service.halt()

    def pause(self, *what: str | MessageQueue) -> None:
        """Pull no more of these topics and queues until `resume`; of all when none is named.

        Messages that were pulled before the pause are still delivered; those that a broker returns
        after it are kept until `resume`. A pause lasts, also for queues that are assigned later,
        and over resets of offsets. Redeliveries come from a topic of the group, which is paused
        with all, or by its name (`"%RETRY%"` and the group's).
        """
        self._readers.pause(chosen(self._instance.config.namespace, what))

    def resume(self, *what: str | MessageQueue) -> None:
        """Pull these topics and queues again; all when none is named."""
        self._readers.resume(chosen(self._instance.config.namespace, what))

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member has now."""
        return sorted(self._readers.queues)

    # ---- queues

    async def _rebalance(self) -> int | None:
        had = set(self._readers.queues)
        try:
            balance = await self._rebalancer.round(self._topics)
        finally:
            # Also after a failure, because queues of other brokers may have been taken.
            await self._hooks.assigned(self._readers.queues.keys() - had)
        # A broker that does not know the member leaves it out: the start must still wait.
        if balance is not Balance.OUTSIDE:
            self._has_queues.set()
        return self._next_round_ms(is_complete=balance is Balance.COMPLETE)

    def _routes_changed(self) -> None:
        self._wake()
        # Not with the next renewal: until the lock of a master that is back, no handler begins.
        if self._running and self._locks is not None and self._locks.follow_routes():
            self._jobs[-1].wake()

    async def _acquire(self, queue: MessageQueue) -> bool:
        # The lock first: its former owner stores the offset before giving the lock up.
        if self._locks is not None and not await self._locks.take(queue):
            return False
        self._readers.begin(queue, await self._finder.find(queue))
        return True

    async def _keep_start(self, queue: MessageQueue, offset: int) -> None:
        await self._store.save({queue: offset}, final=True)

    def _may_run(self, entry: ProcessQueue) -> bool:
        """Whether a handler may begin with a message of the queue."""
        if self._locks is None:
            return True
        return not entry.closing and self._locks.holds(entry.queue)

    def _make_queue(self, queue: MessageQueue) -> ProcessQueue:
        return ProcessQueue(
            queue,
            self._limits,
            give_back=self._give_back,
            clock=self._instance.clock,
            on_ack=self._on_ack,
        )

    async def _release(self, entry: ProcessQueue) -> bool:
        queue, locks = entry.queue, self._locks
        if locks is not None:
            # The next owner must begin after the handler that still runs.
            entry.closing = True
            await self._readers.stop_pulling([queue])
            if not await entry.wait_idle(_DRAIN_S):
                return False
        await self._hooks.revoked([queue])
        # A seek during the awaits above has replaced the entry: its offset is the one to store.
        offset = self._readers.queues.get(queue, entry).commit_offset
        await self._readers.stop(queue)
        logger.info(
            "queue released: group=%(group)s queue=%(queue)s offset=%(offset)s",
            {"group": self.group, "queue": queue, "offset": offset},
        )
        try:
            # Without the lock another member may have committed a later offset by now.
            if offset is not None and (locks is None or locks.holds(queue)):
                await self._store.save({queue: offset}, final=True)
        finally:
            if locks is not None:
                # Also after a failed save: the next owner would wait for the lock to expire.
                await locks.give_back([queue])
        return True

    async def _moved(self, queue: MessageQueue, offset: int) -> None:
        # During a close, a restart would leave a pull loop that nothing stops.
        if self._running:
            await self._member.go_on(queue, offset)

    def _broken(self, error: BaseException) -> None:
        if isinstance(error, RocketPyError):  # the broker refuses: perhaps it is not ours any more
            self._wake()
            return
        self._fail(error)
        if isinstance(self._service, PulledIterator):
            self._service.fail(error)

    # ---- messages

    def _deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        assert self._service is not None
        self._stats.pulled(messages[0].topic, len(messages))
        self._service.deliver(queue, messages)

    async def _reject(
        self, queue: ProcessQueue, message: ReceivedMessage, error: Exception
    ) -> None:
        logger.error(
            "message body not inflated, message redelivered: message=%(message)r error=%(error)s",
            {"message": message, "error": error},
        )
        await self._returns.give_back(queue, message, Rejection.of(error))

    def _deliver_again(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        # The timer of a local retry may fire after the close.
        if self._running:
            assert self._service is not None
            self._service.deliver(queue, messages)

    # ---- offsets

    async def _persist(self) -> int | None:
        self._stats.sample()
        self._redeliver_of_ended_threads()
        await self._store.save(self._member.offsets())
        return None

    async def _sweep(self) -> int | None:
        await self._returns.give_back_overdue(list(self._readers.queues.values()))
        return None

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue to read a queue at an offset; outcomes of its messages so far no longer count.

        Raises:
            TypeError: the offset is no whole number.
            ClientError: the queue is not this member's, also when it was released during the
                call, or the offset is outside of it.
            ClosedError: the consumer was closed.
        """
        self._check_assigned(queue)
        offset = await checked_offset(self._instance, queue, offset)
        self._check_assigned(queue)  # a rebalance or a close may have come during the requests
        await self._member.go_on(queue, offset)

    def _check_assigned(self, queue: MessageQueue) -> None:
        if self._was_closed:
            raise ClosedError("the consumer was closed")
        if queue not in self._readers.queues:
            raise ClientError(f"{queue} is not assigned to this consumer")

    async def commit(self) -> None:
        """Store the offsets now and wait for the brokers' responses."""
        await self._store.save(self._member.offsets(), final=True)

    def health(self) -> ConsumerHealth:
        """Return the state of every queue and what fails in the background."""
        unserved = self._rebalancer.unserved
        return consumer_health(self.group, self._readers, self._jobs, self._failure, unserved)


def _pull_settings(group: str, config: ConsumerConfig) -> PullSettings:
    return PullSettings(
        group=group,
        batch=config.pull_batch,
        batch_bytes=config.pull_batch_bytes,
        interval_ms=to_ms(config.pull_interval),
        suspend_ms=to_ms(config.pull_wait),
        timeout_ms=to_ms(config.pull_timeout),
        error_pause_ms=to_ms(config.pull_error_pause),
        commit_offset=not config.broadcast,
        serializer=config.serializer,
    )
