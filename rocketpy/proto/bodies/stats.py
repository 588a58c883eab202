"""Bodies for administrative requests: statistics, and contents of consume queues.

Source: ConsumeStats, ConsumeStatsList, BrokerStatsData, QueryConsumeQueueResponseBody,
QueryConsumeTimeSpanBody of 5.4.0.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.proto.wire.json_body import Body, body


@body
class OffsetWrapper(Body):
    """Offsets of a group in one queue; `last_timestamp` is of the last consumed message, ms."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


@body
class ConsumeStats(Body):
    """Response to 208: offsets of a group."""

    offset_table: dict[MessageQueue, OffsetWrapper] = field(default_factory=dict)
    consume_tps: float = 0.0


@body
class ConsumeStatsList(Body):
    """Response to 317: all groups of a broker, each as `{group: [its statistics]}`."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = field(default_factory=list)
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


@body
class BrokerStatsItem(Body):
    """Sum over a span of time, its rate per second, and the average per event."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


@body
class BrokerStatsData(Body):
    """Response to 315."""

    stats_minute: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_day: BrokerStatsItem | None = None


@body
class ConsumeQueueData(Body):
    """Entry of a consume queue."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


@body
class QueryConsumeQueueResponseBody(Body):
    """Response to 321."""

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = field(default_factory=list)
    max_queue_index: int = 0
    min_queue_index: int = 0


@body
class QueueTimeSpan(Body):
    """Times of one queue, ms, and the delay of its group; texts are for people."""

    message_queue: MessageQueue | None = None
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0
    min_time_stamp_str: str | None = None
    max_time_stamp_str: str | None = None
    consume_time_stamp_str: str | None = None


@body
class QueryConsumeTimeSpanBody(Body):
    """Response to 303."""

    consume_time_span_set: list[QueueTimeSpan] = field(default_factory=list)


@body
class HAConnectionInfo(Body):
    """Slave of a master, as in the response to 907.

    `broker_id`, `state`, `protocol` and `reason` are ours: the state of the slave as in
    docs/replication.md, `pair` or `classic`, and why it is refused.
    """

    addr: str = ""
    slave_ack_offset: int = 0
    diff: int = 0
    in_sync: bool = False
    transferred_byte_in_second: int = 0
    transfer_from_where: int = 0
    broker_id: int | None = None
    state: str | None = None
    protocol: str | None = None
    reason: str | None = None


@body
class HAClientInfo(Body):
    """Connection of a slave to its master, as in the response to 907.

    `state`, `protocol` and `reason` are ours, as in `HAConnectionInfo`.
    """

    wire_names: ClassVar[Mapping[str, str]] = {"is_activated": "activated"}

    master_addr: str | None = None
    transferred_byte_in_second: int = 0
    max_offset: int = 0
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_flush_offset: int = 0
    is_activated: bool = False
    state: str | None = None
    protocol: str | None = None
    reason: str | None = None


@body
class HARuntimeInfo(Body):
    """Response to 907: replication state of a master or a slave; the last five fields are ours.

    Entries of `ha_connection_info` are `HAConnectionInfo`, `ha_client_runtime_info` is
    `HAClientInfo`, both as JSON objects.
    """

    master: bool = False
    master_commit_log_max_offset: int = 0
    in_sync_slave_nums: int = 0
    ha_connection_info: list[object] = field(default_factory=list)
    ha_client_runtime_info: dict[str, object] = field(default_factory=dict)
    pair_protocol: int | None = None
    needed_replicas: int | None = None
    confirmed_offset: int | None = None
    send_refusal: str | None = None
    ha_address: str | None = None


@body
class ColdDataFlowControlInfo(Body):
    """Response to 2003: groups that are throttled because they read much old data."""

    runtime_table: dict[str, object] = field(default_factory=dict)
    config_table: dict[str, object] = field(default_factory=dict)
    global_acc: int = 0
