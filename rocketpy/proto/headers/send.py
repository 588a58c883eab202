"""Headers for sends, and for returning messages.

Source: the header classes of the same names, 5.4.0.
"""

from collections.abc import Mapping
from typing import ClassVar

from rocketpy.proto.headers.base import Header, Int32, Int64, header
from rocketpy.proto.record.properties import PROPERTY_MSG_REGION


@header
class SendMessageRequestHeader(Header):
    """Request 10, SEND_MESSAGE."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None
    bname: str | None = None


@header
class SendMessageRequestHeaderV2(SendMessageRequestHeader):
    """The same header under one-letter names: Java clients use them with 310, 320 and 325."""

    wire_names: ClassVar[Mapping[str, str]] = {
        "producer_group": "a",
        "topic": "b",
        "default_topic": "c",
        "default_topic_queue_nums": "d",
        "queue_id": "e",
        "sys_flag": "f",
        "born_timestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsume_times": "j",
        "unit_mode": "k",
        "max_reconsume_times": "l",
        "batch": "m",
        "bname": "n",
    }


@header
class ReplyMessageRequestHeader(Header):
    """Request 326, PUSH_REPLY_MESSAGE_TO_CLIENT; hosts are `ip:port`."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None


@header
class SendMessageResponseHeader(Header):
    """Response to 10, SEND_MESSAGE; `region_id` goes under the property's name."""

    wire_names: ClassVar[Mapping[str, str]] = {"region_id": PROPERTY_MSG_REGION}

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    region_id: str | None = None


@header
class RecallMessageRequestHeader(Header):
    """Request 370, RECALL_MESSAGE."""

    producer_group: str | None = None
    topic: str
    recall_handle: str
    bname: str | None = None


@header
class RecallMessageResponseHeader(Header):
    """Response to 370, RECALL_MESSAGE; `region_id` goes under the property's name."""

    wire_names: ClassVar[Mapping[str, str]] = {"region_id": PROPERTY_MSG_REGION}

    msg_id: str | None = None
    region_id: str | None = None


@header
class ConsumerSendMsgBackRequestHeader(Header):
    """Request 36, CONSUMER_SEND_MSG_BACK.

    The fields `dlq...` are RocketPy's: the cause of a dead letter. Apache's brokers ignore them.
    """

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    bname: str | None = None
    dlq_exception: str | None = None
    dlq_reason: str | None = None
    dlq_time: Int64 | None = None
    dlq_member: str | None = None
