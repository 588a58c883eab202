"""Manual clock for tests: time passes by `advance` only."""


class SimClock:
    """Satisfies `rocketpy.runtime.clock.Clock`; both clocks move by `advance` only."""

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, time_ms: int = 1_800_000_000_000, monotonic_ms: int = 0) -> None:
        self._wall_ms = time_ms
        self._monotonic_ms = monotonic_ms

    def time_ms(self) -> int:
        """Wall-clock time, ms since 1970."""
        return self._wall_ms

    def monotonic_ms(self) -> int:
        """Monotonic time, ms."""
        return self._monotonic_ms

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass on both clocks."""
        assert elapsed_ms >= 0
        self._wall_ms += elapsed_ms
        self._monotonic_ms += elapsed_ms

    def jump(self, change_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or NTP does."""
        self._wall_ms += change_ms
