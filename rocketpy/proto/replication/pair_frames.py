"""Pair protocol of replication, version 1: handshake messages, DATA and REPORT.

The slave begins with `PREAMBLE`, which is no offset that a classic slave could report. Handshake
messages follow in both directions, then DATA from the master and REPORT from the slave; all
integers are big-endian::

    handshake    | length: i32 | type: u8 | MessagePack map |    length: of type and map
    DATA         | 16: u8 | offset: i64 | n: i32 | confirmed: i64 | CRC-32: u32 | head: u32 |
                   tag | data |
    REPORT       | 17: u8 | received: i64 | confirmed: i64 | state: u8 | head: u32 | tag |

`head` is the CRC-32 of the bytes before it: a wrong length must be found before its bytes arrive.
`tag` has 16 bytes with a secret, and is absent without one; see `FrameTags`.

Source: ours; docs/replication.md has the rules.
"""

import hmac
import struct
import zlib
from enum import IntEnum
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from rocketpy.errors import BadFrameError, FrameTooLongError
from rocketpy.proto.replication.epochs import MAX_EPOCHS
from rocketpy.proto.replication.part_reader import PartReader

PREAMBLE: Final = b"\xffROCKPY\x01"
VERSION: Final = 1
"""Version in the preamble, and `pairProtocol` in the answer to GET_BROKER_HA_STATUS."""

NONCE_BYTES: Final = 32
MAX_SAMPLES: Final = 64
MAX_TAIL_BYTES: Final = 64 << 20
"""Limit of the last sample: its checksum is computed on the loop."""
MAX_HANDSHAKE_BYTES: Final = 65_536
MAX_PART_BYTES: Final = 4 << 20
"""Limit of the log bytes of one DATA frame."""

DATA_HEAD_BYTES: Final = 29
REPORT_BYTES: Final = 22
TAG_BYTES: Final = 16
"""Bytes that a secret adds to `DATA_HEAD_BYTES` and `REPORT_BYTES`."""

_DATA: Final = 16
_REPORT: Final = 17
_LENGTH_AND_TYPE: Final = struct.Struct(">iB")
_LENGTH_BYTES: Final = 4
_DATA_HEAD: Final = struct.Struct(">BqiqI")
_REPORT_FRAME: Final = struct.Struct(">BqqB")
_CRC: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")

_Offset: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=512)]
_Nonce: TypeAlias = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
_Proof: TypeAlias = Annotated[bytes, msgspec.Meta(max_length=32)]
_Sample: TypeAlias = tuple[_Offset, _Offset, Annotated[int, msgspec.Meta(ge=0, le=(1 << 32) - 1)]]


class Refusal(IntEnum):
    """Reason for which a master refuses a slave."""

    NOT_PROVEN = 1
    OTHER_BROKER = 2
    SAME_ID = 3
    OTHER_LOG = 4
    BEHIND_RANGE = 5
    BEYOND_END = 6
    DIFFERENT_LOG = 7
    OTHER_FILE_SIZE = 8
    NOT_MASTER = 9


class DiskState(IntEnum):
    """Whether a slave writes what it receives."""

    WRITING = 0
    FULL = 1
    FAILED = 2


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """First message of a slave.

    Attributes:
        cluster: name of the cluster.
        name: name of the broker.
        id: broker id.
        nonce: random bytes.
        log: identity of the log; empty if it has none.
        min: first physical offset of the log.
        end: end of the log.
        file: bytes of a log file.
        disk: whether reports name the part of the log that is on disk.
    """

    cluster: _Name
    name: _Name
    id: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
    nonce: _Nonce
    log: _Name
    min: _Offset
    end: _Offset
    file: _Offset
    disk: bool


