"""A slave's copy of the master's timer checkpoint, and the timer that starts from it."""

from pathlib import Path

import pytest
import structlog

from rocketpy.broker.timer.follower import FormerSlave, TimerFollower
from rocketpy.errors import DiskFullError
from rocketpy.store.timer.checkpoint import TimerCheckpoint, TimerMarks
from rocketpy.testing.sim_files import SimFiles
from tests.unit.broker.timer.timer_kit import Kit

ROOT = Path("/store")
MARKS = TimerMarks(5_000, 520, 12, 10, 0, 1, 2)


def test_timer_follower_writes_marks_without_a_log_and_removes_files_of_a_former_master() -> None:
    files = SimFiles()
    files.write_bytes(ROOT / "timerwheel", b"old")
    files.write_bytes(ROOT / "timerlog" / "0", b"old")
    follower = TimerFollower(ROOT, files)
    follower.load()
    follower.follow(MARKS)
    follower.step(0)
    assert not files.exists(ROOT / "timerwheel")
    assert not files.exists(ROOT / "timerlog" / "0")
    again = TimerFollower(ROOT, files)
    again.load()
    assert again.marks[:4] == (5_000, 1, 10, 10)


def test_timer_follower_marks_never_move_back() -> None:
    follower = TimerFollower(ROOT, SimFiles())
    follower.follow(MARKS)
    follower.follow(MARKS._replace(read_ms=4_000))
    follower.follow(MARKS._replace(queue_offset=9))
    follower.persist()
    assert follower.marks[:4] == (5_000, 1, 10, 10)


def test_timer_follower_failed_write_is_logged_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = SimFiles()
    follower = TimerFollower(ROOT, files)
    follower.follow(MARKS)

    def full(*_args: object) -> None:
        raise DiskFullError("no space")

    with monkeypatch.context() as patched, structlog.testing.capture_logs() as logs:
        patched.setattr(files, "write_bytes", full)
        follower.step(0)
    assert [each["event"] for each in logs] == ["timer checkpoint not written"]
    follower.step(3_000)
    assert follower.marks.read_ms == 5_000


def test_timer_of_a_slave_that_becomes_master_logs_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = Kit()
    kit.stop()
    follower = TimerFollower(ROOT, kit.files)
    follower.follow(MARKS)
    follower.persist()
    with caplog.at_level("INFO"):
        kit.start()
    assert kit.state.is_cut_short, "its queue must be read again"
    assert [each.message for each in caplog.records if each.levelname != "INFO"] == []
    assert "after the checkpoint of a former master" in caplog.text


def test_timer_of_a_slave_that_becomes_master_delivers_what_was_left_once() -> None:
    kit = Kit()
    kit.send(b"before", **kit.at(5_000))
    kit.send(b"after", **kit.at(60_000))
    kit.run(10_000)
    kit.stop()
    old_master = kit.state.marks
    assert old_master.queue_offset == 2
    kit.files.remove(ROOT / "config" / "timercheck")
    slave = TimerFollower(ROOT, kit.files)
    slave.load()
    slave.follow(old_master)
    slave.persist()
    kit.start()
    kit.run(100_000)
    assert kit.bodies() == [b"before", b"after"]


def test_timer_of_acting_slave_that_becomes_master_reads_its_queue_again() -> None:
    files = SimFiles()
    files.write_bytes(ROOT / "timerwheel", b"of the acting slave")
    TimerCheckpoint(ROOT / "config" / "timercheck", files).save(MARKS)
    former = FormerSlave(ROOT, files)
    former.load()
    assert files.exists(ROOT / "timerwheel"), "a master that never was a slave keeps its wheel"
    files.write_bytes(ROOT / "config" / "slaveCommits.json", b"{}")
    former.load()
    former.persist()
    assert not files.exists(ROOT / "timerwheel")
    marks = TimerCheckpoint(ROOT / "config" / "timercheck", files).load()
    assert marks[:4] == (5_000, 1, 10, 10)
