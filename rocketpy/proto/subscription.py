"""Subscriptions of consumers: expressions, and data derived from them.

Source: SubscriptionData and FilterAPI of 5.4.0.
"""

from dataclasses import field
from typing import Final

from rocketpy.proto.record.tags import java_string_hash
from rocketpy.proto.wire.json_body import Body, body

EXPRESSION_TAG: Final = "TAG"
EXPRESSION_SQL92: Final = "SQL92"
SUB_ALL: Final = "*"


def is_tag_type(expression_type: str | None) -> bool:
    """Return whether expressions of this type are tag lists; an absent type means TAG."""
    return not expression_type or expression_type == EXPRESSION_TAG


def split_tags(expression: str) -> list[str]:
    """Return the tags of `a || b`, trimmed, in order, without blanks and repetitions."""
    return list(dict.fromkeys(tag for part in expression.split("||") if (tag := part.strip())))


@body
class SubscriptionData(Body):
    """Subscription to a topic in a consumer's heartbeat.

    Attributes:
        sub_string: the expression as written; `*` matches everything.
        tags_set: the tags of a TAG expression, empty for `*`.
        code_set: hash of each tag, for filtering consume queues.
        sub_version: creation time, ms; a broker keeps the newest.
        expression_type: `TAG` or `SQL92`.
    """

    topic: str = ""
    sub_string: str = ""
    tags_set: set[str] = field(default_factory=set)
    code_set: set[int] = field(default_factory=set)
    sub_version: int = 0
    expression_type: str = EXPRESSION_TAG
    class_filter_mode: bool = False

    @property
    def takes_all(self) -> bool:
        """Whether messages with any tag match."""
        return is_tag_type(self.expression_type) and not self.code_set

    def matches_tags_code(self, tags_code: int) -> bool:
        """Return whether a consume queue entry may match; hash collisions match."""
        return not self.code_set or tags_code in self.code_set


def build_subscription(
    topic: str,
    expression: str | None,
    expression_type: str | None = None,
    *,
    sub_version: int = 0,
) -> SubscriptionData:
    """Build a subscription from its expression.

    Args:
        topic: its name.
        expression_type: `TAG` (also when None) or `SQL92`.
        expression: `a || b`, `*`, empty or None (both match everything) for TAG;
            a condition for SQL92, which is stored unchanged.
        sub_version: current time, ms.

    Raises:
        ValueError: a TAG expression without any tag (`" || "`), or an empty SQL92 condition.
    """
    if not is_tag_type(expression_type):
        assert expression_type is not None
        if not expression or not expression.strip():
            msg = f"expression of type {expression_type} must not be empty"
            raise ValueError(msg)
        return SubscriptionData(
            topic, expression, sub_version=sub_version, expression_type=expression_type
        )
    if not expression or expression == SUB_ALL:
        return SubscriptionData(topic, SUB_ALL, sub_version=sub_version)
    tags = split_tags(expression)
    if not tags:
        msg = f"subscription expression {expression!r} holds no tag"
        raise ValueError(msg)
    return SubscriptionData(
        topic, expression, set(tags), {java_string_hash(tag) for tag in tags}, sub_version
    )
