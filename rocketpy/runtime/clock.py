"""Injectable clocks, so that a simulator can control time."""

import time
from typing import Protocol


class Clock(Protocol):
    """Interface of two clocks: wall time for people and files, monotonic time for waiting."""

    def time_ms(self) -> int:
        """Wall-clock time, ms since 1970 UTC; may jump."""
        ...

    def monotonic_ms(self) -> int:
        """Monotonic time, ms from an arbitrary start."""
        ...


class SystemClock:
    """Clocks of the operating system."""

    __slots__ = ()

    def time_ms(self) -> int:
        """Wall-clock time, ms since 1970 UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Monotonic time, ms."""
        return time.monotonic_ns() // 1_000_000
