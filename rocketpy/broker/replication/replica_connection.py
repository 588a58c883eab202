"""Connection of one slave to a master's HA port: admission, the stream, and the slave's reports.

A connection has these phases, in this order, and is closed at the first bytes that are not allowed
in its phase::

    OPENING      its first eight bytes choose the protocol; Apache's two by address only
    HANDSHAKE    pair protocol: it proves itself, and the logs are compared; AutoSwitch protocol: it
                 compares the epoch lists, and reports where its log ends
    STREAMING    it receives the log, and reports its progress

Source: DefaultHAConnection, AutoSwitchHAConnection (5.4.0).
"""

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Protocol, cast

import structlog

from rocketpy.broker.replication.acknowledgements import (
    Acknowledgements,
    ReplicaKey,
    ReplicaProgress,
)
from rocketpy.broker.replication.auto_switch import AutoSwitchMaster
from rocketpy.broker.replication.config import HaProtocol, ReplicationConfig
from rocketpy.broker.replication.handshake import (
    Accepted,
    ComparedLog,
    MasterHandshake,
    PairIdentity,
    Refused,
)
from rocketpy.broker.replication.transfer import AppendRate, TransferPace
from rocketpy.errors import BadFrameError, ProtocolError, ResourceShortError
from rocketpy.proto.replication import auto_switch_frames, classic_frames, pair_frames
from rocketpy.proto.replication.pair_frames import DiskState, FrameTags, Refusal, Refuse
from rocketpy.remoting.network.acceptor import AcceptedProtocol

logger: Any = structlog.get_logger(__name__)

_FIRST_BYTES: Final = 8
_HANDSHAKE_MS: Final = 5_000
_PROBE_MS: Final = 1_000
_HIGH_BYTES: Final = 1 << 20
_LOW_BYTES: Final = 256 << 10
_TURN_BYTES: Final = 1 << 20
"""Budget of one connection before the loop serves others, so that a catch-up blocks nothing."""
_BACKGROUND_LAG_BYTES: Final = 4 << 20
"""Lag from which parts are read on another thread: they may come from the disk."""


class Phase(Enum):
    """Phase of a connection."""

    OPENING = auto()
    HANDSHAKE = auto()
    STREAMING = auto()
    CLOSED = auto()


class MasterLog(ComparedLog, Protocol):
    """Log that is sent."""

    def part(self, phy_offset: int, max_bytes: int) -> memoryview | None:
        """Return bytes of the log, never across the end of a file."""
        ...


class ReplicaOwner(Protocol):
    """HA port, as its connections see it."""

    config: ReplicationConfig
    identity: PairIdentity
    log: MasterLog
    acknowledgements: Acknowledgements
    rate: AppendRate
    loop: asyncio.AbstractEventLoop

    def now_ms(self) -> int:
        """Monotonic time, ms."""
        ...

    def timer(self) -> float:
        """Time in seconds with the resolution of microseconds, to measure work."""
        ...

    def new_nonce(self) -> bytes:
        """Return 32 fresh random bytes."""
        ...

    def is_taken(self, broker_id: int) -> bool:
        """Return whether a live connection has a broker id; it is probed."""
        ...

    def accepted(self, connection: "ReplicaConnection") -> None:
        """Note that a slave is served."""
        ...

    def refused(self, connection: "ReplicaConnection", refusal: Refuse) -> None:
        """Note that a known slave is refused."""
        ...

    def reported(self) -> None:
        """Publish the changes of a report."""
        ...

    def closed(self, connection: "ReplicaConnection") -> None:
        """Forget a connection."""
        ...


@dataclass(slots=True)
class _Stream:
    """Part of a connection that exists once it is served."""

    progress: ReplicaProgress
    pace: TransferPace
    sent: int
    head: Callable[[int, bytes], bytes]
    read: Callable[[bytes], None]
    # Of the AutoSwitch protocol alone.
    auto_switch: AutoSwitchMaster | None = None


