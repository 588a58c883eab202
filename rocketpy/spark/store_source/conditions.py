"""Conditions that Spark pushes down: they narrow a read and filter its rows.

Every accepted condition is applied to each row exactly as Spark would, so Spark does not repeat it.
Conditions on topic, broker, queue, offset and tags also avoid reading data. This needs the option
`pushdown`: a reader that accepts conditions fails where Spark's own setting is off.

`pyarrow.compute` is imported on use: planners, which are new processes, start faster without it.
"""

# ruff: noqa: PLC0415 - see above

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import datasource as spark

from rocketpy.arrow import RowSchema
from rocketpy.proto.subscription import SUB_ALL
from rocketpy.spark.store_source.options import StoreOptions
from rocketpy.spark.store_source.plan import Task
from rocketpy.store.scan.plan import QueuePiece

_ORDER: Final = {
    spark.GreaterThan: "greater",
    spark.GreaterThanOrEqual: "greater_equal",
    spark.LessThan: "less",
    spark.LessThanOrEqual: "less_equal",
}
"""Arrow function of each comparison."""
_TEXT: Final = {
    spark.StringStartsWith: "starts_with",
    spark.StringEndsWith: "ends_with",
    spark.StringContains: "match_substring",
}


class Conditions:
    """Accepted conditions of a query."""

    def __init__(self, rows: RowSchema) -> None:
        """Create an empty set of conditions.

        Args:
            rows: the columns of the read.
        """
        self._kinds = {field.name: field.type for field in rows.arrow}
        self._inside = dict(zip(rows.arrow.names, rows.names, strict=True))
        self._taken: list[spark.Filter] = []

    def take(self, filters: Iterable[spark.Filter]) -> Iterator[spark.Filter]:
        """Accept supported conditions, and yield the others."""
        for each in filters:
            if self._is_understood(each):
                self._taken.append(each)
            else:
                yield each

    def narrow_options(self, options: StoreOptions) -> StoreOptions:
        """Return options narrowed to the tags that a condition names."""
        for values in self._allowed("tags"):
            is_plain = all(_is_tag(value) for value in values)
            if options.tags == SUB_ALL and not options.sql and values and is_plain:
                return replace(options, sub_expression=" || ".join(values))
        return options

    def narrow_tasks(self, tasks: Iterable[Task]) -> list[Task]:
        """Return the tasks that may have rows, with narrowed ranges of offsets."""
        kept = []
        for task in tasks:
            if not self._may_hold("brokerName", task.wanted.broker_name):
                continue
            piece = task.piece
            if isinstance(piece, QueuePiece):
                if not self._may_hold("topic", piece.topic):
                    continue
                if not self._may_hold("queueId", piece.queue_id):
                    continue
                start, end = self._offsets(piece.start, piece.end)
                if start >= end:
                    continue
                task = task._replace(piece=piece.part(start, end))  # noqa: PLW2901 - narrowed
            kept.append(task)
        return kept

    def filtered(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches with only the rows that meet every condition."""
        if not self._taken:
            yield from batches
            return
        import pyarrow.compute as pc

        for batch in batches:
            kept = batch
            for each in self._taken:
                kept = kept.filter(pc.fill_null(self._mask(each, kept), fill_value=False))
            if kept.num_rows:
                yield kept

    def _is_understood(self, condition: spark.Filter) -> bool:
        if isinstance(condition, spark.Not):
            return self._is_understood(condition.child)
        path: Sequence[str] = getattr(condition, "attribute", ())
        kind = self._kinds.get(path[0]) if len(path) == 1 else None
        if kind is None or pa.types.is_map(kind) or pa.types.is_binary(kind):
            return False
        if isinstance(condition, spark.IsNull | spark.IsNotNull):
            return True
        if isinstance(condition, tuple(_TEXT)):
            return bool(pa.types.is_string(kind))
        value = getattr(condition, "value", None)
        if isinstance(condition, tuple(_ORDER)):
            return not pa.types.is_string(kind) and value is not None
        if isinstance(condition, spark.In):
            return None not in condition.value
        if isinstance(condition, spark.EqualTo | spark.EqualNullSafe):
            return value is not None
        return False

    def _mask(self, condition: spark.Filter, batch: pa.RecordBatch) -> pa.Array:
        """Return whether each row meets a condition; null where SQL's result is unknown."""
        import pyarrow.compute as pc

        if isinstance(condition, spark.Not):
            return pc.invert(self._mask(condition.child, batch))
        (name,) = condition.attribute  # type: ignore[attr-defined]  # all others have one
        column = batch.column(name)
        if isinstance(condition, spark.IsNull):
            return pc.is_null(column)
        if isinstance(condition, spark.IsNotNull):
            return pc.is_valid(column)
        if isinstance(condition, spark.In):
            known = pc.is_in(column, value_set=pa.array(condition.value, column.type))
            return pc.if_else(pc.is_null(column), pa.scalar(None, pa.bool_()), known)
        for kind, text_test in _TEXT.items():
            if isinstance(condition, kind):
                return getattr(pc, text_test)(column, condition.value)  # type: ignore[attr-defined]
        value = pa.scalar(condition.value, column.type)  # type: ignore[attr-defined]
        for kind, comparison in _ORDER.items():
            if isinstance(condition, kind):
                return getattr(pc, comparison)(column, value)
        equal = pc.equal(column, value)
        if isinstance(condition, spark.EqualNullSafe):
            return pc.fill_null(equal, fill_value=False)
        return equal

    def _about(self, name: str) -> Iterator[spark.Filter]:
        """Yield the conditions on a column, by RocketPy's name."""
        for each in self._taken:
            path = getattr(each, "attribute", ())
            if path and self._inside[path[0]] == name:
                yield each

    def _allowed(self, name: str) -> Iterator[tuple[Any, ...]]:
        """Yield the allowed values of a column, for each condition that lists them."""
        for each in self._about(name):
            if isinstance(each, spark.In):
                yield each.value
            elif isinstance(each, spark.EqualTo | spark.EqualNullSafe):
                yield (each.value,)

    def _may_hold(self, name: str, value: object) -> bool:
        return all(value in allowed for allowed in self._allowed(name))

    def _offsets(self, start: int, end: int) -> tuple[int, int]:
        """Narrow a range of queue offsets."""
        for values in self._allowed("queueOffset"):
            start, end = max(start, min(values, default=end)), min(end, max(values, default=-1) + 1)
        for each in self._about("queueOffset"):
            if isinstance(each, spark.GreaterThan):
                start = max(start, each.value + 1)
            elif isinstance(each, spark.GreaterThanOrEqual):
                start = max(start, each.value)
            elif isinstance(each, spark.LessThan):
                end = min(end, each.value)
            elif isinstance(each, spark.LessThanOrEqual):
                end = min(end, each.value + 1)
        return start, end


def _is_tag(value: object) -> bool:
    """Return whether a value can appear unchanged in a tag expression."""
    return isinstance(value, str) and value == value.strip() != "" and not {"|", "*"} & set(value)
