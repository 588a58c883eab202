"""Backups of stores that are in use, and their restoration."""

import json
import os
from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.store.replication import backup as backups
from rocketpy.store.replication.backup import back_up, check_backup, restore
from tests.unit.store.replication.real_kit import real_store, step
from tests.unit.store.store_kit import TOPIC, bodies, put_many


def test_backup_of_running_store_has_every_message(tmp_path: Path) -> None:
    store = real_store(tmp_path / "store")
    (tmp_path / "store/config/consumerOffset.json").write_text('{"offsetTable":{}}')
    sent = put_many(store, 200)
    step(store, "FlushConsumeQueueService")
    sent += put_many(store, 50, start=200)
    made = back_up(tmp_path / "store", tmp_path / "copy")
    assert (made.begin, made.end, made.records) == (0, store.max_phy_offset, 250)
    assert (made.damaged, made.identity) == ([], store.log_identity)
    put_many(store, 10, start=900)
    copy = real_store(tmp_path / "copy")
    assert bodies(copy) == sent
    assert copy.max_phy_offset == made.end
    assert copy.log_identity == store.log_identity
    assert len(copy.query_index(TOPIC, "k", 64, 0, 1 << 60).phy_offsets) == 64
    copy.close()
    store.close()


def test_backup_ends_with_last_complete_record(tmp_path: Path) -> None:
    store = real_store(tmp_path / "store")
    put_many(store, 20)
    end = store.max_phy_offset
    mapped = store._log.file
    assert mapped is not None
    # A record of which only the head is written, as by a thread that is appending.
    mapped.buffer[end : end + 40] = bytes(mapped.buffer[0:40])
    made = back_up(tmp_path / "store", tmp_path / "copy")
    assert (made.end, made.records, made.damaged) == (end, 20, [])
    assert not any((tmp_path / "copy/commitlog" / f"{0:020d}").read_bytes()[end:])
    store.close()


def test_backup_counts_damaged_record_and_keeps_those_behind(tmp_path: Path) -> None:
    store = real_store(tmp_path / "store")
    put_many(store, 20)
    mapped = store._log.file
    assert mapped is not None
    mapped.buffer[100] ^= 1
    made = back_up(tmp_path / "store", tmp_path / "copy")
    assert (made.end, made.records, made.damaged) == (store.max_phy_offset, 19, [0])
    assert restore(tmp_path / "copy", tmp_path / "again") == made
    store.close()


def test_backup_of_empty_store(tmp_path: Path) -> None:
    store = real_store(tmp_path / "store")
    made = back_up(tmp_path / "store", tmp_path / "copy")
    assert (made.begin, made.end, made.records) == (0, 0, 0)
    restore(tmp_path / "copy", tmp_path / "again")
    again = real_store(tmp_path / "again")
    put_many(again, 1)
    again.close()
    store.close()


def test_backup_leaves_out_files_that_retention_deletes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = real_store(tmp_path / "store")
    put_many(store, 300)
    second = 16384
    copy_file = backups._copy_file

    def deleted_meanwhile(source: Path, target: Path, progress: backups.Progress) -> None:
        if source.name == f"{second:020d}" and source.parent.name == "commitlog":
            store._log.delete_oldest()
            store._log.delete_oldest()
        copy_file(source, target, progress)

    monkeypatch.setattr(backups, "_copy_file", deleted_meanwhile)
    made = back_up(tmp_path / "store", tmp_path / "copy")
    assert (made.begin, made.end) == (2 * second, store.max_phy_offset)
    names = sorted(path.name for path in (tmp_path / "copy/commitlog").iterdir())
    assert names[0] == f"{2 * second:020d}"
    copy = real_store(tmp_path / "copy")
    assert bodies(copy) == bodies(store, start=copy.min_offset(TOPIC, 0))
    copy.close()
    store.close()


def test_backup_refuses_target_with_content_or_inside(tmp_path: Path) -> None:
    store = real_store(tmp_path / "store")
    put_many(store, 1)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    with pytest.raises(StoreFormatError, match="is not an empty directory"):
        back_up(tmp_path / "store", tmp_path / "full")
    with pytest.raises(StoreFormatError, match="is inside"):
        back_up(tmp_path / "store", tmp_path / "store/copy")
    with pytest.raises(StoreFormatError, match="was expected"):
        back_up(tmp_path / "nothing", tmp_path / "copy")
    store.close()


