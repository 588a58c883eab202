"""Parquet files of an archive: their names, and how tasks write them.

    ROOT/topic=orders/date=2026-01-31/part-broker-a-0-00000000000000000000-00000000000000020000.parquet

The name consists of the queue and the range of offsets, so a repeated task writes the same
messages to the same name. After the broker lost its last messages and assigns their offsets again,
later files of the queue have a new life in their names: `part-broker-a-0.1-...`, then
`part-broker-a-0.2-...`.
"""

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rocketpy.errors import JobError

SUFFIX: Final = ".parquet"
LIFE_IN_NAME: Final = r"-\d+\.(\d+)-\d{20}-\d{20}\.parquet$"
"""Matches the life in the name of a file; names of the first life have none."""
NAME_MAX: Final = 255
"""Longest name in bytes, on all common file systems."""
GROUP_ROWS: Final = 131_072
GROUP_BYTES: Final = 32 << 20
"""A row group is written when it has this many rows or bytes. A task buffers no more for all its
files, and about twice that while a group is encoded: the memory of a worker is 500 MB."""
_DAY_US: Final = 86_400_000_000
_FEW_VALUES: Final = ("brokerName", "queueId", "tags", "bornHost", "storeHost", "sysFlag", "flag")
_ORDERED: Final = ("queueId", "queueOffset", "bornTimestamp", "storeTimestamp", "reconsumeTimes")


@dataclass(frozen=True, slots=True, order=True)
class ArchiveFile:
    """Name and contents of a file of an archive.

    Attributes:
        topic: of its messages.
        date: UTC day on which they were stored, `2026-01-31`.
        broker_name: of the queue.
        queue_id: of the queue.
        first: lowest queue offset in it.
        end: the offset after the highest one.
        rows: messages.
        size_bytes: on disk.
        life: number of times that the broker lost the last messages of the queue before.
    """

    topic: str
    date: str
    broker_name: str
    queue_id: int
    first: int
    end: int
    rows: int
    size_bytes: int
    life: int = 0

    @property
    def folder(self) -> str:
        """Its directory below the root, as Hive names partitions."""
        return f"{self.topic_folder}/date={self.date}"

    @property
    def topic_folder(self) -> str:
        """The directory of its topic."""
        return f"topic={quote(self.topic, safe='')}"

    @property
    def name(self) -> str:
        """Its name in the directory."""
        return f"{self.prefix}{self.first:020d}-{self.end:020d}{SUFFIX}"

    @property
    def prefix(self) -> str:
        """Common prefix of the names of its queue's files."""
        life = f".{self.life}" if self.life else ""
        return f"part-{quote(self.broker_name, safe='')}-{self.queue_id}{life}-"

    @property
    def path(self) -> str:
        """Its path below the root."""
        return f"{self.folder}/{self.name}"

    @property
    def queue(self) -> tuple[str, str, int]:
        """Topic, broker name and number of its queue."""
        return self.topic, self.broker_name, self.queue_id

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object for a manifest."""
        return {"path": self.path, **asdict(self)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "ArchiveFile":
        """Decode the JSON object of a manifest; raise KeyError or TypeError if it is invalid."""
        return cls(**{name: value for name, value in found.items() if name != "path"})


@dataclass(frozen=True, slots=True)
class Piece:
    """Staged file that a task wrote and that is not yet part of the archive.

    Attributes:
        file: its future name and its contents.
        staged: its current path below the root.
    """

    file: ArchiveFile
    staged: str


def check_names(queues: Iterable[tuple[str, str, int]]) -> None:
    """Raise for queues with names that cannot be archived, before anything is written.

    Args:
        queues: topic, broker name and number of each.

    Raises:
        JobError: the name of a directory or file would be too long.
    """
    for topic, broker_name, queue_id in queues:
        file = ArchiveFile(topic, "", broker_name, queue_id, 0, 0, 0, 0)
        for what, name in (
            (f"topic {topic}", file.topic_folder),
            (f"broker {broker_name}", file.name),
        ):
            if len(name) > NAME_MAX:
                raise JobError(
                    f"{what} cannot be archived: {name} has {len(name)} characters, and file "
                    f"systems allow {NAME_MAX}"
                )


def offsets_in_name(name: str, prefix: str) -> tuple[int, int] | None:
    """Return the range of offsets in a file's name; None for a file of another queue."""
    if not name.startswith(prefix) or not name.endswith(SUFFIX):
        return None
    first, dash, end = name[len(prefix) : -len(SUFFIX)].partition("-")
    return (int(first), int(end)) if dash and first.isdecimal() and end.isdecimal() else None


