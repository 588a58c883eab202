"""Bodies about clients: heartbeats, and lists of connected clients.

Source: HeartbeatData, ConsumerConnection, ProducerConnection, ProducerTableInfo,
GetConsumerListByGroupResponseBody, CheckClientRequestBody of 5.4.0.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Final

from rocketpy.proto.subscription import SubscriptionData
from rocketpy.proto.wire.json_body import Body, body

CONSUME_ACTIVELY: Final = "CONSUME_ACTIVELY"
CONSUME_PASSIVELY: Final = "CONSUME_PASSIVELY"
CONSUME_POP: Final = "CONSUME_POP"
EXT_DIVIDED_GROUPS: Final = "dividedGroups"
"""Ext field of a response to a heartbeat, between RocketPy peers: comma-separated groups of the
client with members that subscribe differently."""
MODEL_CLUSTERING: Final = "CLUSTERING"
MODEL_BROADCASTING: Final = "BROADCASTING"
CONSUME_FROM_LAST_OFFSET: Final = "CONSUME_FROM_LAST_OFFSET"
CONSUME_FROM_FIRST_OFFSET: Final = "CONSUME_FROM_FIRST_OFFSET"
CONSUME_FROM_TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"


@body
class ProducerData(Body):
    """Producer group of a client."""

    group_name: str = ""


@body
class ConsumerData(Body):
    """Consumer group of a client.

    Attributes:
        consume_type: one of the `CONSUME_*` kinds; pull, push or pop.
        message_model: `CLUSTERING` or `BROADCASTING`.
        consume_from_where: start of a group without offsets.
    """

    group_name: str = ""
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@body
class HeartbeatData(Body):
    """Request 34: a client and its groups.

    Attributes:
        heartbeat_fingerprint: not 0 with the second form of heartbeat.
        without_sub: the subscriptions are omitted because they did not change.
    """

    wire_names: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str = ""
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


@body
class CheckClientRequestBody(Body):
    """Request 46: check whether a subscription is valid."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


@body
class GetConsumerListByGroupResponseBody(Body):
    """Response to 38: the client ids of a group."""

    consumer_id_list: list[str] = field(default_factory=list)


@body
class Connection(Body):
    """Connection of a client.

    Attributes:
        client_addr: `ip:port`.
        language: a name of `LanguageCode`; None if unknown.
    """

    client_id: str = ""
    client_addr: str = ""
    language: str | None = None
    version: int = 0


@body
class ConsumerConnection(Body):
    """Response to 203: the members of a consumer group, and their subscriptions."""

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: str | None = None
    message_model: str | None = None
    consume_from_where: str | None = None


@body
class ProducerConnection(Body):
    """Response to 204: the members of a producer group."""

    connection_set: list[Connection] = field(default_factory=list)


@body
class ProducerInfo(Body):
    """Connected producer.

    Attributes:
        remote_ip: `/ip:port`, with Java's leading slash.
        last_update_timestamp: of its last heartbeat, ms.
    """

    wire_names: ClassVar[Mapping[str, str]] = {"remote_ip": "remoteIP"}

    client_id: str = ""
    remote_ip: str = ""
    language: str | None = None
    version: int = 0
    last_update_timestamp: int = 0


@body
class ProducerTableInfo(Body):
    """Response to 328: all producers, by group."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@body
class GroupList(Body):
    """Response to 300: the groups that consume a topic."""

    group_list: set[str] = field(default_factory=set)


@body
class QuerySubscriptionResponseBody(Body):
    """Response to 345: a group's subscription to a topic."""

    subscription_data: SubscriptionData | None = None
    group: str = ""
    topic: str = ""
