"""What a consumer takes of a queue, as the store asks for it: by tags, or by a condition.

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
"""Runs of records that are not looked at together after one in which most differed."""
_MAX_CACHED_BYTES: Final = 4 * 1024 * 1024


class TagFilter:
    """Takes messages by the hash of their tag; the client compares the tag itself.

    Attributes:
        codes: hashes of the tags it takes.
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
        """A look at a tag."""
        return 1

    def matches_tags_code(self, tags_code: int) -> bool:
        """Match by the consume-queue entry."""
        return tags_code in self.codes

    def matches_record(self, record: memoryview) -> bool:  # noqa: ARG002
        """Nothing more to match by."""
        return True

    def match_records(
        self,
        view: memoryview,  # noqa: ARG002
        positions: Sequence[int],  # noqa: ARG002
        sizes: Sequence[int],  # noqa: ARG002
    ) -> list[bool] | None:
        """Queue entries are matched one by one."""
        return None


class SqlFilter:
    """Takes messages by their properties; remembers how the records are built that it met.

    Attributes:
        condition: what they have to meet.
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
        """That of the condition."""
        return self.condition.weight

    def matches_tags_code(self, tags_code: int) -> bool:  # noqa: ARG002
        """Nothing to match by."""
        return True

    def matches_record(self, record: memoryview) -> bool:
        """Match by the properties, of which those in the condition are read."""
        return self.condition.matches_stored(properties_of(record))

    def match_records(
        self, view: memoryview, positions: Sequence[int], sizes: Sequence[int]
    ) -> list[bool] | None:
        """Match records that are built alike, whose values are cut out at once."""
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
        """Cut the values out; None when most records differ from each other."""
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


class _Refusal(NamedTuple):
    """Why an expression is none: whoever sends it does so with each pull."""

    reason: str

    @property
    def size_bytes(self) -> int:
        return 4 * len(self.reason)

    def error(self) -> ValueError:
        return ValueError(self.reason)


_UNKNOWN: Final = _Refusal("")


class ExpressionCache:
    """Filters of the expressions seen last, and why others are none; bounded in number and memory.

    It is emptied when it is full: expressions that are in use come back with the next pull.
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
        """The filter of an expression; None takes everything.

        Args:
            expression: a list of tags, or a condition.
            expression_type: `TAG` (also when None) or `SQL92`.

        Raises:
            ValueError: it is too long, holds no tag, or is no condition; it says where.
        """
        key = (expression, None if expression_type == EXPRESSION_TAG else expression_type)
        found = self._filters.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            found = _made(expression, expression_type)
            if len(expression) <= MAX_EXPRESSION_CHARS:  # one that is longer is refused by that
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
