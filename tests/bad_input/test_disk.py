"""A disk that is full or broken: an error response, never a crash; consumers are still served."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rocketpy.errors import DiskFullError
from rocketpy.store.files.real_files import RealFiles
from tests.bad_input.kit import EventLog, Wire, daemon, log_until, running
from tests.unit.store.descriptor_kit import no_descriptor_left

MEGABYTE = bytes(1 << 20)


class FaultyOs:
    """The `os` module as the store's files see it, with a disk that fills up or breaks."""

    def __init__(self) -> None:
        self.is_full = False
        self.is_broken = False

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def posix_fallocate(self, fd: int, start: int, length: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.posix_fallocate(fd, start, length)

    def ftruncate(self, fd: int, length: int) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        os.ftruncate(fd, length)

    def pwrite(self, fd: int, data: memoryview, position: int) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return os.pwrite(fd, data, position)

    def fsync(self, fd: int) -> None:
        self._fail_when_broken()
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        self._fail_when_broken()
        os.fdatasync(fd)

    def _fail_when_broken(self) -> None:
        if self.is_broken:
            raise OSError(errno.EIO, "Input/output error")


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyOs:
    faulty = FaultyOs()
    monkeypatch.setattr("rocketpy.store.files.real_files.os", faulty)
    monkeypatch.setattr("rocketpy.store.files.real_files.os", faulty)
    return faulty


def fill_until_refused(peer: Wire) -> str:
    """Send until the broker has no space left; return its words."""
    for _ in range(200):
        response = peer.send(MEGABYTE, "Bad")
        if response.code != 0:
            assert response.code == 14
            return response.remark or ""
    raise AssertionError("never full")


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_full_disk(tmp_path: Path, disk: FaultyOs, log: EventLog, flush: str) -> None:
    settings = {"flushDiskType": flush, "mappedFileSizeCommitLog": str(8 << 20)}
    with running(tmp_path / "data", settings) as world, world.peer() as peer:
        with world.staying_well():
            pass
        assert peer.send(MEGABYTE, "Bad").code == 0
        disk.is_full = True
        assert "no space is left on the disk" in fill_until_refused(peer)
        assert len(log.named("no space, messages rejected", str(tmp_path))) == 1
        assert peer.send(MEGABYTE, "Bad").code == 14, "and again"
        assert peer.bodies("Kept") == world.acknowledged, "consumers are served on"
        assert len(peer.bodies("Bad")) > 1
        disk.is_full = False
        with world.staying_well():  # sends succeed again
            assert peer.send(MEGABYTE, "Bad").code == 0
        held = peer.bodies("Bad")
        world.cluster.restart_broker()
        with world.peer() as again:
            assert again.bodies("Bad") == held
            assert again.bodies("Kept") == world.acknowledged


def test_full_disk_and_a_new_topic(tmp_path: Path, disk: FaultyOs) -> None:
    """The log has room, so the message is kept: its queue needs no file before there is space."""
    settings = {"flushIntervalConsumeQueue": "20", "flushConsumeQueueThoroughInterval": "0"}
    with running(tmp_path / "data", settings) as world, world.peer() as peer:
        with world.staying_well():
            pass
        disk.is_full = True
        assert peer.send(b"x", "Bad", e="3").code == 0
        assert peer.send(b"y", "Bad", e="3").code == 0
        assert peer.bodies("Kept") == world.acknowledged
        assert peer.bodies("Bad", 3) == [b"x", b"y"]
        disk.is_full = False
        with world.staying_well():
            pass
        world.cluster.restart_broker()
        with world.peer() as again:
            assert again.bodies("Bad", 3) == [b"x", b"y"]


def test_no_descriptor_left(tmp_path: Path) -> None:
    """Two hundred queues, and no descriptors left except for the store."""
    settings = {"flushIntervalConsumeQueue": "20", "flushConsumeQueueThoroughInterval": "0"}
    with running(tmp_path / "data", settings) as world, world.peer() as peer:
        with world.staying_well():
            pass
        held = len(list(Path("/proc/self/fd").iterdir()))
        with no_descriptor_left():
            for number in range(200):
                assert peer.send(b"x", f"Bad-{number}").code == 0
            assert peer.bodies("Kept") == world.acknowledged
            assert peer.bodies("Bad-7") == [b"x"]
        assert len(list(Path("/proc/self/fd").iterdir())) < held + 20
        with world.staying_well():
            pass
        world.cluster.restart_broker()
        with world.peer() as again:
            assert again.bodies("Bad-199") == [b"x"]


def test_full_disk_and_the_table_of_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not on disk accepts no message."""
    write_bytes = RealFiles.write_bytes
    is_full = True

    def write(files: RealFiles, path: Path, data: bytes) -> None:
        if is_full and path.name == "topics.json.tmp":
            raise DiskFullError(f"write {path}: No space left on device")
        write_bytes(files, path, data)

    def topics_on_disk() -> bytes:
        return next((tmp_path / "data").rglob("topics.json")).read_bytes()

    with running(tmp_path / "data") as world, world.peer() as peer:
        monkeypatch.setattr(RealFiles, "write_bytes", write)
        for _ in range(3):
            refused = peer.send(b"x", "Fresh")
            assert refused.code == 14
            assert "topics.json" in (refused.remark or "")
        assert b"Fresh" not in topics_on_disk()
        with world.staying_well():
            pass
        is_full = False
        assert peer.send(b"x", "Fresh").code == 0
        assert b"Fresh" in topics_on_disk()


def test_failed_flush(tmp_path: Path, disk: FaultyOs, log: EventLog) -> None:
    settings = {"flushDiskType": "SYNC_FLUSH", "syncFlushTimeout": "60000"}
    with running(tmp_path / "data", settings) as world, world.peer() as peer:
        with world.staying_well():
            pass
        disk.is_broken = True
        assert peer.send(b"lost?", "Bad").code == 14
        disk.is_broken = False
        for body in (b"1", b"2", b"3"):
            response = peer.send(body, "Bad")
            assert response.code == 14, "a flush that works later proves nothing"
            assert "flush" in (response.remark or "")
        assert len(log.named("store is read-only until it is restarted")) == 1
        assert peer.bodies("Kept") == world.acknowledged
        assert peer.bodies("Bad") == [], "what is not on disk is not seen"
        world.cluster.restart_broker()
        with world.staying_well():
            pass


MOUNT_BYTES = 24 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={MOUNT_BYTES}", "tmpfs", str(path)]
    if (
        sys.platform != "linux"
        or subprocess.run(mount, capture_output=True, check=False).returncode
    ):
        pytest.skip("may not mount a file system")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def test_full_file_system(small_disk: Path) -> None:
    """A process on a full file system neither crashes nor acknowledges lost messages."""
    arguments = ["broker"]
    settings = {"storePathRootDir": small_disk / "store", "listenPort": 0, "brokerName": "b",
                "brokerIP1": "127.0.0.1", "bindAddress": "127.0.0.1",
                "mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 60_000,
                "maxHashSlotNum": 1_000, "maxIndexNum": 5_000,
                "diskSpaceWarningLevelRatio": 100, "diskSpaceCleanForciblyRatio": 100,
                "cleanFileForciblyEnable": "false", "diskMaxUsedSpaceRatio": 100}  # fmt: skip
    for key, value in settings.items():
        arguments += ["-D", f"{key}={value}"]
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(4 << 20))
    with daemon(*arguments) as process:
        address = log_until(process, "ready")[-1]["broker"]
        acknowledged: list[bytes] = []
        with Wire(address) as peer:
            response = peer.send(b"0".zfill(50_000), "Bad")
            while response.code == 0:
                acknowledged.append(str(len(acknowledged)).encode().zfill(50_000))
                response = peer.send(str(len(acknowledged)).encode().zfill(50_000), "Bad")
            assert response.code == 14
            assert len(acknowledged) > 50
            assert peer.bodies("Bad") == acknowledged
            ballast.unlink()
            response = peer.send(b"again", "Bad")
            while response.code != 0:
                assert response.code == 14
                response = peer.send(b"again", "Bad")
            assert peer.bodies("Bad") == [*acknowledged, b"again"]
        process.terminate()
        _, rest = process.communicate(timeout=100)
        assert process.returncode == 0, rest
        assert "Traceback" not in rest
