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
from rocketpy.client.config import ConsumerConfig
from rocketpy.client.consume_service import ConsumeService, HandlerService, IteratorService
from rocketpy.client.consume_stats import ConsumeStats
from rocketpy.client.handlers import Invoke, make_invoke
from rocketpy.client.health import ConsumerHealth, queue_health
from rocketpy.client.instance import Instance
from rocketpy.client.message import ReceivedMessage
from rocketpy.client.offset_store import make_offset_store
from rocketpy.client.periodic import PeriodicJob
from rocketpy.client.process_queue import Limits, ProcessQueue
from rocketpy.client.pull_loop import PullLoop, PullSettings
from rocketpy.client.rebalance import Rebalancer
from rocketpy.client.reports import (
    consume_and_report,
    nobody_handles,
    push_properties,
    running_info,
    send_back_header,
)
from rocketpy.client.start_position import StartFinder, consume_from_where
from rocketpy.errors import ClosedError, ConfigError, NoRouteError, RocketPyError
from rocketpy.proto.bodies.heartbeat import (
    CONSUME_PASSIVELY,
    MODEL_BROADCASTING,
    MODEL_CLUSTERING,
    ConsumerData,
)
from rocketpy.proto.bodies.running import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from rocketpy.proto.message import MessageExt
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import SubscriptionData, build_subscription
from rocketpy.proto.topic_names import retry_topic
from rocketpy.proto.validators import check_group, check_topic

logger = logging.getLogger(__name__)

DEFAULT_MAX_RETRIES = 16
TIMEOUT_DELAY_LEVEL = 3
UNBALANCED_PAUSE_MS = 1_000
# A topic nobody serves is looked for this often in quick rounds, then with the normal interval.
QUICK_ROUNDS = 15


