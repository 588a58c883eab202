"""State of a consumer, for administrative requests (307, 309).

Source: ConsumerRunningInfo, ProcessQueueInfo, PopProcessQueueInfo, ConsumeStatus,
ConsumeMessageDirectlyResult of 5.4.0.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Final

from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.proto.wire.json_body import Body, body

CONSUME_SUCCESS: Final = "CR_SUCCESS"
CONSUME_LATER: Final = "CR_LATER"
CONSUME_THROW_EXCEPTION: Final = "CR_THROW_EXCEPTION"

PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


@body
class ProcessQueueInfo(Body):
    """State of one queue at a consumer; times in ms. `droped` is Java's spelling."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mi_b: int = 0
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


@body
class PopProcessQueueInfo(Body):
    """State of one queue at a pop consumer."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


@body
class ConsumeStatus(Body):
    """Rates of one topic: per second, and ms per pull or message."""

    wire_names: ClassVar[Mapping[str, str]] = {
        "pull_rt": "pullRT",
        "pull_tps": "pullTPS",
        "consume_rt": "consumeRT",
        "consume_ok_tps": "consumeOKTPS",
        "consume_failed_tps": "consumeFailedTPS",
    }

    pull_rt: float = 0.0
    pull_tps: float = 0.0
    consume_rt: float = 0.0
    consume_ok_tps: float = 0.0
    consume_failed_tps: float = 0.0
    consume_failed_msgs: int = 0


@body
class ConsumerRunningInfo(Body):
    """Response to 307; `properties` are the `PROP_*` names."""

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: list[SubscriptionData] = field(default_factory=list)
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


@body
class ConsumeMessageDirectlyResult(Body):
    """Response to 309; `consume_result` is one of the `CR_` values."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    remark: str | None = None
    spent_time_mills: int = 0
