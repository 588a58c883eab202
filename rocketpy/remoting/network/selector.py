"""Selector: the connections of a server that live on one event loop.

It uses transports only. The network (`remoting/network/network.py`) chooses its loop and makes the
transports.

Source: the selector event loop group of NettyRemotingServer (5.4.0).
"""

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Iterable, Sequence

from rocketpy.remoting.config import ConnectionLimits
from rocketpy.remoting.connection.channel import Channel, ChannelListener
from rocketpy.remoting.connection.connection import Connection
from rocketpy.remoting.connection.dispatch import ProcessorTable
from rocketpy.remoting.connection.fair_turns import TurnBudget, TurnScheduler
from rocketpy.remoting.connection.frame_connection import FrameConnection
from rocketpy.remoting.connection.memory_budget import MemoryBudget
from rocketpy.remoting.connection.transport import reset
from rocketpy.remoting.network.admission import Admission
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.ordered_set import OrderedSet
from rocketpy.runtime.service import shared_wait_ms

_log = logging.getLogger(__name__)

_SWEEP_INTERVAL_MS = 1_000
_DRAIN_TICK_S = 0.005
# Two ticks without a read: requests that were in the socket when the drain started are served.
_QUIET_TICKS = 2
# Bounds the work of one accept; entries that have sent a request are removed on the way.
_MAX_SILENT_CHECKED = 1_000


