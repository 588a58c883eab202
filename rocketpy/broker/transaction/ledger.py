"""States of half messages: one byte for each queue offset from the progress of the check-back.

A half that is checked is stored again at the end of its queue, as in Apache, so a transaction may
have several queue offsets. The ledger links the offsets of the last `MAX_MOVES` moves, so that an
end that names an old offset decides the newest one, and only once.

Source: TransactionalMessageServiceImpl (removeMap) of 5.4.0. Apache remembers neither the outcome
of a decided half nor the links of moved ones.
"""

import threading
from collections.abc import Sequence
from enum import Enum, IntEnum, auto
from typing import Final, NamedTuple

MAX_OPEN_HALVES: Final = 1 << 24
"""Half messages from the progress on that have a state: at most 16 MiB of memory."""
MAX_MOVES: Final = 50_000
"""Links from an old queue offset of a half to its next one; the oldest are dropped."""


class HalfState(IntEnum):
    """State of one queue offset of the half queue."""

    OPEN = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    DECIDED = 3
    """Decided by an op message, which does not contain the outcome."""
    MOVED = 4
    """Stored again at a later offset, or about to be."""


class Claim(Enum):
    """Result of an attempt to decide a half."""

    YES = auto()
    SAME = auto()
    """The half was decided in the same way before."""
    OTHER = auto()
    """The half was decided differently, or the outcome is not known."""
    GONE = auto()
    """The check-back passed the offset: the half was decided, abandoned or moved."""
    FULL = auto()
    """The offset is too far after the progress to have a state: too many transactions are open."""


class Claimed(NamedTuple):
    """Result of a claim.

    Attributes:
        claim: YES if the caller decides the half, or why not.
        places: all known queue offsets of the half, oldest first; an op message must name them.
    """

    claim: Claim
    places: tuple[int, ...] = ()


class HalfLedger:
    """States of half messages by queue offset; safe from any thread.

    Args:
        max_open: number of offsets from the progress on that have a state.
        max_moves: number of links of moved halves.
    """

    def __init__(self, max_open: int = MAX_OPEN_HALVES, max_moves: int = MAX_MOVES) -> None:
        self._lock = threading.Lock()
        self._max_open = max_open
        self._max_moves = max_moves
        self._base = 0
        self._states = bytearray()
        self._newer: dict[int, int] = {}
        self._older: dict[int, int] = {}
        self._unsettled: set[int] = set()

    @property
    def base(self) -> int:
        """First offset that the progress has not passed."""
        return self._base

    def reset(self, base: int) -> None:
        """Start at a queue offset, with all halves from there on open."""
        with self._lock:
            self._base = base
            self._states.clear()
            self._newer.clear()
            self._older.clear()
            self._unsettled.clear()

    def claim(self, place: int, state: HalfState) -> Claimed:
        """Decide an open half; the progress cannot pass it before `settle` or `release`.

        Args:
            place: queue offset that the end names.
            state: COMMITTED or ROLLED_BACK.
        """
        with self._lock:
            places = self._places(place)
            newest = places[-1]
            index = newest - self._base
            if index < 0:
                return Claimed(Claim.GONE)
            if index >= self._max_open:
                return Claimed(Claim.FULL)
            found = self._state(index)
            if found == HalfState.OPEN:
                self._set(index, state)
                self._unsettled.add(newest)
                return Claimed(Claim.YES, places)
            if found == HalfState.MOVED:  # not linked yet; its producer is about to be checked
                return Claimed(Claim.GONE)
            return Claimed(Claim.SAME if found == state else Claim.OTHER)

    def claim_run(self, places: Sequence[int], state: HalfState) -> int:
        """Decide halves like `claim`, up to the first one that needs the general path.

        Args:
            places: queue offsets that ends name, in their order.
            state: COMMITTED or ROLLED_BACK.

        Returns:
            Number of decided halves. The next one was decided before, is not known, or was moved;
            `claim` returns which.
        """
        with self._lock:
            for count, place in enumerate(places):
                index = place - self._base
                if (
                    not 0 <= index < self._max_open
                    or place in self._newer
                    or place in self._older
                    or self._state(index) != HalfState.OPEN
                ):
                    return count
                self._set(index, state)
                self._unsettled.add(place)
            return len(places)

    def settle_run(self, places: Sequence[int]) -> None:
        """Call `settle` for several halves."""
        with self._lock:
            self._unsettled.difference_update(places)

    def settle(self, places: tuple[int, ...]) -> None:
        """Allow the progress to pass a half: the message stored for its end is durable."""
        with self._lock:
            self._unsettled.discard(places[-1])

    def release(self, places: tuple[int, ...]) -> None:
        """Open a half again because the message of its end could not be stored."""
        with self._lock:
            self._unsettled.discard(places[-1])
            index = places[-1] - self._base
            if index >= 0:
                self._set(index, HalfState.OPEN)

    def mark_decided(self, place: int) -> None:
        """Record that an op message names a half; offsets before the progress are ignored."""
        with self._lock:
            index = place - self._base
            if 0 <= index < self._max_open:
                self._set(index, HalfState.DECIDED)

    def first_open(self, place: int) -> int:
        """Return the first open offset from `place` on; one without a state counts as open."""
        with self._lock:
            index = max(place - self._base, 0)
            if index >= len(self._states):
                return self._base + index
            found = self._states.find(HalfState.OPEN, index)
            return self._base + (len(self._states) if found < 0 else found)

    def start_move(self, place: int) -> bool:
        """Reserve an open half for moving it; False when it was decided meanwhile."""
        with self._lock:
            index = place - self._base
            if index < 0 or self._state(index) != HalfState.OPEN:
                return False
            if index < self._max_open:
                self._set(index, HalfState.MOVED)
            return True

    def record_move(self, place: int, to: int | None) -> None:
        """Record the new offset of a half; None when it could not be stored again."""
        with self._lock:
            index = place - self._base
            if to is None:
                if 0 <= index < len(self._states):
                    self._states[index] = HalfState.OPEN
                return
            self._link(place, to)

    def restore_move(self, place: int, to: int) -> None:
        """Record a move from before a restart, read from a stored half."""
        with self._lock:
            if to > place and place not in self._newer and to not in self._older:
                self._link(place, to)

    def limit_progress(self, place: int) -> int:
        """Return how far the progress may go: `place`, or an earlier half that is not settled."""
        with self._lock:
            return min(place, min(self._unsettled, default=place))

    def advance_to(self, base: int) -> None:
        """Advance the progress to a queue offset, and drop the states before it."""
        with self._lock:
            passed = base - self._base
            if passed > 0:
                del self._states[:passed]
                self._base = base

    def _state(self, index: int) -> int:
        return self._states[index] if index < len(self._states) else HalfState.OPEN

    def _set(self, index: int, state: HalfState) -> None:
        missing = index + 1 - len(self._states)
        if missing > 0:
            self._states += bytes(missing)
        self._states[index] = state

    def _link(self, place: int, to: int) -> None:
        self._newer[place] = to
        self._older[to] = place
        while len(self._newer) > self._max_moves:
            oldest = next(iter(self._newer))
            self._older.pop(self._newer.pop(oldest), None)

    def _places(self, place: int) -> tuple[int, ...]:
        places = [place]
        while (older := self._older.get(places[0])) is not None:
            places.insert(0, older)
        while (newer := self._newer.get(places[-1])) is not None:
            places.append(newer)
        return tuple(places)
