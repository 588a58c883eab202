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
from rocketpy.client.consume_service import ConsumeService, HandlerService, IteratorService
from rocketpy.client.consume_stats import ConsumeStats
from rocketpy.client.consumer_health import consumer_health
from rocketpy.client.consumer_members import PushMember
from rocketpy.client.handlers import Invoke, make_invoke
from rocketpy.client.health import ConsumerHealth
from rocketpy.client.instance import Instance
from rocketpy.client.message import ReceivedMessage
from rocketpy.client.offset_store import make_offset_store
from rocketpy.client.periodic import PeriodicJob
from rocketpy.client.process_queue import Limits, ProcessQueue
from rocketpy.client.pull_loop import PullSettings
from rocketpy.client.queue_readers import QueueReaders
from rocketpy.client.rebalance import Rebalancer
from rocketpy.client.reports import send_back_header
from rocketpy.client.start_position import StartFinder
from rocketpy.errors import ClosedError, NoRouteError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.proto.topic_names import retry_topic

logger = logging.getLogger(__name__)

DEFAULT_MAX_RETRIES = 16
TIMEOUT_DELAY_LEVEL = 3
UNBALANCED_PAUSE_MS = 1_000
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

    def __init__(
        self,
        instance: Instance,
        group: str,
        config: ConsumerConfig,
    ) -> None:
        self.group = checked_group(group)
        self.config = config
        self._instance = instance
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._failure: BaseException | None = None
        self._running = False
        self._quick_rounds = QUICK_ROUNDS
        self._stats = ConsumeStats(instance.clock)
        self._limits = Limits(config.max_cached_messages, config.max_cached_bytes, config.max_span)
        self._store = make_offset_store(
            instance, group, broadcast=config.broadcast, directory=config.offset_dir
        )
        self._finder = StartFinder(instance, self._store, config.start)
        self._executor: ThreadPoolExecutor | None = None
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
            acquire=self._acquire,
            release=self._release,
            takeover_pause_ms=config.takeover_pause_ms,
        )
        self._jobs = [
            PeriodicJob(f"rebalance {group}", self._rebalance, config.rebalance_interval_ms),
            PeriodicJob(f"offsets {group}", self._persist, instance.config.persist_interval_ms),
        ]
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
        self._member.start(invoke)
        if invoke is None:
            return IteratorService(stats=self._stats, clock=clock)
        return HandlerService(
            invoke,
            concurrency=config.concurrency,
            batch=config.batch,
            give_back=self._give_back,
            stats=self._stats,
            clock=clock,
        )

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
        for queue in list(self._readers.queues):
            await self._readers.stop(queue)
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
            yield delivery.message
            service.done(delivery)

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

    async def _acquire(self, queue: MessageQueue) -> None:
        self._readers.begin(queue, await self._finder.find(queue))

    def _make_queue(self, queue: MessageQueue) -> ProcessQueue:
        return ProcessQueue(
            queue, self._limits, serializer=self.config.serializer, give_back=self._give_back
        )

    async def _release(self, entry: ProcessQueue) -> None:
        offset = entry.commit_offset
        await self._readers.stop(entry.queue)
        logger.info("group %s: gave %s up at %s", self.group, entry.queue, offset)
        if offset is not None:
            await self._store.save({entry.queue: offset}, final=True)

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
        await self._give_back(queue, message, 0)

    async def _give_back(
        self, queue: ProcessQueue, message: ReceivedMessage, delay_level: int
    ) -> None:
        """Have the broker deliver it again; if it cannot, do so ourselves after a while."""
        if not queue.holds(message):
            return
        if self.config.broadcast:
            logger.warning("broadcast message is not delivered again: %r", message)
            queue.remove(message)
            return
        try:
            await self._send_back(message, delay_level)
        except RocketPyError as error:
            logger.info("%r stays here, giving it back failed: %r", message, error)
            message.retries += 1
            message.ext.reconsume_times += 1
            queue.set_back(message)
            pause_s = self.config.local_retry_ms / 1000
            asyncio.get_running_loop().call_later(pause_s, self._deliver_again, queue, message)
        else:
            queue.remove(message)

    async def _send_back(self, message: ReceivedMessage, delay_level: int) -> None:
        broker_name = message.queue.broker_name
        address = self._instance.routes.master_address(broker_name)
        if address is None:
            raise NoRouteError(f"broker {broker_name} has no master")
        retries = self.config.max_retries
        limit = DEFAULT_MAX_RETRIES if retries < 0 else retries
        header = send_back_header(self.group, message, delay_level, limit)
        await self._instance.api.send_back(address, header)

    def _deliver_again(self, queue: ProcessQueue, message: ReceivedMessage) -> None:
        if self._running and queue.holds(message):
            assert self._service is not None
            self._service.deliver(queue, [message])

    # ---- offsets

    async def _persist(self) -> int | None:
        self._stats.sample()
        await self._give_back_overdue()
        await self._store.save(self._member.offsets())
        return None

    async def _give_back_overdue(self) -> None:
        since_ms = self._instance.clock.monotonic_ms() - self.config.consume_timeout_ms
        for queue in list(self._readers.queues.values()):
            message = queue.overdue(since_ms)
            if message is not None:
                logger.warning("in hand for too long, giving back: %r", message)
                await self._give_back(queue, message, TIMEOUT_DELAY_LEVEL)

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
