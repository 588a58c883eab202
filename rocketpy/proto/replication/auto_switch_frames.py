"""AutoSwitch protocol of replication, Apache's in groups with a controller: its four frames.

The slave begins, and the master answers with its epoch list. The slave cuts off what the master's
log does not have, and reports its end; the log and reports follow. All integers are big-endian::

    slave, hello     | 1: i32 | from last file: i16 | learner: i16 | broker id: i64 |
    master, hello    | 1: i32 | n: i32 | end: i64 | epoch: i32 | n bytes: {epoch: i32, start: i64} |
    slave, report    | 2: i32 | offset: i64 |
    master, part     | 2: i32 | n: i32 | offset: i64 | epoch: i32 | start: i64 | confirmed: i64 |
                       n bytes of the log |                            n = 0 is a heartbeat

The protocol verifies neither peers nor bytes: it has no secret, no group name, and no checksum.

Source: AutoSwitchHAConnection, AutoSwitchHAClient, HAConnectionState (5.4.0).
"""

import struct
from typing import Final, NamedTuple

from rocketpy.errors import BadFrameError, StoreFormatError
from rocketpy.proto.replication.epochs import MAX_EPOCHS, Epoch, Epochs, check_epochs
from rocketpy.proto.replication.part_reader import PartReader

SLAVE_HELLO_BYTES: Final = 16
REPORT_BYTES: Final = 12
PART_HEAD_BYTES: Final = 36
MAX_PART_BYTES: Final = (4 << 20) - PART_HEAD_BYTES
"""Limit of the log bytes of one frame: Apache's slave has a buffer of 4 MiB for a frame."""
MAX_EPOCH_NUMBER: Final = (1 << 31) - 1
"""Largest number of an epoch on the wire."""

_HANDSHAKE: Final = 1
_TRANSFER: Final = 2
_FLAGS: Final = frozenset({0, 1})
_SLAVE_START: Final = struct.Struct(">ihh")
_SLAVE_HELLO: Final = struct.Struct(">ihhq")
_MASTER_HEAD: Final = struct.Struct(">iiqi")
_ENTRY: Final = struct.Struct(">iq")
_REPORT: Final = struct.Struct(">iq")
_PART_HEAD: Final = struct.Struct(">iiqiqq")


class SlaveHello(NamedTuple):
    """First frame of a slave.

    Attributes:
        broker_id: id that the controller has given it.
        is_learner: whether it must never be waited for or elected (`asyncLearner`).
        is_from_last_file: whether an empty log shall begin at the master's last file.
    """

    broker_id: int
    is_learner: bool = False
    is_from_last_file: bool = False


class MasterHello(NamedTuple):
    """Answer of a master: where its log ends, and which epochs it consists of."""

    end: int
    epochs: Epochs


class EpochPart(NamedTuple):
    """Part of the log; without bytes it is a heartbeat.

    Attributes:
        phy_offset: physical offset of its first byte, or of the next part after a heartbeat.
        data: bytes of the log.
        epoch: epoch of these bytes.
        confirmed: end of the log that enough replicas have; consumers may read before it.
    """

    phy_offset: int
    data: bytes | memoryview
    epoch: Epoch
    confirmed: int


def is_slave_hello(first_bytes: bytes) -> bool:
    """Return whether the first eight bytes of a connection begin a hello.

    As the report of a classic slave they would be an offset of exactly 4 GiB, 4 GiB + 1, or 64 KiB
    after one of these.
    """
    state, *flags = _SLAVE_START.unpack_from(first_bytes)
    return bool(state == _HANDSHAKE and _FLAGS.issuperset(flags))


def encode_slave_hello(hello: SlaveHello) -> bytes:
    """Return the first frame of a slave."""
    flags = int(hello.is_from_last_file), int(hello.is_learner)
    return _SLAVE_HELLO.pack(_HANDSHAKE, *flags, hello.broker_id)


def decode_slave_hello(data: bytes) -> SlaveHello:
    """Parse the first frame of a slave, of `SLAVE_HELLO_BYTES`.

    Raises:
        BadFrameError: the bytes are not the hello of a slave.
    """
    state, last_file, learner, broker_id = _SLAVE_HELLO.unpack(data)
    if state != _HANDSHAKE or not _FLAGS.issuperset((last_file, learner)) or broker_id <= 0:
        raise BadFrameError(f"hello of slave {broker_id} in state {state}")
    return SlaveHello(broker_id, bool(learner), bool(last_file))


