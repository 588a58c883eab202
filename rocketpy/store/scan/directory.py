"""Layout of a store directory, read without changing it."""

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketpy.errors import BadBodyError, StoreFormatError
from rocketpy.proto.wire import fastjson

_DIGITS: Final = 20
# Files of a store without messages.
_SIGNS: Final = ("checkpoint", "lock", "abort")


class LogFile(NamedTuple):
    """File of the commit log.

    Attributes:
        base: physical offset of its first byte.
        size_bytes: length of the file.
        path: path of the file.
    """

    base: int
    size_bytes: int
    path: str


class StoreDirectory:
    """Store directory of RocketPy or Apache, in use or a copy.

    Attributes:
        root: the directory.
    """

    def __init__(self, root: str | os.PathLike[str], commit_log: str = "") -> None:
        """Name the directory.

        Args:
            root: `storePathRootDir`.
            commit_log: `storePathCommitLog`, where that is not `<root>/commitlog`.

        Raises:
            StoreFormatError: not a store directory.
        """
        self.root: Path = Path(root)
        self._commit_log = Path(commit_log) if commit_log else self.root / "commitlog"
        if not self.root.is_dir():
            what = "is a file" if self.root.exists() else "does not exist"
            raise StoreFormatError(f"{self.root} {what}: a store directory was expected")
        is_new = not commit_log and any((self.root / name).exists() for name in _SIGNS)
        if not self._commit_log.is_dir() and not is_new:
            below = self.root / "store"
            hint = f"; {below} has one" if (below / "commitlog").is_dir() else ""
            raise StoreFormatError(
                f"{self.root} is not a store directory: it has no {self._commit_log.name}/" + hint
            )

    def log_files(self) -> list[LogFile]:
        """Return the files of the commit log, ascending, without empty ones.

        Raises:
            StoreFormatError: a name that is not an offset, or files that overlap.
        """
        for path in sorted(self._commit_log.iterdir()) if self._commit_log.is_dir() else ():
            # Copies and editors leave hidden files behind.
            if not path.is_file() or path.name.startswith("."):
                continue
            if not is_offset(path.name):
                raise StoreFormatError(f"{path} is not named by an offset")
        found = offset_files(self._commit_log)
        for before, after in itertools.pairwise(found):
            # Overlapping files come from two stores; their offsets are ambiguous.
            if before.base + before.size_bytes > after.base:
                raise StoreFormatError(f"{before.path} overlaps the next file")
        return found

    def queues(self) -> dict[str, list[int]]:
        """Return the ids of the consume queues of each topic, sorted."""
        return {topic: ids for topic, ids in self._walk("consumequeue") if ids}

    def queue_directory(self, topic: str, queue_id: int) -> Path:
        """Return the directory of a queue."""
        return self.root / "consumequeue" / topic / str(queue_id)

    def batch_queues(self) -> dict[str, list[int]]:
        """Return the ids of batch consume queues, which only Apache's brokers serve, by topic."""
        return {topic: ids for topic, ids in self._walk("batchconsumequeue") if ids}

    def batch_queue_directory(self, topic: str, queue_id: int) -> Path:
        """Return the directory of a batch consume queue."""
        return self.root / "batchconsumequeue" / topic / str(queue_id)

    def _walk(self, name: str) -> Iterator[tuple[str, list[int]]]:
        for topic in _directories(self.root / name):
            names = _directories(self.root / name / topic)
            yield topic, sorted(int(each) for each in names if each.isdigit())

    def deleted_topics(self) -> dict[str, int]:
        """Return the physical offsets before which the messages of topics are deleted.

        RocketPy records the offset; Apache does not, so messages of a topic that the directory does
        not know any more count as deleted.
        """
        ends: dict[str, int] = {}
        for mark in _directories(self.root / "deleted"):
            number = mark.partition(".")[0]
            if not number.isdigit():
                continue
            for topic in _directories(self.root / "deleted" / mark):
                # A topic may have been deleted several times.
                ends[topic] = max(ends.get(topic, 0), int(number))
        return ends

    def known_topics(self) -> set[str] | None:
        """Return all existing topics; None if the directory does not list them."""
        table = self.table("topics.json").get("topicConfigTable")
        if not isinstance(table, dict):
            return None
        # A topic with queues exists even if the table was written before it was created.
        return {*table, *self.queues(), *self.batch_queues()}

    def table(self, name: str) -> Mapping[str, Any]:
        """Return a JSON file of `config/`, or its `.bak`, or an empty object."""
        for path in (self.root / "config" / name, self.root / "config" / f"{name}.bak"):
            try:
                found = fastjson.loads(path.read_bytes())
            # A broker may be replacing the file: its backup is complete at that moment.
            except (FileNotFoundError, BadBodyError):
                continue
            if isinstance(found, dict):
                return found
        return {}

    def index_files(self) -> list[Path]:
        """Return the files of the index, oldest first, without empty ones."""
        try:
            paths = sorted(path for path in (self.root / "index").iterdir() if path.is_file())
        except FileNotFoundError:
            return []
        return [path for path in paths if path.name.isdigit() and size_of(path)]


def offset_files(folder: Path) -> list[LogFile]:
    """Return the files of a directory that are named by an offset, ascending, without empty ones.

    Other files are ignored; a directory that does not exist has none.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.is_file())
    except FileNotFoundError:
        return []
    return [
        LogFile(int(path.name), size, str(path))
        for path in paths
        if is_offset(path.name) and (size := size_of(path))
    ]


def is_offset(name: str) -> bool:
    """Return whether a file name is the physical offset of its first byte."""
    return len(name) == _DIGITS and name.isdigit()


def _directories(path: Path) -> list[str]:
    try:
        return sorted(each.name for each in path.iterdir() if each.is_dir())
    except FileNotFoundError:
        return []


def size_of(path: Path) -> int:
    """Return the length of a file; 0 if it was deleted after it was listed."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
