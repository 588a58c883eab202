"""Cuts of a stopped slave's log, and the search for the place."""

import contextlib
import shutil
from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.message_store import MessageStore
from rocketpy.store.replication.resync import (
    cut,
    equal_end,
    finish_cut,
    local_log,
    record_positions,
)
from tests.unit.store.replication.real_kit import real_store, step
from tests.unit.store.store_kit import TOPIC, bodies, put_many


def search(slave: Path, master: MessageStore) -> int:
    """Answer the search from a master's store, as its broker does."""
    probe = equal_end(local_log(slave), master.min_phy_offset)
    try:
        phy_offset, _, record = next(probe)
        while True:
            found = master.look_message(phy_offset)
            is_equal = found is not None and bytes(found) == record
            phy_offset, _, record = probe.send(is_equal)
    except StopIteration as stop:
        end: int = stop.value
        return end


def diverged(tmp_path: Path, equal: int, master_only: int, slave_only: int) -> MessageStore:
    """Make a slave in `tmp_path / "slave"` that has messages its master does not have."""
    master = real_store(tmp_path / "master")
    put_many(master, equal)
    slave = real_store(tmp_path / "slave", broker_role="SLAVE")
    while (part := master.log_part(slave.write_end, 1 << 16)) is not None:
        slave.append_raw(slave.write_end, part)
    slave.adopt_log_identity(master.log_identity)
    slave.close()
    old = real_store(tmp_path / "slave")
    put_many(old, slave_only, start=5_000)
    old.close()
    put_many(master, master_only, start=9_000)
    return master


@pytest.mark.parametrize("equal", [0, 1, 50, 80, 200])
@pytest.mark.parametrize("slave_only", [0, 1, 90])
def test_resync_cuts_where_logs_begin_to_differ(
    tmp_path: Path, equal: int, slave_only: int
) -> None:
    master = diverged(tmp_path, equal, 60, slave_only)
    slave = tmp_path / "slave"
    log = local_log(slave)
    at = search(slave, master)
    cut_bytes = b"".join(Path(each.path).read_bytes() for each in log.files)[at : log.end]
    if at < log.end:
        kept = cut(log, at)
        if equal:
            assert (kept / f"{at:020d}").read_bytes() == cut_bytes
    else:
        assert not slave_only
    again = real_store(slave, broker_role="SLAVE")
    assert again.max_phy_offset == at
    assert len(bodies(again)) == equal
    assert master.first_difference(again.log_samples(64, 4_096)) is None
    while (part := master.log_part(again.write_end, 1 << 16)) is not None:
        again.append_raw(again.write_end, part)
    assert bodies(again) == bodies(master)
    for _ in range(9):
        step(again, "IndexCatchUpService")
    found = again.query_index(TOPIC, "k", 64, 0, 1 << 60)
    assert found.is_complete
    assert found.phy_offsets == master.query_index(TOPIC, "k", 64, 0, 1 << 60).phy_offsets
    again.close()
    master.close()


def test_resync_repeated_after_interruption_completes(tmp_path: Path) -> None:
    master = diverged(tmp_path, 100, 10, 150)
    slave = tmp_path / "slave"
    log = local_log(slave)
    at = search(slave, master)
    # As a crash leaves it that came after the last file was deleted.
    cut(log._replace(files=log.files[-1:]), log.files[-1].base)
    assert search(slave, master) == at
    cut(local_log(slave), at)
    again = real_store(slave, broker_role="SLAVE")
    assert (again.max_phy_offset, len(bodies(again))) == (at, 100)
    again.close()
    master.close()


def test_resync_at_offset_within_record_is_refused(tmp_path: Path) -> None:
    master = diverged(tmp_path, 10, 0, 0)
    log = local_log(tmp_path / "slave")
    with pytest.raises(StoreFormatError, match="not the start of a record"):
        cut(log, 7)
    with pytest.raises(StoreFormatError, match="outside the log"):
        cut(log, log.end + 1)
    assert local_log(tmp_path / "slave") == log
    assert not (tmp_path / "slave/cut").exists()
    master.close()


def test_resync_at_blank_cuts_the_later_files_and_the_blank(tmp_path: Path) -> None:
    """Another log may have ended at the same offset, and continue there with a shorter record."""
    master = diverged(tmp_path, 200, 0, 0)
    slave = tmp_path / "slave"
    log = local_log(slave)
    blank = log.files[0].base + record_positions(log.files[0], log.end)[-2]
    blank += _record_bytes(log.files[0].path, blank)
    assert blank < log.files[1].base
    cut(log, blank)
    again = real_store(slave, broker_role="SLAVE")
    count = len(bodies(again))
    assert (again.max_phy_offset, bodies(again)) == (blank, bodies(master)[:count])
    while (part := master.log_part(again.write_end, 1 << 16)) is not None:
        again.append_raw(again.write_end, part)
    assert bodies(again) == bodies(master)
    again.close()
    master.close()


def _record_bytes(path: str, position: int) -> int:
    return int.from_bytes(Path(path).read_bytes()[position : position + 4], "big")


