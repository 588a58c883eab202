"""How long one turn of an event loop may serve requests whose cost nobody knows."""

from collections.abc import Callable
from typing import Protocol

TURN_MS = 20
"""After so long the connections that come next in this turn are served in a later one."""
BEHIND_MS = 2
"""The same while some of an earlier turn are left: else who is read first would be served often."""


class TurnLoop(Protocol):
    """What is needed of an event loop."""

    def call_soon(self, callback: Callable[[], object], /) -> object:
        """Call back in the next turn of the loop."""
        ...


class LoopTurn:
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
