"""Sending, sending back, replying, recalling.

Source: the header classes of the same names, 5.4.0.
"""

from collections.abc import Mapping

from rocketpy.errors import HeaderFieldError
from rocketpy.proto.headers.base import Header, Int32, Int64, header, parse_int32, parse_int64


@header
class SendMessageRequestHeader(Header):
    """Request 10, SEND_MESSAGE; under one-letter names 310, 320 and 325.

    The one-letter form is what Java clients send; ``from_ext_v2`` and ``to_ext_v2``
    read and write it.
    """

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

    @classmethod
    def from_ext_v2(cls, ext_fields: Mapping[str, str]) -> "SendMessageRequestHeader":
        """Read the one-letter form (a to n).

        Raises:
            HeaderFieldError: a required field is absent, or a value does not fit its type.
        """
        get = ext_fields.get
        reconsume_times = get("j")
        max_reconsume_times = get("l")
        try:
            return cls(
                producer_group=ext_fields["a"],
                topic=ext_fields["b"],
                default_topic=ext_fields["c"],
                default_topic_queue_nums=parse_int32("d", ext_fields["d"]),
                queue_id=parse_int32("e", ext_fields["e"]),
                sys_flag=parse_int32("f", ext_fields["f"]),
                born_timestamp=parse_int64("g", ext_fields["g"]),
                flag=parse_int32("h", ext_fields["h"]),
                properties=get("i"),
                reconsume_times=parse_int32("j", reconsume_times) if reconsume_times else None,
                unit_mode=get("k") == "true",
                batch=get("m") == "true",
                max_reconsume_times=(
                    parse_int32("l", max_reconsume_times) if max_reconsume_times else None
                ),
                bname=get("n"),
            )
        except KeyError as error:
            raise HeaderFieldError(str(error.args[0]), "is required") from error

    def to_ext_v2(self) -> dict[str, str]:
        """Return the one-letter form; None is left out."""
        ext_fields = {
            "a": self.producer_group,
            "b": self.topic,
            "c": self.default_topic,
            "d": str(self.default_topic_queue_nums),
            "e": str(self.queue_id),
            "f": str(self.sys_flag),
            "g": str(self.born_timestamp),
            "h": str(self.flag),
        }
        if self.properties is not None:
            ext_fields["i"] = self.properties
        if self.reconsume_times is not None:
            ext_fields["j"] = str(self.reconsume_times)
        if self.unit_mode is not None:
            ext_fields["k"] = "true" if self.unit_mode else "false"
        if self.max_reconsume_times is not None:
            ext_fields["l"] = str(self.max_reconsume_times)
        if self.batch is not None:
            ext_fields["m"] = "true" if self.batch else "false"
        if self.bname is not None:
            ext_fields["n"] = self.bname
        return ext_fields


@header
class SendMessageResponseHeader(Header):
    """Answer to 10, SEND_MESSAGE."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None


@header
class ConsumerSendMsgBackRequestHeader(Header):
    """Request 36, CONSUMER_SEND_MSG_BACK."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


@header
class ReplyMessageRequestHeader(Header):
    """Request 326, PUSH_REPLY_MESSAGE_TO_CLIENT."""

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
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64


@header
class RecallMessageRequestHeader(Header):
    """Request 370, RECALL_MESSAGE."""

    producer_group: str | None = None
    topic: str
    recall_handle: str


@header
class RecallMessageResponseHeader(Header):
    """Answer to 370, RECALL_MESSAGE."""

    msg_id: str
