"""The checkpoint: up to which store time everything is known to be on disk.

4,096 bytes, big-endian, the rest zeros::

    0               8               16              24               32
    | commit log ms | queues ms     | index ms      | master flushed | confirmed offset |

A stamp is raised only after the flush it vouches for. Stamps that are too old cost a slower
start; stamps that are too new would cost messages.

Source: StoreCheckpoint (5.4.0).
"""

import logging
import struct
import threading
from pathlib import Path
from typing import Final

from rocketpy.store.files import StoreFiles

logger = logging.getLogger(__name__)

CHECKPOINT_BYTES: Final = 4096
MARGIN_MS: Final = 3_000
_LAYOUT: Final = struct.Struct(">qqqqq")


class Checkpoint:
    """The stamps in memory and their file. Safe to use from several threads.

    Attributes:
        physic_ms: store time up to which the commit log is on disk.
        logics_ms: the same for the consume queues.
        index_ms: the same for full index files.
        master_flushed_offset: kept as found.
        confirm_phy_offset: kept as found.
    """

    def __init__(self, path: Path, files: StoreFiles) -> None:
        self._path = path
        self._files = files
        self._mutex = threading.Lock()
        self._written = b""
        self.physic_ms = 0
        self.logics_ms = 0
        self.index_ms = 0
        self.master_flushed_offset = 0
        self.confirm_phy_offset = 0

    @property
    def min_ms(self) -> int:
        """Store time up to which commit log and queues are trusted, with a margin."""
        return max(0, min(self.physic_ms, self.logics_ms) - MARGIN_MS)

    def load(self) -> None:
        """Read the stamps; a file that is missing or cut vouches for nothing."""
        if not self._files.exists(self._path):
            return
        data = self._files.read_bytes(self._path)
        if len(data) != CHECKPOINT_BYTES:
            logger.warning("checkpoint has a wrong length and is not used: bytes=%d", len(data))
            return
        (
            self.physic_ms,
            self.logics_ms,
            self.index_ms,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        ) = _LAYOUT.unpack_from(data)
        self._written = data

    def distrust(self) -> None:
        """Forget what the file vouched for."""
        self.physic_ms = self.logics_ms = 0

    def flush(self) -> None:
        """Write the stamps to disk if they changed.

        Raises:
            DiskFullError: no space.
            OSError: the disk failed.
        """
        with self._mutex:
            stamps = _LAYOUT.pack(
                self.physic_ms,
                self.logics_ms,
                self.index_ms,
                self.master_flushed_offset,
                self.confirm_phy_offset,
            )
            data = stamps + bytes(CHECKPOINT_BYTES - len(stamps))
            if data == self._written:
                return
            region = (
                self._files.open(self._path)
                if self._usable()
                else self._files.create(self._path, CHECKPOINT_BYTES)
            )
            try:
                region.allocate(0, CHECKPOINT_BYTES)
                region.buffer[:CHECKPOINT_BYTES] = data
                region.flush()
            finally:
                region.close()
            self._written = data

    def _usable(self) -> bool:
        if not self._files.exists(self._path):
            return False
        if self._files.size_bytes(self._path) == CHECKPOINT_BYTES:
            return True
        self._files.remove(self._path)
        return False
