"""Tells sends that their attempt has had its share of the time, with one timer for all of them."""

import asyncio
from typing import Final, Protocol

from rocketpy.runtime.clock import Clock

RESOLUTION_MS: Final = 50
_STALLED_SLOTS: Final = 4
"""A timer that comes so late was kept waiting by this process, not by a broker."""


class Watched(Protocol):
    """Whose attempt it is."""

    def share_over(self) -> None:
        """The attempt has had its share."""
        ...


class AttemptWatch:
    """Attempts by the time at which their share is over, in steps of `RESOLUTION_MS`.

    Most attempts end long before: one costs two changes of a dict and no timer. After a time in
    which the loop itself could not run, the answers that came meanwhile are read first.

    Args:
        loop: runs the timer.
        clock: for monotonic times.
    """

    __slots__ = ("_armed_for", "_clock", "_has_waited", "_loop", "_slots", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._slots: dict[int, dict[Watched, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0
        self._has_waited = False

    def __len__(self) -> int:
        """Count of attempts that are watched."""
        return sum(map(len, self._slots.values()))

    def add(self, watched: Watched, due_ms: int) -> int:
        """Watch an attempt.

        Args:
            watched: told when its share is over.
            due_ms: when that is, monotonic; told up to `RESOLUTION_MS` later.

        Returns:
            What `discard` takes; never 0.
        """
        slot = due_ms // RESOLUTION_MS + 1
        members = self._slots.get(slot)
        if members is None:
            members = self._slots[slot] = {}
            if self._timer is None or slot < self._armed_for:
                self._arm(slot)
        members[watched] = None
        return slot

    def discard(self, watched: Watched, slot: int) -> None:
        """Watch an attempt no more."""
        members = self._slots.get(slot)
        if members is None:
            return
        members.pop(watched, None)
        if not members:
            del self._slots[slot]

    def _arm(self, slot: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = slot
        wait_ms = slot * RESOLUTION_MS - self._clock.monotonic_ms()
        self._timer = self._loop.call_later(wait_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        reached = self._clock.monotonic_ms() // RESOLUTION_MS
        if reached - self._armed_for >= _STALLED_SLOTS and not self._has_waited:
            self._has_waited = True
            self._timer = self._loop.call_later(RESOLUTION_MS / 1000, self._fire)
            return
        self._has_waited = False
        for slot in sorted(slot for slot in self._slots if slot <= reached):
            for watched in self._slots.pop(slot):
                watched.share_over()
        if self._slots and self._timer is None:
            self._arm(min(self._slots))
