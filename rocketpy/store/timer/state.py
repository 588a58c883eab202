"""State of the timer: wheel, log and checkpoint together, their recovery and their flushes.

The order of a flush is log, wheel, checkpoint: each refers only to parts that are on disk already.
After a crash, recovery reads the units after the checkpoint and sets their slots again, truncates
the log at the first invalid unit, and reads the messages after the checkpoint's queue offset again.
The checkpoint's log position never passes the unit of a message that will be read again, so that
the unit is found at the next start and the message does not get a second one.
If the wheel does not match its checksums, it was damaged, or the process was killed between wheel
and checkpoint: its pages are rebuilt from the log.
Units and slots of a killed process may be in the page cache only: a start flushes them before its
checkpoint covers them.

Source: TimerMessageStore.recover, recoverAndRevise, prepareTimerCheckPoint (5.4.0).
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rocketpy.errors import ResourceShortError
from rocketpy.runtime.clock import Clock
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.store.timer.checkpoint import NO_LOG_POSITION, TimerCheckpoint, TimerMarks
from rocketpy.store.timer.log import MAGIC_DELETE, UNIT_BYTES, TimerLog, TimerUnit
from rocketpy.store.timer.wheel import SLOTS, Slot, TimerWheel

logger: logging.Logger = logging.getLogger(__name__)

_MOST_RECENT = 100_000


class TimerState:
    """Files of the timer. Callers hold `lock`, except for `flush` and `close`.

    Args:
        root: the store directory.
        precision_ms: time of one slot of the wheel.
        log_file_bytes: length of a file of the timer log.
        files: the file system.
        clock: stamps the checkpoint's version.

    Attributes:
        lock: protects reads and additions.
        marks: values of the checkpoint on disk.
        pending_count: pending units without recalled ones.
        is_cut_short: whether the log ends before the checkpoint's position: units were lost, and
            their messages must be read again.
    """

    def __init__(
        self,
        root: Path,
        *,
        precision_ms: int,
        log_file_bytes: int,
        files: StoreFiles,
        clock: Clock,
    ) -> None:
        self.lock: threading.Lock = threading.Lock()
        self.marks: TimerMarks = TimerMarks()
        self.pending_count: int = 0
        self.is_cut_short: bool = False
        self._clock = clock
        self._files = files
        self._flush_lock = threading.Lock()
        self._wheel = TimerWheel(root / "timerwheel", precision_ms, files)
        self._log = TimerLog(root / "timerlog", log_file_bytes, files)
        self._checkpoint = TimerCheckpoint(
            root / "config" / "timercheck", files, len(self._wheel.sums.encode())
        )
        self._logged: set[int] = set()
        # Queue offsets and positions of units whose messages the checkpoint does not cover yet.
        self._recent: deque[tuple[int, int]] = deque(maxlen=_MOST_RECENT)
        self._can_flush = True
        # Slots before this one may be left over from a process that ended before emptying them.
        self._left_before = 0

    # -- life ------------------------------------------------------------------------------

    def load(self, max_phy_offset: int) -> int | None:
        """Load the files and recover from a crash; return the first slot's time, if any.

        Args:
            max_phy_offset: end of the commit log; units of later messages are removed.

        Raises:
            OSError: the disk failed.
        """
        self._can_flush = True
        self.marks = self._checkpoint.load()
        has_wheel = self._wheel.load()
        self._log.load()
        read_tick = self._wheel.tick(self.marks.read_ms)
        self._left_before = read_tick
        # Without a wheel every unit has to be placed again.
        start = self.marks.log_position if has_wheel else 0
        end = self._recover_log(start, read_tick, max_phy_offset)
        # Before the wheel is used: slots must not point beyond the end of the log.
        self._log.cut(end)
        self._log.sync_from(self.marks.log_position)
        # A killed process may have written pages that never reached the disk.
        self._wheel.sync()
        self._files.sync_directories()
        self.is_cut_short = end < self.marks.log_position
        if self.is_cut_short and self.marks.log_position == NO_LOG_POSITION:
            # A slave keeps its master's checkpoint without a log: nothing was lost.
            logger.info("timer queue read again after the checkpoint of a former master")
        elif self.is_cut_short:
            logger.error("timer log too short, its messages are read again: end=%d", end)
        if has_wheel:
            self._wheel.check(self._checkpoint.sums)
        first, beyond = self._survey(read_tick, end)
        if self._wheel.damaged_pages:
            self._make_again(read_tick)
            first, beyond = self._survey(read_tick, end)
        if beyond:
            self._mend(beyond, end)
        logger.info(
            "timer loaded: log_end=%d queue_offset=%d pending=%d",
            end,
            self.marks.queue_offset,
            self.pending_count,
        )
        return None if first is None else first * self._wheel.precision_ms

    def _recover_log(self, start: int, read_tick: int, max_phy_offset: int) -> int:
        """Set the slots of the units after the checkpoint; return the end of the units."""
        log, wheel = self._log, self._wheel
        start = log.unit_boundary(start)
        end = start
        for position, unit in log.scan(start):
            if unit.phy_offset + unit.size_bytes > max_phy_offset:
                break  # the message was lost in a power cut
            end = position + UNIT_BYTES
            if wheel.tick(unit.due_ms) < read_tick:
                continue  # added while the clock was set back; its slot is over: it gets another
            if position >= self.marks.log_position:
                # Its message will be read again, but must not get a second unit.
                self._logged.add(unit.phy_offset)
            self._revise(position, unit)
        return end

    def _revise(self, position: int, unit: TimerUnit) -> None:
        tick = self._wheel.tick(unit.due_ms)
        slot = self._wheel.get(tick)
        if slot is None:
            self._wheel.put(Slot(tick, position, position, _count(unit)))
        elif position > slot.last:
            self._wheel.put(slot._replace(last=position, num=slot.num + _count(unit)))

    def _survey(self, read_tick: int, end: int) -> tuple[int | None, list[Slot]]:
        """Return the first pending tick, and the slots that point beyond the log's end."""
        self.pending_count = 0
        first, beyond = None, []
        for slot in self._wheel.slots():
            if slot.tick < read_tick:
                continue
            # No broker writes such a position: the page is damaged.
            if not self._log.may_begin_at(slot.last):
                self._wheel.damaged_pages.add(self._wheel.page_of(slot.tick))
                continue
            self.pending_count += max(0, slot.num)
            first = slot.tick if first is None else min(first, slot.tick)
            if slot.last >= end:
                beyond.append(slot)
        return first, beyond

    def _make_again(self, read_tick: int) -> None:
        """Rebuild damaged pages of the wheel from the complete log."""
        wheel, pages = self._wheel, self._wheel.damaged_pages
        logger.error(
            "timer wheel damaged, pages are rebuilt: pages=%d",
            len(pages),
        )
        for number in pages:
            wheel.erase(number)
        for position, unit in self._log.scan(self._log.begin, past_damage=True):
            tick = wheel.tick(unit.due_ms)
            if tick >= read_tick and wheel.page_of(tick) in pages:
                self._revise(position, unit)
        pages.clear()

    def _mend(self, beyond: Iterable[Slot], end: int) -> None:
        """Truncate slots at the log's end: the wheel reached the disk, the log did not."""
        ticks = {slot.tick for slot in beyond}
        starts = [slot.first for slot in beyond if 0 <= slot.first < end]
        logger.warning("timer wheel slots truncated, units lost: slots=%d", len(ticks))
        for tick in ticks:
            # The chain of the slot is rebuilt from the log below.
            self._wheel.clear(tick)
        for position, unit in self._log.scan(min(starts, default=end), past_damage=True):
            if self._wheel.tick(unit.due_ms) in ticks:
                self._revise(position, unit)

    def close(self) -> None:
        """Close the files; call `flush` before."""
        with self.lock:
            self._log.close()
            self._wheel.close()

    # -- units -----------------------------------------------------------------------------

    @property
    def precision_ms(self) -> int:
        """Time of one slot."""
        return self._wheel.precision_ms

    def was_logged(self, phy_offset: int, queue_offset: int) -> bool:
        """Return whether a message after the checkpoint got its unit before the last stop.

        Args:
            phy_offset: physical offset of the message.
            queue_offset: offset of the message in the timer's queue.
        """
        if phy_offset in self._logged:
            self._logged.discard(phy_offset)
            self._recent.append((queue_offset, self.marks.log_position))
            return True
        return False

    def add(self, unit: TimerUnit, queue_offset: int) -> int:
        """Append a unit to its slot.

        Args:
            unit: the unit; its `prev_position` is set here.
            queue_offset: offset of its message in the timer's queue.

        Returns:
            Its position.

        Raises:
            DiskFullError: no space for another file; nothing changed.
        """
        tick = self._wheel.tick(unit.due_ms)
        if tick < self._left_before:
            self._clear_left(tick)
        slot = self._wheel.get(tick)
        if slot is None:
            position = self._log.append(unit._replace(prev_position=-1))
            self._wheel.put(Slot(tick, position, position, _count(unit)))
        else:
            position = self._log.append(unit._replace(prev_position=slot.last))
            self._wheel.put(slot._replace(last=position, num=slot.num + _count(unit)))
        self.pending_count += _count(unit)
        # The checkpoint must not pass this unit before it covers the message.
        self._recent.append((queue_offset, position))
        return position

    def _clear_left(self, tick: int) -> None:
        """Empty left-over slots from a tick on, after the clock was set back.

        Their messages were delivered before the last stop, or get a unit again.
        """
        end = self._left_before
        at = max(tick, end - SLOTS)  # the wheel has no older slots
        while at < end:
            at, _ = self._wheel.first_from(at, end - 1)
            self._wheel.clear(at)
            at += 1
        self._left_before = tick

    def write(self) -> None:
        """Write the added units to the file.

        Raises:
            DiskFullError: no space; the units stay in memory.
        """
        self._log.write()

    def first_from(self, tick: int, last_tick: int) -> tuple[int, Slot | None]:
        """Return the first tick with a slot, and the slot; `last_tick` if there is none."""
        return self._wheel.first_from(tick, last_tick)

    def unit(self, position: int) -> TimerUnit | None:
        """Return a unit, or None."""
        return self._log.unit(position)

    @property
    def begin(self) -> int:
        """Position of the first unit of the log."""
        return self._log.begin

    def places_before(self, position: int, stop: int) -> Iterator[int]:
        """Yield possible unit positions backwards; see `TimerLog.places_before`."""
        return self._log.places_before(position, stop)

    def clear(self, tick: int) -> None:
        """Empty a slot whose messages are delivered and on disk."""
        slot = self._wheel.get(tick)
        if slot is not None:
            self.pending_count = max(0, self.pending_count - max(0, slot.num))
            self._wheel.clear(tick)

    def forget_before(self, tick: int) -> None:
        """Free memory of past slots."""
        self._wheel.forget_before(tick)

    def mark_delivered(self, positions: Iterable[int]) -> None:
        """Mark units as delivered, so that a later reader of their slot skips them, also Apache.

        Raises:
            DiskFullError: no space.
        """
        self._log.write()
        self._log.mark(positions, MAGIC_DELETE | 1)

    def remove_before(self, min_phy_offset: int) -> int:
        """Delete log files whose messages are deleted; return how many."""
        return self._log.remove_before(min_phy_offset)

    # -- disk ------------------------------------------------------------------------------

    def flush(self, progress: Callable[[], tuple[int, int]], *, is_last: bool = False) -> None:
        """Flush log and wheel, then the checkpoint.

        Nothing is written if only time has passed, because the set slots already tell where reading
        starts.

        Args:
            progress: called under the lock; returns the first undelivered slot (ms) and the queue
                offset, as far as both are on disk.
            is_last: write also if only time has passed.

        Raises:
            DiskFullError: no space; the caller may retry.
            OSError: the disk failed; the checkpoint does not advance until the next start.
        """
        if not self._can_flush:
            return
        with self._flush_lock:
            with self.lock:
                self._log.write()
                units, pages = self._log.pending_flush(), self._wheel.pending_pages()
                read_ms, queue_offset = progress()
                log_position = self._passed_units(queue_offset, units.end)
                is_idle = units.is_empty and pages.is_empty
            if is_idle and not is_last and queue_offset == self.marks.queue_offset:
                return
            ok = False
            try:
                units.run()
                pages.run()
                ok = True
                self._save(read_ms, log_position, queue_offset)
            except ResourceShortError:
                raise
            except OSError:
                self._can_flush = False
                raise
            finally:
                with self.lock:
                    self._wheel.flushed(ok=ok)
                    if not ok:
                        self._log.take_back(units)

    def _passed_units(self, queue_offset: int, end: int) -> int:
        """Return the log position for the checkpoint: the first unit of an uncovered message."""
        recent = self._recent
        while recent and recent[0][0] < queue_offset:
            recent.popleft()
        return min(end, recent[0][1]) if recent else end

    def _save(self, read_ms: int, log_position: int, queue_offset: int) -> None:
        old = self.marks
        new = old._replace(
            read_ms=read_ms,
            log_position=log_position,
            queue_offset=queue_offset,
            master_queue_offset=queue_offset,
        )
        sums = self._wheel.sums.encode()
        if new != old or sums != self._checkpoint.sums:
            new = new._replace(counter=old.counter + 1, timestamp_ms=self._clock.time_ms())
            self._checkpoint.save(new, sums)
            self.marks = new


def _count(unit: TimerUnit) -> int:
    return -1 if unit.magic & MAGIC_DELETE else 1
