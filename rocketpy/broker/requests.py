"""Registers all requests that a broker answers, with their processors.

Source: BrokerController.registerProcessor (5.4.0).
"""

from typing import Final

from rocketpy.broker.acting.hand_over import HandOver
from rocketpy.broker.admin.client_relay import ClientRelayAdmin
from rocketpy.broker.admin.config import ConfigAdmin
from rocketpy.broker.admin.connections import ConnectionAdmin
from rocketpy.broker.admin.consumer_lag import ConsumeStatsAdmin
from rocketpy.broker.admin.groups import GroupAdmin
from rocketpy.broker.admin.offsets import OffsetAdmin
from rocketpy.broker.admin.queues import QueueAdmin
from rocketpy.broker.admin.runtime_info import RuntimeInfoAdmin
from rocketpy.broker.admin.stats import StatsAdmin
from rocketpy.broker.admin.topic_creations import TopicCreations
from rocketpy.broker.admin.topics import TopicAdmin
from rocketpy.broker.admin.unsupported import UnsupportedAdmin
from rocketpy.broker.cluster.topic_queues import TopicQueues
from rocketpy.broker.operation.consumer_progress import ConsumerProgress
from rocketpy.broker.operation.lock_queues import QueueLocking
from rocketpy.broker.operation.query_messages import QueryMessages
from rocketpy.broker.parts import BrokerParts
from rocketpy.broker.processor.consumer_manage import ConsumerManageProcessor, LockProcessor
from rocketpy.broker.processor.query_assignment import QueryAssignmentProcessor
from rocketpy.broker.processor.query_message import QueryMessageProcessor
from rocketpy.broker.processor.queue_offsets import OffsetProcessor
from rocketpy.broker.processor.slave_refusals import refuse_at_slave
from rocketpy.broker.request_table import Guard, RequestTable
from rocketpy.broker.stats.page_cache_estimate import PageCacheEstimate
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.runtime.os_resources import total_memory_bytes

_SENDS: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
)
_TOPIC_MAKERS: Final = (
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
)


def build_requests(parts: BrokerParts, guard: Guard | None = None) -> RequestTable:
    """Build the processors that belong to no feature, and register all processors.

    Args:
        parts: the broker's parts.
        guard: called with each request before its processor.
    """
    table = RequestTable(parts.pools, guard)
    table.add("send", dict.fromkeys(_SENDS, parts.sends.process))
    table.add("reply", parts.replies.processors)
    table.add("pull", {RequestCode.PULL_MESSAGE: parts.pulls.process})
    table.add("litePull", {RequestCode.LITE_PULL_MESSAGE: parts.pulls.process})
    table.add("clientManage", parts.clients.processors)
    table.add("heartbeat", {RequestCode.HEART_BEAT: parts.clients.heartbeat})
    _add_consumer_management(table, parts)
    messages = QueryMessages(
        parts.store,
        default_count=parts.configs.store.default_query_max_num,
        max_count=parts.configs.store.max_msgs_num_batch,
    )
    table.add("query", QueryMessageProcessor(messages).processors)
    _add_admin(table, parts)
    for feature in parts.features:
        feature.add_requests(table)
    master, acting = parts.master, parts.acting
    if acting is not None:
        table.add("query", {RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: acting.poll.notified})
    if master is not None:
        if acting is not None and acting.slave is not None:
            call_master = parts.replication.master_changed
            handover = HandOver(acting.slave, master, acting.gates, call_master=call_master)
            table.add("query", {RequestCode.EXCHANGE_BROKER_HA_INFO: handover.process})
        refuse_at_slave(
            table,
            lambda: master.known.address,
            lambda: parts.config.slave_read_enable,
            lambda: acting is not None and acting.is_acting,
            parts.identity,
            has_controller=parts.replication.has_controller,
        )
    return table


def _add_consumer_management(table: RequestTable, parts: BrokerParts) -> None:
    store = parts.store
    progress = ConsumerProgress(
        PageCacheEstimate(
            store,
            ratio_percent=parts.configs.store.access_message_in_memory_max_ratio,
            memory_bytes=total_memory_bytes(),
        ),
        configs=parts.configs,
        topics=parts.topics,
        groups=parts.groups,
        offsets=parts.offsets,
    )
    table.add("consumerManage", ConsumerManageProcessor(progress, parts.consumers).processors)
    table.add("consumerManage", OffsetProcessor(store).processors)
    locking = QueueLocking(parts.locks, parts.topics, parts.consumers, parts.clock)
    table.add("consumerManage", LockProcessor(locking).processors)
    link = parts.name_servers
    queues = TopicQueues(
        lambda: link.fetch_route if link.addresses else None,
        parts.topics,
        parts.identity.broker_name,
        parts.clock,
    )
    assignments = QueryAssignmentProcessor(
        queues,
        parts.modes,
        configs=parts.configs,
        topics=parts.topics,
        groups=parts.groups,
        consumers=parts.consumers,
    )
    table.add("loadBalance", assignments.processors)


def _add_admin(table: RequestTable, parts: BrokerParts) -> None:
    """Register the requests of administration tools."""
    configs, identity, stats, store = parts.configs, parts.identity, parts.stats, parts.store
    topics, groups, offsets, consumers = parts.topics, parts.groups, parts.offsets, parts.consumers
    topic_admin = TopicAdmin(
        configs=configs, identity=identity, offsets=offsets, stats=stats, store=store, topics=topics
    ).processors()
    creations = TopicCreations(
        {code: topic_admin.pop(code) for code in _TOPIC_MAKERS},
        topics,
        parts.pools["adminBroker"],
        parts.name_servers.when_announced,
    )
    table.add("adminBroker", dict.fromkeys(_TOPIC_MAKERS, creations.process))
    topic_admin = {code: creations.behind(each) for code, each in topic_admin.items()}
    for processors in (
        topic_admin,
        GroupAdmin(groups=groups, offsets=offsets, stats=stats).processors(),
        ConnectionAdmin(
            consumers=consumers, identity=identity, offsets=offsets, producers=parts.producers
        ).processors(),
        ConsumeStatsAdmin(
            clock=parts.clock,
            consumers=consumers,
            groups=groups,
            identity=identity,
            offsets=offsets,
            stats=stats,
            store=store,
            topics=topics,
        ).processors(),
        OffsetAdmin(
            configs=configs,
            consumers=consumers,
            groups=groups,
            identity=identity,
            offsets=offsets,
            store=store,
            topics=topics,
        ).processors(),
        QueueAdmin(consumers=consumers, store=store, topics=topics).processors(),
        ClientRelayAdmin(
            consumers=consumers, groups=groups, identity=identity, store=store, topics=topics
        ).processors(),
        StatsAdmin(stats).processors(),
        ConfigAdmin(configs).processors(),
        RuntimeInfoAdmin(
            configs=configs,
            features=parts.features,
            pools=parts.pools,
            readiness=parts.readiness,
            start_ms=parts.start_ms,
            stats=stats,
            store=store,
        ).processors(),
        UnsupportedAdmin().processors(),
    ):
        table.add("adminBroker", processors)
