"""Reads one slot of the timer wheel: what is due next, of any number of messages.

The units of a slot are a chain from the last one back to the first. The chain is walked twice: once
to find its length and the recalls, which count before any message is delivered, and then piece by
piece from its beginning, so that the memory it takes is bounded whatever its length. Where the
chain is broken, because a unit was damaged, the log before it is searched for the slot's next one.

Messages of the piece at hand are sorted by the exact moment they are due, as long as that lies
ahead; after the slot's end they come in the order they were stored in.

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
"""Units whose positions are in memory: 512 KiB."""
_MOST_READY: Final = 8_192
"""Messages whose moment is known before they are due."""
_WALK: Final = 2_048
_MOST_BRIDGES: Final = 4_096
"""Places of one slot behind damaged units that are remembered: 0.5 MiB."""
_LOOK: Final = 64


class Units(Protocol):
    """What a reader needs of the timer's files."""

    @property
    def precision_ms(self) -> int:
        """Time of one slot."""
        ...

    @property
    def begin(self) -> int:
        """Position of the first unit."""
        ...

    def unit(self, position: int) -> TimerUnit | None:
        """Return a unit, or None."""
        ...

    def places_before(self, position: int, stop: int) -> Iterator[int]:
        """Yield positions where units may be, back from a position to another, without it."""
        ...


class Due(NamedTuple):
    """One message to deliver.

    Attributes:
        due_ms: when.
        position: of its unit.
        unit: the unit.
    """

    due_ms: int
    position: int
    unit: TimerUnit


class SlotReader:
    """One slot; the owner holds the lock of the timer's files.

    Args:
        slot: the slot.
        units: the timer log.
        message_at: reads a message from the commit log; None when it is not there.

    Attributes:
        start_ms: where the slot begins.
        end_ms: where it ends.
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
        """Take a unit that came to the slot after the reader was made."""
        self._newest = position
        if unit.is_recall:
            self._recall(unit)
        else:
            self._late.append(position)

    def is_recalled(self, message: MessageExt) -> bool:
        """Whether a message of the slot was called back."""
        if not self._recalled:
            return False
        key = message.properties.get(PROPERTY_UNIQ_KEY, "")
        # A broker before 5.4 names the topic too.
        topic = message.properties.get(PROPERTY_REAL_TOPIC, "")
        return _digest(key) in self._recalled or _digest(f"{topic}+{key}") in self._recalled

    def read_on(self, wall_ms: int) -> bool:
        """Look at a few more units; return whether there is more to look at now.

        Raises:
            OSError: the disk cannot read them; the next call tries again.
            ResourceShortError: no descriptor, the same.
        """
        self._wall_ms = wall_ms
        if not self._is_read and not (len(self._ready) >= _MOST_READY and not self._is_over):
            try:
                self._is_read = next(self._work, None) is None
            except BaseException:  # a generator that raised is over: begin with what is left
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
        """Return the next message that is due, and take it out."""
        self._wall_ms = wall_ms
        if self._ready and self._ready[0].due_ms <= self._wall_ms:
            return heapq.heappop(self._ready)
        return None

    def give_back(self, due: Due) -> None:
        """Take a message again that could not be delivered now."""
        heapq.heappush(self._ready, due)

    @property
    def next_ms(self) -> int:
        """When to go on: when something is due, or the slot is over."""
        return self._ready[0].due_ms if self._ready else self.end_ms

    @property
    def is_done(self) -> bool:
        """Whether every unit that came so far was taken."""
        return self._is_read and not self._ready and not self._late

    def delivered_positions(self) -> Iterator[int]:
        """Yield the units of messages that were taken, for those who read the slot again."""
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
        """Return the unit at a position when it is one of this slot."""
        unit = self._units.unit(position)
        is_own = unit is not None and unit.due_ms // self._units.precision_ms == self.tick
        return unit if is_own else None

    def _chain(self, last: int) -> Iterator[tuple[int, TimerUnit] | None]:
        """Yield position and unit from the last one back; None where it takes long."""
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
        """Whether there should be a unit before one; retention deletes those of lost messages."""
        if before < 0:
            return 0 <= self._first < position
        return before >= self._units.begin

    def _search(self, position: int) -> Iterator[None]:
        """Find what comes before a position where the chain is broken, and pause now and then."""
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
            "a unit of the timer log is damaged, its slot goes on before it",
            slot=self.tick,
            position=position,
            goes_on=found,
        )
        self._bridges[position] = found

    def _read(self, last: int) -> Iterator[bool]:
        """Read all of the slot, and pause after each few units."""
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
                continue  # looked at before a read that failed
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
    """Return what stands for an id, of any length: in a set it takes 100 bytes."""
    import hashlib  # noqa: PLC0415 - much to load for a server where nothing is called back

    return hashlib.blake2b(key.encode(), digest_size=16).digest()
