"""Contents of an archive: one manifest for each change, written last.

    ROOT/_manifests/00000000000000000007.json    files that change 7 added and removed
    ROOT/_staging/                               files that are not part of the archive yet

For a batch, files are renamed into place, then the manifest is written. A run that is killed
before the manifest repeats the batch and writes the same names, so no reader sees a message twice.

For a compaction, the new directory is built in the staging area, then the manifest announces the
swap, then the directories are swapped. A run that is killed in between swaps at its next start.

Spark, pyarrow and other readers ignore names that begin with `_`.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from rocketpy.errors import JobError
from rocketpy.spark.jobs.parquet_archive.atomic_swap import swap_folders
from rocketpy.spark.jobs.parquet_archive.files import (
    ArchiveFile,
    Piece,
    offsets_in_name,
    sync_path,
)

MANIFESTS: Final = "_manifests"
STAGING: Final = "_staging"
MANIFESTS_MAX: Final = 1000
"""With more manifests than this a start writes a summary of all and removes them."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Record of one change of an archive.

    Attributes:
        version: number of the change.
        query: id of the stream; empty for a compaction.
        batch: number of the batch.
        added: new files.
        removed: paths of removed files.
        ends: queues that the batch read, with the offset after the last one read; filtered
            messages are included.
        swapped: directory and staged directory to exchange.
        batches: only in a summary of earlier manifests: the last batch of every query.
        lives: new life of each queue that lost messages in this change. Its offsets are assigned
            again, and files of different lives are unrelated.
    """

    version: int
    query: str = ""
    batch: int = -1
    added: list[ArchiveFile] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    ends: list[tuple[str, str, int, int]] = field(default_factory=list)
    swapped: tuple[str, str] | None = None
    batches: dict[str, int] = field(default_factory=dict)
    lives: list[tuple[str, str, int, int]] = field(default_factory=list)

    def encode(self) -> bytes:
        """Encode as JSON, with one line for each file."""
        head = {
            "version": self.version,
            "query": self.query,
            "batch": self.batch,
            "removed": self.removed,
            "ends": self.ends,
            "swapped": self.swapped,
            "batches": self.batches,
        }
        if self.lives:  # older versions do not know the field
            head["lives"] = self.lives
        files = ",\n".join(json.dumps(each.as_json()) for each in self.added)
        return f'{json.dumps(head)[:-1]}, "added": [\n{files}\n]}}\n'.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode JSON; raise ValueError, KeyError or TypeError if it is invalid."""
        found: dict[str, Any] = json.loads(data)
        found["added"] = [ArchiveFile.from_json(each) for each in found["added"]]
        for name in ("ends", "lives"):
            by_queue = found.get(name, [])
            found[name] = [(str(t), str(b), int(q), int(e)) for t, b, q, e in by_queue]
        found["swapped"] = tuple(found["swapped"]) if found["swapped"] else None
        return cls(**found)


class LiveFiles:
    """State of an archive after its manifests were applied in order.

    Attributes:
        by_path: every file.
        by_queue: files by queue (topic, broker name, queue id).
        ends: offset up to which each queue was read.
        lives: life of each queue that lost messages.
        batches: the last batch of every query.
        next_version: version of the next manifest.
    """

    def __init__(self) -> None:
        self.by_path: dict[str, ArchiveFile] = {}
        self.by_queue: dict[tuple[str, str, int], list[ArchiveFile]] = {}
        self.ends: dict[tuple[str, str, int], int] = {}
        self.lives: dict[tuple[str, str, int], int] = {}
        self.batches: dict[str, int] = {}
        self.next_version: int = 0

    @property
    def files(self) -> list[ArchiveFile]:
        """Every file, by path."""
        return [self.by_path[path] for path in sorted(self.by_path)]

    def apply(self, manifest: Manifest) -> None:
        """Apply the next manifest."""
        if manifest.batches:  # a summary replaces all manifests before it
            self.by_path.clear()
            self.by_queue.clear()
            self.batches.update(manifest.batches)
        for path in manifest.removed:
            file = self.by_path.pop(path)
            self.by_queue[file.queue].remove(file)
        for file in manifest.added:
            self.by_path[file.path] = file
            self.by_queue.setdefault(file.queue, []).append(file)
        for topic, broker_name, queue_id, end in manifest.ends:
            self.ends[topic, broker_name, queue_id] = end
        for topic, broker_name, queue_id, life in manifest.lives:
            self.lives[topic, broker_name, queue_id] = life
        if manifest.query:
            self.batches[manifest.query] = manifest.batch
        self.next_version = manifest.version + 1