def damage(slave: Path, position: int) -> None:
    """Flip a bit of the log of a closed store."""
    for each in local_log(slave).files:
        if each.base <= position < each.base + each.size_bytes:
            with Path(each.path).open("r+b") as opened:
                opened.seek(position - each.base)
                byte = opened.read(1)[0]
                opened.seek(position - each.base)
                opened.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("part", ["body", "size", "magic"])
@pytest.mark.parametrize("number", [0, 1, 40, 98, 99])
def test_resync_of_damaged_record_cuts_before_it(tmp_path: Path, number: int, part: str) -> None:
    master = diverged(tmp_path, 100, 10, 0)
    slave = tmp_path / "slave"
    starts = [
        each.base + position
        for each in local_log(slave).files
        for position in record_positions(each, local_log(slave).end)[:-1]
    ]
    assert len(starts) == 100
    before = local_log(slave)
    assert before.intact_end == before.end
    damage(slave, starts[number] + {"size": 1, "magic": 4, "body": 90}[part])
    log = local_log(slave)
    assert (log.end, log.intact_end) == (before.end, starts[number])
    at = search(slave, master)
    assert at == starts[number]
    cut(log, at)
    again = real_store(slave, broker_role="SLAVE")
    assert (again.max_phy_offset, len(bodies(again))) == (at, number)
    while (part_bytes := master.log_part(again.write_end, 1 << 16)) is not None:
        again.append_raw(again.write_end, part_bytes)
    assert bodies(again) == bodies(master)
    again.close()
    master.close()


def test_resync_of_slave_whose_range_the_master_deleted_empties_it(tmp_path: Path) -> None:
    master = diverged(tmp_path, 50, 300, 0)
    while master.min_phy_offset <= local_log(tmp_path / "slave").end:
        assert master._log.delete_oldest()
    slave = tmp_path / "slave"
    log = local_log(slave)
    assert search(slave, master) == log.begin == 0
    kept = cut(log, 0)
    assert (kept / "commitlog").is_dir()
    again = real_store(slave, broker_role="SLAVE")
    assert (again.max_phy_offset, again.log_identity) == (0, "")
    start = master.min_phy_offset
    part = master.log_part(start, 1 << 16)
    assert part is not None
    again.append_raw(start, part)
    assert bodies(again)
    again.close()
    master.close()


@pytest.mark.parametrize("step_count", range(7))
def test_cut_of_the_whole_log_that_ends_at_any_rename_is_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_count: int
) -> None:
    master = diverged(tmp_path, 0, 10, 150)
    slave = tmp_path / "slave"
    rename, left = RealFiles.rename, [step_count]

    def ending(files: RealFiles, path: Path, target: Path) -> None:
        if not left[0]:
            raise InterruptedError
        left[0] -= 1
        rename(files, path, target)

    with monkeypatch.context() as patch:
        patch.setattr(RealFiles, "rename", ending)
        with contextlib.suppress(InterruptedError):
            cut(local_log(slave), 0)
    finish_cut(slave)
    store = real_store(slave, broker_role="SLAVE")
    assert bool(store.max_phy_offset) == (step_count == 0)
    store.close()
    master.close()


def test_log_lost_after_a_complete_cut_does_not_count_as_an_interrupted_cut(
    tmp_path: Path,
) -> None:
    master = diverged(tmp_path, 0, 10, 150)
    slave = tmp_path / "slave"
    cut(local_log(slave), 0)
    store = real_store(slave, broker_role="SLAVE")
    part = master.log_part(0, 1 << 16)
    assert part is not None
    store.append_raw(0, part)
    store.close()
    master.close()
    assert finish_cut(slave) is None
    shutil.rmtree(slave / "commitlog")
    assert finish_cut(slave) is None
    with pytest.raises(StoreFormatError, match="no log file"):
        real_store(slave, broker_role="SLAVE")


@pytest.mark.parametrize("equal", [0, 100])
@pytest.mark.parametrize("step_count", range(8))
def test_resync_that_ends_at_any_step_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, equal: int, step_count: int
) -> None:
    master = diverged(tmp_path, equal, 10, 150)
    slave = tmp_path / "slave"
    log = local_log(slave)
    at = search(slave, master)
    sync, left = RealFiles.sync_directories, [step_count]

    def ending(files: RealFiles) -> None:
        if not left[0]:
            raise InterruptedError
        left[0] -= 1
        sync(files)

    with monkeypatch.context() as patch:
        patch.setattr(RealFiles, "sync_directories", ending)
        with contextlib.suppress(InterruptedError):
            cut(log, at)
    again = local_log(slave)
    if again.end > at or not equal:
        assert search(slave, master) == at
        cut(again, at)
    store = real_store(slave, broker_role="SLAVE")
    assert (store.max_phy_offset, len(bodies(store))) == (at, equal)
    while (part := master.log_part(store.write_end, 1 << 16)) is not None:
        store.append_raw(store.write_end, part)
    assert bodies(store) == bodies(master)
    store.close()
    master.close()
