"""The protocol of one connection: bytes in, requests dispatched, answers out in one write.

What bounds memory: answers of one socket read are written every ``_FLUSH_BYTES``; when the peer
does not keep up the rest of its requests is parked and nothing more is read from it until it does.

Source: NettyServerHandler, NettyClientHandler, NettyRemotingAbstract (5.4.0).
"""

import asyncio
import collections
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol, cast

from rocketpy.proto.command import RemotingCommand
from rocketpy.proto.frame import CommandReader
from rocketpy.remoting.business import SWEEP_INTERVAL_MS, BusinessPool
from rocketpy.remoting.channel import ROCKETPY_FIELD, Channel, WriteTransport
from rocketpy.remoting.deferred import DeferredResponse
from rocketpy.remoting.dispatch import (
    Processor,
    ProcessorTable,
    Response,
    Responses,
    go_away,
    overloaded,
    waited_too_long,
)
from rocketpy.remoting.write_turns import WriteTurns

_log = logging.getLogger(__name__)

_FLUSH_BYTES = 1024 * 1024
_CLOSE_LINGER_MS = 5_000
_ONEWAY = 2
# Peers up to this version do not know GO_AWAY (V5_3_1).
_LAST_VERSION_WITHOUT_GO_AWAY = 475


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Times and sizes one connection must keep to; see the configuration for what each means."""

    max_frame_bytes: int
    high_water_bytes: int
    low_water_bytes: int
    hard_limit_bytes: int
    write_stall_timeout_ms: int
    idle_timeout_ms: int
    first_frame_timeout_ms: int = 0
    max_in_flight: int = 0


class ConnectionOwner(Protocol):
    """The selector or client a connection belongs to."""

    table: ProcessorTable
    limits: ConnectionLimits
    is_draining: bool
    turns: WriteTurns

    def now_ms(self) -> int:
        """Monotonic time, ms."""
        ...

    def opened(self, connection: "Connection") -> None:
        """A connection is ready for requests."""
        ...

    def closed(self, connection: "Connection") -> None:
        """A connection is gone."""
        ...

    def idle(self, connection: "Connection") -> None:
        """A connection is about to be closed for silence."""
        ...

    def spawn(self, coroutine: Awaitable[None]) -> None:
        """Run a coroutine on the loop and keep it alive until it ends."""
        ...


class RequestBatch:
    """The requests of one socket read that belong to one pool."""

    __slots__ = ("_connection", "_work")

    def __init__(
        self, connection: "Connection", work: list[tuple[Processor, RemotingCommand]]
    ) -> None:
        self._connection = connection
        self._work = work

    @property
    def count(self) -> int:
        """How many requests."""
        return len(self._work)

    def run(self) -> None:
        """Process the batch; stop early when answers get big or the peer does not keep up."""
        connection = self._connection
        channel = connection.channel
        responses = Responses(channel)
        parked: list[RemotingCommand] = []
        if channel.is_open:
            for index, (processor, command) in enumerate(self._work):
                if responses.size_bytes >= _FLUSH_BYTES or not channel.is_writable:
                    parked = [command for _, command in self._work[index:]]
                    break
                responses.process(processor, command)
        channel.call_soon(connection.batch_done, responses, len(self._work), parked)

    def refuse(self, waited_ms: int, queued_count: int) -> None:
        """Answer all with flow control: they waited too long."""
        channel = self._connection.channel
        responses = Responses(channel)
        remark = waited_too_long(waited_ms, queued_count)
        responses.refuse([command for _, command in self._work], remark)
        channel.call_soon(self._connection.batch_done, responses, len(self._work), [])


class Connection(asyncio.Protocol):
    """One accepted connection; the client's is a subclass that takes answers differently."""

    def __init__(self, owner: ConnectionOwner, loop: asyncio.AbstractEventLoop) -> None:
        self.channel: Channel
        self.transport: WriteTransport
        self.in_hand_count = 0
        self.has_first_command = False
        self._owner = owner
        self._loop = loop
        self._limits = owner.limits
        self._reader = CommandReader(owner.limits.max_frame_bytes)
        self._routes = owner.table.routes
        self._parked: list[RemotingCommand] = []
        self._completed: collections.deque[tuple[DeferredResponse, object]] = collections.deque()
        self._completion_is_scheduled = False
        self._reading_paused = False
        self.is_attached = False
        self.reads = 0
        self._opened_ms = 0
        self._seen_activity = 0
        self._active_ms = 0
        self._closing_ms: int | None = None
        self.gone: asyncio.Future[None] = loop.create_future()
        self._stalled_ms: int | None = None
        self._stalled_bytes = 0

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set up the channel and tell the owner."""
        self.attach(cast("asyncio.Transport", transport))
        self.announce()

    def data_received(self, data: bytes) -> None:
        """Decode what has come and dispatch all of it."""
        self.reads += 1
        reader = self._reader
        commands = reader.feed(data)
        if commands:
            if self._parked:
                self._parked += commands
            else:
                self._dispatch(commands)
        if reader.error is not None:
            self._refuse_frame(str(reader.error))

    def eof_received(self) -> bool:
        """Close when the peer has finished sending."""
        return False

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not take its responses."""
        self.channel.set_writable(False)
        self._stalled_ms = self._owner.now_ms()
        self._stalled_bytes = self.transport.get_write_buffer_size()
        self._update_reading()

    def resume_writing(self) -> None:
        """Go on where the slow peer made us stop."""
        self.channel.set_writable(True)
        self._stalled_ms = None
        self._loop.call_soon(self._unpark)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail waiting calls and tell the owner."""
        self._parked.clear()
        self._completed.clear()
        if self.is_attached:
            self.channel.lost(f"connection lost: {exc}" if exc else "closed by the peer")
        self._owner.closed(self)
        if not self.gone.done():
            self.gone.set_result(None)

    # ---- set-up

    @property
    def waiting_bytes(self) -> int:
        """Bytes written and not yet taken by the peer; 0 before there is a transport."""
        return self.transport.get_write_buffer_size() if self.is_attached else 0

    def attach(self, transport: asyncio.Transport) -> None:
        """Take a transport without announcing the connection yet."""
        limits = self._limits
        transport.set_write_buffer_limits(high=limits.high_water_bytes, low=limits.low_water_bytes)
        self.transport = transport
        self.is_attached = True
        peer = transport.get_extra_info("peername") or ("0.0.0.0", 0)  # noqa: S104 - peer already gone
        self.channel = Channel(
            self._loop,
            transport,
            (peer[0], peer[1]),
            hard_limit_bytes=limits.hard_limit_bytes,
            turns=self._owner.turns,
            complete=self._complete,
        )
        self._opened_ms = self._active_ms = self._owner.now_ms()

    def announce(self) -> None:
        """Tell the owner: from here on requests may come."""
        self._owner.opened(self)

    def use_transport(self, transport: WriteTransport) -> None:
        """Write through another transport (TLS) from now on."""
        self.transport = transport
        self.channel.replace_transport(transport)

    # ---- requests

    def batch_done(self, responses: Responses, count: int, parked: list[RemotingCommand]) -> None:
        """Take a batch back from its pool; on the loop."""
        # Before `_finish` counts what of it was deferred: never below zero, as what is set from
        # another thread meanwhile is taken in a later turn of the loop.
        self.in_hand_count -= count
        self._finish(responses)
        if parked and self.channel.is_open:
            self._parked += parked
            if self.channel.is_writable:
                self._unpark()
        if self._reading_paused:
            self._update_reading()

    def _dispatch(self, commands: list[RemotingCommand]) -> None:
        if not self.has_first_command:
            self._first_command(commands[0])
        if self._owner.is_draining:
            commands = self._send_away(commands)
        responses = Responses(self.channel)
        routes = self._routes
        batches: dict[BusinessPool, list[tuple[Processor, RemotingCommand]]] | None = None
        for index, command in enumerate(commands):
            if command.flag & 1:
                self.take_response(command)
                continue
            route = routes.get(command.code) or self._owner.table.default
            if route is None:
                responses.add_unsupported(command)
                continue
            processor, pool = route
            if pool is None:
                responses.process(processor, command)
                if responses.size_bytes >= _FLUSH_BYTES:
                    self._finish(responses)
                    responses = Responses(self.channel)
                    if not self.channel.is_writable:
                        self._parked = commands[index + 1 :] + self._parked
                        break
            else:
                if batches is None:
                    batches = {}
                batches.setdefault(pool, []).append((processor, command))
        if batches is not None:
            for pool, work in batches.items():
                self._hand_over(pool, work, responses)
        self._finish(responses)

    def take_response(self, response: RemotingCommand) -> None:
        """Give a response to the call that waits for it."""
        pending = self.channel.in_flight.take(response.opaque)
        if pending is not None and not pending.future.done():
            pending.future.set_result(response)

    def _first_command(self, command: RemotingCommand) -> None:
        self.has_first_command = True
        if not command.flag & 1 and command.ext_fields.get(ROCKETPY_FIELD) == "1":
            self.channel.is_rocketpy = True
            self.channel.offers_msgpack = True

    def _send_away(self, commands: list[RemotingCommand]) -> list[RemotingCommand]:
        """Answer GO_AWAY to those who know it; return what is still to be served."""
        kept = []
        responses = Responses(self.channel)
        for command in commands:
            if command.flag & 3 or command.version <= _LAST_VERSION_WITHOUT_GO_AWAY:
                kept.append(command)
            else:
                responses.add(command, go_away(command))
        self._finish(responses)
        return kept

    def _hand_over(
        self,
        pool: BusinessPool,
        work: list[tuple[Processor, RemotingCommand]],
        responses: Responses,
    ) -> None:
        granted = pool.reserve(len(work))
        if granted < len(work):
            responses.refuse([command for _, command in work[granted:]], overloaded())
            work = work[:granted]
        if not work:
            return
        self.in_hand_count += granted
        pool.submit(RequestBatch(self, work))
        self._watch(pool)
        if self.in_hand_count >= self._limits.max_in_flight > 0:
            self._update_reading()

    def _watch(self, pool: BusinessPool) -> None:
        """Look every 10 ms, while anything waits in the pool, for what waited too long."""
        if pool.queue_wait_ms > 0 and pool.claim_watch():
            self._loop.call_later(SWEEP_INTERVAL_MS / 1000, _watch_pool, self._loop, pool)

    def _finish(self, responses: Responses) -> None:
        frames = responses.frames
        if frames:
            self.channel.write(frames[0] if len(frames) == 1 else frames)
        for command, coroutine in responses.coroutines:
            self._owner.spawn(self._response_later(command, coroutine))
        later_count = len(responses.coroutines) + responses.deferred_count
        if later_count:
            self.in_hand_count += later_count
            if self.in_hand_count >= self._limits.max_in_flight > 0:
                self._update_reading()

    def _complete(self, deferred: DeferredResponse, response: object) -> None:
        """Take a deferred response; any thread. Many set together wake the loop once."""
        self._completed.append((deferred, response))
        if not self._completion_is_scheduled:
            self._completion_is_scheduled = True
            self.channel.call_soon(self._take_completed)

    def _take_completed(self) -> None:
        # First: what is appended from now on schedules another call.
        self._completion_is_scheduled = False
        responses = Responses(self.channel)
        count = 0
        while self._completed:
            deferred, response = self._completed.popleft()
            count += 1
            try:
                responses.add(deferred.request, cast("Response", response))
            except Exception as error:  # noqa: BLE001 - dispatch: becomes code 1, the connection stays
                responses.add_error(deferred.request, error)
        self.batch_done(responses, count, [])

    async def _response_later(
        self,
        command: RemotingCommand,
        coroutine: Awaitable[RemotingCommand | bytes | None],
    ) -> None:
        responses = Responses(self.channel)
        try:
            responses.add(command, await coroutine)
        except Exception as error:  # noqa: BLE001 - dispatch: becomes code 1, the connection stays
            responses.add_error(command, error)
        self.batch_done(responses, 1, [])

    # ---- pressure

    def _unpark(self) -> None:
        if self._parked and self.channel.is_writable and self.channel.is_open:
            commands, self._parked = self._parked, []
            self._dispatch(commands)
        self._update_reading()

    def _update_reading(self) -> None:
        if self.transport.is_closing():
            return
        limit = self._limits.max_in_flight
        paused = (
            not self.channel.is_writable
            or bool(self._parked)
            or (limit > 0 and self.in_hand_count >= limit)
        )
        if paused != self._reading_paused:
            self._reading_paused = paused
            if paused:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _refuse_frame(self, reason: str) -> None:
        if self.channel.is_open:
            _log.warning(
                "malformed frame, connection closed peer=%s reason=%s",
                self.channel.remote_address,
                reason,
            )
            self.channel.close(f"malformed frame: {reason}")

    # ---- time

    def sweep(self, now_ms: int) -> None:
        """Close what is silent, stuck or half-open; called about once a second.

        Args:
            now_ms: monotonic time.
        """
        if not self.is_attached:
            return
        channel, limits = self.channel, self._limits
        if not channel.is_open:
            self._sweep_closing(now_ms)
            return
        activity = self.reads + channel.activity
        if activity != self._seen_activity:
            self._seen_activity = activity
            self._active_ms = now_ms
        if self._stalled_ms is not None:
            self._sweep_stalled(now_ms)
        elif not self.has_first_command and (
            0 < limits.first_frame_timeout_ms <= now_ms - self._opened_ms
        ):
            channel.close("no request in time")
        elif 0 < limits.idle_timeout_ms <= now_ms - self._active_ms and not self.in_hand_count:
            self._owner.idle(self)
            channel.close("idle")

    def _sweep_closing(self, now_ms: int) -> None:
        if self._closing_ms is None:
            self._closing_ms = now_ms
        elif now_ms - self._closing_ms >= _CLOSE_LINGER_MS:
            self.transport.abort()

    def _sweep_stalled(self, now_ms: int) -> None:
        assert self._stalled_ms is not None
        waiting_bytes = self.transport.get_write_buffer_size()
        if waiting_bytes < self._stalled_bytes:
            self._stalled_ms = now_ms
        elif 0 < self._limits.write_stall_timeout_ms <= now_ms - self._stalled_ms:
            reason = f"{waiting_bytes} bytes wait for a peer that takes nothing"
            _log.warning(
                "slow peer cut off peer=%s waiting_bytes=%d",
                self.channel.remote_address,
                waiting_bytes,
            )
            self.channel.abort(reason)
        self._stalled_bytes = waiting_bytes


def _watch_pool(loop: asyncio.AbstractEventLoop, pool: BusinessPool) -> None:
    pool.sweep_now()
    if not pool.release_watch():
        loop.call_later(SWEEP_INTERVAL_MS / 1000, _watch_pool, loop, pool)
