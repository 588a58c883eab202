"""Merges small files of an archive; a kill at any time loses and duplicates no message."""

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
    """Result of a compaction.

    Attributes:
        files_before: files that were merged.
        files_after: files that replaced them.
    """

    files_before: int = 0
    files_after: int = 0


def small_file_groups(
    files: Sequence[ArchiveFile],
    *,
    small_bytes: int = SMALL_BYTES,
    target_bytes: int = TARGET_BYTES,
) -> Iterator[list[ArchiveFile]]:
    """Yield groups of files to merge: two or more neighbours of one queue and day, in order.

    Args:
        files: of one directory.
        small_bytes: files of this size and more are not merged.
        target_bytes: largest size of a merged file.
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
        small_bytes: files of this size and more are not merged.
        target_bytes: largest size of a merged file.
        compression: of Parquet.

    Raises:
        JobError: a file differs from its manifest; its directory was not changed.
    """
    done = Compacted()
    for folder, of_folder in groupby(log.files, key=lambda each: each.folder):
        gone: list[ArchiveFile] = []
        pieces: list[Piece] = []
        runs = small_file_groups(
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
        raise JobError(
            f"these files have {rows} rows, another number than their manifests: {names}"
        )
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
