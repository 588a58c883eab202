"""Retention of what was cut off logs."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketpy.broker.failover import log_cut
from rocketpy.broker.failover.log_cut import MOST_CUTS, CutRetention, least_end
from rocketpy.proto.replication.epochs import Epoch
from rocketpy.store.config import MessageStoreConfig
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles

ROOT = Path("/store/cut")
HOUR_MS = 3_600_000


class Kit:
    """Store directory with cuts."""

    def __init__(self, reserved_hours: int = 2) -> None:
        self.files = SimFiles()
        self.clock = SimClock()
        config = MessageStoreConfig(store_path_root_dir="/store", file_reserved_time=reserved_hours)
        self.cuts = CutRetention(config, self.files, self.clock)

    def cut(self, number: int, size_bytes: int = 10) -> None:
        directory = ROOT / f"{number:020d}-{number + size_bytes:020d}" / "commitlog"
        self.files.make_directories(directory)
        self.files.write_bytes(directory / "0", bytes(size_bytes))

    @property
    def left(self) -> list[int]:
        return [int(name.partition("-")[0]) for name in self.files.list_directories(ROOT)]

    def after(self, hours: float) -> list[int]:
        """Check after a time, and return which cuts are left."""
        self.clock.advance(int(hours * HOUR_MS))
        self.cuts.check()
        return self.left


def test_cuts_are_removed_after_the_retention_time_and_logged() -> None:
    kit = Kit()
    kit.cut(1)
    assert kit.after(0) == [1]
    kit.cut(2)
    assert kit.after(1.5) == [1, 2]
    with capture_logs() as logs:
        assert kit.after(1) == [2]
    assert [each["event"] for each in logs] == ["cut-off messages removed"]
    assert kit.after(2) == []


def test_cuts_of_a_log_with_old_files_are_kept_from_when_they_were_seen() -> None:
    kit = Kit()
    kit.cut(1)
    kit.clock.advance(100 * HOUR_MS)
    assert kit.after(0) == [1]
    assert kit.after(3) == []


def test_cuts_above_the_most_leave_the_newest() -> None:
    kit = Kit()
    for number in range(MOST_CUTS + 3):
        kit.cut(number)
        kit.after(0.001)
    assert kit.left == [*range(3, MOST_CUTS + 3)]


def test_cuts_above_the_largest_size_leave_the_newest_of_any_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_cut, "MOST_CUT_BYTES", 200)
    kit = Kit()
    for number, size_bytes in enumerate([100, 90, 90, 1_000], start=1):
        kit.cut(number, size_bytes)
        kit.after(0.001)
    assert kit.left == [3, 4]


def test_cuts_are_due_once_an_hour() -> None:
    kit = Kit()
    assert kit.cuts.is_due
    kit.cuts.check()
    assert not kit.cuts.is_due
    kit.clock.advance(HOUR_MS)
    assert kit.cuts.is_due


def test_cuts_on_a_full_disk_stay() -> None:
    kit = Kit()
    kit.cut(1)
    kit.files.capacity_bytes = kit.files.used_bytes
    with capture_logs() as logs:
        assert kit.after(0) == [1]
    assert [each["event"] for each in logs] == ["cuts not checked"]


def test_least_end_of_a_log_is_in_the_newest_epoch_that_has_a_record() -> None:
    files = SimFiles()
    config = MessageStoreConfig(store_path_root_dir="/store")
    epochs = (Epoch(1, 0), Epoch(2, 90), Epoch(4, 150), Epoch(5, 210), Epoch(7, 400))
    assert least_end(config, files, epochs) == 0
    for base, written in ((100, 100), (200, 5)):
        content = (b"x" * written).ljust(100, b"\0")
        files.write_bytes(Path(f"/store/commitlog/{base:020d}"), content)
    assert least_end(config, files, epochs) == 151
    assert least_end(config, files, epochs[:2]) == 91, "retention has removed the bytes"
    assert least_end(config, files, ()) == 0
