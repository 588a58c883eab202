"""Simulated file system on byte arrays, with power cuts, full disks and failures.

Satisfies `StoreFiles`. Written data is in memory at once and on the
"disk" after `Region.flush`. `SimFiles.power_cut` keeps what was flushed, a random subset of the
512-byte sectors that were not, and a random prefix of the directory changes (creations,
deletions, renames) since the last `sync_directories`. As on a file system with a journal, a file
may come back empty only when its creation is the last change that was kept.
`SimFiles.kill` keeps everything, as the page cache does when only the process dies.

The process can also end between two operations: `SimFiles.end_process_after` counts operations
that change the disk, and at the last one loses power (or the process) and raises
`ProcessEndedError`. From then on every operation of the dead process raises it again, until
`SimFiles.start_process`.
"""

import errno
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from rocketpy.errors import DiskFullError, ResourceShortError, StoreFormatError, StoreLockedError
from rocketpy.runtime.clock import Clock
from rocketpy.store.files.store_files import DiskUsage
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_file import PAGE_BYTES, SimNode

_HUGE_BYTES: Final = 1 << 40

_T = TypeVar("_T")
_R = TypeVar("_R")


class ProcessEndedError(BaseException):
    """The simulated process ended in the middle of a file operation.

    Not an `Exception`, because code of an ended process must not catch it.
    """


