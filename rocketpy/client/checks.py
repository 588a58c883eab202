"""Names and filters that users give, checked before anything is sent."""

from rocketpy.errors import ConfigError
from rocketpy.proto.subscription import SubscriptionData, build_subscription
from rocketpy.proto.validators import check_group, check_topic


def checked_group(group: str) -> str:
    """Return the name of a group.

    Raises:
        ConfigError: no group can have it.
    """
    reason = check_group(group)
    if reason is not None:
        raise ConfigError(reason, key="group")
    return group


def checked_subscription(
    topic: str, expression: str, expression_type: str, version: int
) -> SubscriptionData:
    """Return what a consumer wants of a topic.

    Args:
        topic: its name.
        expression: `"a || b"`, `"*"`, or a condition when `expression_type` is SQL92.
        expression_type: `TAG` or `SQL92`.
        version: brokers keep the subscription with the greatest one.

    Raises:
        ConfigError: the name or the expression cannot be used.
    """
    reason = check_topic(topic)
    if reason is not None:
        raise ConfigError(reason, key="topic")
    try:
        return build_subscription(topic, expression, expression_type, sub_version=version)
    except ValueError as error:
        raise ConfigError(str(error), key="filter") from error