class Consumer:
    """Receives a group's messages; made by :meth:`rocketpy.client.client.Client.consumer`.

    At least once: after a crash or a change of members a message may come again.
    With a handler, returning means done, raising means again later
    (:class:`~rocketpy.client.outcomes.Retry` and :class:`~rocketpy.client.outcomes.ToDLQ` say how).
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
        reason = check_group(group)
        if reason is not None:
            raise ConfigError(reason, key="group")
        self.group = group
        self.config = config
        self._instance = instance
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._owned: dict[MessageQueue, ProcessQueue] = {}
        self._loops: dict[MessageQueue, asyncio.Task[None]] = {}
        self._pull_failures: dict[MessageQueue, str] = {}
        self._failure: BaseException | None = None
        self._running = False
        self._started_ms = 0
        self._quick_rounds = QUICK_ROUNDS
        self._stats = ConsumeStats(instance.clock)
        self._limits = Limits(config.max_cached_messages, config.max_cached_bytes, config.max_span)
        self._store = make_offset_store(
            instance, group, broadcast=config.broadcast, directory=config.offset_dir
        )
        self._finder = StartFinder(instance, self._store, config.start)
        self._executor: ThreadPoolExecutor | None = None
        self._invoke: Invoke | None = None
        self._service: ConsumeService | None = None
        self._closed = asyncio.Event()
        self._rebalancer = Rebalancer(
            instance,
            group,
            None if config.broadcast else find_allocation(config.allocation),
            self._owned,
            acquire=self._acquire,
            release=self._release,
            takeover_pause_ms=config.takeover_pause_ms,
        )
        self._jobs = [
            PeriodicJob(f"rebalance {group}", self._rebalance, config.rebalance_interval_ms),
            PeriodicJob(f"offsets {group}", self._persist, instance.config.persist_interval_ms),
        ]
        self._settings = PullSettings(
            group=group,
            batch=config.pull_batch,
            batch_bytes=config.pull_batch_bytes,
            interval_ms=config.pull_interval_ms,
            suspend_ms=config.suspend_ms,
            timeout_ms=config.pull_timeout_ms,
            error_pause_ms=config.pull_error_pause_ms,
            commit_offset=not config.broadcast,
        )
        for topic in [config.topic] if isinstance(config.topic, str) else config.topic:
            self.subscribe(topic, config.filter, config.expression_type)

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

    def subscribe(self, topic: str, filter: str = "*", expression_type: str = "TAG") -> None:  # noqa: A002
        """Want (another) topic; can be called before and after the start.

        Args:
            topic: its name.
            filter: ``"a || b"``, ``"*"``, or a condition when ``expression_type`` is SQL92.
            expression_type: ``TAG`` or ``SQL92``.

        Raises:
            ConfigError: the name or the expression is not usable.
        """
        reason = check_topic(topic)
        if reason is not None:
            raise ConfigError(reason, key="topic")
        now_ms = self._instance.clock.time_ms()
        try:
            subscription = build_subscription(topic, filter, expression_type, sub_version=now_ms)
        except ValueError as error:
            raise ConfigError(str(error), key="filter") from error
        self._subscriptions[topic] = subscription
        if self._running:
            self._instance.heartbeat_soon()
            self.wake_rebalance()

    async def start(self) -> None:
        """Join the group and begin to receive.

        Raises:
            NoNameServerError: none is configured or none answers.
            ClosedError: the client is not started.
            ClientError: this client already has a consumer of the group.
        """
        if self._running:
            return
        instance = self._instance
        if not instance.is_running or self._closed.is_set():
            raise ClosedError("the consumer's client is not started, or the consumer was closed")
        if not self.config.broadcast:
            self.subscribe(retry_topic(self.group))
        for topic in self._subscriptions:
            await instance.routes.refresh(topic)
        instance.add_consumer(self)
        self._running = True
        self._started_ms = instance.clock.time_ms()
        self._service = self._make_service()
        try:
            await instance.heartbeat()
        except RocketPyError as error:  # the heartbeat job goes on trying, health() shows it
            logger.warning("first heartbeat of group %s failed: %r", self.group, error)
        for job in self._jobs:
            job.start()

    def _make_service(self) -> ConsumeService:
        config, clock = self.config, self._instance.clock
        if config.handler is None:
            return IteratorService(stats=self._stats, clock=clock)
        self._executor = ThreadPoolExecutor(config.concurrency, f"rocketpy-{self.group}")
        self._invoke = make_invoke(config.handler, batch=config.batch, executor=self._executor)
        return HandlerService(
            self._invoke,
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
        await self._stop_loops(list(self._loops))
        assert self._service is not None
        await self._service.stop(self.config.stop_timeout_s)
        try:
            await self._store.save(self._offsets(), final=True)
        except RocketPyError as error:
            logger.warning("last offsets of group %s were not stored: %r", self.group, error)
        for queue in self._owned.values():
            queue.drop()
        self._owned.clear()
        await self._instance.remove_consumer(self)
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
        """Pull no more until :meth:`resume`; what is pulled already is still delivered."""
        for queue in self._owned.values():
            queue.pause()

    def resume(self) -> None:
        """Pull again."""
        for queue in self._owned.values():
            queue.resume()

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues this member has now."""
        return sorted(self._owned)

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

    def wake_rebalance(self) -> None:
        """Look at once who owns which queue."""
        if self._running:
            self._quick_rounds = QUICK_ROUNDS
            self._jobs[0].wake()

    async def _acquire(self, queue: MessageQueue) -> None:
        self._begin(queue, await self._finder.find(queue))

    def _begin(self, queue: MessageQueue, offset: int) -> None:
        process_queue = ProcessQueue(
            queue, self._limits, serializer=self.config.serializer, give_back=self._give_back
        )
        process_queue.next_pull_offset = offset
        assert self._service is not None
        loop = PullLoop(
            self._instance,
            process_queue,
            self._subscriptions[queue.topic],
            self._settings,
            deliver=self._deliver,
            reject=self._reject,
            offset_moved=self._offset_moved,
            on_failure=self._note_pull_failure,
        )
        self._owned[queue] = process_queue
        task = asyncio.create_task(loop.run(), name=f"rocketpy-pull-{queue}")
        task.add_done_callback(self._loop_ended)
        self._loops[queue] = task
        logger.info("group %s: reading %s from %d", self.group, queue, offset)

    async def _release(self, process_queue: ProcessQueue) -> None:
        queue = process_queue.queue
        offset = process_queue.commit_offset
        process_queue.drop()
        self._owned.pop(queue, None)
        self._pull_failures.pop(queue, None)
        await self._stop_loops([queue])
        logger.info("group %s: gave %s up at %s", self.group, queue, offset)
        if offset is not None:
            await self._store.save({queue: offset}, final=True)

    async def _stop_loops(self, queues: list[MessageQueue]) -> None:
        current = asyncio.current_task()
        tasks = [task for queue in queues if (task := self._loops.pop(queue, None)) is not None]
        waited = [task for task in tasks if task is not current]
        for task in waited:
            task.cancel()
        if waited:
            await asyncio.wait(waited)

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            return
        error = task.exception()
        assert error is not None
        logger.error("pulling stopped by an unexpected error: %r", error, exc_info=error)
        self._failure = error
        if isinstance(self._service, IteratorService):
            self._service.fail(error)

    async def _offset_moved(self, process_queue: ProcessQueue, offset: int) -> None:
        """Start the queue afresh where the broker says; what is in hand no longer counts."""
        queue = process_queue.queue
        process_queue.drop()
        self._loops.pop(queue, None)
        await self._store.save({queue: offset}, final=True)
        if self._owned.get(queue) is process_queue and self._running:
            self._begin(queue, offset)

    def _note_pull_failure(self, queue: ProcessQueue, error: Exception | None) -> None:
        if error is None:
            self._pull_failures.pop(queue.queue, None)
            return
        self._pull_failures[queue.queue] = repr(error)
        if isinstance(error, RocketPyError) and not error.retriable:
            self.wake_rebalance()

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

    def _offsets(self) -> dict[MessageQueue, int]:
        return {
            queue: offset
            for queue, entry in self._owned.items()
            if (offset := entry.commit_offset) is not None
        }

    async def _persist(self) -> int | None:
        self._stats.sample()
        await self._give_back_overdue()
        await self._store.save(self._offsets())
        return None

    async def _give_back_overdue(self) -> None:
        since_ms = self._instance.clock.monotonic_ms() - self.config.consume_timeout_ms
        for queue in list(self._owned.values()):
            message = queue.overdue(since_ms)
            if message is not None:
                logger.warning("in hand for too long, giving back: %r", message)
                await self._give_back(queue, message, TIMEOUT_DELAY_LEVEL)

    async def commit(self) -> None:
        """Store the offsets now and wait for the brokers' answers."""
        await self._store.save(self._offsets(), final=True)

    # ---- what the instance and brokers ask

    def heartbeat_data(self) -> ConsumerData:
        """Return the group's part of the heartbeat."""
        return ConsumerData(
            group_name=self.group,
            consume_type=CONSUME_PASSIVELY,
            message_model=MODEL_BROADCASTING if self.config.broadcast else MODEL_CLUSTERING,
            consume_from_where=consume_from_where(self.config.start),
            subscription_data_set=list(self._subscriptions.values()),
        )

    async def reset_offsets(self, offsets: dict[MessageQueue, int]) -> None:
        """Go on from these offsets in the queues it has."""
        for queue, offset in offsets.items():
            process_queue = self._owned.get(queue)
            if process_queue is None:
                continue
            process_queue.drop()
            await self._stop_loops([queue])
            await self._store.save({queue: offset}, final=True)
            if self._owned.get(queue) is process_queue and self._running:
                self._begin(queue, offset)

    def consumer_status(self, topic: str) -> dict[MessageQueue, int]:
        """Return what would be committed now, by queue."""
        return {queue: at for queue, at in self._offsets().items() if queue.topic == topic}

    def running_info(self) -> ConsumerRunningInfo:
        """Return the report on queues, rates and settings."""
        return running_info(
            self._owned,
            self._subscriptions.values(),
            {topic: self._stats.report(topic) for topic in self._subscriptions},
            push_properties(
                self._instance.name_servers.addresses, self.config.concurrency, self._started_ms
            ),
        )

    async def consume_directly(
        self, message: MessageExt, broker_name: str
    ) -> ConsumeMessageDirectlyResult:
        """Call the handler with one message, outside of any queue, and report how it went."""
        if self._invoke is None:
            return nobody_handles("this consumer has no handler to call")
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        received = ReceivedMessage(message, queue, serializer=self.config.serializer)
        return await consume_and_report(self._invoke, received, self._instance.clock)

    def health(self) -> ConsumerHealth:
        """Return the state of every queue and what fails in the background."""
        failures = {job.name: repr(job.failure) for job in self._jobs if job.failure is not None}
        if self._failure is not None:
            failures["pulling"] = repr(self._failure)
        return ConsumerHealth(
            self.group,
            {
                queue: queue_health(entry, self._pull_failures.get(queue, ""))
                for queue, entry in self._owned.items()
            },
            failures,
        )
