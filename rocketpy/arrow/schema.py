"""Columns of rows: names, types, and the groups of optional columns.

Every column is declared once, in `COLUMNS`; a `RowSchema` is a selection of them. There are two
styles of names: RocketMQ's, and that of Spark's Kafka source, which puts its columns first, in its
order.

The types are those that Spark accepts from Python without conversion: 32-bit offsets,
microseconds in UTC, every column nullable.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

import pyarrow as pa

Style = Literal["rocketmq", "kafka"]
ValueFormat = Literal["binary", "string"]
Damaged = Literal["fail", "skip"]
"""Policy for damaged records: raise, or leave the row out."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
PROPERTIES: Final = pa.map_(pa.string(), pa.string())
INCLUDES: Final = ("hosts", "properties", "msgId")
"""Groups of columns that a schema has only on request."""


@dataclass(frozen=True, slots=True)
class Column:
    """Declaration of a column.

    Attributes:
        name: in the rocketmq style, and inside RocketPy.
        type: Arrow type; that of `body` is binary or string, by the value format.
        group: the optional group that it belongs to; empty when every schema has it.
        kafka: its name in the kafka style; `=` when it is the same.
    """

    name: str
    type: pa.DataType
    group: str = ""
    kafka: str = "="


COLUMNS: Final = (
    Column("topic", pa.string()),
    Column("brokerName", pa.string()),
    Column("queueId", pa.int32(), kafka="partition"),
    Column("queueOffset", pa.int64(), kafka="offset"),
    Column("msgId", pa.string(), "msgId"),
    Column("keys", pa.string(), kafka="key"),
    Column("tags", pa.string()),
    Column("body", pa.binary(), kafka="value"),
    Column("bornTimestamp", TIMESTAMP),
    Column("storeTimestamp", TIMESTAMP, kafka="timestamp"),
    Column("bornHost", pa.string(), "hosts"),
    Column("storeHost", pa.string(), "hosts"),
    Column("sysFlag", pa.int32()),
    Column("flag", pa.int32()),
    Column("reconsumeTimes", pa.int32()),
    Column("properties", PROPERTIES, "properties"),
)
"""Every column, in the order of rows in the rocketmq style."""

_KAFKA_FIRST: Final = ("key", "value", "topic", "partition", "offset", "timestamp")


@dataclass(frozen=True, slots=True)
class RowSchema:
    """The columns of rows, in order.

    Attributes:
        names: RocketPy's name of each column (`Column.name`).
        arrow: the schema of record batches, with the names of the style.
    """

    names: tuple[str, ...]
    arrow: pa.Schema


def row_schema(
    *,
    columns: Sequence[str] | None = None,
    include: Collection[str] = ("properties",),
    style: Style = "rocketmq",
    value_format: ValueFormat = "binary",
) -> RowSchema:
    """Return the schema of rows.

    Args:
        columns: only these, in this order, by their name in the style; `include` is ignored
            then. None: all columns, optional ones by `include`.
        include: optional groups: `hosts`, `properties`, `msgId`.
        style: names of columns; `kafka` has those of Spark's Kafka source, its columns first
            (`key` is binary there).
        value_format: `string` decodes bodies as UTF-8, with U+FFFD for invalid bytes.

    Raises:
        ValueError: an unknown column, group, style or format, or a column named twice; the
            message names the nearest known one.
    """
    _check("schema style", style, ("rocketmq", "kafka"))
    _check("value format", value_format, ("binary", "string"))
    for group in include:
        _check("include", group, INCLUDES)
    known = _styled(style, value_format)
    if columns is None:
        chosen = [
            name for name, column in known.items() if not column.group or column.group in include
        ]
    else:
        chosen = list(columns)
        for name in chosen:
            _check("column", name, tuple(known))
        if len(set(chosen)) < len(chosen) or not chosen:
            msg = f"columns must be named once each, and at least one: {', '.join(chosen)!r}"
            raise ValueError(msg)
    return RowSchema(
        tuple(known[name].name for name in chosen),
        pa.schema([pa.field(name, known[name].type) for name in chosen]),
    )


def _styled(style: Style, value_format: ValueFormat) -> dict[str, Column]:
    """Return every column by its name in a style, in the order of that style."""
    body = pa.string() if value_format == "string" else pa.binary()
    named: dict[str, Column] = {}
    for column in COLUMNS:
        name, kind = column.name, column.type
        if style == "kafka":
            name = name if column.kafka == "=" else column.kafka
            kind = pa.binary() if column.name == "keys" else kind
        if column.name == "body":
            kind = body
        named[name] = Column(column.name, kind, column.group)
    if style == "kafka":
        named = {name: named[name] for name in _KAFKA_FIRST} | named
    return named


def _check(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        near = get_close_matches(given, known, 1, 0.5)
        hint = f"; did you mean {near[0]}?" if near else "."
        msg = f"unknown {what} {given!r}{hint} Known: {', '.join(known)}"
        raise ValueError(msg)
