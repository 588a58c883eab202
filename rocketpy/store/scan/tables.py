"""Tables of a store directory besides messages: offsets, topics, groups.

They are read from the JSON files of `config/` and the ends of the consume queues, without opening
the store.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.log import log_of
from rocketpy.store.scan.queue_table import QueueTable

_ATTRIBUTES: Final = pa.map_(pa.string(), pa.string())

SCHEMAS: Final[Mapping[str, pa.Schema]] = {
    "offsets": pa.schema(
        {
            "group": pa.string(),
            "topic": pa.string(),
            "queueId": pa.int32(),
            "consumerOffset": pa.int64(),
            "minOffset": pa.int64(),
            "maxOffset": pa.int64(),
            "lag": pa.int64(),
        }
    ),
    "topics": pa.schema(
        {
            "topic": pa.string(),
            "readQueueNums": pa.int32(),
            "writeQueueNums": pa.int32(),
            "perm": pa.int32(),
            "order": pa.bool_(),
            "queues": pa.int32(),
            "messages": pa.int64(),
            "attributes": _ATTRIBUTES,
        }
    ),
    "groups": pa.schema(
        {
            "group": pa.string(),
            "consumeEnable": pa.bool_(),
            "consumeFromMinEnable": pa.bool_(),
            "consumeBroadcastEnable": pa.bool_(),
            "consumeMessageOrderly": pa.bool_(),
            "retryQueueNums": pa.int32(),
            "retryMaxTimes": pa.int32(),
            "attributes": _ATTRIBUTES,
        }
    ),
}
"""The tables, by name: a row for each queue with an offset of a group, each topic, each group."""

_AT: Final = "@"


def table(directory: StoreDirectory, name: str) -> pa.Table:
    """Return a table of `SCHEMAS`, sorted by its first columns.

    `maxOffset` is the offset of the next message of a queue, and `lag` its distance from the offset
    of the group; both are null if the queue does not exist. `messages` counts messages in the log.

    Raises:
        StoreFormatError: not a store directory.
    """
    rows = _MAKERS[name](directory)
    return pa.Table.from_pylist(rows, schema=SCHEMAS[name])


def _offsets(directory: StoreDirectory) -> list[dict[str, Any]]:
    found = _object(directory.table("consumerOffset.json"), "offsetTable")
    queues = QueueTable(directory, log_of(directory))
    rows = []
    for key, offsets in found.items():
        topic, _, group = key.partition(_AT)
        for queue_id, offset in sorted(
            (int(each), int(value)) for each, value in dict(offsets).items()
        ):
            queue = queues.get(topic, queue_id)
            end = None if queue is None else queue.end
            rows.append(
                {
                    "group": group,
                    "topic": topic,
                    "queueId": queue_id,
                    "consumerOffset": offset,
                    "minOffset": None if queue is None else queue.begin,
                    "maxOffset": end,
                    "lag": None if end is None else max(0, end - offset),
                }
            )
    return sorted(rows, key=lambda row: (row["group"], row["topic"], row["queueId"]))


def _topics(directory: StoreDirectory) -> list[dict[str, Any]]:
    found = _object(directory.table("topics.json"), "topicConfigTable")
    queues = QueueTable(directory, log_of(directory))
    rows = []
    for topic in sorted({*found, *queues.topics}):
        config = found.get(topic, {})
        there = [queue for each in queues.ids(topic) if (queue := queues.get(topic, each))]
        rows.append(
            {
                **_chosen(config, "topics"),
                "topic": topic,
                "queues": len(there),
                "messages": sum(queue.end - queue.begin for queue in there),
            }
        )
    return rows


def _groups(directory: StoreDirectory) -> list[dict[str, Any]]:
    found = _object(directory.table("subscriptionGroup.json"), "subscriptionGroupTable")
    return [{**_chosen(found[group], "groups"), "group": group} for group in sorted(found)]


_MAKERS: Final[Mapping[str, Callable[[StoreDirectory], list[dict[str, Any]]]]] = {
    "offsets": _offsets,
    "topics": _topics,
    "groups": _groups,
}


def _object(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _chosen(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the fields of a JSON object that are columns of the table."""
    row = {key: value for key, value in config.items() if key in SCHEMAS[name].names}
    attributes = row.get("attributes")
    if isinstance(attributes, dict):
        row["attributes"] = [(key, str(value)) for key, value in attributes.items()]
    return row
