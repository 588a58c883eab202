"""Consumer of a group that pops: the broker assigns messages instead of queues.

Source: DefaultMQPushConsumerImpl with clientRebalance=false, RebalanceImpl (5.4.0).
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Final

from rocketpy.client.callbacks.handlers import Invoke
from rocketpy.client.cluster.instance import Instance
from rocketpy.client.cluster.periodic_job import PeriodicJob
from rocketpy.client.config import PopConsumerConfig
from rocketpy.client.consumer.consume_stats import ConsumeStats
from rocketpy.client.consumer.dispatch.concurrent_service import ConcurrentService
from rocketpy.client.consumer.dispatch.iterator_service import LOOP_LEFT, IteratorService
from rocketpy.client.consumer.group_consumer import NOT_TO_ITERATE, GroupConsumer
from rocketpy.client.consumer.group_membership import PopMember
from rocketpy.client.consumer.iteration import Source
from rocketpy.client.consumer.offset_store import BrokerOffsetStore, has_any_offset
from rocketpy.client.consumer.rebalance import MissingTopics, check_group_exists
from rocketpy.client.consumer.status_reports import job_failures, queue_failures
from rocketpy.client.health import ConsumerHealth, QueueHealth
from rocketpy.client.messages.outcomes import Rejection
from rocketpy.client.messages.serializers import B_co
from rocketpy.client.options.durations import to_ms, to_s
from rocketpy.client.pop.invisible_messages import InvisibleMessages
from rocketpy.client.pop.ordered_pops import OrderedPops
from rocketpy.client.pop.pop_api import PopRequests
from rocketpy.client.pop.pop_loop import PopLoop, PopSettings
from rocketpy.client.pop.popped_message import PoppedMessage
from rocketpy.client.pop.settling import Settling
from rocketpy.errors import BrokerError, ClosedError, NoRouteError, RocketPyError
from rocketpy.proto.bodies.lock import QueryAssignmentRequestBody
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.pop import INIT_MAX, INIT_MIN
from rocketpy.runtime.clock import Clock

logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_MAX_RETRIES: Final = 16


class PoppedIterator(IteratorService[PoppedMessage]):
    """Popped messages for iterators; settling one acks it.

    Args:
        leases: of the messages.
        settling: runs acks in the background.
        stats: counts outcomes.
        clock: for the time between two messages.
        group: of the consumer.
        auto_ack: whether the next request of a caller acks its messages.
    """

    def __init__(
        self,
        leases: InvisibleMessages,
        settling: Settling,
        stats: ConsumeStats,
        clock: Clock,
        *,
        group: str,
        auto_ack: bool = True,
    ) -> None:
        super().__init__(clock, group=group, auto_ack=auto_ack)
        self._leases = leases
        self._settling = settling
        self._stats = stats
        leases.on_outcome = self._count

    def _count(self, message: PoppedMessage, spent_ms: int, /, *, ok: bool) -> None:
        self._stats.handled(message.topic, 1, spent_ms, ok=ok)

    async def stop(self, timeout_s: float) -> None:  # noqa: ARG002 - the close waits for acks
        """End every iteration, and let the acks begin that a caller has left behind."""
        self.halt()
        await asyncio.sleep(0)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        self._settling.start(work)

    def _begin(self, messages: list[PoppedMessage]) -> list[PoppedMessage]:
        return self._leases.take_held(messages)

    def _end(self, message: PoppedMessage) -> bool:
        self._leases.end([message])
        return self._leases.holds(message)

    async def _fail(self, messages: list[PoppedMessage]) -> None:
        for message in messages:
            self._count(message, 0, ok=False)
        await self._leases.redeliver(messages, LOOP_LEFT)

    def done(self, message: PoppedMessage) -> Awaitable[None]:
        """Return the ack of a message; without effect when it is settled already."""
        self._left.settle([message])
        return self._leases.settle([message], self._clock.monotonic_ms())

    def done_all(self, messages: list[PoppedMessage]) -> list[Awaitable[None]]:
        """Return the acks of messages that were handed out together."""
        return [self.done(message) for message in messages]


class PopConsumer(GroupConsumer[PopConsumerConfig, PoppedMessage[B_co]]):
    """Pops a group's messages; made by `Client.pop_consumer`.

    Members share messages, not queues: any number of them may work on one queue. A message is
    ours for `invisible_time`; it comes again, to any member, when it is not acked by then.

    At least once: a message whose handler takes longer than that is handled twice, unless `renew`
    is on. With a handler, returning means done, raising means again later (`Retry` and `ToDLQ` say
    how). Without one, iterate: a message belongs to the task that received it, and is acked when
    the same task requests the next one, unless it was settled before. One that was delivered when
    a loop was left comes again in the next one, while it is invisible to other members. With
    `auto_ack=False`, the user settles each message by its `ack` and `nack`.

    Example:
        ::

            async with client.pop_consumer("orders", group="billing") as consumer:
                async for message in consumer:
                    print(message.body)
    """

    def __init__(self, instance: Instance, group: str, config: PopConsumerConfig) -> None:
        super().__init__(instance, group, config)
        self._requests = PopRequests(instance.remoting)
        retries = config.max_retries
        self._leases = InvisibleMessages(
            instance,
            group,
            max_messages=config.max_in_hand,
            max_retries=DEFAULT_MAX_RETRIES if retries < 0 else retries,
            serializer=config.serializer,
            backoff=config.retry_backoff,
        )
        self._settings = PopSettings(
            group=group,
            batch=config.pop_batch,
            invisible_ms=to_ms(config.invisible_time),
            poll_ms=to_ms(config.pop_wait),
            init_mode=INIT_MIN if config.start == "earliest" else INIT_MAX,
            is_ordered=config.ordered,
            error_pause_ms=to_ms(config.error_pause),
        )
        self._store = BrokerOffsetStore(instance, group)
        self._init_modes: dict[str, int] = {}  # by topic
        self._loops: dict[MessageQueue, tuple[PopLoop, asyncio.Task[None]]] = {}
        self._settling = Settling(self._leases)
        self._service: ConcurrentService[PoppedMessage] | PoppedIterator | None = None
        self._is_halted = False
        self._unserved = MissingTopics(group, instance.clock)
        self._jobs = [
            PeriodicJob(f"assignment {group}", self._assign, to_ms(config.rebalance_interval))
        ]
        self._jobs.append(
            PeriodicJob(f"renewal {group}", self._renew, self._settings.invisible_ms // 4)
        )
        self._member = PopMember(
            instance,
            group,
            config,
            subscriptions=self._subscriptions,
            stats=self._stats,
            wake=self._wake,
        )
        self._subscribe_all()

    # ---- life

    def _start_service(self, invoke: Invoke | None) -> None:
        config, clock = self.config, self._instance.clock
        self._member.start(invoke)
        if invoke is None:
            self._service = PoppedIterator(
                self._leases,
                self._settling,
                self._stats,
                clock,
                group=self.group,
                auto_ack=config.auto_ack,
            )
        elif config.ordered:
            self._service = OrderedPops(
                invoke,
                concurrency=config.concurrency,
                batch=config.batch,
                stats=self._stats,
                clock=clock,
                leases=self._leases,
                return_soon=self._return_soon,
            )
        else:
            self._service = self._make_concurrent(invoke)

    async def _wait_for_positions(self) -> None:
        for loop, _ in list(self._loops.values()):
            await loop.began.wait()

    async def _finish(self) -> Coroutine[Any, Any, None]:
        assert self._service is not None
        self._halt()
        # Workers that wait for acks would use up the time of handlers, beside that of brokers.
        self._settling.release()
        # Before the wait for handlers: nothing would handle what is popped meanwhile.
        await self._stop_loops(list(self._loops))
        await self._service.stop(to_s(self.config.stop_timeout))
        return self._settle_rest()

    async def _settle_rest(self) -> None:
        """Nack messages that no handler has, and wait for requests that settle messages."""
        for message in self._leases.close():
            self._return_soon(message)
        try:
            await self._settling.wait()
        finally:
            self._leases.drop_all()

    # ---- receiving

    def _source(self) -> Source[PoppedMessage[B_co]]:
        if not isinstance(self._service, PoppedIterator):
            raise ClosedError(NOT_TO_ITERATE)
        return self._service

    def _workers(self) -> Sequence[asyncio.Task[None]]:
        return () if self._service is None else self._service.tasks

    def _halt(self) -> None:
        assert self._service is not None
        self._is_halted = True
        for message in self._service.halt():
            self._return_soon(message)
        for loop, _ in self._loops.values():
            loop.leave()

    @property
    def assignment(self) -> list[MessageQueue]:
        """Queues that this member pops; queue id -1 is all of a broker."""
        return sorted(self._loops)

    @property
    def in_hand(self) -> int:
        """Messages popped and not settled."""
        return len(self._leases)

    def health(self) -> ConsumerHealth:
        """Return the popped queues and the failures of background jobs."""
        reasons = {
            queue: repr(loop.failure)
            for queue, (loop, _) in self._loops.items()
            if loop.failure is not None
        }
        failures = {
            **job_failures(self._jobs),
            **self._unserved.failures(),
            **queue_failures(reasons),
        }
        if self._failure is not None:
            failures["popping"] = repr(self._failure)
        queues = {
            queue: QueueHealth(0, 0, 0, loop.last_pop_ms, reasons.get(queue, ""))
            for queue, (loop, _) in self._loops.items()
        }
        return ConsumerHealth(self.group, queues, failures)

    # ---- what to pop

    async def _assign(self) -> int | None:
        """Ask brokers for the queues of each topic, and begin and stop their loops."""
        is_complete = True
        for topic in self._topics:
            assigned = await self._ask(topic)
            if assigned is None:
                is_complete = False
                continue
            gone = [each for each in self._loops if each.topic == topic and each not in assigned]
            await self._stop_loops(gone)
            fresh = [queue for queue in assigned if queue not in self._loops]
            if fresh and not await self._find_start(topic):
                is_complete = False
                continue
            for queue in fresh:
                self._begin(queue)
        self._stats.sample()
        self._has_queues.set()
        return self._next_round_ms(is_complete=is_complete)

    async def _find_start(self, topic: str) -> bool:
        """Decide where queues without an offset begin; return False when that is not known yet.

        A group that has offsets in other queues of the topic, and no other member, was away when
        the topic got such a queue: it begins with its first message. Another member may just have
        stored the first offsets of a new group.
        """
        if topic in self._init_modes:
            return True
        instance, mode = self._instance, self._settings.init_mode
        queues = await instance.routes.subscribe_queues(topic)
        try:
            is_old = mode == INIT_MAX and await has_any_offset(self._store, queues)
            if is_old and not await self._has_other_members(queues):
                mode = INIT_MIN
        except RocketPyError as error:
            logger.warning(
                "offsets of a group not known, its topic is not popped yet: group=%(group)s "
                "topic=%(topic)s error=%(error)r",
                {"group": self.group, "topic": topic, "error": error},
            )
            return False
        self._init_modes[topic] = mode
        return True

    async def _has_other_members(self, queues: Sequence[MessageQueue]) -> bool:
        """Return whether a broker of the queues knows another member of the group."""
        instance = self._instance
        for address in {instance.routes.master_address(each.broker_name) for each in queues}:
            if address is None:
                continue
            try:
                members = await instance.api.consumer_ids(address, self.group)
            except BrokerError:  # it knows no member
                continue
            if set(members) - {instance.client_id}:
                return True
        return False

    async def _ask(self, topic: str) -> list[MessageQueue] | None:
        """Ask the brokers of a topic, one after the other; return None to keep the assignment.

        A group without a mode (request 401) pops all brokers of the topic.

        Raises:
            SubscriptionGroupNotExistError: no broker lets it in.
            RocketPyError: no broker says what to pop.
        """
        instance = self._instance
        queues = await instance.routes.subscribe_queues(topic)
        self._unserved.note(topic, is_served=bool(queues))
        names = list(dict.fromkeys(each.broker_name for each in queues))
        # So that members do not all ask the same broker.
        instance.rng.shuffle(names)
        body = QueryAssignmentRequestBody(topic, self.group, instance.client_id, "AVG")
        failure: RocketPyError | None = None
        for name in names:
            address = instance.routes.master_address(name)
            if address is None:
                continue
            try:
                timeout_ms = to_ms(instance.config.api_timeout)
                assigned = await self._requests.assignment(address, body, timeout_ms)
            except RocketPyError as error:
                failure = error
            else:
                if assigned is None:  # it knows no member of the group
                    queue = next(each for each in queues if each.broker_name == name)
                    await check_group_exists(instance, self.group, queue)
                whole = [MessageQueue(topic, each, -1) for each in names]
                return whole if assigned == [] else assigned
        if failure is not None:
            raise failure
        if names:
            raise NoRouteError(
                f"no master of {', '.join(sorted(names))} is registered now, and pop reads from "
                "masters only"
            )
        return None

    def _begin(self, queue: MessageQueue) -> None:
        if self._is_halted:
            return
        loop = PopLoop(
            self._instance,
            queue,
            replace(self._settings, init_mode=self._init_modes[queue.topic]),
            self._leases,
            subscription=lambda: self._subscription(queue.topic),
            deliver=self._deliver,
            settle=self._settling.start_bounded,
        )
        task = asyncio.create_task(loop.run(), name=f"rocketpy-pop-{queue}")
        task.add_done_callback(self._loop_ended)
        self._loops[queue] = loop, task

    def _loop_ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        logger.error("pop loop failed: error=%(error)r", {"error": error}, exc_info=error)
        self._fail(error)
        if isinstance(self._service, PoppedIterator):
            self._service.fail(error)

    async def _stop_loops(self, queues: list[MessageQueue]) -> None:
        ended: list[asyncio.Task[None]] = []
        for loop, task in [self._loops.pop(queue) for queue in queues]:
            if loop.leave():
                # The broker may answer the pop any moment: without the loop its messages would stay
                # invisible for their whole time.
                self._instance.let_finish(task)
            else:
                task.cancel()
                ended.append(task)
        if ended:
            await asyncio.wait(ended)

    # ---- messages

    def _deliver(self, messages: list[PoppedMessage]) -> None:
        assert self._service is not None
        if self._is_halted:  # of a pop that was held when this member left: for the next one
            for message in messages:
                self._return_soon(message)
            return
        self._stats.pulled(messages[0].topic, len(messages))
        self._service.deliver(self._settling, messages)

    def _return_soon(self, message: PoppedMessage) -> None:
        """Nack a message without delay, for the next member: no handler here will get it."""
        self._settling.start_bounded(self._leases.nack(message, Rejection(delay_s=0)))

    async def _renew(self) -> int | None:
        """Extend the time of messages that wait for a handler, or of all (option `renew`).

        Messages that wait are not extended after a whole invisible time in which no handler or
        iterator took one: other members may be faster than handlers that hang.
        """
        assert self._service is not None
        self._redeliver_of_ended_threads()
        self._leases.drop_expired()  # otherwise messages that no one settles would end the popping
        invisible_ms = self._settings.invisible_ms
        if self.config.renew:
            messages = self._leases.messages
        elif self._leases.idle_ms < invisible_ms:
            messages = self._service.waiting
        else:
            return None
        # A close does not cancel it: to settle such a message takes its new handle.
        self._settling.start_bounded(self._leases.renew(messages, invisible_ms))
        return None