def sync_path(path: Path) -> None:
    """Flush a file, or the entries of a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ParquetFileWriter:
    """Writer of a Parquet file with row groups of a bounded size.

    Args:
        path: of the file.
        schema: of all batches.
        compression: of Parquet: snappy, zstd, lz4, gzip, none.

    Attributes:
        path: of the file.
        rows: rows written so far.
        held_bytes: bytes of the rows buffered for the next group.
    """

    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self.path = path
        self.rows: int = 0
        self.held_bytes: int = 0
        self._held: list[pa.RecordBatch] = []
        self._held_rows = 0
        self._schema = schema
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression=compression,
            # Bodies, keys and ids rarely repeat: dictionaries of them would not pay.
            use_dictionary=[name for name in _FEW_VALUES if name in schema.names],
            write_statistics=[name for name in _ORDERED if name in schema.names],
        )

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._held.append(batch)
        self._held_rows += batch.num_rows
        self.held_bytes += batch.nbytes
        if self._held_rows >= GROUP_ROWS or self.held_bytes >= GROUP_BYTES:
            self.write_group()

    def close(self) -> int:
        """Finish the file, flush it to disk and return its size in bytes."""
        self.write_group()
        self._writer.close()
        sync_path(self.path)
        return self.path.stat().st_size

    def abandon(self) -> None:
        """Remove the file."""
        self._held.clear()
        self._writer.close()
        self.path.unlink(missing_ok=True)

    def write_group(self) -> None:
        """Write the buffered rows as a group, if there are any."""
        if self._held_rows:
            table = pa.Table.from_batches(self._held, self._schema)
            self._writer.write_table(table, row_group_size=self._held_rows)
            self.rows += self._held_rows
        self._held.clear()
        self._held_rows = self.held_bytes = 0


def days_of(batch: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
    """Split a batch by the UTC day of `storeTimestamp`; most batches have one day."""
    stamps = batch.column("storeTimestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
    days = stamps // _DAY_US
    if not len(days) or (days == days[0]).all():
        return [(_date(days[0]), batch)] if len(days) else []
    return [(_date(day), batch.filter(pa.array(days == day))) for day in np.unique(days)]


def _date(day: Any) -> str:  # noqa: ANN401 - a scalar of numpy
    return str(np.datetime64(int(day), "D"))


def write_pieces(
    batches: Iterable[pa.RecordBatch], root: Path, staging: str, *, compression: str = "snappy"
) -> list[Piece]:
    """Write the messages of one queue, in order, into files below `root / staging`.

    Args:
        batches: rows of one queue, with topic, brokerName, queueId, queueOffset, storeTimestamp
            and any other columns.
        root: of the archive.
        staging: directory for new files, below the root.
        compression: of Parquet.

    Returns:
        One piece a day. If an iteration of the batches fails, all files are removed.
    """
    open_days: dict[str, tuple[ParquetFileWriter, list[int]]] = {}
    queue: tuple[str, str, int] | None = None
    try:
        for batch in batches:
            for date, rows in days_of(batch):
                queue = queue or _queue_of(rows)
                offsets = rows.column("queueOffset").to_numpy()
                bounds = [int(offsets[0]), int(offsets[-1]) + 1]
                rows = rows.drop_columns(["topic"])  # noqa: PLW2901 - it is in the directory's name
                if date not in open_days:
                    path = root / staging / f"{uuid.uuid4().hex}{SUFFIX}"
                    writer = ParquetFileWriter(path, rows.schema, compression)
                    open_days[date] = (writer, bounds)
                writer, whole = open_days[date]
                whole[:] = min(whole[0], bounds[0]), max(whole[1], bounds[1])
                writer.write(rows)
            if sum(each.held_bytes for each, _ in open_days.values()) >= GROUP_BYTES:
                for each, _ in open_days.values():
                    each.write_group()
        pieces = []
        for date, (writer, (first, end)) in open_days.items():
            size_bytes = writer.close()
            assert queue is not None
            topic, broker_name, queue_id = queue
            file = ArchiveFile(
                topic, date, broker_name, queue_id, first, end, writer.rows, size_bytes
            )
            pieces.append(Piece(file, f"{staging}/{writer.path.name}"))
    except BaseException:
        for writer, _ in open_days.values():
            writer.abandon()
        raise
    return pieces


def _queue_of(rows: pa.RecordBatch) -> tuple[str, str, int]:
    topic, broker_name, queue_id = (
        rows.column(name)[0].as_py() for name in ("topic", "brokerName", "queueId")
    )
    return topic, broker_name, queue_id


def merge_files(sources: Sequence[Path], target: Path, compression: str) -> tuple[int, int]:
    """Write the rows of some files into one, in order; return its rows and bytes."""
    with pq.ParquetFile(sources[0]) as first:
        schema = first.schema_arrow
    writer = ParquetFileWriter(target, schema, compression)
    try:
        for source in sources:
            with pq.ParquetFile(source) as parquet:
                for batch in parquet.iter_batches(batch_size=GROUP_ROWS // 4):
                    writer.write(batch.cast(schema))
        size_bytes = writer.close()
    except BaseException:
        writer.abandon()
        raise
    return writer.rows, size_bytes
