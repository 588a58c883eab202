"""Checkpoint of the master's timer, kept by a slave, which runs no timer.

A timer would store due messages. The slave keeps the master's checkpoint, and no wheel.
A broker that later starts as a master on this directory finds a checkpoint without a timer log, and
reads the whole timer queue again: messages that the old master had read, and that were due before
its first undelivered slot, are skipped (`TimerService.load`).
"""

import threading
from pathlib import Path
from typing import Final

import structlog

from rocketpy.errors import StoreError
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.timer.checkpoint import NO_LOG_POSITION, TimerCheckpoint, TimerMarks

_log = structlog.get_logger(__name__)

_INTERVAL_MS: Final = 3_000


class TimerFollower:
    """Background service that writes the master's timer checkpoint.

    Args:
        root: the store directory.
        files: the file system.

    Attributes:
        marks: the values in the file.
    """

    name = "TimerFollower"

    def __init__(self, root: Path, files: StoreFiles) -> None:
        self._files = files
        self._old_files = (root / "timerwheel", root / "timerlog")
        self._checkpoint = TimerCheckpoint(root / "config" / "timercheck", files)
        self._lock = threading.Lock()
        self._wanted: TimerMarks | None = None
        self.marks: TimerMarks = TimerMarks()

    def load(self) -> None:
        """Read the file."""
        self.marks = self._checkpoint.load()

    def persist(self) -> None:
        """Write the last checkpoint.

        Raises:
            StoreError: it cannot be written.
            OSError: the disk failed.
        """
        with self._lock:
            wanted, self._wanted = self._wanted, None
            if wanted is None or wanted == self.marks:
                return
            try:
                self._write(wanted)
            except BaseException:
                self._wanted = wanted
                raise

    def follow(self, marks: TimerMarks) -> None:
        """Apply a checkpoint of the master; it is written soon, and never moves backwards.

        Args:
            marks: the values; the messages that they cover must be in this broker's log.
        """
        queue_offset = min(marks.queue_offset, marks.master_queue_offset)
        with self._lock:
            own = self._wanted or self.marks
            if marks.read_ms < own.read_ms or queue_offset < own.queue_offset:
                return
            self._wanted = marks._replace(
                log_position=NO_LOG_POSITION,
                queue_offset=queue_offset,
                master_queue_offset=queue_offset,
            )

    def drop_wheel(self) -> None:
        """Forget the wheel of a timer that ran here, so that the next one reads the queue again.

        Raises:
            StoreError: the checkpoint cannot be written.
            OSError: the disk failed.
        """
        if any(self._files.exists(each) for each in self._old_files):
            queue_offset = min(self.marks.queue_offset, self.marks.master_queue_offset)
            self._write(
                self.marks._replace(
                    log_position=NO_LOG_POSITION,
                    queue_offset=queue_offset,
                    master_queue_offset=queue_offset,
                )
            )

    def step(self, now_ms: int) -> int:
        """Write a changed checkpoint; see `rocketpy.runtime.service.Service.step`."""
        try:
            self.persist()
        except (StoreError, OSError) as error:
            _log.warning("timer checkpoint not written", error=str(error))
        return now_ms + _INTERVAL_MS

    def _write(self, marks: TimerMarks) -> None:
        # Files of a former master in this directory would count as the timer's state.
        wheel, log = self._old_files
        self._files.remove(wheel)
        self._files.remove_tree(log)
        self._checkpoint.save(marks)
        self.marks = marks


class FormerSlave:
    """Loader of the checkpoint of a slave whose directory a master uses now.

    If the slave acted as master and was killed, its checkpoint is older than its wheel: some
    messages that the timer had taken were not processed.

    Args:
        root: the store directory.
        files: the file system.
    """

    def __init__(self, root: Path, files: StoreFiles) -> None:
        self._mark = root / "config" / "slaveCommits.json"
        self._files = files
        self._follower = TimerFollower(root, files)

    def load(self) -> None:
        """Drop the wheel.

        Raises:
            StoreError: the checkpoint cannot be written.
            OSError: the disk failed.
        """
        if self._files.exists(self._mark):
            self._follower.load()
            self._follower.drop_wheel()

    def persist(self) -> None:
        """Do nothing: the timer of the master has the checkpoint."""
