"""The log of a directory, with what the directory knows of its end.

A record that nothing follows may be torn, which is no error, or damaged, which is. RocketPy's
checkpoint tells up to where the log is on disk. Apache's tells nothing; but a store that was closed
(without the file `abort`) has whole records only, as long as their size, or their parts, say.
"""

from pathlib import Path
from typing import cast

from rocketpy.store.checkpoint import Checkpoint
from rocketpy.store.files import StoreFiles
from rocketpy.store.scan.directory import StoreDirectory
from rocketpy.store.scan.log import Log


def log_of(directory: StoreDirectory) -> Log:
    """Return the log of a directory as it is now.

    Raises:
        StoreFormatError: a file that is none of a log.
    """
    checkpoint = read_checkpoint(directory.root)
    is_closed = checkpoint is None and not (directory.root / "abort").exists()
    written_end = 0 if checkpoint is None else checkpoint.log_phy_offset
    return Log(directory.log_files(), written_end=written_end, is_closed=is_closed)


def read_checkpoint(root: Path) -> Checkpoint | None:
    """Return RocketPy's checkpoint; None when there is none, or Apache used the directory since."""
    for _ in range(3):  # it may be written at this moment
        checkpoint = Checkpoint(root / "checkpoint", cast("StoreFiles", _Reading()))
        checkpoint.load()
        if checkpoint.has_offsets:
            return checkpoint
    return None


class _Reading:
    """What a checkpoint needs of the file system to be read."""

    @staticmethod
    def exists(path: Path) -> bool:
        return path.exists()

    @staticmethod
    def read_bytes(path: Path) -> bytes:
        return path.read_bytes()
