"""Time comes in from outside, so that the simulator can own it."""

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for people and files, one for waiting."""

    def time_ms(self) -> int:
        """Wall-clock time, ms since 1970 UTC; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Time that never goes back, ms from an arbitrary start."""
        ...


class SystemClock:
    """The machine's clocks."""

    __slots__ = ()

    def time_ms(self) -> int:
        """Wall-clock time, ms since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic time, ms."""
        return time.monotonic_ns() // 1_000_000
