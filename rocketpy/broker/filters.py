"""What a consumer takes of a queue, as the store asks for it.

Source: ExpressionMessageFilter.java (5.4.0).
"""

from rocketpy.proto.subscription import SubscriptionData


class TagFilter:
    """Takes messages by the hash of their tag; the client compares the tag itself."""

    __slots__ = ("_codes",)

    def __init__(self, codes: frozenset[int]) -> None:
        self._codes = codes

    def matches_tags_code(self, tags_code: int) -> bool:
        """Judge by the consume-queue entry."""
        return tags_code in self._codes

    def matches_record(self, record: memoryview) -> bool:  # noqa: ARG002
        """Nothing more to judge by."""
        return True


def filter_of(subscription: SubscriptionData) -> TagFilter | None:
    """The filter of a TAG subscription; None takes everything."""
    if subscription.takes_all or subscription.class_filter_mode:
        return None
    return TagFilter(frozenset(subscription.code_set))
