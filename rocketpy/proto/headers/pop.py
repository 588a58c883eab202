"""Headers for pop consumption: pops, acks, and changes of the invisible time.

Source: the header classes of the same names, 5.4.0.
"""

from rocketpy.proto.headers.base import Header, Int32, Int64, header


@header
class PopMessageRequestHeader(Header):
    """Request 200050, POP_MESSAGE; the broker sets a missing `born_time`."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64 = 0
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None
    bname: str | None = None


@header
class PopMessageResponseHeader(Header):
    """Response to 200050."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@header
class PeekMessageRequestHeader(Header):
    """Request 200052, PEEK_MESSAGE; the response has the fields of a pop's."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32


@header
class AckMessageRequestHeader(Header):
    """Request 200051, ACK_MESSAGE; `extra_info` is the message's handle."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    bname: str | None = None


@header
class ChangeInvisibleTimeRequestHeader(Header):
    """Request 200053, CHANGE_MESSAGE_INVISIBLETIME."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64
    bname: str | None = None


@header
class ChangeInvisibleTimeResponseHeader(Header):
    """Response to 200053."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


@header
class NotificationRequestHeader(Header):
    """Request 200054, NOTIFICATION."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64 = 0
    order: bool | None = None
    attempt_id: str | None = None


@header
class NotificationResponseHeader(Header):
    """Response to 200054."""

    has_msg: bool
    polling_full: bool


@header
class PollingInfoRequestHeader(Header):
    """Request 200055, POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: Int32


@header
class PollingInfoResponseHeader(Header):
    """Response to 200055."""

    polling_num: Int32
