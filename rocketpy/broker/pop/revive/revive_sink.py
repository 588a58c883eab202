"""Check points and acks that a slave keeps in memory while it acts as master.

Its timer delivers them here, and consumers ack here, because an acting master stores nothing. Each
revive queue of the log continues in memory, so that they are processed as at a master. Entries
that are not processed when the slave ceases to act are in the master's timer:
`ReviveSink.unrevived_ms` is the time from which on the master delivers them again.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from rocketpy.broker.operation.scheduling.delivery_time import decimal
from rocketpy.broker.system_topics.system_queue import SystemQueue, SystemRead
from rocketpy.proto.bodies.pop import CheckPoint
from rocketpy.proto.pop import CHECK_POINT_TAG
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import (
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    parse_properties,
)
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.interfaces import QueueReader
from rocketpy.store.results import MessageFilter, PutMessage, PutMessageResult, PutMessageStatus

MAX_ENTRIES: Final = 50_000
"""Check points and acks of one queue that are not read yet; the timer waits while it is full."""
_NEVER_MS: Final = (1 << 63) - 1
_LEAD_MS: Final = 1_000
"""`CHECK_POINT_LEAD_MS`: the timer delivers a check point so long before its messages are due."""
_OK: Final = PutMessageResult(PutMessageStatus.PUT_OK)
_REFUSED: Final = PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE)


class _Entry(NamedTuple):
    """Check point or ack, and when the timer delivered it; `_NEVER_MS`: it came from a client."""

    message: MessageExt
    deliver_ms: int


class JoinedQueue(SystemQueue):
    """Revive queue of the log that continues in memory; safe from any thread.

    Args:
        store: the message store.
        topic: the revive topic.
        queue_id: queue within the topic.
    """

    def __init__(self, store: QueueReader, topic: str, queue_id: int) -> None:
        super().__init__(store, topic, queue_id)
        self._lock = threading.Lock()
        self._entries: deque[_Entry] = deque()
        self._start = self._first = max(0, store.max_offset(topic, queue_id))
        self._pending_ms = _NEVER_MS

    @property
    def start(self) -> int:
        """Queue offset of the first entry in memory, and the end of the queue in the log."""
        return self._start

    @property
    def max_offset(self) -> int:
        """Queue offset after the last entry."""
        with self._lock:
            return self._first + len(self._entries)

    @property
    def unrevived_ms(self) -> int:
        """Time before which the timer has delivered nothing that is not processed."""
        with self._lock:
            unread_ms = min((each.deliver_ms for each in self._entries), default=_NEVER_MS)
            return min(unread_ms - 1, self._pending_ms)

    def append(self, message: PutMessage, deliver_ms: int = _NEVER_MS) -> bool:
        """Add an entry; False when the memory is full."""
        with self._lock:
            if len(self._entries) >= MAX_ENTRIES:
                return False
            stored = MessageExt(
                topic=self.topic,
                queue_id=self.queue_id,
                queue_offset=self._first + len(self._entries),
                body=bytes(message.body),
                properties=parse_properties(message.properties),
            )
            self._entries.append(_Entry(stored, deliver_ms))
            return True

    def read(
        self,
        offset: int,
        max_count: int = 32,
        max_bytes: int = 1 << 20,
        wanted: MessageFilter | None = None,
    ) -> SystemRead:
        """Read entries from an offset on; see `SystemQueue.read`."""
        if offset < self._start:
            found = super().read(offset, max_count, max_bytes, wanted)
            # The log of a master that is only out of reach may grow: it revives that itself.
            messages = [each for each in found.messages if each.queue_offset < self._start]
            return SystemRead(messages, min(found.next_offset, self._start))
        with self._lock:
            index = offset - self._first
            entries = [self._entries[each].message for each in range(index, self._end(index))]
        if wanted is None:
            return SystemRead(entries, offset + len(entries))
        chosen = [each for each in entries if wanted.matches_tags_code(_code_of(each))]
        return SystemRead(chosen, offset + len(entries))

    def _end(self, index: int) -> int:
        return min(len(self._entries), index + 32)

    def settle(self, next_offset: int, pending: list[CheckPoint]) -> None:
        """Drop the entries that were read.

        Args:
            next_offset: first entry that must be read (again).
            pending: check points that are not processed.
        """
        over_ms = min((each.pop_time_ms + each.invisible_ms for each in pending), default=_NEVER_MS)
        with self._lock:
            while self._entries and self._first < next_offset:
                self._entries.popleft()
                self._first += 1
            self._pending_ms = over_ms - _LEAD_MS - 1


def _code_of(message: MessageExt) -> int:
    return tags_code(message.properties.get(PROPERTY_TAGS, ""))


class ReviveSink:
    """Entries of all revive queues, and the timer that `ReviveLog` uses at a slave.

    Safe from any thread.

    Args:
        topic: the revive topic.
        accepts: returns whether the slave acts, and takes acks.

    Attributes:
        make_queues: creates the queues; set by the feature that reads them.
        queues: the queues of the current, or of the last time as acting master.
    """

    def __init__(self, topic: str, accepts: Callable[[], bool]) -> None:
        self.topic = topic
        self._accepts = accepts
        self._delivered_before_ms: Callable[[], int] = lambda: 0
        self.make_queues: Callable[[], list[JoinedQueue]] = list
        self.queues: list[JoinedQueue] = []

    def begin(self, delivered_before_ms: Callable[[], int]) -> None:
        """Start with the entries of the log, when the slave begins to act.

        Args:
            delivered_before_ms: see `TimerService.delivered_before_ms`.
        """
        self._delivered_before_ms = delivered_before_ms
        self.queues = self.make_queues()

    @property
    def unrevived_ms(self) -> int:
        """Time until which the timer has delivered nothing that is not processed; very large: all.

        Messages are processed in the order of their times, so what the timer has delivered until
        then need not be delivered again.
        """
        return min((each.unrevived_ms for each in self.queues), default=_NEVER_MS)

    def take(self, message: PutMessage) -> bool:
        """Take a check point or ack from the timer; False when the timer must wait."""
        queue = self._queue(message)
        if queue is None:
            return False
        properties = parse_properties(message.properties)
        # Without a time, which only a forged record lacks, the master delivers it again.
        return queue.append(message, decimal(properties.get(PROPERTY_TIMER_DELIVER_MS)) or 0)

    def put_at(
        self,
        message: PutMessage,
        properties: dict[str, str],
        deliver_ms: int,  # noqa: ARG002 - it is read from memory at once
    ) -> PutMessageResult:
        """Take an ack of a consumer while the slave acts; a check point is refused.

        See `rocketpy.broker.pop.revive.revive_log.Timer`.
        """
        queue = self._queue(message)
        if queue is None or properties.get(PROPERTY_TAGS) == CHECK_POINT_TAG:
            return _REFUSED
        return _OK if self._accepts() and queue.append(message) else _REFUSED

    def delivered_before_ms(self) -> int:
        """Return the wall time up to which all due check points and acks are here."""
        return self._delivered_before_ms()

    def _queue(self, message: PutMessage) -> JoinedQueue | None:
        return next((each for each in self.queues if each.queue_id == message.queue_id), None)
