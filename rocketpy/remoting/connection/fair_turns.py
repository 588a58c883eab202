"""Fair scheduling on one event loop: time budget of an iteration, and turns of the connections.

`TurnBudget` limits how long one iteration of the loop may serve requests of unknown cost.

`TurnScheduler` is the one queue of work that waits for its turn: held requests that were resumed,
and connections with suspended requests. Responses to a thousand held pulls that one message wakes
would otherwise all be read into memory before the first has left. What must hold:

- A channel serves at most one held request at a time, and starts it only while the peer takes what
  was sent before. So about one response per channel is unsent; the other requests wait without one.
- Channels take turns, and between a few of them the loop serves everything else.
- A request never runs inside the call that resumes it: that is often the thread that stores a
  message, in the middle of a batch, and a batch then wakes each pull once with all its messages.
- While too much lies unsent for all peers together, connections of peers that never took a big
  response still get their turns: peers that do not read must not block the others.
"""

import collections
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

from rocketpy.remoting.business_pool import BusinessPool

_log = logging.getLogger(__name__)

TURN_MS = 20
"""Time after which the remaining connections of an iteration are served in a later one."""
BEHIND_MS = 2
"""The same while postponed connections wait: the connections that the loop happens to read first
would be served more often otherwise."""


class TurnLoop(Protocol):
    """Interface of an event loop to fair scheduling."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call back in the next iteration of the loop."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> object:
        """Call back after a delay, seconds."""
        ...


class TurnBudget:
    """Time budget of one iteration of an event loop; used on that loop only.

    In one iteration a loop reads from every connection that has sent something. Hundreds of them
    with one expensive request each (a heartbeat of a thousand groups) would make all others wait,
    and so would a few that send as fast as they are served.

    Attributes:
        is_exhausted: requests have used up this iteration; data that arrives now is read later.
    """

    __slots__ = ("_began_ms", "_is_behind", "_loop", "_now_ms", "is_exhausted")

    def __init__(
        self,
        loop: TurnLoop,
        now_ms: Callable[[], int],
        is_behind: Callable[[], bool] = lambda: False,
    ) -> None:
        """Watch a loop.

        Args:
            loop: the loop.
            now_ms: monotonic time.
            is_behind: whether a postponed connection still waits.
        """
        self._is_behind = is_behind
        self._loop = loop
        self._now_ms = now_ms
        self._began_ms: int | None = None
        self.is_exhausted: bool = False

    def check_time(self) -> None:
        """Check the time, before or after requests that may be expensive."""
        # The clock starts with the first check, so an idle loop pays nothing.
        now_ms = self._now_ms()
        if self._began_ms is None:
            self._began_ms = now_ms
            self._loop.call_soon(self._iterated)
        elif now_ms - self._began_ms >= (BEHIND_MS if self._is_behind() else TURN_MS):
            self.is_exhausted = True

    def resume(self) -> None:
        """Start to serve a postponed connection; it is not postponed again by this iteration."""
        self.check_time()
        self.is_exhausted = False

    def _iterated(self) -> None:
        self._began_ms = None
        self.is_exhausted = False


# Bounds of one call of `_run`, so that reads and new requests are served in between.
_MAX_TURNS = 64
_MAX_MS = 2
# No event says that less lies unsent in all, so it is polled; peers take megabytes in 10 ms.
_FULL_PAUSE_S = 0.01


class TurnChannel(Protocol):
    """Interface of a channel to the scheduler."""

    @property
    def is_open(self) -> bool:
        """Whether frames still go out."""
        ...

    @property
    def is_writable(self) -> bool:
        """Whether the peer keeps up."""
        ...

    @property
    def has_unwritten(self) -> bool:
        """Whether frames wait for the end of this iteration of the loop."""
        ...

    @property
    def remote_address(self) -> str:
        """The peer, for the log."""
        ...

    def write(self, frame: bytes) -> None:
        """Write now; only on the channel's loop."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a frame; any thread."""
        ...

    def call_soon(self, callback: Callable[..., object], *args: object) -> bool:
        """Run a callback on the channel's loop; any thread."""
        ...


class HeldRequest(Protocol):
    """A request whose response is made in its channel's turn."""

    def run(self) -> bytes | None:
        """Return the frame of the response; None when it is held again or answered later."""
        ...


class _Turn(NamedTuple):
    """Entry of a channel's queue: a held request, or a callback of its connection."""

    request: HeldRequest | None
    pool: BusinessPool | None
    callback: Callable[[], object] | None
    is_small: bool


