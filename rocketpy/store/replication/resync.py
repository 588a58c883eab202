"""Resync of a slave's store: cuts off the end of its log that its master's log does not have.

A slave never shortens its log by itself. An operator stops it and cuts the log: at the end of the
part that equals the master's, or completely. The cut-off bytes are kept in `cut/` below the store
directory.

The search compares single records: two logs that differ somewhere differ from there on, so a
bisection finds the end of the equal part. It asks for records by physical offset, which every
master answers on its ordinary port. A damaged record differs alone, which a bisection can miss, so
the search ends before the first one.

Crash safety: what is cut off is on disk under `cut/` first. Then an abort file and a checkpoint
that covers nothing behind the cut are written, so that the next start recovers queues and index.
Then the log is cut, its last file first. After a crash in between the command is repeated.
"""

import contextlib
import mmap
import os
from array import array
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rocketpy.errors import StoreFormatError
from rocketpy.proto.record.record import (
    BLANK_BYTES,
    MIN_RECORD_BYTES,
    record_store_timestamp_ms,
)
from rocketpy.proto.record.record_check import RecordState, check_record
from rocketpy.store.checkpoint import Checkpoint
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.replication.backup import sync_path
from rocketpy.store.replication.log_check import LogCheck
from rocketpy.store.replication.log_identity import IDENTITY_FILE
from rocketpy.store.scan.directory import LogFile, offset_files

CUT_DIRECTORY: Final = "cut"
_ABORT: Final = b"0\nresync"
# The log first: without it no store opens that still has the other parts.
_PARTS: Final = (
    "checkpoint",
    "consumequeue",
    "batchconsumequeue",
    "index",
    "deleted",
    "timercheck",
    "timerwheel",
    "timerlog",
    f"config/{IDENTITY_FILE}",
    f"config/{IDENTITY_FILE}.bak",
)
_PIECE_BYTES: Final = 1 << 20

Probe = Generator[tuple[int, int, bytes], bool, int]
"""Search for the end of the equal part: yields physical offset, size and bytes of a record; is sent
whether the master has this record there; returns the physical offset of the end."""


class LocalLog(NamedTuple):
    """The log of a stopped store.

    Attributes:
        root: the store directory.
        files: files of the log, ascending.
        begin: physical offset of the oldest byte.
        end: physical offset after the last record, intact or not.
        intact_end: physical offset of the first damaged record; `end` without one.
    """

    root: Path
    directory: Path
    files: Sequence[LogFile]
    begin: int
    end: int
    intact_end: int


def local_log(
    root: Path, commit_log: str = "", progress: Callable[[int], None] = lambda _: None
) -> LocalLog:
    """Check every record of a log, and find its range.

    Args:
        root: the store directory, locked by the caller.
        commit_log: `storePathCommitLog`, where that is not `<root>/commitlog`.
        progress: called with the number of bytes checked since the last call.
    """
    directory = Path(commit_log) if commit_log else root / "commitlog"
    files = offset_files(directory)
    checked = LogCheck(progress).run(files)
    # Recovery may keep what follows the last intact record, so it belongs to the log.
    end = max(checked.end, _written_end(files, checked.end))
    intact_end = min(checked.damaged[:1] or [checked.end])
    return LocalLog(root, directory, files, checked.begin, end, intact_end)


def _written_end(files: Sequence[LogFile], begin: int) -> int:
    """Return the physical offset after the last byte that is not zero; `begin` without one."""
    for file in reversed(files):
        end = file.base + file.size_bytes
        with Path(file.path).open("rb") as opened:
            while end > max(begin, file.base):
                start = max(begin, file.base, end - _PIECE_BYTES)
                piece = os.pread(opened.fileno(), end - start, start - file.base).rstrip(b"\0")
                if piece:
                    return start + len(piece)
                end = start
    return begin


def equal_end(log: LocalLog, master_begin: int) -> Probe:
    """Search for the end of the part that equals the master's log; see `Probe`.

    Args:
        log: the slave's log.
        master_begin: physical offset of the master's oldest byte.

    Returns:
        The physical offset of the first record that is damaged or that the master does not have;
        the begin of the log if nothing is known to be equal.
    """
    files = [each for each in log.files if master_begin <= each.base < log.intact_end]
    # The first record of files[low - 1] is equal, that of files[high] is not.
    low, high = 0, len(files)
    while low < high:
        middle = (low + high) // 2
        if (yield from _has(files[middle], 0)):
            low = middle + 1
        else:
            high = middle
    if not low:
        return log.begin
    file = files[low - 1]
    positions = record_positions(file, log.intact_end)
    # The last position is the end of the last record.
    low, high = 1, len(positions) - 1
    while low < high:
        middle = (low + high) // 2
        if (yield from _has(file, positions[middle])):
            low = middle + 1
        else:
            high = middle
    return min(log.intact_end, file.base + positions[low])


def _has(file: LogFile, position: int) -> Generator[tuple[int, int, bytes], bool, bool]:
    with Path(file.path).open("rb") as opened:
        head = os.pread(opened.fileno(), BLANK_BYTES, position)
        size_bytes = int.from_bytes(head[:4], "big", signed=True)
        record = os.pread(opened.fileno(), max(0, size_bytes), position)
    return (yield file.base + position, len(record), record)


