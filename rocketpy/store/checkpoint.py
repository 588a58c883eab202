"""Checkpoint: the offsets and store times up to which the store is on disk.

4,096 bytes, big-endian, unused bytes are zero. The first 40 are Apache's, the others ours::

    0               8               16              24               32
    | commit log ms | queues ms     | index ms      | master flushed | confirmed offset |
    64      72               96            104           112             120           128
    | magic | the 3 ms again | log offset  | queue offset | index offset | entry count | crc32 |
    192     200              208
    | magic | visible offset | crc32 |

Apache records store times, which are unreliable after the clock was set back. RocketPy adds
physical offsets: *before this offset* the log, the entries of all queues, and the full index files
are on disk. They are valid only with the store times they were written with: if Apache used the
directory later, its store times differ and only they count. The entry count is the sum of the
lengths of all queues, so that missing queue files are noticed at a start. The visible offset is
there only while messages wait for replicas: consumers could read the messages before it.

Invariants:
    - a time or offset is raised only after the flush that it covers;
    - before anything is erased, `lower` has flushed a checkpoint that does not cover it;
    - everything lies in one sector, so a power cut leaves the old checkpoint or the new one;
    - bytes read at a start may be in the page cache only, written by a killed process: the first
      `flush` writes them to disk even if nothing changed.

Covering too little costs a slower start; covering too much would cost messages.

Source: StoreCheckpoint (5.4.0).
"""

import logging
import struct
import threading
import zlib
from pathlib import Path
from typing import Final

from rocketpy.store.files.store_files import Region, StoreFiles

logger: logging.Logger = logging.getLogger(__name__)

CHECKPOINT_BYTES: Final = 4096
MARGIN_MS: Final = 3_000
_STAMPS: Final = struct.Struct(">qqqqq")
_OFFSETS: Final = struct.Struct(">8sqqqqqqq")
_OFFSETS_AT: Final = 64
_CRC: Final = struct.Struct(">I")
_MAGIC: Final = b"RocketP2"
_VISIBLE: Final = struct.Struct(">8sq")
_VISIBLE_AT: Final = 192
_VISIBLE_MAGIC: Final = b"RocketPV"
_MOST: Final = (1 << 63) - 1
UNKNOWN: Final = -1
"""Value of an unknown entry count."""


