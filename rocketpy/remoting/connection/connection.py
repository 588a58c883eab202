"""A server's connection: requests served in order, flow control, memory accounting.

What holds at any moment:

- Everything here runs on the connection's loop, except `complete`.
- `_time_budget` is shared by all connections of a loop: it ends the serving in one iteration.
  `turns` is the loop's queue of connections that continue in a later iteration.
- Responses of one socket read leave in one write, but never more than `FLUSH_BYTES` are gathered
  before they are written and the peer is checked again.
- What the connection holds is reported to the memory budget each time it may have grown.
- Many requests of one read are served for `_SLICE_MS` at a time, `BEHIND_MS` while others wait.

Its flow state says what holds requests back. The connection reads from its peer in READING only:

    from       event                                                           to
    READING    the peer does not take responses, or too much is in progress    BLOCKED
    READING    other connections have used up this iteration of the loop       UNREAD
    READING    requests are left over: slice, limits, budget or a full peer    SUSPENDED
    BLOCKED    the peer and the limits accept more                             READING
    BLOCKED    bytes arrive that were on their way, in a used-up iteration     UNREAD
    BLOCKED    requests arrive that were on their way                          SUSPENDED
    UNREAD     its turn: the bytes are read now                                READING
    UNREAD     leftovers of a pool are back, or more bytes complete a frame    SUSPENDED
    SUSPENDED  everything is served                                            READING, BLOCKED
    SUSPENDED  the requests are served, received bytes are not read yet        UNREAD

Suspended requests (`requests_in_progress.py`) and unread bytes are older than anything still in the
socket, so they are served first, in the order they arrived. UNREAD and SUSPENDED wait for an event
(the peer accepts more, a request is done) or for a turn of `TurnScheduler`.

Source: NettyServerHandler, NettyRemotingAbstract (5.4.0).
"""

import asyncio
import logging
from collections.abc import Awaitable
from enum import Enum, auto
from typing import Final

from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.byte_handler import try_byte_handler
from rocketpy.remoting.connection.connection_owner import ConnectionOwner
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.dispatch import (
    Processor,
    Responses,
    reject_going_away,
)
from rocketpy.remoting.connection.fair_turns import BEHIND_MS
from rocketpy.remoting.connection.frame_connection import FLUSH_BYTES, FrameConnection
from rocketpy.remoting.connection.memory_budget import UnsentOutput
from rocketpy.remoting.connection.pool_handoff import (
    CompletedResponses,
    RequestBatch,
    hand_over,
)
from rocketpy.remoting.connection.requests_in_progress import (
    DEFERRED_BYTES,
    EXPIRY_CHECK_INTERVAL_MS,
    RequestsInProgress,
    ResumedRequests,
    reject_expired,
    request_bytes,
)
from rocketpy.remoting.connection.slow_requests import SlowRequests

_log = logging.getLogger(__name__)

_OFFERS_LEFT = range(16, -1, -1)  # the rest of a read is offered again up to 16 times
_SLICE_MS = 10
_SLICE_CHECK_REQUESTS = 4  # the time is checked each time so many requests were served


class FlowState(Enum):
    """Reason why a connection's requests are held back; `after` are the states that may follow."""

    after: tuple["FlowState", ...]

    READING = auto()
    BLOCKED = auto()
    UNREAD = auto()
    SUSPENDED = auto()


TRANSITIONS: Final[dict[FlowState, tuple[FlowState, ...]]] = {
    FlowState.READING: (FlowState.BLOCKED, FlowState.UNREAD, FlowState.SUSPENDED),
    FlowState.BLOCKED: (FlowState.READING, FlowState.UNREAD, FlowState.SUSPENDED),
    FlowState.UNREAD: (FlowState.READING, FlowState.SUSPENDED),
    FlowState.SUSPENDED: (FlowState.READING, FlowState.BLOCKED, FlowState.UNREAD),
}
# On the members themselves: a look-up by an enum member costs a hash in Python.
for _state, _after in TRANSITIONS.items():
    _state.after = _after


