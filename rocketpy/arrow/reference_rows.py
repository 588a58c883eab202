"""Decoded messages as a record batch: the reference for every row, in Python.

It serves records that the compiled decoder leaves out (version 2, IPv6 hosts, compressed bodies,
irregular properties, damage), and all records where RocketPy is pure.
"""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from rocketpy.arrow.schema import RowSchema
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import PROPERTY_KEYS

_MAX_TIME_MS: Final = ((1 << 63) - 1) // 1000
"""Arrow's timestamps are 64-bit microseconds: later times, and earlier than -this, become null."""

_VALUES: Final[dict[str, Callable[[MessageExt], object]]] = {
    "topic": lambda message: message.topic,
    "queueId": lambda message: message.queue_id,
    "queueOffset": lambda message: message.queue_offset,
    "msgId": lambda message: message.msg_id,
    "keys": lambda message: message.properties.get(PROPERTY_KEYS),
    "tags": lambda message: message.tags,
    "body": lambda message: message.body,
    "bornTimestamp": lambda message: _micros(message.born_timestamp_ms),
    "storeTimestamp": lambda message: _micros(message.store_timestamp_ms),
    "bornHost": lambda message: message.born_host,
    "storeHost": lambda message: message.store_host,
    "sysFlag": lambda message: message.sys_flag,
    "flag": lambda message: message.flag,
    "reconsumeTimes": lambda message: message.reconsume_times,
    "properties": lambda message: list(message.properties.items()),
}


def reference_rows(
    messages: Sequence[MessageExt], schema: RowSchema, broker_name: str
) -> pa.RecordBatch:
    """Return messages as a record batch of the schema, in their order."""
    columns = []
    for name, field in zip(schema.names, schema.arrow, strict=True):
        if name == "brokerName":
            values: list[object] = [broker_name] * len(messages)
        else:
            values = list(map(_VALUES[name], messages))
        if pa.types.is_binary(field.type):
            values = [each.encode() if isinstance(each, str) else each for each in values]
        elif name == "body":
            values = [str(each, "utf-8", "replace") for each in values]  # type: ignore[call-overload]
        columns.append(pa.array(values, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


def _micros(time_ms: int) -> int | None:
    """Return the value of a timestamp in microseconds; None when it is out of range."""
    return time_ms * 1000 if -_MAX_TIME_MS <= time_ms <= _MAX_TIME_MS else None
