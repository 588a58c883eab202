"""Fake streaming engine: Spark's calls in its order, with offsets as JSON text."""

import json
import pickle
import zlib
from collections import Counter
from typing import Any, ClassVar, Protocol

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from rocketpy.spark.schema import default_schema
from rocketpy.spark.source.format import batch_reader
from rocketpy.spark.source.stream import StreamReader

Row = tuple[str, int, int, int]


class Servers(Protocol):
    """Cluster in this process or in others."""

    @property
    def namesrv(self) -> str:
        """Address of its name server."""
        ...


def rows_in(reader: Any, partitions: list[InputPartition]) -> Counter[Row]:
    """Read each partition with a copy of the reader, as tasks do."""
    found: Counter[Row] = Counter()
    for partition in partitions or [InputPartition(None)]:
        task, part = pickle.loads(pickle.dumps((reader, partition)))
        for batch in task.read(part):
            for row in batch.to_pylist():
                crc = zlib.crc32(row["body"]) if row["body"] is not None else -1
                found[row["brokerName"], row["queueId"], row["queueOffset"], crc] += 1
    return found


def read_batch(cluster: Servers, **options: Any) -> Counter[Row]:
    """Read a batch."""
    values = {"nameservers": cluster.namesrv, **{key: str(each) for key, each in options.items()}}
    reader = batch_reader(values, default_schema(values))
    return rows_in(reader, reader.partitions())


class Engine:
    """Query with its checkpoint and output.

    Attributes:
        log: logged offsets as text; a restart begins after the last one.
        rows: written rows.
        counts: rows of each batch.
        started: running queries; each holds an event loop.
    """

    started: ClassVar[list["Engine"]] = []

    def __init__(self, cluster: Servers, **options: Any) -> None:
        self._values = {
            "nameservers": cluster.namesrv,
            "startingOffsets": "earliest",
            **{key: str(value) for key, value in options.items()},
        }
        self.log: list[str] = []
        self.rows: Counter[Row] = Counter()
        self.counts: list[int] = []
        self.reader = self._new_reader()
        self.started.append(self)

    def restart(self, *, available_now: bool = False, **options: Any) -> None:
        """Restart from the same checkpoint."""
        self.stop()
        self._values |= {key: str(value) for key, value in options.items()}
        self.reader = self._new_reader()
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def stop(self) -> None:
        """End the query, as Spark does."""
        self.reader.stop()

    def _new_reader(self) -> StreamReader:
        return StreamReader(self._values, default_schema(self._values))

    def trigger(self) -> bool:
        """Run one batch; return whether there was one."""
        reader = self.reader
        start = self.log[-1] if self.log else json.dumps(reader.initialOffset())
        limit: ReadLimit = reader.getDefaultReadLimit()
        if self.log:
            reader.commit(json.loads(start))
        end = json.dumps(reader.latestOffset(json.loads(start), limit))
        if self.log and end == start:
            return False
        self.log.append(end)
        if len(self.log) == 1:
            start = json.dumps(reader.initialOffset())
        rows = rows_in(reader, reader.partitions(json.loads(start), json.loads(end)))
        self.rows += rows
        self.counts.append(rows.total())
        return True

    def drain(self) -> None:
        """Run batches until there is none."""
        while self.trigger():
            assert len(self.log) < 1_000
