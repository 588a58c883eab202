"""Directories that Apache wrote with another kind of store."""

from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.store.recovery.foreign_store import check_kind
from tests.unit.store.store_kit import Kit, put_many

ROOT = Path("/store")


def tree(kit: Kit, directory: Path = ROOT) -> dict[Path, bytes]:
    found = {directory / name: kit.files.read_bytes(directory / name)
             for name in kit.files.list_files(directory)}  # fmt: skip
    for name in kit.files.list_directories(directory):
        found |= tree(kit, directory / name)
    return found


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("consumequeue/CURRENT", "RocksDB"),
        ("consumequeue_rocksdb/CURRENT", "RocksDB"),
        ("config/topics/000004.log", "RocksDB"),
        ("config/consumerOffsets/CURRENT", "RocksDB"),
        ("config/metadata/CURRENT", "RocksDB"),
        ("dledger-n0/data/00000000000000000000", "DLedger"),
        ("consumequeue_ext/T/0/00000000000000000000", "enableConsumeQueueExt"),
        ("compaction/compactionLog/T/0/00000000000000000000", "COMPACTION"),
        ("epochFileCheckpoint", "controller"),
        ("epochFileCheckpoint.bak", "controller"),
    ],
)
def test_directory_of_another_kind_is_refused_and_unchanged(path: str, word: str) -> None:
    kit = Kit()
    kit.files.make_directories((ROOT / path).parent)
    kit.files.write_bytes(ROOT / path, b"x")
    before = tree(kit)
    with pytest.raises(StoreFormatError, match=word):
        kit.open()
    assert tree(kit) == before


@pytest.mark.parametrize(
    "path",
    ["rocksdbstore/CURRENT", "config/topics.json", "dledger.txt", "compaction/position-checkpoint"],
)
def test_directory_with_what_every_apache_broker_makes_is_accepted(path: str) -> None:
    kit = Kit()
    kit.files.make_directories((ROOT / path).parent)
    kit.files.write_bytes(ROOT / path, b"x")
    check_kind(ROOT, kit.files)


def test_empty_epoch_file_and_missing_directory_are_accepted() -> None:
    kit = Kit()
    check_kind(ROOT, kit.files)
    put_many(kit.open(), 1)
    kit.files.write_bytes(ROOT / "epochFileCheckpoint", b"")
    check_kind(ROOT, kit.files)
