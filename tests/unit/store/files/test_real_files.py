"""Real files keep the three rules of the seam: allocate first, flush means durable, views stay."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rocketpy.errors import ResourceShortError, StoreError, StoreFormatError, StoreLockedError
from rocketpy.store.files.real_files import RealFiles


def test_new_file_has_its_full_length_and_can_be_read_again(tmp_path: Path) -> None:
    files = RealFiles()
    path = tmp_path / "a" / "b" / "file"
    region = files.create(path, 10_000)
    region.allocate(0, 4096)
    region.buffer[10:13] = b"abc"
    region.flush()
    region.close()
    assert path.stat().st_size == 10_000
    again = files.open(path)
    assert bytes(again.view[9:14]) == b"\0abc\0"
    assert again.erase(0, 10_000)
    assert not again.erase(0, 10_000)
    again.close()
    with pytest.raises(ResourceShortError, match="File exists"):
        files.create(path, 10)


def test_view_outlives_its_region(tmp_path: Path) -> None:
    files = RealFiles()
    region = files.create(tmp_path / "file", 4096)
    region.buffer[:3] = b"abc"
    view = region.view[:3]
    region.close()
    files.remove(tmp_path / "file")
    assert bytes(view) == b"abc"


def test_empty_file_is_not_mapped(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(StoreFormatError, match="empty"):
        RealFiles().open(tmp_path / "empty")


def test_listing_renaming_and_removing(tmp_path: Path) -> None:
    files = RealFiles()
    assert files.list_files(tmp_path / "none") == files.list_directories(tmp_path / "none") == []
    files.write_bytes(tmp_path / "d" / "two", b"2")
    files.write_bytes(tmp_path / "d" / "one", b"1")
    assert files.list_files(tmp_path / "d") == ["one", "two"]
    assert files.list_directories(tmp_path) == ["d"]
    files.rename(tmp_path / "d" / "one", tmp_path / "d" / "two")
    assert files.read_bytes(tmp_path / "d" / "two") == b"1"
    assert files.size_bytes(tmp_path / "d" / "two") == 1
    files.remove_tree(tmp_path / "d")
    files.sync_directories()
    assert not files.exists(tmp_path / "d")
    assert 0.0 <= files.disk_usage(tmp_path).used_ratio <= 1.0
    assert files.boot_id() == files.boot_id()


def test_another_process_cannot_take_the_lock(tmp_path: Path) -> None:
    lock = RealFiles().lock(tmp_path / "lock")
    program = (
        "import fcntl, sys\n"
        f"file = open({str(tmp_path / 'lock')!r}, 'r+b')\n"
        "try:\n    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
        "except OSError:\n    sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7
    with pytest.raises(StoreLockedError, match="this process"):
        RealFiles().lock(tmp_path / "lock")
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7
    lock.close()
    assert (tmp_path / "lock").read_bytes() == b"lock"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_lock_that_cannot_be_opened_names_the_reason(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    for _ in range(2):
        with pytest.raises(StoreError, match=r"lock cannot be opened.*Is a") as caught:
            RealFiles().lock(tmp_path / "lock")
        assert not isinstance(caught.value, StoreLockedError)


def test_lock_of_another_process_is_an_error(tmp_path: Path) -> None:
    program = (
        "import fcntl, sys\n"
        f"file = open({str(tmp_path / 'lock')!r}, 'w+b')\n"
        "fcntl.lockf(file, fcntl.LOCK_EX, 1, 0)\nprint('held', flush=True)\nsys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(StoreLockedError, match="another process"):
            RealFiles().lock(tmp_path / "lock")
        holder.communicate(b"")


def test_directory_lock_excludes_others_and_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log"
    lock = RealFiles().lock_directory(path)
    program = (
        "import fcntl, os, sys\n"
        f"fd = os.open({str(path)!r}, os.O_RDONLY)\n"
        "try:\n    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError:\n    sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 7
    with pytest.raises(StoreLockedError, match="another store uses the commit log"):
        RealFiles().lock_directory(path)
    assert list(path.iterdir()) == []
    child = os.dup(lock._fd)  # type: ignore[attr-defined] # as a forked process has it
    lock.close()
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
    os.close(child)
    RealFiles().lock_directory(path).close()


def test_directory_lock_without_support_of_the_file_system_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(fcntl, "flock", refuse)
    for _ in range(2):
        RealFiles().lock_directory(tmp_path)
    RealFiles().lock_directory(tmp_path).close()


def test_file_in_the_place_of_a_directory_is_an_error_not_an_empty_directory(
    tmp_path: Path,
) -> None:
    files = RealFiles()
    assert files.list_files(tmp_path / "none") == []
    (tmp_path / "commitlog").write_text("in the way")
    for look in (files.list_files, files.list_directories):
        with pytest.raises(StoreFormatError, match="commitlog is not a directory"):
            look(tmp_path / "commitlog")


def test_entry_made_while_a_directory_is_synced_belongs_to_the_next_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RealFiles()
    directory = tmp_path / "d"
    real_fsync, synced = os.fsync, []

    def fsync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path == directory and directory not in synced:
            synced.append(path)
            real_fsync(fd)
            files.create_file(directory / "late", 10).close()
            return
        synced.append(path)
        real_fsync(fd)

    files.create_file(directory / "first", 10).close()
    monkeypatch.setattr(os, "fsync", fsync)
    files.sync_directories()
    assert synced.count(directory) == 1
    files.sync_directories()
    assert synced.count(directory) == 2
    files.sync_directories()
    assert synced.count(directory) == 2


def test_directory_that_could_not_be_synced_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = RealFiles()
    files.create_file(tmp_path / "file", 10).close()
    calls = []

    def fsync(fd: int) -> None:
        calls.append(fd)
        if len(calls) == 1:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output"):
        files.sync_directories()
    files.sync_directories()
    assert len(calls) == 2


def test_file_open_for_a_moment_reads_writes_and_erases(tmp_path: Path) -> None:
    files = RealFiles()
    file = files.create_file(tmp_path / "d" / "file", 1 << 20)
    file.write(8190, b"abcd")
    assert file.read(8189, 6) == b"\0abcd\0"
    assert file.read((1 << 20) - 2, 10) == b"\0\0"
    assert file.erase(8192, 1 << 20)
    assert not file.erase(8192, 1 << 20)
    assert file.read(8190, 4) == b"ab\0\0"
    file.flush()
    file.close()
    file.close()
    again = files.open_file(tmp_path / "d" / "file")
    assert again.size_bytes == 1 << 20
    again.close()
    files.create_file(tmp_path / "d" / "file", 16).close()
    assert files.read_bytes(tmp_path / "d" / "file") == bytes(16)
    with pytest.raises(FileNotFoundError):
        files.open_file(tmp_path / "none")


def test_mapped_file_that_rests_holds_one_descriptor_fewer(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def open_count() -> int:
        links = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
        return links.count(str(path))

    region = RealFiles().create(path, 8192)
    active = open_count()
    region.rest()
    assert open_count() == active - 1 <= 1
    region.allocate(0, 4096)
    region.buffer[:1] = b"x"
    region.flush()
    assert region.first_hole() == 4096
    region.close()
    region.flush()
    del region
    assert open_count() == 0


@pytest.mark.parametrize(
    ("waits_at", "own"), [(None, 100), (0, 16), (40, 48)], ids=["memory", "disk", "disk later"]
)
def test_reads_of_many_files_are_made_by_others_only_once_the_disk_is_waited_for(
    waits_at: int | None, own: int
) -> None:
    waited_s = 0.0
    by_us: list[int] = []
    us = threading.get_ident()

    def read(number: int) -> int:
        nonlocal waited_s
        if threading.get_ident() == us:
            by_us.append(number)
            waited_s += 1.0 if number == waits_at else 0.0001
        return -number

    files = RealFiles(lambda: waited_s)
    assert files.each(read, range(100), reads=True) == [-number for number in range(100)]
    assert by_us == list(range(own))


def test_flushes_of_many_files_wait_together() -> None:
    threads = set(RealFiles(lambda: 0.0).each(lambda _: threading.get_ident(), range(100)))
    assert threading.get_ident() not in threads


def test_read_once_returns_the_bytes_and_keeps_what_others_use(tmp_path: Path) -> None:
    files = RealFiles()
    path = tmp_path / "file"
    content = os.urandom(1 << 20)
    files.write_bytes(path, content)
    file = files.open_file(path)
    assert file.read_once(100, 5_000) == content[100:5_100]
    assert file.read_once((1 << 20) - 10, 100) == content[-10:]
    assert file.read_once(1 << 20, 100) == b""
    if sys.platform == "linux":
        with open(path, "rb") as other:
            assert os.pread(other.fileno(), 1 << 20, 0) == content
            buffer = bytearray(1 << 20)
            assert file.read_once(0, 1 << 20) == content
            # Still in memory: it is read without a wait for the disk.
            assert os.preadv(other.fileno(), [buffer], 0, os.RWF_NOWAIT) == 1 << 20
    file.close()
