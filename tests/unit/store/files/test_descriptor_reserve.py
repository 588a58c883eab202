"""A store opens its files also when every descriptor of the process is taken."""

import errno
import os
import resource
from pathlib import Path

import pytest

from rocketpy.errors import DiskFullError, ResourceShortError
from rocketpy.store.checkpoint import Checkpoint
from rocketpy.store.files.descriptor_reserve import (
    KEPT_COUNT,
    DescriptorReserve,
    shortage_cause,
    shortage_refused,
)
from rocketpy.store.files.real_files import RealFiles
from tests.unit.store.descriptor_kit import no_descriptor_left


def test_files_are_created_mapped_and_flushed_without_a_free_descriptor(tmp_path: Path) -> None:
    files = RealFiles()
    with no_descriptor_left():
        region = files.create(tmp_path / "log", 8192)
        region.allocate(0, 4096)
        region.buffer[:3] = b"abc"
        region.flush()
        region.rest()
        region.buffer[3:4] = b"d"
        region.flush()
        plain = files.create_file(tmp_path / "queue" / "file", 100)
        plain.write(0, b"xyz")
        plain.flush()
        plain.close()
        files.sync_directories()
        files.write_bytes(tmp_path / "abort", b"1")
        checkpoint = Checkpoint(tmp_path / "checkpoint", files)
        checkpoint.physic_ms = 5
        checkpoint.flush()
        assert files.read_bytes(tmp_path / "log")[:4] == b"abcd"
        assert files.list_files(tmp_path) == ["abort", "checkpoint", "log"]
        region.close()


def test_when_even_the_reserve_is_used_up_one_call_is_refused_and_later_ones_work(
    tmp_path: Path,
) -> None:
    files = RealFiles()
    with no_descriptor_left():
        held = [files.create_file(tmp_path / str(number), 10) for number in range(KEPT_COUNT)]
        with pytest.raises(ResourceShortError, match=r"cannot create .*no file desc.*ulimit"):
            files.create_file(tmp_path / "one more", 10)
        held.pop().close()
        files.write_bytes(tmp_path / "again", b"works")
        for each in held:
            each.close()
    assert files.read_bytes(tmp_path / "again") == b"works"


def test_reserve_is_whole_however_many_descriptors_others_hold(tmp_path: Path) -> None:
    files = RealFiles()
    others = [os.open(os.devnull, os.O_RDONLY) for _ in range(600)]
    with no_descriptor_left():
        held = [files.create_file(tmp_path / str(number), 10) for number in range(KEPT_COUNT)]
        for each in held:
            each.close()
    for fd in others:
        os.close(fd)


def test_released_descriptors_are_reserved_again() -> None:
    reserve = DescriptorReserve(2)
    calls = []

    def short_twice() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise OSError(errno.EMFILE, "Too many open files")
        return 7

    assert reserve.run(short_twice) == 7
    calls.clear()
    assert reserve.run(short_twice) == 7


def test_other_errors_pass_unchanged() -> None:
    with pytest.raises(FileNotFoundError):
        DescriptorReserve(1).open("/nowhere/at/all", os.O_RDONLY)
    with pytest.raises(OSError, match="Input/output"), shortage_refused("read"):
        raise OSError(errno.EIO, "Input/output error")
    with pytest.raises(DiskFullError, match="no space to write"), shortage_refused("write"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ResourceShortError), shortage_refused("map"):
        raise OSError(errno.ENOMEM, "Cannot allocate memory")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space is left on the disk"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENOMEM, "memory or mappings"),
    ],
)
def test_shortage_cause_names_the_resource_and_no_file(number: int, words: str) -> None:
    with pytest.raises(ResourceShortError) as caught, shortage_refused("create /data/log"):
        raise OSError(number, os.strerror(number), "/data/log")
    assert words in shortage_cause(caught.value)
    assert "/data" not in shortage_cause(caught.value)


def test_shortage_cause_distinguishes_inodes_from_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs(tmp_path)

    class Usage:
        f_files = real.f_files or 1
        f_favail = 0

    monkeypatch.setattr(os, "statvfs", lambda _path: Usage)
    with pytest.raises(DiskFullError, match="no inode is left") as caught, shortage_refused("open"):
        raise OSError(errno.ENOSPC, "no space", str(tmp_path / "log"))
    assert "no inode is left" in shortage_cause(caught.value)


def test_file_larger_than_the_process_may_write_is_a_shortage(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(ResourceShortError, match="ulimit -f"):
            RealFiles().create(tmp_path / "log", 8192)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not (tmp_path / "log").exists()
