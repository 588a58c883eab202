"""Connection of a slave to the HA port of its master, in any of the three protocols.

Source: DefaultHAClient, AutoSwitchHAClient (5.4.0).
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, cast

import structlog

from rocketpy.broker.cluster.membership import Membership
from rocketpy.broker.replication.auto_switch import AutoSwitchSlave
from rocketpy.broker.replication.config import HaProtocol, ReplicationConfig
from rocketpy.broker.replication.handshake import (
    Accepted,
    Diverged,
    PairIdentity,
    Refused,
    SlaveHandshake,
    epochs_of,
)
from rocketpy.broker.replication.replica_state import Event
from rocketpy.broker.replication.store_log import LogCopy
from rocketpy.errors import RocketPyError
from rocketpy.proto.replication import auto_switch_frames, classic_frames, pair_frames
from rocketpy.proto.replication.auto_switch_frames import EpochPart
from rocketpy.proto.replication.pair_frames import Refusal, Report
from rocketpy.runtime.clock import Clock

logger: Any = structlog.get_logger(__name__)

_HANDSHAKE_MS: Final = 5_000
_TICK_S: Final = 1.0
_RETRY_S: Final = 0.5
_QUEUED_BYTES: Final = 1 << 20
"""Received bytes that wait for the store; above it, reading pauses."""


class LinkEnd(NamedTuple):
    """End of a connection.

    Attributes:
        reason: text for operators.
        refusal: of the master, or of this slave; None if the connection was lost.
    """

    reason: str
    refusal: Refusal | None = None


class _Part(Protocol):
    """Part of the log in any protocol."""

    @property
    def phy_offset(self) -> int:
        """Physical offset of the first byte."""
        ...

    @property
    def data(self) -> bytes | memoryview:
        """Bytes of the log; empty for a heartbeat."""
        ...


class MasterLink(asyncio.Protocol):
    """Connection to a master.

    Args:
        ha_address: its address.
        config: settings.
        identity: this broker.
        copy: the log that is written.
        protocol: to speak.
        loop: the loop that it lives on.
        clock: time.
        nonce: 32 fresh random bytes.
        on_event: receives the events of the slave's state, with reasons.
        on_data: called when the first part or heartbeat arrives.
        membership: of a group with a controller.

    Attributes:
        ended: done when the connection is over.
        protocol: as given.
        read_ms: wall time of the last bytes from the master; 0: none.
        written_ms: wall time of the last report; 0: none.
        confirmed: end of the log that enough replicas have, by the last frame of the master.
    """

    def __init__(  # noqa: PLR0913 - all dependencies are injected here
        self,
        ha_address: str,
        *,
        config: ReplicationConfig,
        identity: PairIdentity,
        copy: LogCopy,
        protocol: HaProtocol,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        nonce: bytes,
        on_event: Callable[[Event, str], object],
        on_data: Callable[[], None],
        membership: Membership | None = None,
    ) -> None:
        self.ha_address: str = ha_address
        self.protocol: HaProtocol = protocol
        self.ended: asyncio.Future[LinkEnd] = loop.create_future()
        self.read_ms: int = 0
        self.written_ms: int = 0
        self.confirmed: int = 0
        self._config = config
        self._identity = identity
        self._copy = copy
        self._loop = loop
        self._clock = clock
        self._nonce = nonce
        self._on_event = on_event
        self._on_data = on_data
        self._membership = membership or Membership()
        # Another replica may be elected, and continue without what is not confirmed: consumers must
        # not have seen that. A classic master does not report what is.
        self._hides = membership is not None and protocol is not HaProtocol.CLASSIC
        self._transport: asyncio.Transport | None = None
        self._handshake: SlaveHandshake | None = None
        self._auto_switch: AutoSwitchSlave | None = None
        self._feed: Callable[[bytes], list[Any]]
        self._is_streaming = False
        self._is_stalled = False
        self._has_flush_failed = False
        self._is_paused = False
        self._has_data = False
        self._last: Report | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        self._step_timer: asyncio.Handle | None = None
        self._opened_ms = self._read_at_ms = self._wrote_at_ms = clock.monotonic_ms()

    # -- asyncio.Protocol --------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, or report at once to a classic master."""
        # Not checked: the transports of uvloop are no subclasses.
        transport = cast("asyncio.Transport", transport)
        self._transport = transport
        if self.ended.done():  # the slave stopped meanwhile
            transport.abort()
            return
        try:
            self._copy.begin()
        except (RocketPyError, OSError) as error:
            self._end(LinkEnd(str(error)))
            return
        self._tick_timer = self._loop.call_later(_TICK_S, self._tick)
        if self.protocol is HaProtocol.CLASSIC:
            self._accepted(classic_frames.TransferReader().feed)
            return
        if self.protocol is HaProtocol.AUTO_SWITCH:
            self._auto_switch = AutoSwitchSlave(
                self._identity.broker_id, self._copy, self._membership.master_epoch()
            )
            self._on_event(Event.CONNECTED, "")
            transport.write(self._auto_switch.start())
            return
        is_certified = bool(transport.get_extra_info("peercert"))
        if self._config.ha_tls_enable and not is_certified:
            self._end(LinkEnd("the master presents no certificate", Refusal.NOT_PROVEN))
            return
        self._handshake = SlaveHandshake(
            self._identity, self._copy, nonce=self._nonce, is_certified=is_certified
        )
        self._on_event(Event.CONNECTED, "")
        transport.write(self._handshake.start())

    def data_received(self, data: bytes) -> None:
        """Process received bytes; a fault ends the connection."""
        if self.ended.done():
            return
        self._read_at_ms, self.read_ms = self._clock.monotonic_ms(), self._clock.time_ms()
        try:
            if self._is_streaming:
                self._receive(data)
            else:
                self._shake(data)
        # A fault of the peer or the store must not leave a connection without reports.
        except (RocketPyError, OSError) as error:
            self._end(LinkEnd(str(error)))

    def eof_received(self) -> bool:
        """Close when the master has finished sending."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        self._end(LinkEnd(str(exc) if exc else "the master has closed the connection"))

    def abort(self, reason: str) -> None:
        """End the connection now."""
        self._end(LinkEnd(reason))

    def _end(self, end: LinkEnd) -> None:
        for timer in (self._tick_timer, self._step_timer):
            if timer is not None:
                timer.cancel()
        if not self.ended.done():
            self.ended.set_result(end)
        if self._transport is not None:
            self._transport.abort()

    # -- handshake ---------------------------------------------------------------------------

    def _accepted(self, feed: Callable[[bytes], list[Any]]) -> None:
        """Report the end of the log, and read the following bytes as the master's stream."""
        self._feed = feed
        self._on_event(Event.ACCEPTED, "")
        self._is_streaming = True
        if not self._hides:
            self._copy.show_all()
        self._send_report(must=True)
        self._copy.when_flushed(self._flushed_on_any_thread)

    def _shake_auto_switch(self, slave: AutoSwitchSlave, data: bytes) -> None:
        if not slave.feed(data):
            return
        if slave.result is not None:
            self._refused(slave.result)
            return
        self._follow_epochs(slave, self._copy.end_phy_offset)
        self._accepted(auto_switch_frames.PartFrameReader().feed)
        self._receive(slave.rest())

    def _follow_epochs(self, slave: AutoSwitchSlave, end: int) -> None:
        """Store the epochs of the log up to an offset, before its bytes."""
        epochs = slave.epochs_to(end)
        if epochs is not None:
            self._membership.on_followed(epochs)

    def _refused(self, result: Refused | Diverged) -> None:
        if isinstance(result, Refused):
            self._end(LinkEnd(result.refusal.text, Refusal(result.refusal.code)))
            return
        text = f"the log must be cut at {result.end}, where the master's continues differently"
        self._end(LinkEnd(text, Refusal.DIFFERENT_LOG))
        self._membership.on_diverged(result.end)

    def _shake(self, data: bytes) -> None:
        if self._auto_switch is not None:
            self._shake_auto_switch(self._auto_switch, data)
            return
        handshake, transport = self._handshake, self._transport
        assert handshake is not None
        assert transport is not None
        answer = handshake.feed(data)
        if answer:
            transport.write(answer)
        result = handshake.result
        if isinstance(result, Refused | Diverged):
            self._refused(result)
        elif isinstance(result, Accepted):
            assert handshake.challenge is not None
            # Before the first byte of the master's log: an empty log takes the identity with it.
            self._copy.adopt(handshake.challenge.log)
            if handshake.challenge.epochs:
                self._membership.on_followed(epochs_of(handshake.challenge))
            self._accepted(pair_frames.DataReader(handshake.master_tags).feed)
            self._receive(handshake.rest())

    # -- the stream --------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        parts: list[_Part] = self._feed(data)
        if not parts:
            return
        if not self._has_data:
            self._has_data = True
            self._on_data()
        is_heartbeat = False
        for part in parts:
            if self._auto_switch is not None:
                self._auto_switch.check(cast("EpochPart", part))
            self._copy.receive(part.phy_offset, part.data)
            if self._auto_switch is not None:
                self._follow_epochs(self._auto_switch, part.phy_offset + len(part.data))
            is_heartbeat = is_heartbeat or not part.data
        last = parts[-1]
        if isinstance(last, pair_frames.Data | EpochPart):
            self.confirmed = last.confirmed
        if self._hides:
            self._copy.show_to(self.confirmed)
        must_report = is_heartbeat and self.protocol is not HaProtocol.CLASSIC
        if self._step_timer is None and not self._is_stalled:
            self._step(must_report=must_report)
        elif must_report:
            self._send_report(must=True)
        self._settle_reading()

    def _step(self, *, must_report: bool = False) -> None:
        """Append a part of the received bytes, and report the progress."""
        can_write = self._copy.step()
        if not can_write:
            self._stall()
        elif self._is_stalled:
            self._is_stalled = False
            self._on_event(Event.WRITE_SUCCEEDED, "")
        self._send_report(must=must_report)
        if can_write and not self._has_flush_failed:
            self._copy.when_flushed(self._flushed_on_any_thread)
        self._has_flush_failed = False
        if not can_write:
            self._step_timer = self._loop.call_later(_RETRY_S, self._step_again)
        elif self._copy.queued_bytes:
            # In a later iteration: the loop also serves the clients of this broker.
            self._step_timer = self._loop.call_soon(self._step_again)

    def _step_again(self) -> None:
        self._step_timer = None
        if self.ended.done():
            return
        try:
            self._step()
        except (RocketPyError, OSError) as error:
            self._end(LinkEnd(str(error)))
            return
        self._settle_reading()

    def _stall(self) -> None:
        if not self._is_stalled:
            self._is_stalled = True
            self._on_event(Event.WRITE_FAILED, self._copy.reason)

    def _settle_reading(self) -> None:
        """Pause reading while the store is behind."""
        transport = self._transport
        should_pause = self._copy.queued_bytes > _QUEUED_BYTES
        if transport is None or transport.is_closing() or should_pause == self._is_paused:
            return
        self._is_paused = should_pause
        if should_pause:
            transport.pause_reading()
        else:
            transport.resume_reading()
            self._read_at_ms = self._clock.monotonic_ms()

    # -- reports -----------------------------------------------------------------------------

    def _flushed_on_any_thread(self, is_durable: bool) -> None:
        try:
            self._loop.call_soon_threadsafe(self._flushed, is_durable)
        except RuntimeError:  # the loop is closed
            logger.debug("loop closed, flush not reported")

    def _flushed(self, is_durable: bool) -> None:
        if self.ended.done() or not self._is_streaming:
            return
        if is_durable:
            self._send_report()
            self._copy.when_flushed(self._flushed_on_any_thread)
            return
        # A failed flush is found by an append, at once; a slow one is waited for by the next tick.
        self._has_flush_failed = True
        self._copy.check_soon()
        if self._step_timer is None:
            self._step_again()

    def _send_report(self, *, must: bool = False) -> None:
        """Report the progress, if it has changed."""
        report = self._copy.report
        if self._transport is None or not (must or report != self._last):
            return
        is_first = self._last is None
        if is_first and self._auto_switch is not None and report.confirmed < report.received:
            # The report sets the start of the transfer, and counts as a confirmation, too.
            return
        self._last = report
        self._wrote_at_ms, self.written_ms = self._clock.monotonic_ms(), self._clock.time_ms()
        if self._handshake is not None:
            self._transport.write(pair_frames.encode_report(report, self._handshake.slave_tags))
        elif self._auto_switch is not None:
            self._transport.write(auto_switch_frames.encode_report(report.confirmed))
        else:
            # A classic master begins at the first report, so that is the end of the log.
            offset = report.confirmed if self._has_data else report.received
            self._transport.write(classic_frames.encode_report(offset))

    def _tick(self) -> None:
        """Close a silent master, and report regularly."""
        now_ms = self._clock.monotonic_ms()
        self._tick_timer = self._loop.call_later(_TICK_S, self._tick)
        if not self._is_streaming:
            if now_ms - self._opened_ms >= _HANDSHAKE_MS:
                self._end(LinkEnd("the handshake takes too long"))
            return
        silent_ms = now_ms - self._read_at_ms
        if silent_ms >= self._config.ha_housekeeping_interval and not self._is_paused:
            self._end(LinkEnd("the master is silent (haHousekeepingInterval)"))
            return
        try:
            can_write = self._step_timer or self._copy.queued_bytes or self._copy.check()
        except (RocketPyError, OSError) as error:
            self._end(LinkEnd(str(error)))
            return
        if not can_write:
            self._stall()
            self._step_timer = self._loop.call_later(_RETRY_S, self._step_again)
        is_due = now_ms - self._wrote_at_ms >= self._config.ha_send_heartbeat_interval
        self._send_report(must=is_due)
        if not self._is_stalled:
            self._copy.when_flushed(self._flushed_on_any_thread)