class ArchiveLog:
    """Log of the changes of an archive. One process at a time may change it.

    Args:
        root: directory of the archive; created if missing.

    Raises:
        JobError: another process changes it, or a manifest cannot be read.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._manifests = root / MANIFESTS
        self._live = LiveFiles()
        self._manifests.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._manifests / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            self._take_lock()
            self._load()
        except BaseException:
            os.close(self._lock)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock on the archive."""
        os.close(self._lock)

    @property
    def files(self) -> list[ArchiveFile]:
        """All files of the archive, by path."""
        return self._live.files

    @property
    def ends(self) -> dict[tuple[str, str, int], int]:
        """Offset up to which each queue (topic, broker name, queue id) was read."""
        return dict(self._live.ends)

    def has(self, query: str, batch: int) -> bool:
        """Return whether a batch was committed."""
        return self._live.batches.get(query, -1) >= batch

    # ---- a batch

    def commit(
        self,
        query: str,
        batch: int,
        pieces: Sequence[Piece],
        ends: Iterable[tuple[str, str, int, int]] = (),
        cut: Iterable[tuple[str, str, int]] = (),
    ) -> Manifest:
        """Add the files of a batch to the archive.

        Args:
            query: id of the stream, stable across its restarts.
            batch: number of the batch; replayed with the same offsets until it is committed.
            pieces: files of its tasks.
            ends: (topic, broker name, queue, offset): how far it read each queue.
            cut: (topic, broker name, queue) of queues that lost archived messages, and assign
                their offsets again from now on.

        Raises:
            JobError: some of these offsets are in the archive already.
        """
        lives = self._live.lives
        pieces = [
            replace(each, file=replace(each.file, life=lives.get(each.file.queue, 0)))
            for each in pieces
        ]
        for piece in pieces:
            self._refuse_overlap(piece.file)
        folders = set()
        for piece in pieces:
            target = self.root / piece.file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            self._drop_leftovers(piece.file)
            (self.root / piece.staged).replace(target)
            folders |= {target.parent, target.parent.parent, self.root}
        for folder in folders:
            sync_path(folder)
        manifest = Manifest(
            version=self._live.next_version,
            query=query,
            batch=batch,
            added=[piece.file for piece in pieces],
            ends=list(ends),
            lives=[(*queue, lives.get(queue, 0) + 1) for queue in cut],
        )
        self._write(manifest)
        return manifest

    def _refuse_overlap(self, file: ArchiveFile) -> None:
        for each in self._live.by_queue.get(file.queue, ()):
            if each.life == file.life and each.first < file.end and file.first < each.end:
                raise JobError(
                    f"offsets {file.first} to {file.end - 1} of {file.topic}, {file.broker_name}, "
                    f"queue {file.queue_id} are in the archive already ({each.path}): archive to "
                    f"another directory, or use the checkpoint of this archive"
                )

    def _drop_leftovers(self, file: ArchiveFile) -> None:
        """Remove overlapping files of an earlier attempt that was killed, with other ranges."""
        for path in (self.root / file.folder).iterdir():
            span = offsets_in_name(path.name, file.prefix)
            if span is not None and span[0] < file.end and file.first < span[1]:
                path.unlink()

    # ---- a compaction

    def replace(
        self, folder: str, removed: Sequence[ArchiveFile], pieces: Sequence[Piece]
    ) -> Manifest:
        """Replace files of a directory by others with the same rows, in one step.

        Args:
            folder: below the root.
            removed: old files.
            pieces: new files.
        """
        staged = f"{STAGING}/swap-{self._live.next_version:020d}"
        (self.root / staged).mkdir(parents=True)
        gone = {each.name for each in removed}
        for path in (self.root / folder).iterdir():
            if path.name not in gone:
                os.link(path, self.root / staged / path.name)
        for piece in pieces:
            (self.root / piece.staged).replace(self.root / staged / piece.file.name)
        sync_path(self.root / staged)
        sync_path(self.root / STAGING)
        manifest = Manifest(
            version=self._live.next_version,
            added=[piece.file for piece in pieces],
            removed=[each.path for each in removed],
            swapped=(folder, staged),
        )
        self._write(manifest)
        self._swap(manifest)
        return manifest

    def _swap(self, manifest: Manifest) -> None:
        assert manifest.swapped is not None
        folder, staged = (self.root / each for each in manifest.swapped)
        if not staged.exists():
            return
        if not all((folder / each.name).exists() for each in manifest.added):
            aside = staged.with_name(f"{staged.name}-old")
            if not folder.exists():
                staged.rename(folder)
            elif not swap_folders(folder, staged):
                folder.rename(aside)
                staged.rename(folder)
            sync_path(folder.parent)
        self._clear_staging()

    # ---- manifests

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobError(
                f"another job writes to the archive {self.root}: wait until it ends, or stop it"
            ) from None

    def _load(self) -> None:
        paths = sorted(self._manifests.glob("*.json"))
        manifests = _in_force(self._manifests)
        for each in manifests:
            self._live.apply(each)
        if manifests and manifests[-1].swapped is not None:
            self._swap(manifests[-1])
        self._clear_staging()
        if len(paths) > MANIFESTS_MAX:
            self._write(
                Manifest(
                    version=self._live.next_version,
                    added=self.files,
                    ends=[(*queue, end) for queue, end in sorted(self._live.ends.items())],
                    batches=self._live.batches,
                    lives=[(*queue, life) for queue, life in sorted(self._live.lives.items())],
                )
            )
            for path in paths:
                path.unlink()

    def _write(self, manifest: Manifest) -> None:
        path = self._manifests / f"{manifest.version:020d}.json"
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            file.write(manifest.encode())
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_path(self._manifests)
        self._live.apply(manifest)

    def _clear_staging(self) -> None:
        shutil.rmtree(self.root / STAGING, ignore_errors=True)
        # A task of a job that was killed may still be writing there.
        (self.root / STAGING).mkdir(exist_ok=True)


