"""Headers for offsets of queues and consumer groups.

Source: the header classes of the same names, 5.4.0.
"""

from collections.abc import Mapping
from typing import ClassVar

from rocketpy.proto.headers.base import Header, Int32, Int64, header


@header
class OffsetResponseHeader(Header):
    """Response to 14, 29, 30 and 31; four classes with this one field in Java."""

    offset: Int64


@header
class QueryConsumerOffsetRequestHeader(Header):
    """Request 14, QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None
    bname: str | None = None


@header
class UpdateConsumerOffsetRequestHeader(Header):
    """Request 15, UPDATE_CONSUMER_OFFSET.

    Attributes:
        only_forward: keep a larger offset (ours; a slave hands back what it was given).
    """

    wire_names: ClassVar[Mapping[str, str]] = {"only_forward": "rocketpyOnlyForward"}

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64
    bname: str | None = None
    only_forward: bool | None = None


@header
class GetAllConsumerOffsetRequestHeader(Header):
    """Request 43, GET_ALL_CONSUMER_OFFSET; it has no fields in Java.

    Attributes:
        since: mark of an earlier response: only what was committed since is wanted; empty: the
            whole table and a mark (ours).
    """

    wire_names: ClassVar[Mapping[str, str]] = {"since": "rocketpySince"}

    since: str | None = None


@header
class GetAllConsumerOffsetResponseHeader(Header):
    """Response to 43; it has no fields in Java.

    Attributes:
        mark: state of the table, for the next request (ours).
    """

    wire_names: ClassVar[Mapping[str, str]] = {"mark": "rocketpyMark"}

    mark: str | None = None


@header
class SearchOffsetRequestHeader(Header):
    """Request 29, SEARCH_OFFSET_BY_TIMESTAMP."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    boundary_type: str | None = None
    bname: str | None = None


@header
class GetMaxOffsetRequestHeader(Header):
    """Request 30, GET_MAX_OFFSET."""

    topic: str
    queue_id: Int32
    committed: bool = False
    bname: str | None = None


@header
class GetMinOffsetRequestHeader(Header):
    """Request 31, GET_MIN_OFFSET."""

    topic: str
    queue_id: Int32
    bname: str | None = None


@header
class GetEarliestMsgStoretimeRequestHeader(Header):
    """Request 32, GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int32


@header
class GetEarliestMsgStoretimeResponseHeader(Header):
    """Response to 32, GET_EARLIEST_MSG_STORETIME."""

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