class ReplicaConnection(AcceptedProtocol):
    """Connection of a slave; lives on the loop of its owner.

    Attributes:
        ip: address of the peer.
        phase: see the module.
        broker_id: of the slave; None: unknown, as with the classic protocol.
        protocol: that it speaks; None before it has sent a frame.
        stream: progress of the transfer; None before STREAMING.
        bytes_per_s: bytes sent in the last second.
    """

    def __init__(self, owner: ReplicaOwner, ip: str) -> None:
        super().__init__()
        self.ip: str = ip
        self.phase: Phase = Phase.OPENING
        self.broker_id: int | None = None
        self.protocol: HaProtocol | None = None
        self.stream: _Stream | None = None
        self.gone: asyncio.Future[None] = owner.loop.create_future()
        self._owner = owner
        self._transport: asyncio.Transport
        self._opening = b""
        self._handshake: MasterHandshake
        self._auto_switch: AutoSwitchMaster
        self._handshake_ms = _HANDSHAKE_MS
        self._probe_ms = _PROBE_MS
        self._opened_ms = self._read_ms = self._written_ms = owner.now_ms()
        self._probed_ms: int | None = None
        self._sent_confirmed = 0
        self._is_paused = False
        self._is_reading = False
        self._timer: asyncio.Handle | None = None

    @property
    def address(self) -> str:
        """Address of the peer, for logs and operators."""
        peer = self._transport.get_extra_info("peername") if self.is_attached else None
        return f"{peer[0]}:{peer[1]}" if peer else self.ip

    @property
    def is_streaming(self) -> bool:
        """Whether the slave is served."""
        return self.phase is Phase.STREAMING

    # -- asyncio.Protocol --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first bytes."""
        # Not checked: the transports of uvloop are no subclasses.
        transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(_HIGH_BYTES, _LOW_BYTES)
        self._transport = transport
        self.is_attached = True

    def data_received(self, data: bytes) -> None:
        """Process received bytes; the connection is closed if they are not allowed."""
        if self.phase is Phase.CLOSED:
            return
        self._read_ms, self._probed_ms = self._owner.now_ms(), None
        try:
            if self.stream is not None:
                self.stream.read(data)
            elif self.phase is not Phase.HANDSHAKE:
                self._open(data)
            elif self.protocol is HaProtocol.PAIR:
                self._shake(data)
            else:
                self._shake_auto_switch(data)
        except ProtocolError as error:
            self.abort(str(error))

    def eof_received(self) -> bool:
        """Close when the peer has finished sending."""
        return False

    def pause_writing(self) -> None:
        """Stop sending: the slave does not keep up."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Continue to send."""
        self._is_paused = False
        self.send_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        was_streaming = self.phase is Phase.STREAMING
        self.phase = Phase.CLOSED
        if self._timer is not None:
            self._timer.cancel()
        if not self.gone.done():
            self.gone.set_result(None)
        if was_streaming:
            logger.info(
                "slave disconnected", peer=self.ip, broker_id=self.broker_id, error=str(exc or "")
            )
        self._owner.closed(self)

    def abort(self, reason: str) -> None:
        """Close at once."""
        if self.phase is Phase.CLOSED:
            return
        logger.warning(
            "slave connection closed", peer=self.ip, broker_id=self.broker_id, reason=reason
        )
        if self.is_attached:
            self._transport.abort()

    def close(self) -> None:
        """Close after the written bytes have been sent."""
        if self.is_attached:
            self._transport.close()

    # -- admission ---------------------------------------------------------------------------

    def _open(self, data: bytes) -> None:
        self._opening += data
        if len(self._opening) < _FIRST_BYTES:
            return
        owner = self._owner
        if self._opening.startswith(pair_frames.PREAMBLE):
            self._begin_handshake()
        elif not owner.config.allows_classic(self.ip):
            raise BadFrameError(
                "it speaks no pair protocol, and its address is not in haAllowedPeers"
            )
        elif owner.log.epochs and auto_switch_frames.is_slave_hello(self._opening):
            self.protocol, self.phase = HaProtocol.AUTO_SWITCH, Phase.HANDSHAKE
            self._auto_switch = AutoSwitchMaster(owner.log)
            opening, self._opening = self._opening, b""
            self._shake_auto_switch(opening)
        else:
            self.protocol = HaProtocol.CLASSIC
            self._accept_classic(self._opening)

    def _begin_handshake(self) -> None:
        owner = self._owner
        self.protocol = HaProtocol.PAIR
        is_certified = bool(self._transport.get_extra_info("peercert"))
        if not (owner.identity.secret or is_certified):
            raise BadFrameError("a slave needs a secret (replicationSecretFile) or a certificate")
        if owner.config.ha_tls_enable and not is_certified:
            raise BadFrameError("haTlsEnable is set, and it presents no certificate")
        self._handshake = MasterHandshake(
            owner.identity,
            owner.log,
            nonce=owner.new_nonce(),
            is_certified=is_certified,
            is_taken=owner.is_taken,
        )
        self.phase = Phase.HANDSHAKE
        rest, self._opening = self._opening[_FIRST_BYTES:], b""
        self._shake(rest)

    def _shake(self, data: bytes) -> None:
        handshake = self._handshake
        answer = handshake.feed(data)
        if answer:
            self._transport.write(answer)
        result = handshake.result
        if isinstance(result, Refused):
            self.broker_id = result.hello.id if result.hello is not None else None
            self._refuse(result.refusal, is_known=result.is_proven)
        elif isinstance(result, Accepted):
            self.broker_id = result.hello.id
            reader = pair_frames.ReportReader(handshake.slave_tags)
            tags = handshake.master_tags
            self._start(
                ReplicaKey(HaProtocol.PAIR.value, result.hello.id),
                start=result.start,
                max_frame_bytes=pair_frames.MAX_PART_BYTES,
                head=lambda offset, part: self._pair_head(offset, part, tags),
                read=lambda more: self._pair_reports(reader.feed(more)),
            )
            self._reported(result.hello.end, 0, DiskState.WRITING)
            self.data_received(handshake.rest())

    def _refuse(self, refusal: Refuse, *, is_known: bool) -> None:
        if is_known:
            self._owner.refused(self, refusal)
        else:
            logger.warning("slave not proven", peer=self.ip, reason=refusal.text)
        self.phase = Phase.CLOSED
        self._transport.close()

    def _accept_classic(self, data: bytes) -> None:
        """Serve a peer of the classic protocol from its first report on."""
        reader = classic_frames.ReportReader()
        first, *more = reader.feed(data)
        refusal = self._refusal_of(first)
        if refusal is not None:
            self._refuse(refusal, is_known=True)
            return
        # A slave with an empty log receives the complete log; Apache's master sends the last file.
        self._start(
            ("classic", self.ip),
            start=first or self._owner.log.min_phy_offset,
            max_frame_bytes=self._owner.config.ha_transfer_batch_size,
            head=lambda offset, part: classic_frames.encode_transfer_head(offset, len(part)),
            read=lambda received: self._end_reports(reader.feed(received)),
        )
        self._end_reports((first, *more))

    def _refusal_of(self, first: int) -> Refuse | None:
        """Return why a slave whose log ends at an offset is refused; None if it is served."""
        low, end = self._owner.log.min_phy_offset, self._owner.log.end_phy_offset
        if first < 0:
            raise BadFrameError(f"it reports offset {first}")
        if 0 < first < low:
            text = f"the slave ends at {first}, the master deleted everything before {low}"
            return Refuse(code=Refusal.BEHIND_RANGE, offset=low, text=text)
        if first > end:
            text = f"the slave ends at {first}, beyond the master's end {end}"
            return Refuse(code=Refusal.BEYOND_END, offset=end, text=text)
        return None

    def _shake_auto_switch(self, data: bytes) -> None:
        """Answer a hello of the AutoSwitch protocol, and serve the slave from its report on."""
        peer = self._auto_switch
        if peer.hello is None:
            hello = peer.open(data)
            if hello is not None:
                self.broker_id = hello.broker_id
                # Apache's slave reports with its next heartbeat; it does not answer heartbeats.
                config = self._owner.config
                self._handshake_ms = config.ha_housekeeping_interval
                self._probe_ms += config.ha_send_heartbeat_interval
                if self._is_free(hello.broker_id):
                    self._transport.write(peer.answer())
            return
        offsets = peer.reports(data)
        if not offsets or not self._is_free(peer.hello.broker_id):
            return
        refusal = self._refusal_of(offsets[0])
        if refusal is not None:
            self._refuse(refusal, is_known=True)
            return
        kind = ReplicaKey(HaProtocol.AUTO_SWITCH.value, peer.hello.broker_id)
        self._start(
            ("learner", kind.broker_id) if peer.hello.is_learner else kind,
            start=offsets[0] or self._owner.log.min_phy_offset,
            max_frame_bytes=auto_switch_frames.MAX_PART_BYTES,
            head=self._auto_switch_head,
            read=lambda received: self._end_reports(peer.reports(received)),
            auto_switch=peer,
        )
        self._end_reports(offsets)

    def _is_free(self, broker_id: int) -> bool:
        """Return whether no other connection has a broker id; otherwise this one is refused."""
        if not self._owner.is_taken(broker_id):
            return True
        text = f"another slave with brokerId {broker_id} is connected"
        self._refuse(Refuse(code=Refusal.SAME_ID, offset=-1, text=text), is_known=True)
        return False

    def _start(
        self,
        key: Hashable,
        *,
        start: int,
        max_frame_bytes: int,
        head: Callable[[int, bytes], bytes],
        read: Callable[[bytes], None],
        auto_switch: AutoSwitchMaster | None = None,
    ) -> None:
        owner, config = self._owner, self._owner.config
        limit = config.max_ha_transfer_byte_in_second if config.ha_flow_control_enable else None
        pace = TransferPace(
            owner.rate,
            batch_bytes=config.ha_transfer_batch_size,
            max_frame_bytes=max_frame_bytes,
            limit_bytes_per_s=limit,
        )
        # A broker id that was not proven counts once the controller has listed it.
        progress = owner.acknowledgements.add(key, owner.now_ms(), counts=auto_switch is None)
        self.stream = _Stream(progress, pace, start, head, read, auto_switch)
        self.phase = Phase.STREAMING
        logger.info(
            "slave accepted",
            peer=self.ip,
            broker_id=self.broker_id,
            protocol=self.protocol and self.protocol.value,
            phy_offset=start,
        )
        owner.accepted(self)
        self.send_soon()

    # -- reports -----------------------------------------------------------------------------

    def _end_reports(self, offsets: Sequence[int]) -> None:
        """Take reports of Apache's protocols, which name the end of the slave's log."""
        for offset in offsets:
            self._check_report(offset, offset)
        if offsets:
            self._reported(offsets[-1], offsets[-1], DiskState.WRITING)

    def _pair_reports(self, reports: list[pair_frames.Report]) -> None:
        for report in reports:
            self._check_report(report.received, report.confirmed)
        if reports:
            self._reported(*reports[-1])

    def _check_report(self, received: int, confirmed: int) -> None:
        """Reject offsets that were never sent, and offsets that go back."""
        assert self.stream is not None
        progress, sent = self.stream.progress, self.stream.sent
        if not progress.received <= received <= sent:
            raise BadFrameError(
                f"it reports offset {received}; sent {sent}, reported {progress.received}"
            )
        if confirmed < progress.confirmed:
            raise BadFrameError(
                f"it confirms offset {confirmed}, after it confirmed {progress.confirmed}"
            )
        progress.received, progress.confirmed = received, confirmed

    def _reported(self, received: int, confirmed: int, state: DiskState) -> None:
        assert self.stream is not None
        owner, progress = self._owner, self.stream.progress
        if state is not progress.state:
            logger.warning("slave disk state changed", peer=self.ip, state=state.name)
        owner.acknowledgements.report(progress, received, confirmed, state, owner.now_ms())
        owner.reported()

    # -- the stream --------------------------------------------------------------------------

    def send_soon(self, delay_s: float = 0.0) -> None:
        """Send in a later iteration of the loop, unless that is scheduled already."""
        if self._timer is None and self.phase is Phase.STREAMING:
            loop = self._owner.loop
            if delay_s > 0:
                self._timer = loop.call_later(delay_s, self._send_scheduled)
            else:
                self._timer = loop.call_soon(self._send_scheduled)

    def _send_scheduled(self) -> None:
        self._timer = None
        self.send()

    def send(self) -> None:
        """Send parts of the log, as far as the slave, the pace and the loop's budget allow."""
        stream = self.stream
        if stream is None or self._is_paused or self._is_reading or self._timer is not None:
            return
        log, loop = self._owner.log, self._owner.loop
        left_bytes = _TURN_BYTES
        while self.phase is Phase.STREAMING and not self._is_paused:
            lag_bytes = log.end_phy_offset - stream.sent
            if lag_bytes <= 0:
                return
            wait_s = stream.pace.wait_s(loop.time())
            if wait_s > 0 or left_bytes <= 0:
                self.send_soon(wait_s)
                return
            size_bytes = stream.pace.frame_bytes(lag_bytes)
            if lag_bytes >= _BACKGROUND_LAG_BYTES:
                self._read_in_background(size_bytes, lag_bytes)
                return
            left_bytes -= size_bytes
            began_s = self._owner.timer()
            try:
                frame = self._frame(stream.sent, size_bytes)
            except (OSError, ResourceShortError) as error:
                self.abort(f"the log cannot be read: {error}")
                return
            self._write(frame, lag_bytes, began_s)

    def _frame(self, phy_offset: int, size_bytes: int) -> tuple[bytes, bytes] | None:
        """Return head and bytes of the next frame; None if retention has deleted them."""
        assert self.stream is not None
        if self.stream.auto_switch is not None:
            size_bytes = self.stream.auto_switch.part_bytes(phy_offset, size_bytes)
        part = self._owner.log.part(phy_offset, size_bytes)
        if not part:
            return None
        # Copied: the transport may hold the bytes for long, and a view would keep the file mapped.
        data = bytes(part)
        return self.stream.head(phy_offset, data), data

    def _write(self, frame: tuple[bytes, bytes] | None, lag_bytes: int, began_s: float) -> None:
        stream, owner = self.stream, self._owner
        assert stream is not None
        if frame is None:
            self.abort(f"the log has no bytes at {stream.sent}: the slave was too slow")
            return
        head, data = frame
        self._transport.write(head)
        self._transport.write(data)
        stream.sent += len(data)
        self._written_ms = owner.now_ms()
        used_s = owner.timer() - began_s
        stream.pace.sent(len(data), lag_bytes, used_s, owner.loop.time())

    def _read_in_background(self, size_bytes: int, lag_bytes: int) -> None:
        """Read and check a part on another thread: old parts come from the disk."""
        owner, stream = self._owner, self.stream
        assert stream is not None
        self._is_reading = True
        began_s = owner.timer()
        reading = owner.loop.run_in_executor(None, self._frame, stream.sent, size_bytes)

        def was_read(done: asyncio.Future[tuple[bytes, bytes] | None]) -> None:
            self._is_reading = False
            if done.cancelled() or self.phase is not Phase.STREAMING:
                return
            error = done.exception()
            if error is not None:
                self.abort(f"the log cannot be read: {error}")
                return
            self._write(done.result(), lag_bytes, began_s)
            self.send()

        reading.add_done_callback(was_read)

    def _pair_head(self, phy_offset: int, data: bytes, tags: FrameTags | None) -> bytes:
        # Tags number the frames: each head that is made must be sent, in this order.
        confirmed = self._sent_confirmed = self._owner.acknowledgements.confirmed_end
        return pair_frames.encode_data_head(phy_offset, data, confirmed, tags)

    def _auto_switch_head(self, phy_offset: int, data: bytes) -> bytes:
        confirmed = self._sent_confirmed = self._owner.acknowledgements.confirmed_end
        return self._auto_switch.part_head(phy_offset, len(data), confirmed)

    # -- deadlines ---------------------------------------------------------------------------

    def probe(self, now_ms: int) -> None:
        """Ask for a report; the connection closes if none arrives within a second."""
        if self._probed_ms is None:
            self._probed_ms = now_ms
            self._heartbeat(now_ms)

    def tick(self, now_ms: int) -> None:
        """Close a silent peer, and send heartbeats; called several times a second."""
        config = self._owner.config
        if not self.is_streaming:
            if now_ms - self._opened_ms >= self._handshake_ms:
                self.abort("it has not proven itself in time")
            return
        if self._probed_ms is not None and now_ms - self._probed_ms >= self._probe_ms:
            self.abort("it does not answer, and the same broker id has connected again")
        elif now_ms - self._read_ms >= config.ha_housekeeping_interval:
            self.abort("it is silent (haHousekeepingInterval)")
        elif now_ms - self._written_ms >= config.ha_send_heartbeat_interval or self._has_news():
            self._heartbeat(now_ms)

    def _has_news(self) -> bool:
        """Return whether consumers of a slave that a controller may elect may read more by now."""
        acknowledgements = self._owner.acknowledgements
        if not acknowledgements.has_controller or self._is_paused:
            return False
        return self._sent_confirmed < acknowledgements.confirmed_end

    def _heartbeat(self, now_ms: int) -> None:
        if self.stream is not None and not self._is_reading:
            self._written_ms = now_ms
            self._transport.write(self.stream.head(self.stream.sent, b""))
