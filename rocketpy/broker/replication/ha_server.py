"""HA port of a master: accepts slaves, sends them the log, and publishes their confirmations.

Everything runs on the loop that calls `start`, except `wake`.

Source: DefaultHAService, GroupTransferService (5.4.0).
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from rocketpy.broker.replication.acknowledgements import NO_BOUND, Acknowledgements
from rocketpy.broker.replication.config import HaProtocol, ReplicationConfig
from rocketpy.broker.replication.handshake import PairIdentity
from rocketpy.broker.replication.replica_connection import MasterLog, ReplicaConnection
from rocketpy.broker.replication.store_log import ReplicaOffsets
from rocketpy.broker.replication.transfer import AppendRate
from rocketpy.proto.replication.pair_frames import Refuse
from rocketpy.remoting.network.acceptor import Acceptor
from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.network import ListenEndpoint, Listening, Network
from rocketpy.runtime.clock import Clock

logger: Any = structlog.get_logger(__name__)

_MAX_CONNECTIONS: Final = 64
_MAX_PER_IP: Final = 16
_MAX_UNPROVEN: Final = 16
_MAX_REFUSALS: Final = 64
_MAX_KNOWN: Final = 64
_POLL_MS: Final = 10
"""Pause after which messages are sent that no sender waits for (ASYNC_MASTER)."""
_WOKEN_POLL_MS: Final = 50
"""The same where senders wait, which wakes the port; it sends the messages of the others."""
_IDLE_MS: Final = 100
_SEND_REST_MS: Final = 3_000
"""Longest wait of a stop for slaves; short enough for a supervisor that kills after 10 s."""


@dataclass(frozen=True, slots=True)
class RefusedSlave:
    """Slave that was refused, for GET_BROKER_HA_STATUS.

    Attributes:
        address: its IP address.
        broker_id: None for a peer of the classic protocol.
        protocol: that it speaks.
        refusal: why.
        time_ms: wall time of the last refusal.
    """

    address: str
    broker_id: int | None
    protocol: HaProtocol | None
    refusal: Refuse
    time_ms: int


class HaServer(Acceptor[ReplicaConnection]):
    """HA port of one master.

    Args:
        config: settings.
        identity: this broker, as the handshake names it.
        log: the log that is sent.
        replicas: offsets of the store.
        acknowledgements: progress of the replicas.
        clock: time.
        timer: measures work; seconds with the resolution of microseconds.
        new_nonce: returns 32 fresh random bytes.

    Attributes:
        port: where it listens; 0 before `start`.
        connections: open connections, oldest first.
        refusals: refused slaves, by address and broker id.
        send_refusal: why sends are refused before they are stored; None if they are not.
        on_refusal: called when `send_refusal` has changed.
    """

    def __init__(
        self,
        config: ReplicationConfig,
        *,
        identity: PairIdentity,
        log: MasterLog,
        replicas: ReplicaOffsets,
        acknowledgements: Acknowledgements,
        clock: Clock,
        timer: Callable[[], float],
        new_nonce: Callable[[], bytes],
    ) -> None:
        self.config: ReplicationConfig = config
        self.identity: PairIdentity = identity
        self.log: MasterLog = log
        self.acknowledgements: Acknowledgements = acknowledgements
        self.rate: AppendRate = AppendRate()
        self.loop: asyncio.AbstractEventLoop
        self.timer: Callable[[], float] = timer
        self.new_nonce: Callable[[], bytes] = new_nonce
        self.now_ms: Callable[[], int] = clock.monotonic_ms
        self.port: int = 0
        self.connections: list[ReplicaConnection] = []
        self.refusals: dict[tuple[str, int | None], RefusedSlave] = {}
        self.send_refusal: str | None = None
        self.on_refusal: Callable[[str | None], None] = _ignore
        self._clock = clock
        self._replicas = replicas
        self._admission = Admission(_MAX_CONNECTIONS, _MAX_PER_IP, clock)
        self._listening: Listening | None = None
        # Addresses of slaves that were served, the latest last.
        self._known: dict[str, None] = {}
        self._evicted: set[ReplicaConnection] = set()
        self._opening: dict[ReplicaConnection, asyncio.Future[None]] = {}
        self._tick_timer: asyncio.TimerHandle | None = None
        self._thread_id = 0
        self._is_woken = False
        # None, because the store may wait for replicas since its start.
        self._is_required: bool | None = None
        self._is_stalled = False
        self._advanced_ms = 0

    @property
    def streaming(self) -> list[ReplicaConnection]:
        """Connections of served slaves."""
        return [each for each in self.connections if each.is_streaming]

    # -- start and stop ----------------------------------------------------------------------

    async def start(self, network: Network, endpoint: ListenEndpoint | None) -> None:
        """Start to wait for replicas, and listen.

        Args:
            network: for listening.
            endpoint: the HA port; None for a master without slaves, which does not listen.

        Raises:
            StartError: the port is taken.
        """
        self.bind(asyncio.get_running_loop())
        if endpoint is not None:
            self._listening = await network.listen(endpoint, [self], self._admission)
            self.port = self._listening.port
            logger.info("HA port open", address=endpoint.address, port=self.port)
        self._advance(self.now_ms())
        self._replicas.on_wait.append(self.wake)
        self._schedule_tick()

    async def stop(self, grace_ms: int = 1_000) -> None:
        """Close the port and all connections; idempotent.

        First it waits, for at most 3 s, until the slaves that are in sync have the whole log. The
        caller stores nothing more, so that one of them can take over with the same log.
        """
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.stop_accepting()
            await self._send_rest()
            await listening.drain(grace_ms)
        if self._tick_timer is not None:
            self._tick_timer.cancel()
            self._tick_timer = None

    async def _send_rest(self) -> None:
        end = self.log.end_phy_offset
        last_ms = self.now_ms() + _SEND_REST_MS
        while any(
            each.stream is not None
            and each.stream.progress.received < end
            and self.acknowledgements.is_in_sync(each.stream.progress)
            for each in self.streaming
        ):
            if self.now_ms() >= last_ms:
                logger.warning("slaves lack the end of the log", end=end)
                return
            self._send_all()
            await asyncio.sleep(_POLL_MS / 1_000)

    # -- Acceptor ----------------------------------------------------------------------------

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Store the running loop, on which all calls happen from now on."""
        self.loop = loop
        self._thread_id = threading.get_ident()

    def new_connection(self, ip: str, *, is_crowded: bool = False) -> ReplicaConnection:
        """Return the protocol of an admitted connection.

        Without room for one more peer that has not proven itself, one of these is closed: the
        oldest of the address with the most of them. Addresses of slaves that were served before
        or are in `haAllowedPeers` come last.

        Raises:
            ConnectionRefusedError: there is no room.
        """
        # A connection that is being closed stays in the list until the loop reports its end.
        unproven = [
            each for each in self.connections if not each.is_streaming and each not in self._evicted
        ]
        if is_crowded or self._admission.is_over or len(unproven) >= _MAX_UNPROVEN:
            if not unproven:
                self._admission.refuse(ip)
                raise ConnectionRefusedError("no room for one more connection")
            self._make_room(unproven)
        connection = ReplicaConnection(self, ip)
        self.connections.append(connection)
        return connection

    def _make_room(self, unproven: list[ReplicaConnection]) -> None:
        counts = Counter(each.ip for each in unproven)
        # Of several with the same key `max` returns the first, which is the oldest.
        chosen = max(unproven, key=lambda each: (not self._is_known(each.ip), counts[each.ip]))
        self._evicted.add(chosen)
        opening = self._opening.get(chosen)
        if opening is not None and not chosen.is_attached:
            opening.cancel()
        else:
            chosen.abort("too many connections have not proven themselves")

    def _is_known(self, ip: str) -> bool:
        return ip in self._known or self.config.allows_classic(ip)

    def open(
        self, connection: ReplicaConnection, coroutine: Awaitable[None]
    ) -> "asyncio.Future[None]":
        """Run the coroutine that gives a connection its transport."""
        task = self._opening[connection] = asyncio.ensure_future(coroutine, loop=self.loop)
        task.add_done_callback(lambda ended: self._opened(connection, ended))
        return task

    def _opened(self, connection: ReplicaConnection, task: "asyncio.Future[None]") -> None:
        del self._opening[connection]
        if task.cancelled():
            # uvloop reports no end of a transport that it made while the task was cancelled.
            self.loop.call_soon(self._end_cancelled, connection)

    def _end_cancelled(self, connection: ReplicaConnection) -> None:
        if connection in self.connections:
            connection.connection_lost(None)

    async def drain(self, grace_ms: int) -> None:
        """Close all connections within a time."""
        for task in list(self._opening.values()):
            task.cancel()
        open_now = list(self.connections)
        for connection in open_now:
            connection.close()
        if open_now:
            await asyncio.wait([each.gone for each in open_now], timeout=grace_ms / 1_000)
        for connection in list(self.connections):
            connection.abort("the broker stops")

    # -- ReplicaOwner ------------------------------------------------------------------------

    def is_taken(self, broker_id: int) -> bool:
        """Return whether a connected slave has a broker id; a dead one is found by a probe.

        The refused slave tries again after a second, when a probe without an answer has ended.
        """
        taken = [each for each in self.streaming if each.broker_id == broker_id]
        for connection in taken:
            connection.probe(self.now_ms())
        return bool(taken)

    def accepted(self, connection: ReplicaConnection) -> None:
        """Note that a slave is served."""
        self.refusals.pop((connection.ip, connection.broker_id), None)
        self._known.pop(connection.ip, None)
        self._known[connection.ip] = None
        if len(self._known) > _MAX_KNOWN:
            del self._known[next(iter(self._known))]
        self._schedule_tick()

    def refused(self, connection: ReplicaConnection, refusal: Refuse) -> None:
        """Note that a known slave is refused; the same refusal is logged once."""
        key = connection.ip, connection.broker_id
        before = self.refusals.pop(key, None)
        if before is None or before.refusal.code != refusal.code:
            logger.error(
                "slave refused",
                peer=connection.ip,
                broker_id=connection.broker_id,
                refusal=refusal.code.name,
                reason=refusal.text,
            )
        now_ms = self._clock.time_ms()
        self.refusals[key] = RefusedSlave(
            connection.ip, connection.broker_id, connection.protocol, refusal, now_ms
        )
        if len(self.refusals) > _MAX_REFUSALS:
            del self.refusals[next(iter(self.refusals))]

    def configure(self, config: ReplicationConfig) -> None:
        """Apply changed settings (needed copies); on any thread."""

        def apply() -> None:
            self.config = config
            self.acknowledgements.configure(config)
            self._publish()

        if self._tick_timer is None:  # not started: nothing has been published yet
            self.config = config
            self.acknowledgements.configure(config)
            return
        try:
            self.loop.call_soon_threadsafe(apply)
        except RuntimeError:  # the loop is closed
            logger.debug("loop closed, settings not applied")

    def reported(self) -> None:
        """Publish the changes of a report."""
        self._publish()

    def membership_changed(self) -> None:
        """Apply the present membership of the group: needed replicas, lease, refusal."""
        self.acknowledgements.advance(self.log.end_phy_offset, self.now_ms())
        self.acknowledgements.membership_changed()
        self._publish()

    @property
    def acknowledged_end(self) -> int:
        """End of the part of the log that may have been acknowledged so far."""
        confirmed = self._replicas.confirmed
        return self.log.end_phy_offset if confirmed is None else confirmed

    def closed(self, connection: ReplicaConnection) -> None:
        """Forget a connection."""
        self._evicted.discard(connection)
        if connection in self.connections:
            self.connections.remove(connection)
            self._admission.release(connection.ip)
        if connection.stream is not None:
            self.acknowledgements.remove(connection.stream.progress)
            self._publish()

    # -- progress ----------------------------------------------------------------------------

    def wake(self) -> None:
        """Schedule the transfer of messages that a sender waits for; on any thread, and cheap."""
        if self._is_woken:
            return
        self._is_woken = True
        if threading.get_ident() == self._thread_id:
            self.loop.call_soon(self._send_all)
        else:
            try:
                self.loop.call_soon_threadsafe(self._send_all)
            except RuntimeError:  # the loop is closed
                logger.debug("loop closed, nothing is sent to slaves")

    def _send_all(self) -> None:
        # Reset first: a message that is stored from here on needs another call.
        self._is_woken = False
        if self.acknowledgements.needs_lease:
            self.membership_changed()
        for connection in self.connections:
            if connection.is_streaming:
                connection.send()
        if self._is_stalled:
            self._replicas.give_up()

    def _schedule_tick(self) -> None:
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        poll_ms = _WOKEN_POLL_MS if self._is_required else _POLL_MS
        wait_ms = poll_ms if self.streaming else _IDLE_MS
        self._tick_timer = self.loop.call_later(wait_ms / 1_000, self._tick)

    def _tick(self) -> None:
        now_ms = self.now_ms()
        # Scheduled first: an error in this call must not end the later ones.
        self._schedule_tick()
        if now_ms - self._advanced_ms >= min(_IDLE_MS, self.acknowledgements.sample_ms):
            self._advance(now_ms)
            for connection in list(self.connections):
                connection.tick(now_ms)
        self._send_all()

    def _advance(self, now_ms: int) -> None:
        self._advanced_ms = now_ms
        appended = self.log.end_phy_offset
        self.rate.sample(appended, now_ms)
        self.acknowledgements.advance(appended, now_ms)
        self._replicas.release(self.acknowledgements.released)
        self._publish()

    def _publish(self) -> None:
        """Pass changed offsets and refusals to the store and the senders."""
        acknowledgements, replicas = self.acknowledgements, self._replicas
        confirmed = acknowledgements.confirmed
        if confirmed == NO_BOUND:
            if self._is_required is not False:
                self._is_required = False
                replicas.wait_for_none()
        else:
            if not self._is_required:
                self._is_required = True
                replicas.require()
            replicas.confirm(confirmed)
        is_stalled = acknowledgements.is_stalled
        if is_stalled and not self._is_stalled:
            logger.warning("slaves do not write, sends are not confirmed")
            replicas.give_up()
        self._is_stalled = is_stalled
        refusal = acknowledgements.refusal
        if refusal != self.send_refusal:
            self.send_refusal = refusal
            logger.warning("sends refused" if refusal else "sends accepted again", reason=refusal)
            self.on_refusal(refusal)


def _ignore(_refusal: str | None) -> None:
    """Default of `on_refusal`."""
