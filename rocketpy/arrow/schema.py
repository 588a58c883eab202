"""Which columns a row has: names, types, and the groups they are asked for in.

Every column is declared once, in `COLUMNS`; a `RowSchema` is a choice of them. Two styles of names:
RocketMQ's own, and those of Spark's Kafka source, whose columns come first then, in its order.

Types are those that Spark takes from Python as they are: 32-bit offsets, microseconds in UTC, every
column nullable.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

import pyarrow as pa

Style = Literal["rocketmq", "kafka"]
ValueFormat = Literal["binary", "string"]
Damaged = Literal["fail", "skip"]
"""What is done about a damaged record."""

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
PROPERTIES: Final = pa.map_(pa.string(), pa.string())
INCLUDES: Final = ("hosts", "properties", "msgId")
"""Groups of columns that are there only when asked for."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: what it is called in the rocketmq style, and inside RocketPy.
        type: Arrow type; that of `body` is binary or string, as the value format says.
        group: the include it belongs to; empty when it is always there.
        kafka: its name in the kafka style, where that differs; empty when it is not there.
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
        columns: only these, in this order, by their name in the style; `include` does not count
            then. None: all columns that `include` leaves.
        include: the groups wanted: `hosts`, `properties`, `msgId`.
        style: how columns are called; `kafka` as Spark's Kafka source does, its columns first
            (`key` is binary there).
        value_format: `string` decodes bodies as UTF-8, with U+FFFD for what is none.

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
    """Return every column by its name in a style, in the order of its rows."""
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
        hint = f"; did you mean {near[0]}?" if near else ""
        msg = f"unknown {what} {given!r}{hint} Known: {', '.join(known)}"
        raise ValueError(msg)
