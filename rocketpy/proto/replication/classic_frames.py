"""Classic protocol of replication: reports of a slave, and parts of the log from a master.

The peers exchange nothing else, from the first byte on; all integers are big-endian::

    slave to master    | offset: i64 |                              the slave's end of the log
    master to slave    | offset: i64 | n: i32 | n bytes of the log |   n = 0 is a heartbeat

Source: DefaultHAConnection, DefaultHAClient (5.4.0).
"""

import struct
from typing import Final, NamedTuple

from rocketpy.errors import BadFrameError
from rocketpy.proto.replication.part_reader import PartReader

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
    """Return the head of a part of the log; a heartbeat consists of the head."""
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


class TransferReader(PartReader[LogPart]):
    """Decoder of a master's stream; holds at most one frame.

    Args:
        max_part_bytes: limit of the log bytes of one frame.
    """

    __slots__ = ()

    def __init__(self, max_part_bytes: int = MAX_TRANSFER_BYTES) -> None:
        super().__init__(TRANSFER_HEAD_BYTES, max_part_bytes)

    def _size_of(self, view: memoryview, position: int) -> int:
        phy_offset, size_bytes = _HEAD.unpack_from(view, position)
        if phy_offset < 0 or size_bytes < 0:
            raise BadFrameError(f"part of the log at {phy_offset} with {size_bytes} bytes")
        return int(size_bytes)

    def _frame(self, frame: memoryview) -> LogPart:
        phy_offset, _ = _HEAD.unpack_from(frame)
        return LogPart(phy_offset, frame[TRANSFER_HEAD_BYTES:])
