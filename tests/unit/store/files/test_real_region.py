"""The machine's files, as a store holds them: holes stay holes, names come to disk, fds are few."""

import errno
import mmap
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketpy.errors import DiskFullError, ResourceShortError
from rocketpy.store.files.descriptor_reserve import process_reserve
from rocketpy.store.files.real_files import RealFile, RealRegion
from tests.unit.store.descriptor_kit import no_descriptor_left

MIB = 1 << 20


class Kit:
    def __init__(self, directory: Path, size_bytes: int) -> None:
        self.path = directory / "file"
        self.syncs = 0
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, size_bytes)
        self.region = RealRegion(self.path, fd, size_bytes, process_reserve(), self._sync)

    def _sync(self) -> None:
        self.syncs += 1

    @property
    def blocks_bytes(self) -> int:
        return self.path.stat().st_blocks * 512


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path, 4 * MIB)


def plain(path: Path, size_bytes: int) -> RealFile:
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, size_bytes)
    return RealFile(fd)


def calls_of(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Any, ...]]:
    """Record calls of a function of `os`, which still happen."""
    real: Callable[..., Any] = getattr(os, name)
    calls: list[tuple[Any, ...]] = []

    def noted(*args: Any) -> Any:
        calls.append(args)
        return real(*args)

    monkeypatch.setattr(os, name, noted)
    return calls


def test_mapped_file_takes_space_only_where_it_is_allocated(kit: Kit) -> None:
    assert kit.blocks_bytes == 0
    assert kit.region.first_hole() == 0
    kit.region.allocate(0, MIB)
    assert MIB <= kit.blocks_bytes < 2 * MIB
    assert not kit.region.erase(0, 4 * MIB)
    assert kit.blocks_bytes < 2 * MIB, "looking for bytes to erase fills no hole"
    kit.region.close()


def test_erasing_finds_data_behind_holes_and_across_pieces(kit: Kit) -> None:
    for position in (5, MIB + 7, 4 * MIB - 1):
        kit.region.buffer[position : position + 1] = b"x"
    assert kit.region.erase(6, 4 * MIB)
    assert kit.region.buffer[5:6] == b"x"
    assert kit.region.buffer[MIB + 7 : MIB + 8] == kit.region.buffer[4 * MIB - 1 :] == b"\0"
    kit.region.close()


def test_full_disk_is_an_error_before_a_byte_is_written(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DiskFullError):
        kit.region.allocate(0, MIB)
    kit.region.close()


