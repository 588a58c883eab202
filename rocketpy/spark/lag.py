"""Lag of streams, from the progress that Spark reports.

Example:
    ::

        listener = RocketMQLagListener(lambda lag: print(lag.name, lag.total))
        spark.streams.addListener(listener)
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import from_json


@dataclass(frozen=True, slots=True)
class StreamLag:
    """Lag of one source of a stream.

    Attributes:
        query_id: stable across restarts.
        name: of the query; empty without one.
        batch_id: the last finished batch.
        timestamp: of that batch's start, ISO 8601.
        by_queue: unread messages by queue.
    """

    query_id: str
    name: str
    batch_id: int
    timestamp: str
    by_queue: Mapping[MessageQueue, int]

    @property
    def total(self) -> int:
        """Unread messages of all queues."""
        return sum(self.by_queue.values())


def lags_of(progress: Mapping[str, Any]) -> list[StreamLag]:
    """Return the lag of each `rocketmq` source in a query's progress.

    Args:
        progress: the JSON object of a `StreamingQueryProgress`.
    """
    found = []
    for source in progress.get("sources", []):
        end, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        if end is None or latest is None:
            continue
        by_queue = {q: max(0, high - end.get(q, 0)) for q, high in sorted(latest.items())}
        found.append(
            StreamLag(
                str(progress.get("id", "")),
                progress.get("name") or "",
                int(progress.get("batchId", -1)),
                str(progress.get("timestamp", "")),
                by_queue,
            )
        )
    return found


def _offsets(found: object) -> Mapping[MessageQueue, int] | None:
    """Decode an offset; return None for one of another format."""
    try:
        value = json.loads(found) if isinstance(found, str) else found
        return from_json(value).offsets
    except (ConfigError, ValueError):
        return None


class RocketMQLagListener(StreamingQueryListener):
    """Listener that reports the lag of every stream of this format after each batch.

    Args:
        on_lag: called with each lag on a thread of Spark, so it must return soon.

    Attributes:
        lags: the last lag of each running query, by its id.
    """

    def __init__(self, on_lag: Callable[[StreamLag], None] | None = None) -> None:
        self.lags: dict[str, StreamLag] = {}
        self._on_lag = on_lag

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the lag is unknown yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Report the lag."""
        for lag in lags_of(json.loads(event.progress.json)):
            self.lags[lag.query_id] = lag
            if self._on_lag is not None:
                self._on_lag(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the lag has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Forget the query."""
        self.lags.pop(str(event.id), None)
