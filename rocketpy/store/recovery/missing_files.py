"""Checks for missing files at a start, before the log is read.

- Log: its files must reach the offset up to which the checkpoint covers it; a file of zeros counts
  as missing, as after the restore of a damaged backup. If there is no file, nothing else may show
  that the store had messages: a wrong path or an unmounted volume would otherwise empty the
  queues, and lower the offsets of groups.
- Store directory: it must not be empty beside a log with messages in another place: the path may be
  wrong, or its volume not mounted. Groups would lose their offsets, and topics their settings.
- Place: a store without messages must not begin beside one that has them, in its directory `store`
  or in the directory above it: `rocketpy standalone` and brokers name different ones of the two.
- Queues: the sum of their lengths must match the checkpoint (`recovery.recovery`), they must have
  no gap (`consume_queue.queue_files`) and start where the log starts, because retention deletes
  only files without messages in the log.
- Index files: no message with keys may lie between two of them or before the first. Recovery itself
  detects what is missing at the end of the index.

Parts that the log still holds are rebuilt from it; otherwise the start fails.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from rocketpy.errors import StoreFormatError
from rocketpy.proto.record.record_check import RecordCheck
from rocketpy.store.append.dispatch import has_index_entries, read_back
from rocketpy.store.checkpoint import Checkpoint
from rocketpy.store.commit_log.commit_log import CommitLog
from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.consume_queue_table import is_safe_topic
from rocketpy.store.consume_queue.queue_entry import BLANK_SIZE, ENTRY_BYTES
from rocketpy.store.files.mapped_file_queue import file_name
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.index.index_file import IndexHeader

logger: logging.Logger = logging.getLogger(__name__)

_INDEX_GAP_BYTES: Final = 4 << 20
_READ_BYTES: Final = 1 << 20
_OFFSETS: Final = ("consumerOffset.json", "consumerOffset.json.bak")
_COMMITTED: Final = re.compile(rb'"[^"@]+@[^"]+"\s*:\s*\{[^{}]*:\s*[1-9]')
"""A committed offset above 0 in consumerOffset.json."""


def has_log(directory: Path, files: StoreFiles) -> bool:
    """Return whether a directory has a log file that is not empty."""
    return bool(_log_files(directory, files))


def is_log_blank(directory: Path, files: StoreFiles) -> bool:
    """Return whether a log has no file, or only a first one of zeros.

    The latter may be a new store, whose first file is allocated before the first message. Later
    files of zeros may be what retention leaves.
    """
    paths = _log_files(directory, files)
    return not paths or (int(paths[-1].name) == 0 and _is_zero(paths[-1], files))


def _log_files(directory: Path, files: StoreFiles) -> list[Path]:
    """Return the log files that are not empty."""
    names = files.list_files(directory) if files.exists(directory) else ()
    paths = [directory / name for name in names if name.isdecimal()]
    return [path for path in paths if files.size_bytes(path)]


def _is_zero(path: Path, files: StoreFiles, end: int | None = None) -> bool:
    """Return whether a file has only zeros; read to the first other byte, or to `end`."""
    file = files.open_file(path)
    try:
        end = file.size_bytes if end is None else min(end, file.size_bytes)
        starts = range(0, end, _READ_BYTES)
        return not any(file.has_data(at, min(at + _READ_BYTES, end)) for at in starts)
    finally:
        file.close()


def check_log(root: Path, log: CommitLog, files: StoreFiles, checkpoint: Checkpoint) -> None:
    """Check that the log has the files that the checkpoint covers; warn if there is nothing else.

    Raises:
        StoreFormatError: files are missing, or the whole store directory of a log elsewhere.
    """
    check_log_is_there(log.directory, log.file_bytes, files, checkpoint.log_phy_offset)
    if is_log_alone(root, files):
        # Below the store directory, the log shows that its path is right.
        is_elsewhere = not log.directory.is_relative_to(root)
        if is_elsewhere and not is_log_blank(log.directory, files):
            raise missing_root(root, log.directory)
        logger.warning(
            "store has only its commit log, and groups have no offsets: path=%s log=%s",
            root,
            log.directory,
        )


def is_log_lost(
    root: Path,
    log_directory: Path,
    files: StoreFiles,
    checkpoint: Checkpoint,
    power_cut: bool | None,
    *,
    start_empty: bool,
) -> bool:
    """Return whether a log without files, or of zeros, had messages and an empty one replaces it.

    Args:
        root: the store directory.
        log_directory: directory of the log.
        files: the file system.
        checkpoint: the loaded checkpoint.
        power_cut: see `trace_of_messages`.
        start_empty: whether an empty log may replace a lost one.

    Raises:
        StoreFormatError: the log is missing, and must not be replaced.
    """
    trace = trace_of_messages(root, files, checkpoint, power_cut)
    if trace is None:  # a new store
        return False
    if not start_empty:
        raise missing_log(log_directory, trace)
    logger.warning(
        "missing commit log replaced by an empty one: path=%s trace=%s", log_directory, trace
    )
    for path in _log_files(log_directory, files):  # zeros
        files.remove(path)
    return True


def check_place(root: Path, log_directory: Path, files: StoreFiles) -> None:
    """Check that a store without messages is not above or in another store; change nothing.

    Args:
        root: the store directory; may be missing.
        log_directory: directory of its log.
        files: the file system.

    Raises:
        StoreFormatError: the messages are in a directory next to it, which may be the one meant.
    """
    root = Path(os.path.abspath(root))  # noqa: PTH100 - of the text, without the file system
    below, above = root / "store", root.parent
    if not (_is_store(below, files) or _is_store(above, files)):
        return
    if not is_log_blank(log_directory, files):
        return
    if log_directory != below / "commitlog" and _has_messages(below, files):
        raise StoreFormatError(
            f"{below} is a store with messages, and {root} would begin as an empty one: the "
            f"directory of rocketpy standalone --data has its store below it. Use {below} as "
            "storePathRootDir; to begin an empty store here, start once with --start-empty"
        )
    if log_directory != above / "commitlog" and _has_messages(above, files):
        raise StoreFormatError(
            f"{above} is a store with messages, and {root}, in it, would begin as an empty one. "
            f"Use {above} as storePathRootDir, or for rocketpy standalone --data move its files "
            f"into {above / 'store'}; to begin an empty store here, start once with --start-empty"
        )


def _is_store(directory: Path, files: StoreFiles) -> bool:
    names = ("lock", "checkpoint", "config")
    return any(files.exists(directory / name) for name in names)


def _has_messages(directory: Path, files: StoreFiles) -> bool:
    log = directory / "commitlog"
    return _is_store(directory, files) and has_log(log, files) and not is_log_blank(log, files)


def is_log_alone(root: Path, files: StoreFiles) -> bool:
    """Return whether a store directory has neither checkpoint nor queues nor tables.

    They are rebuilt from the log, except for the offsets of groups: the path of the store may be
    wrong, or its volume not mounted, while the log is on another one.
    """
    return not any(files.exists(root / name) for name in ("checkpoint", "consumequeue", "config"))


def trace_of_messages(
    root: Path, files: StoreFiles, checkpoint: Checkpoint, power_cut: bool | None
) -> str | None:
    """Return the sign that a store without a log had messages; None for a new store.

    Args:
        root: the store directory.
        files: the file system.
        checkpoint: the loaded checkpoint.
        power_cut: whether the machine was restarted. The first seconds of a store may then have
            left queues and offsets on disk without the log; only the checkpoint is written after
            it.
    """
    if checkpoint.physic_ms > 0 or checkpoint.log_phy_offset > 0:
        return f"{root / 'checkpoint'} says that messages were on disk"
    if power_cut:
        return None
    queues = root / "consumequeue"
    for topic in files.list_directories(queues):
        for queue_id in files.list_directories(queues / topic):
            for name in files.list_files(queues / topic / queue_id):
                path = queues / topic / queue_id / name
                if _begins_with_entry(path, files):
                    return f"{path} has entries"
    # The copy counts as well: the table is read from it if the file is missing or damaged.
    for offsets in (root / "config" / name for name in _OFFSETS):
        if files.exists(offsets) and _COMMITTED.search(files.read_bytes(offsets)):
            return f"{offsets} has offsets of groups"
    index = root / "index"
    for path in (index / name for name in files.list_files(index)):
        if _begins_with_entry(path, files):
            return f"{path} has entries"
    return None


def _begins_with_entry(path: Path, files: StoreFiles) -> bool:
    if not files.size_bytes(path):
        return False
    file = files.open_file(path)
    try:
        return any(file.read(0, ENTRY_BYTES))
    finally:
        file.close()


def missing_log(directory: Path, trace: str) -> StoreFormatError:
    """Return the error about a log that is missing although the store had messages."""
    return StoreFormatError(
        f"{directory} has no log file with messages, but {trace}: it would be emptied. Check "
        "storePathCommitLog, "
        "or mount or restore the directory; to give up its messages and continue with an empty "
        "log, start once with --start-empty"
    )


def missing_root(root: Path, log_directory: Path) -> StoreFormatError:
    """Return the error about an empty store directory beside a log with messages."""
    return StoreFormatError(
        f"{root} has neither checkpoint nor consumequeue nor config, but {log_directory} has "
        "messages: offsets of groups, settings of topics and the progress of delayed messages "
        "would be lost. Check storePathRootDir, or mount or restore the directory; to rebuild its "
        f"queues from the log and go without the rest, create {root / 'config'}"
    )


def check_log_is_there(
    directory: Path, file_bytes: int, files: StoreFiles, on_disk_to: int
) -> None:
    """Reject a log that is shorter than the checkpoint says; change nothing.

    Args:
        directory: directory of the log.
        file_bytes: length of its files.
        files: the file system.
        on_disk_to: physical offset up to which the checkpoint covers the log.

    Raises:
        StoreFormatError: files at the end are missing, empty or zeros.
    """
    if on_disk_to <= 0:
        return
    end = on_disk_to - 1 - (on_disk_to - 1) % file_bytes
    for path in reversed(_log_files(directory, files)):
        begin = int(path.name)
        # The file after the last message is zeros, too.
        if begin >= on_disk_to or not _is_zero(path, files, on_disk_to - begin):
            end = begin + file_bytes
            break
        end = begin
    if end < on_disk_to:
        raise StoreFormatError(
            f"{directory / file_name(end)} is missing or has only zeros: the log was on disk up to "
            f"{on_disk_to}, and its files end at {end}. Restore it; or, to continue without its "
            "messages, remove "
            f"{directory.parent / 'checkpoint'} (for an empty store: all of {directory})"
        )


def index_files_before_gap(
    headers: Sequence[IndexHeader],
    log: CommitLog,
    covers: Callable[[str, int], bool],
    *,
    max_bytes: int = _INDEX_GAP_BYTES,
) -> int:
    """Return the number of index files before the first missing one.

    Args:
        headers: headers of the existing files, oldest first.
        log: the loaded log.
        covers: returns whether a message (topic, physical offset) was deleted with its topic.
        max_bytes: most bytes of the log to read before each file; usually one record.
    """
    start, known_to = log.min_phy_offset, -1
    for number, header in enumerate(headers):
        stop = min(header.begin_phy_offset, start + max_bytes)
        for phy_offset, found in log.scan(start, stop):
            if phy_offset > known_to and _has_keys(found, phy_offset, covers):
                logger.error("index file missing: phy_offset=%d", phy_offset)
                return number
        known_to = max(known_to, header.end_phy_offset)
        start = max(start, known_to)
    return len(headers)


def _has_keys(found: RecordCheck, phy_offset: int, covers: Callable[[str, int], bool]) -> bool:
    """Return whether a message has a key that every version indexes."""
    request = read_back(found, phy_offset, ())
    return (
        request is not None
        and has_index_entries(request.sys_flag)
        and bool(request.uniq_key or request.keys)
        and request.queue_id >= 0
        and is_safe_topic(request.topic)
        and not covers(request.topic, phy_offset)
    )


def queues_with_lost_begin(
    queues: Iterable[ConsumeQueue], log: CommitLog, covers: Callable[[str, int], bool]
) -> list[ConsumeQueue]:
    """Return the queues that lack entries at their start although the log has the messages.

    The log is read only if a queue's first entry lies after the start of the log, which is rare
    after retention.

    Args:
        queues: the loaded queues.
        log: the loaded log.
        covers: returns whether a message (topic, physical offset) was deleted with its topic.
    """
    low = log.min_phy_offset
    begins: dict[tuple[bytes, int], ConsumeQueue] = {}
    high = low
    for queue in queues:
        first = queue.entry(queue.min_offset) if queue.min_offset else None
        if first is not None and first[1] != BLANK_SIZE and first[0] > low:
            begins[queue.topic.encode(), queue.queue_id] = queue
            high = max(high, first[0])
    lost: dict[ConsumeQueue, None] = {}
    for phy_offset, found in log.scan(low, high) if begins else ():
        begun = begins.get((found.topic, found.queue_id))
        if begun is None or covers(begun.topic, phy_offset):
            continue
        if found.queue_offset < begun.min_offset:
            lost[begun] = None
    return list(lost)
