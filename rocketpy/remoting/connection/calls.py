"""Unanswered requests of one connection, matched by opaque; hooks around a client's requests.

One heap of deadlines and one armed timer for a connection, not a timer for each request: most
requests are answered long before their deadline, and their heap entries are removed in bulk.

Source: NettyRemotingAbstract.responseTable, ResponseFuture, RPCHook (5.4.0).
"""

import asyncio
import heapq
from collections.abc import Callable
from typing import Protocol

from rocketpy.errors import ConnectError, ConnectionLostError, RequestTimeoutError
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.compiled_requests import StoredAnswer

_STALE_ENTRIES_KEPT = 1024
"""Heap entries of answered requests that are kept: removing fewer costs more than it saves."""
_STALL_S = 0.2
"""A timer that fires this late was delayed by this process, not by the server."""
_MAX_GRACE_S = 1.0
"""Most time that responses get after a stall, which the server may have spent waiting for us."""


class TimerHandle(Protocol):
    """Handle of a timer."""

    def cancel(self) -> None:
        """Cancel the timer."""
        ...


class TimerLoop(Protocol):
    """The two methods of an event loop that deadlines need."""

    def time(self) -> float:
        """Loop time, seconds."""
        ...

    def call_at(self, when: float, callback: Callable[[], object], /) -> TimerHandle:
        """Call back at the given loop time."""
        ...


class Call(Protocol):
    """A request that was sent, or waits for a connection, and its outcome.

    Attributes:
        command: the request as sent (kept for the one resend after GO_AWAY).
        timeout_ms: as given by the caller, for the error's words.
        deadline_s: loop time at which it fails.
        was_resent: GO_AWAY has moved it to another connection once.
        is_prompt: servers answer it at once, unlike a pull that waits for messages.
    """

    is_prompt: bool
    command: RemotingCommand
    timeout_ms: int
    deadline_s: float
    was_resent: bool

    @property
    def is_over(self) -> bool:
        """Whether it has its response or an error, or its caller stopped waiting."""
        ...

    def answer(self, response: RemotingCommand) -> None:
        """Take the response; from within the reading of the connection."""
        ...

    def stored(self, answer: StoredAnswer) -> bool:
        """Take the answer to a send as its fields; False when the whole response is wanted."""
        ...

    def fail(self, error: Exception) -> None:
        """Take an error; perhaps before the call that has started it returns."""
        ...


