"""Names and filters that users give, checked before anything is sent."""

import logging
from typing import Final

from rocketpy.errors import ConfigError, ExpressionError
from rocketpy.proto.subscription import (
    EXPRESSION_SQL92,
    EXPRESSION_TAG,
    SUB_ALL,
    SubscriptionData,
    build_subscription,
)
from rocketpy.proto.validators import check_group, check_topic
from rocketpy.sql92.condition import compile_condition

logger: logging.Logger = logging.getLogger(__name__)

BATCH: Final = 500
"""Most messages of one list, when nobody says how many."""


def checked_count(max_messages: int) -> int:
    """Return how many messages are asked for; raises ValueError when that is none."""
    if max_messages < 1:
        raise ValueError(f"max_messages is {max_messages}, not 1 or more")
    return max_messages


def checked_group(group: str) -> str:
    """Return the name of a group.

    Raises:
        ConfigError: no group can have it.
    """
    reason = check_group(group)
    if reason is not None:
        raise ConfigError(reason, key="group")
    return group


def checked_subscription(topic: str, tags: str, sql: str, version: int) -> SubscriptionData:
    """Return what a consumer wants of a topic.

    Args:
        topic: its name.
        tags: `"a || b"`, or `"*"`, which also stands beside a condition.
        sql: a condition on properties; empty filters by tags.
        version: brokers keep the subscription with the greatest one.

    Raises:
        ConfigError: the name or the tags cannot be used, or there are tags and a condition.
        ExpressionError: `sql` is no condition.
    """
    reason = check_topic(topic)
    if reason is not None:
        raise ConfigError(reason, key="topic")
    if sql:
        if tags != SUB_ALL:
            raise ConfigError("give tags or a condition, not both", key="sql")
        condition = compile_condition(sql)
        if condition.ignored_from is not None:
            # A broker would take the condition and silently leave the rest out.
            reason = f"the condition has ended, what is {sql[condition.ignored_from :][:40]!r}?"
            raise ExpressionError(reason, condition.ignored_from)
    kind = EXPRESSION_SQL92 if sql else EXPRESSION_TAG
    if not sql and any(each in tags.replace("||", "") for each in "|,"):  # a tag may be so named
        logger.warning(
            "the filter %(filter)r of topic %(topic)s names a tag with | or , in it: did you mean "
            "||, as in 'a || b'?",
            {"filter": tags, "topic": topic},
        )
    try:
        return build_subscription(topic, sql or tags, kind, sub_version=version)
    except ValueError as error:
        raise ConfigError(str(error), key="filter") from error
