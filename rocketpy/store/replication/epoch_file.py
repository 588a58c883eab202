"""Files of a replica in a group with a controller: epoch list, broker id, state of the controller.

The first two have Apache's names and contents, in the store directory; the third is ours.

Source: EpochFileCache, BrokerMetadata (5.4.0).
"""

import logging
from pathlib import Path
from typing import Final, NamedTuple

from rocketpy.errors import StoreFormatError
from rocketpy.proto.replication.epochs import Epochs, decode_epochs, encode_epochs, epoch_at
from rocketpy.store.files.store_files import StoreFiles

logger: logging.Logger = logging.getLogger(__name__)

EPOCH_FILE: Final = "epochFileCheckpoint"
IDENTITY_FILE: Final = "brokerIdentity"
STATE_FILE: Final = "controllerState"
_BACKUP: Final = ".bak"
_TEMPORARY: Final = "-temp"
_MOST_ID_BYTES: Final = 128


class EpochFile:
    """Epoch list of one store.

    Args:
        root: the store directory.
        files: the file system.

    Attributes:
        epochs: the list; empty before `load`, and for a log without epochs.
    """

    def __init__(self, root: Path, files: StoreFiles) -> None:
        self._path = root / EPOCH_FILE
        self._files = files
        self.epochs: Epochs = ()

    def load(self) -> None:
        """Read the file, or its copy when the file is damaged.

        Raises:
            StoreFormatError: both are damaged.
            OSError: the disk failed.
        """
        found = [path for path in self._paths if self._files.exists(path)]
        for path in found:
            try:
                self.epochs = decode_epochs(self._files.read_bytes(path))
            except StoreFormatError as error:
                if path is found[-1]:
                    raise StoreFormatError(f"{path}: {error}") from error
                logger.warning("epoch list damaged, copy used: path=%s error=%s", path, error)
            else:
                return

    def save(self, epochs: Epochs) -> None:
        """Replace the list on disk; unchanged lists are not written.

        Raises:
            DiskFullError: no space; the old list stays.
            OSError: the disk failed.
        """
        if epochs == self.epochs:
            return
        content = encode_epochs(epochs)
        for path in self._paths:
            _replace(self._files, path, content)
        self.epochs = epochs

    @property
    def newest(self) -> int:
        """Number of the newest epoch; 0 without one."""
        return self.epochs[-1].number if self.epochs else 0

    def number_at(self, end: int) -> int:
        """Return the number of the epoch of the last byte before an offset; 0 without one.

        A master's list arrives before its log, and a cut shortens the log before the list. So the
        newest entries may describe no byte of the log, which must win no election by them.
        """
        epoch = epoch_at(self.epochs, end - 1)
        return 0 if epoch is None else epoch.number

    @property
    def _paths(self) -> tuple[Path, Path]:
        return self._path, self._path.with_name(EPOCH_FILE + _BACKUP)


class BrokerIdentityFile(NamedTuple):
    """Content of `brokerIdentity`: which replica of which group a store directory belongs to."""

    cluster: str
    name: str
    broker_id: int


def read_identity(root: Path, files: StoreFiles) -> BrokerIdentityFile | None:
    """Return the identity of a store directory; None if it has none.

    Raises:
        StoreFormatError: the file is damaged.
    """
    path = root / IDENTITY_FILE
    if not files.exists(path):
        return None
    parts = files.read_bytes(path).decode("utf-8", "replace").strip().split("#")
    if len(parts) != len(BrokerIdentityFile._fields) or not parts[2].isdecimal():
        raise StoreFormatError(
            f"{path} is not cluster#brokerName#id: restore it, or remove it to get another id"
        )
    return BrokerIdentityFile(parts[0], parts[1], int(parts[2]))


def write_identity(root: Path, files: StoreFiles, identity: BrokerIdentityFile) -> None:
    """Write the identity of a store directory, durably.

    Raises:
        DiskFullError: no space.
        OSError: the disk failed.
    """
    files.make_directories(root)
    text = f"{identity.cluster}#{identity.name}#{identity.broker_id}"
    _replace(files, root / IDENTITY_FILE, text.encode())


def read_state_id(root: Path, files: StoreFiles) -> str:
    """Return the id of the controller's state that a replica belongs to; empty without one.

    Raises:
        StoreFormatError: the file is damaged.
    """
    path = root / STATE_FILE
    if not files.exists(path):
        return ""
    text = files.read_bytes(path)[:_MOST_ID_BYTES].decode("ascii", "replace").strip()
    if not (text.isascii() and text.isalnum()):
        raise StoreFormatError(
            f"{path} is not the id of a state: remove it to follow those of controllerAddr"
        )
    return text


def write_state_id(root: Path, files: StoreFiles, state_id: str) -> None:
    """Write the id of the controller's state that a replica belongs to, durably.

    Raises:
        DiskFullError: no space.
        OSError: the disk failed.
    """
    files.make_directories(root)
    _replace(files, root / STATE_FILE, state_id.encode())


def _replace(files: StoreFiles, path: Path, content: bytes) -> None:
    """Replace a file: its content is complete on disk before the rename, and durable after."""
    temporary = path.with_name(path.name + _TEMPORARY)
    files.write_bytes(temporary, content)
    files.rename(temporary, path)
    files.sync_directories()
