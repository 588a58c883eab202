"""Converts record batches to messages, and reports rows that are not valid messages.

Every message has a property `_spark_id`: query/batch/partition/row, the same for a row in every
attempt to write it. Properties that clients and brokers set are removed from the column
`properties`, so that rows of a read can be written. Of these, TAGS, KEYS and the sharding key are
used if there is no column for them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from rocketpy.client.messages.delivery_time import DeliveryTime, level_property
from rocketpy.client.sending.outgoing_message import Outgoing, check_send_topic, id_properties
from rocketpy.errors import IllegalMessageError
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.proto.record.properties import (
    KEY_SEPARATOR,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    PROPERTY_DLQ_ORIGIN_TOPIC,
    PROPERTY_INSTANCE_ID,
    PROPERTY_KEYS,
    PROPERTY_SHARDING_KEY,
    PROPERTY_TAGS,
    SYSTEM_PROPERTIES,
    properties_text,
)
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.spark.offsets import check_time
from rocketpy.spark.sink.columns import Columns, Role
from rocketpy.spark.sink.options import SinkOptions

SPARK_ID: Final = "_spark_id"
SPARK_ERROR: Final = "_spark_error"
_SLICE_BYTES: Final = 8 << 20
_SLICE_ROWS: Final = 4096
_KEPT: Final = (PROPERTY_TAGS, PROPERTY_KEYS, PROPERTY_SHARDING_KEY)
_DROPPED: Final = SYSTEM_PROPERTIES - {*_KEPT} | {SPARK_ID}


class SinkRow(NamedTuple):
    """Row that was converted to a message.

    Attributes:
        number: of the row within its task, from 0.
        topic: the target.
        message: the message to send.
        order_key: rows with the same key go to the same queue, in order; None for any queue.
        is_delayed: whether the broker parks it until the delivery time.
    """

    number: int
    topic: str
    message: Outgoing
    order_key: str | int | None = None
    is_delayed: bool = False


class BadRow(NamedTuple):
    """Row that is not a valid message.

    Attributes:
        number: of the row within its task, from 0.
        topic: the target; empty if missing.
        body: the body; empty if missing.
        reason: the defect.
    """

    number: int
    topic: str
    body: bytes
    reason: str


class _Values:
    """Columns of a slice as lists; a role without a column has None for each row."""

    def __init__(self, batch: pa.RecordBatch, places: Mapping[Role, int]) -> None:
        self._batch = batch
        self._places = places
        self._none = [None] * batch.num_rows

    def of(self, role: Role) -> Sequence[Any]:
        place = self._places.get(role)
        if place is None:
            return self._none
        column = self._batch.column(place)
        if pa.types.is_timestamp(column.type):
            micros = pc.cast(column, pa.timestamp("us", column.type.tz)).cast(pa.int64())
            return [None if us is None else -(-us // 1000) for us in micros.to_pylist()]
        values: Sequence[Any] = column.to_pylist()
        return values


class RowReader:
    """Converter of one task's rows to messages.

    Args:
        columns: positions of the columns.
        options: of the write.
        id_prefix: of `_spark_id`, without the row: query/batch/partition.
        next_id: generates message ids.
    """

    def __init__(
        self, columns: Columns, options: SinkOptions, id_prefix: str, next_id: Callable[[], str]
    ) -> None:
        self._places = columns.places
        self._options = options
        self._id_prefix = id_prefix
        self._next_id = next_id
        self._number = 0

    @property
    def rows(self) -> int:
        """Rows read so far."""
        return self._number

    def read(self, batch: pa.RecordBatch) -> Iterator[list[SinkRow | BadRow]]:
        """Yield the rows of a batch in order, in lists of at most 4,096 rows and about 8 MiB.

        Args:
            batch: rows of the frame's schema.
        """
        if not batch.num_rows:
            return
        by_bytes = _SLICE_BYTES * batch.num_rows // max(1, batch.nbytes)
        step = max(1, min(_SLICE_ROWS, by_bytes))
        for start in range(0, batch.num_rows, step):
            yield self._read(batch.slice(start, step))

    def _read(self, batch: pa.RecordBatch) -> list[SinkRow | BadRow]:
        values = _Values(batch, self._places)
        found: list[SinkRow | BadRow] = []
        columns = (
            values.of("topic"), values.of("body"), values.of("keys"), values.of("tags"),
            values.of("properties"), values.of("delayLevel"), values.of("deliverTime"),
            values.of("shardingKey"), values.of("flag"), values.of("msgId"),
        )  # fmt: skip
        for row in zip(*columns, strict=True):
            topic, body = self._options.topic or row[0] or "", row[1]
            data = b"" if body is None else body if isinstance(body, bytes) else body.encode()
            try:
                found.append(self._message(topic, data, row[2:]))
            except IllegalMessageError as error:
                reason = "the body is null" if body is None else str(error)
                found.append(BadRow(self._number, topic, data, reason))
            self._number += 1
        return found

    def _message(self, topic: str, body: bytes, row: tuple[Any, ...]) -> SinkRow:
        keys, tags, properties, level, deliver_ms, order_key, flag, msg_id = row
        if not topic:
            raise IllegalMessageError("the topic is null or empty")
        check_send_topic(topic)
        topic = wrap_namespace(self._options.namespace, topic)
        if not body:
            raise IllegalMessageError("the body is empty")
        if len(body) > self._options.max_message_bytes:
            limit = self._options.max_message_bytes
            raise IllegalMessageError(
                f"a body of {len(body)} bytes exceeds the limit of {limit} bytes (maxMessageSize)"
            )
        pairs: dict[str, str] = {}
        if properties:
            pairs = {k: v for k, v in properties if k and v and k not in _DROPPED}
        if tags and (tag := tags.strip()):
            pairs[PROPERTY_TAGS] = tag
        if keys and (text := _keys_text(keys)):
            pairs[PROPERTY_KEYS] = text
        if order_key is None:
            order_key = pairs.get(PROPERTY_SHARDING_KEY)
        else:
            pairs[PROPERTY_SHARDING_KEY] = str(order_key)
        moment = None
        is_delayed = bool(level) or deliver_ms is not None
        if is_delayed:
            moment = _delay(pairs, level, deliver_ms)
        if self._options.namespace:
            pairs[PROPERTY_INSTANCE_ID] = self._options.namespace
        pairs[SPARK_ID] = f"{self._id_prefix}/{self._number}"
        if msg_id and (NAME_SEPARATOR in msg_id or PAIR_SEPARATOR in msg_id):
            raise IllegalMessageError("msgId must not contain \\x01 or \\x02")
        msg_id = msg_id or self._next_id()
        text = id_properties(msg_id) + _checked_text(pairs)
        _check_size(text)
        message = Outgoing(body, text, 0, flag or 0, msg_id, moment=moment)
        return SinkRow(self._number, topic, message, order_key, is_delayed)

    def dead(self, row: BadRow, topic: str) -> SinkRow:
        """Return a bad row as a message with the reason, for the dead letter topic."""
        limit = self._options.max_message_bytes
        reason = row.reason.replace(NAME_SEPARATOR, " ").replace(PAIR_SEPARATOR, " ")
        pairs = {SPARK_ID: f"{self._id_prefix}/{row.number}", SPARK_ERROR: reason[:1000]}
        origin = row.topic.replace(NAME_SEPARATOR, " ").replace(PAIR_SEPARATOR, " ")
        if origin:
            pairs[PROPERTY_DLQ_ORIGIN_TOPIC] = origin[:255]
        msg_id = self._next_id()
        text = id_properties(msg_id) + properties_text(pairs)
        body = row.body[:limit] or reason.encode()[:limit]
        topic = wrap_namespace(self._options.namespace, topic)
        return SinkRow(row.number, topic, Outgoing(body, text, 0, 0, msg_id))


def _keys_text(keys: str | bytes | Sequence[str | None]) -> str:
    if isinstance(keys, str):
        return keys
    if isinstance(keys, bytes):
        try:
            return keys.decode()
        except UnicodeDecodeError:
            raise IllegalMessageError("keys are not UTF-8") from None
    given = [key for key in keys if key]
    for key in given:
        if KEY_SEPARATOR in key:
            raise IllegalMessageError(f"key {key!r} contains a blank, which separates keys")
    return KEY_SEPARATOR.join(given)


def _delay(pairs: dict[str, str], level: int | None, deliver_ms: int | None) -> DeliveryTime | None:
    """Add the delay to a message's properties; return its delivery time, if it has one."""
    if not level:
        if deliver_ms is not None:
            try:
                check_time(deliver_ms)
            except ValueError as error:
                raise IllegalMessageError(f"deliverTime {error}") from None
        moment = DeliveryTime(deliver_ms=deliver_ms)
        pairs.update(moment.properties)
        return moment
    if deliver_ms is not None:
        raise IllegalMessageError("delayLevel and deliverTime exclude each other")
    pairs.update(level_property(level))
    return None


def _checked_text(pairs: Mapping[str, str]) -> str:
    text = properties_text(pairs)
    if text.count(NAME_SEPARATOR) + text.count(PAIR_SEPARATOR) != 2 * len(pairs):
        raise IllegalMessageError("tags, keys and properties must not contain \\x01 or \\x02")
    return text


def _check_size(text: str) -> None:
    if len(text) <= MAX_PROPERTIES_BYTES // 4:
        return
    size_bytes = len(text.encode())
    if size_bytes > MAX_PROPERTIES_BYTES:
        raise IllegalMessageError(
            f"properties of {size_bytes} bytes exceed the limit of {MAX_PROPERTIES_BYTES} bytes"
        )
