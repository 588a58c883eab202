"""How long ago a peer sent a request, by its own clock, which may be wrong.

A pop that comes long after it was sent is answered to nobody: its client gave up, and what it
popped would be invisible for nothing. Apache compares the clocks of both machines, so a consumer
whose clock is behind by more than it waits never gets a message. Here a peer whose requests all
seem late has a wrong clock, and from then on its requests are told apart by their own times.
"""

import threading
from collections.abc import Hashable
from typing import Final

from rocketpy.runtime.clock import Clock

LATE_MS: Final = 500
"""A request that comes so long after its own poll time was given up by its client."""
_WRONG_AFTER_MS: Final = 2_000
_SHARE: Final = 16


class _Peer:
    """What is known of one peer's clock; monotonic times."""

    __slots__ = ("apart_ms", "late_since_ms")

    def __init__(self, apart_ms: int) -> None:
        self.apart_ms = apart_ms
        self.late_since_ms = -1


class PeerClocks:
    """The clocks of peers that are connected; safe from any thread.

    Args:
        clock: this machine's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._peers: dict[Hashable, _Peer] = {}

    def __len__(self) -> int:
        """How many peers are known."""
        return len(self._peers)

    def born_ms(self, peer: Hashable, told_ms: int | None, poll_ms: int) -> int:
        """When a request was sent, by this machine's wall clock.

        Args:
            peer: who sent it.
            told_ms: when it was sent, by the peer's wall clock; None when it does not say.
            poll_ms: how long its client waits.
        """
        wall_ms, now_ms = self._clock.time_ms(), self._clock.monotonic_ms()
        if not told_ms:
            return wall_ms
        with self._lock:
            known = self._peers.get(peer)
            if known is None:
                known = self._peers[peer] = _Peer(now_ms - wall_ms)
            return wall_ms - self._age_ms(known, now_ms, now_ms - told_ms, poll_ms)

    def _age_ms(self, known: _Peer, now_ms: int, apart_ms: int, poll_ms: int) -> int:
        age_ms = apart_ms - known.apart_ms
        if age_ms <= poll_ms + LATE_MS:
            known.late_since_ms = -1
            # Clocks drift: what is nearly in time is followed slowly, what is early at once.
            known.apart_ms += age_ms // _SHARE if age_ms > 0 else age_ms
            return max(0, age_ms)
        if known.late_since_ms < 0:
            known.late_since_ms = now_ms
        if now_ms - known.late_since_ms < _WRONG_AFTER_MS:
            return age_ms
        known.apart_ms, known.late_since_ms = apart_ms, -1
        return 0

    def forget(self, peer: Hashable) -> None:
        """Forget a peer that is lost."""
        with self._lock:
            self._peers.pop(peer, None)
