"""Pop consumption as a feature of the broker: builds its parts and connects them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.feature import Feature
from rocketpy.broker.filters.message_filters import ConsumerFilter, ExpressionCache
from rocketpy.broker.long_polling.suspended_requests import SuspendedRequests
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.json_document import JsonDocument
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.pull.pull import PullCounter
from rocketpy.broker.pop.ack import AckOperation
from rocketpy.broker.pop.acting import (
    ActingOffsets,
    ActingRevive,
    EscapedRetryTopics,
    PopEscape,
)
from rocketpy.broker.pop.check_points import CheckPointBuffer
from rocketpy.broker.pop.checks import PopChecks
from rocketpy.broker.pop.order_info import OrderTable
from rocketpy.broker.pop.peek import NotificationOperation, PeekOperation
from rocketpy.broker.pop.pop import MakeFilter, PopOperation
from rocketpy.broker.pop.pop_locks import PopLocks
from rocketpy.broker.pop.positions import PopPositions
from rocketpy.broker.pop.queues import PopQueues
from rocketpy.broker.pop.requests import PopAckProcessor, PopMessageProcessor
from rocketpy.broker.pop.revive.revive import RetryTopics, ReviveQueue, Reviver, ReviveService
from rocketpy.broker.pop.revive.revive_log import ReviveLog, Timer
from rocketpy.broker.pop.revive.revive_sink import JoinedQueue
from rocketpy.broker.pop.suspended_pops import Listener, SuspendedPops
from rocketpy.broker.pop.take import QueueTaker
from rocketpy.broker.request_table import RequestTable
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.proto.pop import revive_topic
from rocketpy.proto.subscription import EXPRESSION_SQL92, is_tag_type
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.runtime.clock import Clock
from rocketpy.store.interfaces import RecentMessages
from rocketpy.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PopNeeds:
    """Parts of the broker that pop consumption depends on.

    Attributes:
        store: the message store.
        put: stores messages that are redelivered.
        aside: parks those whose retry topic cannot store them.
        timer: schedules check points and acks.
        has_timer: whether the timer is enabled.
        topics: topic table.
        groups: group table.
        offsets: committed offsets.
        recent: distinguishes recent messages from old ones.
        order_file: consumerOrderInfo.json.
        stats: counters.
        config: the broker's settings.
        sync_flush: whether responses wait until check points and acks are on disk.
        clock: time.
        escape: sends messages to another broker group, at a slave that may act as master.
    """

    store: MessageStore
    put: SystemWriter
    aside: PutRetry
    timer: Timer
    has_timer: bool
    topics: TopicTable
    groups: SubscriptionGroupTable
    offsets: ConsumerOffsets
    recent: RecentMessages
    order_file: JsonDocument
    stats: PullCounter
    config: BrokerConfig
    sync_flush: bool
    clock: Clock
    escape: PopEscape | None = None


def build_pop(
    needs: PopNeeds,
    *,
    listen: Callable[[Listener], None],
    pool: BusinessPool,
    rng: random.Random,
) -> Feature:
    """Build the feature.

    Args:
        needs: the parts it depends on.
        listen: subscribes a listener to message arrivals.
        pool: runs resumed pops.
        rng: chooses the first queue of a pop.
    """
    store, config, clock = needs.store, needs.config, needs.clock
    positions = PopPositions(needs.offsets, store, needs.recent)
    order = _order_table(needs)
    locks = PopLocks()
    revive_log = _revive_log(needs)
    buffer = _buffer(needs, revive_log, positions)
    pop_waits = _suspended("SuspendedPops", config, pool)
    notification_waits = _suspended("SuspendedNotifications", config, pool)
    waiters = SuspendedPops(pop_waits, listen)
    needs.offsets.on_reset.append(waiters.on_reset)
    queues = PopQueues(needs.topics, positions, order, store, config=config, clock=clock)
    checks = PopChecks(needs.topics, needs.groups)
    taker = _taker(needs, positions, locks, order, buffer, revive_log)
    pops = _pops(needs, checks, queues, taker, waiters, rng)
    notifications = NotificationOperation(
        checks,
        queues,
        waiters=SuspendedPops(notification_waits, listen),
        pops=waiters,
        config=config,
        clock=clock,
    )
    peeks = PeekOperation(
        checks, queues, positions, store, stats=needs.stats, config=config, rng=rng
    )
    messages = PopMessageProcessor(pops, peeks, notifications, store, clock)
    acks = PopAckProcessor(_acks(needs, locks, order, buffer, revive_log, waiters), store)

    def add_requests(table: RequestTable) -> None:
        table.add("pull", messages.processors)
        table.add("ack", acks.processors)

    def configure(changed: BrokerConfig) -> None:
        for part in (pops, peeks, notifications, taker, queues, buffer):
            part.configure(changed)

    revive = _revive_service(needs, revive_log)
    acting = None if needs.escape is None else _acting(needs, needs.escape, revive_log, buffer)
    return Feature(
        name="pop",
        services=(order, buffer, positions, revive),
        loop_services=(pop_waits, notification_waits),
        states=(order, buffer, positions),
        # A slave keeps check points in memory until their messages are acked.
        masters_only=(buffer, revive),
        acting=(acting or revive,),
        listeners=(messages,),
        add_requests=add_requests,
        configure=configure,
    )


def _suspended(name: str, config: BrokerConfig, pool: BusinessPool) -> SuspendedRequests:
    return SuspendedRequests(name, config.max_pop_polling_size, config.pop_polling_size, pool=pool)


def _revive_log(needs: PopNeeds) -> ReviveLog:
    return ReviveLog(
        needs.timer if needs.escape is None else needs.escape.sink,
        needs.store,
        cluster_name=needs.config.broker_cluster_name,
        queue_nums=partial(_revive_queue_nums, needs),
        clock=needs.clock,
    )


def _revive_queue_nums(needs: PopNeeds) -> int:
    """Return the number of revive queues; after it was lowered, the old ones are still read."""
    config = needs.config
    known = needs.topics.get(revive_topic(config.broker_cluster_name))
    return max(config.revive_queue_num, 0 if known is None else known.read_queue_nums)


def _buffer(needs: PopNeeds, revive_log: ReviveLog, positions: PopPositions) -> CheckPointBuffer:
    return CheckPointBuffer(
        revive_log,
        positions,
        config=needs.config,
        sync_flush=needs.sync_flush,
        clock=needs.clock,
    )


def _order_table(needs: PopNeeds) -> OrderTable:
    topics, groups = needs.topics, needs.groups

    def queue_count(topic: str) -> int:
        found = topics.get(topic)
        return 0 if found is None else found.read_queue_nums

    return OrderTable(
        needs.order_file,
        needs.clock,
        queue_count=queue_count,
        has_group=lambda group: groups.get(group) is not None,
        interval_ms=needs.config.flush_consumer_offset_interval,
    )


def _taker(
    needs: PopNeeds,
    positions: PopPositions,
    locks: PopLocks,
    order: OrderTable,
    buffer: CheckPointBuffer,
    revive_log: ReviveLog,
) -> QueueTaker:
    return QueueTaker(
        needs.store,
        positions=positions,
        locks=locks,
        order=order,
        buffer=buffer,
        revive_log=revive_log,
        stats=needs.stats,
        config=needs.config,
        sync_flush=needs.sync_flush,
    )


def _pops(
    needs: PopNeeds,
    checks: PopChecks,
    queues: PopQueues,
    taker: QueueTaker,
    waiters: SuspendedPops,
    rng: random.Random,
) -> PopOperation:
    return PopOperation(
        checks=checks,
        queues=queues,
        taker=taker,
        waiters=waiters,
        make_filter=_filters(),
        revive_queue_nums=needs.config.revive_queue_num,
        has_timer=needs.has_timer,
        config=needs.config,
        clock=needs.clock,
        rng=rng,
    )


def _acks(
    needs: PopNeeds,
    locks: PopLocks,
    order: OrderTable,
    buffer: CheckPointBuffer,
    revive_log: ReviveLog,
    waiters: SuspendedPops,
) -> AckOperation:
    return AckOperation(
        topics=needs.topics,
        ends=needs.store,
        offsets=needs.offsets,
        locks=locks,
        order=order,
        buffer=buffer,
        revive_log=revive_log,
        waiters=waiters,
        broker_name=needs.config.broker_name,
        sync_flush=needs.sync_flush,
        clock=needs.clock,
    )


def _revive_service(needs: PopNeeds, revive_log: ReviveLog) -> ReviveService:
    config, store = needs.config, needs.store
    reviver = Reviver(
        store,
        needs.put,
        needs.aside,
        revive_log,
        retry_topics=RetryTopics(needs.topics, needs.offsets, is_v2=config.enable_retry_topic_v2),
        topics=needs.topics,
        groups=needs.groups,
        clock=needs.clock,
    )

    def queues() -> list[ReviveQueue]:
        return [
            ReviveQueue(
                SystemQueue(store, revive_log.topic, queue_id),
                store,
                reviver,
                offsets=needs.offsets,
                timer=needs.timer,
                clock=needs.clock,
            )
            for queue_id in range(_revive_queue_nums(needs))
        ]

    return ReviveService(queues, config.revive_interval)


def _acting(
    needs: PopNeeds, escape: PopEscape, revive_log: ReviveLog, buffer: CheckPointBuffer
) -> ActingRevive:
    config, store, sink = needs.config, needs.store, escape.sink
    reviver = Reviver(
        store,
        escape.put,
        PutRetry(escape.put, lambda *_: None, ()),
        revive_log,
        retry_topics=EscapedRetryTopics(escape.route_topics, is_v2=config.enable_retry_topic_v2),
        topics=needs.topics,
        groups=needs.groups,
        clock=needs.clock,
    )

    def queues() -> list[JoinedQueue]:
        numbers = range(_revive_queue_nums(needs))
        return [JoinedQueue(store, revive_log.topic, each) for each in numbers]

    def reader(queue: JoinedQueue) -> ReviveQueue:
        offsets = ActingOffsets(needs.offsets, queue)
        return ReviveQueue(queue, store, reviver, offsets=offsets, timer=sink, clock=needs.clock)

    sink.make_queues = queues
    return ActingRevive(
        sink, reader, buffer, reviver, clock=needs.clock, interval_ms=config.revive_interval
    )


def _filters() -> MakeFilter:
    """Return a compiler of filter expressions with its own cache."""
    expressions = ExpressionCache()

    def make_filter(expression: str, expression_type: str | None) -> ConsumerFilter | None:
        if not is_tag_type(expression_type) and expression_type != EXPRESSION_SQL92:
            raise ValueError(f"this broker does not filter by {str(expression_type)[:32]!r}")
        return expressions.filter_of(expression, expression_type)

    return make_filter
