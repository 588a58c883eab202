"""Epoch list and broker id of a replica, on disk."""

from pathlib import Path

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.proto.replication.epochs import Epoch
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.replication.epoch_file import (
    BrokerIdentityFile,
    EpochFile,
    read_identity,
    write_identity,
)

EPOCHS = (Epoch(1, 0), Epoch(2, 1335))


def loaded(root: Path) -> EpochFile:
    found = EpochFile(root, RealFiles())
    found.load()
    return found


def test_epoch_list_is_kept_with_a_copy(tmp_path: Path) -> None:
    assert loaded(tmp_path).epochs == ()
    loaded(tmp_path).save(EPOCHS)
    assert (tmp_path / "epochFileCheckpoint").read_bytes() == b"2\n434726337\n1-0\n2-1335\n"
    assert loaded(tmp_path).epochs == EPOCHS


def test_damaged_epoch_list_is_read_from_its_copy(tmp_path: Path) -> None:
    loaded(tmp_path).save(EPOCHS)
    (tmp_path / "epochFileCheckpoint").write_bytes(b"2\n1\n1-0\n")
    assert loaded(tmp_path).epochs == EPOCHS


def test_epoch_list_whose_copy_is_damaged_too_is_refused(tmp_path: Path) -> None:
    loaded(tmp_path).save(EPOCHS)
    for name in ("epochFileCheckpoint", "epochFileCheckpoint.bak"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(StoreFormatError, match="epochFileCheckpoint"):
        loaded(tmp_path)


def test_identity_is_kept_as_apache_writes_it(tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert read_identity(root, RealFiles()) is None
    identity = BrokerIdentityFile("DefaultCluster", "a", 2)
    write_identity(root, RealFiles(), identity)
    assert (root / "brokerIdentity").read_text() == "DefaultCluster#a#2"
    assert read_identity(root, RealFiles()) == identity


@pytest.mark.parametrize("text", ["", "a#b", "a#b#x", "a#b#1#2"])
def test_damaged_identity_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "brokerIdentity").write_text(text)
    with pytest.raises(StoreFormatError, match="brokerIdentity"):
        read_identity(tmp_path, RealFiles())


def test_epoch_of_a_log_is_that_of_its_last_byte_although_its_list_has_newer_ones() -> None:
    found = EpochFile(Path("/store"), RealFiles())
    assert (found.newest, found.number_at(9)) == (0, 0)
    found.epochs = EPOCHS
    assert found.newest == 2
    numbers = {end: found.number_at(end) for end in (0, 1, 1334, 1335, 1336)}
    assert numbers == {0: 0, 1: 1, 1334: 1, 1335: 1, 1336: 2}
