"""Narrows a read by pushed-down conditions of a query.

Spark passes simple comparisons that are ANDed. Those on the queue (topic, broker, queue id) and on
the offset are applied completely here. One on the store time narrows the range, and Spark applies
it again, because brokers look up times by milliseconds.
"""

import operator
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from rocketpy.arrow import RowSchema
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import QueueRange

OF_QUEUE: Final = ("topic", "brokerName", "queueId")
OFFSET: Final = "queueOffset"
STORE_TIME: Final = "storeTimestamp"

_COMPARE: Final[Mapping[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
    In: lambda value, given: value in given,
    StringStartsWith: lambda value, given: str(value).startswith(given),
    StringEndsWith: lambda value, given: str(value).endswith(given),
    StringContains: lambda value, given: given in str(value),
}
_MAX: Final = (1 << 63) - 1


class Narrowing:
    """Bounds of a read from conditions.

    Args:
        rows: the columns that conditions name.
        topic_of: returns the user's name of a topic for the broker's name.

    Attributes:
        since_ms: earliest store time; 0 without a bound.
        until_ms: store time before which the read ends; None without a bound.
    """

    def __init__(self, rows: RowSchema, topic_of: Callable[[str], str] = str) -> None:
        self.since_ms: int = 0
        self.until_ms: int | None = None
        self._names = dict(zip(rows.arrow.names, rows.names, strict=True))
        self._topic_of = topic_of
        self._tests: list[Callable[[Mapping[str, Any]], bool]] = []
        self._low, self._high = 0, _MAX

    def add(self, condition: Filter) -> bool:
        """Add a condition; return whether Spark does not need to apply it."""
        if isinstance(condition, Not):
            return self._add_of_queue(condition.child, is_wanted=False)
        name = self._name(condition)
        if isinstance(condition, IsNotNull):
            return name in {*OF_QUEUE, OFFSET}
        if name == OFFSET:
            return self._add_of_offset(condition)
        if name == STORE_TIME:
            self._add_of_time(condition)
            return False
        return self._add_of_queue(condition, is_wanted=True)

    def takes(self, queue: MessageQueue) -> bool:
        """Return whether a queue may have matching messages."""
        values = dict(zip(OF_QUEUE, (self._topic_of(queue.topic), *queue[1:]), strict=True))
        return all(test(values) for test in self._tests)

    def narrowed(self, each: QueueRange) -> QueueRange:
        """Return a range narrowed by its offsets."""
        return each._replace(start=max(each.start, self._low), end=min(each.end, self._high))

    def _name(self, condition: Filter) -> str:
        path: tuple[str, ...] = getattr(condition, "attribute", ())
        return self._names.get(path[0], "") if len(path) == 1 else ""

    def _add_of_queue(self, condition: Filter, *, is_wanted: bool) -> bool:
        compare = _COMPARE.get(type(condition))
        name = self._name(condition)
        if compare is None or name not in OF_QUEUE:
            return False
        given = getattr(condition, "value", None)
        if given is None or (isinstance(given, tuple) and None in given):
            return False
        self._tests.append(lambda values: compare(values[name], given) is is_wanted)
        return True

    def _add_of_offset(self, condition: Filter) -> bool:
        given = getattr(condition, "value", None)
        if not isinstance(given, int):
            return False
        bounds = {
            EqualTo: (given, given + 1),
            EqualNullSafe: (given, given + 1),
            GreaterThan: (given + 1, _MAX),
            GreaterThanOrEqual: (given, _MAX),
            LessThan: (0, given),
            LessThanOrEqual: (0, given + 1),
        }.get(type(condition))
        if bounds is None:
            return False
        self._low, self._high = max(self._low, bounds[0]), min(self._high, bounds[1])
        return True

    def _add_of_time(self, condition: Filter) -> None:
        given = getattr(condition, "value", None)
        if not isinstance(given, datetime):
            return
        # One more millisecond on both sides, because Spark applies the condition to each row again.
        at_ms = int(given.timestamp() * 1000)
        if isinstance(condition, GreaterThan | GreaterThanOrEqual | EqualTo):
            self.since_ms = max(self.since_ms, at_ms - 1)
        if isinstance(condition, LessThan | LessThanOrEqual | EqualTo):
            until_ms = at_ms + 2
            self.until_ms = until_ms if self.until_ms is None else min(self.until_ms, until_ms)
