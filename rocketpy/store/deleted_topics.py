"""Topics that were deleted, remembered as long as the log holds their messages.

Deleting a topic deletes its queues; its records stay in the commit log among those of others until
retention reaches them. What is rebuilt from the log (queues at a start, the index when it catches
up) must not bring them back, and a start must not search the whole log for queues that are gone on
purpose. So the directory of the queues is renamed, not removed::

    <root>/consumequeue/<topic>   ->   <root>/deleted/<physical offset, 20 digits>[.<n>]/<topic>

The rename is the deletion and its record in one: *messages of this topic before this physical
offset are deleted*. On disk there is the one or the other state, never half of it, and no other
topic waits for more than a rename. The files inside go later, one directory at a time; the two
directories stay until the log begins behind the offset. Other programs do not look there.

Invariants:
    - an offset here is never behind the end of the log: a start that finds the log shorter
      lowers it before anything is appended, else it would hide messages to come;
    - a topic made again begins with queue offset 0 behind the offset.
"""

import logging
import threading
from pathlib import Path
from typing import Final

from rocketpy.store.files.store_files import StoreFiles

logger: logging.Logger = logging.getLogger(__name__)

_SWEEP_IDLE_MS: Final = 1_000


class DeletedTopics:
    """The deleted topics of one store. `covers` may be called by any thread."""

    def __init__(self, root: Path, files: StoreFiles) -> None:
        self._directory = root / "deleted"
        self._files = files
        self._mutex = threading.Lock()  # topics are deleted, forgotten and swept by three threads
        self._ends: dict[str, int] = {}
        self._swept: list[Path] = []

    def load(self) -> None:
        """Read what is remembered; leftover files are swept later."""
        ends: dict[str, int] = {}
        for name, phy_offset in self._marks():
            for topic in self._files.list_directories(self._directory / name):
                ends[topic] = max(ends.get(topic, 0), phy_offset)
                self._swept.append(self._directory / name / topic)
        self._ends = ends

    def _marks(self) -> list[tuple[str, int]]:
        """Return directory names and the offsets they stand for."""
        names = self._files.list_directories(self._directory)
        return [(name, int(name.split(".")[0])) for name in names if name.split(".")[0].isdecimal()]

    @property
    def topics(self) -> dict[str, int]:
        """Topics, and the physical offset before which their messages are deleted."""
        return self._ends

    def covers(self, topic: str, phy_offset: int) -> bool:
        """Whether a message was deleted with its topic."""
        return phy_offset < self._ends.get(topic, 0)

    def add(self, topic: str, phy_offset: int, directory: Path) -> None:
        """Delete a topic's directory and remember where the log ended (append lock held).

        On disk it is when `StoreFiles.sync_directories` has returned.

        Args:
            topic: topic name.
            phy_offset: end of the log.
            directory: of the topic's queues; there may be none.

        Raises:
            DiskFullError: no space for a directory entry; nothing was deleted.
            OSError: the directory could not be renamed; nothing was deleted.
        """
        mark = self._directory / f"{phy_offset:020d}"
        count = 0
        while self._files.exists(mark / topic):
            count += 1
            mark = self._directory / f"{phy_offset:020d}.{count}"
        self._files.make_directories(mark)
        if self._files.exists(directory):
            self._files.rename(directory, mark / topic)
        else:
            self._files.make_directories(mark / topic)
        with self._mutex:
            self._ends = {**self._ends, topic: phy_offset}
            self._swept.append(mark / topic)

    def cut(self, log_end: int) -> None:
        """Lower what lies behind the end of the log, on disk when this returns.

        Raises:
            OSError: the disk failed.
        """
        changed = False
        for name, phy_offset in self._marks():
            if phy_offset <= log_end:
                continue
            changed = True
            for topic in self._files.list_directories(self._directory / name):
                self.add(topic, log_end, self._directory / name / topic)
            self._files.remove_tree(self._directory / name)
        if changed:
            self._files.sync_directories()
            self._swept.clear()
            self.load()

    def clear(self) -> None:
        """Forget all: there is no log."""
        self._files.remove_tree(self._directory)
        self._ends = {}
        self._swept.clear()

    def delete_expired(self, min_phy_offset: int) -> int:
        """Forget what lies wholly before the start of the log; return how many directories."""
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
        """Remove the files of one directory; False when nothing was left."""
        while self._swept:
            directory = self._swept[-1]
            inside = self._files.list_directories(directory)
            if inside:
                self._files.remove_tree(directory / inside[0])
                return True
            with self._mutex:
                self._swept.remove(directory)
        return False


class SweepDeletedService:
    """Removes the files of deleted queues, one queue a step, beside everything else."""

    name: Final = "SweepDeletedService"

    def __init__(self, deleted: DeletedTopics) -> None:
        self._deleted = deleted

    def step(self, now_ms: int) -> int:
        """Remove one queue's files; see `rocketpy.runtime.service.Service.step`."""
        try:
            more = self._deleted.sweep()
        except OSError as error:
            logger.warning("files of a deleted topic cannot be removed yet: %s", error)
            more = False
        return now_ms if more else now_ms + _SWEEP_IDLE_MS
