"""Headers of the name server: registration, routes, key-value table.

Source: the header classes of the same names, 5.4.0.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from rocketpy.proto.headers.base import Header, Int32, Int64, header

NO_ROUTES_REMARK: Final = "this broker has no routes until that one leaves"
"""End of the remark to a registration that waits for another broker of the same name (ours)."""


@header
class RegisterBrokerRequestHeader(Header):
    """Request 103, REGISTER_BROKER.

    `zone_name` is not in Java's class: a hook of the broker adds it to the ext fields.
    """

    wire_names: ClassVar[Mapping[str, str]] = {"zone_name": "__ZONE_NAME"}

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    heartbeat_timeout_millis: Int64 | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int32 | None = None
    zone_name: str | None = None


@header
class RegisterBrokerResponseHeader(Header):
    """Response to 103, REGISTER_BROKER."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


@header
class UnRegisterBrokerRequestHeader(Header):
    """Request 104, UNREGISTER_BROKER."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@header
class QueryDataVersionRequestHeader(Header):
    """Request 322, QUERY_DATA_VERSION."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


@header
class QueryDataVersionResponseHeader(Header):
    """Response to 322, QUERY_DATA_VERSION."""

    changed: bool


@header
class GetRouteInfoRequestHeader(Header):
    """Request 105, GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool | None = None


@header
class PutKVConfigRequestHeader(Header):
    """Request 100, PUT_KV_CONFIG."""

    namespace: str
    key: str
    value: str


@header
class GetKVConfigRequestHeader(Header):
    """Request 101, GET_KV_CONFIG."""

    namespace: str
    key: str


@header
class GetKVConfigResponseHeader(Header):
    """Response to 101, GET_KV_CONFIG."""

    value: str | None = None


@header
class DeleteKVConfigRequestHeader(Header):
    """Request 102, DELETE_KV_CONFIG."""

    namespace: str
    key: str


@header
class GetKVListByNamespaceRequestHeader(Header):
    """Request 219, GET_KVLIST_BY_NAMESPACE."""

    namespace: str


@header
class WipeWritePermOfBrokerRequestHeader(Header):
    """Request 205, WIPE_WRITE_PERM_OF_BROKER."""

    broker_name: str


@header
class WipeWritePermOfBrokerResponseHeader(Header):
    """Response to 205, WIPE_WRITE_PERM_OF_BROKER."""

    wipe_topic_count: Int32


@header
class AddWritePermOfBrokerRequestHeader(Header):
    """Request 327, ADD_WRITE_PERM_OF_BROKER."""

    broker_name: str


@header
class AddWritePermOfBrokerResponseHeader(Header):
    """Response to 327, ADD_WRITE_PERM_OF_BROKER."""

    add_topic_count: Int32


@header
class GetTopicsByClusterRequestHeader(Header):
    """Request 224, GET_TOPICS_BY_CLUSTER."""

    cluster: str


@header
class DeleteTopicFromNamesrvRequestHeader(Header):
    """Request 216, DELETE_TOPIC_IN_NAMESRV."""

    topic: str
    cluster_name: str | None = None


@header
class RegisterTopicRequestHeader(Header):
    """Request 217, REGISTER_TOPIC_IN_NAMESRV."""

    topic: str


@header
class GetBrokerMemberGroupRequestHeader(Header):
    """Request 901, GET_BROKER_MEMBER_GROUP."""

    cluster_name: str
    broker_name: str


@header
class BrokerHeartbeatRequestHeader(Header):
    """Request 904, BROKER_HEARTBEAT."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Int64 | None = None
    epoch: Int32 | None = None
    max_offset: Int64 | None = None
    confirm_offset: Int64 | None = None
    heartbeat_timeout_mills: Int64 | None = None
    election_priority: Int32 | None = None


@header
class NotifyMinBrokerIdChangeRequestHeader(Header):
    """Request 905, NOTIFY_MIN_BROKER_ID_CHANGE."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_addr: str | None = None
    offline_broker_addr: str | None = None
    ha_broker_addr: str | None = None
