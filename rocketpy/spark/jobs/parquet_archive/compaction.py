"""Small files of an archive become big ones; who is killed meanwhile loses and doubles nothing."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rocketpy.errors import JobError
from rocketpy.spark.jobs.parquet_archive.files import SUFFIX, ArchiveFile, Piece, merge_files
from rocketpy.spark.jobs.parquet_archive.manifest import STAGING, ArchiveLog

SMALL_BYTES: Final = 32 << 20
TARGET_BYTES: Final = 256 << 20


@dataclass(slots=True)
class Compacted:
    """What was done.

    Attributes:
        files_before: that were merged.
        files_after: that came of them.
    """

    files_before: int = 0
    files_after: int = 0


def runs_of_small_files(
    files: Sequence[ArchiveFile],
    *,
    small_bytes: int = SMALL_BYTES,
    target_bytes: int = TARGET_BYTES,
) -> Iterator[list[ArchiveFile]]:
    """Yield what may become one file: neighbours of one queue and day, two or more, in order.

    Args:
        files: of one directory.
        small_bytes: files of this size and more stay as they are.
        target_bytes: the most that one file may become.
    """
    in_order = sorted(files, key=lambda each: (each.queue, each.life, each.first))
    for _, of_queue in groupby(in_order, key=lambda each: (each.queue, each.life)):
        run: list[ArchiveFile] = []
        total = 0
        for file in of_queue:
            is_small = file.size_bytes < small_bytes
            if run and (not is_small or total + file.size_bytes > target_bytes):
                if len(run) > 1:
                    yield run
                run, total = [], 0
            if is_small:
                run.append(file)
                total += file.size_bytes
        if len(run) > 1:
            yield run


def compact(
    log: ArchiveLog,
    *,
    small_bytes: int = SMALL_BYTES,
    target_bytes: int = TARGET_BYTES,
    compression: str = "snappy",
) -> Compacted:
    """Merge the small files of an archive, one directory after the other.

    Args:
        log: of the archive.
        small_bytes: files of this size and more stay as they are.
        target_bytes: the most that one file may become.
        compression: of Parquet.

    Raises:
        JobError: a file does not hold what its manifest says; nothing was changed there.
    """
    done = Compacted()
    for folder, of_folder in groupby(log.files, key=lambda each: each.folder):
        gone: list[ArchiveFile] = []
        pieces: list[Piece] = []
        runs = runs_of_small_files(
            list(of_folder), small_bytes=small_bytes, target_bytes=target_bytes
        )
        for run in runs:
            pieces.append(_merged(log, run, compression))
            gone += run
        if pieces:
            log.replace(folder, gone, pieces)
            done.files_before += len(gone)
            done.files_after += len(pieces)
    return done


def _merged(log: ArchiveLog, run: Sequence[ArchiveFile], compression: str) -> Piece:
    staged = f"{STAGING}/{uuid.uuid4().hex}{SUFFIX}"
    sources = [log.root / each.path for each in run]
    rows, size_bytes = merge_files(sources, log.root / staged, compression)
    if rows != sum(each.rows for each in run):
        names = ", ".join(each.path for each in run)
        raise JobError(f"these files hold {rows} rows, which is not what was written: {names}")
    head = run[0]
    file = ArchiveFile(
        head.topic,
        head.date,
        head.broker_name,
        head.queue_id,
        head.first,
        run[-1].end,
        rows,
        size_bytes,
        head.life,
    )
    return Piece(file, staged)
