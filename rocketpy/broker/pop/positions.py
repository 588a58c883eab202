"""Positions of groups: where the next pop of a queue starts.

A position is the committed offset, or a later one. The committed offset advances past messages only
after all of them are acked or their check point is on disk; otherwise a power cut would leave
messages that are neither with a consumer nor redelivered. Positions beyond the committed offset are
kept here until then.

Source: PopMessageProcessor.getPopOffset, PopBufferMergeService.commitOffsets (5.4.0).
"""

import collections
import threading
from collections.abc import Callable
from typing import Final, Protocol

from rocketpy.broker.metadata.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.proto.pop import INIT_MIN
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.runtime.service import no_wake
from rocketpy.store.interfaces import LogFlush, QueueBounds, RecentMessages

STEP_INTERVAL_MS: Final = 100
IDLE_INTERVAL_MS: Final = 1_000
"""Interval of `step` while there is nothing to commit; `PopPositions.advance` cuts it short."""


class PopStore(QueueBounds, LogFlush, Protocol):
    """Store of pops: ends of queues, and flushing the log."""


class Advance:
    """A position that is not committed yet, because of the messages before it.

    Attributes:
        offset: the position.
        phy_end: end of the check point in the log, which must be on disk first; None while the
            check point is not stored.
    """

    __slots__ = ("offset", "phy_end")

    def __init__(self, offset: int, phy_end: int | None) -> None:
        self.offset: int = offset
        self.phy_end: int | None = phy_end


class _Ahead:
    """Next offset of a queue beyond the committed one, and the advances between, in order."""

    __slots__ = ("advances", "next_offset")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.advances: collections.deque[Advance] = collections.deque()


