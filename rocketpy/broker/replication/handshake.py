"""Handshake of the pair protocol, both sides. No I/O: bytes in, bytes out.

Each side proves that it knows the secret, by a keyed hash over the other's random bytes, before it
sends anything about its log. The master then compares the logs; docs/replication.md has the rules.
The frames that follow have tags, with keys derived from the same bytes: otherwise a relay could
forward the handshake, and then invent frames.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import msgspec

from rocketpy.errors import BadFrameError, StoreFormatError
from rocketpy.proto.replication.epochs import Epoch, Epochs, check_epochs, equal_end
from rocketpy.proto.replication.pair_frames import (
    MAX_SAMPLES,
    MAX_TAIL_BYTES,
    PREAMBLE,
    Accept,
    Challenge,
    FrameTags,
    Handshake,
    HandshakeReader,
    Hello,
    Message,
    Proof,
    Refusal,
    Refuse,
    encode_body,
    encode_handshake,
    without_proof,
)

_MASTER: Final = b"rocketpy-ha-1 master"
_SLAVE: Final = b"rocketpy-ha-1 slave"
_SAMPLE_BYTES: Final = 4 << 10

Sample: TypeAlias = tuple[int, int, int]
"""Offset, length and CRC-32 of a part of the log."""


class ComparedLog(Protocol):
    """Log of the store, as the handshake sees it."""

    @property
    def identity(self) -> str:
        """Identity of the log; empty if it has none."""
        ...

    @property
    def min_phy_offset(self) -> int:
        """Offset of its first byte."""
        ...

    @property
    def end_phy_offset(self) -> int:
        """End of its complete records."""
        ...

    @property
    def file_bytes(self) -> int:
        """Length of a file."""
        ...

    @property
    def epochs(self) -> Epochs:
        """Epoch list; empty without a controller."""
        ...

    @property
    def tail_bytes(self) -> int:
        """Size of a last sample that holds any complete record; 0 if the default size does."""
        ...

    def samples(
        self, start: int, count: int, sample_bytes: int, last_bytes: int
    ) -> Sequence[Sample]:
        """Return samples of the log from an offset on, the last one at the end of its records.

        Args:
            start: first offset that both logs have.
            count: most samples.
            sample_bytes: size of all but the last one.
            last_bytes: least size of the last one.
        """
        ...

    def first_difference(self, samples: Sequence[Sample]) -> int | None:
        """Return the offset of the first sample that differs in this log; None if all agree."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PairIdentity:
    """Names and secret of one side of the handshake.

    Attributes:
        cluster: name of the cluster.
        name: name of the broker.
        broker_id: 0 for the master.
        secret: shared secret; empty if TLS alone proves the peers.
        reports_disk: whether reports name the end of the log on disk (SYNC_FLUSH).
    """

    cluster: str
    name: str
    broker_id: int
    secret: bytes
    reports_disk: bool = False


def _proof(secret: bytes, label: bytes, *bodies: bytes) -> bytes:
    if not secret:
        return b""
    digests = b"".join(hashlib.sha256(body).digest() for body in bodies)
    return hmac.digest(secret, label + digests, "sha256")


def _frame_tags(secret: bytes, side: bytes, hello: bytes, challenge: bytes) -> FrameTags | None:
    key = _proof(secret, side + b" key", hello, challenge)
    return FrameTags(key) if key else None


