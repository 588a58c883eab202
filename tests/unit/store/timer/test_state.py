"""Wheel, log and checkpoint together: what a crash leaves is mended."""

import errno
import random
from pathlib import Path

import pytest

from rocketpy.errors import DiskFullError
from rocketpy.store.timer.checkpoint import TimerCheckpoint, TimerMarks
from rocketpy.store.timer.log import TimerUnit
from rocketpy.store.timer.state import TimerState
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles

ROOT = Path("/store")
NOW = 1_800_000_000_000
TICK = NOW // 1_000


class Kit:
    def __init__(self) -> None:
        self.files = SimFiles()
        self.read_ms, self.queue_offset = NOW, 0
        self.first_ms: int | None = None
        self.open()

    def open(self, max_phy_offset: int = 1 << 40) -> None:
        self.state = TimerState(
            ROOT, precision_ms=1_000, log_file_bytes=4096, files=self.files, clock=SimClock()
        )
        self.first_ms = self.state.load(max_phy_offset)

    def add(self, later_s: int, count: int = 1, **changes: int) -> None:
        for _ in range(count):
            unit = TimerUnit(-1, 1, NOW, later_s * 1_000, 100 * (self.queue_offset + 1), 10, 0)
            self.state.add(unit._replace(**changes), self.queue_offset)
            self.queue_offset += 1

    def flush(self) -> None:
        self.state.flush(lambda: (self.read_ms, self.queue_offset))

    def kill(self) -> None:
        self.state.write()
        self.files.kill()
        self.open()

    def chain(self, later_s: int) -> list[int]:
        """Physical offsets of a slot's messages, first one first."""
        _, slot = self.state.first_from(TICK + later_s, TICK + later_s)
        found: list[int] = []
        position = -1 if slot is None else slot.last
        while position >= 0:
            unit = self.state.unit(position)
            assert unit is not None
            found.insert(0, unit.phy_offset)
            position = unit.prev_position
        return found


def test_units_of_one_slot_are_a_chain() -> None:
    kit = Kit()
    kit.add(5)
    kit.add(6)
    kit.add(5, 2)
    assert kit.chain(5) == [100, 300, 400]
    assert kit.chain(6) == [200]
    assert kit.chain(7) == []
    assert kit.state.pending_count == 4
    kit.add(5, magic=5)
    assert kit.state.pending_count == 3


def test_kill_keeps_what_was_added_since_the_last_flush() -> None:
    kit = Kit()
    kit.add(5, 3)
    kit.flush()
    kit.add(5, 2)
    kit.add(9)
    kit.kill()
    assert kit.chain(5) == [100, 200, 300, 400, 500]
    assert kit.chain(9) == [600]
    assert kit.state.pending_count == 6
    assert kit.first_ms == NOW + 5_000
    assert kit.state.marks.queue_offset == 3
    assert kit.state.was_logged(400, 0)
    assert not kit.state.was_logged(400, 0), "asked once"
    assert not kit.state.was_logged(300, 0)


def test_log_behind_its_wheel_shortens_the_slots() -> None:
    kit = Kit()
    kit.add(5, 2)
    kit.flush()
    marks = kit.state.marks
    kit.add(5, 2)
    kit.add(9)
    kit.flush()
    file = kit.files.open_file(ROOT / "timerlog" / f"{0:020d}")
    file.write(2 * 52, bytes(3 * 52))
    TimerCheckpoint(ROOT / "config/timercheck", kit.files).save(marks)
    kit.kill()
    assert kit.chain(5) == [100, 200]
    assert kit.chain(9) == []
    assert not kit.state.is_cut_short


def test_units_of_messages_that_a_power_cut_took_are_cut_off() -> None:
    kit = Kit()
    kit.add(5, 2)
    kit.flush()
    kit.add(5, 2)
    kit.add(9)
    kit.state.write()
    kit.files.kill()
    kit.open(max_phy_offset=310)
    assert kit.chain(5) == [100, 200, 300]
    assert kit.chain(9) == []
    assert not kit.state.was_logged(400, 0)


def test_log_that_is_gone_says_so() -> None:
    kit = Kit()
    kit.add(5, 2)
    kit.flush()
    kit.files.remove(ROOT / "timerlog" / f"{0:020d}")
    kit.kill()
    assert kit.state.is_cut_short
    assert kit.chain(5) == []


def test_lost_wheel_is_made_again_from_the_log() -> None:
    kit = Kit()
    kit.add(5, 60)
    kit.add(7, 60)
    kit.flush()
    kit.files.remove(ROOT / "timerwheel")
    kit.kill()
    assert len(kit.chain(5)) == len(kit.chain(7)) == 60
    assert kit.state.pending_count == 120


