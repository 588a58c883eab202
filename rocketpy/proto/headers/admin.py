"""Headers for statistics, configuration and other administrative requests.

Source: the header classes of the same names, 5.4.0.
"""

from rocketpy.proto.headers.base import Header, Int32, Int64, header


@header
class GetBrokerConfigResponseHeader(Header):
    """Response to 26, GET_BROKER_CONFIG."""

    version: str


@header
class GetConsumeStatsRequestHeader(Header):
    """Request 208, GET_CONSUME_STATS."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None


@header
class GetConsumeStatsInBrokerHeader(Header):
    """Request 317, GET_BROKER_CONSUME_STATS."""

    is_order: bool


@header
class ViewBrokerStatsDataRequestHeader(Header):
    """Request 315, VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


@header
class QueryConsumeQueueRequestHeader(Header):
    """Request 321, QUERY_CONSUME_QUEUE."""

    topic: str
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


@header
class ExchangeHAInfoRequestHeader(Header):
    """Request 906, EXCHANGE_BROKER_HA_INFO, of a master that returns, to its slaves."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@header
class ResetMasterFlushOffsetHeader(Header):
    """Request 908, RESET_MASTER_FLUSH_OFFSET."""

    master_flush_offset: Int64
