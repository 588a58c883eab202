"""How fast a count grows, between two looks."""

from collections.abc import Callable

from rocketpy.runtime.clock import Clock

_SHORTEST_MS = 1_000


class CountRate:
    """The rate of a count since it was last asked for, over at least a second.

    Args:
        clock: measures.
        count: the count; it only grows.
    """

    def __init__(self, clock: Clock, count: Callable[[], int]) -> None:
        self._clock = clock
        self._count = count
        self._since_ms = clock.monotonic_ms()
        self._before = 0
        self._rate = 0.0

    def per_second(self) -> float:
        """Return the rate, one digit behind the point."""
        now_ms, count = self._clock.monotonic_ms(), self._count()
        elapsed_ms = now_ms - self._since_ms
        if elapsed_ms >= _SHORTEST_MS:
            self._rate = round((count - self._before) * 1_000 / elapsed_ms, 1)
            self._since_ms, self._before = now_ms, count
        return self._rate
