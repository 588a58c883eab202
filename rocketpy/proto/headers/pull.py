"""Headers for pulls and lookups of messages.

Source: the header classes of the same names, 5.4.0.
"""

from collections.abc import Mapping
from typing import ClassVar

from rocketpy.proto.headers.base import Header, Int32, Int64, header


@header
class PullMessageRequestHeader(Header):
    """Request 11, PULL_MESSAGE."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    bname: str | None = None


@header
class PullMessageResponseHeader(Header):
    """Response to 11, PULL_MESSAGE."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None


@header
class QueryMessageRequestHeader(Header):
    """Request 12, QUERY_MESSAGE; `unique_key_query` searches for a producer's message id."""

    wire_names: ClassVar[Mapping[str, str]] = {"unique_key_query": "_UNIQUE_KEY_QUERY"}

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    index_type: str | None = None
    last_key: str | None = None
    unique_key_query: bool | None = None


@header
class QueryMessageResponseHeader(Header):
    """Response to 12, QUERY_MESSAGE."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@header
class ViewMessageRequestHeader(Header):
    """Request 33, VIEW_MESSAGE_BY_ID."""

    topic: str | None = None
    offset: Int64
