"""Message ids: offset ids of stored messages, and unique ids of producers.

Offset id, upper-case hex: store host (4 or 16 bytes) | port i32 | physical offset i64.

Unique id, upper-case hex: ip (4 or 16 bytes) | pid u16 | hash of the process u32 |
ms since the start of the local month u32 | counter u16. Both have 32 or 56 digits.

Source: MessageDecoder.createMessageId, MessageClientIDSetter of 5.4.0.
"""

import binascii
import struct
from typing import Final, NamedTuple

from rocketpy.proto.record.message import bytes_to_host, host_to_bytes

_LONG: Final = struct.Struct(">q")
_PROCESS: Final = struct.Struct(">HI")
_TAIL: Final = struct.Struct(">IH")
_ID_LENGTHS: Final = frozenset({32, 56})


class OffsetMessageId(NamedTuple):
    """Location of a message: the broker's `ip:port` and the physical offset, bytes."""

    host: str
    phy_offset: int


def encode_message_id(store_host: str, phy_offset: int) -> str:
    """Return the offset id; raise ValueError for a host that is not `ip:port`."""
    return offset_id_from_bytes(host_to_bytes(store_host), phy_offset)


def offset_id_from_bytes(store_host: bytes, phy_offset: int) -> str:
    """Return the offset id for a store host of 8 or 20 bytes."""
    return (store_host + _LONG.pack(phy_offset)).hex().upper()


def _from_hex(text: str) -> bytes:
    if len(text) not in _ID_LENGTHS:
        msg = f"a message id has 32 or 56 hex digits, not {len(text)}"
        raise ValueError(msg)
    return binascii.unhexlify(text)


def decode_message_id(message_id: str) -> OffsetMessageId:
    """Decode an offset id.

    Raises:
        ValueError: not 32 or 56 hex digits.
    """
    data = _from_hex(message_id)
    return OffsetMessageId(bytes_to_host(data[:-8]), _LONG.unpack(data[-8:])[0])


class UniqIdParts(NamedTuple):
    """Parts of a unique id.

    Attributes:
        ip: 4 or 16 bytes.
        process_hash: Java uses a class loader's hash.
        month_ms: ms since the start of the producer's local month, modulo 2**32.
    """

    ip: bytes
    pid: int
    process_hash: int
    month_ms: int
    counter: int

    def born_ms(self, now_ms: int, month_start_ms: int, previous_month_start_ms: int) -> int:
        """Return the creation time, in the latest month that gives no future time.

        `now_ms` is the wall clock; the others are the starts of the current and the previous
        month in local time; all ms since 1970.
        """
        born_ms = month_start_ms + self.month_ms
        return born_ms if born_ms <= now_ms else previous_month_start_ms + self.month_ms


def decode_uniq_id(uniq_id: str) -> UniqIdParts:
    """Decode a unique id.

    Raises:
        ValueError: not 32 or 56 hex digits.
    """
    data = _from_hex(uniq_id)
    pid, process_hash = _PROCESS.unpack(data[-12:-6])
    month_ms, counter = _TAIL.unpack(data[-6:])
    return UniqIdParts(data[:-12], pid, process_hash, month_ms, counter)


class UniqIdGenerator:
    """Generator of the unique ids of one process.

    The caller passes the time, and the start of the local month: call `needs_month` before each id,
    and `set_month` if it returns True (once a month). Not synchronised.
    """

    __slots__ = (
        "_counter", "_front", "_front_ms", "_month_end_ms", "_month_start_ms", "_prefix",
    )  # fmt: skip

    def __init__(self, ip: bytes, pid: int, process_hash: int, *, first_counter: int = 0) -> None:
        """Create a generator.

        Args:
            ip: 4 or 16 bytes.
            pid: only the low 16 bits count.
            process_hash: any number that differs between processes; the low 32 bits count.
            first_counter: first value of the counter; the low 16 bits count.
        """
        assert len(ip) in {4, 16}, ip
        self._prefix = (ip + _PROCESS.pack(pid & 0xFFFF, process_hash & 0xFFFFFFFF)).hex().upper()
        self._counter = first_counter & 0xFFFF
        self._month_start_ms = 0
        self._month_end_ms = -1
        self._front, self._front_ms = "", -1  # of the latest id, and its time

    def needs_month(self, now_ms: int) -> bool:
        """Return whether `set_month` must be called before the next id."""
        return not self._month_start_ms <= now_ms < self._month_end_ms

    def set_month(self, start_ms: int, end_ms: int) -> None:
        """Set start and end of the current local month, ms since 1970."""
        assert start_ms < end_ms, (start_ms, end_ms)
        self._month_start_ms = start_ms
        self._month_end_ms = end_ms
        self._front_ms = -1

    def next_id(self, now_ms: int) -> str:
        """Return the next id; `now_ms` is the wall clock."""
        counter = self._counter
        self._counter = counter + 1 & 0xFFFF
        if now_ms != self._front_ms:
            self._front, self._front_ms = self._front_of(now_ms), now_ms
        return f"{self._front}{counter:04X}"

    def next_ids(self, now_ms: int, count: int) -> list[str]:
        """Return the next ids, at most 65,536."""
        assert count <= 1 << 16, count
        front, first = self._front_of(now_ms), self._counter
        self._counter = first + count & 0xFFFF
        return [f"{front}{number & 0xFFFF:04X}" for number in range(first, first + count)]

    def _front_of(self, now_ms: int) -> str:
        return f"{self._prefix}{now_ms - self._month_start_ms & 0xFFFFFFFF:08X}"