def record_positions(file: LogFile, log_end: int) -> "array[int]":
    """Return the positions of the records of a file, and the end of the last one.

    Args:
        file: the file.
        log_end: physical offset of the end of the log.
    """
    with Path(file.path).open("rb") as opened:
        data = mmap.mmap(opened.fileno(), file.size_bytes, prot=mmap.PROT_READ)
    with contextlib.closing(data), memoryview(data) as view:
        return _positions_in(view[: log_end - file.base], file)


def _positions_in(view: memoryview, file: LogFile) -> "array[int]":
    positions = array("q", [0])
    position = 0
    while position + BLANK_BYTES <= len(view):
        found = check_record(view, position, file.base + position, check_crc=False, bytes_behind=0)
        if found.state is RecordState.BLANK:
            # The blank belongs to the last record: without it a cut would end within the file.
            positions[-1] = file.size_bytes
            break
        if found.state not in {RecordState.RECORD, RecordState.DAMAGED}:
            break
        position += found.size_bytes
        positions.append(position)
    return positions


def cut(log: LocalLog, at: int) -> Path:
    """Cut the log at the start of a record, and keep what is cut off.

    Args:
        log: the log of a stopped store, locked by the caller.
        at: physical offset; the begin of the log empties the store.

    Returns:
        The directory with the bytes that were cut off.

    Raises:
        StoreFormatError: no record starts at the offset.
        OSError: a file cannot be read or written.
    """
    if not log.begin <= at <= log.end:
        raise StoreFormatError(
            f"{at} is outside the log of {log.root}, which has {log.begin} to {log.end}"
        )
    if at != log.begin:
        _check_start(log, at)
    aside = log.root / CUT_DIRECTORY / f"{at:020d}-{log.end:020d}"
    aside.mkdir(parents=True, exist_ok=True)
    if at == log.begin:
        _move_all(log, aside)
    else:
        _keep(log, at, aside)
        _distrust(log, at)
        _cut_files(log, at)
    sync_path(aside.parent)
    sync_path(log.root)
    return aside


def forget_identity(root: Path) -> None:
    """Let a slave take over the identity of its master's log.

    Only after the logs were compared: the master proves again that they are equal when the slave
    connects, and gives its identity to a slave that has none.
    """
    for name in (IDENTITY_FILE, f"{IDENTITY_FILE}.bak"):
        (root / "config" / name).unlink(missing_ok=True)


def _check_start(log: LocalLog, at: int) -> None:
    file = next(each for each in log.files if each.base <= at <= each.base + each.size_bytes)
    if at != file.base and at - file.base not in set(record_positions(file, log.end)):
        raise StoreFormatError(f"{at} is not the start of a record of {file.path}")


def _move_all(log: LocalLog, aside: Path) -> None:
    if log.directory.exists():
        log.directory.rename(aside / "commitlog")
        sync_path(aside)
    for name in _PARTS:
        if (log.root / name).exists():
            (aside / name).parent.mkdir(exist_ok=True)
            (log.root / name).rename(aside / name)
    sync_path(aside)


def _keep(log: LocalLog, at: int, aside: Path) -> None:
    """Copy the bytes behind the cut to a file that is named by their offset."""
    with Path(aside / f"{at:020d}").open("wb") as writer:
        for file in log.files:
            position, end = max(at, file.base), min(file.base + file.size_bytes, log.end)
            with Path(file.path).open("rb") as reader:
                while position < end:
                    size_bytes = min(_PIECE_BYTES, end - position)
                    writer.write(os.pread(reader.fileno(), size_bytes, position - file.base))
                    position += size_bytes
        writer.flush()
        os.fsync(writer.fileno())
    sync_path(aside)
    sync_path(aside.parent)
    sync_path(log.root)


def _distrust(log: LocalLog, at: int) -> None:
    """Make the next start recover, and trust nothing behind the cut."""
    files = RealFiles()
    files.write_bytes(log.root / "abort", _ABORT)
    checkpoint = Checkpoint(log.root / "checkpoint", files)
    checkpoint.load()
    stamp_ms = _store_time_ms(log, at)
    checkpoint.lower_index(at, stamp_ms)
    checkpoint.lower(at, at, stamp_ms)
    checkpoint.close()
    files.sync_directories()


def _store_time_ms(log: LocalLog, at: int) -> int:
    """Return the store time of the first record behind the cut; 0 if there is none."""
    for file in log.files:
        if file.base <= at < file.base + file.size_bytes:
            with Path(file.path).open("rb") as opened:
                head = os.pread(opened.fileno(), MIN_RECORD_BYTES, at - file.base)
            return max(0, record_store_timestamp_ms(head, 0))
    return 0


def _cut_files(log: LocalLog, at: int) -> None:
    for file in reversed(log.files):
        path = Path(file.path)
        if file.base >= at:
            path.unlink()
            sync_path(log.directory)
        elif file.base + file.size_bytes > at:
            with Path(path).open("r+b") as opened:
                position = at - file.base
                while position < file.size_bytes:
                    size_bytes = min(_PIECE_BYTES, file.size_bytes - position)
                    zeros = bytes(size_bytes)
                    if os.pread(opened.fileno(), size_bytes, position) != zeros:
                        os.pwrite(opened.fileno(), zeros, position)
                    position += size_bytes
                os.fsync(opened.fileno())
    sync_path(log.directory)
