"""Reserved topics and groups, and prefixes of derived names.

Source: TopicValidator, MixAll, KeyBuilder and TransactionalMessageUtil of 5.4.0.
"""

from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
"""Prefix of light queues, which contain messages of any topic."""
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ROCKSDB_TRANS_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
ROCKSDB_TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC: Final = "CHECKPOINT_TOPIC"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"

TRANS_GROUP: Final = "CID_RMQ_SYS_TRANS"
TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        TRACE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        CHECKPOINT_TOPIC,
        ROCKSDB_TRANS_HALF_TOPIC,
        ROCKSDB_TRANS_OP_HALF_TOPIC,
    }
)
"""System topics of every broker, in addition to names with `rmq_sys_`."""

NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Topics to which clients must not send."""

SYSTEM_GROUPS: Final = frozenset(
    {
        TOOLS_CONSUMER_GROUP,
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
        TRANS_GROUP,
    }
)
"""System groups, in addition to names with `CID_RMQ_SYS_`."""


def is_system_topic(topic: str) -> bool:
    """Return whether the topic is a system topic, by its name alone.

    A broker has further ones: topics named as its cluster and itself, and the reply topic.
    """
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_not_allowed_send_topic(topic: str) -> bool:
    """Return whether clients must not send to the topic."""
    return topic in NOT_ALLOWED_SEND_TOPICS


def is_system_group(group: str) -> bool:
    """Return whether the group is a system group."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def is_retry_topic(topic: str) -> bool:
    """Return whether the topic is a retry topic."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Return whether the topic holds dead letters."""
    return topic.startswith(DLQ_PREFIX)


def retry_topic(group: str) -> str:
    """Return the topic for redeliveries of a group."""
    return RETRY_PREFIX + group


def pop_retry_topic_v1(topic: str, group: str) -> str:
    """Return the retry topic of `topic` for pop consumers of `group` (first form)."""
    return f"{RETRY_PREFIX}{group}_{topic}"


def pop_retry_topic_v2(topic: str, group: str) -> str:
    """Return the retry topic of `topic` for pop consumers of `group` (second form)."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def reply_topic(cluster_name: str) -> str:
    """Return the topic of a cluster for replies to requests."""
    return f"{cluster_name}_REPLY_TOPIC"


def sync_broker_member_topic(broker_name: str) -> str:
    """Return the topic through which members of a broker set synchronise."""
    return f"{SYSTEM_TOPIC_PREFIX}SYNC_BROKER_MEMBER_{broker_name}"
