"""Offset tables: reset, status, slave synchronisation.

Source: ResetOffsetBody, ResetOffsetBodyForC, GetConsumerStatusBody,
ConsumerOffsetSerializeWrapper, QueryCorrectionOffsetBody of 5.4.0.
"""

from dataclasses import field
from typing import Any

from rocketpy.errors import BadBodyError
from rocketpy.proto.bodies.topic import DataVersion
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.json_body import Body, body


@body
class ResetOffsetBody(Body):
    """Response to 222 and request 220: new offset of each queue.

    C++ clients get an array of queues with offsets (`encode_list`); both forms are read.
    """

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)

    @classmethod
    def normalise(cls, document: dict[Any, Any]) -> dict[Any, Any]:
        """Convert the array form into the map form.

        Raises:
            BadBodyError: a row is not a queue with an offset.
        """
        rows = document.get("offsetTable")
        if isinstance(rows, list):
            return {"offsetTable": dict(map(_queue_and_offset, rows))}
        return document

    def encode_list(self) -> bytes:
        """Return the array form, for C++ clients."""
        rows = [
            {
                "brokerName": queue.broker_name,
                "offset": offset,
                "queueId": queue.queue_id,
                "topic": queue.topic,
            }
            for queue, offset in self.offset_table.items()
        ]
        return fastjson.dumps({"offsetTable": rows})


def _queue_and_offset(row: Any) -> tuple[MessageQueue, int]:  # noqa: ANN401 - JSON enters here
    queue = fastjson.to_message_queue(row)
    if queue is None or not isinstance(row.get("offset"), int):
        raise BadBodyError("a row of the offset table is no queue with an offset")
    return queue, row["offset"]


@body
class OffsetSerializeWrapper(Body):
    """The file in which a broadcasting consumer keeps its offsets."""

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


@body
class GetConsumerStatusBody(Body):
    """Response to 221 (`message_queue_table`) and of 223 (`consumer_table`, by client id)."""

    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


@body
class ConsumerOffsetSerializeWrapper(Body):
    """Response to 43: `topic@group` to queue id to offset."""

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    data_version: DataVersion | None = None


@body
class QueryCorrectionOffsetBody(Body):
    """Response to 308: queue id to the smallest offset of the compared groups."""

    correction_offsets: dict[int, int] = field(default_factory=dict)