def _in_force(folder: Path) -> list[Manifest]:
    """Return the manifests from the last summary on, in order.

    Earlier ones may exist: the writer of a summary removes them one by one.
    """
    found: list[Manifest] = []
    for path in sorted(folder.glob("*.json"), reverse=True):
        found.append(_read(path))
        if found[-1].batches:
            break
    return found[::-1]


def _read(path: Path) -> Manifest:
    try:
        return Manifest.decode(path.read_bytes())
    except (ValueError, KeyError, TypeError) as error:
        raise JobError(f"{path} is not a manifest of an archive: {error}") from None


def archived_files(root: Path) -> list[ArchiveFile]:
    """Return the files of an archive, by path, without changing anything.

    Raises:
        JobError: the directory is not an archive, or a manifest cannot be read.
    """
    found = _load_all(root)
    if not found.next_version:
        raise JobError(f"{root} is no archive: it has no {MANIFESTS}/*.json")
    return found.files


def archived_ends(root: Path) -> dict[tuple[str, str, int], int]:
    """Return the offset up to which each queue (topic, broker, id) was read; without archive none.

    Raises:
        JobError: a manifest cannot be read.
    """
    return _load_all(root).ends


def _load_all(root: Path) -> LiveFiles:
    live = LiveFiles()
    for each in _in_force_beside_a_writer(root / MANIFESTS):
        live.apply(each)
    return live


def _in_force_beside_a_writer(folder: Path) -> list[Manifest]:
    while True:
        try:
            return _in_force(folder)
        except FileNotFoundError:  # another start has just replaced it by a summary
            continue
