"""The timer wheel: slots, and a file that is nearly all holes."""

from pathlib import Path

from rocketpy.store.timer.wheel import SLOT, WHEEL_BYTES, Slot, TimerWheel
from rocketpy.testing.sim_files import SimFiles

PATH = Path("/store/timerwheel")
NOW = 1_800_000_000


def opened(files: SimFiles) -> TimerWheel:
    wheel = TimerWheel(PATH, 1_000, files)
    wheel.load()
    return wheel


def flush(wheel: TimerWheel) -> None:
    wheel.pending_pages().run()
    wheel.flushed(ok=True)


def test_slot_has_apaches_layout_and_place() -> None:
    files = SimFiles()
    wheel = opened(files)
    wheel.put(Slot(NOW, 52, 104, 2))
    assert not files.exists(PATH), "there is no file before the first flush"
    flush(wheel)
    data = files.read_bytes(PATH)
    assert len(data) == WHEEL_BYTES == 38_707_200
    assert SLOT.unpack_from(data, NOW % 1_209_600 * 32) == (NOW, 52, 104, 2, 0)
    assert data.count(0) > WHEEL_BYTES - 32


def test_slot_counts_for_its_own_moment_only() -> None:
    wheel = opened(SimFiles())
    wheel.put(Slot(NOW, 0, 0, 1))
    assert wheel.get(NOW) == Slot(NOW, 0, 0, 1)
    assert wheel.get(NOW + 1_209_600) is None
    wheel.clear(NOW + 1_209_600)
    assert wheel.get(NOW) is not None
    wheel.clear(NOW)
    assert wheel.get(NOW) is None


def test_slots_come_back_after_a_restart_and_are_all_found() -> None:
    files = SimFiles()
    wheel = opened(files)
    ticks = [NOW, NOW + 1, NOW + 127, NOW + 90_000, NOW + 700_000]
    for number, tick in enumerate(ticks):
        wheel.put(Slot(tick, number, number, 1))
    flush(wheel)
    wheel.put(Slot(NOW + 5, 9, 9, 1))
    again = opened(files)
    assert sorted(each.tick for each in again.slots()) == ticks
    assert sorted(each.tick for each in wheel.slots()) == sorted([*ticks, NOW + 5])
    assert again.get(NOW + 90_000) == Slot(NOW + 90_000, 3, 3, 1)


def test_next_slot_is_found_over_many_empty_ones() -> None:
    wheel = opened(SimFiles())
    wheel.put(Slot(NOW + 100_000, 1, 1, 1))
    assert wheel.first_from(NOW, NOW + 200_000) == (NOW + 100_000, Slot(NOW + 100_000, 1, 1, 1))
    assert wheel.first_from(NOW, NOW + 50_000) == (NOW + 50_000, None)
    assert wheel.first_from(NOW + 100_000, NOW + 100_000)[1] is not None


def test_pages_of_the_past_leave_memory_once_they_are_on_disk() -> None:
    files = SimFiles()
    wheel = opened(files)
    begin = NOW // 128 * 128
    wheel.put(Slot(begin, 1, 1, 1))
    wheel.forget_before(begin + 128)
    assert wheel.get(begin) is not None, "it is not on disk yet"
    flush(wheel)
    wheel.forget_before(begin + 128)
    assert not wheel._pages
    assert wheel.get(begin) is not None, "it is read again"


def test_pages_that_could_not_be_written_are_written_later() -> None:
    files = SimFiles()
    wheel = opened(files)
    wheel.put(Slot(NOW, 1, 1, 1))
    wheel.pending_pages()
    wheel.flushed(ok=False)
    flush(wheel)
    assert opened(files).get(NOW) is not None


def test_file_of_another_length_is_kept_aside_and_an_empty_one_dropped() -> None:
    files = SimFiles()
    files.write_bytes(PATH, b"x" * 100)
    assert opened(files).get(NOW) is None
    assert files.read_bytes(PATH.with_name("timerwheel.damaged")) == b"x" * 100
    files.write_bytes(PATH, b"")
    assert opened(files).get(NOW) is None
