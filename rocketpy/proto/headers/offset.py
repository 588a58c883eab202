"""Offsets of queues and of consumer groups.

Source: the header classes of the same names, 5.4.0.
"""

from rocketpy.proto.headers.base import Header, Int32, Int64, header


@header
class QueryConsumerOffsetRequestHeader(Header):
    """Request 14, QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@header
class QueryConsumerOffsetResponseHeader(Header):
    """Answer to 14, QUERY_CONSUMER_OFFSET."""

    offset: Int64


@header
class UpdateConsumerOffsetRequestHeader(Header):
    """Request 15, UPDATE_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@header
class UpdateConsumerOffsetResponseHeader(Header):
    """Answer to 15, UPDATE_CONSUMER_OFFSET."""


@header
class SearchOffsetRequestHeader(Header):
    """Request 29, SEARCH_OFFSET_BY_TIMESTAMP."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None


@header
class SearchOffsetResponseHeader(Header):
    """Answer to 29, SEARCH_OFFSET_BY_TIMESTAMP."""

    offset: Int64


@header
class GetMaxOffsetRequestHeader(Header):
    """Request 30, GET_MAX_OFFSET."""

    topic: str
    queue_id: Int32
    committed: bool = False


@header
class GetMaxOffsetResponseHeader(Header):
    """Answer to 30, GET_MAX_OFFSET."""

    offset: Int64


@header
class GetMinOffsetRequestHeader(Header):
    """Request 31, GET_MIN_OFFSET."""

    topic: str
    queue_id: Int32


@header
class GetMinOffsetResponseHeader(Header):
    """Answer to 31, GET_MIN_OFFSET."""

    offset: Int64


@header
class GetEarliestMsgStoretimeRequestHeader(Header):
    """Request 32, GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int32


@header
class GetEarliestMsgStoretimeResponseHeader(Header):
    """Answer to 32, GET_EARLIEST_MSG_STORETIME."""

    timestamp: Int64


@header
class ResetOffsetRequestHeader(Header):
    """Request 222, INVOKE_BROKER_TO_RESET_OFFSET."""

    group: str
    topic: str
    queue_id: Int32 = -1
    offset: Int64 | None = None
    timestamp: Int64
    is_force: bool


@header
class InitConsumerOffsetRequestHeader(Header):
    """A request without a code of its own."""

    topic: str | None = None
    init_mode: Int32 = 0


@header
class QueryCorrectionOffsetHeader(Header):
    """Request 308, QUERY_CORRECTION_OFFSET."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


@header
class CloneGroupOffsetRequestHeader(Header):
    """Request 314, CLONE_GROUP_OFFSET."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
