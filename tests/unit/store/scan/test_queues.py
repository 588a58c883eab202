"""Consume queues as arrays: where they begin and end, and offsets by time."""

from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.log import Log
from rocketpy.store.scan.queue_table import queue_of
from rocketpy.store.scan.queues import Queue
from tests.unit.store.scan.kit import Written, written


def queue(root: Path, queue_id: int = 0) -> Queue:
    directory = StoreDirectory(root)
    return queue_of(directory, "T", queue_id, Log(directory.log_files()))


def test_entries_over_several_files(tmp_path: Path) -> None:
    written(tmp_path, 100)  # 20 entries a file

    found = queue(tmp_path)

    assert (found.begin, found.end) == (0, 50)
    assert len(found.entries(5, 50)) == 15
    assert len(found.entries(40, 50)) == 10
    assert found.entries(0, 20)["phy_offset"].tolist()[0] == 0


def test_offsets_by_time_find_the_first_message_not_before_it(tmp_path: Path) -> None:
    store = Written(tmp_path)
    start = store.clock.time_ms()
    store.fill("T", 60)  # a second each, every other one in queue 0
    store.close()

    found = queue(tmp_path)

    assert found.offset_by_time(0) == 0
    assert found.offset_by_time(start + 1_000) == 0
    assert found.offset_by_time(start + 1_001) == 1
    assert found.offset_by_time(start + 21_000) == 10
    assert found.offset_by_time(start + 1_000_000) == 30


def test_queue_that_begins_late(tmp_path: Path) -> None:
    written(tmp_path, 100)
    path = tmp_path / "consumequeue" / "T" / "0"
    (path / f"{0:020d}").unlink()
    blank = bytearray((path / f"{400:020d}").read_bytes())
    blank[:100] = bytes.fromhex("00000000000000007fffffff0000000000000000") * 5
    (path / f"{400:020d}").write_bytes(blank)
    for file in sorted((tmp_path / "commitlog").iterdir())[:1]:
        file.unlink()

    found = queue(tmp_path)

    assert found.begin >= 25
    assert found.end == 50


@pytest.mark.parametrize("damage", ["name", "length"])
def test_file_that_is_none_of_a_queue(damage: str, tmp_path: Path) -> None:
    written(tmp_path, 100)
    path = tmp_path / "consumequeue" / "T" / "0"
    if damage == "name":
        (path / "x").write_bytes(b"x")
    else:
        (path / f"{400:020d}").write_bytes(bytes(380))

    with pytest.raises(StoreFormatError, match=str(path)):
        queue(tmp_path)


def test_queue_without_files_is_empty(tmp_path: Path) -> None:
    written(tmp_path, 2)
    (tmp_path / "consumequeue" / "T" / "7").mkdir()

    found = queue(tmp_path, 7)

    assert (found.begin, found.end) == (0, 0)


def test_last_file_without_length_is_one_that_was_just_made(tmp_path: Path) -> None:
    written(tmp_path, 100)
    (tmp_path / "consumequeue" / "T" / "0" / f"{1200:020d}").touch()

    assert queue(tmp_path).end == 50
