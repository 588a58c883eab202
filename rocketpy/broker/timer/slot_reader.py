"""Reads the due messages of one slot of the timer wheel, with bounded memory.

The units of a slot are a chain from the last one back to the first. The chain is walked twice: once
to find its length and the recalls, which apply before any message is delivered, and then piece by
piece from its start, so that memory is bounded whatever its length. Where the chain is broken
because a unit is damaged, the log before it is searched for the previous unit of the slot.

Messages of the current piece are sorted by their exact delivery time while the slot lasts. After
the end of the slot they are delivered in the order in which they were stored.

Source: TimerMessageStore.dequeue (5.4.0).
"""

import heapq
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, Protocol

import structlog

from rocketpy.broker.operation.scheduling.delivery_time import due_ms
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_UNIQ_KEY,
)
from rocketpy.store.timer.log import NO_UNIT, TimerUnit
from rocketpy.store.timer.wheel import Slot

_log = structlog.get_logger(__name__)

_PIECE: Final = 65_536
"""Units of which positions are kept in memory: 512 KiB."""
_MOST_READY: Final = 8_192
"""Messages that are kept sorted by their delivery time before they are due."""
_WALK: Final = 2_048
"""Units that one call may walk over; it bounds the time of a step."""
_MOST_BRIDGES: Final = 4_096
"""Links over damaged units that are kept for one slot: 0.5 MiB."""
_LOOK: Final = 64
"""Messages that one call may read from the commit log; each may need the disk."""


class Units(Protocol):
    """Interface of the timer's files: units by position."""

    @property
    def precision_ms(self) -> int:
        """Duration of one slot."""
        ...

    @property
    def begin(self) -> int:
        """Position of the first unit."""
        ...

    def unit(self, position: int) -> TimerUnit | None:
        """Return the unit at a position, or None."""
        ...

    def places_before(self, position: int, stop: int) -> Iterator[int]:
        """Yield possible positions of units, backwards from `position` to `stop`, without it."""
        ...


class Due(NamedTuple):
    """A message to deliver.

    Attributes:
        due_ms: delivery time.
        position: position of its unit.
        unit: the unit.
    """

    due_ms: int
    position: int
    unit: TimerUnit


