"""Format `rocketmq.archive`: tasks pull messages and write Parquet files themselves.

Spark receives one row for each file, with its path and contents. Messages never enter the JVM,
which would convert Arrow to rows and rows to Parquet. Offsets, limits, retries of tasks and the
checkpoint are those of the format `rocketmq`. A task that fails or runs twice leaves a file in the
staging area, which is never read.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.jobs.parquet_archive.files import ArchiveFile, Piece, check_names, write_pieces
from rocketpy.spark.jobs.parquet_archive.manifest import STAGING, archived_ends
from rocketpy.spark.offsets import from_json, to_json
from rocketpy.spark.schema import default_schema
from rocketpy.spark.source.executor import MarkPartition, QueuePartition, read_partition
from rocketpy.spark.source.stream import StreamReader
from rocketpy.spark.spark_api import ReadLimit

if TYPE_CHECKING:
    from pyspark.sql import Row
    from pyspark.sql.types import StructType

FORMAT: Final = "rocketmq.archive"
ROOT: Final = "archive.root"
COMPRESSION: Final = "archive.compression"
INCLUDE: Final = "hosts,properties,msgId"
_NOT_OF_ARCHIVES: Final = ("include", "columns", "valueFormat", "schemaStyle")

PIECES: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("date", pa.string()),
        ("broker_name", pa.string()),
        ("queue_id", pa.int32()),
        ("first", pa.int64()),
        ("end", pa.int64()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("staged", pa.string()),
        ("range_end", pa.int64()),
        ("is_cut", pa.bool_()),
    ]
)
_DDL: Final = (
    "topic string, date string, broker_name string, queue_id int, first bigint, end bigint, "
    "rows bigint, size_bytes bigint, staged string, range_end bigint, is_cut boolean"
)


class ArchiveSource(DataSource):
    """Data source of the archive job, which registers it; not for users."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of `PIECES`."""
        return _DDL

    def streamReader(self, schema: "StructType") -> "ArchiveReader":  # noqa: ARG002, N802 - Spark's
        """Return the stream reader."""
        return ArchiveReader(self.options)


class ArchiveReader(StreamReader):
    """Stream reader of `rocketmq` with tasks that write files.

    Args:
        options: of a stream of `rocketmq`, and `archive.root`, `archive.compression`.

    Raises:
        ConfigError: an invalid option, or one that would remove or change columns.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        ours = {name.lower(): value for name, value in options.items()}
        for name in _NOT_OF_ARCHIVES:
            if name.lower() in ours:
                raise ConfigError("an archive always has all columns, unchanged", key=name)
        self.root: Path = Path(ours.pop(ROOT))
        self.compression: str = ours.pop(COMPRESSION)
        ours["include"] = INCLUDE
        super().__init__(ours, default_schema(ours))
        if self.options.data_loss == "mark":
            raise ConfigError(
                "an archive always has only messages: use skip for lost ones", key="onDataLoss"
            )

    @property
    def tells_of_cuts(self) -> bool:
        """Always true: names of files distinguish the lives of a queue."""
        return True

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's
        """Return the archive's end for its queues, and the start by options for others."""
        position = from_json(super().initialOffset())
        ends = {MessageQueue(*queue): end for queue, end in archived_ends(self.root).items()}
        offsets = {queue: ends.get(queue, offset) for queue, offset in position.offsets.items()}
        check_names(offsets)
        return to_json(position._replace(offsets=offsets))

    def latestOffset(  # noqa: N802 - Spark's
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return the end of the next batch; raise if a name cannot be archived."""
        end = super().latestOffset(start, limit)
        check_names(from_json(end).offsets)
        return end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write the messages of a partition; yield a row for each file."""
        if isinstance(partition, MarkPartition):
            yield describe_cut(partition)
        if isinstance(partition, QueuePartition):
            batches = read_partition(partition, self.options, self.rows)
            pieces = write_pieces(batches, self.root, STAGING, compression=self.compression)
            yield describe(pieces, partition)


def describe(pieces: list[Piece], partition: QueuePartition) -> pa.RecordBatch:
    """Return a row for each file; without files one row with the range only."""
    wanted = partition.wanted
    queue = {"topic": wanted.topic, "broker_name": wanted.broker_name, "queue_id": wanted.queue_id}
    rows: list[dict[str, object]] = [
        {name: getattr(each.file, name) for name in PIECES.names[:8]}
        | {"staged": each.staged, "range_end": wanted.end}
        for each in pieces
    ]
    return pa.RecordBatch.from_pylist(rows or [queue | {"range_end": wanted.end}], PIECES)


def describe_cut(partition: MarkPartition) -> pa.RecordBatch:
    """Return a row for each queue that lost messages, and assigns their offsets again."""
    rows = [
        {
            "topic": each.topic,
            "broker_name": each.broker_name,
            "queue_id": each.queue_id,
            "range_end": each.start,
            "is_cut": True,
        }
        for each in partition.lost
    ]
    return pa.RecordBatch.from_pylist(rows, PIECES)


class Reported(NamedTuple):
    """Result of the tasks of a batch.

    Attributes:
        pieces: written files.
        ends: topic, broker name, queue id, and the offset up to which it was read.
        cut: queues (topic, broker name, id) that lost messages and assign their offsets again.
    """

    pieces: list[Piece]
    ends: list[tuple[str, str, int, int]]
    cut: list[tuple[str, str, int]]


def reported(rows: Iterable["Row"]) -> Reported:
    """Decode the rows that tasks return to the driver."""
    pieces: list[Piece] = []
    ends: dict[tuple[str, str, int], int] = {}
    cut: list[tuple[str, str, int]] = []
    for row in rows:
        found = row.asDict()
        staged, range_end, is_cut = (found.pop(n) for n in ("staged", "range_end", "is_cut"))
        queue = (found["topic"], found["broker_name"], found["queue_id"])
        if is_cut:
            cut.append(queue)
        ends[queue] = max(ends.get(queue, 0), range_end)
        if staged:
            pieces.append(Piece(ArchiveFile(**found), staged))
    return Reported(pieces, [(*queue, end) for queue, end in sorted(ends.items())], sorted(cut))