class TurnScheduler:
    """Held requests and connections that wait on one event loop; used on that loop only.

    Within a channel first come, first served; channels take turns.

    Attributes:
        is_blocked: some channel waits because too much lies unsent for all peers.
    """

    def __init__(
        self,
        loop: TurnLoop,
        now_ms: Callable[[], int],
        is_full: Callable[[], bool] = lambda: False,
        is_exhausted: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set up for one loop.

        Args:
            loop: where turns run.
            now_ms: monotonic time, ms.
            is_full: whether so much lies unsent for all peers that no big response may be added.
            is_exhausted: whether so much is held for all of them that no request may be served.
        """
        self._loop = loop
        self._now_ms = now_ms
        self._is_full = is_full
        self._is_exhausted = is_exhausted
        self._waiting: dict[TurnChannel, collections.deque[_Turn]] = {}
        # Of each channel with a held request in `_waiting` or under way: those behind it. They
        # enter `_waiting` one at a time, so that a connection's own turn waits for one response
        # and not for a thousand.
        self._held: dict[TurnChannel, collections.deque[_Turn]] = {}
        # Channels with waiting turns whose peer takes more. One may be here twice, or have nothing
        # waiting any more: `_run` checks.
        self._ready: collections.deque[TurnChannel] = collections.deque()
        self._is_scheduled = False
        self.is_blocked: bool = False

    @property
    def is_behind(self) -> bool:
        """Whether a turn could run now that has not."""
        return bool(self._ready)

    def add(
        self, channel: TurnChannel, request: HeldRequest, pool: BusinessPool | None = None
    ) -> None:
        """Queue a held request: its response is made and sent in the channel's turn.

        Args:
            channel: where the response goes.
            request: makes it.
            pool: where it is made; None on the loop, also while the pool is full.
        """
        # Never small: the response to a held request may be as large as a pull.
        turn = _Turn(request, pool, None, False)
        held = self._held.get(channel)
        if held is not None:
            held.append(turn)
            return
        self._held[channel] = collections.deque()
        self._queue(channel, turn)

    def add_connection(
        self, channel: TurnChannel, callback: Callable[[], object], *, is_small: bool = False
    ) -> None:
        """Queue a connection that has requests to serve.

        Args:
            channel: of the connection.
            callback: serves some of them.
            is_small: no big response will come of it.
        """
        self._queue(channel, _Turn(None, None, callback, is_small))

    def resume(self, channel: TurnChannel) -> None:
        """Continue with a channel whose peer takes more again."""
        if channel in self._waiting and channel.is_writable:
            self._ready.append(channel)
            self._schedule()

    def drop(self, channel: TurnChannel) -> None:
        """Forget everything that waits of a channel that is closed."""
        self._waiting.pop(channel, None)
        self._held.pop(channel, None)

    def _queue(self, channel: TurnChannel, turn: _Turn) -> None:
        queue = self._waiting.get(channel)
        if queue is not None:
            queue.append(turn)
            return
        self._waiting[channel] = collections.deque((turn,))
        self.resume(channel)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Run some turns, then let the loop serve everything else before the next."""
        ready, waiting = self._ready, self._waiting
        self._is_scheduled = self.is_blocked = False
        end_ms = self._now_ms() + _MAX_MS
        ran_count = passed_count = 0
        while ready:
            if not self.is_blocked:  # not checked again once it is so: that asks all peers
                self.is_blocked = self._is_full()
            if self.is_blocked and (passed_count >= len(ready) or self._is_exhausted()):
                self._is_scheduled = True
                self._loop.call_later(_FULL_PAUSE_S, self._run)
                return
            if ran_count >= _MAX_TURNS or (ran_count and self._now_ms() >= end_ms):
                self._schedule()
                return
            channel = ready.popleft()
            queue = waiting.get(channel)
            # Closed or slow since it was queued; `resume` queues it again.
            if queue is None or not channel.is_writable:
                continue
            # Passed to the end: a small turn behind it may run.
            if self.is_blocked and not queue[0].is_small:
                ready.append(channel)
                passed_count += 1
                continue
            passed_count = 0
            turn = queue.popleft()
            # At the end of the line, behind the other channels.
            if queue:
                ready.append(channel)
            else:
                del waiting[channel]
            ran_count += 1
            try:
                self._take(channel, turn)
            except Exception:  # noqa: BLE001 - one connection's fault must not end the others' turns
                _log.exception("turn failed: peer=%s", channel.remote_address)
        self.is_blocked = False

    def _take(self, channel: TurnChannel, turn: _Turn) -> None:
        if turn.callback is not None:
            turn.callback()
        elif turn.request is not None:
            if turn.pool is not None and turn.pool.reserve(1):
                turn.pool.submit(_PooledRequest(channel, turn.request, self._finished))
                return
            # A response with nothing to leave with is written now, without one more iteration.
            is_alone = not self._held.get(channel) and not channel.has_unwritten
            _respond(channel, turn.request, channel.write if is_alone else channel.send)
            self._finished(channel)

    def _finished(self, channel: TurnChannel) -> None:
        """Queue the next held request of a channel, behind its connection's turn if that waits."""
        held = self._held.get(channel)
        if held:
            self._queue(channel, held.popleft())
        else:
            self._held.pop(channel, None)


class _PooledRequest:
    """A held request as a business pool takes it."""

    count = 1

    def __init__(
        self, channel: TurnChannel, request: HeldRequest, finish: Callable[[TurnChannel], None]
    ) -> None:
        self._channel = channel
        self._request = request
        self._finish = finish

    def run(self) -> None:
        """Make and send the response; on a pool thread."""
        _respond(self._channel, self._request, self._channel.send)
        # Behind the response in the loop's queue, so that it is written before the next begins.
        self._channel.call_soon(self._finish, self._channel)

    def refuse(self, waited_ms: int, queued_count: int) -> None:  # noqa: ARG002 - see `Batch`
        """Respond all the same: a request that was resumed has waited long enough."""
        self.run()


def _respond(channel: TurnChannel, request: HeldRequest, write: Callable[[bytes], None]) -> None:
    if not channel.is_open:
        return
    try:
        frame = request.run()
        if frame is not None:
            write(frame)
    except Exception:  # noqa: BLE001 - the requests behind it must still run
        _log.exception("resumed request failed: peer=%s", channel.remote_address)
