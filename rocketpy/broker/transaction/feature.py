"""Transactions as a feature of the broker: builds their parts and connects them.

Source: BrokerController.initialTransaction (5.4.0).
"""

from collections.abc import Callable
from dataclasses import replace

from rocketpy.broker.clients.client_registry import ProducerTable
from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.feature import Feature, FollowMaster
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.metadata.consumer_offsets import ConsumerOffsets
from rocketpy.broker.metadata.json_document import JsonDocument
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.request_table import RequestTable
from rocketpy.broker.stats.pending_counts import PendingCounts
from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.broker.transaction.check_back import MASTER_GRACE_MS, AskProducer, CheckBack
from rocketpy.broker.transaction.end_transaction import EndTransactions, Postpone
from rocketpy.broker.transaction.fast_path import BulkTransactions
from rocketpy.broker.transaction.half_escape import HalfEscape
from rocketpy.broker.transaction.half_message import HalfMessages
from rocketpy.broker.transaction.ledger import HalfLedger
from rocketpy.broker.transaction.op_messages import OpMessages
from rocketpy.broker.transaction.requests import TransactionRequests
from rocketpy.proto.topic_names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketpy.runtime.clock import Clock
from rocketpy.store.message_store import MessageStore

_HOUR_MS = 3_600_000


def build_transactions(  # noqa: PLR0913 - each is one thing that transactions need
    store: MessageStore,
    *,
    configs: LiveBrokerConfig,
    identity: BrokerIdentity,
    topics: TopicTable,
    producers: ProducerTable,
    offsets: ConsumerOffsets,
    internal_put: SystemWriter,
    postpone: Postpone,
    counts_file: JsonDocument,
    ops_file: JsonDocument,
    clock: Clock,
    has_controller: bool = False,
    escape: SystemWriter | None = None,
    is_online: Callable[[], bool] = lambda: True,
) -> Feature:
    """Build the feature: half messages, commit and rollback, and the check-back.

    Args:
        store: the message store.
        configs: the settings.
        identity: this broker's names and addresses.
        topics: topic table.
        producers: table of connected producers.
        offsets: stores the progress of the check-back.
        internal_put: stores messages of the broker itself.
        postpone: schedules committed messages that have a delay.
        counts_file: transactionMetrics, the number of open transactions by topic.
        ops_file: transactionPendingOps.json, halves that could not be named by op messages before
            the broker stopped.
        clock: time.
        has_controller: whether a controller names the master of this broker's group.
        escape: sends messages to another broker group, at a slave that may act as master.
        is_online: returns whether transactions may end.
    """
    config = configs.broker
    counts = _build_counts(counts_file, topics, clock)
    ledger = HalfLedger()
    ops = _build_ops(store, internal_put, config, ops_file, clock)
    ends = EndTransactions(
        store,
        internal_put,
        topics=topics,
        ledger=ledger,
        ops=ops,
        postpone=postpone,
        counts=counts,
        config=config,
        clock=clock,
        is_online=is_online,
    )
    grace_ms = MASTER_GRACE_MS if has_controller else 0
    ask = AskProducer(producers, identity.broker_name, clock, grace_ms=grace_ms)
    check_back = _build_check_back(
        store, internal_put, ask, ledger, ops, configs, topics, counts, offsets, clock
    )
    halves = HalfMessages(config, identity.ip)
    runs = BulkTransactions(halves, ledger, ops, counts, topics, config, is_online=is_online)
    feature = _feature(halves, ops, ends, check_back, counts, runs)
    if escape is None:
        return feature
    half_escape = HalfEscape(
        SystemQueue(store, TRANS_HALF_TOPIC, 0),
        escape,
        ledger,
        ops,
        offsets,
        topic_exists=topics.exists,
        config=lambda: configs.broker,
        clock=clock,
    )
    return replace(feature, acting=(half_escape,))


def _build_check_back(  # noqa: PLR0913, PLR0917 - the parts of a transaction meet here
    store: MessageStore,
    put: SystemWriter,
    ask: AskProducer,
    ledger: HalfLedger,
    ops: OpMessages,
    configs: LiveBrokerConfig,
    topics: TopicTable,
    counts: PendingCounts,
    offsets: ConsumerOffsets,
    clock: Clock,
) -> CheckBack:
    return CheckBack(
        SystemQueue(store, TRANS_HALF_TOPIC, 0),
        put,
        ask,
        topics=topics,
        ledger=ledger,
        ops=ops,
        counts=counts,
        offsets=offsets,
        first_stored=lambda place: store.store_time_ms(TRANS_HALF_TOPIC, 0, place),
        reserved_ms=lambda: configs.store.file_reserved_time * _HOUR_MS,
        flushed_phy_offset=lambda: store.flushed_phy_offset,
        kept_phy_offset=lambda: store.kept_phy_offset,
        max_phy_offset=lambda: store.max_phy_offset,
        flush_log=store.flush_log,
        config=configs.broker,
        clock=clock,
    )


def _build_ops(
    store: MessageStore, put: SystemWriter, config: BrokerConfig, file: JsonDocument, clock: Clock
) -> OpMessages:
    return OpMessages(
        SystemQueue(store, TRANS_OP_HALF_TOPIC, 0),
        put,
        config,
        clock,
        store_host=lambda: store.store_host,
        max_phy_offset=lambda: store.max_phy_offset,
        file=file,
    )


def _build_counts(file: JsonDocument, topics: TopicTable, clock: Clock) -> PendingCounts:
    return PendingCounts(
        "TransactionCounts",
        "transactionCount",
        file,
        topic_exists=lambda topic: topics.get(topic) is not None,
        clock=clock,
    )


def _feature(
    halves: HalfMessages,
    ops: OpMessages,
    ends: EndTransactions,
    check_back: CheckBack,
    counts: PendingCounts,
    runs: BulkTransactions,
) -> Feature:
    requests = TransactionRequests(ends)

    def add_requests(table: RequestTable) -> None:
        table.add("endTransaction", requests.ends)
        table.add("adminBroker", requests.admin)

    def configure(config: BrokerConfig) -> None:
        for part in (halves, ops, ends, check_back):
            part.configure(config)

    return Feature(
        name="transactions",
        put_transforms=(halves,),
        stored_elsewhere={TRANS_HALF_TOPIC: lambda topic: counts.add(topic, 1)},
        services=(ops, check_back, counts),
        states=(counts, check_back),
        masters_only=(ops, check_back),
        acting=(check_back,),
        follow_master=FollowMaster(offsets=check_back.take_progress),
        hand_over=ops.flush,
        add_requests=add_requests,
        configure=configure,
        runs=runs,
    )