class Selector:
    """Owner of the connections of one loop; used on that loop only."""

    def __init__(
        self,
        table: ProcessorTable,
        limits: ConnectionLimits,
        clock: Clock,
        *,
        admission: Admission,
        listeners: Sequence[ChannelListener],
        memory_limit_bytes: int,
    ) -> None:
        """Set up a selector; `bind` gives it its loop.

        Args:
            table: where requests go.
            limits: limits of each connection.
            clock: for idle and stalled peers.
            admission: counts connections.
            listeners: called for each connection.
            memory_limit_bytes: memory that may be held for all peers of this selector.
        """
        self.table = table
        self.limits = limits
        self.is_draining: bool = False
        self.connections: OrderedSet[Connection] = OrderedSet()
        self.loop: asyncio.AbstractEventLoop
        self.turns: TurnScheduler
        self.turn: TurnBudget
        self.budget: MemoryBudget = MemoryBudget(memory_limit_bytes)
        self._clock = clock
        self._admission = admission
        self._listeners = listeners
        self._announced: set[Connection] = set()
        # Oldest first. Entries that have sent a request are removed by `_close_silent` only.
        self._silent: dict[Connection, None] = {}
        # Detection and TLS handshakes that are under way.
        self._opening: dict[Connection, asyncio.Future[None]] = {}
        self._ips: dict[Connection, str] = {}
        self._tasks: OrderedSet[asyncio.Future[None]] = OrderedSet()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._sweep_due_ms: int | None = None

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Live on this loop from now on; call it on the loop's thread."""
        self.loop = loop
        budget = self.budget
        turns = self.turns = TurnScheduler(
            loop, self.now_ms, budget.is_output_full, lambda: budget.is_exhausted
        )
        self.turn = TurnBudget(loop, self.now_ms, lambda: turns.is_behind)
        self._sweep_timer = loop.call_later(_SWEEP_INTERVAL_MS / 1_000, self._sweep)

    def new_connection(self, ip: str, *, is_crowded: bool = False) -> Connection:
        """Return the protocol of a new, admitted connection, which is to get a transport.

        A caller that cannot give it one calls its `connection_lost`. Without room for one more
        connection, the oldest one that never sent a valid request is closed.

        Args:
            ip: the peer's address as it was admitted; released when the connection is gone.
            is_crowded: whether the system has little room left for connections.

        Raises:
            ConnectionRefusedError: there is no room; the caller closes the socket.
        """
        if (is_crowded or self._admission.is_over) and not self._close_silent():
            self._admission.refuse(ip)
            raise ConnectionRefusedError("no room for one more connection")
        connection = Connection(self, self.loop)
        self.connections.add(connection)
        self._silent[connection] = None
        self._ips[connection] = ip
        return connection

    def now_ms(self) -> int:
        """Monotonic time, ms."""
        return self._clock.monotonic_ms()

    def opened(self, connection: Connection) -> None:
        """Notify the listeners of a connection that is ready."""
        self._announced.add(connection)
        self._notify("on_open", connection.channel)

    def closed(self, connection: Connection) -> None:
        """Notify the listeners of a lost connection, if they were of its start."""
        self.connections.discard(connection)
        self._silent.pop(connection, None)
        self._opening.pop(connection, None)
        ip = self._ips.pop(connection, None)
        if ip is not None:
            self._admission.release(ip)
        if connection in self._announced:
            self._announced.discard(connection)
            self._notify("on_close", connection.channel)

    def idle(self, connection: Connection) -> None:
        """Notify the listeners of a silent connection that is about to be closed."""
        self._notify("on_idle", connection.channel)

    def spawn(self, coroutine: Awaitable[None]) -> None:
        """Run a coroutine on the loop and keep it alive until it ends."""
        self._start(coroutine)

    def open(self, connection: Connection, coroutine: Awaitable[None]) -> asyncio.Future[None]:
        """Run the coroutine that gives a connection its transport; cancelled to make room."""
        task = self._opening[connection] = self._start(coroutine)
        task.add_done_callback(lambda ended: self._opened(connection, ended))
        return task

    def _opened(self, connection: Connection, task: asyncio.Future[None]) -> None:
        self._opening.pop(connection, None)
        if task.cancelled():
            # uvloop reports no end of a transport that it made while the task was cancelled. The
            # connection would count for the limits for ever. Later: other loops do report it.
            self.loop.call_soon(self._end_cancelled, connection)

    def _end_cancelled(self, connection: Connection) -> None:
        if connection in self.connections:
            connection.connection_lost(None)

    def sweep(self, now_ms: int) -> None:
        """Close silent, stuck and half-open connections.

        Args:
            now_ms: monotonic time.
        """
        # A copy: a closed connection removes itself.
        for connection in list(self.connections):
            connection.sweep(now_ms)
        if self.turns.is_blocked:
            self.budget.make_room_for_output()

    async def drain(self, grace_ms: int) -> None:
        """Send clients away, finish requests in progress, flush and close.

        Args:
            grace_ms: time limit of all that, after which connections are reset.
        """
        # From now on requests are answered GO_AWAY, so clients connect elsewhere.
        self.is_draining = True
        deadline_ms = self.now_ms() + grace_ms
        await self._until_quiet(deadline_ms)
        for connection in self._attached():
            connection.channel.close("server shutting down")
        await self._until_gone(max(deadline_ms, self.now_ms() + 200))
        # Peers that do not take their output by now lose it.
        for connection in self._attached():
            reset(connection.transport)
        await self._until_gone(self.now_ms() + 500)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=0.5)
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None

    def _close_silent(self) -> bool:
        """Close the oldest connection that never sent a valid request; False without one."""
        for connection in list(itertools.islice(self._silent, _MAX_SILENT_CHECKED)):
            del self._silent[connection]
            opening = self._opening.get(connection)
            if opening is not None and not connection.is_attached:
                opening.cancel()
                return True
            if not connection.has_first_command:
                connection.channel.abort("no room, and it never sent a request")
                return True
        return False

    def _start(self, coroutine: Awaitable[None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(coroutine, loop=self.loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _attached(self) -> list[Connection]:
        """Return the connections that have a transport."""
        return [connection for connection in self.connections if connection.is_attached]

    async def _until_quiet(self, deadline_ms: int) -> None:
        quiet_ticks = 0
        seen_reads = -1
        while quiet_ticks < _QUIET_TICKS and self.connections and self.now_ms() < deadline_ms:
            reads = sum(connection.reads for connection in self.connections)
            is_busy = any(
                one.in_progress.count or one.in_progress.has_suspended or one.unsent_bytes
                for one in self.connections
            )
            quiet_ticks = 0 if is_busy or reads != seen_reads else quiet_ticks + 1
            seen_reads = reads
            await asyncio.sleep(_DRAIN_TICK_S)

    async def _until_gone(self, deadline_ms: int) -> None:
        # A connection without a transport ends with its task.
        await wait_until_gone(self._attached(), deadline_ms - self.now_ms())

    def _sweep(self) -> None:
        now_ms = self.now_ms()
        # Late by as much as the loop was held; the first one is, by the rest of the start.
        if self._sweep_due_ms is not None:
            self.table.slow.check_loop(now_ms - self._sweep_due_ms)
        wait_ms = shared_wait_ms(now_ms, _SWEEP_INTERVAL_MS)
        self._sweep_due_ms = now_ms + wait_ms
        # First: an error in a sweep must not end all later ones.
        self._sweep_timer = self.loop.call_later(wait_ms / 1_000, self._sweep)
        self.sweep(now_ms)

    def _notify(self, event: str, channel: Channel) -> None:
        for listener in self._listeners:
            try:
                getattr(listener, event)(channel)
            except Exception:  # noqa: BLE001 - a listener's fault must not end the connection's loop
                _log.exception("listener failed: call=%s peer=%s", event, channel.remote_address)


async def wait_until_gone(connections: Iterable[FrameConnection], timeout_ms: int) -> None:
    """Wait until the transports of closed connections are gone, or the time-out is over."""
    gone = [connection.gone for connection in connections]
    if gone:
        await asyncio.wait(gone, timeout=max(timeout_ms, 0) / 1000)
