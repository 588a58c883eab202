"""Headers for topics and subscription groups.

Source: the header classes of the same names, 5.4.0.
"""

from rocketpy.proto.headers.base import Header, Int32, header


@header
class CreateTopicRequestHeader(Header):
    """Request 17, UPDATE_AND_CREATE_TOPIC."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool
    attributes: str | None = None
    force: bool | None = None


@header
class DeleteTopicRequestHeader(Header):
    """Request 215, DELETE_TOPIC_IN_BROKER."""

    topic: str


@header
class GetAllTopicConfigRequestHeader(Header):
    """Request 21, GET_ALL_TOPIC_CONFIG."""

    topic_seq: Int32 | None = None
    data_version: str | None = None
    max_topic_num: Int32 | None = None


@header
class GetAllTopicConfigResponseHeader(Header):
    """Response to 21, GET_ALL_TOPIC_CONFIG."""

    total_topic_num: Int32


@header
class GetTopicConfigRequestHeader(Header):
    """Request 351, GET_TOPIC_CONFIG."""

    topic: str
    lo: bool | None = None


@header
class GetTopicStatsInfoRequestHeader(Header):
    """Request 202, GET_TOPIC_STATS_INFO."""

    topic: str


@header
class GetAllSubscriptionGroupRequestHeader(Header):
    """Request 201, GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    group_seq: Int32 | None = None
    data_version: str | None = None
    max_group_num: Int32 | None = None


@header
class GetAllSubscriptionGroupResponseHeader(Header):
    """Response to 201, GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""

    total_group_num: Int32


@header
class GetSubscriptionGroupConfigRequestHeader(Header):
    """Request 352, GET_SUBSCRIPTIONGROUP_CONFIG."""

    group: str


@header
class DeleteSubscriptionGroupRequestHeader(Header):
    """Request 207, DELETE_SUBSCRIPTIONGROUP; tools of 4.9 send `removeOffset`."""

    group_name: str
    clean_offset: bool | None = None
    remove_offset: bool = False


@header
class UpdateGroupForbiddenRequestHeader(Header):
    """Request 353, UPDATE_AND_GET_GROUP_FORBIDDEN."""

    group: str
    topic: str
    readable: bool | None = None


@header
class QueryTopicConsumeByWhoRequestHeader(Header):
    """Request 300, QUERY_TOPIC_CONSUME_BY_WHO."""

    topic: str


@header
class QueryTopicsByConsumerRequestHeader(Header):
    """Request 343, QUERY_TOPICS_BY_CONSUMER."""

    group: str


@header
class QuerySubscriptionByConsumerRequestHeader(Header):
    """Request 345, QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str


@header
class QueryConsumeTimeSpanRequestHeader(Header):
    """Request 303, QUERY_CONSUME_TIME_SPAN."""

    topic: str
    group: str