def test_restored_directory_is_served_by_slave_of_the_same_log(tmp_path: Path) -> None:
    master = real_store(tmp_path / "store")
    sent = put_many(master, 100)
    back_up(tmp_path / "store", tmp_path / "copy")
    sent += put_many(master, 30, start=500)
    restore(tmp_path / "copy", tmp_path / "slave")
    assert not (tmp_path / "slave/backup.json").exists()
    slave = real_store(tmp_path / "slave", broker_role="SLAVE")
    assert slave.log_identity == master.log_identity
    assert master.first_difference(slave.log_samples(64, 4_096)) is None
    while (part := master.log_part(slave.write_end, 4_096)) is not None:
        slave.append_raw(slave.write_end, part)
    assert bodies(slave) == sent
    slave.close()
    master.close()


def test_restore_refuses_interrupted_backup(tmp_path: Path) -> None:
    store = real_store(tmp_path / "store")
    put_many(store, 1)
    back_up(tmp_path / "store", tmp_path / "copy")
    (tmp_path / "copy/backup.json").unlink()
    with pytest.raises(StoreFormatError, match=r"no backup\.json"):
        restore(tmp_path / "copy", tmp_path / "again")
    assert not (tmp_path / "again").exists()
    store.close()


@pytest.mark.parametrize("what", ["record", "table", "lost-table", "short", "manifest"])
def test_restore_refuses_backup_that_was_damaged(tmp_path: Path, what: str) -> None:
    store = real_store(tmp_path / "store")
    (tmp_path / "store/config/topics.json").write_text("{}")
    put_many(store, 100)
    back_up(tmp_path / "store", tmp_path / "copy")
    store.close()
    table = tmp_path / "copy/config/topics.json"
    log = tmp_path / "copy/commitlog"
    if what == "record":
        with open(log / f"{0:020d}", "r+b") as file:
            file.seek(95)
            file.write(b"?")
    elif what == "table":
        table.write_text("{ }")
    elif what == "lost-table":
        table.unlink()
    elif what == "short":
        (log / max(os.listdir(log))).unlink()
    else:
        (tmp_path / "copy/backup.json").write_text("[]")
    with pytest.raises(StoreFormatError):
        check_backup(tmp_path / "copy")
    with pytest.raises(StoreFormatError):
        restore(tmp_path / "copy", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_restore_after_interrupted_one_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = real_store(tmp_path / "store")
    put_many(store, 5)
    back_up(tmp_path / "store", tmp_path / "copy")
    with monkeypatch.context() as patch:
        patch.setattr(backups, "_sync_tree", interrupted)
        with pytest.raises(InterruptedError):
            restore(tmp_path / "copy", tmp_path / "again")
    (tmp_path / "again.restoring/stale").touch()
    restore(tmp_path / "copy", tmp_path / "again")
    assert not (tmp_path / "again/stale").exists()
    assert not (tmp_path / "again.restoring").exists()
    assert not list((tmp_path / "again").glob(".*"))
    assert json.loads((tmp_path / "copy/backup.json").read_bytes())["records"] == 5
    store.close()


def interrupted(_path: Path) -> None:
    raise InterruptedError


def test_restore_beside_directory_of_another_program_is_refused(tmp_path: Path) -> None:
    store = real_store(tmp_path / "store")
    put_many(store, 5)
    back_up(tmp_path / "store", tmp_path / "copy")
    (tmp_path / "again.restoring").mkdir()
    (tmp_path / "again.restoring/precious").touch()
    with pytest.raises(StoreFormatError, match=r"again\.restoring exists and is not an empty"):
        restore(tmp_path / "copy", tmp_path / "again")
    assert (tmp_path / "again.restoring/precious").exists()
    assert not (tmp_path / "again").exists()
    store.close()


def test_backup_leaves_out_bytes_that_resync_cut_off(tmp_path: Path) -> None:
    store = real_store(tmp_path / "store")
    put_many(store, 5)
    (tmp_path / "store/cut").mkdir()
    (tmp_path / "store/cut/bytes").write_bytes(b"x")
    back_up(tmp_path / "store", tmp_path / "copy")
    assert not (tmp_path / "copy/cut").exists()
    store.close()


def test_backup_takes_log_from_separate_directory(tmp_path: Path) -> None:
    log = tmp_path / "fast-disk/log"
    store = real_store(tmp_path / "store", store_path_commit_log=str(log))
    sent = put_many(store, 30)
    made = back_up(tmp_path / "store", tmp_path / "copy", commit_log=str(log))
    assert made.records == 30
    copy = real_store(tmp_path / "copy")
    assert bodies(copy) == sent
    copy.close()
    with pytest.raises(StoreFormatError, match="is inside"):
        back_up(tmp_path / "store", log / "copy", commit_log=str(log))
    store.close()
