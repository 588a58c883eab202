"""Rows that mark ranges of lost messages, one row per range."""

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from rocketpy.arrow.schema import RowSchema

LOST_UNTIL: Final = "LOST_UNTIL"
"""Property of such a row: the queue offset after the last lost message."""

LostRange = tuple[str, str, int, int, int]
"""Topic, broker name, queue id, first offset, and the offset after the last."""


def lost_rows(lost: Iterable[LostRange], schema: RowSchema) -> pa.RecordBatch:
    """Return a row for each range: queue, first offset and the property `LOST_UNTIL`."""
    ranges = list(lost)
    values: dict[str, list[Any]] = {
        "topic": [topic for topic, *_ in ranges],
        "brokerName": [broker_name for _, broker_name, *_ in ranges],
        "queueId": [queue_id for _, _, queue_id, _, _ in ranges],
        "queueOffset": [start for *_, start, _ in ranges],
        "properties": [[(LOST_UNTIL, str(end))] for *_, end in ranges],
    }
    columns = [
        pa.array(values.get(name, [None] * len(ranges)), field.type)
        for name, field in zip(schema.names, schema.arrow, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
