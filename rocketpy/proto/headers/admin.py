"""Statistics, configuration and the other requests of the admin tool.

Source: the header classes of the same names, 5.4.0.
"""

from rocketpy.proto.headers.base import Header, Int32, Int64, header


@header
class GetBrokerConfigResponseHeader(Header):
    """A response."""

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
class CheckRocksdbCqWriteProgressRequestHeader(Header):
    """Request 354, CHECK_ROCKSDB_CQ_WRITE_PROGRESS."""

    topic: str
    check_store_time: Int64 = 0


@header
class ExportRocksDBConfigToJsonRequestHeader(Header):
    """Request 355, EXPORT_ROCKSDB_CONFIG_TO_JSON."""

    config_type: str


@header
class AddBrokerRequestHeader(Header):
    """Request 902, ADD_BROKER."""

    config_path: str | None = None


@header
class RemoveBrokerRequestHeader(Header):
    """Request 903, REMOVE_BROKER."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64


@header
class ExchangeHAInfoRequestHeader(Header):
    """Request 906, EXCHANGE_BROKER_HA_INFO."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@header
class ExchangeHAInfoResponseHeader(Header):
    """Answer to 906, EXCHANGE_BROKER_HA_INFO."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@header
class ResetMasterFlushOffsetHeader(Header):
    """Request 908, RESET_MASTER_FLUSH_OFFSET."""

    master_flush_offset: Int64


@header
class CreateUserRequestHeader(Header):
    """Request 3001, AUTH_CREATE_USER."""

    username: str | None = None


@header
class UpdateUserRequestHeader(Header):
    """Request 3002, AUTH_UPDATE_USER."""

    username: str | None = None


@header
class DeleteUserRequestHeader(Header):
    """Request 3003, AUTH_DELETE_USER."""

    username: str | None = None


@header
class GetUserRequestHeader(Header):
    """Request 3004, AUTH_GET_USER."""

    username: str | None = None


@header
class ListUsersRequestHeader(Header):
    """Request 3005, AUTH_LIST_USER."""

    filter: str | None = None


@header
class CreateAclRequestHeader(Header):
    """Request 3006, AUTH_CREATE_ACL."""

    subject: str | None = None


@header
class UpdateAclRequestHeader(Header):
    """Request 3007, AUTH_UPDATE_ACL."""

    subject: str | None = None


@header
class DeleteAclRequestHeader(Header):
    """Request 3008, AUTH_DELETE_ACL."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@header
class GetAclRequestHeader(Header):
    """Request 3009, AUTH_GET_ACL."""

    subject: str | None = None


@header
class ListAclsRequestHeader(Header):
    """Request 3010, AUTH_LIST_ACL."""

    subject_filter: str | None = None
    resource_filter: str | None = None
