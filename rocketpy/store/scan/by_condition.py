"""Filters rows by an SQL92 condition on their properties, row by row in Python."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from rocketpy.arrow.missing_rows import LOST_UNTIL
from rocketpy.arrow.schema import PROPERTIES, RowSchema
from rocketpy.sql92.condition import Condition
from rocketpy.store.scan.request import ScanRequest

_NAME = "properties"


def with_properties(wanted: ScanRequest) -> ScanRequest:
    """Return the request with the column of properties, which a condition needs."""
    schema = wanted.schema
    if _NAME in schema.names:
        return wanted
    arrow = schema.arrow.append(pa.field(_NAME, PROPERTIES))
    return replace(wanted, schema=RowSchema((*schema.names, _NAME), arrow))


def matching(
    batches: Iterable[pa.RecordBatch], schema: RowSchema, condition: Condition
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that match a condition, and those that mark lost messages.

    Args:
        batches: record batches with the schema of `with_properties`.
        schema: schema of the returned batches.
        condition: condition on the properties, as brokers apply it.
    """
    at = schema.names.index(_NAME) if _NAME in schema.names else len(schema.names)
    names = pa.array(sorted({*condition.names, LOST_UNTIL}), pa.string())
    for batch in batches:
        mask = [
            # Rows that mark lost messages always pass: a filter must not hide a loss.
            LOST_UNTIL in found or condition.matches(found)
            for found in _mentioned(batch.column(at), names)
        ]
        if any(mask):
            kept = batch.filter(pa.array(mask, pa.bool_()))
            yield kept.select(range(len(schema.names)))


def _mentioned(column: pa.MapArray, names: pa.Array) -> list[dict[str, str]]:
    """Return the named properties of each row that have a value."""
    import pyarrow.compute as pc  # noqa: PLC0415 - planners do not need it

    rows: list[dict[str, str]] = [{} for _ in range(len(column))]
    # Only the named properties become Python objects, usually a small part of all.
    chosen = np.flatnonzero(pc.is_in(column.keys, value_set=names).to_numpy(zero_copy_only=False))
    owners = np.searchsorted(column.offsets.to_numpy(), chosen, side="right") - 1
    keys, values = (each.take(pa.array(chosen)) for each in (column.keys, column.items))
    for row, key, value in zip(owners.tolist(), keys.to_pylist(), values.to_pylist(), strict=True):
        if value:
            rows[row][key] = value
    return rows
