"""All pieces of a plan, one after the other, as one reader of record batches."""

from collections.abc import Callable, Iterator

import pyarrow as pa

from rocketpy.errors import CorruptRecordError
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.pieces import Piece, plan, read
from rocketpy.store.scan.wanted import ScanBy, Wanted

__all__ = ["Wanted", "batch_reader"]


def batch_reader(
    root: str,
    commit_log: str,
    wanted: Wanted,
    scan: ScanBy,
    on_damaged: Callable[[CorruptRecordError], None] | None,
) -> pa.RecordBatchReader:
    """Plan a read, and return a reader that goes through it; see `rocketpy.store.to_arrow`."""
    directory = StoreDirectory(root, commit_log)
    pieces = plan(directory, wanted, scan)
    batches = _batches(directory, wanted, pieces, on_damaged)
    return pa.RecordBatchReader.from_batches(wanted.schema.arrow, batches)


def _batches(
    directory: StoreDirectory,
    wanted: Wanted,
    pieces: list[Piece],
    on_damaged: Callable[[CorruptRecordError], None] | None,
) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        yield from read(directory, wanted, piece, on_damaged)
