"""Counts and rates of a consumer's messages over the last minute and hour.

Source: ConsumerStatsManager (5.4.0).
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from rocketpy.proto.bodies.running import ConsumeStatus
from rocketpy.runtime.clock import Clock

SAMPLE_INTERVAL_MS = 10_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000


class ConsumeCounts(NamedTuple):
    """Counts of a consumer's messages of one topic since its start.

    Attributes:
        received: messages that pulls or pops brought.
        handled: those whose handling went well.
        failed: those whose handling failed; again when one fails again.
        handle_ms: time in handlers.
    """

    received: int
    handled: int
    failed: int
    handle_ms: int


@dataclass(slots=True)
class _Counters:
    ok: int = 0
    failed: int = 0
    pulled: int = 0
    pulls: int = 0
    handle_ms: int = 0
    samples: deque[tuple[int, int, int, int, int]] = field(default_factory=deque)


class ConsumeStats:
    """Counters by topic; `sample` is called periodically.

    Args:
        clock: for rates (monotonic).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._topics: dict[str, _Counters] = {}

    def __repr__(self) -> str:
        """Show the counts of each topic, and the rate of the last minute."""
        topics = [
            f"{topic}: received={each.received} handled={each.handled} failed={each.failed} "
            f"handled_per_s={self.report(topic).consume_ok_tps}"
            for topic, each in self.counts.items()
        ]
        return f"ConsumeStats({', '.join(topics)})"

    @property
    def counts(self) -> dict[str, ConsumeCounts]:
        """The counts so far, by topic."""
        return {
            topic: ConsumeCounts(each.pulled, each.ok, each.failed, each.handle_ms)
            # A copy: `rocketpy.sync` reads this on another thread while the event loop adds topics.
            for topic, each in list(self._topics.items())
        }

    def _of(self, topic: str) -> _Counters:
        counters = self._topics.get(topic)
        if counters is None:
            counters = self._topics[topic] = _Counters()
            counters.samples.append((self._clock.monotonic_ms(), 0, 0, 0, 0))
        return counters

    def handled(self, topic: str, count: int, handle_ms: int, *, ok: bool) -> None:
        """Count messages whose handling ended."""
        counters = self._topics.get(topic) or self._of(topic)
        counters.handle_ms += handle_ms
        if ok:
            counters.ok += count
        else:
            counters.failed += count

    def pulled(self, topic: str, count: int) -> None:
        """Count pulled messages."""
        self._of(topic).pulled += count

    def sample(self) -> None:
        """Record the present counters as a base of rates."""
        now = self._clock.monotonic_ms()
        for counters in self._topics.values():
            samples = counters.samples
            # The caller's interval is a setting: a short one must not fill the memory with samples.
            if now - samples[-1][0] >= SAMPLE_INTERVAL_MS:
                samples.append(
                    (now, counters.ok, counters.failed, counters.pulled, counters.handle_ms)
                )
            # The second one decides, so that the newest sample before the last hour stays as base.
            while len(samples) > 2 and now - samples[1][0] > HOUR_MS:
                samples.popleft()

    def report(self, topic: str) -> ConsumeStatus:
        """Return the rates of the last minute, and the failures of the last hour."""
        counters = self._of(topic)
        now = self._clock.monotonic_ms()
        base = self._base(counters, now - MINUTE_MS)
        seconds = max(1, now - base[0]) / 1000
        ok = counters.ok - base[1]
        failed = counters.failed - base[2]
        done = ok + failed
        hour = self._base(counters, now - HOUR_MS)
        return ConsumeStatus(
            pull_tps=round((counters.pulled - base[3]) / seconds, 2),
            consume_rt=round((counters.handle_ms - base[4]) / done, 2) if done else 0.0,
            consume_ok_tps=round(ok / seconds, 2),
            consume_failed_tps=round(failed / seconds, 2),
            consume_failed_msgs=counters.failed - hour[2],
        )

    @staticmethod
    def _base(counters: _Counters, since_ms: int) -> tuple[int, int, int, int, int]:
        """Return the newest sample at or before `since_ms`, else the oldest."""
        found = counters.samples[0]
        for sample in counters.samples:
            if sample[0] > since_ms:
                break
            found = sample
        return found