def test_nothing_is_written_while_only_time_goes_by() -> None:
    kit = Kit()
    kit.add(5)
    kit.flush()
    before = kit.files.operation_count
    kit.read_ms += 1_000
    kit.flush()
    assert kit.files.operation_count == before
    kit.state.flush(lambda: (kit.read_ms, kit.queue_offset), is_last=True)
    assert kit.state.marks.read_ms == kit.read_ms
    assert kit.state.marks.counter == 2


def test_full_disk_is_tried_again() -> None:
    kit = Kit()
    kit.add(5)
    create = kit.files.create_file

    def full(path: Path, size_bytes: int) -> object:
        raise DiskFullError(str(path))

    kit.files.create_file = full  # type: ignore[method-assign,assignment]
    with pytest.raises(DiskFullError):
        kit.flush()
    assert kit.state.marks.log_position == 0
    kit.files.create_file = create  # type: ignore[method-assign]
    kit.flush()
    assert kit.state.marks.log_position == 52


def test_after_a_failed_flush_the_checkpoint_stays_where_it_was() -> None:
    kit = Kit()
    kit.add(5)
    kit.flush()
    kit.add(6)
    kit.files.fail_flushes("timerlog")
    with pytest.raises(OSError) as caught:  # noqa: PT011 - looked at below
        kit.flush()
    assert caught.value.errno == errno.EIO
    kit.files.on_flush = None
    kit.flush()
    assert kit.state.marks.queue_offset == 1


def test_delivered_units_are_skipped_by_next_reader() -> None:
    kit = Kit()
    kit.add(5, 3)
    kit.state.mark_delivered([52])
    unit = kit.state.unit(52)
    kit.kill()
    found = kit.state.unit(52)
    assert unit is not None
    assert found is not None
    assert (found.magic, found.is_recall) == (5, True)


def test_checkpoint_has_apaches_layout() -> None:
    files = SimFiles()
    checkpoint = TimerCheckpoint(ROOT / "config/timercheck", files)
    assert checkpoint.load() == TimerMarks()
    marks = TimerMarks(1, 2, 3, 4, 5, 6, 7)
    checkpoint.save(marks)
    data = files.read_bytes(ROOT / "config/timercheck")
    assert len(data) == 4096
    assert data[:56] == b"".join(number.to_bytes(8) for number in range(1, 8))
    assert checkpoint.load() == marks
    checkpoint.save(marks._replace(read_ms=9))
    assert checkpoint.load().read_ms == 9
    files.write_bytes(ROOT / "config/timercheck", b"short")
    assert checkpoint.load() == TimerMarks()
    checkpoint.save(marks._replace(read_ms=-1))
    assert checkpoint.load() == TimerMarks()


class Worst(random.Random):
    """A power cut that keeps all names, and no content that was not flushed."""

    def randint(self, a: int, b: int) -> int:
        return max(a, b)

    def random(self) -> float:
        return 0.99


@pytest.mark.parametrize("part", ["timerwheel", "timerlog"])
@pytest.mark.parametrize("count", [4, 200])
def test_units_of_killed_process_are_flushed_before_checkpoint_covers_them(
    part: str, count: int
) -> None:
    """It was in memory only; the next process finds it, has nothing to add, and moves on."""
    kit = Kit()
    kit.add(9)
    kit.flush()
    kit.add(5, count)
    kit.files.fail_flushes(part)
    with pytest.raises(OSError, match="simulated"):
        kit.flush()
    kit.files.on_flush = None
    kit.kill()
    assert len(kit.chain(5)) == count
    kit.flush()
    kit.files.power_cut(Worst())
    kit.open()
    assert len(kit.chain(5)) == count
    assert not kit.state.is_cut_short


@pytest.mark.parametrize("count", [1, 100])  # within a file, over several
def test_units_left_by_full_disk_are_flushed_next_time(count: int) -> None:
    kit = Kit()
    kit.add(9)
    kit.flush()
    kit.add(5, count)

    def full(path: Path) -> None:
        if "timerlog" in str(path):
            raise DiskFullError(str(path))

    kit.files.on_flush = full
    with pytest.raises(DiskFullError):
        kit.flush()
    kit.files.on_flush = None
    kit.flush()
    kit.files.power_cut(Worst())
    kit.open()
    assert len(kit.chain(5)) == count
    assert not kit.state.is_cut_short
