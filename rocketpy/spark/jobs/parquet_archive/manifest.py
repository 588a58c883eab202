"""What an archive holds: one manifest a change, written last, and files under final names only.

    ROOT/_manifests/00000000000000000007.json    what change 7 added and took away
    ROOT/_staging/                               files that are not part of the archive yet

A batch: its files are renamed into place, then its manifest is written. Who is killed before the
manifest finds the same batch again and writes the same names; so nothing is there twice, for any
reader. A compaction: the new directory is made in the staging area, then the manifest says what is
to be swapped, then it is swapped; who is killed in between swaps at the next start.
Names that begin with `_` are left out by Spark, pyarrow and the rest.
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
"""With so many manifests a start first writes one that says it all and removes the others."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One change of an archive.

    Attributes:
        version: counts changes.
        query: of the stream whose batch it is; empty for a compaction.
        batch: its number.
        added: files that came.
        removed: paths of files that went.
        ends: queues that the batch read, and the offset it read up to; what a filter left out is
            passed, too.
        swapped: directory and staged directory that change places.
        batches: in a manifest that stands for all before it: the last batch of every query.
        lives: how often queues were cut, of those that were in this change; their offsets are given
            again, and files of the life before have nothing to do with those that come.
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
        """Return it as JSON, one line a file."""
        head = {
            "version": self.version,
            "query": self.query,
            "batch": self.batch,
            "removed": self.removed,
            "ends": self.ends,
            "swapped": self.swapped,
            "batches": self.batches,
        }
        if self.lives:  # which older versions do not know
            head["lives"] = self.lives
        files = ",\n".join(json.dumps(each.as_json()) for each in self.added)
        return f'{json.dumps(head)[:-1]}, "added": [\n{files}\n]}}\n'.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read it; raises ValueError, KeyError or TypeError when it is none."""
        found: dict[str, Any] = json.loads(data)
        found["added"] = [ArchiveFile.from_json(each) for each in found["added"]]
        for name in ("ends", "lives"):
            by_queue = found.get(name, [])
            found[name] = [(str(t), str(b), int(q), int(e)) for t, b, q, e in by_queue]
        found["swapped"] = tuple(found["swapped"]) if found["swapped"] else None
        return cls(**found)


class LiveFiles:
    """What manifests, applied in order, leave.

    Attributes:
        by_path: every file.
        by_queue: the same by queue (topic, broker name, number).
        ends: how far each queue was read.
        lives: how often each queue was cut; those that never were are not in it.
        batches: the last batch of every query.
        next_version: of the next manifest.
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
        """Add the next manifest."""
        if manifest.batches:  # it stands for all before it
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
    """The files of one archive; one process at a time may change it.

    Args:
        root: directory of the archive; it is made when it is not there.

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
        """Let others change it."""
        os.close(self._lock)

    @property
    def files(self) -> list[ArchiveFile]:
        """All files that are part of it, by path."""
        return self._live.files

    @property
    def ends(self) -> dict[tuple[str, str, int], int]:
        """How far each queue (topic, broker name, number) was read."""
        return dict(self._live.ends)

    def has(self, query: str, batch: int) -> bool:
        """Tell whether a batch is part of it already."""
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
        """Make what tasks wrote part of the archive.

        Args:
            query: id of the stream, the same over its restarts.
            batch: number of the batch; replayed with the same offsets until it is committed.
            pieces: what its tasks wrote.
            ends: (topic, broker name, queue, offset) up to which it read.
            cut: (topic, broker name, queue) whose broker lost messages that are in the archive, and
                gives their offsets again from here on.

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
                    f"another directory, or give the checkpoint this archive was made with"
                )

    def _drop_leftovers(self, file: ArchiveFile) -> None:
        """Remove files of these offsets that a batch left which was killed and cut otherwise."""
        for path in (self.root / file.folder).iterdir():
            span = offsets_in_name(path.name, file.prefix)
            if span is not None and span[0] < file.end and file.first < span[1]:
                path.unlink()

    # ---- a compaction

    def replace(
        self, folder: str, removed: Sequence[ArchiveFile], pieces: Sequence[Piece]
    ) -> Manifest:
        """Have a directory's files replaced by others with the same rows, in one step.

        Args:
            folder: below the root.
            removed: files that go.
            pieces: files that come.
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
                f"another job writes to the archive {self.root}: wait for its end, or stop it"
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
    """Return the manifests that count, in order: the last that stands for all before it, and on.

    Those before it may be gone, some or all: who writes it removes them one by one.
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
        raise JobError(f"{path} is no manifest of an archive: {error}") from None


def archived_files(root: Path) -> list[ArchiveFile]:
    """Return the files of an archive, by path, without changing anything.

    Raises:
        JobError: the directory is no archive, or a manifest cannot be read.
    """
    found = _load_all(root)
    if not found.next_version:
        raise JobError(f"{root} is no archive: it has no {MANIFESTS}/*.json")
    return found.files


def archived_ends(root: Path) -> dict[tuple[str, str, int], int]:
    """Return how far each queue (topic, broker name, number) was read; empty for no archive.

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
        except FileNotFoundError:  # a start has just written one that stands for it
            continue