class PopPositions:
    """Positions of all groups; safe from any thread. Changes need the lock of the queue.

    It is also the background service that commits positions; see `step`. It holds one entry for
    each pop since the last flush of the log, or since the oldest pop of the queue that is neither
    acked nor stored.

    Args:
        offsets: committed offsets.
        store: ends of queues, and how much of the log is on disk.
        recent: decides whether a young queue is read from its start.
    """

    name = "PopPositions"

    def __init__(self, offsets: ConsumerOffsets, store: PopStore, recent: RecentMessages) -> None:
        self._offsets = offsets
        self._store = store
        self._recent = recent
        self._lock = threading.Lock()
        self._ahead: dict[GroupQueue, _Ahead] = {}
        self._is_idle = False
        self._wake: Callable[[], None] = no_wake

    def __len__(self) -> int:
        """Number of queues with a position beyond the committed offset."""
        return len(self._ahead)

    def next_offset(self, queue: GroupQueue, init_mode: int = INIT_MIN) -> int:
        """Return where the next pop starts, without changing anything."""
        # This order matters: an entry of `_ahead` is deleted only after its offset is committed,
        # so one of the two reads sees the position.
        ahead = self._ahead.get(queue)
        committed = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        if committed == NO_OFFSET:
            return self._first(queue, init_mode)
        return committed if ahead is None else max(committed, ahead.next_offset)

    def is_known(self, queue: GroupQueue) -> bool:
        """Return whether the group has an offset; a deletion of topic or group removes it."""
        return self._offsets.query(queue.group, queue.topic, queue.queue_id) != NO_OFFSET

    def take_reset(self, queue: GroupQueue) -> int | None:
        """Move to the offset to which an operator reset the group; None without a reset."""
        topic, group, queue_id = queue
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            with self._lock:
                self._ahead.pop(queue, None)
            self._offsets.commit(group, topic, queue_id, reset)
        return reset

    def start_offset(self, queue: GroupQueue, init_mode: int) -> int:
        """Return where this pop starts; commits the first position of a group in a queue."""
        topic, group, queue_id = queue
        if not self.is_known(queue):
            with self._lock:
                self._ahead.pop(queue, None)
            self._offsets.commit(group, topic, queue_id, self._first(queue, init_mode))
        return self.next_offset(queue, init_mode)

    def commit(self, queue: GroupQueue, offset: int) -> None:
        """Set a position that needs no check point; commits it unless earlier ones are pending."""
        with self._lock:
            ahead = self._ahead.get(queue)
            if ahead is not None and ahead.advances:
                ahead.next_offset = offset
                return
            self._ahead.pop(queue, None)
        topic, group, queue_id = queue
        if not self._offsets.has_reset(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, offset)

    def advance(self, queue: GroupQueue, offset: int, phy_end: int | None) -> Advance:
        """Set the position of the next pop; it is committed when its check point is on disk.

        Args:
            queue: the queue.
            offset: the position.
            phy_end: end of the check point in the log, or None when `set_phy_end` sets it later.
        """
        advance = Advance(offset, phy_end)
        with self._lock:
            ahead = self._ahead.get(queue)
            if ahead is None:
                ahead = self._ahead[queue] = _Ahead(offset)
            ahead.next_offset = offset
            ahead.advances.append(advance)
            was_idle, self._is_idle = self._is_idle, False
        if was_idle:
            self._wake()
        return advance

    def set_phy_end(self, advance: Advance, phy_end: int) -> None:
        """Set the end of an advance's check point in the log; 0 when none had to be stored."""
        advance.phy_end = phy_end

    def uncommitted_count(self, queue: GroupQueue) -> int:
        """Return the number of advances of a queue that are not committed."""
        ahead = self._ahead.get(queue)
        return 0 if ahead is None else len(ahead.advances)

    def use_wake(self, wake: Callable[[], None]) -> None:
        """See `rocketpy.runtime.service.WokenService.use_wake`."""
        self._wake = wake

    def step(self, now_ms: int) -> int:
        """Commit positions that are on disk; see `rocketpy.runtime.service.Service.step`.

        It becomes idle in a step that starts with nothing to do, not when the last entry is
        committed. So a fast sequence of pops wakes it no more often than its own interval.
        """
        with self._lock:
            is_idle = self._is_idle = not self._ahead
        if is_idle:
            return now_ms + IDLE_INTERVAL_MS
        self.commit_flushed()
        return now_ms + STEP_INTERVAL_MS

    def commit_flushed(self) -> None:
        """Commit the positions that need no check point, or have it on disk."""
        flushed = self._store.kept_phy_offset
        for queue, ahead in list(self._ahead.items()):
            with self._lock:
                self._commit_flushed_of(queue, ahead, flushed)

    def load(self) -> None:
        """Nothing to load: committed offsets are in another table."""

    def persist(self) -> None:
        """Flush the check points, and commit the positions that depend on them."""
        if self._ahead:
            self._store.flush_log()
        self.commit_flushed()

    def _commit_flushed_of(self, queue: GroupQueue, ahead: _Ahead, flushed: int) -> None:
        advances, offset = ahead.advances, NO_OFFSET
        while advances:
            phy_end = advances[0].phy_end
            if phy_end is None or phy_end > flushed:
                break
            offset = advances.popleft().offset
        if self._ahead.get(queue) is not ahead:
            return  # the group was reset meanwhile
        # The topic or the group was deleted; its successor must start at its first message.
        if not self.is_known(queue):
            del self._ahead[queue]
            return
        if not advances:
            offset = max(offset, ahead.next_offset)
        topic, group, queue_id = queue
        # A reset that was not applied yet wins: the next pop, even after a restart, starts there.
        is_reset = self._offsets.has_reset(group, topic, queue_id)
        if not is_reset and offset > self._offsets.query(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, offset)
        # Deleted after the commit, because `next_offset` reads both without the lock.
        if not advances:
            del self._ahead[queue]

    def _first(self, queue: GroupQueue, init_mode: int) -> int:
        topic, _, queue_id = queue
        least = self._store.min_offset(topic, queue_id)
        if init_mode == INIT_MIN or topic.startswith(RETRY_PREFIX):
            return max(0, least)
        if least <= 0 and self._recent.is_in_memory(topic, queue_id, 0):
            return 0
        # The last message is popped as well, as in Apache: a new consumer at the end of a queue
        # receives one message and so shows that it works.
        return max(0, self._store.max_offset(topic, queue_id) - 1)