@dataclass(frozen=True, slots=True)
class Accepted:
    """Result of a handshake: the slave is served from `start` on."""

    hello: Hello
    start: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Result of a handshake: the slave is refused.

    Attributes:
        refusal: as it was sent.
        hello: of the slave; None before it was received.
        is_proven: whether the peer has proven itself: its texts are trusted only then.
    """

    refusal: Refuse
    hello: Hello | None
    is_proven: bool = True


@dataclass(frozen=True, slots=True)
class Diverged:
    """Result of a slave's handshake: its log is longer than the part that the master has.

    Attributes:
        end: end of the common part, by the epoch lists of both.
    """

    end: int


class MasterHandshake:
    """Master's side of one handshake.

    Args:
        identity: this broker.
        log: its log.
        nonce: 32 fresh random bytes.
        is_taken: returns whether another live connection has a broker id.
        is_certified: whether the peer has presented a verified TLS certificate.

    Attributes:
        result: how the handshake ended; None before.
        master_tags: tags of the frames to the slave; None without a secret.
        slave_tags: tags of the slave's frames.
    """

    def __init__(
        self,
        identity: PairIdentity,
        log: ComparedLog,
        *,
        nonce: bytes,
        is_taken: Callable[[int], bool],
        is_certified: bool = False,
    ) -> None:
        self._identity = identity
        self._log = log
        self._nonce = nonce
        self._is_taken = is_taken
        self._is_certified = is_certified
        self._reader = HandshakeReader()
        self._hello: tuple[Hello, bytes] | None = None
        self._challenge = b""
        self.master_tags: FrameTags | None = None
        self.slave_tags: FrameTags | None = None
        self.result: Accepted | Refused | None = None

    def feed(self, data: bytes) -> bytes:
        """Add bytes after the preamble, and return the bytes to send; see `result`.

        Raises:
            ProtocolError: the peer sent no message of this handshake.
        """
        self._reader.feed(data)
        sent = b""
        while self.result is None and (received := self._reader.next()) is not None:
            sent += encode_handshake(self._answer(received))
        return sent

    def rest(self) -> bytes:
        """Return the bytes after the handshake."""
        return self._reader.rest()

    def _answer(self, received: Handshake) -> Message:
        message = received.message
        if isinstance(message, Hello) and self._hello is None:
            self._hello = message, received.body
            return self._challenge_for(received.body)
        if isinstance(message, Proof) and self._hello is not None:
            return self._tagged(self._judge(message, received.body, *self._hello))
        raise BadFrameError(f"{type(message).__name__} is out of order in the handshake")

    def _challenge_for(self, hello: bytes) -> Message:
        log = self._log
        challenge = Challenge(
            nonce=self._nonce,
            log=log.identity,
            min=log.min_phy_offset,
            end=log.end_phy_offset,
            file=log.file_bytes,
            proof=b"",
            tail=log.tail_bytes,
            epochs=[(each.number, each.start) for each in log.epochs],
        )
        self._challenge = encode_body(challenge)
        proof = _proof(self._identity.secret, _MASTER, hello, self._challenge)
        return msgspec.structs.replace(challenge, proof=proof)

    def _tagged(self, message: Accept | Refuse) -> Message:
        if self.master_tags is None:
            return message
        proof = self.master_tags.next(encode_body(message))
        return msgspec.structs.replace(message, proof=proof)

    def _judge(
        self, message: Proof, body: bytes, hello: Hello, hello_body: bytes
    ) -> Accept | Refuse:
        secret, challenge = self._identity.secret, self._challenge
        self.master_tags = _frame_tags(secret, _MASTER, hello_body, challenge)
        self.slave_tags = _frame_tags(secret, _SLAVE, hello_body, challenge)
        wanted = _proof(secret, _SLAVE, hello_body, challenge, without_proof(body))
        if not (secret or self._is_certified) or not hmac.compare_digest(wanted, message.proof):
            refusal = Refuse(
                code=Refusal.NOT_PROVEN, offset=-1, text="the secrets of the brokers differ"
            )
            self.result = Refused(refusal, hello, is_proven=False)
            return refusal
        refused = self._compare(hello, message.samples)
        if refused is not None:
            self.result = Refused(refused, hello)
            return refused
        # An empty log receives the complete log, from the oldest byte on.
        start = hello.end if hello.end > hello.min else self._log.min_phy_offset
        self.result = Accepted(hello, start)
        return Accept(start=start)

    def _compare(self, hello: Hello, samples: list[Sample]) -> Refuse | None:
        """Return why a proven slave is refused; None if it is accepted."""
        identity, log = self._identity, self._log
        if (hello.cluster, hello.name) != (identity.cluster, identity.name):
            names = f"{hello.cluster}/{hello.name}, not {identity.cluster}/{identity.name}"
            return _refuse(Refusal.OTHER_BROKER, f"the slave belongs to {names}")
        if hello.id == identity.broker_id:
            return _refuse(Refusal.SAME_ID, f"brokerId {hello.id} is the master's")
        if self._is_taken(hello.id):
            text = f"another slave with brokerId {hello.id} is connected"
            return _refuse(Refusal.SAME_ID, text)
        if hello.file != log.file_bytes:
            sizes = f"{hello.file}, not {log.file_bytes} as on the master"
            return _refuse(Refusal.OTHER_FILE_SIZE, f"mappedFileSizeCommitLog is {sizes}")
        if hello.end <= hello.min:
            return None  # an empty log
        # A log with epochs and without identity was copied from a master that names none (Apache's,
        # by AutoSwitch): epochs and samples decide.
        is_named = bool(log.identity or not log.epochs)
        if hello.log and is_named and hello.log != log.identity:
            logs = f"log {hello.log}, the master has log {log.identity}"
            return _refuse(Refusal.OTHER_LOG, f"the slave has {logs}: it copied another master")
        return self._compare_range(hello, samples)

    def _compare_range(self, hello: Hello, samples: list[Sample]) -> Refuse | None:
        log = self._log
        start, end = log.min_phy_offset, log.end_phy_offset
        # At `start` itself no byte is left by which the logs could be compared.
        if hello.end <= start:
            text = f"the slave ends at {hello.end}, the master deleted everything before {start}"
            return _refuse(Refusal.BEHIND_RANGE, text, start)
        if hello.end > end:
            text = f"the slave ends at {hello.end}, beyond the master's end {end}"
            return _refuse(Refusal.BEYOND_END, text, end)
        different = log.first_difference(samples)
        if different is None:
            different = self._not_compared_from(samples, hello.end)
        if different is not None:
            text = f"the logs differ from offset {different} on, or before"
            return _refuse(Refusal.DIFFERENT_LOG, text, different)
        return None

    def _not_compared_from(self, samples: list[Sample], end: int) -> int | None:
        """Return the offset from which nothing was compared; None if the samples reach the end.

        Two logs differ up to their end, so the last sample must end there. It is checked after
        the comparison, which ignores samples outside the log: retention may delete meanwhile.
        """
        start = self._log.min_phy_offset
        offset, length, _ = samples[-1] if samples else (start, 0, 0)
        reaches_end = offset >= start and length > 0 and offset + length == end
        return None if reaches_end else max(offset, start)


def epochs_of(challenge: Challenge) -> Epochs:
    """Return the epoch list of a master.

    Raises:
        BadFrameError: its order is wrong.
    """
    epochs = tuple(Epoch(*each) for each in challenge.epochs)
    try:
        check_epochs(epochs)
    except StoreFormatError as error:
        raise BadFrameError(f"the master's epoch list is wrong: {error}") from error
    return epochs


def _refuse(code: Refusal, text: str, offset: int = -1) -> Refuse:
    return Refuse(code=code, offset=offset, text=text)


class SlaveHandshake:
    """Slave's side of one handshake.

    Args:
        identity: this broker.
        log: its log, to which nothing is appended meanwhile.
        nonce: 32 fresh random bytes.
        is_certified: whether the master has presented a verified TLS certificate.

    Attributes:
        result: how the handshake ended; None before.
        challenge: of the master, once it has proven itself.
        master_tags: tags of the master's frames; None without a secret.
        slave_tags: tags of the frames to the master.
    """

    def __init__(
        self,
        identity: PairIdentity,
        log: ComparedLog,
        *,
        nonce: bytes,
        is_certified: bool = False,
    ) -> None:
        self._identity = identity
        self._log = log
        self._is_certified = is_certified
        self._reader = HandshakeReader()
        self._hello = Hello(
            cluster=identity.cluster,
            name=identity.name,
            id=identity.broker_id,
            nonce=nonce,
            log=log.identity,
            min=log.min_phy_offset,
            end=log.end_phy_offset,
            file=log.file_bytes,
            disk=identity.reports_disk,
        )
        self.challenge: Challenge | None = None
        self.master_tags: FrameTags | None = None
        self.slave_tags: FrameTags | None = None
        self.result: Accepted | Refused | Diverged | None = None

    def start(self) -> bytes:
        """Return the first bytes to send."""
        return PREAMBLE + encode_handshake(self._hello)

    def feed(self, data: bytes) -> bytes:
        """Add received bytes, and return the bytes to send; see `result`.

        Raises:
            ProtocolError: the peer sent no message of this handshake.
        """
        self._reader.feed(data)
        sent = b""
        while self.result is None and (received := self._reader.next()) is not None:
            sent += self._answer(received)
        return sent

    def rest(self) -> bytes:
        """Return the bytes after the handshake: the first frames."""
        return self._reader.rest()

    def _answer(self, received: Handshake) -> bytes:
        message = received.message
        if isinstance(message, Challenge) and self.challenge is None:
            return self._prove(message, received.body)
        if isinstance(message, Accept | Refuse) and self.challenge is not None:
            if self.master_tags is not None:
                self.master_tags.check(message.proof, without_proof(received.body))
            if isinstance(message, Accept):
                self._accept(message)
            else:
                self.result = Refused(message, self._hello)
            return b""
        raise BadFrameError(f"{type(message).__name__} is out of order in the handshake")

    def _prove(self, challenge: Challenge, body: bytes) -> bytes:
        secret = self._identity.secret
        hello, signed = encode_body(self._hello), without_proof(body)
        wanted = _proof(secret, _MASTER, hello, signed)
        if not (secret or self._is_certified) or not hmac.compare_digest(wanted, challenge.proof):
            text = "the master does not prove that it knows the secret"
            refusal = Refuse(code=Refusal.NOT_PROVEN, offset=-1, text=text)
            self.result = Refused(refusal, self._hello, is_proven=False)
            return b""
        self.challenge = challenge
        self.result = self._compare_epochs(challenge)
        if self.result is not None:
            return b""
        # One read may contain ACCEPT and much of the log.
        self._reader.expect_frames()
        start = max(self._hello.min, challenge.min)
        last_bytes = min(max(challenge.tail, self._log.tail_bytes), MAX_TAIL_BYTES)
        samples = self._log.samples(start, MAX_SAMPLES, _SAMPLE_BYTES, last_bytes)
        self.master_tags = _frame_tags(secret, _MASTER, hello, signed)
        self.slave_tags = _frame_tags(secret, _SLAVE, hello, signed)
        answer = Proof(proof=b"", samples=list(samples))
        proof = _proof(secret, _SLAVE, hello, signed, encode_body(answer))
        return encode_handshake(msgspec.structs.replace(answer, proof=proof))

    def _compare_epochs(self, challenge: Challenge) -> Refused | Diverged | None:
        """Return why the log cannot be continued by the master's; None if it can.

        An empty log, and one that was written without a controller, has no epochs: the samples
        decide alone. Epochs of logs with different identities say nothing about each other, and
        the master refuses such a log.
        """
        hello, own = self._hello, self._log.epochs
        if not own or not challenge.epochs or hello.end <= hello.min:
            return None
        if hello.log and challenge.log and hello.log != challenge.log:
            return None
        epochs = epochs_of(challenge)
        if own[-1].number > epochs[-1].number:
            # The controller has lost elections: its state must not lead to a cut.
            text = (
                f"this log has epoch {own[-1].number}, the master only {epochs[-1].number}: the "
                "state of the controller is older than the logs"
            )
            return Refused(_refuse(Refusal.DIFFERENT_LOG, text, hello.min), hello)
        end = equal_end(own, hello.end, epochs, challenge.end)
        if end is None:
            text = "no epoch of this log is in the epoch list of the master"
            return Refused(_refuse(Refusal.DIFFERENT_LOG, text, hello.min), hello)
        return Diverged(end) if end < hello.end else None

    def _accept(self, message: Accept) -> None:
        hello, file_bytes = self._hello, self._log.file_bytes
        is_empty = hello.end <= hello.min
        fits = message.start % file_bytes == 0 if is_empty else message.start == hello.end
        if not fits:
            raise BadFrameError(
                f"the master starts at {message.start}, the log ends at {hello.end}"
            )
        self.result = Accepted(hello, message.start)
