"""Both sides of the AutoSwitch protocol, by which a replica of Apache joins. No I/O.

The epoch lists alone decide whether two logs are equal: the protocol has no samples, checksums or
secrets. docs/replication.md has the rules.

Source: AutoSwitchHAConnection, AutoSwitchHAClient, EpochFileCache (5.4.0).
"""

from bisect import bisect_right

from rocketpy.broker.replication.handshake import ComparedLog, Diverged, Refused
from rocketpy.errors import BadFrameError
from rocketpy.proto.replication.auto_switch_frames import (
    MAX_EPOCH_NUMBER,
    SLAVE_HELLO_BYTES,
    EpochPart,
    MasterHello,
    MasterHelloReader,
    ReportReader,
    SlaveHello,
    decode_slave_hello,
    encode_master_hello,
    encode_part_head,
    encode_slave_hello,
)
from rocketpy.proto.replication.epochs import (
    Epochs,
    epoch_at,
    equal_end,
    next_start,
    with_epoch,
    with_origin,
)
from rocketpy.proto.replication.pair_frames import Refusal, Refuse


class AutoSwitchMaster:
    """Master's side of one connection.

    Args:
        log: the log that is sent, with its epoch list, which stays as it is meanwhile.

    Attributes:
        hello: of the slave; None before it was received.
    """

    def __init__(self, log: ComparedLog) -> None:
        self.hello: SlaveHello | None = None
        self._log = log
        self._epochs = with_origin(log.epochs)
        self._opening = b""
        self._reports = ReportReader()

    def open(self, data: bytes) -> SlaveHello | None:
        """Add the first bytes, and return the slave's hello once it is complete.

        Raises:
            BadFrameError: the bytes are not a hello, or report an offset before the answer.
        """
        self._opening += data
        if len(self._opening) < SLAVE_HELLO_BYTES:
            return None
        if len(self._opening) > SLAVE_HELLO_BYTES:
            raise BadFrameError("it reports an offset before it has the epoch list")
        if self._epochs[-1].number > MAX_EPOCH_NUMBER:
            raise BadFrameError(f"epoch {self._epochs[-1].number} cannot be sent to it")
        self.hello = decode_slave_hello(self._opening)
        return self.hello

    def answer(self) -> bytes:
        """Return the answer to the slave's hello: the epoch list."""
        return encode_master_hello(MasterHello(self._log.end_phy_offset, self._epochs))

    def reports(self, data: bytes) -> list[int]:
        """Add bytes after the hello, and return the reported offsets.

        Raises:
            BadFrameError: the bytes are not a report.
        """
        return self._reports.feed(data)

    def part_bytes(self, phy_offset: int, size_bytes: int) -> int:
        """Return the size of the next part, which never spans two epochs."""
        following = next_start(self._epochs, phy_offset)
        return size_bytes if following is None else min(size_bytes, following - phy_offset)

    def part_head(self, phy_offset: int, size_bytes: int, confirmed: int) -> bytes:
        """Return the bytes before a part of the log, or a heartbeat."""
        epoch = epoch_at(self._epochs, phy_offset)
        assert epoch is not None  # `with_origin`
        return encode_part_head(phy_offset, size_bytes, epoch, confirmed)


class AutoSwitchSlave:
    """Slave's side of one connection.

    Args:
        broker_id: of this replica.
        log: its log, to which nothing is appended before `epochs_to`.
        master_epoch: epoch of the master, as the controller says.

    Attributes:
        result: why this slave must not follow; None while it may.
    """

    def __init__(self, broker_id: int, log: ComparedLog, master_epoch: int) -> None:
        self.result: Refused | Diverged | None = None
        self._master_epoch = master_epoch
        self._broker_id = broker_id
        self._log = log
        self._reader = MasterHelloReader()
        self._epochs: Epochs = ()
        self._count = -1

    def start(self) -> bytes:
        """Return the first bytes to send."""
        return encode_slave_hello(SlaveHello(self._broker_id))

    def feed(self, data: bytes) -> bool:
        """Add received bytes, and return whether the master's answer is complete; see `result`.

        Raises:
            BadFrameError: the bytes are not an answer of a master.
        """
        hello = self._reader.feed(data)
        if hello is None:
            return False
        self._epochs = hello.epochs
        self.result = self._compare(hello)
        return True

    def rest(self) -> bytes:
        """Return the bytes after the master's answer."""
        return self._reader.rest()

    def _compare(self, hello: MasterHello) -> Refused | Diverged | None:
        log = self._log
        begin, end = log.min_phy_offset, log.end_phy_offset
        if end <= begin:
            return None  # an empty log
        own = log.epochs
        # Also a log that was written without a controller: there is no other proof of its origin.
        if set(own).isdisjoint(hello.epochs):
            return _refused("no epoch of this log is in the epoch list of the master", begin)
        # The controller's epoch counts as well: Apache's list lacks epochs without messages.
        newest = max(hello.epochs[-1].number, self._master_epoch)
        if own[-1].number > newest:
            return _refused(
                f"this log has epoch {own[-1].number}, the master only {newest}: the state of the "
                "controller is older than the logs",
                begin,
            )
        equal = equal_end(own, end, hello.epochs, hello.end)
        if equal is None:
            return _refused("this log ends before the epochs that the master has as well", begin)
        return Diverged(equal) if equal < end else None

    def epochs_to(self, end: int) -> Epochs | None:
        """Return the epoch list of a log that ends at an offset; None if it is the same as before.

        It is stored before the bytes up to that offset.
        """
        count = bisect_right(self._epochs, end, key=lambda each: each.start)
        if count == self._count:
            return None
        self._count = count
        return self._epochs[:count]

    def check(self, part: EpochPart) -> None:
        """Check the epoch of a part; a new one continues the list.

        Apache's master names the following epoch in the last part of an epoch, so that the list of
        its hello counts, not the names of the parts.

        Raises:
            BadFrameError: the epoch does not follow the known ones.
        """
        epoch, last = part.epoch, self._epochs[-1]
        if epoch == last or epoch in self._epochs:
            return
        first, end = part.phy_offset, part.phy_offset + len(part.data)
        if not (last.number < epoch.number and max(first, last.start) <= epoch.start <= end):
            raise BadFrameError(
                f"part of the log at {first} is of epoch {epoch.number} from {epoch.start} on, "
                f"which does not follow epoch {last.number} from {last.start} on"
            )
        self._epochs = with_epoch(self._epochs, epoch.number, epoch.start)
        self._count = -1


def _refused(text: str, begin: int) -> Refused:
    return Refused(Refuse(code=Refusal.DIFFERENT_LOG, offset=begin, text=text), None)