class SlotReader:
    """Reader of one slot; the caller holds the lock of the timer's files.

    Args:
        slot: the slot.
        units: the timer log.
        message_at: returns the message of a unit from the commit log; None when it is missing.

    Attributes:
        start_ms: start of the slot.
        end_ms: end of the slot.
    """

    def __init__(
        self, slot: Slot, units: Units, message_at: Callable[[TimerUnit], MessageExt | None]
    ) -> None:
        self.tick: int = slot.tick
        self.start_ms: int = slot.tick * units.precision_ms
        self.end_ms: int = self.start_ms + units.precision_ms
        self._units = units
        self._message_at = message_at
        self._recalled: set[bytes] = set()
        self._ready: list[Due] = []
        self._late: deque[int] = deque()
        self._first = slot.first
        self._last = self._newest = slot.last
        self._bridges: dict[int, int] = {}
        self._next_position = 0
        self._wall_ms = 0
        self._work = self._read(slot.last)
        self._is_read = False

    def add(self, position: int, unit: TimerUnit) -> None:
        """Add a unit that was written to the slot after the reader was created."""
        self._newest = position
        if unit.is_recall:
            self._recall(unit)
        else:
            self._late.append(position)

    def is_recalled(self, message: MessageExt) -> bool:
        """Return whether a message of the slot was recalled."""
        if not self._recalled:
            return False
        key = message.properties.get(PROPERTY_UNIQ_KEY, "")
        # Brokers before 5.4 put the topic into the key.
        topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        return _digest(key) in self._recalled or _digest(f"{topic}+{key}") in self._recalled

    def read_on(self, wall_ms: int) -> bool:
        """Read a few more units; returns whether there are more to read now.

        Raises:
            OSError: the disk failed; the next call tries again.
            ResourceShortError: no file descriptor is free; likewise.
        """
        self._wall_ms = wall_ms
        if not self._is_read and not (len(self._ready) >= _MOST_READY and not self._is_over):
            try:
                self._is_read = next(self._work, None) is None
            # A generator that raised is finished, so another one reads the rest.
            except BaseException:
                self._work = self._read(self._last)
                raise
            return True
        while self._late and len(self._ready) < _MOST_READY:
            self._look(self._late[0])
            self._late.popleft()
        return False

    @property
    def _is_over(self) -> bool:
        return self._wall_ms >= self.end_ms

    def take(self, wall_ms: int) -> Due | None:
        """Remove and return the next message that is due."""
        self._wall_ms = wall_ms
        if self._ready and self._ready[0].due_ms <= self._wall_ms:
            return heapq.heappop(self._ready)
        return None

    def give_back(self, due: Due) -> None:
        """Return a message that could not be delivered now."""
        heapq.heappush(self._ready, due)

    @property
    def next_ms(self) -> int:
        """Time of the next step: the next delivery time, or the end of the slot."""
        return self._ready[0].due_ms if self._ready else self.end_ms

    @property
    def is_read(self) -> bool:
        """Whether all units so far were read, so that `take` knows everything that is due."""
        return self._is_read and not self._late

    @property
    def is_done(self) -> bool:
        """Whether all units so far were taken."""
        return self.is_read and not self._ready

    def delivered_positions(self) -> Iterator[int]:
        """Yield the positions of taken messages; a later reader of the slot must skip them."""
        waiting = {each.position for each in self._ready} | set(self._late)
        first_unread = self._next_position if not self._is_read else self._newest + 1
        for found in self._chain(self._newest):
            if found is None:
                continue
            position, unit = found
            is_unread = first_unread <= position <= self._last
            if not is_unread and not unit.is_recall and position not in waiting:
                yield position

    # -- reading ---------------------------------------------------------------------------

    def _own(self, position: int) -> TimerUnit | None:
        """Return the unit at a position if it belongs to this slot."""
        unit = self._units.unit(position)
        is_own = unit is not None and unit.due_ms // self._units.precision_ms == self.tick
        return unit if is_own else None

    def _chain(self, last: int) -> Iterator[tuple[int, TimerUnit] | None]:
        """Yield positions and units from the last one backwards; None to pause a long search."""
        position, unit = last, self._own(last)
        if unit is None:
            yield from self._search(last)
            position = self._bridges.get(last, NO_UNIT)
            unit = self._own(position)
        while unit is not None:
            yield position, unit
            before = unit.prev_position
            unit = self._own(before) if before < position else None
            if unit is None and self._is_broken(position, before):
                yield from self._search(position)
                before = self._bridges.get(position, NO_UNIT)
                unit = self._own(before)
            position = before

    def _is_broken(self, position: int, before: int) -> bool:
        """Return whether a previous unit is missing; retention deletes those of old messages."""
        if before < 0:
            return 0 <= self._first < position
        return before >= self._units.begin

    def _search(self, position: int) -> Iterator[None]:
        """Find the unit before a break of the chain; yields to pause a long search."""
        if position in self._bridges or len(self._bridges) >= _MOST_BRIDGES:
            return
        found = NO_UNIT
        for count, place in enumerate(self._units.places_before(position, self._first), 1):
            if self._own(place) is not None:
                found = place
                break
            if count % _WALK == 0:
                yield None
        _log.error(
            "timer log unit damaged",
            slot=self.tick,
            position=position,
            continued_at=found,
        )
        self._bridges[position] = found

    def _read(self, last: int) -> Iterator[bool]:
        """Read the whole slot; yields after every few units."""
        marks = [last]
        recalls: list[TimerUnit] = []
        count = 0
        for found in self._chain(last):
            if found is None:
                yield True
                continue
            position, unit = found
            count += 1
            if count % _PIECE == 1 and count > 1:
                marks.append(position)
            if unit.is_recall:
                recalls.append(unit)
                if len(recalls) >= _LOOK:
                    self._recall_all(recalls)
                    yield True
            if count % _WALK == 0:
                yield True
        self._recall_all(recalls)
        while marks:
            yield from self._read_piece(marks.pop(), _PIECE)

    def _read_piece(self, last: int, limit: int) -> Iterator[bool]:
        positions = array("q")
        for found in self._chain(last):
            if found is None:
                yield True
                continue
            positions.append(found[0])
            if len(positions) % _WALK == 0:
                yield True
            if len(positions) == limit:
                break
        positions.reverse()
        for count, position in enumerate(positions, 1):
            if position < self._next_position:
                continue  # processed before a read failed
            self._next_position = position
            self._look(position)
            self._next_position = position + 1
            if count % _LOOK == 0 or len(self._ready) >= _MOST_READY:
                yield True

    def _look(self, position: int) -> None:
        unit = self._units.unit(position)
        if unit is None or unit.is_recall:
            return
        due = self.start_ms if unit.is_rolled else self.end_ms
        if not unit.is_rolled and not self._is_over:
            message = self._message_at(unit)
            if message is not None:
                due = due_ms(
                    message.properties,
                    message.store_timestamp_ms,
                    self.start_ms,
                    self._units.precision_ms,
                )
        heapq.heappush(self._ready, Due(due, position, unit))

    def _recall_all(self, units: list[TimerUnit]) -> None:
        for unit in units:
            self._recall(unit)
        units.clear()

    def _recall(self, unit: TimerUnit) -> None:
        message = self._message_at(unit)
        key = None if message is None else message.properties.get(PROPERTY_TIMER_DEL_UNIQKEY)
        if key:
            self._recalled.add(_digest(key))


def _digest(key: str) -> bytes:
    """Return a digest in place of an id of any length; in a set it takes 100 bytes."""
    import hashlib  # noqa: PLC0415 - slow to load, and needed only once a message is recalled

    return hashlib.blake2b(key.encode(), digest_size=16).digest()
