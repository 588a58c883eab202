"""Avoidance of brokers that were slow or failed, for a time that depends on their latency.

Source: LatencyFaultToleranceImpl and MQFaultStrategy, with the tables of 4.x (default) and 5.x.
"""

import random
from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal

from rocketpy.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class _Profile:
    latency_ms: tuple[int, ...]
    avoid_ms: tuple[int, ...]
    isolation_latency_ms: int  # the latency that stands for a failure
    keeps_longest: bool  # a shorter avoidance never replaces a longer one


_PROFILES = {
    "4.x": _Profile(
        (50, 100, 550, 1000, 2000, 3000, 15_000),
        (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000),
        isolation_latency_ms=30_000,
        keeps_longest=False,
    ),
    "5.x": _Profile(
        (50, 100, 550, 1800, 3000, 5000, 15_000),
        (0, 0, 2000, 5000, 6000, 10_000, 30_000),
        isolation_latency_ms=10_000,
        keeps_longest=True,
    ),
}


@dataclass(slots=True)
class _Fault:
    latency_ms: int
    available_at_ms: int
    reachable: bool


class BrokerLatencies:
    """Latest latency of each broker, and the time until which it is avoided.

    Args:
        profile: `"4.x"` or `"5.x"`: which of Apache's tables applies.
        clock: for the end of an avoidance (monotonic).
        rng: breaks ties between brokers that are all to be avoided, and starts the round over them.
    """

    def __init__(self, profile: Literal["4.x", "5.x"], *, clock: Clock, rng: random.Random) -> None:
        self._profile = _PROFILES[profile]
        self._clock = clock
        self._rng = rng
        self._faults: dict[str, _Fault] = {}
        self._turn = rng.randrange(1 << 31)
        self.looks_at_reachable: bool = profile == "5.x"  # 4.x takes the least bad broker instead

    def avoid_ms(self, latency_ms: int) -> int:
        """Return the time for which a broker with this latency is avoided."""
        # A latency that is equal to a step counts as that step, as in Java.
        index = bisect_right(self._profile.latency_ms, latency_ms) - 1
        return self._profile.avoid_ms[index] if index >= 0 else 0

    def update(
        self, broker_name: str, latency_ms: int, *, failed: bool = False, reachable: bool = True
    ) -> None:
        """Record the outcome of an attempt.

        Args:
            broker_name: broker of the attempt.
            latency_ms: duration of the attempt.
            failed: whether the attempt counts as the profile's isolation latency.
            reachable: whether the broker answered.
        """
        profile = self._profile
        avoid_ms = self.avoid_ms(profile.isolation_latency_ms if failed else latency_ms)
        until = self._clock.monotonic_ms() + avoid_ms
        fault = self._faults.get(broker_name)
        if fault is None:
            self._faults[broker_name] = _Fault(latency_ms, until, reachable)
            return
        fault.latency_ms = latency_ms
        fault.reachable = reachable
        # In 5.x a short verdict must not end a longer one that still runs.
        if not profile.keeps_longest or (avoid_ms > 0 and until > fault.available_at_ms):
            fault.available_at_ms = until

    def is_available(self, broker_name: str) -> bool:
        """Return whether the broker is not avoided now."""
        fault = self._faults.get(broker_name)
        return fault is None or self._clock.monotonic_ms() >= fault.available_at_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Return whether the broker answered the latest attempt."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.reachable

    def pick_one_at_least(self) -> str | None:
        """Return one of the better half of the brokers with an entry, in turn; None without any."""
        now = self._clock.monotonic_ms()
        # Shuffled first, so that brokers that are equally bad are taken in another order each time;
        # the sort keeps that order.
        names = list(self._faults)
        self._rng.shuffle(names)
        ranked = sorted(
            names,
            key=lambda name: (
                now < self._faults[name].available_at_ms,
                self._faults[name].latency_ms,
                self._faults[name].available_at_ms,
            ),
        )
        if not ranked:
            return None
        self._turn += 1
        return ranked[self._turn % max(1, len(ranked) // 2)]

    def forget(self, broker_name: str) -> None:
        """Remove a broker that serves nothing any more."""
        self._faults.pop(broker_name, None)