class _SimRegion:
    """Satisfies `rocketpy.store.files.store_files.Region`."""

    def __init__(self, files: "SimFiles", path: Path, node: SimNode) -> None:
        self._files = files
        self._path = path
        self._node = node
        self._is_open = True
        self._has_descriptor = True
        self._process = files.process_number
        self.size_bytes: int = len(node.memory)
        self.buffer: bytearray = node.memory
        self.view: memoryview[int] = memoryview(node.memory)

    def allocate(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= self.size_bytes
        self._files.before("allocate", self._path)
        self._files.take_pages(self._node, start, end)

    def populate(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= self.size_bytes

    def read_ahead(self, start: int, end: int) -> None:
        assert 0 <= start <= end <= self.size_bytes

    warm = read_ahead

    def first_hole(self) -> int:
        return self.size_bytes

    def erase(self, start: int, end: int) -> bool:
        found = _has_data(self.view[start:end])
        if found:
            self._files.before("erase", self._path)
            self.buffer[start:end] = bytes(end - start)
        return found

    def flush(self) -> None:
        if self._is_open:
            self._files.flush_node(self._path, self._node)

    def rest(self) -> None:
        assert self._is_open
        self._give_descriptor()

    def close(self) -> None:
        self._is_open = False
        self._give_descriptor()

    def _give_descriptor(self) -> None:
        if self._has_descriptor:
            self._has_descriptor = False
            self._files.give_descriptor(self._process)


class _SimFile:
    """Satisfies `rocketpy.store.files.store_files.PlainFile`."""

    def __init__(self, files: "SimFiles", path: Path, node: SimNode) -> None:
        self._files = files
        self._path = path
        self._node = node
        self.size_bytes: int = len(node.memory)

    def read(self, position: int, size_bytes: int) -> bytes:
        return bytes(self._node.memory[position : position + size_bytes])

    read_once = read

    def write(self, position: int, data: bytes | memoryview) -> None:
        end = position + len(data)
        self._files.before("write", self._path)
        self._files.take_pages(self._node, position, end)
        self._node.memory[position:end] = data
        self._note(position, end)

    def _note(self, start: int, end: int) -> None:
        if self._node.written is not None:
            self._node.written.update(range(start // PAGE_BYTES, -(-end // PAGE_BYTES)))

    def first_hole(self) -> int:
        return self.size_bytes

    def has_data(self, start: int, end: int) -> bool:
        return _has_data(self._node.memory[start:end])

    def erase(self, start: int, end: int) -> bool:
        found = _has_data(self._node.memory[start:end])
        if found:
            self._files.before("erase", self._path)
            self._node.memory[start:end] = bytes(end - start)
            self._note(start, end)
        return found

    def flush(self) -> None:
        self._files.flush_node(self._path, self._node, with_name=False)

    def close(self) -> None:
        self._files.open_files -= 1


class _SimLock:
    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def close(self) -> None:
        self._locked.discard(self._path)


_Namespace = dict[Path, SimNode | None]
"""Files have a node, directories None."""


class SimFiles:
    """The simulated file system.

    Attributes:
        capacity_bytes: space for allocated pages; None for no limit.
        descriptor_limit: limit of open mapped files; None for no limit. Beyond it, opening and
            creating raise ResourceShortError. A plain file, open briefly, gets one of the
            descriptors that a store reserves.
        open_count: number of open files.
        on_flush: called with the path before each flush; it may raise OSError.
        on_operation: called with the kind and the path (of a rename, the new one) before each
            operation that changes the disk, and before each opening of a file (`open`); it may
            raise errors of a disk.
        flush_count: number of successful flushes.
        open_files: plain files open now, for tests of leaks.
        operation_count: number of operations so far that changed the disk.
        process_number: number of the current process, from 1.
    """

    def __init__(self, clock: Clock | None = None, *, capacity_bytes: int | None = None) -> None:
        self._clock = clock or SimClock()
        self.capacity_bytes = capacity_bytes
        self.descriptor_limit: int | None = None
        self.open_count: int = 0
        self.on_flush: Callable[[Path], None] | None = None
        self.on_operation: Callable[[str, Path], None] | None = None
        self.flush_count: int = 0
        self.open_files: int = 0
        self.operation_count: int = 0
        self.process_number: int = 1
        self._operations_left: int | None = None
        self._end: Callable[[], None] = self.kill
        self._has_ended = False
        self._names: _Namespace = {}
        self._durable_names: _Namespace = {}
        self._changes: list[tuple[Callable[[_Namespace], object], SimNode | None]] = []
        self._locked: set[Path] = set()
        self._boots = 1

    # -- faults ----------------------------------------------------------------------------

    def power_cut(self, rng: random.Random) -> None:
        """Lose power: only the disk survives, torn at random."""
        self._boots += 1
        kept = self._changes[: rng.randint(0, len(self._changes))]
        for change, _ in kept:
            change(self._durable_names)
        unsized = kept[-1][1] if kept and rng.random() < 0.5 else None
        self._changes.clear()
        for node in self._durable_names.values():
            if node is not None:
                node.lose_power(rng, lost_length=node is unsized)
        self._names = dict(self._durable_names)
        self._lose_process()

    def kill(self) -> None:
        """Kill the process: memory and disk survive, locks are released, old regions end."""
        for node in self._names.values():
            if node is not None:
                node.memory = bytearray(node.memory)
        self._lose_process()

    def _lose_process(self) -> None:
        self._locked.clear()
        self.open_count = 0
        self.process_number += 1

    def end_process_after(self, operations: int, end: Callable[[], None]) -> None:
        """End the process before one of its next operations that change the disk.

        Args:
            operations: number that still succeed; the next one raises `ProcessEndedError`.
            end: effect on the files: `kill`, or `power_cut` with its generator.
        """
        self._operations_left, self._end = operations, end

    def start_process(self) -> None:
        """Let a new process use the files, after the last one ended."""
        self._operations_left = None
        self._has_ended = False

    def fail_flushes(self, path_part: str = "") -> None:
        """Let each flush of a path that contains the text fail with EIO from now on."""

        def fail(path: Path) -> None:
            if path_part in str(path):
                raise OSError(errno.EIO, "simulated disk failure")

        self.on_flush = fail

    def unallocated_writes(self) -> list[tuple[Path, int]]:
        """Return path and position of pages with content for which no space was allocated.

        On a real disk such a write could raise SIGBUS.
        """
        found = []
        for path, node in self._names.items():
            for page in range(0, 0 if node is None else len(node.memory), PAGE_BYTES):
                assert node is not None
                is_free = page // PAGE_BYTES not in node.pages
                if is_free and _has_data(node.memory[page : page + PAGE_BYTES]):
                    found.append((path, page))
        return found

    # -- StoreFiles ------------------------------------------------------------------------

    def create(self, path: Path, size_bytes: int) -> _SimRegion:
        """See `rocketpy.store.files.store_files.StoreFiles.create`."""
        if path in self._names:
            raise ResourceShortError(f"cannot create {path}: exists")
        self.make_directories(path.parent)
        self._take_descriptor(path)
        return _SimRegion(self, path, self._create(path, size_bytes))

    def _create(self, path: Path, size_bytes: int) -> SimNode:
        """Create a file, and then give it its length: a kill in between leaves it empty."""
        node = SimNode(bytearray(), self._clock.time_ms())
        self._change(path, lambda names: names.__setitem__(path, node), node)
        try:
            self.before("truncate", path)
        except (OSError, ResourceShortError):  # as the real one, leave no empty file behind
            self._names.pop(path)
            self._changes.pop()
            raise
        node.memory, node.disk = bytearray(size_bytes), bytearray(size_bytes)
        return node

    def open(self, path: Path) -> _SimRegion:
        """See `rocketpy.store.files.store_files.StoreFiles.open`."""
        self._opening(path)
        node = self._file(path)
        if not node.memory:
            raise StoreFormatError(f"{path} is empty")
        self._take_descriptor(path)
        node.written = None
        for page in range(0, len(node.memory), PAGE_BYTES):
            if _has_data(node.memory[page : page + PAGE_BYTES]):
                node.pages.add(page // PAGE_BYTES)
        return _SimRegion(self, path, node)

    def create_file(self, path: Path, size_bytes: int) -> _SimFile:
        """See `rocketpy.store.files.store_files.StoreFiles.create_file`."""
        self.make_directories(path.parent)
        node = self._create(path, size_bytes)
        node.written = set()  # large and rarely written, as the timer's wheel
        self.open_files += 1
        return _SimFile(self, path, node)

    def open_file(self, path: Path) -> _SimFile:
        """See `rocketpy.store.files.store_files.StoreFiles.open_file`."""
        self._opening(path)
        node = self._file(path)
        self.open_files += 1
        return _SimFile(self, path, node)

    def exists(self, path: Path) -> bool:
        """See `rocketpy.store.files.store_files.StoreFiles.exists`."""
        return path in self._names

    def size_bytes(self, path: Path) -> int:
        """See `rocketpy.store.files.store_files.StoreFiles.size_bytes`."""
        return len(self._file(path).memory)

    def list_files(self, directory: Path) -> list[str]:
        """See `rocketpy.store.files.store_files.StoreFiles.list_files`."""
        return sorted(path.name for path in self._inside(directory) if self._names[path])

    def list_directories(self, directory: Path) -> list[str]:
        """See `rocketpy.store.files.store_files.StoreFiles.list_directories`."""
        return sorted(path.name for path in self._inside(directory) if not self._names[path])

    def _inside(self, directory: Path) -> list[Path]:
        if self._names.get(directory) is not None:
            raise StoreFormatError(f"{directory} is not a directory")
        return [path for path in self._names if path.parent == directory]

    def make_directories(self, directory: Path) -> None:
        """See `rocketpy.store.files.store_files.StoreFiles.make_directories`."""
        for each in (*reversed(directory.parents), directory):
            if each not in self._names:
                self._change(each, lambda names, each=each: names.__setitem__(each, None))  # type: ignore[misc]

    def remove(self, path: Path) -> None:
        """See `rocketpy.store.files.store_files.StoreFiles.remove`."""
        if path in self._names:
            self._change(path, lambda names: names.pop(path, None))

    def remove_tree(self, directory: Path) -> None:
        """See `rocketpy.store.files.store_files.StoreFiles.remove_tree`."""
        inside = [path for path in self._names if path == directory or directory in path.parents]
        for path in sorted(inside, key=lambda each: -len(each.parts)):
            self.remove(path)

    def rename(self, source: Path, target: Path) -> None:
        """See `rocketpy.store.files.store_files.StoreFiles.rename`."""
        if self._names.get(source, source) is not None:
            self._file(source)  # raises if it does not exist

        def change(names: _Namespace) -> None:
            for path in [each for each in names if each == source or source in each.parents]:
                names[target / path.relative_to(source)] = names.pop(path)

        self._change(target, change)

    def read_bytes(self, path: Path) -> bytes:
        """See `rocketpy.store.files.store_files.StoreFiles.read_bytes`."""
        self._opening(path)
        return bytes(self._file(path).memory)

    def write_bytes(self, path: Path, data: bytes) -> None:
        """See `rocketpy.store.files.store_files.StoreFiles.write_bytes`."""
        self.make_directories(path.parent)
        node = SimNode(bytearray(data), self._clock.time_ms())
        self.take_pages(node, 0, len(data))
        self._change(path, lambda names: names.__setitem__(path, node), node)
        self.flush_node(path, node)

    def sync_directories(self) -> None:
        """See `rocketpy.store.files.store_files.StoreFiles.sync_directories`."""
        if self._changes:
            self.before("sync", Path())
        for change, _ in self._changes:
            change(self._durable_names)
        self._changes.clear()

    def touch_directory(self, directory: Path) -> None:
        """See `StoreFiles.touch_directory`; changes are always recorded."""

    def each(
        self, operation: Callable[[_T], _R], items: Sequence[_T], *, reads: bool = False
    ) -> list[_R]:
        """See `rocketpy.store.files.store_files.StoreFiles.each`; one after the other."""
        del reads
        return [operation(item) for item in items]

    def modified_ms(self, path: Path) -> int:
        """See `rocketpy.store.files.store_files.StoreFiles.modified_ms`."""
        return self._file(path).modified_ms

    def disk_usage(self, path: Path) -> DiskUsage:
        """See `rocketpy.store.files.store_files.StoreFiles.disk_usage`."""
        del path  # one disk holds everything
        total = _HUGE_BYTES if self.capacity_bytes is None else self.capacity_bytes
        return DiskUsage(total, min(self.used_bytes, total), max(0, total - self.used_bytes))

    def boot_id(self) -> str:
        """See `rocketpy.store.files.store_files.StoreFiles.boot_id`."""
        return f"boot-{self._boots}"

    def lock(self, path: Path) -> _SimLock:
        """See `rocketpy.store.files.store_files.StoreFiles.lock`."""
        if path in self._locked:
            raise StoreLockedError(f"another process uses the store: {path} is locked")
        self.make_directories(path.parent)
        if path not in self._names:
            node = SimNode(bytearray(b"lock"), self._clock.time_ms())
            node.pages.add(0)
            self._change(path, lambda names: names.__setitem__(path, node), node)
        self._locked.add(path)
        return _SimLock(self._locked, path)

    def lock_directory(self, path: Path) -> _SimLock:
        """See `rocketpy.store.files.store_files.StoreFiles.lock_directory`."""
        if path in self._locked:
            raise StoreLockedError(f"another store uses the commit log: {path} is locked")
        self.make_directories(path)
        self._locked.add(path)
        return _SimLock(self._locked, path)

    # -- for regions -----------------------------------------------------------------------

    @property
    def used_bytes(self) -> int:
        """Bytes of allocated pages."""
        return sum(len(node.pages) for node in self._names.values() if node) * PAGE_BYTES

    def take_pages(self, node: SimNode, start: int, end: int) -> None:
        """Allocate the pages of a range.

        Raises:
            DiskFullError: they do not fit; none was allocated.
        """
        wanted = set(range(start // PAGE_BYTES, -(-end // PAGE_BYTES))) - node.pages
        if self.capacity_bytes is not None:
            wanted_bytes = len(wanted) * PAGE_BYTES
            if wanted_bytes and self.used_bytes + wanted_bytes > self.capacity_bytes:
                raise DiskFullError("the simulated disk is full")
        node.pages |= wanted

    def flush_node(self, path: Path, node: SimNode, *, with_name: bool = True) -> None:
        """Flush a file to the disk, the first time with its name.

        Raises:
            OSError: raised by `on_flush`.
        """
        self.before("flush", path)
        if self.on_flush is not None:
            self.on_flush(path)
        is_new = not node.length_synced
        node.sync()
        node.modified_ms = self._clock.time_ms()
        self.flush_count += 1
        if is_new and with_name:
            self.sync_directories()

    def before(self, operation: str, path: Path) -> None:
        """Count an operation that changes the disk, and end the process at its limit.

        Raises:
            ProcessEndedError: the process ends here, or ended before.
        """
        if not self._has_ended:
            self.operation_count += 1
            if self._operations_left is None or self._operations_left > 0:
                if self._operations_left is not None:
                    self._operations_left -= 1
                if self.on_operation is not None:
                    self.on_operation(operation, path)
                return
            self._has_ended = True
            self._end()
        raise ProcessEndedError(f"before {operation} {path}")

    def _opening(self, path: Path) -> None:
        if self.on_operation is not None and not self._has_ended:
            self.on_operation("open", path)

    def _take_descriptor(self, path: Path) -> None:
        if self.descriptor_limit is not None and self.open_count >= self.descriptor_limit:
            raise ResourceShortError(f"cannot open {path}: simulated: too many open files")
        self.open_count += 1

    def give_descriptor(self, process_number: int) -> None:
        """Release the descriptor of a closed region, unless its process is dead."""
        if process_number == self.process_number:
            self.open_count -= 1

    def _change(
        self,
        path: Path,
        change: Callable[[_Namespace], object],
        created: SimNode | None = None,
    ) -> None:
        self.before("change", path)
        change(self._names)
        self._changes.append((change, created))

    def _file(self, path: Path) -> SimNode:
        node = self._names.get(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return node


def _has_data(content: bytes | bytearray | memoryview) -> bool:
    return bytes(content) != bytes(len(content))
