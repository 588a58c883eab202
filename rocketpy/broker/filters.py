"""What a consumer takes of a queue, as the store asks for it: by tags, or by a condition.

Source: ExpressionMessageFilter.java (5.4.0).
"""

import threading
from typing import Final

from rocketpy.proto.record import properties_of
from rocketpy.proto.subscription import (
    EXPRESSION_SQL92,
    EXPRESSION_TAG,
    SubscriptionData,
    build_subscription,
)
from rocketpy.sql92.condition import MAX_EXPRESSION_CHARS, Condition

_CODE_BYTES: Final = 100
_MAX_CACHED_COUNT: Final = 1024
_MAX_CACHED_BYTES: Final = 4 * 1024 * 1024


class TagFilter:
    """Takes messages by the hash of their tag; the client compares the tag itself.

    Attributes:
        codes: hashes of the tags it takes.
    """

    __slots__ = ("codes",)

    def __init__(self, codes: frozenset[int]) -> None:
        self.codes = codes

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return len(self.codes) * _CODE_BYTES

    def matches_tags_code(self, tags_code: int) -> bool:
        """Match by the consume-queue entry."""
        return tags_code in self.codes

    def matches_record(self, record: memoryview) -> bool:  # noqa: ARG002
        """Nothing more to match by."""
        return True


class SqlFilter:
    """Takes messages by their properties.

    Attributes:
        condition: what they have to meet.
    """

    __slots__ = ("condition",)

    def __init__(self, condition: Condition) -> None:
        self.condition = condition

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return self.condition.size_bytes

    def matches_tags_code(self, tags_code: int) -> bool:  # noqa: ARG002
        """Nothing to match by."""
        return True

    def matches_record(self, record: memoryview) -> bool:
        """Match by the properties, of which those in the condition are read."""
        return self.condition.matches_stored(properties_of(record))


ConsumerFilter = TagFilter | SqlFilter
"""What a consumer takes of a topic."""


def filter_of(subscription: SubscriptionData) -> TagFilter | None:
    """The filter of a TAG subscription; None takes everything."""
    if subscription.takes_all or subscription.class_filter_mode:
        return None
    return TagFilter(frozenset(subscription.code_set))


def check_expression(expression: str) -> None:
    """Check that a subscription's expression is not too long to be read on a loop.

    Raises:
        ValueError: it is longer than `MAX_EXPRESSION_CHARS`.
    """
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise ValueError(
            f"the expression has {len(expression)} characters, at most {MAX_EXPRESSION_CHARS}"
        )


class ExpressionCache:
    """Filters of the expressions seen last; bounded in number and memory.

    It is emptied when it is full: expressions that are in use come back with the next pull.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filters: dict[tuple[str, str | None], ConsumerFilter | None] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return self._size_bytes

    def filter_of(
        self, expression: str, expression_type: str | None = None
    ) -> ConsumerFilter | None:
        """The filter of an expression; None takes everything.

        Args:
            expression: a list of tags, or a condition.
            expression_type: `TAG` (also when None) or `SQL92`.

        Raises:
            ValueError: it is too long, holds no tag, or is no condition (an ExpressionError then,
                which says where).
        """
        filters = self._filters
        key = (expression, None if expression_type == EXPRESSION_TAG else expression_type)
        if key in filters:
            return filters[key]
        found: ConsumerFilter | None
        if expression_type == EXPRESSION_SQL92:
            found = SqlFilter(Condition(expression))
        else:
            check_expression(expression)
            found = filter_of(build_subscription("", expression))
        size_bytes = 4 * len(expression) + (0 if found is None else found.size_bytes)
        with self._lock:
            if (
                len(self._filters) >= _MAX_CACHED_COUNT
                or self._size_bytes + size_bytes > _MAX_CACHED_BYTES
            ):
                self._filters = {}
                self._size_bytes = 0
            self._filters[key] = found
            self._size_bytes += size_bytes
        return found
