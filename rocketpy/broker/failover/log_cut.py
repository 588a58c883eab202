"""Cut of a replica's log where the log of its master continues differently; retention of cuts.

Source: ours; Apache's truncation moves positions in memory alone.
"""

from contextlib import closing
from pathlib import Path
from typing import Final

import structlog

from rocketpy.errors import ResourceShortError
from rocketpy.proto.replication.epochs import Epochs
from rocketpy.runtime.clock import Clock
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.replication.resync import (
    CUT_DIRECTORY,
    cut,
    finish_cut,
    has_record,
    local_log,
)

_log = structlog.get_logger(__name__)

MOST_CUTS: Final = 10
"""Limit of kept cuts: repeated fail-overs must not fill the disk."""
MOST_CUT_BYTES: Final = 10 << 30
_SEEN_FILE: Final = "seen"
_PAUSE_MS: Final = 3_600_000
"""Pause between two checks: cuts are rare, and their limits are hours and gigabytes."""
_HOUR_MS: Final = 3_600_000


def finish_log_cut(config: MessageStoreConfig, files: StoreFiles) -> None:
    """Finish a cut that a crash has interrupted, before a broker starts.

    Args:
        config: settings of the store.
        files: the file system, for the lock of the directory.

    Raises:
        StoreError: another process uses the directory.
        OSError: the disk failed.
    """
    root = Path(config.store_path_root_dir)
    with closing(files.lock(root / "lock")):
        aside = finish_cut(root, config.store_path_commit_log, files)
    if aside is not None:
        _log.warning("interrupted cut finished", kept_in=str(aside))


def cut_log(config: MessageStoreConfig, files: StoreFiles, at: int) -> None:
    """Cut the log of a stopped broker; the bytes are kept below `cut/`.

    Every step can be repeated after a crash.

    Args:
        config: settings of the store.
        files: the file system, for the lock of the directory.
        at: end of the part that stays, the start of a record.

    Raises:
        StoreError: another process uses the directory, or no record starts there.
        OSError: a file cannot be read or written.
    """
    root = Path(config.store_path_root_dir)
    with closing(files.lock(root / "lock")):
        log = local_log(root, config.store_path_commit_log, disk=files)
        aside = cut(log, max(at, log.begin))
    _log.warning("log cut", at=at, end=log.end, cut_bytes=log.end - at, kept_in=str(aside))


def least_end(config: MessageStoreConfig, files: StoreFiles, epochs: Epochs) -> int:
    """Return an offset in the newest epoch that has a record in a log; 0 without one.

    It is known before a broker recovers the log, whose end is not lower.

    Raises:
        OSError: a file cannot be read.
    """
    root = Path(config.store_path_root_dir)
    for each in reversed(epochs):
        if has_record(root, each.start, config.store_path_commit_log, files):
            return each.start + 1
    return 0


class CutRetention:
    """Retention of the directories below `cut/`: the newest ones, for `fileReservedTime`.

    The age of a cut counts from the first check that found it, which a file in its directory
    records: the moved files of the log keep their old times. The newest cut is kept at any size.

    Args:
        config: settings of the store.
        files: the file system.
        clock: time.
    """

    def __init__(self, config: MessageStoreConfig, files: StoreFiles, clock: Clock) -> None:
        self._root = Path(config.store_path_root_dir) / CUT_DIRECTORY
        self._kept_ms = config.file_reserved_time * _HOUR_MS
        self._files = files
        self._clock = clock
        self._due_ms = 0

    @property
    def is_due(self) -> bool:
        """Whether the last check was an hour ago, or there was none."""
        return self._clock.monotonic_ms() >= self._due_ms

    def check(self) -> None:
        """Remove cuts that are too old, too large or too many; failures are logged and retried."""
        self._due_ms = self._clock.monotonic_ms() + _PAUSE_MS
        try:
            self._check()
        except (ResourceShortError, OSError) as error:
            _log.warning("cuts not checked", directory=str(self._root), error=str(error))

    def _check(self) -> None:
        now_ms = self._clock.time_ms()
        names = self._files.list_directories(self._root)
        found = sorted(((self._seen_ms(name, now_ms), name) for name in names), reverse=True)
        size_bytes = 0
        for number, (seen_ms, name) in enumerate(found):
            directory = self._root / name
            size_bytes += self._size_bytes(directory) if number else 0
            is_old = now_ms - seen_ms > self._kept_ms
            if is_old or number >= MOST_CUTS or size_bytes > MOST_CUT_BYTES:
                self._files.remove_tree(directory)
                _log.warning("cut-off messages removed", directory=str(directory), seen_ms=seen_ms)
        if found:
            self._files.sync_directories()

    def _seen_ms(self, name: str, now_ms: int) -> int:
        path = self._root / name / _SEEN_FILE
        if self._files.exists(path):
            text = self._files.read_bytes(path)
            if text.isdigit():
                return int(text)
        self._files.write_bytes(path, b"%d" % now_ms)
        return now_ms

    def _size_bytes(self, directory: Path) -> int:
        files = self._files
        own = sum(files.size_bytes(directory / name) for name in files.list_files(directory))
        below = (self._size_bytes(directory / name) for name in files.list_directories(directory))
        return own + sum(below)
