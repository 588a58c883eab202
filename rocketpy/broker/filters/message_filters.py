"""Filters of messages, by tags or by an SQL92 condition, as the store calls them.

Source: ExpressionMessageFilter.java (5.4.0).
"""

import threading
from collections.abc import Sequence
from typing import Final, NamedTuple, cast

from rocketpy.proto.record.property_locator import SHAPE_BYTES, RecordShape
from rocketpy.proto.record.record import properties_of
from rocketpy.proto.subscription import (
    EXPRESSION_SQL92,
    EXPRESSION_TAG,
    SubscriptionData,
    build_subscription,
)
from rocketpy.sql92.condition import MAX_EXPRESSION_CHARS, Condition

_CODE_BYTES: Final = 100
_MAX_CACHED_COUNT: Final = 1024
_RESTS: Final = 16
"""Groups of records matched one by one after a group in which most records differed."""
_MAX_CACHED_BYTES: Final = 4 * 1024 * 1024


class TagFilter:
    """Matches messages by the hash of their tag; the client compares the tag itself.

    Attributes:
        codes: hashes of the accepted tags.
    """

    __slots__ = ("codes",)

    def __init__(self, codes: frozenset[int]) -> None:
        self.codes: frozenset[int] = codes

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return len(self.codes) * _CODE_BYTES

    @property
    def weight(self) -> int:
        """Relative cost of a match: that of one tag."""
        return 1

    def matches_tags_code(self, tags_code: int) -> bool:
        """Match by the consume-queue entry."""
        return tags_code in self.codes

    def matches_record(self, record: memoryview) -> bool:  # noqa: ARG002
        """Match everything: the queue entry has decided."""
        return True

    def match_records(
        self,
        view: memoryview,  # noqa: ARG002
        positions: Sequence[int],  # noqa: ARG002
        sizes: Sequence[int],  # noqa: ARG002
    ) -> list[bool] | None:
        """Return None: queue entries are matched one by one."""
        return None


class SqlFilter:
    """Matches messages by their properties; caches the layout of recent records.

    Attributes:
        condition: the SQL92 condition.
    """

    __slots__ = ("_rests", "_shape", "condition")

    def __init__(self, condition: Condition) -> None:
        self.condition: Condition = condition
        self._shape: RecordShape | None = None
        self._rests = 0

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return self.condition.size_bytes + SHAPE_BYTES

    @property
    def weight(self) -> int:
        """Relative cost of a match: that of the condition."""
        return self.condition.weight

    def matches_tags_code(self, tags_code: int) -> bool:  # noqa: ARG002
        """Match everything: the queue entry has no properties."""
        return True

    def matches_record(self, record: memoryview) -> bool:
        """Match by the properties, reading only those in the condition."""
        return self.condition.matches_stored(properties_of(record))

    def match_records(
        self, view: memoryview, positions: Sequence[int], sizes: Sequence[int]
    ) -> list[bool] | None:
        """Match records of the same layout together, by values cut out at fixed positions."""
        if self._rests > 0:
            self._rests -= 1
            return None
        rows = self._values(view, positions, sizes)
        if rows is None:
            self._rests = _RESTS
            return None
        match_values = self.condition.match_values
        if None not in rows:
            return match_values(cast("list[tuple[bytes, ...]]", rows))
        alike = iter(match_values([row for row in rows if row is not None]))
        return [
            self.matches_record(view[at : at + size]) if row is None else next(alike)
            for row, at, size in zip(rows, positions, sizes, strict=True)
        ]

    def _values(
        self, view: memoryview, positions: Sequence[int], sizes: Sequence[int]
    ) -> list[tuple[bytes, ...] | None] | None:
        """Cut out the values; None when most records have different layouts."""
        names = self.condition.stored_names
        first, shape = 0, self._shape
        for _ in range(2 if names else 0):
            if shape is not None:
                rows = shape.values(view, positions, sizes)
                others = rows.count(None)
                if 2 * others < len(rows):
                    self._shape = shape
                    return rows
                first = rows.index(None)
            at = positions[first]
            shape = RecordShape.of(view[at : at + sizes[first]], names)
        return None


ConsumerFilter = TagFilter | SqlFilter
"""Filter of a consumer for a topic."""


def filter_of(subscription: SubscriptionData) -> TagFilter | None:
    """Return the filter of a TAG subscription; None accepts everything."""
    if subscription.takes_all or subscription.class_filter_mode:
        return None
    return TagFilter(frozenset(subscription.code_set))


def check_expression(expression: str) -> None:
    """Check that the expression of a subscription is short enough to be parsed on an event loop.

    Raises:
        ValueError: it is longer than `MAX_EXPRESSION_CHARS`.
    """
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise ValueError(
            f"the expression has {len(expression)} characters, at most {MAX_EXPRESSION_CHARS}"
        )


class _Refusal(NamedTuple):
    """Cached reason why an expression is invalid: its client sends it with each pull."""

    reason: str

    @property
    def size_bytes(self) -> int:
        return 4 * len(self.reason)

    def error(self) -> ValueError:
        return ValueError(self.reason)


_UNKNOWN: Final = _Refusal("")


class ExpressionCache:
    """Cache of compiled and of invalid expressions, bounded in number and memory.

    It is cleared when it is full: expressions in use are added again by their next pull.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._filters: dict[tuple[str, str | None], ConsumerFilter | _Refusal | None] = {}
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """Estimated memory."""
        return self._size_bytes

    def filter_of(
        self, expression: str, expression_type: str | None = None
    ) -> ConsumerFilter | None:
        """Return the filter of an expression; None accepts everything.

        Args:
            expression: a list of tags, or a condition.
            expression_type: `TAG` (also when None) or `SQL92`.

        Raises:
            ValueError: it is too long, has no tag, or is not a valid condition (with the position).
        """
        key = (expression, None if expression_type == EXPRESSION_TAG else expression_type)
        found = self._filters.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = _made(expression, expression_type)
            if len(expression) <= MAX_EXPRESSION_CHARS:  # longer ones fail fast, and would fill it
                self._keep(key, found)
        if isinstance(found, _Refusal):
            raise found.error()
        return found

    def _keep(self, key: tuple[str, str | None], found: ConsumerFilter | _Refusal | None) -> None:
        size_bytes = 4 * len(key[0]) + (0 if found is None else found.size_bytes)
        with self._lock:
            if (
                len(self._filters) >= _MAX_CACHED_COUNT
                or self._size_bytes + size_bytes > _MAX_CACHED_BYTES
            ):
                self._filters = {}
                self._size_bytes = 0
            self._filters[key] = found
            self._size_bytes += size_bytes


def _made(expression: str, expression_type: str | None) -> ConsumerFilter | _Refusal | None:
    try:
        if expression_type == EXPRESSION_SQL92:
            return SqlFilter(Condition(expression))
        check_expression(expression)
        return filter_of(build_subscription("", expression))
    except ValueError as error:
        return _Refusal(str(error))
