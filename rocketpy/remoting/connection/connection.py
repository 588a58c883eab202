"""The protocol of one connection: bytes in, requests dispatched, responses out in one write.

What holds at any moment:

- Everything here runs on the connection's loop, except `complete`.
- Responses of one socket read leave in one write, but never more than `FLUSH_BYTES` are gathered
  before they are written and the peer is looked at again.
- We read from the peer only while it takes its responses and may have more requests in hand.
  Whatever comes or is left over meanwhile is suspended (`in_hand.py`) and served first, in order.
- What the connection holds is told to the budget each time it may have grown.
- Many requests of one read are served for `_SLICE_MS` at a time, `BEHIND_MS` while others wait.

Source: NettyServerHandler, NettyClientHandler, NettyRemotingAbstract (5.4.0).
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import cast

from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.byte_handler import offer
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.connection_owner import ConnectionOwner
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.remoting.connection.dispatch import (
    Processor,
    Responses,
    reject_going_away,
)
from rocketpy.remoting.connection.fair_turns import BEHIND_MS, WriteScheduler
from rocketpy.remoting.connection.memory_budget import UnsentOutput
from rocketpy.remoting.connection.pool_handoff import (
    FLUSH_BYTES,
    CompletedResponses,
    RequestBatch,
    hand_over,
)
from rocketpy.remoting.connection.requests_in_progress import (
    DEFERRED_BYTES,
    LOOK_INTERVAL_MS,
    RequestsInProgress,
    ResumedRequests,
    reject_expired,
    request_bytes,
)
from rocketpy.remoting.connection.timeouts import ConnectionTimeouts
from rocketpy.remoting.connection.transport import WriteTransport

_log = logging.getLogger(__name__)

_OFFERS_LEFT = range(16, -1, -1)  # so often the rest of a read is offered anew
_SLICE_MS = 10
_SLICE_LOOK_REQUESTS = 4  # time is looked at each time so many requests were served


class Connection(asyncio.Protocol):
    """One accepted connection; the client's is a subclass that takes responses differently.

    Attributes:
        channel: what the layers above see of it; there once it is attached.
        transport: where bytes go; there once it is attached.
        in_hand: requests in hand and suspended.
        proxied_source: IP and port of the client, when a proxy in front has told them.
        is_attached: whether it has a transport.
        has_first_command: whether a whole frame has ever come.
        is_reading_paused: whether we do not read at the moment.
        reads: socket reads so far.
        frame_reads: those of them that completed a frame.
        gone: done when the transport is closed.
    """

    def __init__(
        self, owner: "ConnectionOwner[Connection]", loop: asyncio.AbstractEventLoop
    ) -> None:
        self.channel: Channel
        self.transport: WriteTransport
        self.turns: WriteScheduler = owner.turns
        self._turn = owner.turn
        self.in_hand: RequestsInProgress = RequestsInProgress(
            owner.limits.max_in_flight, owner.limits.max_in_flight_bytes
        )
        self.proxied_source: tuple[str, int] | None = None
        self.is_attached: bool = False
        self.has_first_command: bool = False
        self.is_reading_paused: bool = False
        self.reads: int = 0
        self.frame_reads: int = 0
        self.gone: asyncio.Future[None] = loop.create_future()
        self._watch: ConnectionTimeouts
        self._owner = owner
        self._loop = loop
        self._budget, self._limits = owner.budget, owner.limits
        self._reader = CommandReader(owner.limits.max_frame_bytes)
        self._counted_pending_bytes = 0
        self._table, self._routes = owner.table, owner.table.routes
        self._has_byte_handler = owner.table.byte_handler is not None
        self._completed: CompletedResponses
        self._unsent = UnsentOutput()
        self._takes_much = False
        self._waits_for_turn = False
        self._has_unread = False
        self._looks_at_late = False

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the channel and tell the owner: from here on requests may come."""
        self._attach(cast("asyncio.Transport", transport))
        self._owner.opened(self)

    def data_received(self, data: bytes) -> None:
        """Decode what has come and dispatch all of it."""
        self.reads += 1
        reader = self._reader
        for offers_left in _OFFERS_LEFT:
            if self._turn.is_over:
                self._read_later(data)
                return
            rest = b""
            # The handler sees whole frames only from a frame's first byte on, and nothing while
            # older requests of this connection are suspended, nor its first request, which says
            # who the peer is. Asked here and not in a method: every read asks.
            if self._has_byte_handler and self.has_first_command and not self.is_reading_paused:
                channel, owner = self.channel, self._owner
                if channel.is_open and not (owner.is_draining or self._budget.is_exhausted):
                    has_served, data, rest = offer(
                        self._table, channel, reader, self._turn, data, offers_left
                    )
                    self.frame_reads += has_served
                    if self.in_hand.is_full:
                        self._update_reading()
            commands = reader.feed(data) if data or reader.pending_bytes else None
            if commands:
                self.frame_reads += 1
                if self.is_reading_paused:  # this was on its way when reading stopped
                    self._keep(commands)
                elif self._budget.is_exhausted:
                    self._suspend(commands)
                else:
                    self._dispatch(commands)
            if reader.pending_bytes != self._counted_pending_bytes or reader.error is not None:
                self._look_at_reader()
            if not rest:
                return
            data = rest

    def eof_received(self) -> bool:
        """Close when the peer has finished sending."""
        return False

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not take its responses."""
        self.channel.set_writable(False)
        self._watch.stalled(self._owner.now_ms())
        self._count()
        self._update_reading()

    def resume_writing(self) -> None:
        """Go on where the slow peer made us stop."""
        self.channel.set_writable(True)
        self._watch.resumed()
        self.in_hand.reset_wait(self._owner.now_ms())
        self._count()
        self._loop.call_soon(self._go_on)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail waiting calls, let go of what is held and tell the owner."""
        self._let_go()
        # The loop frees what the transport holds at the end of this turn, not before.
        self._budget.end(self)
        self._loop.call_soon(self._budget.release, self)
        if self.is_attached:
            self.channel.lost(f"connection lost: {exc}" if exc else "closed by the peer")
        self._owner.closed(self)
        if not self.gone.done():
            self.gone.set_result(None)

    # ---- set-up

    def _attach(self, transport: asyncio.Transport) -> None:
        limits = self._limits
        transport.set_write_buffer_limits(limits.high_water_bytes, limits.low_water_bytes)
        self.transport = transport
        peer = self.proxied_source or transport.get_extra_info("peername")
        self.channel = Channel(
            self._loop,
            transport,
            (peer[0], peer[1]) if peer else ("0.0.0.0", 0),  # noqa: S104 - already gone
            hard_limit_bytes=limits.hard_limit_bytes,
            host=self,
        )
        self._completed = CompletedResponses(self.channel, self._deferred_done)
        self._watch = ConnectionTimeouts(self, limits, self._owner.now_ms())
        self.is_attached = True

    # ---- requests

    def _read_later(self, data: bytes) -> None:
        """Keep what came as it is: requests of others have taken this turn of the loop."""
        self._reader.keep(data)
        self._has_unread = True
        self._look_at_reader()
        self._update_reading()
        self._wait_for_turn()

    def _look_at_reader(self) -> None:
        """Count what the reader holds, and refuse what it could not read."""
        self._counted_pending_bytes = self._reader.pending_bytes
        self._count()
        if self._reader.error is not None and self.channel.is_open:
            reason, peer = str(self._reader.error), self.channel.remote_address
            _log.warning("malformed frame, connection closed peer=%s reason=%s", peer, reason)
            self.channel.close(f"malformed frame: {reason}")

    def _dispatch(
        self, commands: list[RemotingCommand], taken: ResumedRequests | None = None
    ) -> None:
        """Serve requests, oldest first; suspend what has to wait, again if it was before."""
        if not self.has_first_command:
            self.has_first_command = True
            self.channel.take_first_request(commands[0])
        if self._owner.is_draining:
            responses = Responses(self.channel)
            commands, taken = reject_going_away(commands, responses), None
            self._finish(responses)
        leftover = self._serve(commands)
        if leftover:
            # Numbered after the batches that `_serve` handed over: they came before.
            self._suspend(leftover, taken)
        elif self.in_hand.is_full:
            self._update_reading()

    def _suspend(
        self, commands: list[RemotingCommand], taken: ResumedRequests | None = None
    ) -> None:
        """Keep requests until the peer, what is in hand and the budget allow to go on."""
        self._keep(commands, taken)
        self._update_reading()
        if self._budget.is_exhausted or self._may_go_on():
            self._wait_for_turn()

    def _keep(self, commands: list[RemotingCommand], taken: ResumedRequests | None = None) -> None:
        if taken is None:
            self.in_hand.suspend(self.in_hand.number(), commands, self._owner.now_ms())
        else:
            self.in_hand.suspend_again(len(commands), taken)
        self._count()
        if not self._looks_at_late:
            self._looks_at_late = True
            self._loop.call_later(LOOK_INTERVAL_MS / 1000, self._look_at_late)

    def _look_at_late(self) -> None:
        """Refuse what waited too long, unless the peer or a turn of the loop is waited for.

        What waits for a turn only is served in it: on a machine whose processors are busy
        elsewhere, refusing would cost as much and help nobody.
        """
        self._looks_at_late = False
        if self.in_hand.has_suspended and self.channel.is_open:
            if self.channel.is_writable and not self._may_go_on():
                responses = Responses(self.channel)
                reject_expired(self.in_hand, self._owner.table, self._owner.now_ms(), responses)
                self._finish(responses)
                self._go_on()
            self._keep([])

    def _serve(self, commands: list[RemotingCommand]) -> list[RemotingCommand]:
        """Serve requests inline or hand them to their pools; return those that have to wait."""
        responses = Responses(self.channel)
        routes, in_hand = self._routes, self.in_hand
        batches: dict[BusinessPool, list[tuple[Processor, RemotingCommand]]] = {}
        leftover: list[RemotingCommand] = []
        index, look_at = 0, _SLICE_LOOK_REQUESTS
        count = len(commands)
        slice_ms = BEHIND_MS if self.turns.is_behind else _SLICE_MS
        end_ms = self._owner.now_ms() + slice_ms if count > 1 else 0
        while index < count:
            if index >= look_at or (responses.is_slow and index):
                if self._owner.now_ms() >= end_ms:
                    leftover = commands[index:]
                    break
                look_at = index + _SLICE_LOOK_REQUESTS
            command = commands[index]
            index += 1
            if command.flag & 1:
                self.take_response(command)
                continue
            processor, pool, _ = routes.get(command.code) or self._table.default
            if pool is None:
                responses.process(processor, command)
                if (
                    responses.size_bytes >= FLUSH_BYTES
                    or in_hand.is_full
                    or (responses.later_count and in_hand.is_full_with(responses.later_count))
                ):
                    self._finish(responses)
                    responses = Responses(self.channel)
                    if not self._may_go_on():
                        leftover = commands[index:]
                        break
            else:
                batches.setdefault(pool, []).append((processor, command))
        if batches:
            hand_over(self, batches, responses)
            self._count()
        if leftover or responses.is_slow:
            self._turn.look()
        self._finish(responses)
        return leftover

    def take_response(self, response: RemotingCommand) -> None:
        """Give a response to the call that waits for it."""
        pending = self.channel.in_flight.take(response.opaque)
        if pending is not None:
            pending.answer(response)

    # ---- responses

    def batch_done(
        self, batch: RequestBatch, responses: Responses, leftover: list[RemotingCommand]
    ) -> None:
        """Take a batch back from its pool; on the loop."""
        in_hand = self.in_hand
        in_hand.batches.pop(batch, None)
        if self.channel.is_open:
            in_hand.suspend(batch.number, leftover, self._owner.now_ms())
        # Not below zero even when a deferred response of the batch was set on another thread
        # already: that one is counted off in a later turn of the loop.
        self._done(responses, batch.count, batch.size_bytes)

    def complete(self, deferred: DeferredResponse, response: object) -> None:
        """Take a deferred response that was set; any thread."""
        self._completed.add(deferred, response)

    def take_in_hand(self, count: int) -> None:
        """Count requests that are answered later, by one deferred response."""
        self.in_hand.add(count, count * DEFERRED_BYTES)
        self._count()

    def wrote_much(self, size_bytes: int) -> None:
        """Count what lies unsent, now and when the loop has turned."""
        self._takes_much = True
        self._unsent.wrote(size_bytes)
        self._count()
        self._loop.call_soon(self._turned, size_bytes)

    def _turned(self, size_bytes: int) -> None:
        self._unsent.turned(size_bytes)
        self._count()

    def _deferred_done(self, responses: Responses, count: int) -> None:
        self._done(responses, count, count * DEFERRED_BYTES)

    def _finish(self, responses: Responses) -> None:
        """Write responses, and take in hand what comes later."""
        frames = responses.frames
        if frames:
            self.channel.write(frames[0] if len(frames) == 1 else frames)
        if responses.later_count:
            deferred_count = responses.later_count - len(responses.coroutines)
            self.in_hand.add(deferred_count, deferred_count * DEFERRED_BYTES)
            for command, coroutine in responses.coroutines:
                size_bytes = request_bytes(command)
                self.in_hand.add(1, size_bytes)
                self._owner.spawn(self._respond_later(command, coroutine, size_bytes))
            self._count()

    async def _respond_later(
        self,
        command: RemotingCommand,
        coroutine: Awaitable[RemotingCommand | bytes | None],
        size_bytes: int,
    ) -> None:
        responses = Responses(self.channel)
        try:
            responses.add(command, await coroutine)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # we are: the server stops
            responses.add_error(command, RuntimeError("cancelled from within"))
        except Exception as error:  # noqa: BLE001 - dispatch: becomes code 1, the connection stays
            responses.add_error(command, error)
        self._done(responses, 1, size_bytes)

    def _done(self, responses: Responses, count: int, size_bytes: int) -> None:
        """Have so many requests less in hand, and go on if that makes room."""
        self.in_hand.add(-count, -size_bytes)
        self._finish(responses)
        self._count()
        self._go_on()

    # ---- pressure

    def _go_on(self) -> None:
        """Serve what is suspended and read on, as far as the peer and the limits allow."""
        in_hand = self.in_hand
        # Not while batches are out: leftovers of theirs may have come first.
        if in_hand.has_suspended and not in_hand.batches and self.channel.is_open:
            if self._may_go_on():
                taken = in_hand.take_suspended()
                self._dispatch(taken.commands, taken)
                self._count()
            elif self._budget.is_exhausted:
                self._wait_for_turn()
        elif self._may_read_on():
            self._has_unread = False
            self._update_reading()
            self.data_received(b"")
        if self._may_read_on():
            self._wait_for_turn()
        if self.is_reading_paused:
            self._update_reading()

    def _may_read_on(self) -> bool:
        if not self._has_unread or self.in_hand.batches or self.in_hand.is_full:
            return False
        return self.channel.is_open and self.channel.is_writable

    def _wait_for_turn(self) -> None:
        """Go on when others had their turn and the budget allows it; once at a time."""
        if not self._waits_for_turn:
            self._waits_for_turn = True
            is_small = self.frame_reads > 1 and not self._takes_much
            self.turns.add_connection(self.channel, self._take_turn, is_small=is_small)

    def _take_turn(self) -> None:
        self._waits_for_turn = False
        self._turn.go_on()
        self._go_on()

    def _may_go_on(self) -> bool:
        return not (
            self.in_hand.is_full or not self.channel.is_writable or self._budget.is_exhausted
        )

    def _update_reading(self) -> None:
        if self.transport.is_closing():
            return
        in_hand = self.in_hand
        paused = (
            not self.channel.is_writable
            or in_hand.has_suspended
            or in_hand.is_full
            or self._has_unread
        )
        if paused != self.is_reading_paused:
            self.is_reading_paused = paused
            if paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    # ---- memory

    @property
    def pending_bytes(self) -> int:
        """Bytes of an unfinished frame."""
        return self._reader.pending_bytes

    @property
    def is_stalled(self) -> bool:
        """Whether the peer does not keep up and has taken nothing since the last sweep."""
        return self.is_attached and self._watch.is_stalled

    @property
    def unsent_bytes(self) -> int:
        """What frames hold that the peer has not taken wholly; 0 before there is a transport."""
        if not self.is_attached:
            return 0
        return self._unsent.held_bytes(self.transport.get_write_buffer_size())

    def held_bytes(self) -> int:
        """Return what this connection holds: unfinished input, requests in hand, unsent output."""
        requests_bytes = self.in_hand.size_bytes + self.in_hand.suspended_bytes
        return self._reader.pending_bytes + requests_bytes + self.unsent_bytes

    def give_up(self, held_bytes: int) -> None:
        """Let go of everything: too much is held for all peers, and for this one most."""
        _log.warning(
            "too much memory held for peers, the greediest cut off peer=%s held_bytes=%d",
            self.channel.remote_address,
            held_bytes,
        )
        self.channel.abort(f"{held_bytes} bytes held, too much for all peers together")
        self._let_go()

    def _count(self) -> None:
        if self.channel.is_open:
            self._budget.count(self)

    def _let_go(self) -> None:
        self.in_hand.drop()
        if self.is_attached:
            self._completed.clear()
        self._reader.drop()

    # ---- time

    def sweep(self, now_ms: int) -> None:
        """Close what is silent, stuck or half-open; called about once a second.

        Args:
            now_ms: monotonic time.
        """
        if not self.is_attached:
            return
        self._count()
        if self._watch.is_idle(now_ms):
            self._owner.idle(self)
            self.channel.close("idle")
