"""Where a group's next pop of a queue begins.

It is the committed offset, or a later one: the committed offset passes messages only when all of
them are acked or their check point is on disk, for otherwise a power cut would leave messages that
nobody has and nobody gets. What was popped meanwhile is remembered here, for as long as it takes.

Source: PopMessageProcessor.getPopOffset, PopBufferMergeService.commitOffsets (5.4.0).
"""

import collections
import threading
from collections.abc import Callable
from typing import Final, Protocol

from rocketpy.broker.metadata.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.broker.pop.queue_locks import GroupQueue
from rocketpy.proto.pop import INIT_MIN
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.runtime.service import no_wake

STEP_INTERVAL_MS: Final = 100
IDLE_INTERVAL_MS: Final = 1_000
"""While nothing is to be committed: `PopPositions.advance` ends it."""


class QueueEnds(Protocol):
    """Where queues begin and end."""

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First offset of a queue."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Offset after the last of a queue."""
        ...


class PopStore(QueueEnds, Protocol):
    """What positions need of the store."""

    @property
    def flushed_phy_offset(self) -> int:
        """End of what is on disk."""
        ...

    def flush_log(self) -> bool:
        """Bring everything appended so far to disk."""
        ...


class RecentMessages(Protocol):
    """Tells recent messages from old ones."""

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is recent enough to count as in memory."""
        ...


class Advance:
    """A position that is not committed yet, because of the messages before it.

    Attributes:
        offset: the position.
        phy_end: the log must be on disk up to here; None while that is not known.
    """

    __slots__ = ("offset", "phy_end")

    def __init__(self, offset: int, phy_end: int | None) -> None:
        self.offset: int = offset
        self.phy_end: int | None = phy_end


class _Ahead:
    """A position that the committed offset has not reached, and those between, in order."""

    __slots__ = ("advances", "next_offset")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.advances: collections.deque[Advance] = collections.deque()


class PopPositions:
    """Positions of all groups; safe from any thread, changed under a queue's lock.

    It is also the background service that commits them: see `step`. It holds one entry for each
    pop since the last flush of the log, or since the oldest one of its queue that is neither acked
    nor stored.

    Args:
        offsets: committed offsets.
        store: where queues begin and end, and how much is on disk.
        recent: tells whether a young queue is read from its beginning.
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
        """How many queues have been popped further than their committed offset."""
        return len(self._ahead)

    def of(self, queue: GroupQueue, init_mode: int = INIT_MIN) -> int:
        """Where the next pop begins; nothing is changed."""
        # In this order: what is ahead goes only when its offset is committed.
        ahead = self._ahead.get(queue)
        committed = self._offsets.query(queue.group, queue.topic, queue.queue_id)
        if committed == NO_OFFSET:
            return self._first(queue, init_mode)
        return committed if ahead is None else max(committed, ahead.next_offset)

    def is_known(self, queue: GroupQueue) -> bool:
        """Whether the group has an offset; not when its topic, or it, was deleted since."""
        return self._offsets.query(queue.group, queue.topic, queue.queue_id) != NO_OFFSET

    def take_reset(self, queue: GroupQueue) -> int | None:
        """Go where an operator reset the group to; None when nobody did."""
        topic, group, queue_id = queue
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None:
            with self._lock:
                self._ahead.pop(queue, None)
            self._offsets.commit(group, topic, queue_id, reset)
        return reset

    def begin(self, queue: GroupQueue, init_mode: int) -> int:
        """Where this pop begins; a group's first position in a queue is committed."""
        topic, group, queue_id = queue
        if not self.is_known(queue):
            with self._lock:
                self._ahead.pop(queue, None)
            self._offsets.commit(group, topic, queue_id, self._first(queue, init_mode))
        return self.of(queue, init_mode)

    def commit(self, queue: GroupQueue, offset: int) -> None:
        """Commit an offset at once; everything before it is settled."""
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
        """Let the next pop begin at an offset, which is committed when the log is on disk.

        Args:
            queue: the queue.
            offset: where to go on.
            phy_end: end of the check point in the log; None: `settle_at` tells later.
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

    def settle_at(self, advance: Advance, phy_end: int) -> None:
        """Tell how far the log must be on disk for an advance; 0: nothing was stored for it."""
        advance.phy_end = phy_end

    def unsettled(self, queue: GroupQueue) -> int:
        """How many advances of a queue are not committed."""
        ahead = self._ahead.get(queue)
        return 0 if ahead is None else len(ahead.advances)

    def use_wake(self, wake: Callable[[], None]) -> None:
        """See `rocketpy.runtime.service.WokenService.use_wake`."""
        self._wake = wake

    def step(self, now_ms: int) -> int:
        """Commit what is on disk; see `rocketpy.runtime.service.Service.step`.

        It is idle from a step on that begins with nothing to do, so that however fast pops
        come and are committed, they wake it no more often than it looks by itself.
        """
        with self._lock:
            is_idle = self._is_idle = not self._ahead
        if is_idle:
            return now_ms + IDLE_INTERVAL_MS
        self.settle()
        return now_ms + STEP_INTERVAL_MS

    def settle(self) -> None:
        """Commit the offsets whose check points are on disk, or need none."""
        flushed = self._store.flushed_phy_offset
        for queue, ahead in list(self._ahead.items()):
            with self._lock:
                self._settle(queue, ahead, flushed)

    def load(self) -> None:
        """Nothing to read: the committed offsets are."""

    def persist(self) -> None:
        """Bring the check points to disk, and commit what they vouch for."""
        if self._ahead:
            self._store.flush_log()
        self.settle()

    def _settle(self, queue: GroupQueue, ahead: _Ahead, flushed: int) -> None:
        advances, offset = ahead.advances, NO_OFFSET
        while advances:
            phy_end = advances[0].phy_end
            if phy_end is None or phy_end > flushed:
                break
            offset = advances.popleft().offset
        if self._ahead.get(queue) is not ahead:
            return  # the group was reset meanwhile
        if not self.is_known(queue):  # the next topic of its name begins anew
            del self._ahead[queue]
            return
        if not advances:
            offset = max(offset, ahead.next_offset)
        topic, group, queue_id = queue
        # After a reset the next pop begins there, of this process or of the next.
        is_reset = self._offsets.has_reset(group, topic, queue_id)
        if not is_reset and offset > self._offsets.query(group, topic, queue_id):
            self._offsets.commit(group, topic, queue_id, offset)
        if not advances:  # not before: a pop on another thread asks for both (`of`)
            del self._ahead[queue]

    def _first(self, queue: GroupQueue, init_mode: int) -> int:
        topic, _, queue_id = queue
        least = self._store.min_offset(topic, queue_id)
        if init_mode == INIT_MIN or topic.startswith(RETRY_PREFIX):
            return max(0, least)
        if least <= 0 and self._recent.is_in_memory(topic, queue_id, 0):
            return 0
        # The last message is popped: who starts at the end sees that it works.
        return max(0, self._store.max_offset(topic, queue_id) - 1)
