"""Delivers delayed messages when they are due: one reader for each delay level.

All messages of a level wait for the same time, so those of one queue become due in queue order, and
the reader processes their queue entries in batches. The queue entry of a delayed message contains
its delivery time in place of the tags code.

Invariants:
    - The reader passes a message only after it was stored again. A failed message is tried again at
      the same offset, and is parked when it fails for long (`PutRetry`).
    - A message that can never be stored is skipped with a warning, so that it does not delay
      others.
    - A step delivers at most two batches, because it runs on the event loop; the next step starts
      with the level after it.
    - An empty level is checked once per second. The first message that arrives wakes the service at
      once: a message with an implausible delivery time waits from when it is first read
      (`_Level.wait_again`).

With the compiled modules (docs/decisions/0008), one call stores a bulk of fast-path eligible
messages. All others are delivered one by one, which also reports why a message cannot be delivered.
After a bulk call has raised, its messages are delivered one by one as well: the error does not name
the failing message, and another bulk call would fail in the same way.

Source: ScheduleMessageService.DeliverDelayedMessageTimerTask (5.4.0).
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import structlog

from rocketpy.broker.delay.offsets import DelayOffsets
from rocketpy.broker.feature import DueMessageWriter
from rocketpy.broker.metadata.topics import SCHEDULE_QUEUE_NUMS
from rocketpy.broker.property_templates import (
    PropertyTemplate,
    PropertyTemplates,
)
from rocketpy.broker.system_topics.durable_progress import DurableProgress
from rocketpy.broker.system_topics.put_retry import PutRetry
from rocketpy.broker.system_topics.skipped_messages import SkippedMessages
from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.system_topics.system_writer import (
    NEVER_STORED,
    SystemWriter,
    copy_of,
    copy_of_raw,
)
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import (
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    parse_properties,
)
from rocketpy.proto.record.raw_record import RawRecord
from rocketpy.proto.topic_names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.service import no_wake
from rocketpy.store.interfaces import QueueReader
from rocketpy.store.results import PutMessage, PutMessageStatus

_log = structlog.get_logger(__name__)

_FIRST_MS: Final = 1_000
"""Pause between the start of the service and the first check of each level."""
_IDLE_MS: Final = 1_000
"""Pause between two checks of an empty level."""
_RETRY_MS: Final = 100
"""Pause before a message that could not be read or stored is tried again."""
_FAULT_MS: Final = 10_000
"""Pause of a level, or of its bulk deliveries, after an unexpected error."""
_LONGEST_WAIT_MS: Final = 1_000
"""Longest pause of a level: the wall clock may be changed at any time."""
_MARKS: Final = 32
"""Marks within the delay of a level at which new messages are noticed (`_Level.wait_again`)."""
_BATCH: Final = 32
_RUN: Final = 128
"""Bulk size: one call stores this many in less time than a batch takes one by one."""
_QUIET_MS: Final = 10_000
"""Shortest time between two warnings about messages that cannot be stored."""


class _Store(QueueReader, Protocol):
    """Store of delayed messages."""

    def queue_entries(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> list[tuple[int, int, int]]: ...

    def recent_part(self, phy_offset: int) -> tuple[memoryview, int, int] | None: ...


def _real_place(properties: Mapping[str, str]) -> tuple[str, int] | str:
    """Return the topic and queue of a message, or why it cannot be stored there."""
    topic = properties.get(PROPERTY_REAL_TOPIC, "")
    queue_id = properties.get(PROPERTY_REAL_QUEUE_ID, "")
    if not topic or not queue_id.isascii() or not queue_id.isdigit() or len(queue_id) > 9:
        return "it has no real topic or queue"
    if topic == TRANS_HALF_TOPIC:
        return "a half message cannot be delayed"
    return topic, int(queue_id)


def _placed(properties: dict[str, str], _: object) -> tuple[str, int, PropertyTemplate] | str:
    place = _real_place(properties)
    return place if isinstance(place, str) else (*place, PropertyTemplate.of(properties))


def delivered(stored: MessageExt) -> PutMessage | str:
    """Return the message to store in its real topic, or why it cannot be stored there.

    Args:
        stored: message of a system topic; its properties are not changed.
    """
    place = _real_place(stored.properties)
    return place if isinstance(place, str) else copy_of(stored, *place, stored.properties)


class _Level:
    """State of one level: its queue, its progress, and when to check it again.

    Attributes:
        is_idle: whether an arriving message must wake the service. It is set before the read that
            finds nothing, so that a message which that read misses wakes the service.
        is_woken: whether a message arrived while the level was idle.
    """

    __slots__ = (
        "_marks",
        "delay_ms",
        "due_ms",
        "is_idle",
        "is_woken",
        "no_runs_until_ms",
        "progress",
        "queue",
    )

    def __init__(self, queue: SystemQueue, progress: DurableProgress, delay_ms: int | None) -> None:
        self.queue = queue
        self.progress = progress
        self.delay_ms = delay_ms
        self.due_ms = 0
        self.is_idle = self.is_woken = False
        self.no_runs_until_ms = 0
        # Pairs of a queue offset, and when all messages before it are due.
        self._marks: deque[tuple[int, int]] = deque()

    def wait_again(self, queue_offset: int, delay_ms: int, now_ms: int) -> int:
        """Return how long a message with an implausible delivery time waits, in ms.

        The clock was set back since the message was stored, or the level was longer then. The
        message waits for the delay of the level from when that is noticed, together with all
        messages stored by then. Messages that arrive meanwhile are noticed while it waits. A
        message that became due by a mark stays due until it is delivered.
        """
        marks, end = self._marks, self.queue.max_offset
        while len(marks) > 1 and marks[1][1] <= now_ms:
            marks.popleft()
        if (
            not marks
            or queue_offset >= marks[-1][0]
            or (end > marks[-1][0] and now_ms + delay_ms - marks[-1][1] >= delay_ms // _MARKS)
        ):
            marks.append((end, now_ms + delay_ms))
        return next(due_ms for mark, due_ms in marks if queue_offset < mark) - now_ms


class DelayDelivery:
    """Background service that delivers delayed messages, on the event loop; see the module.

    Args:
        store: source of the messages.
        put: stores due messages.
        offsets: progress of the levels.
        aside: parks messages that cannot be stored for long.
        delays_ms: the delays, level 1 first.
        queue_of: returns the queue to use in place of a deleted one; None for a deleted topic.
        topic_of: returns the settings of a topic; None for a deleted topic.
        clock: time.
    """

    name = "DelayDelivery"

    def __init__(
        self,
        store: _Store,
        put: SystemWriter,
        offsets: DelayOffsets,
        aside: PutRetry,
        *,
        delays_ms: tuple[int, ...],
        queue_of: Callable[[str, int], int | None],
        topic_of: Callable[[str], TopicConfig | None],
        clock: Clock,
    ) -> None:
        self._store = store
        self._put = put
        self._offsets = offsets
        self._aside = aside
        self._delays_ms = delays_ms
        self._queue_of = queue_of
        self._topic_of = topic_of
        self._runs: DueMessageWriter | None = None
        self._clock = clock
        self._levels: tuple[_Level, ...] | None = None
        self._quiet_until_ms = 0
        self._skipped = SkippedMessages("delayed message skipped", clock)
        self._turn = 0
        self._delivered = 0
        self._places = PropertyTemplates(_placed)
        self._wake: Callable[[], None] = no_wake

    def use_runs(self, runs: DueMessageWriter) -> None:
        """Enable bulk storing of fast-path eligible messages."""
        self._runs = runs

    def use_wake(self, wake: Callable[[], None]) -> None:
        """See `rocketpy.runtime.service.WokenService.use_wake`."""
        self._wake = wake

    def on_arrival(self, queue_id: int) -> None:
        """Notice a new message in the queue of a level; on any thread.

        Only the first message of an idle level wakes the service.
        """
        levels = self._levels
        if levels is not None and queue_id < len(levels) and levels[queue_id].is_idle:
            level = levels[queue_id]
            level.is_idle = False
            level.is_woken = True
            self._wake()

    def restart(self) -> None:
        """Continue at the offsets of the levels, which others have changed."""
        self._levels = None

    def step(self, now_ms: int) -> int:
        """Deliver due messages; see `rocketpy.runtime.service.Service.step`."""
        if self._levels is None:
            self._levels = self._begin(now_ms)
        self._delivered = 0
        for _ in self._levels:
            self._turn = (self._turn + 1) % len(self._levels)
            level = self._levels[self._turn]
            if level.due_ms > now_ms and not level.is_woken:
                continue
            level.is_idle = level.is_woken = False
            try:
                level.due_ms = now_ms + self._deliver(level, now_ms)
            except Exception:  # noqa: BLE001 - a failing level must not delay the others
                _log.exception("delay level failed", level=_number(level))
                level.is_idle = False  # an arriving message must not end the pause
                level.due_ms = now_ms + _FAULT_MS
            if self._delivered >= _BATCH:
                break
        if any(level.is_woken for level in self._levels):
            return now_ms
        return min(level.due_ms for level in self._levels)

    def _begin(self, now_ms: int) -> tuple[_Level, ...]:
        """Return the configured levels, and removed ones that still have messages."""
        last = max(len(self._delays_ms), *self._offsets.levels, SCHEDULE_QUEUE_NUMS)
        levels = []
        for number in range(1, last + 1):
            is_known = number <= len(self._delays_ms)
            queue = SystemQueue(self._store, SCHEDULE_TOPIC, number - 1)
            progress = self._offsets.of_level(number)
            level = _Level(queue, progress, self._delays_ms[number - 1] if is_known else None)
            level.due_ms = now_ms + _FIRST_MS
            self._correct(level)  # the store may be another one; its messages are new
            levels.append(level)
        return tuple(levels)

    def _deliver(self, level: _Level, now_ms: int) -> int:
        """Deliver a few messages; returns the pause until the level is checked again."""
        self._correct(level)
        wait_ms, due = self._look(level, now_ms)
        if not due:
            return wait_ms
        stored = self._deliver_run(level, due, now_ms)
        if stored:
            return wait_ms if stored == len(due) else 0
        if len(due) > _BATCH:
            due, wait_ms = due[:_BATCH], 0
        return self._deliver_each(level, len(due), now_ms, wait_ms)

    def _deliver_run(self, level: _Level, due: list[tuple[int, int, int]], now_ms: int) -> int:
        """Store the leading fast-path eligible messages by one call; returns their number."""
        if self._runs is None or now_ms < level.no_runs_until_ms:
            return 0
        part = self._store.recent_part(due[0][0])
        if part is None:
            return 0
        progress = level.progress
        try:
            stored, phy_end = self._runs.deliver(self._topic_of, part, due, progress.position)
        except Exception:  # noqa: BLE001 - as a bulk all of them would fail again
            _log.exception("bulk delivery failed", level=_number(level))
            level.no_runs_until_ms = now_ms + _FAULT_MS
            return 0
        if stored:
            progress.advance(progress.position + stored, phy_end)
            self._delivered += stored
            self._offsets.count(stored)
        return stored

    def _deliver_each(self, level: _Level, count: int, now_ms: int, wait_ms: int) -> int:
        """Deliver messages one by one; returns the pause, `wait_ms` if all were delivered."""
        progress = level.progress
        found, end = level.queue.read_raw(progress.position, count), progress.position + count
        # For a damaged message the queue returns the one after the batch; that is not due.
        due = [stored for stored in found.records if stored.queue_offset < end]
        for stored in due:
            phy_end = self._deliver_one(stored, now_ms)
            if phy_end is None:
                return _RETRY_MS
            # The delayed record must be on disk as well: if a power cut removes it, its queue
            # offset belongs to another message.
            own_end = stored.phy_offset + stored.size_bytes
            progress.advance(stored.queue_offset + 1, max(phy_end, own_end))
        self._delivered += len(due)
        self._offsets.count(len(due))
        following = min(found.next_offset, end)
        if progress.position < following:
            progress.advance(following)  # the messages were deleted
        elif not due:
            return _RETRY_MS
        return wait_ms if progress.position == end else 0

    def _correct(self, level: _Level) -> None:
        """Move a position outside of the queue into it; retention deletes the first messages."""
        position, low, high = (
            level.progress.position,
            level.queue.min_offset,
            level.queue.max_offset,
        )
        if low <= position <= high:
            return
        right = min(max(position, low, 0), high)
        _log.warning(
            "delay level offset corrected",
            level=_number(level),
            offset=position,
            corrected=right,
        )
        level.progress.reset(right)

    def _look(self, level: _Level, now_ms: int) -> tuple[int, list[tuple[int, int, int]]]:
        """Return the pause after the due messages, and their queue entries."""
        position, wall_ms = level.progress.position, self._clock.time_ms()
        most = _BATCH if self._runs is None else _RUN
        level.is_idle = position >= level.queue.max_offset
        entries = self._store.queue_entries(SCHEDULE_TOPIC, level.queue.queue_id, position, most)
        if not entries:
            # At full seconds, so that all idle levels are checked in one step.
            return (_IDLE_MS - now_ms % _IDLE_MS if level.is_idle else _RETRY_MS), []
        level.is_idle = False
        for count, (_, _, deliver_ms) in enumerate(entries):
            wait_ms, delay_ms = deliver_ms - wall_ms, level.delay_ms
            if delay_ms is not None and wait_ms > delay_ms:
                wait_ms = level.wait_again(position + count, delay_ms, now_ms)
            if wait_ms > 0:
                return min(wait_ms, _LONGEST_WAIT_MS), entries[:count]
        return 0, entries

    def _deliver_one(self, stored: RawRecord, now_ms: int) -> int | None:
        """Store one message in its real topic.

        Returns:
            End of what was stored in the log; 0 when the message was skipped; None to try again.
        """
        uniq_key, place = self._places.of(stored.properties)
        if isinstance(place, str):
            return self._skip(stored, place)
        message = copy_of_raw(stored, *place, uniq_key)
        queue_id = self._queue_of(message.topic, message.queue_id)
        if queue_id is None:
            return self._skip(stored, "its topic was deleted")
        message.queue_id = queue_id
        try:
            result = self._put.put(message)
        except Exception:
            phy_end = self._aside.store(message, now_ms)
            if phy_end is None:
                raise  # the level pauses, and the message is tried again
            _log.exception("delayed message parked", topic=message.topic)
            return phy_end
        if result.status is PutMessageStatus.PUT_OK:
            return result.phy_end
        if result.status in NEVER_STORED:
            return self._skip(stored, f"it cannot be stored: {result.status.value}")
        if now_ms >= self._quiet_until_ms:
            self._quiet_until_ms = now_ms + _QUIET_MS
            _log.warning(
                "delayed message not stored",
                topic=message.topic,
                status=result.status.value,
            )
        return self._aside.store(message, now_ms)

    def _skip(self, stored: RawRecord, reason: str) -> int:
        self._skipped.report(stored.phy_offset, lambda: parse_properties(stored.properties), reason)
        return 0


def _number(level: _Level) -> int:
    return level.queue.queue_id + 1
