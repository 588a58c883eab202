"""What a consumer takes of a queue, as the store asks for it.

Source: ExpressionMessageFilter.java (5.4.0).
"""

import threading
from typing import Final

from rocketpy.proto.subscription import SubscriptionData, build_subscription

MAX_EXPRESSION_CHARS: Final = 16 * 1024
"""Longest expression of a subscription; Apache knows no limit."""

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
    """Filters of the TAG expressions seen last; bounded in number and memory.

    It is emptied when it is full: expressions that are in use come back with the next pull.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filters: dict[str, TagFilter | None] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return self._size_bytes

    def filter_of(self, expression: str) -> TagFilter | None:
        """The filter of a TAG expression; None takes everything.

        Raises:
            ValueError: it is too long, or holds no tag.
        """
        filters = self._filters
        if expression in filters:
            return filters[expression]
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
            self._filters[expression] = found
            self._size_bytes += size_bytes
        return found