def encode_master_hello(hello: MasterHello) -> bytes:
    """Return the answer of a master.

    Args:
        hello: at least one epoch, at most `MAX_EPOCHS`, none above `MAX_EPOCH_NUMBER`.
    """
    entries = b"".join(_ENTRY.pack(*each) for each in hello.epochs)
    last = hello.epochs[-1].number
    return _MASTER_HEAD.pack(_HANDSHAKE, len(entries), hello.end, last) + entries


def encode_report(phy_offset: int) -> bytes:
    """Return the report of a slave."""
    return _REPORT.pack(_TRANSFER, phy_offset)


def encode_part_head(phy_offset: int, size_bytes: int, epoch: Epoch, confirmed: int) -> bytes:
    """Return the head of a part of the log; a heartbeat consists of the head."""
    return _PART_HEAD.pack(_TRANSFER, size_bytes, phy_offset, *epoch, confirmed)


class MasterHelloReader:
    """Decoder of a master's answer; holds at most one answer and the bytes of one read."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> MasterHello | None:
        """Add received bytes, and return the answer once it is complete.

        Raises:
            BadFrameError: the bytes are not the answer of a master.
        """
        self._pending += data
        if len(self._pending) < _MASTER_HEAD.size:
            return None
        state, size_bytes, end, _ = _MASTER_HEAD.unpack_from(self._pending)
        count, rest = divmod(size_bytes, _ENTRY.size)
        if state != _HANDSHAKE or rest or not 0 < count <= MAX_EPOCHS or end < 0:
            raise BadFrameError(f"hello of a master in state {state}: {size_bytes} bytes of epochs")
        following = _MASTER_HEAD.size + size_bytes
        if len(self._pending) < following:
            return None
        entries = self._pending[_MASTER_HEAD.size : following]
        self._pending = self._pending[following:]
        epochs = tuple(map(Epoch._make, _ENTRY.iter_unpack(entries)))
        try:
            check_epochs(epochs)
        except StoreFormatError as error:
            raise BadFrameError(f"the master's epoch list is wrong: {error}") from error
        return MasterHello(end, epochs)

    def rest(self) -> bytes:
        """Return the bytes after the answer."""
        rest, self._pending = self._pending, b""
        return rest


class ReportReader:
    """Decoder of a slave's reports; holds less than one."""

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[int]:
        """Add received bytes, and return the offsets of complete reports.

        Raises:
            BadFrameError: the bytes are not a report.
        """
        data = self._pending + data
        complete_bytes = len(data) - len(data) % REPORT_BYTES
        self._pending = data[complete_bytes:]
        offsets: list[int] = []
        for state, offset in _REPORT.iter_unpack(data[:complete_bytes]):
            if state != _TRANSFER:
                raise BadFrameError(f"report in state {state}")
            offsets.append(offset)
        return offsets


class PartFrameReader(PartReader[EpochPart]):
    """Decoder of a master's stream; holds at most one frame.

    Args:
        max_part_bytes: limit of the log bytes of one frame.
    """

    __slots__ = ()

    def __init__(self, max_part_bytes: int = MAX_PART_BYTES) -> None:
        super().__init__(PART_HEAD_BYTES, max_part_bytes)

    def _size_of(self, view: memoryview, position: int) -> int:
        state, size_bytes, phy_offset, *epoch, _ = _PART_HEAD.unpack_from(view, position)
        # `confirmed` is below zero at a master that has not computed it yet.
        if state != _TRANSFER or min(size_bytes, phy_offset, *epoch) < 0:
            raise BadFrameError(
                f"part of the log at {phy_offset} with {size_bytes} bytes, "
                f"of epoch {epoch}, in state {state}"
            )
        return int(size_bytes)

    def _frame(self, frame: memoryview) -> EpochPart:
        _, _, phy_offset, number, start, confirmed = _PART_HEAD.unpack_from(frame)
        return EpochPart(phy_offset, frame[PART_HEAD_BYTES:], Epoch(number, start), confirmed)