class PendingRequest:
    """A call whose response goes to a future; see `Call`."""

    is_prompt = False

    __slots__ = ("command", "deadline_s", "future", "timeout_ms", "was_resent")

    def __init__(
        self,
        command: RemotingCommand,
        future: asyncio.Future[RemotingCommand],
        timeout_ms: int,
        deadline_s: float,
    ) -> None:
        self.command: RemotingCommand = command
        self.future: asyncio.Future[RemotingCommand] = future
        self.timeout_ms: int = timeout_ms
        self.deadline_s: float = deadline_s
        self.was_resent: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the future is done."""
        return self.future.done()

    def answer(self, response: RemotingCommand) -> None:
        """Set the response, unless the caller is gone."""
        if not self.future.done():
            self.future.set_result(response)

    def stored(self, _: StoredAnswer) -> bool:
        """Want the whole response."""
        return False

    def fail(self, error: Exception) -> None:
        """Set an error, unless the caller is gone."""
        if not self.future.done():
            self.future.set_exception(error)


class PendingCalls:
    """The unanswered requests of one connection; used on its loop's thread only.

    Args:
        loop: runs the timer.
        peer: address, for errors.
        is_connecting: whether the requests wait for a connection, so that none was written.

    Attributes:
        on_timeout: called with each request that was not answered in time.
    """

    __slots__ = (
        "_armed_for_s",
        "_deadlines",
        "_has_waited",
        "_is_connecting",
        "_loop",
        "_peer",
        "_pending",
        "_timer",
        "on_timeout",
    )

    def __init__(self, loop: TimerLoop, peer: str, *, is_connecting: bool = False) -> None:
        self._is_connecting = is_connecting
        self._has_waited = False
        self._loop = loop
        self._peer = peer
        self._pending: dict[int, Call] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._timer: TimerHandle | None = None
        self._armed_for_s = 0.0
        self.on_timeout: Callable[[Call], None] | None = None

    def __len__(self) -> int:
        """Count of unanswered requests."""
        return len(self._pending)

    def add(self, opaque: int, pending: Call) -> None:
        """Wait for the response with this opaque until the request's deadline."""
        self._pending[opaque] = pending
        deadlines = self._deadlines
        heapq.heappush(deadlines, (pending.deadline_s, opaque))
        # Only an earlier deadline arms the timer again: with one time-out for all it never does.
        if self._timer is None or pending.deadline_s < self._armed_for_s:
            self._arm(pending.deadline_s)
        # Amortized: the heap is rebuilt when most of its entries are stale.
        if len(deadlines) > 2 * len(self._pending) + _STALE_ENTRIES_KEPT:
            self._forget_answered()

    def is_overdue(self, age_s: float) -> bool:
        """Whether a request that servers answer at once has waited for so long."""
        start_s = self._loop.time() - age_s
        return any(
            each.is_prompt and each.deadline_s - each.timeout_ms / 1_000 <= start_s
            for each in self._pending.values()
        )

    def take(self, opaque: int) -> Call | None:
        """Remove and return the request a response belongs to; None when it is late or unknown."""
        return self._pending.pop(opaque, None)

    def take_all(self) -> list[Call]:
        """Remove and return every unanswered request, and stop the timer."""
        # A copy: a failed call may start another one on this connection.
        pending = list(self._pending.values())
        self._pending.clear()
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return pending

    def fail_all(self, reason: str) -> None:
        """Fail every unanswered request with ConnectionLostError."""
        for pending in self.take_all():
            if not pending.is_over:
                pending.fail(
                    ConnectionLostError(
                        f"connection to {self._peer} closed ({reason}) before request "
                        f"{pending.command.code} was answered"
                    )
                )

    def expire(self) -> None:
        """Fail requests past their deadline, and arm the timer for the next deadline."""
        self._timer = None
        now_s = self._loop.time()
        late_s = now_s - self._armed_for_s
        # The loop stalled: requests may just have been written, and responses may lie unread.
        if late_s >= _STALL_S and not self._has_waited:
            self._has_waited = True
            self._timer = self._loop.call_at(now_s + min(late_s, _MAX_GRACE_S), self.expire)
            return
        self._has_waited = False
        deadlines, pendings = self._deadlines, self._pending
        while deadlines:
            deadline_s, opaque = deadlines[0]
            pending = pendings.get(opaque)
            # Opaques wrap around: the entry may be of an answered request with the same number.
            if pending is None or pending.deadline_s != deadline_s:
                heapq.heappop(deadlines)
                continue
            if deadline_s > now_s:
                self._arm(deadline_s)
                return
            heapq.heappop(deadlines)
            # Before the call fails: its caller may send again at once.
            del pendings[opaque]
            if not pending.is_over:
                pending.fail(self._timeout_error(pending))
            if self.on_timeout is not None:
                self.on_timeout(pending)

    def _timeout_error(self, pending: Call) -> ConnectError | RequestTimeoutError:
        within = f"within {pending.timeout_ms} ms"
        if self._is_connecting:
            return ConnectError(f"not connected to {self._peer} {within}; nothing was sent")
        return RequestTimeoutError(
            f"no answer from {self._peer} to request {pending.command.code} {within}"
        )

    def _arm(self, deadline_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for_s = deadline_s
        self._timer = self._loop.call_at(deadline_s, self.expire)

    def _forget_answered(self) -> None:
        self._deadlines = [(p.deadline_s, opaque) for opaque, p in self._pending.items()]
        heapq.heapify(self._deadlines)


class RpcHook(Protocol):
    """Hook of a client: called with each request before it is encoded, and with each response."""

    def before_request(self, address: str, command: RemotingCommand) -> None:
        """Inspect or change a request; an exception is raised to the caller.

        Args:
            address: where the request goes, `host:port`.
            command: the request; its ext fields are complete, so it may be signed here.
        """
        ...

    def after_response(
        self, address: str, command: RemotingCommand, response: RemotingCommand
    ) -> None:
        """Inspect a response; an exception is logged and does not reach the caller."""
        ...
