"""Subscription groups: their configuration, and how their messages are requested.

Source: SubscriptionGroupConfig, SubscriptionGroupWrapper, GroupRetryPolicy,
SetMessageRequestModeRequestBody, MessageRequestModeSerializeWrapper, GroupForbidden of 5.4.0.
"""

from dataclasses import field
from typing import Final

from rocketpy.proto.bodies.topic import DataVersion
from rocketpy.proto.wire.json_body import Body, body

MODE_PULL: Final = "PULL"
MODE_POP: Final = "POP"


@body
class ExponentialRetryPolicy(Body):
    """Retry delays that grow by a factor; ms."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


@body
class CustomizedRetryPolicy(Body):
    """Explicit retry delays; ms."""

    next: list[int] = field(default_factory=list)


@body
class GroupRetryPolicy(Body):
    """Delays of redeliveries; `type` is `CUSTOMIZED` or `EXPONENTIAL`."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


@body
class SimpleSubscriptionData(Body):
    """Subscription that the group's configuration fixes."""

    topic: str = ""
    expression_type: str | None = None
    expression: str | None = None
    version: int = 0


@body
class SubscriptionGroupConfig(Body):
    """Configuration of a consumer group; the defaults are Java's.

    Attributes:
        retry_max_times: failed deliveries before a message goes to the dead letters.
        which_broker_when_consume_slowly: broker id suggested to a group that lags far behind.
    """

    group_name: str = ""
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy = field(default_factory=GroupRetryPolicy)
    broker_id: int = 0
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = field(default_factory=dict)


@body
class SubscriptionGroupList(Body):
    """Request 225: groups to create or change."""

    group_config_list: list[SubscriptionGroupConfig] = field(default_factory=list)


@body
class SubscriptionGroupWrapper(Body):
    """Response to 201: all groups of a broker."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@body
class SetMessageRequestModeRequestBody(Body):
    """Request 401: how a group gets the messages of a topic; `mode` is PULL or POP."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = MODE_PULL
    pop_share_queue_num: int = 0


@body
class MessageRequestModeSerializeWrapper(Body):
    """Response to 402: topic to group to mode."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(
        default_factory=dict
    )


@body
class GroupForbidden(Body):
    """Response to 353."""

    topic: str = ""
    group: str = ""
    readable: bool | None = None
