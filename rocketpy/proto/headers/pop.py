"""The pop family.

Source: the header classes of the same names, 5.4.0.
"""

from rocketpy.proto.headers.base import Header, Int32, Int64, header


@header
class PopMessageRequestHeader(Header):
    """Request 200050, POP_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool | None = None
    attempt_id: str | None = None


@header
class PopMessageResponseHeader(Header):
    """Answer to 200050, POP_MESSAGE."""

    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32
    rest_num: Int64
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None


@header
class AckMessageRequestHeader(Header):
    """Request 200051, ACK_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


@header
class PeekMessageRequestHeader(Header):
    """Request 200052, PEEK_MESSAGE."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


@header
class ChangeInvisibleTimeRequestHeader(Header):
    """Request 200053, CHANGE_MESSAGE_INVISIBLETIME."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64


@header
class ChangeInvisibleTimeResponseHeader(Header):
    """Answer to 200053, CHANGE_MESSAGE_INVISIBLETIME."""

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
    born_time: Int64
    order: bool | None = None
    attempt_id: str | None = None


@header
class NotificationResponseHeader(Header):
    """Answer to 200054, NOTIFICATION."""

    has_msg: bool
    polling_full: bool = False


@header
class PollingInfoRequestHeader(Header):
    """Request 200055, POLLING_INFO."""

    consumer_group: str
    topic: str
    queue_id: Int32


@header
class PollingInfoResponseHeader(Header):
    """Answer to 200055, POLLING_INFO."""

    polling_num: Int32


@header
class StatisticsMessagesRequestHeader(Header):
    """A request without a code of its own."""

    consumer_group: str
    topic: str
    queue_id: Int32
    from_time: Int64 = 0
    to_time: Int64 = 0
