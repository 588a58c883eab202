"""Decodes trace messages of RocketPy's and the official clients into rows, one event each."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from rocketpy.proto.trace import (
    ConsumeBeginTrace,
    ConsumeEndTrace,
    SendTrace,
    TraceRecord,
    decode_traces,
)

EVENTS: Final = pa.schema(
    [
        ("kind", pa.string()),
        ("time_ms", pa.int64()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("msg_id", pa.string()),
        ("request_id", pa.string()),
        ("host", pa.string()),
        ("cost_ms", pa.int64()),
        ("success", pa.bool_()),
        ("outcome", pa.int32()),
        ("retries", pa.int32()),
    ]
)
EVENTS_DDL: Final = (
    "kind string, time_ms bigint, `group` string, topic string, msg_id string, request_id string, "
    "host string, cost_ms bigint, success boolean, outcome int, retries int"
)
"""The same as DDL. `host` is the broker of a send, or the client of a consumption."""

SENT: Final = "send"
BEGUN: Final = "begin"
ENDED: Final = "end"

Event = tuple[object, ...]


def event_of(record: TraceRecord, host: str) -> Event | None:
    """Return a record as a row of `EVENTS`; None for other kinds of records.

    Args:
        record: of a trace message.
        host: sender of the trace message.
    """
    match record:
        case SendTrace():
            return (
                SENT,
                record.time_ms,
                record.group,
                record.topic,
                record.msg_id,
                None,
                record.broker,
                record.cost_ms,
                record.success,
                None,
                None,
            )
        case ConsumeBeginTrace():
            return (
                BEGUN,
                record.time_ms,
                record.group,
                None,
                record.msg_id,
                record.request_id,
                host,
                None,
                None,
                None,
                record.retries,
            )
        case ConsumeEndTrace():
            return (
                ENDED,
                record.time_ms,
                record.group,
                None,
                record.msg_id,
                record.request_id,
                host,
                record.cost_ms,
                record.success,
                record.outcome,
                None,
            )
        case _:
            return None


def decode_bodies(bodies: Sequence[bytes | None], hosts: Sequence[str | None]) -> pa.RecordBatch:
    """Return the events of some trace messages.

    Args:
        bodies: of the messages; invalid traces are left out.
        hosts: their senders.
    """
    rows = [
        event
        for body, host in zip(bodies, hosts, strict=True)
        for record in decode_traces((body or b"").decode("utf-8", "replace"))
        if (event := event_of(record, (host or "").partition(":")[0])) is not None
    ]
    columns = zip(*rows, strict=True) if rows else [()] * len(EVENTS)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, EVENTS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS)


def decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode batches with the columns `body` and `bornHost`; for `DataFrame.mapInArrow`."""
    for batch in batches:
        yield decode_bodies(batch.column("body").to_pylist(), batch.column("bornHost").to_pylist())
