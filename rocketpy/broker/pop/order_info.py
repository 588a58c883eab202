"""What groups that pop in order have in hand: consumerOrderInfo.json.

A queue is blocked for its group while a message of the last pop is neither acked nor visible
again; then the group gets the queue from its first message that is not acked. So there is no check
point: the committed offset stands still instead.

Source: ConsumerOrderInfoManager.java, ConsumerOrderInfoLockManager.java (5.4.0).
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Final

from rocketpy.broker.document import JsonDocument, as_int, as_table
from rocketpy.broker.pop.queue_locks import GroupQueue
from rocketpy.errors import BadBodyError, DiskFullError
from rocketpy.proto.json_body import Body, body
from rocketpy.runtime.clock import Clock

KEEP_MS: Final = 24 * 3_600 * 1_000
"""What was not popped for so long is forgotten; the queue is free then anyway."""
MAX_ATTEMPT_ID_CHARS: Final = 256
"""A longer id of an attempt counts as none; official clients' have 36."""

NOT_POPPED: Final = -1
OTHER_POP: Final = -2


@body
class OrderInfo(Body):
    """The messages of a queue that a group popped last.

    Attributes:
        pop_time_ms: when.
        invisible_ms: how long the queue is blocked for them.
        offsets: queue offset of the first, then the others' distances from it.
        visible_ms: queue offset to when that message is visible again, where that was changed.
        counts: queue offset to number of earlier deliveries, where there were any.
        last_ms: when the group popped last.
        acked_bits: bit i: message i is acked.
        attempt_id: of the call, so that its repetition is not blocked.
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
        """Queue offset of each message."""
        first = self.offsets[:1]
        return first + [first[0] + distance for distance in self.offsets[1:]]

    def is_acked(self, index: int) -> bool:
        """Whether a message is acked."""
        return bool(self.acked_bits >> index & 1)

    def free_at_ms(self) -> int:
        """When the last message that is not acked becomes visible again; 0 when none is left."""
        end_ms = self.pop_time_ms + max(0, self.invisible_ms or 0)
        changed = self.visible_ms or {}
        waits = [
            changed.get(offset, end_ms)
            for index, offset in enumerate(self.queue_offsets)
            if not self.is_acked(index)
        ]
        return max(waits, default=0)

    def next_offset(self) -> int:
        """Where the group goes on: its first message that is not acked, or behind the last."""
        offsets = self.queue_offsets
        for index, offset in enumerate(offsets):
            if not self.is_acked(index):
                return offset
        return offsets[-1] + 1


class OrderTable:
    """What is in hand, by topic, group and queue; safe from any thread.

    It is also the background service that writes the file: see `step`. It holds one entry for each
    queue of an existing topic and an existing group that popped it within a day.

    Args:
        file: consumerOrderInfo.json.
        clock: time.
        queue_count: readable queues of a topic, 0 when there is no such topic.
        has_group: whether there is such a group.
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
        self._infos: dict[GroupQueue, OrderInfo] = {}
        self._dirty = False

    def __len__(self) -> int:
        return len(self._infos)

    def load(self) -> None:
        """Read consumerOrderInfo.json; an entry that cannot be read is left out."""
        table = as_table(as_table(self._file.load()).get("table"))
        for key, queues in table.items():
            topic, separator, group = key.partition("@")
            if not separator:
                continue
            for queue_id, value in as_table(queues).items():
                try:
                    info = OrderInfo.from_json(value)
                except BadBodyError:
                    continue
                if info.offsets:
                    self._infos[GroupQueue(topic, group, as_int(queue_id, 0))] = info

    def persist(self) -> None:
        """Write consumerOrderInfo.json.

        Raises:
            DiskFullError: it did not fit; the old file is untouched.
        """
        self._dirty = False
        try:
            self._file.save(self.to_json())
        except DiskFullError:
            self._dirty = True
            raise

    def step(self, now_ms: int) -> int:
        """Write the file when something changed; see `rocketpy.runtime.service.Service.step`."""
        if self._dirty:
            self.persist()
        return now_ms + self._interval_ms

    def to_json(self) -> dict[str, Any]:
        """The content of consumerOrderInfo.json, without what nobody needs any more."""
        table: dict[str, dict[int, Any]] = {}
        oldest_ms = self._clock.time_ms() - KEEP_MS
        with self._lock:
            for queue, info in list(self._infos.items()):
                if (
                    queue.queue_id >= self._queue_count(queue.topic)
                    or not self._has_group(queue.group)
                    or info.last_ms < oldest_ms
                ):
                    del self._infos[queue]
                    continue
                queues = table.setdefault(f"{queue.topic}@{queue.group}", {})
                queues[queue.queue_id] = info.to_json()
        return {"orderedConsumptionLevel": "QUEUE", "table": table}

    def popped(
        self,
        queue: GroupQueue,
        offsets: Sequence[int],
        *,
        pop_time_ms: int,
        invisible_ms: int,
        attempt_id: str | None,
    ) -> tuple[dict[int, int], int]:
        """Remember what a pop handed out.

        Returns:
            Queue offset to number of earlier deliveries where there were any, and the smallest
            number of all.
        """
        if attempt_id is not None and len(attempt_id) > MAX_ATTEMPT_ID_CHARS:
            attempt_id = None
        first = offsets[0]
        info = OrderInfo(
            pop_time_ms,
            invisible_ms,
            [first, *(offset - first for offset in offsets[1:])],
            last_ms=self._clock.time_ms(),
            attempt_id=attempt_id,
        )
        with self._lock:
            before = self._infos.get(queue)
            if before is not None:
                info.counts = _counts_after(before, info)
            self._infos[queue] = info
            self._dirty = True
        counts = info.counts or {}
        least = min(counts.values()) if len(counts) == len(offsets) else 0
        return counts, least

    def free_at_ms(self, queue: GroupQueue, attempt_id: str | None = None) -> int:
        """Wall time from which a queue may be popped again; one in the past means it may now."""
        with self._lock:
            info = self._infos.get(queue)
            if info is None or (attempt_id is not None and attempt_id == info.attempt_id):
                return 0
            return info.free_at_ms()

    def is_blocked(self, queue: GroupQueue, attempt_id: str | None = None) -> bool:
        """Whether a queue may not be popped now."""
        return self._clock.time_ms() < self.free_at_ms(queue, attempt_id)

    def acked(self, queue: GroupQueue, queue_offset: int, pop_time_ms: int) -> int:
        """Note an ack.

        Returns:
            The offset to commit; `NOT_POPPED` when the message was not in the last pop,
            `OTHER_POP` when it was popped again meanwhile.
        """
        with self._lock:
            info = self._infos.get(queue)
            if info is None:
                return queue_offset + 1
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
        """Note when a message becomes visible again; one that is not in hand is left alone."""
        with self._lock:
            info = self._infos.get(queue)
            if (
                info is not None
                and info.pop_time_ms == pop_time_ms
                and queue_offset in info.queue_offsets
            ):
                info.visible_ms = {**(info.visible_ms or {}), queue_offset: visible_ms}
                self._dirty = True

    def clear(self, queue: GroupQueue) -> None:
        """Forget what is in hand: the group was reset."""
        with self._lock:
            if self._infos.pop(queue, None) is not None:
                self._dirty = True


def _counts_after(before: OrderInfo, info: OrderInfo) -> dict[int, int] | None:
    """How often the messages of a pop were delivered before it."""
    counts = before.counts or {}
    if before.attempt_id is not None and before.attempt_id == info.attempt_id:
        return counts
    again = set(before.queue_offsets)
    return {
        offset: counts.get(offset, 0) + 1 for offset in info.queue_offsets if offset in again
    } or None
