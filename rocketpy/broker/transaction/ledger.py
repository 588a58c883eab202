"""Which half messages are decided: one byte for each from the progress of the check on.

A half that is checked is stored again at the end of its queue, as Apache does, so one transaction
may have several places there. The ledger knows them as one while it remembers them: an end that
names an old place decides the newest, and is decided once.

Source: TransactionalMessageServiceImpl (removeMap) of 5.4.0; what became of a decided half, and of
one that moved, is remembered by us.
"""

import threading
from collections.abc import Sequence
from enum import Enum, IntEnum, auto
from typing import Final, NamedTuple

MAX_OPEN_HALVES: Final = 1 << 24
"""Halves between the progress and the end of the queue that can be told apart: 16 MiB."""
MAX_MOVES: Final = 50_000
"""Halves of which is remembered where they were stored again."""


class HalfState(IntEnum):
    """What is known of one place in the half queue."""

    OPEN = 0
    COMMITTED = 1
    ROLLED_BACK = 2
    DECIDED = 3
    """By an op message, which does not say how."""
    MOVED = 4
    """Stored again, or about to be."""


class Claim(Enum):
    """Whether an end may decide its half."""

    YES = auto()
    SAME = auto()
    """It was decided in this way before."""
    OTHER = auto()
    """It was decided otherwise, or nobody knows how."""
    GONE = auto()
    """The check passed it: it was decided, given up, or is elsewhere."""
    FULL = auto()


class Claimed(NamedTuple):
    """The answer to a claim.

    Attributes:
        claim: whether the caller decides the half.
        places: every known place of it, the newest last: what an op message has to name.
    """

    claim: Claim
    places: tuple[int, ...] = ()


class HalfLedger:
    """States of half messages by queue offset; safe from any thread.

    Args:
        max_open: places from the progress on that are told apart.
        max_moves: moved halves that are remembered.
    """

    def __init__(self, max_open: int = MAX_OPEN_HALVES, max_moves: int = MAX_MOVES) -> None:
        self._lock = threading.Lock()
        self._max_open = max_open
        self._max_moves = max_moves
        self._base = 0
        self._states = bytearray()
        self._newer: dict[int, int] = {}
        self._older: dict[int, int] = {}
        self._in_hand: set[int] = set()

    @property
    def base(self) -> int:
        """First place that is not passed."""
        return self._base

    def reset(self, base: int) -> None:
        """Begin at a queue offset, with everything from there on open."""
        with self._lock:
            self._base = base
            self._states.clear()
            self._newer.clear()
            self._older.clear()
            self._in_hand.clear()

    def claim(self, place: int, state: HalfState) -> Claimed:
        """Decide a half, if it is still open; it is not passed until `settle` or `release`.

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
                self._in_hand.add(newest)
                return Claimed(Claim.YES, places)
            if found == HalfState.MOVED:  # just now; its producer is asked next
                return Claimed(Claim.GONE)
            return Claimed(Claim.SAME if found == state else Claim.OTHER)

    def claim_run(self, places: Sequence[int], state: HalfState) -> int:
        """Decide halves as `claim` does, up to the first one that is not as usual.

        Args:
            places: queue offsets that ends name, in their order.
            state: COMMITTED or ROLLED_BACK.

        Returns:
            How many are decided. The next one was decided before, is not known, or was moved:
            `claim` says which.
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
                self._in_hand.add(place)
            return len(places)

    def settle_run(self, places: Sequence[int]) -> None:
        """Do for each half what `settle` does."""
        with self._lock:
            self._in_hand.difference_update(places)

    def settle(self, places: tuple[int, ...]) -> None:
        """Let a half be passed: what its end asked for is durable."""
        with self._lock:
            self._in_hand.discard(places[-1])

    def release(self, places: tuple[int, ...]) -> None:
        """Open a half again: what had to be stored for its end could not be."""
        with self._lock:
            self._in_hand.discard(places[-1])
            index = places[-1] - self._base
            if index >= 0:
                self._set(index, HalfState.OPEN)

    def decided(self, place: int) -> None:
        """Note what an op message says; places that are passed do not matter."""
        with self._lock:
            index = place - self._base
            if 0 <= index < self._max_open:
                self._set(index, HalfState.DECIDED)

    def first_open(self, place: int) -> int:
        """The first open place from one on; the first that nothing is known of counts as open."""
        with self._lock:
            index = max(place - self._base, 0)
            if index >= len(self._states):
                return self._base + index
            found = self._states.find(HalfState.OPEN, index)
            return self._base + (len(self._states) if found < 0 else found)

    def begin_move(self, place: int) -> bool:
        """Take an open half in hand to store it again; False when it was decided meanwhile."""
        with self._lock:
            index = place - self._base
            if index < 0 or self._state(index) != HalfState.OPEN:
                return False
            if index < self._max_open:
                self._set(index, HalfState.MOVED)
            return True

    def moved(self, place: int, to: int | None) -> None:
        """Note where a half is now; None when it could not be stored again."""
        with self._lock:
            index = place - self._base
            if to is None:
                if 0 <= index < len(self._states):
                    self._states[index] = HalfState.OPEN
                return
            self._link(place, to)

    def learn_move(self, place: int, to: int) -> None:
        """Note a move made before a restart, as the stored half tells it."""
        with self._lock:
            if to > place and place not in self._newer and to not in self._older:
                self._link(place, to)

    def passable(self, place: int) -> int:
        """How far the progress may go: `place`, or an earlier one whose end is not settled."""
        with self._lock:
            return min(place, min(self._in_hand, default=place))

    def pass_to(self, base: int) -> None:
        """Forget the places before a queue offset."""
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