def test_name_comes_to_disk_with_the_first_flush_only(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, data = calls_of(monkeypatch, "fsync"), calls_of(monkeypatch, "fdatasync")
    kit.region.flush()
    assert (kit.syncs, len(whole), len(data)) == (1, 1, 0)
    kit.region.flush()
    kit.region.flush()
    assert (kit.syncs, len(whole), len(data)) == (1, 1, 2)
    kit.region.close()
    kit.region.flush()
    assert (kit.syncs, len(whole), len(data)) == (1, 1, 2)


def test_first_flush_that_fails_is_the_first_again(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input/output"):
            kit.region.flush()
    assert kit.syncs == 0
    kit.region.flush()
    assert kit.syncs == 1
    kit.region.close()


def test_at_rest_no_descriptor_is_kept_and_none_is_left_open(kit: Kit) -> None:
    def open_count() -> int:
        links = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        return links.count(str(kit.path))

    active = open_count()
    kit.region.rest()
    kit.region.rest()
    rested = open_count()
    assert rested == active - 1
    kit.region.allocate(0, 4096)
    kit.region.buffer[:1] = b"x"
    kit.region.flush()
    kit.region.erase(1, MIB)
    assert kit.region.first_hole() > 0
    assert open_count() == rested
    kit.region.close()


def test_closed_region_keeps_no_descriptor(tmp_path: Path) -> None:
    one, other = Kit(tmp_path, 8192), Kit(tmp_path, 8192)

    def open_count() -> int:
        links = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        return links.count(str(one.path))

    before = open_count()
    one.region.close()
    assert open_count() == before - 1
    other.region.rest()
    other.region.close()
    assert open_count() == before - 2


def test_region_at_rest_says_when_there_is_no_descriptor(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.region.rest()

    class Empty:
        def open(self, *_: object) -> int:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(kit.region, "_reserve", Empty())
    with pytest.raises(ResourceShortError, match="open "):
        kit.region.flush()
    kit.region.close()


def test_file_is_mapped_and_flushed_when_the_process_has_no_descriptor_left(
    tmp_path: Path,
) -> None:
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 8192)
    with no_descriptor_left():
        region = RealRegion(tmp_path / "file", fd, 8192, process_reserve(), lambda: None)
        region.rest()
        region.buffer[:1] = b"x"
        region.flush()
    assert (tmp_path / "file").read_bytes()[:1] == b"x"
    region.close()


def test_bringing_bytes_into_memory_begins_at_a_page_and_changes_nothing(tmp_path: Path) -> None:
    kit = Kit(tmp_path, 16 * mmap.PAGESIZE)
    kit.region.allocate(0, 16 * mmap.PAGESIZE)
    kit.region.buffer[10:13] = b"abc"
    kit.region.populate(mmap.PAGESIZE + 5, 3 * mmap.PAGESIZE)
    assert bytes(kit.region.view[9:14]) == b"\0abc\0"
    kit.region.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing happens")
def test_memory_is_made_ready_by_reading_up_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size_bytes = 1 << 20
    kit = Kit(tmp_path, size_bytes)
    kit.region.allocate(0, size_bytes)
    kit.region.buffer[500_000:500_003] = b"abc"
    read: list[tuple[int, int]] = []
    preadv = os.preadv

    def watched(fd: int, buffers: list[memoryview], position: int) -> int:
        read.append((position, preadv(fd, buffers, position)))
        return read[-1][1]

    monkeypatch.setattr(os, "preadv", watched)
    kit.region.warm(200_000, size_bytes)
    assert read[0][0] == 200_000
    assert all(
        position + length == following for (position, length), (following, _) in pairwise(read)
    )
    assert sum(read[-1]) == size_bytes
    assert bytes(kit.region.view[499_999:500_004]) == b"\0abc\0"
    (tmp_path / "file").rename(tmp_path / "gone")
    kit.region.warm(0, 1)  # a file that cannot be opened is none the worse for it
    kit.region.close()


def test_unsupported_populate_is_tried_once(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []

    def madvise(advice: int, start: int, size_bytes: int) -> None:
        asked.append((advice, start, size_bytes))
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(kit.region, "buffer", SimpleNamespace(madvise=madvise))
    for _ in range(2):
        kit.region.populate(mmap.PAGESIZE + 5, 2 * mmap.PAGESIZE)
    assert asked == [(23, mmap.PAGESIZE, mmap.PAGESIZE)]


def test_write_is_finished_though_the_system_takes_it_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = plain(tmp_path / "file", 0)
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data[:3]), at))
    file.write(5, b"0123456789")
    assert file.read(0, 100) == bytes(5) + b"0123456789"
    file.close()


def test_write_for_which_there_is_no_space_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    file = plain(tmp_path / "file", 0)
    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DiskFullError):
        file.write(0, b"x")
    file.close()


def test_plain_file_looks_only_where_there_may_be_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = plain(tmp_path / "file", 64 * MIB)
    assert file.size_bytes == 64 * MIB
    file.write(40 * MIB, b"x")
    reads = calls_of(monkeypatch, "pread")
    assert file.has_data(0, 64 * MIB)
    assert sum(size for _, size, _ in reads) <= MIB
    reads.clear()
    assert not file.has_data(41 * MIB, 64 * MIB)
    assert sum(size for _, size, _ in reads) <= MIB
    file.close()


def test_data_in_several_pieces_is_all_erased(tmp_path: Path) -> None:
    file = plain(tmp_path / "file", 4 * MIB)
    file.write(0, b"y" * (3 * MIB))
    assert file.first_hole() >= 3 * MIB
    assert file.erase(10, 3 * MIB - 10)
    assert file.read(0, 11) == b"y" * 10 + b"\0"
    assert file.read(3 * MIB - 11, 12) == b"\0" + b"y" * 10 + b"\0"
    file.close()
    file.close()


def test_without_a_map_of_its_holes_a_file_counts_as_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems cannot say; then everything is read."""
    file = plain(tmp_path / "file", 3 * MIB)
    file.write(2 * MIB + 5, b"x")

    def refused(*_: int) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "lseek", refused)
    assert file.first_hole() == 3 * MIB
    assert file.has_data(0, 3 * MIB)
    assert not file.has_data(0, 2 * MIB + 5)
    assert file.erase(0, 3 * MIB)
    assert not file.has_data(0, 3 * MIB)
    file.close()


def test_flushing_a_plain_file_flushes_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = plain(tmp_path / "file", 10)
    data = calls_of(monkeypatch, "fdatasync")
    file.flush()
    assert len(data) == 1
    file.close()