class Challenge(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of a master to HELLO; fields as there.

    Attributes:
        tail: least size of the last sample, so that it holds the last record whole; 0: as usual.
        epochs: epoch list of the log, as pairs of number and start; empty without a controller.
    """

    nonce: _Nonce
    log: _Name
    min: _Offset
    end: _Offset
    file: _Offset
    proof: _Proof
    tail: _Offset = 0
    epochs: Annotated[list[tuple[_Offset, _Offset]], msgspec.Meta(max_length=MAX_EPOCHS)] = []


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of a slave to CHALLENGE; samples are (offset, length, CRC-32) of its log."""

    proof: _Proof
    samples: Annotated[list[_Sample], msgspec.Meta(max_length=MAX_SAMPLES)]


class Accept(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance of a slave; `start` is the first offset that will be sent."""

    start: _Offset
    proof: _Proof = b""


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Refusal of a slave; `offset` is -1 if there is none to name."""

    code: Refusal
    offset: Annotated[int, msgspec.Meta(ge=-1, le=(1 << 63) - 1)]
    text: Annotated[str, msgspec.Meta(max_length=4_096)]
    proof: _Proof = b""


Message: TypeAlias = Hello | Challenge | Proof | Accept | Refuse
_TYPES: Final[dict[int, type[Message]]] = {
    1: Hello,
    2: Challenge,
    3: Proof,
    4: Accept,
    5: Refuse,
}
_NUMBERS: Final = {kind: number for number, kind in _TYPES.items()}


class Data(NamedTuple):
    """Part of the log; without bytes it is a heartbeat.

    Attributes:
        phy_offset: physical offset of its first byte, or of the next part after a heartbeat.
        confirmed: end of the log that enough replicas have, as the master knows.
        data: bytes of the log; their checksum or tag was verified.
    """

    phy_offset: int
    confirmed: int
    data: bytes | memoryview


class Report(NamedTuple):
    """Progress of a slave.

    Attributes:
        received: end of its log.
        confirmed: end of the part that it confirms: on disk with SYNC_FLUSH.
        state: whether it writes.
    """

    received: int
    confirmed: int
    state: DiskState


class Handshake(NamedTuple):
    """Received handshake message, and its map as it was received."""

    message: Message
    body: bytes


def encode_body(message: Message) -> bytes:
    """Return the map of a handshake message, as the proofs cover it."""
    return msgspec.msgpack.encode(message)


def without_proof(body: bytes) -> bytes:
    """Return a message's map with an empty proof, fields of later versions included.

    Raises:
        BadFrameError: it cannot be decoded.
    """
    try:
        # Raw: the sender has not proven itself yet, and a field of it may hold anything.
        fields = msgspec.msgpack.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadFrameError(f"Message cannot be decoded: {error}") from error
    return msgspec.msgpack.encode({**fields, "proof": b""})


def encode_handshake(message: Message) -> bytes:
    """Return a complete handshake message."""
    body = encode_body(message)
    return _LENGTH_AND_TYPE.pack(len(body) + 1, _NUMBERS[type(message)]) + body


class FrameTags:
    """Tags of one direction: HMAC-SHA256 over the number of the frame and its bytes.

    Both sides count the frames, from 0 on; the number is not sent. A peer without the key
    therefore cannot change, invent, omit, repeat or reorder frames.

    Args:
        key: key of this direction of the connection.
    """

    __slots__ = ("_keyed", "_number")

    def __init__(self, key: bytes) -> None:
        self._keyed = hmac.new(key, digestmod="sha256")
        self._number = 0

    def next(self, *parts: bytes | memoryview) -> bytes:
        """Return the tag of the next frame."""
        digest = self._keyed.copy()
        digest.update(_NUMBER.pack(self._number))
        for part in parts:
            digest.update(part)
        self._number += 1
        return digest.digest()[:TAG_BYTES]

    def check(self, tag: bytes | memoryview, *parts: bytes | memoryview) -> None:
        """Compare the tag of the next frame, in constant time.

        Raises:
            BadFrameError: the tag is wrong.
        """
        if not hmac.compare_digest(self.next(*parts), tag):
            raise BadFrameError("wrong tag of a frame: the peer does not have the secret")


def encode_data_head(
    phy_offset: int, data: bytes, confirmed: int, tags: FrameTags | None = None
) -> bytes:
    """Return the head of a part of the log; a heartbeat consists of the head."""
    # A tag covers the data: computing a CRC-32, too, would only cost time.
    crc = zlib.crc32(data) if tags is None else 0
    head = _checked(_DATA_HEAD.pack(_DATA, phy_offset, len(data), confirmed, crc))
    return head if tags is None else head + tags.next(head, data)


def encode_report(report: Report, tags: FrameTags | None = None) -> bytes:
    """Return a report frame."""
    frame = _checked(_REPORT_FRAME.pack(_REPORT, *report))
    return frame if tags is None else frame + tags.next(frame)


def _checked(head: bytes) -> bytes:
    return head + _CRC.pack(zlib.crc32(head))


def _check(data: bytes | memoryview, position: int, size_bytes: int) -> None:
    """Compare the checksum after a head."""
    end = position + size_bytes
    if zlib.crc32(data[position:end]) != _CRC.unpack_from(data, end)[0]:
        raise BadFrameError("wrong checksum of a frame's head")


class HandshakeReader:
    """Decoder of handshake messages, one at a time; holds at most one message and what follows.

    A message is decoded only when it is asked for, because frames follow the last one.
    """

    __slots__ = ("_max_pending_bytes", "_pending")

    def __init__(self) -> None:
        self._max_pending_bytes = 2 * MAX_HANDSHAKE_BYTES
        self._pending = b""

    def expect_frames(self) -> None:
        """Allow frames behind the next message: the peer has proven itself."""
        self._max_pending_bytes = MAX_HANDSHAKE_BYTES + MAX_PART_BYTES

    def feed(self, data: bytes) -> None:
        """Add received bytes.

        Raises:
            FrameTooLongError: the peer sends more than it may before it is accepted.
        """
        self._pending += data
        if len(self._pending) > self._max_pending_bytes:
            raise FrameTooLongError(len(self._pending), self._max_pending_bytes)

    def next(self) -> Handshake | None:
        """Return the next complete message, or None.

        Raises:
            FrameTooLongError: its length exceeds the limit.
            BadFrameError: it cannot be decoded.
        """
        pending = self._pending
        if len(pending) < _LENGTH_AND_TYPE.size:
            return None
        length, number = _LENGTH_AND_TYPE.unpack_from(pending)
        if length > MAX_HANDSHAKE_BYTES:
            raise FrameTooLongError(length, MAX_HANDSHAKE_BYTES)
        kind = _TYPES.get(number)
        if length < 1 or kind is None:
            raise BadFrameError(f"handshake message of type {number} with {length} bytes")
        if len(pending) < _LENGTH_BYTES + length:
            return None
        body = pending[_LENGTH_AND_TYPE.size : _LENGTH_BYTES + length]
        self._pending = pending[_LENGTH_BYTES + length :]
        return Handshake(_decode(body, kind), body)

    def rest(self) -> bytes:
        """Return the bytes after the last message, and hold none."""
        rest, self._pending = self._pending, b""
        return rest


def _decode(body: bytes, kind: type[Message]) -> Message:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadFrameError(f"{kind.__name__} cannot be decoded: {error}") from error


class DataReader(PartReader[Data]):
    """Decoder of a master's frames; returns those with a correct checksum or tag.

    Args:
        tags: of the master's frames; None without a secret.
        max_part_bytes: limit of the log bytes of one frame.
    """

    __slots__ = ("_tags",)

    def __init__(
        self, tags: FrameTags | None = None, *, max_part_bytes: int = MAX_PART_BYTES
    ) -> None:
        super().__init__(DATA_HEAD_BYTES + (0 if tags is None else TAG_BYTES), max_part_bytes)
        self._tags = tags

    def _size_of(self, view: memoryview, position: int) -> int:
        _check(view, position, _DATA_HEAD.size)
        kind, phy_offset, size_bytes, _, _ = _DATA_HEAD.unpack_from(view, position)
        if kind != _DATA or phy_offset < 0 or size_bytes < 0:
            raise BadFrameError(
                f"frame of type {kind} at offset {phy_offset} with {size_bytes} bytes"
            )
        return int(size_bytes)

    def _frame(self, frame: memoryview) -> Data:
        _, phy_offset, size_bytes, confirmed, crc = _DATA_HEAD.unpack_from(frame)
        part = frame[self._head_bytes :]
        if self._tags is not None:
            head, tag = frame[:DATA_HEAD_BYTES], frame[DATA_HEAD_BYTES : self._head_bytes]
            self._tags.check(tag, head, part)
        elif zlib.crc32(part) != crc:
            raise BadFrameError(f"wrong checksum of {size_bytes} bytes at {phy_offset}")
        return Data(phy_offset, confirmed, part)


class ReportReader:
    """Decoder of a slave's frames; holds less than one of them.

    Args:
        tags: of the slave's frames; None without a secret.
    """

    __slots__ = ("_frame_bytes", "_pending", "_tags")

    def __init__(self, tags: FrameTags | None = None) -> None:
        self._tags = tags
        self._frame_bytes = REPORT_BYTES + (0 if tags is None else TAG_BYTES)
        self._pending = b""

    def feed(self, data: bytes) -> list[Report]:
        """Add received bytes, and return the complete reports.

        Raises:
            BadFrameError: another type, a negative offset, an unknown state, or a wrong
                checksum or tag.
        """
        data, frame_bytes = self._pending + data, self._frame_bytes
        whole = len(data) - len(data) % frame_bytes
        self._pending = data[whole:]
        reports: list[Report] = []
        for position in range(0, whole, frame_bytes):
            _check(data, position, _REPORT_FRAME.size)
            if self._tags is not None:
                tag_at = position + REPORT_BYTES
                self._tags.check(data[tag_at : position + frame_bytes], data[position:tag_at])
            reports.append(_report(*_REPORT_FRAME.unpack_from(data, position)))
        return reports


def _report(kind: int, received: int, confirmed: int, state: int) -> Report:
    if kind != _REPORT or not 0 <= confirmed <= received or state not in _STATES:
        raise BadFrameError(
            f"report of type {kind}: received {received}, confirmed {confirmed}, state {state}"
        )
    return Report(received, confirmed, _STATES[state])


_STATES: Final = {int(state): state for state in DiskState}
