"""The timer: moves timed messages from their queue into the wheel, and delivers due ones.

One service does both, a bounded amount of work per step; `TimerFlush` flushes the files. While no
message waits it checks the queue once per second, and an arriving message wakes it.

Invariants:
    - A message is never delivered before its delivery time.
    - A message that cannot be delivered because its put raises is tried again, and is parked or
      skipped after ten seconds.
    - The first undelivered slot and the queue offset enter the checkpoint after the results of the
      messages before them are on disk: units in the timer log, deliveries in the commit log. A
      crash delivers a message twice rather than never.
    - A slot is cleared only after that.

Source: TimerMessageStore (enqueue, dequeue, doPut, TimerFlushService) (5.4.0).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from rocketpy.broker.delay.delivery import delivered
from rocketpy.broker.operation.scheduling.delivery_time import decimal, due_ms
from rocketpy.broker.stats.pending_counts import PendingCounts
from rocketpy.broker.system_topics.durable_progress import DurableProgress
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.skipped_messages import SkippedMessages
from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.system_topics.system_writer import NEVER_STORED, SystemWriter, copy_of
from rocketpy.broker.timer.slot_reader import Due, SlotReader
from rocketpy.broker.timer.store_protocol import TimerStore
from rocketpy.errors import CorruptRecordError, StoreError
from rocketpy.proto.pop import REVIVE_TOPIC_PREFIX
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    encode_properties,
)
from rocketpy.proto.record.tags import java_string_hash
from rocketpy.proto.topic_names import TIMER_TOPIC
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.service import no_wake
from rocketpy.store.results import PutMessage, PutMessageStatus
from rocketpy.store.timer.checkpoint import TimerMarks
from rocketpy.store.timer.log import MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_ROLL, TimerUnit
from rocketpy.store.timer.state import TimerState

_log = structlog.get_logger(__name__)

_POLL_MS: Final = 100
"""Pause between two checks of the queue while messages wait in the wheel."""
_IDLE_MS: Final = 1_000
"""The same while no message waits; an arriving message ends this pause (`on_arrival`)."""
_RETRY_MS: Final = 100
"""Pause before a message that could not be stored is tried again."""
_FAULT_MS: Final = 1_000
"""Longest pause after the timer's files could not be written, or a delivery raised."""
_BATCH: Final = 32
_MOST_WORK: Final = 64
"""Deliveries of one step: the lock of the files is held meanwhile, and a stop waits."""
_READ_WORK: Final = 16
"""Cost of reading a part of a slot, in deliveries."""
_MOST_SLOTS: Final = 100_000
"""Empty slots that one step may skip."""
_QUIET_MS: Final = 10_000
"""Shortest time between two warnings about messages that cannot be stored."""
_LONG_MAX: Final = (1 << 63) - 1


