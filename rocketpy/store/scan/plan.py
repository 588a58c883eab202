"""Plan of a scan: independent pieces, which other processes can read.

A plan fixes the ends of queues or of the log at the time of planning. A piece that is read twice
therefore yields the same rows, also while a broker writes. `batch_reader` reads all pieces of a
plan in order.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from rocketpy.errors import CorruptRecordError
from rocketpy.sql92.condition import compile_condition
from rocketpy.store.consume_queue.queue_entry import ENTRY_BYTES
from rocketpy.store.scan import by_index, by_log, by_queue, log_walk
from rocketpy.store.scan.by_condition import matching, with_properties
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.log import Log, log_of
from rocketpy.store.scan.queue_table import QueueTable, queue_of
from rocketpy.store.scan.queues import Queue
from rocketpy.store.scan.queues import places as batch_places
from rocketpy.store.scan.request import QueueName, ScanBy, ScanRequest
from rocketpy.store.scan.unflushed_tail import ENTRIES

_PLACES_AT_ONCE: Final = 100_000
OnDamaged = Callable[[CorruptRecordError], None]


class QueuePiece(NamedTuple):
    """Range of queue offsets of one queue, from `start` to before `end`.

    Attributes:
        topic: topic name.
        queue_id: queue within the topic.
        start: first queue offset.
        end: queue offset after the last one.
        tail: the last entries of the range that were in no queue file at planning.
        first: first queue offset of the range that the store still has; 0 for all.
    """

    topic: str
    queue_id: int
    start: int
    end: int
    tail: bytes = b""
    first: int = 0

    def part(self, start: int, end: int) -> "QueuePiece":
        """Return the piece of a subrange."""
        first = self.end - len(self.tail) // ENTRY_BYTES
        bounds = [max(0, each - first) * ENTRY_BYTES for each in (start, end)]
        return self._replace(start=start, end=end, tail=self.tail[slice(*bounds)])


class LogPiece(NamedTuple):
    """Part of the log: records that start at physical offsets from `start` to before `end`."""

    start: int
    end: int


class PlacesPiece(NamedTuple):
    """Records at physical offsets, ascending."""

    phy_offsets: tuple[int, ...]


Piece = QueuePiece | LogPiece | PlacesPiece


def plan(directory: StoreDirectory, wanted: ScanRequest, scan: ScanBy) -> list[Piece]:
    """Return the pieces of a scan, ordered by topic, queue and offset.

    Raises:
        StoreFormatError: not a store directory, or one without the files that this scan needs.
        DataLossError: requested offsets were deleted.
        ValueError: an unknown topic, or a tag expression without a tag.
    """
    log = log_of(directory)
    if scan == "queue":
        return _plan_queues(directory, wanted, log)
    if scan == "log":
        return _plan_log(directory, wanted, log)
    places = by_index.places(directory, wanted, log)
    return [PlacesPiece(tuple(places))] if places else []


def read(
    directory: StoreDirectory,
    wanted: ScanRequest,
    piece: Piece,
    on_damaged: OnDamaged | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece as record batches.

    Raises:
        CorruptRecordError: a record is damaged, if the request is to fail then.
        DataLossError: messages of the piece were deleted, if the request is to fail then.
    """
    if wanted.sql:
        condition = compile_condition(wanted.sql)
        whole = replace(with_properties(wanted), sql="")
        return matching(read(directory, whole, piece, on_damaged), wanted.schema, condition)
    log = log_of(directory)
    decoder = wanted.decoder(on_damaged)
    if isinstance(piece, QueuePiece):
        queue = queue_of(directory, piece.topic, piece.queue_id, log)
        if piece.tail:
            tail = np.frombuffer(piece.tail, ENTRIES)
            # Entries that were in no file at planning travel with the piece, so that it is
            # repeatable.
            queue.add_tail(piece.end - len(tail), tail)
        return by_queue.read(log, queue, wanted, decoder, piece.start, piece.end)
    if isinstance(piece, LogPiece):
        chosen = by_log.Chosen(directory, wanted)
        return by_log.read(log, chosen, wanted, decoder, piece.start, piece.end)
    return by_queue.read_places(log, wanted, decoder, piece.phy_offsets)


def _plan_queues(directory: StoreDirectory, wanted: ScanRequest, log: Log) -> list[Piece]:
    table = QueueTable(directory, log)
    batch_queues = directory.batch_queues()
    pieces: list[Piece] = []
    for topic in wanted.topics_of({*table.topics, *batch_queues}):
        for queue_id in batch_queues.get(topic, ()):
            found = batch_places(directory, QueueName(topic, queue_id), log, wanted)
            while some := tuple(itertools.islice(found, _PLACES_AT_ONCE)):
                pieces.append(PlacesPiece(some))
        for queue_id in table.ids(topic):
            queue = table.get(topic, queue_id)
            assert queue is not None
            start, end = bounds(queue, wanted)
            if start < end:
                tail = queue.tail_from(start, end).tobytes()
                first = queue.begin if start < queue.begin else 0
                pieces.append(QueuePiece(topic, queue_id, start, end, tail, first))
    return pieces


def bounds(queue: Queue, wanted: ScanRequest) -> tuple[int, int]:
    """Return the first offset to read of a queue, and the end.

    Raises:
        DataLossError: requested offsets were deleted or do not exist yet.
    """
    name = QueueName(queue.topic, queue.queue_id)
    start, end = wanted.starts.get(name, queue.begin), wanted.ends.get(name, queue.end)
    wanted.lost(name, start, min(end, queue.begin))
    wanted.lost(name, max(start, queue.end), end)
    end = min(end, queue.end)
    if wanted.on_data_loss != "mark":
        start = max(start, queue.begin)
    if wanted.start_ms is not None:
        start = max(start, queue.offset_by_time(wanted.start_ms))
    if wanted.end_ms is not None:
        end = min(end, queue.offset_by_time(wanted.end_ms))
    return start, end


def _plan_log(directory: StoreDirectory, wanted: ScanRequest, log: Log) -> list[Piece]:
    """Return one piece for each file; the last one ends at the end of the log."""
    by_log.Chosen(directory, wanted)  # raises for an unknown topic
    pieces: list[Piece] = []
    for file in log.files:
        if log.is_behind_end(file.base):
            break
        pieces.append(LogPiece(file.base, file.base + file.size_bytes))
    if pieces:
        last = log.files[len(pieces) - 1]
        end = log_walk.end_of(log, last.base, last.base + last.size_bytes)
        pieces[-1] = LogPiece(last.base, end)
    return pieces


__all__ = ["ScanRequest", "batch_reader"]


def batch_reader(
    root: str,
    commit_log: str,
    wanted: ScanRequest,
    scan: ScanBy,
    on_damaged: Callable[[CorruptRecordError], None] | None,
) -> pa.RecordBatchReader:
    """Plan a scan and return a reader of its batches; see `rocketpy.store.to_arrow`."""
    directory = StoreDirectory(root, commit_log)
    pieces = plan(directory, wanted, scan)
    batches = _batches(directory, wanted, pieces, on_damaged)
    return pa.RecordBatchReader.from_batches(wanted.schema.arrow, batches)


def _batches(
    directory: StoreDirectory,
    wanted: ScanRequest,
    pieces: list[Piece],
    on_damaged: Callable[[CorruptRecordError], None] | None,
) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        yield from read(directory, wanted, piece, on_damaged)
