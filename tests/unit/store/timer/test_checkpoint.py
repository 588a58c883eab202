"""Timer checkpoint: its encoding, and files that are not plausible."""

from pathlib import Path

import pytest

from rocketpy.store.timer.checkpoint import CHECKPOINT_BYTES, TimerCheckpoint, TimerMarks
from rocketpy.testing.sim_files import SimFiles

FILE = Path("/store/config/timercheck")
MARKS = TimerMarks(1_000, 2, 3, 4, 5, 6, 7)


def test_checkpoint_saved_twice_has_the_last_marks_and_sums() -> None:
    files = SimFiles()
    checkpoint = TimerCheckpoint(FILE, files, sums_bytes=4)
    assert checkpoint.load() == TimerMarks()
    checkpoint.save(TimerMarks(1))
    checkpoint.save(MARKS, b"sums")
    assert files.size_bytes(FILE) == CHECKPOINT_BYTES
    again = TimerCheckpoint(FILE, files, sums_bytes=4)
    assert (again.load(), again.sums) == (MARKS, b"sums")


def test_checkpoint_with_sums_of_other_marks_has_none() -> None:
    files = SimFiles()
    checkpoint = TimerCheckpoint(FILE, files, sums_bytes=4)
    checkpoint.save(MARKS, b"sums")
    data = bytearray(files.read_bytes(FILE))
    data[7] ^= 1
    files.write_bytes(FILE, bytes(data))
    assert checkpoint.load().read_ms == MARKS.read_ms ^ 1
    assert checkpoint.sums == b""


@pytest.mark.parametrize("data", [b"", MARKS.encode()[:-1], TimerMarks(-1).encode()])
def test_checkpoint_that_is_not_plausible_is_ignored(data: bytes) -> None:
    files = SimFiles()
    files.write_bytes(FILE, data)
    assert TimerCheckpoint(FILE, files).load() == TimerMarks()
    assert TimerMarks.decode(data) is None
