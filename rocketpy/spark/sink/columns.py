"""Roles of a frame's columns, checked once on the driver before any task starts.

A column is found by its name, case-insensitive. Names of Spark's Kafka sink (`value`, `key`) are
accepted as well. Columns that reads of this format have and a broker sets (`queueOffset`,
`storeTimestamp`, ...) are ignored. Any other column is an error: a misspelt `tag` must not become a
message without its tag.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rocketpy.errors import ConfigError
from rocketpy.spark.sink.options import SinkOptions

Role = Literal[
    "topic", "body", "keys", "tags", "properties", "delayLevel", "deliverTime", "shardingKey",
    "flag", "msgId",
]  # fmt: skip
"""Roles of columns; also their names."""

_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)


def _is_text_list(kind: DataType) -> bool:
    return isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType)


def _is_text_map(kind: DataType) -> bool:
    return (
        isinstance(kind, MapType)
        and isinstance(kind.keyType, StringType)
        and isinstance(kind.valueType, StringType)
    )


def _one_of(*kinds: type[DataType]) -> Callable[[DataType], bool]:
    return lambda kind: isinstance(kind, kinds)


_ACCEPTED: Final[Mapping[Role, tuple[str, Callable[[DataType], bool]]]] = {
    "topic": ("string", _one_of(StringType)),
    "body": ("binary or string", _one_of(BinaryType, StringType)),
    "keys": (
        "string, binary or array<string>",
        lambda kind: isinstance(kind, StringType | BinaryType) or _is_text_list(kind),
    ),
    "tags": ("string", _one_of(StringType)),
    "properties": ("map<string,string>", _is_text_map),
    "delayLevel": ("a whole number (1 to 18)", _one_of(*_WHOLE)),
    "deliverTime": ("timestamp, or bigint (ms since 1970)", _one_of(TimestampType, LongType)),
    "shardingKey": ("string or a whole number", _one_of(StringType, *_WHOLE)),
    "flag": ("int", _one_of(ByteType, ShortType, IntegerType)),
    "msgId": ("string", _one_of(StringType)),
}
assert set(_ACCEPTED) == set(get_args(Role))

_ALIASES: Final[Mapping[str, Role]] = {"value": "body", "key": "keys"}
_LEFT_OUT: Final = frozenset(
    {
        "brokername", "queueid", "queueoffset", "msgid", "borntimestamp", "storetimestamp",
        "bornhost", "storehost", "sysflag", "reconsumetimes", "partition", "offset", "timestamp",
        "timestamptype",
    }
)  # fmt: skip
"""Columns of reads that no write can set, in lower case."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Positions of the columns in a frame's rows.

    Attributes:
        places: index of the column of each role; roles without a column are missing.
    """

    places: Mapping[Role, int]


def find_columns(schema: StructType, options: SinkOptions) -> Columns:
    """Find and check the columns of a frame to write.

    Args:
        schema: the frame's.
        options: of the write.

    Raises:
        ConfigError: a column is missing, unknown, duplicate, or has a type that its role does not
            accept; the message names the column and the accepted types.
    """
    known: dict[str, Role] = {role.lower(): role for role in get_args(Role)} | dict(_ALIASES)
    if options.message_id == "auto":
        del known["msgid"]
    places: dict[Role, int] = {}
    names: dict[Role, str] = {}
    for index, column in enumerate(schema.fields):
        name = column.name.lower()
        role = known.get(name)
        if role is None:
            if name not in _LEFT_OUT:
                raise ConfigError(_unknown(column.name, known), key=column.name)
            continue
        if role in places:
            reason = f"column {names[role]} is the {role}, too; drop one of them"
            raise ConfigError(reason, key=column.name)
        _check_type(role, column.name, column.dataType)
        places[role], names[role] = index, column.name
    _check_present(places, schema, options)
    return Columns(places)


def _check_type(role: Role, name: str, kind: DataType) -> None:
    words, accepts = _ACCEPTED[role]
    if accepts(kind):
        return
    hint = ""
    if isinstance(kind, TimestampNTZType):
        hint = "; cast it to timestamp, which has a time zone"
    raise ConfigError(
        f"a column of this name must be {words}, not {kind.simpleString()}{hint}", key=name
    )


def _check_present(places: Mapping[Role, int], schema: StructType, options: SinkOptions) -> None:
    given = ", ".join(schema.names) or "none"
    if "body" not in places:
        words = _ACCEPTED["body"][0]
        raise ConfigError(f"a column for the body is required ({words}); the columns are {given}",
                          key="body")  # fmt: skip
    if "topic" not in places and not options.topic:
        reason = f"give the option topic or a column of that name (string); there is {given}"
        raise ConfigError(reason, key="topic")
    if options.message_id == "column" and "msgId" not in places:
        reason = f"messageId=column needs this column (string); there is {given}"
        raise ConfigError(reason, key="msgId")


def _unknown(name: str, known: Mapping[str, Role]) -> str:
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)
    meant = f"; did you mean {known[close[0]]}?" if close else "."
    columns = ", ".join(f"{role} ({words})" for role, (words, _) in _ACCEPTED.items())
    return (
        f"a message has no such part{meant} Drop or rename the column, or put it into properties. "
        f"Columns are {columns}"
    )
