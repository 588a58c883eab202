"""Backup of a store directory while its broker runs, and its restoration.

The directory is read without a lock and without changing it. The parts are copied in an order in
which every part is copied after those that refer to it: checkpoint, tables, queues and index,
and the log last. The log ends with the last complete record that was copied, and each record is
checked. The copy contains an abort file, so a store that opens it recovers like after a power cut:
missing entries of queues and index are rebuilt from the log.

`backup.json` is written last: a directory without it is an interrupted backup, which `restore`
refuses. `restore` copies to a directory of another name and renames it at the end.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from zlib import crc32

from rocketpy.errors import StoreFormatError
from rocketpy.store.replication.log_check import CheckedLog, LogCheck
from rocketpy.store.replication.log_identity import IDENTITY_FILE, identity_in
from rocketpy.store.scan.directory import StoreDirectory, offset_files

MANIFEST: Final = "backup.json"
_VERSION: Final = 1
_PIECE_BYTES: Final = 1 << 20
# Files with a checksum in the manifest: no other check covers them.
_TABLES: Final = ("checkpoint", "config")
# In the order of the copy, before all others; what an entry of a later one needs is in the log.
_FIRST: Final = ("checkpoint", "config", "timercheck", "timerwheel", "timerlog", "consumequeue")
_UNFINISHED: Final = ".rocketpy-restore"
"""File in a directory of an unfinished restore, which another restore may delete."""
_NOT_COPIED: Final = frozenset({"lock", "abort", MANIFEST, "cut", _UNFINISHED})
_NOT_COPIED_SUFFIXES: Final = (".tmp", ".damaged")
_ABORT: Final = b"0\nbackup"
_LOG: Final = "commitlog"

Progress = Callable[[int], None]
"""Called with the number of bytes copied or checked since the last call."""


class Backup(NamedTuple):
    """A complete backup.

    Attributes:
        begin: physical offset of the oldest byte of the log.
        end: physical offset after its last record.
        records: number of records.
        damaged: physical offsets of records that are damaged in the source as well.
        identity: identity of the log; empty if it has none.
        tables: CRC-32 of each small file, by its path below the directory.
    """

    begin: int
    end: int
    records: int
    damaged: list[int]
    identity: str
    tables: Mapping[str, int]


def back_up(
    source: Path,
    target: Path,
    *,
    commit_log: str = "",
    progress: Progress = lambda _: None,
) -> Backup:
    """Copy a store directory whose broker may be running.

    Args:
        source: the store directory.
        target: a directory that does not exist or is empty.
        commit_log: `storePathCommitLog`, where that is not `<source>/commitlog`.
        progress: see `Progress`.

    Raises:
        StoreFormatError: not a store directory; a target that holds something, or lies in it.
        OSError: a file cannot be read or written.
    """
    directory = StoreDirectory(source, commit_log)
    log_directory = Path(commit_log) if commit_log else source / "commitlog"
    for inner, outer in ((target, source), (target, log_directory), (source, target)):
        if inner.resolve().is_relative_to(outer.resolve()):
            raise StoreFormatError(f"{inner} is inside {outer}: choose a directory elsewhere")
    _claim(target)
    for name in _names(source):
        if name != _LOG and source / name != log_directory:
            _copy(source / name, target / name, progress)
    (target / "abort").write_bytes(_ABORT)
    (target / _LOG).mkdir()
    # The last part of the source, so that it holds every message that the others refer to.
    for each in directory.log_files():
        path = Path(each.path)
        _copy(path, target / _LOG / path.name, progress)
    checked = _checked_end(target / _LOG, progress)
    backup = Backup(
        checked.begin,
        checked.end,
        checked.records,
        checked.damaged,
        _identity(target),
        _checksums(target),
    )
    _sync_tree(target)
    _write_manifest(target, backup)
    return backup


def read_backup(directory: Path) -> Backup:
    """Return the manifest of a backup.

    Raises:
        StoreFormatError: not a complete backup.
    """
    try:
        found: dict[str, Any] = json.loads((directory / MANIFEST).read_bytes())
        if found["version"] != _VERSION:
            raise StoreFormatError(f"{directory}: backup of version {found['version']}, not 1")
        return Backup(
            int(found["logBegin"]),
            int(found["logEnd"]),
            int(found["records"]),
            [int(each) for each in found["damaged"]],
            str(found["logIdentity"]),
            {str(path): int(crc) for path, crc in found["tables"].items()},
        )
    except FileNotFoundError:
        reason = "it has no backup.json: not a backup, or one that was interrupted"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        reason = f"its backup.json is damaged ({error!r})"
    raise StoreFormatError(f"{directory} is not a complete backup: {reason}")


def check_backup(directory: Path, progress: Progress = lambda _: None) -> Backup:
    """Check every record and table of a backup.

    Raises:
        StoreFormatError: something is missing or damaged that was intact when it was made.
        OSError: a file cannot be read.
    """
    backup = read_backup(directory)
    for path, crc in backup.tables.items():
        try:
            found = crc32((directory / path).read_bytes())
        except FileNotFoundError:
            raise StoreFormatError(f"{directory / path} is missing") from None
        if found != crc:
            raise StoreFormatError(f"{directory / path} was changed or damaged after the backup")
    files = offset_files(directory / _LOG)
    checked = LogCheck(progress).run(files, backup.end)
    if checked[:3] != backup[:3]:
        raise StoreFormatError(
            f"{directory / _LOG} was changed or damaged after the backup: it has "
            f"{checked.records} intact records from {checked.begin} to {checked.end} instead of "
            f"{backup.records} from {backup.begin} to {backup.end}"
            + "".join(f"; damaged at {each}" for each in checked.damaged[:3])
        )
    return backup


def restore(backup: Path, target: Path, progress: Progress = lambda _: None) -> Backup:
    """Check a backup and copy it to a directory that a broker can start from.

    Args:
        backup: made by `back_up`.
        target: a directory that does not exist or is empty.
        progress: see `Progress`; each byte is counted when it is checked and when it is copied.

    Raises:
        StoreFormatError: not a complete, intact backup; a target that holds something, or
            `<target>.restoring` is not of an interrupted restore.
        OSError: a file cannot be read or written.
    """
    _refuse_content(target)
    partial = target.with_name(target.name + ".restoring")
    is_unfinished = (partial / _UNFINISHED).is_file()
    if not is_unfinished:
        _refuse_content(partial)
    found = check_backup(backup, progress)
    if is_unfinished:
        shutil.rmtree(partial)
    _claim(partial)
    (partial / _UNFINISHED).touch()
    for name in _names(backup):
        _copy(backup / name, partial / name, progress)
    (partial / "abort").write_bytes(_ABORT)
    _sync_tree(partial)
    # The name appears with the complete content only.
    partial.rename(target)
    (target / _UNFINISHED).unlink()
    sync_path(target)
    sync_path(target.parent)
    return found


def _refuse_content(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreFormatError(f"{target} exists and is not an empty directory")


def _claim(target: Path) -> None:
    _refuse_content(target)
    target.mkdir(parents=True, exist_ok=True)


def _names(root: Path) -> list[str]:
    """Return the names to copy, in their order."""
    names = {each.name for each in root.iterdir()} - _NOT_COPIED
    first = [name for name in _FIRST if name in names]
    return [*first, *sorted(names - set(first))]


def _copy(source: Path, target: Path, progress: Progress) -> None:
    """Copy a file or a directory; files that are deleted meanwhile are left out."""
    try:
        if not source.is_dir():
            _copy_file(source, target, progress)
            return
        names = sorted(each.name for each in source.iterdir())
    except FileNotFoundError:
        if source.name.isdecimal():
            _drop_older(target.parent, source.name)
        return
    target.mkdir(exist_ok=True)
    for name in names:
        if not name.endswith(_NOT_COPIED_SUFFIXES):
            _copy(source / name, target / name, progress)


def _drop_older(target: Path, name: str) -> None:
    """Remove the copies of a file that was deleted, and of those before it.

    Retention deletes the oldest files first; a gap would make the others useless.
    """
    for each in sorted(target.iterdir()):
        if each.is_file() and each.name.isdecimal() and each.name <= name:
            each.unlink()


def _copy_file(source: Path, target: Path, progress: Progress) -> None:
    """Copy a file of any length with its holes, and flush it."""
    with Path(source).open("rb") as reader, Path(target).open("wb") as writer:
        size_bytes = os.fstat(reader.fileno()).st_size
        os.ftruncate(writer.fileno(), size_bytes)
        for start, end in _data_of(reader.fileno(), size_bytes):
            position = start
            while position < end:
                piece = os.pread(reader.fileno(), min(_PIECE_BYTES, end - position), position)
                if not piece:  # it became shorter
                    break
                os.pwrite(writer.fileno(), piece, position)
                position += len(piece)
                progress(len(piece))
        os.fsync(writer.fileno())


def _data_of(descriptor: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file that are not holes."""
    position = 0
    while position < size_bytes:
        try:
            start = os.lseek(descriptor, position, os.SEEK_DATA)
        except OSError:  # no data after the position
            return
        end = min(size_bytes, os.lseek(descriptor, start, os.SEEK_HOLE))
        yield start, end
        position = end