class TimerService:
    """Background service that fills the wheel and empties it; see the module.

    Args:
        store: source of the messages.
        put: stores due messages.
        state: the timer's files.
        aside: parks messages that cannot be stored for long.
        roll_window_slots: reach of the wheel; a message that is due later is rolled.
        queue_of: returns the queue to use in place of a deleted one; None for a deleted topic.
        counts: number of messages in the wheel by topic, without recalls.
        clock: time.

    Attributes:
        is_temporary: whether the next timer reads the queue again anyway, at an acting master: then
            the checkpoint must not name messages of the queue that this one still reads again.
        hold_ms: returns the time that the slot in the checkpoint must not pass, at an acting
            master: what it has taken since is not processed.
        enqueued_count: number of messages that were read from the queue.
        dequeued_count: number of units that were delivered.
    """

    name = "Timer"

    def __init__(
        self,
        store: TimerStore,
        put: SystemWriter,
        state: TimerState,
        aside: PutRetry,
        *,
        roll_window_slots: int,
        queue_of: Callable[[str, int], int | None],
        counts: PendingCounts,
        clock: Clock,
    ) -> None:
        self._store = store
        self._put = put
        self._state = state
        self._aside = aside
        self._window_ms = roll_window_slots * state.precision_ms
        self._half_window_ms = roll_window_slots // 2 * state.precision_ms
        self._third_window_ms = roll_window_slots // 3 * state.precision_ms
        self._queue_of = queue_of
        self._counts = counts
        self._clock = clock
        self._queue = SystemQueue(store, TIMER_TOPIC, 0)
        self._offsets = DurableProgress(0, lambda: store.kept_phy_offset)
        self._slots = DurableProgress(0, lambda: store.kept_phy_offset)
        self._reader: SlotReader | None = None
        self._done: deque[int] = deque()
        self._redo_before = 0
        self._redo_ms = 0
        self._delivered_at_slave = TimerMarks()
        self._unrevived_ms: int | None = None
        self._quiet_until_ms = 0
        self._skipped = SkippedMessages("timed message skipped", clock)
        self._enqueued_ms = 0
        self._is_idle = False
        self._wake: Callable[[], None] = no_wake
        self._taken_ms = 0
        self.is_temporary: bool = False
        self.hold_ms: Callable[[], int] = lambda: _LONG_MAX
        self.enqueued_count: int = 0
        self.dequeued_count: int = 0

    # -- lifecycle -------------------------------------------------------------------------

    def load(self) -> None:
        """Read the files, and continue where the last process stopped.

        Raises:
            StoreError: a file does not fit the configuration.
        """
        with self._state.lock:
            first_ms = self._state.load(self._store.max_phy_offset)
            marks = self._state.marks
            precision_ms = self._state.precision_ms
            now_ms = self._clock.time_ms() // precision_ms * precision_ms
            # 0 without a checkpoint; then every slot that is not empty is delivered.
            read_ms = marks.read_ms // precision_ms * precision_ms
            # There are no messages between the last slot that was read and the first non-empty one.
            self._slots.reset(max(read_ms, min(now_ms, now_ms if first_ms is None else first_ms)))
            offset = min(marks.queue_offset, marks.master_queue_offset)
            if self._state.is_cut_short:
                self._redo_before, self._redo_ms, offset = offset, read_ms, 0
            # After a power cut the last messages may be missing; their offsets get reused.
            self._offsets.reset(min(offset, self._queue.max_offset))

    def persist(self) -> None:
        """Flush everything at the end, so that no message is delivered twice.

        Raises:
            StoreError: the files cannot be written; the last checkpoint stays valid.
            OSError: the disk failed.
        """
        self._store.flush_log()
        if self.is_temporary and self.reads_again:
            self._state.close()
            return
        with self._state.lock:
            if self._reader is not None:
                self._state.mark_delivered(self._reader.delivered_positions())
            self._clear_durable()
        try:
            self._state.flush(self.progress, is_last=True)
        finally:
            self._state.close()

    def progress(self) -> tuple[int, int]:
        """Return the first undelivered slot and the queue offset, both as far as is on disk."""
        precision_ms = self._state.precision_ms
        held_ms = self.hold_ms() // precision_ms * precision_ms
        return min(self._slots.durable, held_ms), self._offsets.durable

    @property
    def reads_again(self) -> bool:
        """Whether messages before the queue offset of the checkpoint are still read again."""
        return self._offsets.durable < self._redo_before

    @property
    def taken_ms(self) -> int:
        """Wall time until which all messages of the wheel are delivered, within a slot as well.

        The checkpoint has whole slots only. Read once the timer has stopped.
        """
        return self._taken_ms

    def take_delivered(self, marks: TimerMarks) -> None:
        """Take the checkpoint of a slave that acted as master; before the first step.

        Messages that it covers were delivered there. Others of the same slots are delivered here:
        the slave may not have had them.

        Args:
            marks: the checkpoint; `read_ms` may lie within a slot.
        """
        with self._state.lock:
            if marks.read_ms > self._delivered_at_slave.read_ms:
                self._delivered_at_slave = marks

    def take_unrevived(self, since_ms: int) -> None:
        """Deliver check points and acks of pops that a slave took, but did not process.

        Args:
            since_ms: those that are due after this wall time.
        """
        with self._state.lock:
            # A slave that acted later has taken over what an earlier one had left.
            self._unrevived_ms = max(self._unrevived_ms or 0, since_ms)

    def _was_delivered(self, stored: MessageExt) -> bool:
        """Return whether a slave delivered a message while this master was away."""
        marks = self._delivered_at_slave
        if stored.queue_offset >= marks.queue_offset:
            return False
        out_ms = decimal(stored.properties.get(PROPERTY_TIMER_OUT_MS))
        if out_ms is None:
            return False
        due = due_ms(stored.properties, stored.store_timestamp_ms, out_ms, self._state.precision_ms)
        is_of_pop = stored.properties.get(PROPERTY_REAL_TOPIC, "").startswith(REVIVE_TOPIC_PREFIX)
        if is_of_pop and self._unrevived_ms is not None:
            return due <= min(marks.read_ms, self._unrevived_ms)
        return due <= marks.read_ms

    # -- state for other parts -------------------------------------------------------------

    @property
    def queue_behind(self) -> int:
        """Number of messages that are not in the wheel yet."""
        return max(0, self._queue.max_offset - self._offsets.position)

    @property
    def read_behind_ms(self) -> int:
        """Age of the slot that is being delivered."""
        return max(0, self._clock.time_ms() - self._slots.position)

    @property
    def delivered_before_ms(self) -> int:
        """Wall time before which all messages stored so far are delivered."""
        position_ms = self._slots.position
        # Messages that are still in the queue were stored after those in the wheel.
        if self.queue_behind:
            return min(position_ms, self._enqueued_ms)
        return position_ms

    # -- the service -----------------------------------------------------------------------

    def use_wake(self, wake: Callable[[], None]) -> None:
        """See `rocketpy.runtime.service.WokenService.use_wake`."""
        self._wake = wake

    def on_arrival(self, _queue_id: int) -> None:
        """Notice a new message in the queue; on any thread.

        Only the first message after an idle step wakes the service: otherwise the service runs as
        often as it needs to.
        """
        if self._is_idle:
            self._is_idle = False
            self._wake()

    def step(self, now_ms: int) -> int:
        """Deliver due messages, and fill the wheel; see `rocketpy.runtime.service.Service.step`."""
        wall_ms = self._clock.time_ms()
        with self._state.lock:
            self._clear_durable()
            try:
                waits_ms = self._dequeue(wall_ms, now_ms)
            except Exception:  # noqa: BLE001 - arriving messages must enter the wheel anyway
                _log.exception("timed delivery failed")
                waits_ms = _FAULT_MS
            try:
                waits_ms = min(waits_ms, self._enqueue(wall_ms, now_ms))
                self._state.write()
            except (StoreError, OSError) as error:
                self._complain(now_ms, "timer files not written", str(error))
                waits_ms = min(max(waits_ms, 1), _FAULT_MS)
        return now_ms + waits_ms

    def _complain(self, now_ms: int, event: str, reason: str) -> None:
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _QUIET_MS
            _log.warning(event, reason=reason)

    def _clear_durable(self) -> None:
        while self._done and self._done[0] * self._state.precision_ms < self._slots.durable:
            self._state.clear(self._done.popleft())

    # -- into the wheel --------------------------------------------------------------------

    def _enqueue(self, wall_ms: int, now_ms: int) -> int:
        """Move a few messages into the wheel; returns the pause until the next step."""
        # Set before the queue is read: a message that this read misses must wake the service.
        self._is_idle = self._state.pending_count == 0 and self._reader is None
        position, low, high = (
            self._offsets.position,
            self._queue.min_offset,
            self._queue.max_offset,
        )
        if low >= 0 and not low <= position <= high:
            _log.warning("timer queue offset corrected", offset=position)
            position = min(max(position, low), high)
            self._offsets.reset(position)
        if position >= high:
            return _IDLE_MS if self._is_idle else _POLL_MS
        self._is_idle = False
        found = self._queue.read(position, _BATCH)
        for stored in found.messages:
            phy_end = self._enqueue_one(stored, wall_ms, now_ms)
            if phy_end is None:
                return _RETRY_MS
            read_end = stored.phy_offset + stored.store_size_bytes
            self._offsets.advance(stored.queue_offset + 1, max(phy_end, read_end))
        if self._offsets.position < found.next_offset <= high:
            self._offsets.advance(found.next_offset)
        elif not found.messages:
            return _POLL_MS
        if found.messages:
            self._enqueued_ms = found.messages[-1].store_timestamp_ms
        return 0

    def _enqueue_one(self, stored: MessageExt, wall_ms: int, now_ms: int) -> int | None:
        """Move one message into the wheel.

        Returns:
            End of what was stored for it in the log; 0 for nothing; None to try again.
        """
        out_ms = decimal(stored.properties.get(PROPERTY_TIMER_OUT_MS))
        if out_ms is None:
            return self._skip(stored, "it has no delivery time")
        self.enqueued_count += 1
        precision_ms = self._state.precision_ms
        write_ms = wall_ms // precision_ms * precision_ms
        if stored.queue_offset < self._redo_before and out_ms < self._redo_ms:
            return 0  # it was delivered before the timer log was lost
        if self._was_delivered(stored):
            return 0
        if self._state.was_logged(stored.phy_offset, stored.queue_offset):
            return 0  # it has a unit; its slot delivers it, even if that is in the past
        if out_ms < write_ms:
            return self._deliver(stored, _LONG_MAX, now_ms, is_rolled=False)
        self._add(stored, out_ms, write_ms)
        return 0

    def _add(self, stored: MessageExt, out_ms: int, write_ms: int) -> None:
        magic, due_ms = MAGIC_DEFAULT, out_ms
        surplus_ms = out_ms - write_ms - self._window_ms
        if surplus_ms >= 0:
            magic |= MAGIC_ROLL
            # For the last two pieces half a window each, so that neither is very short.
            half = surplus_ms < self._third_window_ms
            due_ms = write_ms + (self._half_window_ms if half else self._window_ms)
        if PROPERTY_TIMER_DEL_UNIQKEY in stored.properties:
            magic |= MAGIC_DELETE
        topic = stored.properties.get(PROPERTY_REAL_TOPIC, "")
        unit = TimerUnit(
            -1,
            magic,
            write_ms,
            due_ms - write_ms,
            stored.phy_offset,
            stored.store_size_bytes,
            java_string_hash(topic),
        )
        start_ms = due_ms // self._state.precision_ms * self._state.precision_ms
        reader = self._reader
        if reader is not None and reader.start_ms != start_ms:
            reader = None
        if reader is None and start_ms < self._slots.position:  # the clock was set back
            # Before the unit is added: the slot may still have to be cleared of its old units.
            self._go_back(start_ms)
        position = self._state.add(unit, stored.queue_offset)
        self._count(stored, 1)
        if reader is not None:
            reader.add(position, unit)

    def _go_back(self, start_ms: int) -> None:
        """Read again from an earlier slot, without messages that were delivered already."""
        self._store.flush_log()  # a message counts as delivered only when it is on disk
        self._clear_durable()
        if self._reader is not None:
            self._state.mark_delivered(self._reader.delivered_positions())
            self._reader = None
        tick = start_ms // self._state.precision_ms
        self._done = deque(each for each in self._done if each < tick)
        self._slots.go_back(start_ms)

    # -- out of the wheel ------------------------------------------------------------------

    def _dequeue(self, wall_ms: int, now_ms: int) -> int:
        """Deliver a few due messages; returns the pause until the next step."""
        reader = self._reader or self._next_reader(wall_ms)
        if reader is None:
            precision_ms = self._state.precision_ms
            behind = wall_ms // precision_ms * precision_ms - self._slots.position
            self._taken_ms = self._slots.position
            return 0 if behind > 0 else precision_ms - wall_ms % precision_ms
        work = 0
        while work < _MOST_WORK:
            due = reader.take(wall_ms)
            if due is not None:
                work += 1
                try:
                    is_delivered = self._deliver_unit(reader, due, now_ms)
                except Exception:
                    if not self._aside.fails_long(now_ms):
                        reader.give_back(due)
                        raise
                    _log.exception("timed message skipped", phy_offset=due.unit.phy_offset)
                    continue
                if not is_delivered:
                    reader.give_back(due)
                    return _RETRY_MS
            elif reader.read_on(wall_ms):
                work += _READ_WORK
            else:
                break
        if work >= _MOST_WORK:
            return 0
        if reader.is_done and wall_ms >= reader.end_ms:
            self._done.append(reader.tick)
            self._slots.advance(reader.end_ms)
            self._state.forget_before(reader.tick)
            self._reader = None
            return 0
        if reader.is_read:
            self._taken_ms = wall_ms
        return max(0, reader.next_ms - wall_ms)

    def _next_reader(self, wall_ms: int) -> SlotReader | None:
        """Continue with the next non-empty slot that has started."""
        precision_ms = self._state.precision_ms
        tick = before = self._slots.position // precision_ms
        now_tick = wall_ms // precision_ms
        if tick > now_tick:
            return None
        tick, slot = self._state.first_from(tick, min(now_tick, tick + _MOST_SLOTS))
        if tick > before:
            self._slots.advance(tick * precision_ms)
            self._state.forget_before(tick)
        if slot is not None:
            self._reader = SlotReader(slot, self._state, self._message_of)
        return self._reader

    def _message_of(self, unit: TimerUnit) -> MessageExt | None:
        """Read the message of a unit; None when it is missing.

        After a power cut a unit may exist without its message. The record at that position may
        then be another message, so size, topic and delivery time are checked.
        """
        record = self._store.look_message(unit.phy_offset)
        if record is None or len(record) != unit.size_bytes:
            return None
        try:
            message = decode_message(record, inflate=False)
        except CorruptRecordError as error:
            _log.error("damaged timed message skipped", error=str(error))
            return None
        out_ms = decimal(message.properties.get(PROPERTY_TIMER_OUT_MS))
        if message.topic != TIMER_TOPIC or out_ms is None:
            return None
        precision_ms = self._state.precision_ms
        waits_on = unit.is_rolled and out_ms >= unit.due_ms
        fits = waits_on or out_ms // precision_ms == unit.due_ms // precision_ms
        return message if fits else None

    def _deliver_unit(self, reader: SlotReader, due: Due, now_ms: int) -> bool:
        """Deliver the message of a unit; False when it must be tried again."""
        stored = self._message_of(due.unit)
        phy_end: int | None = 0
        if stored is None:
            self._skipped.report(due.unit.phy_offset, dict, "it is missing from the log")
        elif self._was_delivered(stored):
            pass
        elif due.unit.is_rolled or not reader.is_recalled(stored):
            phy_end = self._deliver(stored, due.unit.write_ms, now_ms, is_rolled=due.unit.is_rolled)
        if phy_end is None:
            return False
        self.dequeued_count += 1
        if stored is not None:
            self._count(stored, -1)
        if phy_end:
            self._slots.advance(self._slots.position, phy_end)
        return True

    def _deliver(
        self, stored: MessageExt, enqueue_ms: int, now_ms: int, *, is_rolled: bool
    ) -> int | None:
        """Store a message in its topic, or again in the timer's queue.

        Returns:
            End of what was stored in the log; 0 when the message was skipped; None to try again.
        """
        properties = stored.properties
        bare = dict(properties)
        properties[PROPERTY_TIMER_ENQUEUE_MS] = str(enqueue_ms)
        properties[PROPERTY_TIMER_DEQUEUE_MS] = str(self._clock.time_ms())
        message: PutMessage | str
        if is_rolled:
            times = decimal(properties.get(PROPERTY_TIMER_ROLL_TIMES)) or 0
            properties[PROPERTY_TIMER_ROLL_TIMES] = str(times + 1)
            message = copy_of(stored, TIMER_TOPIC, 0, properties)
        elif PROPERTY_TIMER_DEL_UNIQKEY in properties:
            return 0  # a recall that arrived after its message was delivered
        else:
            message = delivered(stored)
        if isinstance(message, str):
            return self._skip(stored, message)
        queue_id = self._queue_of(message.topic, message.queue_id)
        if queue_id is None:
            return self._skip(stored, "its topic was deleted")
        message.queue_id = queue_id
        if len(message.properties) > MAX_PROPERTIES_BYTES:
            message.properties = encode_properties(bare)  # without additions it fits, as when sent
        try:
            result = self._put.put(message)
        except Exception as error:  # noqa: BLE001 - treated as a refused put
            self._complain(now_ms, "timed message not stored", repr(error))
            return self._aside.store(message, now_ms)
        if result.status is PutMessageStatus.PUT_OK:
            return result.phy_end
        if result.status in NEVER_STORED:
            return self._skip(stored, f"it cannot be stored: {result.status.value}")
        self._complain(
            now_ms,
            "timed message not stored",
            result.status.value,
        )
        return self._aside.store(message, now_ms)

    def _count(self, stored: MessageExt, number: int) -> None:
        if PROPERTY_TIMER_DEL_UNIQKEY not in stored.properties:
            self._counts.add(stored.properties.get(PROPERTY_REAL_TOPIC, ""), number)

    def _skip(self, stored: MessageExt, reason: str) -> int:
        self._skipped.report(stored.phy_offset, lambda: stored.properties, reason)
        return 0
