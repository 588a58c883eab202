"""Who may make a big response next: a turn comes when the peer takes what was sent before.

Responses that many peers wait for at once (a message that wakes a thousand held pulls) would all be
read into memory before the first has left. Here each channel makes one at a time, channels take
turns, and between a few of them the loop serves everybody else.

Requests that were put off take turns here, too. Those of peers that never took a big response have
theirs also while so much lies unsent that nobody may make a big one: else peers that do not read
would keep everybody else waiting.

How long one turn of an event loop may serve requests whose cost nobody knows.
"""

import collections
import logging
from collections.abc import Callable
from typing import NamedTuple, Protocol

TURN_MS = 20
"""After so long the connections that come next in this turn are served in a later one."""
BEHIND_MS = 2
"""The same while some of an earlier turn are left: else who is read first would be served often."""


class TurnLoop(Protocol):
    """What fair scheduling needs of an event loop."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call back in the next turn of the loop."""
        ...

    def call_later(self, delay: float, callback: Callable[[], object], /) -> object:
        """Call back in so many seconds."""
        ...


class TurnBudget:
    """The turn that an event loop is in; used on that loop only.

    A loop reads from every connection that has sent something before it turns. Hundreds of them
    with one costly request each (a heartbeat of a thousand groups) would keep all others waiting,
    and so would a few that send as fast as they are served.

    Attributes:
        is_over: costly requests have taken this turn; what comes now is read later.
    """

    __slots__ = ("_began_ms", "_is_behind", "_loop", "_now_ms", "is_over")

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
            is_behind: whether somebody who was put off has still not been served.
        """
        self._is_behind = is_behind
        self._loop = loop
        self._now_ms = now_ms
        self._began_ms: int | None = None
        self.is_over: bool = False

    def look(self) -> None:
        """Note that requests were served which may have been costly, or are about to be."""
        now_ms = self._now_ms()
        if self._began_ms is None:
            self._began_ms = now_ms
            self._loop.call_soon(self._turned)
        elif now_ms - self._began_ms >= (BEHIND_MS if self._is_behind() else TURN_MS):
            self.is_over = True

    def go_on(self) -> None:
        """Begin to serve somebody who was put off: not again, whatever this turn has taken."""
        self.look()
        self.is_over = False

    def _turned(self) -> None:
        self._began_ms = None
        self.is_over = False


_log = logging.getLogger(__name__)

_MAX_CALLBACKS = 64
_MAX_MS = 2
_FULL_PAUSE_S = 0.01


class _Turn(NamedTuple):
    callback: Callable[[], object]
    is_small: bool


class TurnChannel(Protocol):
    """What turns need of a channel."""

    @property
    def is_writable(self) -> bool:
        """Whether the peer keeps up."""
        ...

    @property
    def remote_address(self) -> str:
        """The peer, for the log."""
        ...


class WriteScheduler:
    """The callbacks that wait on one event loop; used on that loop only.

    Within a channel first come, first served; channels take turns.

    Attributes:
        is_blocked: somebody waits because too much lies unsent for all peers.
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
            loop: where callbacks run.
            now_ms: monotonic time, ms.
            is_full: whether so much lies unsent for all peers that nobody may add to it now.
            is_exhausted: whether so much is held for all of them that no request may be served.
        """
        self._loop = loop
        self._now_ms = now_ms
        self._is_full = is_full
        self._is_exhausted = is_exhausted
        self._waiting: dict[TurnChannel, collections.deque[_Turn]] = {}
        # Channels with waiting callbacks whose peer takes more. One may be here twice, or have
        # nothing waiting any more: the turn looks.
        self._ready: collections.deque[TurnChannel] = collections.deque()
        self._is_scheduled = False
        self.is_blocked: bool = False

    @property
    def is_behind(self) -> bool:
        """Whether any callback could run that has not had its turn."""
        return bool(self._ready)

    def add(
        self, channel: TurnChannel, callback: Callable[[], object], *, is_small: bool = False
    ) -> None:
        """Queue a callback for a channel; `is_small`: nothing big will come of it."""
        turn = _Turn(callback, is_small)
        queue = self._waiting.get(channel)
        if queue is not None:
            queue.append(turn)
            return
        self._waiting[channel] = collections.deque((turn,))
        self.resume(channel)

    def resume(self, channel: TurnChannel) -> None:
        """Go on with a channel whose peer takes more again."""
        if channel in self._waiting and channel.is_writable:
            self._ready.append(channel)
            self._schedule()

    def drop(self, channel: TurnChannel) -> None:
        """Forget the callbacks of a channel that is closed."""
        self._waiting.pop(channel, None)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        """Run some callbacks, then let the loop serve others before the next."""
        ready, waiting = self._ready, self._waiting
        self._is_scheduled = self.is_blocked = False
        end_ms = self._now_ms() + _MAX_MS
        ran_count = passed_count = 0
        while ready:
            if not self.is_blocked:  # once it is so it is not asked again: that asks all peers
                self.is_blocked = self._is_full()
            if self.is_blocked and (passed_count >= len(ready) or self._is_exhausted()):
                self._is_scheduled = True
                self._loop.call_later(_FULL_PAUSE_S, self._run)
                return
            if ran_count >= _MAX_CALLBACKS or (ran_count and self._now_ms() >= end_ms):
                self._schedule()
                return
            channel = ready.popleft()
            queue = waiting.get(channel)
            if queue is None or not channel.is_writable:
                continue
            if self.is_blocked and not queue[0].is_small:
                ready.append(channel)
                passed_count += 1
                continue
            passed_count = 0
            callback = queue.popleft().callback
            if queue:
                ready.append(channel)
            else:
                del waiting[channel]
            ran_count += 1
            try:
                callback()
            except Exception:  # noqa: BLE001 - one caller's fault must not end everybody's turns
                _log.exception("write callback failed peer=%s", channel.remote_address)
        self.is_blocked = False
