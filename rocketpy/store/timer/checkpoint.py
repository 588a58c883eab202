"""Timer checkpoint, `config/timercheck`: the part of the timer's work that is on disk.

4,096 bytes, big-endian, unused bytes are zeros::

    0          8           16             24             32            40          48        56
    | read ms  | log       | queue offset | the master's | version:    | timestamp | counter |
    |          | position  |              | queue offset | state       |           |         |

`read` is the first slot of the wheel that is not delivered; units before the log position and
their slots are on disk; messages of the timer's queue before the queue offset are in the log.

Checksums of the wheel follow from byte 56 on (RocketPy only; Apache reads the first 56 bytes)::

    56          64                  68
    | RPWHEEL1  | CRC-32 of 0-56    | sums: see
    |           | and of the sums   | `PageSums`

Source: TimerCheckpoint (5.4.0).
"""

import logging
import struct
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from rocketpy.store.files.store_files import StoreFiles

logger: logging.Logger = logging.getLogger(__name__)

CHECKPOINT_BYTES: Final = 4096
NO_LOG_POSITION: Final = 1
"""Log position of a checkpoint without a timer log: beyond the end of an empty one.

No unit ends there. A timer that loads it reads its queue again.
"""
_VALUES: Final = struct.Struct(">qqqqqqq")
_SUMS_HEAD: Final = struct.Struct(">8sI")
_SUMS_AT: Final = _VALUES.size + _SUMS_HEAD.size
_SUMS_MAGIC: Final = b"RPWHEEL1"

DELIVERED_MS: Final = "rocketpyDeliveredMs"
"""Field of a response with a checkpoint: until when messages are delivered, within a slot as well.

Not in the checkpoint: Apache's timer needs the start of a slot there.
"""

UNREVIVED_MS: Final = "rocketpyUnrevivedMs"
"""Field of the same response: check points and acks of pops that are due later are not processed.

Without it, what the checkpoint covers is processed.
"""


class TimerMarks(NamedTuple):
    """Values of the timer checkpoint.

    Attributes:
        read_ms: the first slot that is not delivered; 0: unknown.
        log_position: units before it, and their slots, are on disk.
        queue_offset: messages before it need not be read again.
        master_queue_offset: the master's queue offset.
        state_version: epoch of the broker set.
        timestamp_ms: when the version last changed.
        counter: number of changes of the version.
    """

    read_ms: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp_ms: int = 0
    counter: int = 0

    def encode(self) -> bytes:
        """Return the encoding used in the file and on the wire."""
        return _VALUES.pack(*self)

    @classmethod
    def decode(cls, data: bytes) -> "TimerMarks | None":
        """Return the marks at the start of bytes; None if they are too few, or not plausible."""
        if len(data) < _VALUES.size:
            return None
        marks = cls(*_VALUES.unpack_from(data))
        return None if min(marks[:4]) < 0 else marks


class TimerCheckpoint:
    """Checkpoint file of the timer; one thread writes.

    Args:
        path: the file.
        files: the file system.
        sums_bytes: length of the wheel's check sums.

    Attributes:
        sums: checksums of the wheel in the file; empty if there are no valid ones.
    """

    def __init__(self, path: Path, files: StoreFiles, sums_bytes: int = 0) -> None:
        self._path = path
        self._files = files
        self._sums_bytes = sums_bytes
        self.sums: bytes = b""

    def load(self) -> TimerMarks:
        """Read the file; a missing or truncated one yields zeros."""
        self.sums = b""
        if not self._files.exists(self._path):
            return TimerMarks()
        data = self._files.read_bytes(self._path)
        if len(data) < _VALUES.size:
            logger.warning("timer checkpoint ignored, file truncated: bytes=%d", len(data))
            return TimerMarks()
        marks = TimerMarks(*_VALUES.unpack_from(data))
        if min(marks[:4]) < 0:
            logger.warning("timer checkpoint ignored, values invalid: values=%s", marks)
            return TimerMarks()
        self.sums = self._sums_of(data)
        return marks

    def _sums_of(self, data: bytes) -> bytes:
        """Return the wheel's checksums if they belong to the marks in the file, else nothing."""
        sums = data[_SUMS_AT : _SUMS_AT + self._sums_bytes]
        if len(data) < _SUMS_AT + self._sums_bytes:
            return b""
        magic, crc = _SUMS_HEAD.unpack_from(data, _VALUES.size)
        is_ours = magic == _SUMS_MAGIC and crc == crc32(sums, crc32(data[: _VALUES.size]))
        return sums if is_ours else b""

    def save(self, marks: TimerMarks, sums: bytes = b"") -> None:
        """Write and flush marks; a power cut leaves the old ones or the new ones.

        Args:
            marks: new values.
            sums: checksums of the wheel.

        Raises:
            DiskFullError: no space.
            OSError: the disk failed.
        """
        data = marks.encode()
        if sums:
            data += _SUMS_HEAD.pack(_SUMS_MAGIC, crc32(sums, crc32(data))) + sums
        data = data.ljust(CHECKPOINT_BYTES, b"\0")
        if self._files.exists(self._path) and self._files.size_bytes(self._path) == len(data):
            file = self._files.open_file(self._path)
            try:
                file.write(0, data)
                file.flush()
            finally:
                file.close()
        else:
            beside = self._path.with_name(self._path.name + ".tmp")
            self._files.write_bytes(beside, data)
            self._files.rename(beside, self._path)
            self._files.sync_directories()
        self.sums = sums
