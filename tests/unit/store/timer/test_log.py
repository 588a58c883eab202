"""The timer log: units, files, what a crash leaves."""

import struct
from pathlib import Path

import pytest

from rocketpy.store.timer.log import UNIT, TimerLog, TimerUnit
from rocketpy.testing.sim_files import SimFiles

DIRECTORY = Path("/store/timerlog")
FILE_BYTES = 16 + 5 * 52 + 30
BLANK_MAGIC = -875286124


def unit(number: int, **changes: int) -> TimerUnit:
    return TimerUnit(-1, 1, 1_000 * number, 2_000, 100 * number, 10, number)._replace(**changes)


def opened(files: SimFiles) -> TimerLog:
    log = TimerLog(DIRECTORY, FILE_BYTES, files)
    log.load()
    return log


def filled(files: SimFiles, count: int) -> tuple[TimerLog, list[int]]:
    log = opened(files)
    positions = [log.append(unit(number)) for number in range(count)]
    log.write()
    return log, positions


def test_units_have_apaches_layout() -> None:
    files = SimFiles()
    log, positions = filled(files, 2)
    assert positions == [0, 52]
    data = files.read_bytes(DIRECTORY / f"{0:020d}")
    assert len(data) == FILE_BYTES
    assert UNIT.unpack_from(data, 52) == (52, -1, 1, 1_000, 2_000, 100, 10, 1, 0)
    assert log.unit(52) == unit(1)
    assert unit(1).due_ms == 3_000


def test_full_file_ends_with_a_blank_and_another_begins() -> None:
    files = SimFiles()
    log, positions = filled(files, 12)
    assert positions[4:6] == [208, FILE_BYTES]
    data = files.read_bytes(DIRECTORY / f"{0:020d}")
    assert struct.unpack_from(">iqi", data, 260) == (FILE_BYTES - 260, 0, BLANK_MAGIC)
    assert [log.unit(position) for position in positions] == [unit(n) for n in range(12)]
    assert [found for _, found in opened(files).scan(0)] == [unit(n) for n in range(12)]
    assert log.unit(1) is None
    assert log.unit(log.end) is None
    assert log.unit(-1) is None


def test_units_of_all_blocks_are_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketpy.store.timer.log._BLOCK_BYTES", 104)
    monkeypatch.setattr("rocketpy.store.timer.log._MOST_BLOCKS", 2)
    log, positions = filled(SimFiles(), 40)
    for order in (positions, positions[::-1]):
        for position in order:
            found = log.unit(position)
            assert found is not None
            assert positions[found.topic_hash] == position


def test_unwritten_units_are_readable() -> None:
    log = opened(SimFiles())
    position = log.append(unit(7))
    assert log.unit(position) == unit(7)


def test_log_continues_after_restart() -> None:
    files = SimFiles()
    log, _ = filled(files, 7)
    end = log.end
    log.close()
    log = opened(files)
    units = list(log.scan(0))
    log.cut(units[-1][0] + 52)
    assert log.end == end
    assert log.append(unit(8)) == end
    log.write()
    assert [found.topic_hash for _, found in opened(files).scan(0)] == [*range(7), 8]


def test_truncated_units_stay_deleted() -> None:
    files = SimFiles()
    log, positions = filled(files, 12)
    log.cut(positions[3])
    assert files.list_files(DIRECTORY) == [f"{0:020d}"]
    assert [position for position, _ in opened(files).scan(0)] == positions[:3]


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 52, bytes(52), UNIT.pack(52, 0, 99, 0, 0, 0, 1, 0, 0)]
)
def test_scan_ends_where_no_unit_is(garbage: bytes) -> None:
    files = SimFiles()
    filled(files, 3)
    file = files.open_file(DIRECTORY / f"{0:020d}")
    file.write(104, garbage)
    assert len(list(opened(files).scan(0))) == 2


def test_empty_files_are_dropped() -> None:
    files = SimFiles()
    files.write_bytes(DIRECTORY / f"{0:020d}", b"")
    assert opened(files).end == 0


@pytest.mark.parametrize("names", [[0], [0, FILE_BYTES], [0, 2 * FILE_BYTES]])
def test_damaged_files_are_moved_away_and_log_restarts(names: list[int]) -> None:
    files = SimFiles()
    for name in names:
        files.write_bytes(DIRECTORY / f"{name:020d}", b"x" * FILE_BYTES)
    if len(names) == 1 or names[1] == FILE_BYTES:
        files.write_bytes(DIRECTORY / f"{names[-1]:020d}", b"x" * 99)
    for _ in range(2):
        log = opened(files)
        assert (log.begin, log.end) == (0, 0)
    aside = DIRECTORY.with_name("timerlog.damaged")
    assert files.list_files(aside) == [f"{name:020d}" for name in names]
    assert files.list_files(DIRECTORY) == []


def test_files_of_deleted_messages_are_deleted() -> None:
    files = SimFiles()
    log, positions = filled(files, 17)
    assert log.remove_before(400) == 0
    assert log.remove_before(401) == 1
    assert log.begin == FILE_BYTES
    assert log.unit(positions[0]) is None
    assert log.remove_before(1 << 40) == 2, "the last one stays"
    assert log.unit(positions[-1]) is not None


def test_mark_changes_the_magic_only() -> None:
    files = SimFiles()
    log, positions = filled(files, 8)
    log.mark([positions[1], positions[7]], 5)
    found = [each for _, each in opened(files).scan(0)]
    assert found[1] == unit(1, magic=5)
    assert found[7] == unit(7, magic=5)
    assert found[2] == unit(2)
