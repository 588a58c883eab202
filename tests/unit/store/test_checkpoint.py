import random
import struct
from pathlib import Path

import pytest

from rocketpy.errors import DiskFullError
from rocketpy.store.checkpoint import CHECKPOINT_BYTES, MARGIN_MS, UNKNOWN, Checkpoint
from rocketpy.testing.sim_files import SimFiles

PATH = Path("/store/checkpoint")


def stamped(files: SimFiles, *stamps: int) -> Checkpoint:
    checkpoint = Checkpoint(PATH, files)
    checkpoint.physic_ms, checkpoint.logics_ms, checkpoint.index_ms = stamps
    checkpoint.flush()
    return checkpoint


def loaded(files: SimFiles) -> Checkpoint:
    checkpoint = Checkpoint(PATH, files)
    checkpoint.load()
    return checkpoint


def files() -> SimFiles:
    made = SimFiles()
    made.make_directories(PATH.parent)
    return made


def test_file_is_apaches() -> None:
    disk = files()
    stamped(disk, 10_000, 20_000, 30_000)
    data = disk.read_bytes(PATH)
    assert len(data) == CHECKPOINT_BYTES
    assert struct.unpack_from(">5q", data) == (10_000, 20_000, 30_000, 0, 0)
    assert not any(data[40:])  # ours appear when they mean something


def test_stamps_come_back_with_a_margin() -> None:
    disk = files()
    stamped(disk, 10_000, 20_000, 30_000)
    again = loaded(disk)
    assert (again.physic_ms, again.logics_ms, again.index_ms) == (10_000, 20_000, 30_000)
    assert again.min_ms == 10_000 - MARGIN_MS
    again.distrust()
    assert again.min_ms == 0


def test_distrusted_checkpoint_covers_no_index_file() -> None:
    disk = files()
    checkpoint = stamped(disk, 10_000, 20_000, 30_000)
    checkpoint.has_offsets = True
    checkpoint.index_reached(500, 30_000)
    checkpoint.distrust()
    checkpoint.flush()
    again = loaded(disk)
    assert (again.index_ms, again.index_phy_offset) == (0, 0)


def test_truncated_checkpoint_covers_nothing(caplog: pytest.LogCaptureFixture) -> None:
    disk = files()
    assert loaded(disk).min_ms == 0
    disk.write_bytes(PATH, b"\0\0\0\1" * 5)
    assert loaded(disk).physic_ms == 0
    assert "wrong length" in caplog.text
    stamped(disk, 5_000, 5_000, 0)
    assert loaded(disk).physic_ms == 5_000


def test_flushed_content_survives_power_cut() -> None:
    disk = files()
    checkpoint = stamped(disk, 10_000, 10_000, 0)
    disk.sync_directories()
    checkpoint.physic_ms = 20_000
    disk.power_cut(random.Random(1))
    assert loaded(disk).physic_ms == 10_000


def test_fields_of_apache_are_preserved() -> None:
    disk = files()
    disk.write_bytes(PATH, struct.pack(">5q", 1, 2, 3, 4, 5).ljust(CHECKPOINT_BYTES, b"\0"))
    checkpoint = loaded(disk)
    checkpoint.physic_ms = 9
    checkpoint.flush()
    assert struct.unpack_from(">5q", disk.read_bytes(PATH)) == (9, 2, 3, 4, 5)


def test_count_of_entries_that_does_not_fit_is_unknown() -> None:
    disk = files()
    checkpoint = stamped(disk, 10_000, 20_000, 30_000)
    checkpoint.has_offsets = True
    checkpoint.queues_reached(5, 20_000, 1 << 63)
    checkpoint.flush()
    again = loaded(disk)
    assert (again.queues_phy_offset, again.entry_count) == (5, UNKNOWN)


def test_equal_stamps_are_not_written_again() -> None:
    disk = files()
    checkpoint = stamped(disk, 1, 1, 1)

    def refuse(_path: Path) -> None:
        raise DiskFullError("touched")

    disk.on_flush = refuse
    checkpoint.flush()
    checkpoint.logics_ms = 2
    with pytest.raises(DiskFullError):
        checkpoint.flush()


def test_checkpoint_of_killed_process_is_flushed_before_use() -> None:
    """A lowered checkpoint may be in memory only, while the one on disk covers more."""
    disk = files()
    checkpoint = stamped(disk, 10_000, 20_000, 30_000)
    disk.fail_flushes()
    checkpoint.logics_ms = 5_000
    with pytest.raises(OSError, match="simulated"):
        checkpoint.flush()
    disk.on_flush = None
    disk.kill()
    again = loaded(disk)
    assert again.logics_ms == 5_000
    again.lower(0, 0, 5_000)
    disk.power_cut(random.Random(1))
    assert loaded(disk).logics_ms == 5_000
