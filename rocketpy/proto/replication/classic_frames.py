"""Classic protocol of replication: reports of a slave, and parts of the log from a master.

The peers exchange nothing else, from the first byte on; all integers are big-endian::

    slave to master    | offset: i64 |                              the slave's end of the log
    master to slave    | offset: i64 | n: i32 | n bytes of the log |   n = 0 is a heartbeat

Source: DefaultHAConnection, DefaultHAClient (5.4.0).
"""

import struct
from typing import Final, NamedTuple

from rocketpy.errors import BadFrameError, FrameTooLongError

REPORT_BYTES: Final = 8
TRANSFER_HEAD_BYTES: Final = 12
MAX_TRANSFER_BYTES: Final = 4 << 20
"""Limit of the log bytes of one frame: Apache's slave has a buffer of this size."""

_REPORT: Final = struct.Struct(">q")
_HEAD: Final = struct.Struct(">qi")


class LogPart(NamedTuple):
    """Part of the log; without bytes it is a heartbeat.

    Attributes:
        phy_offset: physical offset of its first byte, or of the next part after a heartbeat.
        data: bytes of the log.
    """

    phy_offset: int
    data: bytes | memoryview


def encode_report(phy_offset: int) -> bytes:
    """Return the report of a slave."""
    return _REPORT.pack(phy_offset)


def encode_transfer_head(phy_offset: int, size_bytes: int) -> bytes:
    """Return the bytes before a part of the log; a heartbeat has no more than these."""
    return _HEAD.pack(phy_offset, size_bytes)


class ReportReader:
    """Decoder of a slave's stream; holds less than one report."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> tuple[int, ...]:
        """Add received bytes, and return the offsets of complete reports."""
        data = self._pending + data
        count = len(data) // REPORT_BYTES
        self._pending = data[count * REPORT_BYTES :]
        offsets: tuple[int, ...] = struct.unpack_from(f">{count}q", data)
        return offsets


class TransferReader:
    """Decoder of a master's stream; holds at most one frame.

    Args:
        max_part_bytes: limit of the log bytes of one frame.
    """

    __slots__ = ("_max_part_bytes", "_needed_bytes", "_pending")

    def __init__(self, max_part_bytes: int = MAX_TRANSFER_BYTES) -> None:
        self._max_part_bytes = max_part_bytes
        self._pending = bytearray()
        self._needed_bytes = TRANSFER_HEAD_BYTES

    def feed(self, data: bytes) -> list[LogPart]:
        """Add received bytes, and return the complete parts.

        Raises:
            BadFrameError: a negative offset or length.
            FrameTooLongError: a part exceeds the limit.
        """
        pending = self._pending
        view = memoryview(data)
        if pending:
            pending += data
            if len(pending) < self._needed_bytes:
                return []
            view, self._pending = memoryview(pending), bytearray()
        parts: list[LogPart] = []
        position, end = 0, len(view)
        self._needed_bytes = TRANSFER_HEAD_BYTES
        while end - position >= TRANSFER_HEAD_BYTES:
            phy_offset, size_bytes = _HEAD.unpack_from(view, position)
            self._check(phy_offset, size_bytes)
            following = position + TRANSFER_HEAD_BYTES + size_bytes
            if following > end:
                self._needed_bytes = following - position
                break
            parts.append(LogPart(phy_offset, view[position + TRANSFER_HEAD_BYTES : following]))
            position = following
        self._pending += view[position:]
        return parts

    def _check(self, phy_offset: int, size_bytes: int) -> None:
        if phy_offset < 0 or size_bytes < 0:
            raise BadFrameError(f"part of the log at {phy_offset} with {size_bytes} bytes")
        if size_bytes > self._max_part_bytes:
            raise FrameTooLongError(size_bytes, self._max_part_bytes)