def _checked_end(log: Path, progress: Progress) -> CheckedLog:
    """Check the copied log, and remove the incomplete record at its end."""
    files = offset_files(log)
    checked = LogCheck(progress).run(files)
    for each in files:
        path = Path(each.path)
        if each.base >= checked.end and each.base > checked.begin:
            path.unlink()
        elif each.base + each.size_bytes > checked.end:
            with Path(path).open("r+b") as opened:
                opened.truncate(checked.end - each.base)
                opened.truncate(each.size_bytes)
                os.fsync(opened.fileno())
    return checked


def _identity(root: Path) -> str:
    with contextlib.suppress(FileNotFoundError, ValueError):
        return identity_in(json.loads((root / "config" / IDENTITY_FILE).read_bytes()))
    return ""


def _checksums(root: Path) -> dict[str, int]:
    found = {}
    for name in _TABLES:
        path = root / name
        paths = [path] if path.is_file() else sorted(path.rglob("*")) if path.is_dir() else []
        for each in paths:
            if each.is_file():
                found[str(each.relative_to(root))] = crc32(each.read_bytes())
    return found


def _write_manifest(target: Path, backup: Backup) -> None:
    content = {
        "version": _VERSION,
        "logBegin": backup.begin,
        "logEnd": backup.end,
        "records": backup.records,
        "damaged": backup.damaged,
        "logIdentity": backup.identity,
        "tables": backup.tables,
    }
    temporary = target / f"{MANIFEST}.tmp"
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    sync_path(temporary)
    temporary.rename(target / MANIFEST)
    sync_path(target)


def _sync_tree(root: Path) -> None:
    """Flush the names in a directory and in those below it; files are flushed when copied."""
    for directory, _, names in os.walk(root):
        if "abort" in names:
            sync_path(Path(directory) / "abort")
        sync_path(Path(directory))
    sync_path(root.parent)


def sync_path(path: Path) -> None:
    """Flush a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
