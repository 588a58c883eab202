"""Unacknowledged messages of groups that pop in order: consumerOrderInfo.json.

A queue is blocked for its group while a message of the last pop is neither acked nor visible again.
After that, the group gets the queue from its first message that is not acked. There is no check
point: the committed offset stays before that message instead.

The file holds wall times, as Apache's does. Suspended pops wait by the monotonic clock, so setting
the wall clock back blocks no queue for longer than was asked for.

Source: ConsumerOrderInfoManager.java, ConsumerOrderInfoLockManager.java (5.4.0).
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, Final

import structlog

from rocketpy.broker.metadata.json_document import JsonDocument, as_int, as_table
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.revive.revive_log import MAX_INVISIBLE_MS
from rocketpy.errors import BadBodyError, DiskFullError
from rocketpy.proto.wire.json_body import Body, body
from rocketpy.runtime.clock import Clock

_log = structlog.get_logger(__name__)

KEEP_MS: Final = 24 * 3_600 * 1_000
"""Entries that were not popped for this long are dropped; their queues are free by then."""
MAX_ATTEMPT_ID_CHARS: Final = 256
"""Longer attempt ids are ignored, to bound memory; those of official clients have 36 characters."""

NOT_POPPED: Final = -1
OTHER_POP: Final = -2

_MAX_OFFSET: Final = 1 << 48
_MAX_IN_FLIGHT: Final = 4_096
"""Bounds of a valid entry: a damaged file must not make an ack loop over a huge range."""


@body
class OrderInfo(Body):
    """Messages of a queue that a group popped last.

    Attributes:
        pop_time_ms: time of the pop.
        invisible_ms: how long they block the queue.
        offsets: queue offset of the first, then the distances of the others from it.
        visible_ms: queue offset to the time at which that message is visible, where changed.
        counts: queue offset to the number of earlier deliveries, where there were any.
        last_ms: time of the group's last pop.
        acked_bits: bit i is set when message i is acked.
        attempt_id: id of the call, so that its repetition is not blocked.
    """

    wire_names: ClassVar[Mapping[str, str]] = {
        "pop_time_ms": "popTime",
        "invisible_ms": "i",
        "offsets": "o",
        "visible_ms": "ot",
        "counts": "oc",
        "last_ms": "l",
        "acked_bits": "cm",
        "attempt_id": "a",
    }

    pop_time_ms: int = 0
    invisible_ms: int | None = None
    offsets: list[int] = field(default_factory=list)
    visible_ms: dict[int, int] | None = None
    counts: dict[int, int] | None = None
    last_ms: int = 0
    acked_bits: int = 0
    attempt_id: str | None = None

    @property
    def queue_offsets(self) -> list[int]:
        """Queue offsets of the messages."""
        first = self.offsets[:1]
        return first + [first[0] + distance for distance in self.offsets[1:]]

    def is_acked(self, index: int) -> bool:
        """Return whether a message is acked."""
        return bool(self.acked_bits >> index & 1)

    def free_at_ms(self) -> int:
        """Return when the last unacked message becomes visible again; 0 when all are acked."""
        end_ms = self.pop_time_ms + max(0, self.invisible_ms or 0)
        changed = self.visible_ms or {}
        waits = [
            changed.get(offset, end_ms)
            for index, offset in enumerate(self.queue_offsets)
            if not self.is_acked(index)
        ]
        return max(waits, default=0)

    def next_offset(self) -> int:
        """Return where the group continues: its first unacked message, or after the last."""
        offsets = self.queue_offsets
        for index, offset in enumerate(offsets):
            if not self.is_acked(index):
                return offset
        return offsets[-1] + 1

    def is_valid(self) -> bool:
        """Return whether a broker may have written this entry."""
        offsets = self.queue_offsets
        return (
            0 < len(offsets) <= _MAX_IN_FLIGHT
            and offsets[0] >= 0
            and offsets[-1] < _MAX_OFFSET
            and all(one < other for one, other in pairwise(offsets))
            and 0 <= (self.invisible_ms or 0) <= MAX_INVISIBLE_MS
            and self.acked_bits >= 0
        )


@dataclass(slots=True)
class _InFlight:
    """Unacknowledged messages of a group in a queue.

    Attributes:
        info: the entry as written to the file.
        skew_ms: difference of monotonic time and the entry's times, fixed at its creation so that
            later changes of the wall clock have no effect.
    """

    info: OrderInfo
    skew_ms: int

    def free_at_ms(self) -> int:
        """Return the monotonic time from which the queue is free; at most `MAX_INVISIBLE_MS` on."""
        free_ms = self.info.free_at_ms()
        return free_ms and min(free_ms, self.info.last_ms + MAX_INVISIBLE_MS) + self.skew_ms


class OrderTable:
    """Unacknowledged messages by topic, group and queue; safe from any thread.

    It is also the background service that writes the file; see `step`. It holds one entry for each
    queue of an existing topic that an existing group popped within a day.

    Args:
        file: consumerOrderInfo.json.
        clock: time.
        queue_count: returns the number of readable queues of a topic, 0 for an unknown topic.
        has_group: returns whether a group exists.
        interval_ms: how often the file is written.
    """

    name = "PopOrderInfo"

    def __init__(
        self,
        file: JsonDocument,
        clock: Clock,
        *,
        queue_count: Callable[[str], int],
        has_group: Callable[[str], bool],
        interval_ms: int,
    ) -> None:
        self._file = file
        self._clock = clock
        self._queue_count = queue_count
        self._has_group = has_group
        self._interval_ms = interval_ms
        self._lock = threading.Lock()
        self._in_flight: dict[GroupQueue, _InFlight] = {}
        self._dirty = False

    def __len__(self) -> int:
        return len(self._in_flight)

    def load(self) -> None:
        """Read consumerOrderInfo.json; skips invalid entries with a warning."""
        table = as_table(as_table(self._file.load()).get("table"))
        wall_ms, now_ms = self._clock.time_ms(), self._clock.monotonic_ms()
        for key, queues in table.items():
            topic, separator, group = key.partition("@")
            for queue_id, value in as_table(queues).items():
                info = _read(value)
                if info is None or not separator:
                    _log.warning("consumerOrderInfo.json entry skipped", key=key)
                    continue
                # If the clock was set back since the last pop, time starts again at that pop.
                skew_ms = now_ms - max(wall_ms, info.last_ms)
                queue = GroupQueue(topic, group, as_int(queue_id, 0))
                self._in_flight[queue] = _InFlight(info, skew_ms)

    def persist(self) -> None:
        """Write consumerOrderInfo.json.

        Raises:
            DiskFullError: the file did not fit; the old one is unchanged.
        """
        self._dirty = False
        try:
            self._file.save(self.to_json())
        except DiskFullError:
            self._dirty = True
            raise

    def step(self, now_ms: int) -> int:
        """Write the file if an entry changed; see `rocketpy.runtime.service.Service.step`."""
        if self._dirty:
            self.persist()
        return now_ms + self._interval_ms

    def to_json(self) -> dict[str, Any]:
        """Return the content of consumerOrderInfo.json, and drop entries that are not needed."""
        table: dict[str, dict[int, Any]] = {}
        oldest_ms = self._clock.time_ms() - KEEP_MS
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            # A copy of the items, because obsolete entries are deleted inside the loop.
            for queue, in_flight in list(self._in_flight.items()):
                is_old = in_flight.info.last_ms < oldest_ms and in_flight.free_at_ms() <= now_ms
                if (
                    is_old
                    or queue.queue_id >= self._queue_count(queue.topic)
                    or not self._has_group(queue.group)
                ):
                    del self._in_flight[queue]
                    continue
                queues = table.setdefault(f"{queue.topic}@{queue.group}", {})
                queues[queue.queue_id] = in_flight.info.to_json()
        return {"orderedConsumptionLevel": "QUEUE", "table": table}

    def record_pop(
        self,
        queue: GroupQueue,
        offsets: Sequence[int],
        *,
        pop_time_ms: int,
        invisible_ms: int,
        attempt_id: str | None,
    ) -> tuple[dict[int, int], int]:
        """Record the messages of a pop.

        Returns:
            Queue offset to the number of earlier deliveries, where there were any, and the
            smallest number of all messages.
        """
        if attempt_id is not None and len(attempt_id) > MAX_ATTEMPT_ID_CHARS:
            attempt_id = None
        first, wall_ms = offsets[0], self._clock.time_ms()
        info = OrderInfo(
            pop_time_ms,
            invisible_ms,
            [first, *(offset - first for offset in offsets[1:])],
            last_ms=wall_ms,
            attempt_id=attempt_id,
        )
        with self._lock:
            before = self._in_flight.get(queue)
            if before is not None:
                info.counts = _counts_after(before.info, info)
            self._in_flight[queue] = _InFlight(info, self._clock.monotonic_ms() - wall_ms)
            self._dirty = True
        counts = info.counts or {}
        least = min(counts.values()) if len(counts) == len(offsets) else 0
        return counts, least

    def free_at_ms(self, queue: GroupQueue, attempt_id: str | None = None) -> int:
        """Return the monotonic time from which a queue may be popped; it may be in the past."""
        with self._lock:
            found = self._in_flight.get(queue)
            if found is None or (attempt_id is not None and attempt_id == found.info.attempt_id):
                return 0
            return found.free_at_ms()

    def is_blocked(self, queue: GroupQueue, attempt_id: str | None = None) -> bool:
        """Return whether a queue may not be popped now."""
        return self._clock.monotonic_ms() < self.free_at_ms(queue, attempt_id)

    def record_ack(self, queue: GroupQueue, queue_offset: int, pop_time_ms: int) -> int:
        """Record an ack.

        Returns:
            The offset to commit; `NOT_POPPED` when the message was not in the last pop;
            `OTHER_POP` when it was popped again meanwhile.
        """
        with self._lock:
            found = self._in_flight.get(queue)
            if found is None:
                return queue_offset + 1
            info = found.info
            if info.pop_time_ms != pop_time_ms:
                return OTHER_POP
            try:
                index = info.queue_offsets.index(queue_offset)
            except ValueError:
                return NOT_POPPED
            info.acked_bits |= 1 << index
            self._dirty = True
            return info.next_offset()

    def change_visible(
        self, queue: GroupQueue, queue_offset: int, pop_time_ms: int, visible_ms: int
    ) -> None:
        """Change when a message becomes visible again; ignores messages of another pop."""
        skew_ms = self._clock.monotonic_ms() - self._clock.time_ms()
        with self._lock:
            found = self._in_flight.get(queue)
            if found is None:
                return
            info = found.info
            if info.pop_time_ms == pop_time_ms and queue_offset in info.queue_offsets:
                visible_ms += skew_ms - found.skew_ms  # in the time of the entry
                info.visible_ms = {**(info.visible_ms or {}), queue_offset: visible_ms}
                self._dirty = True

    def clear(self, queue: GroupQueue) -> None:
        """Drop the entry of a queue, after a reset of the group."""
        with self._lock:
            if self._in_flight.pop(queue, None) is not None:
                self._dirty = True


def _read(value: object) -> OrderInfo | None:
    try:
        info = OrderInfo.from_json(value)
    except BadBodyError:
        return None
    return info if info.is_valid() else None


def _counts_after(before: OrderInfo, info: OrderInfo) -> dict[int, int] | None:
    """Return how often the messages of a pop were delivered before it."""
    counts = before.counts or {}
    if before.attempt_id is not None and before.attempt_id == info.attempt_id:
        return counts
    again = set(before.queue_offsets)
    return {
        offset: counts.get(offset, 0) + 1 for offset in info.queue_offsets if offset in again
    } or None
