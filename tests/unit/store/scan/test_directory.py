"""Layout of a store directory, read without changing it."""

from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.store.scan.directory import LogFile, StoreDirectory, size_of
from tests.unit.store.scan.kit import written


def test_files_queues_and_index_of_a_store(tmp_path: Path) -> None:
    directory = StoreDirectory(written(tmp_path, 100, queues=2))
    log = directory.log_files()

    assert [file.base for file in log] == [file.size_bytes * n for n, file in enumerate(log)]
    assert directory.queues() == {"T": [0, 1]}
    assert directory.batch_queues() == {}
    assert directory.index_files() == sorted((tmp_path / "index").iterdir())


def test_file_that_was_deleted_since_it_was_listed_has_no_bytes(tmp_path: Path) -> None:
    assert size_of(tmp_path / "gone") == 0


def test_empty_and_hidden_files_are_no_log(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    for name, text in ((f"{0:020d}", "x"), (f"{1:020d}", ""), (".hidden", "x")):
        (log / name).write_text(text)

    assert StoreDirectory(tmp_path).log_files() == [LogFile(0, 1, str(log / f"{0:020d}"))]


def test_files_that_overlap_are_refused(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    for base in (0, 5):
        (log / f"{base:020d}").write_bytes(bytes(10))

    with pytest.raises(StoreFormatError, match="overlaps the next file"):
        StoreDirectory(tmp_path).log_files()


def test_table_is_read_from_its_backup_when_it_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    config = tmp_path / "config"
    config.mkdir()
    (config / "topics.json").write_text("{")
    (config / "topics.json.bak").write_text('{"topicConfigTable":{"T":{}}}')

    assert StoreDirectory(tmp_path).known_topics() == {"T"}
    (config / "topics.json.bak").write_text("[]")
    assert StoreDirectory(tmp_path).known_topics() is None
