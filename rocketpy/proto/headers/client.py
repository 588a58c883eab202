"""Headers for clients and their groups: heartbeat, members, locks.

Source: the header classes of the same names, 5.4.0.
"""

from collections.abc import Mapping
from typing import ClassVar

from rocketpy.proto.headers.base import Header, Int32, header


@header
class UnregisterClientRequestHeader(Header):
    """Request 35, UNREGISTER_CLIENT."""

    wire_names: ClassVar[Mapping[str, str]] = {"client_id": "clientID"}

    client_id: str
    producer_group: str | None = None
    consumer_group: str | None = None


@header
class GetConsumerListByGroupRequestHeader(Header):
    """Request 38, GET_CONSUMER_LIST_BY_GROUP."""

    consumer_group: str


@header
class NotifyConsumerIdsChangedRequestHeader(Header):
    """Request 40, NOTIFY_CONSUMER_IDS_CHANGED."""

    consumer_group: str


@header
class GetConsumerConnectionListRequestHeader(Header):
    """Request 203, GET_CONSUMER_CONNECTION_LIST."""

    consumer_group: str


@header
class GetProducerConnectionListRequestHeader(Header):
    """Request 204, GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


@header
class GetConsumerRunningInfoRequestHeader(Header):
    """Request 307, GET_CONSUMER_RUNNING_INFO."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@header
class ConsumeMessageDirectlyResultRequestHeader(Header):
    """Request 309, CONSUME_MESSAGE_DIRECTLY."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None


@header
class GetConsumerStatusRequestHeader(Header):
    """Request 223, INVOKE_BROKER_TO_GET_CONSUMER_STATUS."""

    topic: str
    group: str
    client_addr: str | None = None