class Connection(FrameConnection):
    """Accepted connection of a server.

    Attributes:
        in_progress: requests in progress and suspended.
        slow: limit of slow requests, and their log lines.
    """

    def __init__(
        self, owner: "ConnectionOwner[Connection]", loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(owner, loop)
        # Declared here too: type checkers take an increment for a declaration without a value.
        self.reads: int = 0
        self.frame_reads: int = 0
        self.in_progress: RequestsInProgress = RequestsInProgress(
            owner.limits.max_in_flight, owner.limits.max_in_flight_bytes
        )
        self._owner = owner
        self._time_budget = owner.turn
        self._memory_budget = owner.budget
        self._table, self._routes = owner.table, owner.table.routes
        self.slow: SlowRequests = owner.table.slow
        # A copy: read on each socket read, and set before the server starts.
        self._has_byte_handler = owner.table.byte_handler is not None
        self._state = FlowState.READING
        self._counted_pending_bytes = 0
        self._completed: CompletedResponses
        self._unsent = UnsentOutput()
        self._is_turn_queued = False
        self._is_expiry_check_queued = False

    # ---- asyncio.Protocol

    def data_received(self, data: bytes) -> None:
        """Decode what was received and serve it, as far as the limits allow."""
        self.reads += 1
        reader = self._reader
        for offers_left in _OFFERS_LEFT:
            if self._time_budget.is_exhausted and self._state is not FlowState.SUSPENDED:
                self._read_later(data)
                return
            rest = b""
            # The handler gets bytes from a frame's first byte on only; nothing while older requests
            # of this connection are suspended, and not the first request, which says whether the
            # peer is RocketPy. Checked here and not in a method, as every read does.
            if self._has_byte_handler and self.has_first_command and not self.is_reading_paused:
                channel, owner = self.channel, self._owner
                if channel.is_open and not (owner.is_draining or self._memory_budget.is_exhausted):
                    has_served, data, rest = try_byte_handler(
                        self._table, channel, reader, self._time_budget, data, offers_left
                    )
                    self.frame_reads += has_served
                    if self.in_progress.is_full:
                        self._settle()
            commands = reader.feed(data) if data or reader.pending_bytes else None
            if commands:
                self.frame_reads += 1
                if self.is_reading_paused:  # this was on its way when reading stopped
                    self._keep(commands)
                    self._settle()
                elif self._memory_budget.is_exhausted:
                    self._suspend(commands)
                else:
                    self._dispatch(commands)
            if reader.pending_bytes != self._counted_pending_bytes or reader.error is not None:
                self._check_reader()
            if not rest:
                return
            data = rest

    def pause_writing(self) -> None:
        """Also report the unsent output to the memory budget."""
        super().pause_writing()
        self._count()

    def resume_writing(self) -> None:
        """Also restart the waiting time of suspended requests: it was the peer's until now."""
        super().resume_writing()
        self.in_progress.reset_wait(self._owner.now_ms())
        self._count()

    def connection_lost(self, exc: Exception | None) -> None:
        """Also release everything that is held."""
        self._release()
        # The loop frees what the transport holds at the end of this iteration, not before.
        self._memory_budget.end(self)
        self._loop.call_soon(self._memory_budget.release, self)
        super().connection_lost(exc)

    def _attach(self, transport: asyncio.Transport) -> None:
        super()._attach(transport)
        self._completed = CompletedResponses(self.channel, self._deferred_responses_done)

    # ---- requests

    def _read_later(self, data: bytes) -> None:
        """Keep received bytes uncut: requests of others have used up this iteration."""
        self._reader.keep(data)
        self._check_reader()
        if self._state is not FlowState.UNREAD:
            self._go(FlowState.UNREAD)
        self._wait_for_turn()

    def _check_reader(self) -> None:
        """Also report what the reader holds to the memory budget."""
        self._counted_pending_bytes = self._reader.pending_bytes
        self._count()
        super()._check_reader()

    def _dispatch(
        self, commands: list[RemotingCommand], taken: ResumedRequests | None = None
    ) -> None:
        """Serve requests, oldest first; suspend the rest, again if it was suspended before."""
        # Only here: the fast path never gets the first request.
        if not self.has_first_command:
            self.has_first_command = True
            self.channel.take_first_request(commands[0])
        if self._owner.is_draining:
            responses = Responses(self.channel)
            # Requests left are those of peers that do not know GO_AWAY; their waits start again.
            commands, taken = reject_going_away(commands, responses), None
            self._finish(responses)
        leftover = self._serve(commands)
        if leftover:
            # Numbered after the batches that `_serve` handed over, which are older.
            self._suspend(leftover, taken)
        elif self.in_progress.is_full:
            self._settle()

    def _suspend(
        self, commands: list[RemotingCommand], taken: ResumedRequests | None = None
    ) -> None:
        """Suspend requests until the peer, the limits and the budget allow more."""
        self._keep(commands, taken)
        self._settle()
        if self._memory_budget.is_exhausted or self._may_serve():
            self._wait_for_turn()

    def _keep(self, commands: list[RemotingCommand], taken: ResumedRequests | None = None) -> None:
        if taken is None:
            self.in_progress.suspend(self.in_progress.number(), commands, self._owner.now_ms())
        else:
            self.in_progress.suspend_again(len(commands), taken)
        self._count()
        if not self._is_expiry_check_queued:
            self._is_expiry_check_queued = True
            self._loop.call_later(EXPIRY_CHECK_INTERVAL_MS / 1000, self._reject_expired)

    def _reject_expired(self) -> None:
        """Refuse suspended requests that waited too long, unless they wait for the peer or a turn.

        A request that waits for its turn only is served in it: on a machine whose processors are
        busy elsewhere, refusing would cost as much as serving.
        """
        self._is_expiry_check_queued = False
        if self.in_progress.has_suspended and self.channel.is_open:
            if self.channel.is_writable and not self._may_serve():
                responses = Responses(self.channel)
                reject_expired(self.in_progress, self._owner.table, self._owner.now_ms(), responses)
                self._finish(responses)
                self._resume()
            self._keep([])

    def _serve(self, commands: list[RemotingCommand]) -> list[RemotingCommand]:
        """Serve requests inline or hand them to their pools; return those to suspend."""
        responses = Responses(self.channel)
        routes, in_progress = self._routes, self.in_progress
        batches: dict[BusinessPool, list[tuple[Processor, RemotingCommand]]] = {}
        leftover: list[RemotingCommand] = []
        index, check_at = 0, _SLICE_CHECK_REQUESTS
        count = len(commands)
        # Shorter slices while others wait, so that a busy loop stays responsive.
        slice_ms = BEHIND_MS if self.turns.is_behind else _SLICE_MS
        # Timed here, without a call: most requests take some microseconds.
        slow_ms, now_ms = self.slow.limit_ms, self.slow.clock.monotonic_ms
        began_ms = turn_ms = self._owner.now_ms() if slow_ms or count > 1 else 0
        end_ms = began_ms + slice_ms
        while index < count:
            if index >= check_at or (responses.is_slow and index):
                if self._owner.now_ms() >= end_ms:
                    leftover = commands[index:]
                    break
                check_at = index + _SLICE_CHECK_REQUESTS
            command = commands[index]
            index += 1
            if command.flag & 1:
                self.take_response(command)
                continue
            processor, pool, _ = routes.get(command.code) or self._table.default
            # Inline requests run here, in order; those of pools are gathered first.
            if pool is None:
                responses.process(processor, command)
                if slow_ms:
                    done_ms = now_ms()
                    if done_ms - turn_ms >= slow_ms:
                        wait_ms = turn_ms - began_ms
                        self.slow.report(self.channel, command, wait_ms, done_ms - turn_ms)
                    turn_ms = done_ms
                # Write before more is made: only then is it known whether the peer keeps up.
                if (
                    responses.size_bytes >= FLUSH_BYTES
                    or in_progress.is_full
                    or (responses.later_count and in_progress.is_full_with(responses.later_count))
                ):
                    self._finish(responses)
                    responses = Responses(self.channel)
                    if not self._may_serve():
                        leftover = commands[index:]
                        break
            else:
                batches.setdefault(pool, []).append((processor, command))
        # After the inline requests, so that refusals by a full pool share their write.
        if batches:
            hand_over(self, batches, responses)
            self._count()
        if leftover or responses.is_slow:
            self._time_budget.check_time()
        self._finish(responses)
        return leftover

    def take_response(self, response: RemotingCommand) -> None:
        """Give a response to its call."""
        pending = self.channel.in_flight.take(response.opaque)
        if pending is not None:
            pending.answer(response)

    # ---- responses

    def batch_done(
        self, batch: RequestBatch, responses: Responses, leftover: list[RemotingCommand]
    ) -> None:
        """Take the responses of a batch and its leftover requests; called by `RequestBatch`."""
        in_progress = self.in_progress
        in_progress.batches.pop(batch, None)
        if self.channel.is_open:
            in_progress.suspend(batch.number, leftover, self._owner.now_ms())
        # Never below zero, even when another thread has already set a deferred response of the
        # batch: that one is subtracted in a later iteration of the loop.
        self._requests_done(responses, batch.count, batch.size_bytes)

    def complete(self, deferred: DeferredResponse, response: object) -> None:
        """Take a deferred response that was set; any thread."""
        self._completed.add(deferred, response)

    def add_in_progress(self, count: int) -> None:
        """Count requests that one deferred response answers later."""
        self.in_progress.add(count, count * DEFERRED_BYTES)
        self._count()

    def wrote_big_frame(self, size_bytes: int) -> None:
        """Count the unsent output, now and in the next iteration of the loop."""
        self._unsent.wrote(size_bytes)
        self._count()
        self._loop.call_soon(self._iterated, size_bytes)

    def _iterated(self, size_bytes: int) -> None:
        self._unsent.iterated(size_bytes)
        self._count()

    def _deferred_responses_done(self, responses: Responses, count: int) -> None:
        """Write deferred responses; called by `CompletedResponses`."""
        self._requests_done(responses, count, count * DEFERRED_BYTES)

    def _finish(self, responses: Responses) -> None:
        """Write responses, and count the requests that are answered later."""
        self._write(responses)
        if responses.later_count:
            # Coroutines keep their request, deferred responses do not.
            deferred_count = responses.later_count - len(responses.coroutines)
            self.in_progress.add(deferred_count, deferred_count * DEFERRED_BYTES)
            for command, coroutine in responses.coroutines:
                size_bytes = request_bytes(command)
                self.in_progress.add(1, size_bytes)
                self._owner.spawn(self._respond_later(command, coroutine, size_bytes))
            self._count()

    async def _respond_later(
        self,
        command: RemotingCommand,
        coroutine: Awaitable[RemotingCommand | bytes | None],
        size_bytes: int,
    ) -> None:
        self._requests_done(await self._await_response(command, coroutine), 1, size_bytes)

    def _requests_done(self, responses: Responses, count: int, size_bytes: int) -> None:
        """Write responses to requests in progress; resume suspended requests if there is room.

        Called for batches of pools, deferred responses and coroutines.
        """
        self.in_progress.add(-count, -size_bytes)
        self._finish(responses)
        self._count()
        self._resume()

    # ---- flow control

    def _go(self, state: FlowState) -> None:
        assert state in self._state.after, f"{self._state} -> {state}"
        self._state = state
        self._pause_reading(state is not FlowState.READING)

    def _settle(self) -> None:
        """Enter the flow state that follows from suspended requests, the peer and the limits.

        Called after each event that may change one of them; starts no request.
        """
        if self.transport.is_closing():
            return
        state = self._state
        if self.in_progress.has_suspended:
            state = FlowState.SUSPENDED
        elif state is FlowState.SUSPENDED and self._reader.pending_bytes:
            # Perhaps an unfinished frame only; that is known once it is fed again.
            state = FlowState.UNREAD
        elif state is not FlowState.UNREAD:
            is_blocked = self.in_progress.is_full or not self.channel.is_writable
            state = FlowState.BLOCKED if is_blocked else FlowState.READING
        if state is not self._state:
            self._go(state)

    def _resume(self) -> None:
        """Serve suspended requests and unread bytes, as far as the peer and the limits allow.

        Called in the connection's turn, when requests are done or refused, and when the peer reads
        again.
        """
        in_progress = self.in_progress
        # Not while batches are on a pool: their leftovers may have arrived first.
        if in_progress.has_suspended and not in_progress.batches and self.channel.is_open:
            if self._may_serve():
                taken = in_progress.take_suspended()
                self._dispatch(taken.commands, taken)
                self._count()
            elif self._memory_budget.is_exhausted:
                # No event reports that other connections hold less memory: each turn checks again.
                self._wait_for_turn()
        elif self._may_read_on():
            self._go(FlowState.READING)
            self.data_received(b"")
        if self.is_reading_paused:
            self._settle()
        if self._may_read_on():
            self._wait_for_turn()

    def _may_serve(self) -> bool:
        """Return whether the peer, the limits and the memory budget allow another request."""
        return not (
            self.in_progress.is_full
            or not self.channel.is_writable
            or self._memory_budget.is_exhausted
        )

    def _may_read_on(self) -> bool:
        """Return whether unread bytes may be served: nothing older waits, and there is room."""
        if (
            self._state is not FlowState.UNREAD
            or self.in_progress.has_suspended
            or self.in_progress.batches
            or self.in_progress.is_full
        ):
            return False
        return self.channel.is_open and self.channel.is_writable

    def _wait_for_turn(self) -> None:
        """Queue the connection in `turns`, once; `_take_turn` continues it."""
        if not self._is_turn_queued:
            self._is_turn_queued = True
            is_small = self.frame_reads > 1 and not self._unsent.has_seen_big_frame
            self.turns.add_connection(self.channel, self._take_turn, is_small=is_small)

    def _take_turn(self) -> None:
        """Continue the connection; called by `turns` after the connections before it."""
        self._is_turn_queued = False
        self._time_budget.resume()
        self._resume()

    # ---- memory

    @property
    def is_busy(self) -> bool:
        """Whether requests are in progress: such a connection is not idle."""
        return self.in_progress.count > 0

    @property
    def is_stalled(self) -> bool:
        """Whether the peer is slow and has taken nothing since the last sweep."""
        return self.is_attached and self._timeouts.is_stalled

    @property
    def unsent_bytes(self) -> int:
        """Bytes of frames that the peer has not taken completely; 0 without a transport."""
        if not self.is_attached:
            return 0
        return self._unsent.held_bytes(self.transport.get_write_buffer_size())

    def held_bytes(self) -> int:
        """Return the memory this connection holds: unfinished input, requests, unsent output."""
        requests_bytes = self.in_progress.size_bytes + self.in_progress.suspended_bytes
        return self._reader.pending_bytes + requests_bytes + self.unsent_bytes

    def abort_for_memory(self, held_bytes: int) -> None:
        """Abort and release everything: all peers together hold too much, this one most."""
        _log.warning(
            "memory limit exceeded, connection aborted: peer=%s held_bytes=%d",
            self.channel.remote_address,
            held_bytes,
        )
        self.channel.abort(f"{held_bytes} bytes held, more than all peers together may hold")
        self._release()

    def _count(self) -> None:
        if self.channel.is_open:
            # A closed connection was counted for the last time by `MemoryBudget.end`.
            self._memory_budget.count(self)

    def _release(self) -> None:
        self.in_progress.drop()
        if self.is_attached:
            self._completed.clear()
        self._reader.drop()

    def sweep(self, now_ms: int) -> None:
        """Also report what is held to the memory budget.

        Args:
            now_ms: monotonic time.
        """
        if self.is_attached:
            self._count()
        super().sweep(now_ms)
