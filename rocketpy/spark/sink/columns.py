"""Which column of a frame is what: checked once, on the driver, before any task starts.

A column is known by its name, whatever its case. Names of Spark's Kafka sink (`value`, `key`) are
taken, too. What a read of this format gives beside what a message is made of (`queueOffset`,
`storeTimestamp`, ...) is left out, because the broker writes it anew; any other column is an error:
a misspelt `tag` must not be a message without its tag.
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
"""What a column can be; also the name of the column."""

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
"""What a read gives and no write can set, in lower case."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Where in a frame's rows everything is.

    Attributes:
        places: index of each role's column; roles without a column are missing.
    """

    places: Mapping[Role, int]


def find_columns(schema: StructType, options: SinkOptions) -> Columns:
    """Find and check the columns of a frame that is to be written.

    Args:
        schema: the frame's.
        options: of the write.

    Raises:
        ConfigError: a column that is missing, unknown, there twice, or of a type that its role
            does not have; names the column and the accepted types.
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
        f"a column of this name has to be {words}, not {kind.simpleString()}{hint}", key=name
    )


def _check_present(places: Mapping[Role, int], schema: StructType, options: SinkOptions) -> None:
    given = ", ".join(schema.names) or "none"
    if "body" not in places:
        words = _ACCEPTED["body"][0]
        raise ConfigError(f"a column with the message's body is needed ({words}); there is {given}",
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
