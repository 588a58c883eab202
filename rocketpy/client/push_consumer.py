"""A member of a consumer group: its queues, its pulls, its handler or iterator.

Source: DefaultMQPushConsumerImpl (5.4.0).
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

from rocketpy.client.allocate import find_allocation
from rocketpy.client.checks import checked_group, checked_subscription
from rocketpy.client.config import ConsumerConfig
from rocketpy.client.consume_service import (
    DEAD_LETTER,
    ConsumeService,
    HandlerService,
    IteratorService,
)
from rocketpy.client.consume_stats import ConsumeStats
from rocketpy.client.consumer_health import consumer_health
from rocketpy.client.consumer_members import PushMember
from rocketpy.client.handlers import Invoke, make_invoke
from rocketpy.client.health import ConsumerHealth
from rocketpy.client.instance import Instance
from rocketpy.client.message import ReceivedMessage
from rocketpy.client.offset_store import make_offset_store
from rocketpy.client.ordered_service import OrderedService, key_lane, queue_lane
from rocketpy.client.periodic import PeriodicJob
from rocketpy.client.process_queue import GiveBack, Limits, ProcessQueue
from rocketpy.client.pull_loop import PullSettings
from rocketpy.client.queue_locks import RENEW_INTERVAL_MS, QueueLockKeeper
from rocketpy.client.queue_readers import QueueReaders
from rocketpy.client.rebalance import Rebalancer
from rocketpy.client.redelivery import Redelivery
from rocketpy.client.returns import Returns
from rocketpy.client.start_position import StartFinder
from rocketpy.client.tracer import Tracer
from rocketpy.errors import ClosedError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.proto.topic_names import retry_topic
from rocketpy.proto.trace import CONSUMED

logger = logging.getLogger(__name__)

UNBALANCED_PAUSE_MS = 1_000
# What is consumed in order is never far apart.
_ANY_SPAN = 1 << 62
# Not longer, because the lock's other queues and the next rounds wait for it.
_DRAIN_S = 1.0
# A topic nobody serves is looked for this often in quick rounds, then with the normal interval.
QUICK_ROUNDS = 15


class Consumer:
    """Receives a group's messages; made by `Client.consumer`.

    At least once: after a crash or a change of members a message may come again.
    With a handler, returning means done, raising means again later
    (`Retry` and `ToDLQ` say how).
    Without one, iterate: a message is done when the next one is asked for.

    Example:
        ::

            async with client.consumer("orders", group="billing", filter="paid") as consumer:
                async for message in consumer:
                    print(message.queue, message.offset, message.body)
    """

    def __init__(self, instance: Instance, group: str, config: ConsumerConfig) -> None:
        self.group = checked_group(group)
        self.config = config
        self._instance = instance
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._failure: BaseException | None = None
        self._running = False
        self._quick_rounds = QUICK_ROUNDS
        self._stats = ConsumeStats(instance.clock)
        span = _ANY_SPAN if config.ordered else config.max_span
        self._limits = Limits(config.max_cached_messages, config.max_cached_bytes, span)
        self._store = make_offset_store(
            instance, group, broadcast=config.broadcast, directory=config.offset_dir
        )
        self._finder = StartFinder(instance, self._store, config.start, keep=True)
        self._redelivery = Redelivery(instance, group, config.max_retries)
        self._returns = self._make_returns()
        self._give_back: GiveBack = self._returns.give_back
        self._executor: ThreadPoolExecutor | None = None
        self._tracer: Tracer | None = None
        self._service: ConsumeService | None = None
        self._closed = asyncio.Event()
        self._readers = QueueReaders(
            instance,
            _pull_settings(group, config),
            self._make_queue,
            subscription=self._subscriptions.__getitem__,
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
            saw=self._finder.saw,
            acquire=self._acquire,
            release=self._release,
            takeover_pause_ms=config.takeover_pause_ms,
        )
        self._locks = self._make_locks()
        self._jobs = self._make_jobs()
        self._member = PushMember(
            instance,
            group,
            config,
            subscriptions=self._subscriptions,
            readers=self._readers,
            store=self._store,
            stats=self._stats,
            wake=self._wake_rebalance,
        )
        for topic in [config.topic] if isinstance(config.topic, str) else config.topic:
            self.subscribe(topic, config.filter, config.sql)

    def _make_returns(self) -> Returns:
        config = self.config
        return Returns(
            None if config.broadcast else self._redelivery,
            clock=self._instance.clock,
            deliver=self._deliver_again,
            local_retry_ms=config.local_retry_ms,
            consume_timeout_ms=config.consume_timeout_ms,
        )

    def _make_locks(self) -> QueueLockKeeper | None:
        if not self.config.is_ordered or self.config.broadcast:
            return None
        queues = self._readers.queues
        return QueueLockKeeper(self._instance, self.group, queues, self._wake_rebalance)

    def _make_jobs(self) -> list[PeriodicJob]:
        persist_ms = self._instance.config.persist_interval_ms
        group, config = self.group, self.config
        jobs = [
            PeriodicJob(f"rebalance {group}", self._rebalance, config.rebalance_interval_ms),
            PeriodicJob(f"offsets {group}", self._persist, persist_ms),
        ]
        if self._locks is not None:
            jobs.append(PeriodicJob(f"locks {group}", self._locks.renew, RENEW_INTERVAL_MS))
        elif not config.is_ordered:
            jobs.append(PeriodicJob(f"overdue {group}", self._sweep, persist_ms))
        return jobs

    # ---- life

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.close()

    def subscribe(self, topic: str, filter: str = "*", sql: str = "") -> None:  # noqa: A002
        """Subscribe to a topic, one more or with another filter; before or after the start.

        Args:
            topic: its name.
            filter: tags, `"a || b"` or `"*"`.
            sql: instead of tags, a condition on properties.

        Raises:
            ExpressionError: `sql` is no condition; says where.
            ConfigError: the name or the filter is not usable.
        """
        topic = wrap_namespace(self._instance.config.namespace, topic)
        version = self._instance.next_sub_version()
        self._subscriptions[topic] = checked_subscription(topic, filter, sql, version)
        if self._running:
            self._instance.heartbeat_soon()
            self._wake_rebalance()

    async def start(self) -> None:
        """Join the group and begin to receive.

        Raises:
            NoNameServerError: none is configured or none answers.
            ClosedError: the client is not started.
            ClientError: this client already has a consumer of the group.
            BrokerError: a broker does not take a condition it subscribes with.
        """
        if self._running:
            return
        instance = self._instance
        if not instance.is_running or self._closed.is_set():
            raise ClosedError("the consumer's client is not started, or the consumer was closed")
        if not self.config.broadcast:
            self.subscribe(retry_topic(self.group))
        for topic in list(self._subscriptions):
            await instance.routes.refresh(topic)
        await instance.check_subscriptions(self.group, self._subscriptions.values())
        instance.add_consumer(self._member)
        self._running = True
        self._service = self._make_service()
        try:
            await instance.heartbeat()
        except RocketPyError as error:  # the heartbeat job goes on trying, health() shows it
            logger.warning("first heartbeat of group %s failed: %r", self.group, error)
        for job in self._jobs:
            job.start()

    def _make_service(self) -> ConsumeService:
        config, clock = self.config, self._instance.clock
        invoke: Invoke | None = None
        if config.handler is not None:
            self._executor = ThreadPoolExecutor(config.concurrency, f"rocketpy-{self.group}")
            invoke = make_invoke(config.handler, batch=config.batch, executor=self._executor)
        if config.trace:
            self._tracer = Tracer(self._instance, self.group, "CONSUME", config.trace_topic)
            invoke = None if invoke is None else self._tracer.traced(invoke)
        self._member.start(invoke)
        if invoke is None:
            return IteratorService(stats=self._stats, clock=clock)
        if config.is_ordered:
            return self._make_ordered(invoke)
        return HandlerService(
            invoke,
            concurrency=config.concurrency,
            batch=config.batch,
            give_back=self._give_back,
            stats=self._stats,
            clock=clock,
        )

    def _make_ordered(self, invoke: Invoke) -> OrderedService:
        config, redelivery = self.config, self._redelivery

        async def bury(message: ReceivedMessage) -> None:
            await redelivery.send_copy(message, DEAD_LETTER)

        service = OrderedService(
            invoke,
            concurrency=config.concurrency,
            batch=config.batch,
            lane_of=queue_lane if config.ordered else key_lane(config.key_of),
            may_run=self._may_run,
            bury=None if config.broadcast else bury,
            max_retries=config.max_retries,
            suspend_ms=config.suspend_queue_ms,
            stats=self._stats,
            clock=self._instance.clock,
        )
        self._give_back = service.give_back
        return service

    async def close(self) -> None:
        """Stop pulling, finish handlers in hand, store offsets, leave the group."""
        if not self._running:
            self._closed.set()
            return
        self._running = False
        for job in self._jobs:
            await job.stop()
        await self._readers.silence(list(self._readers.queues))
        assert self._service is not None
        await self._service.stop(self.config.stop_timeout_s)
        try:
            await self.commit()
        except RocketPyError as error:
            logger.warning("last offsets of group %s were not stored: %r", self.group, error)
        for queue, entry in list(self._readers.queues.items()):
            await self._readers.stop(queue)
            if self._locks is not None and await entry.wait_idle(0):
                await self._locks.give_back(queue)
        if self._tracer is not None:
            await self._tracer.close()
        await self._instance.remove_consumer(self._member)
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
        self._closed.set()

    async def wait_closed(self) -> None:
        """Wait until closed; raises the failure that stopped a background task, if one did."""
        await self._closed.wait()
        if self._failure is not None:
            raise self._failure

    # ---- receiving

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[ReceivedMessage]:
        service = self._service
        if not isinstance(service, IteratorService):
            msg = "start the consumer first (async with), and give it no handler, to iterate"
            raise ClosedError(msg)
        while (delivery := await service.next()) is not None:
            tracer = self._tracer
            end = None if tracer is None else tracer.begin_consuming([delivery.message])
            yield delivery.message
            service.done(delivery)
            if end is not None:
                end(CONSUMED)

    def pause(self) -> None:
        """Pull no more until `resume`; what is pulled already is still delivered."""
        self._readers.pause()

    def resume(self) -> None:
        """Pull again."""
        self._readers.resume()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member has now."""
        return sorted(self._readers.queues)

    @property
    def stats(self) -> ConsumeStats:
        """Counts and rates by topic."""
        return self._stats

    # ---- queues

    async def _rebalance(self) -> int | None:
        balanced = await self._rebalancer.round(self._subscriptions)
        if balanced:
            self._quick_rounds = QUICK_ROUNDS
            return None
        self._quick_rounds -= 1
        return UNBALANCED_PAUSE_MS if self._quick_rounds >= 0 else None

    def _wake_rebalance(self) -> None:
        """Look at once who owns which queue."""
        if self._running:
            self._quick_rounds = QUICK_ROUNDS
            self._jobs[0].wake()

    async def _acquire(self, queue: MessageQueue) -> bool:
        if self._locks is not None and not await self._locks.take(queue):
            return False
        self._readers.begin(queue, await self._finder.find(queue))
        return True

    def _may_run(self, entry: ProcessQueue) -> bool:
        """Whether a handler may begin with a message of the queue."""
        if self._locks is None:
            return True
        return not entry.closing and self._locks.holds(entry.queue)

    def _make_queue(self, queue: MessageQueue) -> ProcessQueue:
        return ProcessQueue(
            queue,
            self._limits,
            serializer=self.config.serializer,
            give_back=self._returns.give_back,
            namespace=self._instance.config.namespace,
        )

    async def _release(self, entry: ProcessQueue) -> bool:
        queue, locks = entry.queue, self._locks
        if locks is not None:
            # Whoever has it next begins after the handler that still runs.
            entry.closing = True
            await self._readers.silence([queue])
            if not await entry.wait_idle(_DRAIN_S):
                return False
        offset = entry.commit_offset
        await self._readers.stop(queue)
        logger.info("group %s: gave %s up at %s", self.group, queue, offset)
        try:
            # Without the lock somebody else may have come further by now.
            if offset is not None and (locks is None or locks.holds(queue)):
                await self._store.save({queue: offset}, final=True)
        finally:
            if locks is not None:
                await locks.give_back(queue)
        return True

    async def _moved(self, queue: MessageQueue, offset: int) -> None:
        if self._running:
            await self._member.go_on(queue, offset)

    def _broken(self, error: BaseException) -> None:
        if isinstance(error, RocketPyError):  # the broker refuses: perhaps it is not ours any more
            self._wake_rebalance()
            return
        self._failure = error
        if isinstance(self._service, IteratorService):
            self._service.fail(error)

    # ---- messages

    def _deliver(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        assert self._service is not None
        self._stats.pulled(messages[0].topic, len(messages))
        self._service.deliver(queue, messages)

    async def _reject(
        self, queue: ProcessQueue, message: ReceivedMessage, error: Exception
    ) -> None:
        logger.error("the body of %r cannot be read, giving it back: %s", message, error)
        await self._returns.give_back(queue, message, 0)

    def _deliver_again(self, queue: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        if self._running:
            assert self._service is not None
            self._service.deliver(queue, messages)

    # ---- offsets

    async def _persist(self) -> int | None:
        self._stats.sample()
        await self._store.save(self._member.offsets())
        return None

    async def _sweep(self) -> int | None:
        await self._returns.give_back_overdue(list(self._readers.queues.values()))
        return None

    async def commit(self) -> None:
        """Store the offsets now and wait for the brokers' responses."""
        await self._store.save(self._member.offsets(), final=True)

    def health(self) -> ConsumerHealth:
        """Return the state of every queue and what fails in the background."""
        return consumer_health(self.group, self._readers, self._jobs, self._failure)


def _pull_settings(group: str, config: ConsumerConfig) -> PullSettings:
    return PullSettings(
        group=group,
        batch=config.pull_batch,
        batch_bytes=config.pull_batch_bytes,
        interval_ms=config.pull_interval_ms,
        suspend_ms=config.suspend_ms,
        timeout_ms=config.pull_timeout_ms,
        error_pause_ms=config.pull_error_pause_ms,
        commit_offset=not config.broadcast,
    )