class Checkpoint:
    """Checkpoint in memory and its file. Safe to use from several threads.

    Attributes:
        physic_ms: store time up to which the commit log is on disk.
        logics_ms: store time up to which the consume queues are on disk.
        index_ms: store time of the last message in the last complete index file on disk.
        log_phy_offset: the commit log is on disk up to this offset.
        queues_phy_offset: the entries of all messages before it are on disk.
        index_phy_offset: physical offset of the same message.
        entry_count: end offsets of all queues together, counting what lies before
            `queues_phy_offset`; a smaller sum at a start means that files are missing. `UNKNOWN`
            if not recorded.
        queues_on_disk_to: `queues_phy_offset` of the checkpoint on disk.
        visible_phy_offset: end of the messages that consumers could read while messages waited for
            replicas; 0 if they waited for none.
        has_offsets: whether the offsets are valid; False after Apache used the directory.
        master_flushed_offset: kept as found.
        confirm_phy_offset: kept as found.
    """

    def __init__(self, path: Path, files: StoreFiles) -> None:
        self._path = path
        self._files = files
        self._mutex = threading.Lock()
        self._region: Region | None = None
        self._written = b""
        self.physic_ms: int = 0
        self.logics_ms: int = 0
        self.index_ms: int = 0
        self.log_phy_offset: int = 0
        self.queues_phy_offset: int = 0
        self.index_phy_offset: int = 0
        self.entry_count: int = UNKNOWN
        self.queues_on_disk_to: int = 0
        self.visible_phy_offset: int = 0
        self.has_offsets: bool = False
        self.master_flushed_offset: int = 0
        self.confirm_phy_offset: int = 0

    @property
    def min_ms(self) -> int:
        """Store time up to which commit log and queues are trusted, with a margin."""
        return max(0, min(self.physic_ms, self.logics_ms) - MARGIN_MS)

    @property
    def trusted_phy_offset(self) -> int:
        """Physical offset up to which commit log and queues are trusted."""
        return min(self.log_phy_offset, self.queues_phy_offset)

    def load(self) -> None:
        """Read the file; a missing or truncated one covers nothing."""
        if not self._files.exists(self._path):
            return
        data = self._files.read_bytes(self._path)
        if len(data) != CHECKPOINT_BYTES:
            logger.warning("checkpoint ignored, wrong length: bytes=%d", len(data))
            return
        (
            self.physic_ms,
            self.logics_ms,
            self.index_ms,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        ) = _STAMPS.unpack_from(data)
        self._load_offsets(data)
        magic, visible = _VISIBLE.unpack_from(data, _VISIBLE_AT)
        end = _VISIBLE_AT + _VISIBLE.size
        crc = zlib.crc32(data[_VISIBLE_AT:end])
        if magic == _VISIBLE_MAGIC and _CRC.unpack_from(data, end)[0] == crc:
            self.visible_phy_offset = visible

    def _load_offsets(self, data: bytes) -> None:
        end = _OFFSETS_AT + _OFFSETS.size
        magic, *stamps_and_offsets = _OFFSETS.unpack_from(data, _OFFSETS_AT)
        stamps, offsets = stamps_and_offsets[:3], stamps_and_offsets[3:]
        crc = zlib.crc32(data[_OFFSETS_AT:end])
        # Apache writes the first 40 bytes only and leaves these unchanged.
        if magic != _MAGIC or _CRC.unpack_from(data, end)[0] != crc:
            return
        # The store times are those of a later writer, which did not maintain the offsets.
        if stamps != [self.physic_ms, self.logics_ms, self.index_ms]:
            logger.info("checkpoint offsets ignored, another program used the store")
            return
        (
            self.log_phy_offset,
            self.queues_phy_offset,
            self.index_phy_offset,
            self.entry_count,
        ) = offsets
        self.has_offsets = True
        self.queues_on_disk_to = self.queues_phy_offset

    def log_reached(self, phy_offset: int, store_timestamp_ms: int) -> None:
        """Cover the log up to a record that is on disk."""
        self.physic_ms = max(self.physic_ms, store_timestamp_ms)
        # Flushes report out of order; a smaller value must not lower the covered part.
        self.log_phy_offset = max(self.log_phy_offset, phy_offset)

    def queues_reached(self, phy_offset: int, store_timestamp_ms: int, entry_count: int) -> None:
        """Cover the entries up to a message, all of which are on disk."""
        self.logics_ms = max(self.logics_ms, store_timestamp_ms)
        # Count and offset belong together and change together.
        if phy_offset >= self.queues_phy_offset:
            self.queues_phy_offset, self.entry_count = phy_offset, entry_count

    def index_reached(self, phy_offset: int, store_timestamp_ms: int) -> None:
        """Cover full index files up to their last message."""
        self.index_ms = max(self.index_ms, store_timestamp_ms)
        self.index_phy_offset = max(self.index_phy_offset, phy_offset)

    def lower_index(self, phy_offset: int, store_timestamp_ms: int) -> None:
        """Limit the covered index files; on disk with the next `flush`."""
        self.index_ms = min(self.index_ms, store_timestamp_ms)
        self.index_phy_offset = min(self.index_phy_offset, phy_offset)

    def lower(self, log_phy_offset: int, queues_phy_offset: int, store_timestamp_ms: int) -> None:
        """Limit the covered part and flush; for use before something is erased.

        Args:
            log_phy_offset: the log may change from this offset on.
            queues_phy_offset: entries of messages from this offset on may be erased.
            store_timestamp_ms: lower bound of the store times from there on; `logics_ms` is lowered
                to it. `physic_ms` stays: recovery lowers it when it has found the end of the log.

        Raises:
            DiskFullError: no space for the file.
            OSError: the disk failed.
        """
        self.log_phy_offset = min(self.log_phy_offset, log_phy_offset)
        if queues_phy_offset < self.queues_phy_offset:
            # The number of entries before the lower offset is not known.
            self.queues_phy_offset, self.entry_count = queues_phy_offset, UNKNOWN
        self.logics_ms = min(self.logics_ms, store_timestamp_ms)
        self.flush()

    def distrust(self) -> None:
        """Cover nothing."""
        # With `index_phy_offset` 0 the index is trusted up to `index_ms`.
        self.physic_ms = self.logics_ms = self.index_ms = 0
        self.log_phy_offset = self.queues_phy_offset = self.index_phy_offset = 0
        self.entry_count = UNKNOWN

    def flush(self) -> None:
        """Write and flush the checkpoint if it changed or was read at the start.

        Raises:
            DiskFullError: no space.
            OSError: the disk failed.
        """
        with self._mutex:
            data = self._encode()
            # An idle store writes nothing.
            if data == self._written:
                return
            region = self._open()
            region.allocate(0, CHECKPOINT_BYTES)
            # One assignment within one sector: a power cut leaves the old or the new content.
            region.buffer[:CHECKPOINT_BYTES] = data
            region.flush()
            self._written = data
            self.queues_on_disk_to = self.queues_phy_offset if self.has_offsets else 0

    def _encode(self) -> bytes:
        stamps = (self.physic_ms, self.logics_ms, self.index_ms)
        data = bytearray(CHECKPOINT_BYTES)
        _STAMPS.pack_into(data, 0, *stamps, self.master_flushed_offset, self.confirm_phy_offset)
        if self.visible_phy_offset > 0:
            _VISIBLE.pack_into(data, _VISIBLE_AT, _VISIBLE_MAGIC, self.visible_phy_offset)
            end = _VISIBLE_AT + _VISIBLE.size
            _CRC.pack_into(data, end, zlib.crc32(data[_VISIBLE_AT:end]))
        if not self.has_offsets:
            return bytes(data)
        _OFFSETS.pack_into(
            data,
            _OFFSETS_AT,
            _MAGIC,
            *stamps,
            self.log_phy_offset,
            self.queues_phy_offset,
            self.index_phy_offset,
            self.entry_count if self.entry_count <= _MOST else UNKNOWN,
        )
        end = _OFFSETS_AT + _OFFSETS.size
        _CRC.pack_into(data, end, zlib.crc32(data[_OFFSETS_AT:end]))
        return bytes(data)

    def _open(self) -> Region:
        """Return the file, which stays open, so that later writes need no descriptor."""
        if self._region is None:
            self._region = (
                self._files.open(self._path)
                if self._usable()
                else self._files.create(self._path, CHECKPOINT_BYTES)
            )
        return self._region

    def _usable(self) -> bool:
        if not self._files.exists(self._path):
            return False
        if self._files.size_bytes(self._path) == CHECKPOINT_BYTES:
            return True
        # A truncated file is replaced: it could not be mapped.
        self._files.remove(self._path)
        return False

    def close(self) -> None:
        """Close the file."""
        with self._mutex:
            if self._region is not None:
                self._region.close()
                self._region = None
