"""Deleted topics, recorded as long as the log holds their messages.

Deleting a topic deletes its queues; its records stay in the commit log until retention reaches
them. Rebuilding from the log (queues during recovery, the index when it catches up) must not
restore them, and recovery must not search the whole log for queues that were deleted on purpose.
Therefore the directory of the queues is renamed, not removed::

    <root>/consumequeue/<topic>   ->   <root>/deleted/<physical offset, 20 digits>[.<n>]/<topic>

The rename deletes the topic and records it atomically: *messages of this topic before this
physical offset are deleted*. No other topic waits for more than a rename. The files inside are
removed later, one directory at a time; the two directories stay until the log starts after the
offset. Other programs do not read them.

Invariants:
    - a recorded offset is never after the end of the log: recovery that finds the log shorter
      lowers it before anything is appended, otherwise it would hide later messages;
    - a recreated topic starts with queue offset 0 after the offset.
"""

import logging
import threading
from pathlib import Path
from typing import Final

from rocketpy.store.files.store_files import StoreFiles

logger: logging.Logger = logging.getLogger(__name__)

_SWEEP_IDLE_MS: Final = 1_000


class DeletedTopics:
    """Deleted topics of one store. `covers` is safe to call from any thread."""

    def __init__(self, root: Path, files: StoreFiles) -> None:
        self._directory = root / "deleted"
        self._files = files
        self._mutex = threading.Lock()  # three threads delete, expire and sweep
        self._ends: dict[str, int] = {}
        self._swept: list[Path] = []

    def load(self) -> None:
        """Load the records; left-over files are removed later."""
        ends: dict[str, int] = {}
        for name, phy_offset in self._marks():
            for topic in self._files.list_directories(self._directory / name):
                ends[topic] = max(ends.get(topic, 0), phy_offset)
                self._swept.append(self._directory / name / topic)
        self._ends = ends

    def _marks(self) -> list[tuple[str, int]]:
        """Return directory names and their offsets."""
        names = self._files.list_directories(self._directory)
        return [(name, int(name.split(".")[0])) for name in names if name.split(".")[0].isdecimal()]

    @property
    def topics(self) -> dict[str, int]:
        """Return topics and the physical offsets before which their messages are deleted."""
        return self._ends

    def covers(self, topic: str, phy_offset: int) -> bool:
        """Return whether a message was deleted with its topic."""
        return phy_offset < self._ends.get(topic, 0)

    def add(self, topic: str, phy_offset: int, directory: Path) -> None:
        """Delete a topic's directory and record the end of the log (append lock held).

        The deletion is on disk when `StoreFiles.sync_directories` has returned.

        Args:
            topic: topic name.
            phy_offset: end of the log.
            directory: directory of the topic's queues; it may not exist.

        Raises:
            DiskFullError: no space for a directory entry; nothing was deleted.
            OSError: the directory could not be renamed; nothing was deleted.
        """
        mark = self._directory / f"{phy_offset:020d}"
        count = 0
        # The same topic may have been deleted twice at the same end of the log.
        while self._files.exists(mark / topic):
            count += 1
            mark = self._directory / f"{phy_offset:020d}.{count}"
        self._files.make_directories(mark)
        if self._files.exists(directory):
            # One rename is the whole deletion: no crash can leave half of it.
            self._files.rename(directory, mark / topic)
        else:
            self._files.make_directories(mark / topic)
        with self._mutex:
            # Replaced, because `covers` reads it without a lock.
            self._ends = {**self._ends, topic: phy_offset}
            self._swept.append(mark / topic)

    def cut(self, log_end: int) -> None:
        """Lower offsets after the end of the log; on disk when this returns.

        Raises:
            OSError: the disk failed.
        """
        changed = False
        for name, phy_offset in self._marks():
            if phy_offset <= log_end:
                continue
            changed = True
            for topic in self._files.list_directories(self._directory / name):
                # A larger offset would hide messages that are appended at these offsets later.
                self.add(topic, log_end, self._directory / name / topic)
            self._files.remove_tree(self._directory / name)
        if changed:
            # Before the store opens and appends.
            self._files.sync_directories()
            self._swept.clear()
            self.load()

    def clear(self) -> None:
        """Drop all records, because the log is empty."""
        self._files.remove_tree(self._directory)
        self._ends = {}
        self._swept.clear()

    def delete_expired(self, min_phy_offset: int) -> int:
        """Drop records before the start of the log; return the number of directories."""
        expired = [name for name, phy_offset in self._marks() if phy_offset <= min_phy_offset]
        for name in expired:
            self._files.remove_tree(self._directory / name)
        with self._mutex:
            self._ends = {
                topic: phy_offset
                for topic, phy_offset in self._ends.items()
                if phy_offset > min_phy_offset
            }
        return len(expired)

    def sweep(self) -> bool:
        """Remove the files of one directory; return False if none was left."""
        while self._swept:
            directory = self._swept[-1]
            inside = self._files.list_directories(directory)
            if inside:
                self._files.remove_tree(directory / inside[0])
                # One queue per step, so that the service never blocks for long.
                return True
            with self._mutex:
                self._swept.remove(directory)
        return False


class SweepDeletedService:
    """Background service that removes the files of deleted queues, one queue per step."""

    name: Final = "SweepDeletedService"

    def __init__(self, deleted: DeletedTopics) -> None:
        self._deleted = deleted

    def step(self, now_ms: int) -> int:
        """Remove one queue's files; see `rocketpy.runtime.service.Service.step`."""
        try:
            more = self._deleted.sweep()
        except OSError as error:
            logger.warning("deleted topic not removed, will be retried: error=%s", error)
            more = False
        return now_ms if more else now_ms + _SWEEP_IDLE_MS
