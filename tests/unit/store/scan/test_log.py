"""The files of a log in memory: what lies where, and where it ends."""

import os
from pathlib import Path

import pytest

from rocketpy.proto.record.record_check import RecordState
from rocketpy.store.scan.directory import LogFile, StoreDirectory
from rocketpy.store.scan.log import Log, MappedLog
from tests.unit.store.scan.kit import LOG_FILE_BYTES, Written, overwrite


@pytest.fixture
def places(tmp_path: Path) -> list[int]:
    store = Written(tmp_path)
    found = [store.put("T", 0, bytes(500)) for _ in range(60)]
    store.close()
    return found


def opened(root: Path) -> Log:
    return Log(StoreDirectory(root).log_files())


def test_state_at_offset_by_kind_of_record(tmp_path: Path, places: list[int]) -> None:
    log = opened(tmp_path)

    assert log.state_at(places[0]) is log.state_at(places[59]) is RecordState.RECORD
    assert log.state_at(places[0] + 1) is RecordState.BROKEN
    assert log.state_at(log.end + 5) is RecordState.EMPTY
    assert log.file_number(-1) == log.file_number(log.end) == -1
    assert log.file_number(LOG_FILE_BYTES) == 1
    assert log.store_time_ms(places[1] + 1) is None
    times = [log.store_time_ms(place) for place in places]
    assert times == sorted(times, key=lambda each: each or 0)


def test_end_is_behind_the_last_whole_record(tmp_path: Path, places: list[int]) -> None:
    overwrite(tmp_path, places[30] + 4, bytes(4))
    log = opened(tmp_path)

    assert not log.is_behind_end(places[30])  # others follow
    assert log.next_record(places[30]) == places[31]
    assert not log.is_behind_end(places[59])
    assert log.is_behind_end(places[59] + 1)
    assert log.is_behind_end(log.end)
    assert not log.is_behind_end(0)


def test_deleted_file_is_skipped(tmp_path: Path, places: list[int]) -> None:
    log = opened(tmp_path)
    min((tmp_path / "commitlog").iterdir()).unlink()

    assert log.open(0) is None
    assert log.state_at(0) is RecordState.EMPTY
    found = log.next_record(0)
    assert found is not None
    assert found >= LOG_FILE_BYTES


def test_at_most_four_files_are_mapped(tmp_path: Path, places: list[int]) -> None:
    many = Written(tmp_path / "more" / "many")
    for _ in range(250):
        many.put("T", 0, bytes(500))
    many.close()
    log = opened(tmp_path / "more" / "many")
    assert len(log.files) > 6

    for number in range(len(log.files)):
        assert log.open(number) is not None

    assert len(log._open) == 4


def test_search_skips_holes(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    size = 1 << 34
    with path.open("wb") as file:
        file.write(b"needle")
        file.seek(size - 4096)
        file.write(b"needle")
        file.truncate(size)
    if os.stat(path).st_blocks * 512 > 1 << 20:
        pytest.skip("a file system without holes")
    mapped = MappedLog(LogFile(0, size, str(path)))

    assert mapped.find(b"needle", 0) == 0
    assert mapped.find(b"needle", 1) == size - 4096
    assert mapped.find(b"other", 0) == -1


def test_released_pages_can_be_read_again(tmp_path: Path, places: list[int]) -> None:
    log = opened(tmp_path)
    mapped = log.open(0)
    assert mapped is not None
    before = bytes(mapped.view)

    mapped.release_before(LOG_FILE_BYTES)
    mapped.release_before(10)

    assert bytes(mapped.view) == before
