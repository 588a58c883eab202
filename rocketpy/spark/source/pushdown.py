"""Narrows a read by pushed-down conditions of a query.

Spark passes simple comparisons that are ANDed. Those on the queue (topic, broker, queue id) and on
the offset are applied completely here. One on the store time narrows the range, and Spark applies
it again, because brokers look up times by milliseconds.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
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
from pyspark.sql.types import StructType

from rocketpy.arrow import RowSchema
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.namespace import unwrap_namespace
from rocketpy.spark.connection import Connection
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.planning import Offsets
from rocketpy.spark.source.batch import BatchReader
from rocketpy.spark.source.offset_resolution import offsets_at
from rocketpy.spark.source.snapshot import Snapshot
from rocketpy.spark.spark_api import warn_of_kept_conditions

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


class PushdownReader(BatchReader):
    """Batch reader with push-down of conditions.

    A separate class, because Spark fails every query of a reader with `pushFilters` unless its
    configuration allows push-down.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        super().__init__(options, schema)
        namespace = self.options.namespace
        self._narrowing = Narrowing(self.rows, partial(unwrap_namespace, namespace))

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Accept conditions, and return those that Spark has to apply as well."""
        rest = [each for each in filters if not self._narrowing.add(each)]
        warn_of_kept_conditions(filters)
        return rest

    def __getstate__(self) -> dict[str, Any]:
        """Drop the conditions, which tasks do not need."""
        return {**self.__dict__, "_narrowing": None}

    async def _narrowed(
        self, connection: Connection, snapshot: Snapshot, ranges: list[QueueRange]
    ) -> list[QueueRange]:
        narrowing = self._narrowing
        since: Offsets = {}
        until: Offsets = {}
        if narrowing.since_ms > 0:
            times = dict.fromkeys(snapshot.ends, narrowing.since_ms)
            since = await offsets_at(connection, snapshot, times)
        if narrowing.until_ms is not None:
            times = dict.fromkeys(snapshot.ends, narrowing.until_ms)
            until = await offsets_at(connection, snapshot, times)
        found = []
        for each in ranges:
            queue = each.queue
            part = each._replace(
                start=max(each.start, since.get(queue, each.start)),
                end=min(each.end, until.get(queue, each.end)),
            )
            part = narrowing.narrowed(part)
            if part.size and narrowing.takes(queue):
                found.append(part)
        return found
