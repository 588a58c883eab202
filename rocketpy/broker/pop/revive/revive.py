"""Redelivers popped messages that were not acked in time, through the group's retry topic.

The revive topic is read in order. A check point stays in memory until all acks that may belong to
it have been read: about three seconds, or longer while the timer, which delivers the acks, is
behind. Then each unacked message is stored again in the retry topic. The offset of a revive queue
advances past a check point only after its redelivered messages are on disk, so a crash may deliver
a message twice, and loses none.

Failures of one group do not stop the others:

- A retry topic that cannot store a message delays those behind it for a while only; see `PutRetry`.
- While a retry topic cannot be created (`topics.json` cannot be written), no delay level could
  deliver to it. Its check point is stored again, for half a minute later.
- The same happens to a check point whose messages cannot be read because the disk fails.
- An unexpected failure of one revive queue does not stop the other queues.

When a queue has `MAX_PENDING` check points in memory, further ones are skipped by the tag codes of
their queue entries; acks are still read. When memory is free again, reading continues at the first
skipped check point.

Source: PopReviveService.java (5.4.0).
"""

import collections
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

import structlog

from rocketpy.broker.metadata.consumer_offsets import NO_OFFSET, ConsumerOffsets
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.scheduling.delivery_time import decimal
from rocketpy.broker.pop.revive.revive_log import (
    CHECK_POINT_LEAD_MS,
    PopKey,
    ReviveLog,
    Timer,
    key_of,
)
from rocketpy.broker.system_topics.put_retry import WAIT_MS, PutRetry
from rocketpy.broker.system_topics.system_queue import SystemQueue
from rocketpy.broker.system_topics.system_writer import NEVER_STORED, SystemWriter, copy_of
from rocketpy.errors import BadBodyError, CorruptRecordError, RocketPyError, StoreError
from rocketpy.proto.bodies.pop import CheckPoint, PopAck
from rocketpy.proto.pop import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    MAX_POP_COUNT,
    REVIVE_GROUP,
    normal_topic,
)
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.properties import (
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_GROUP,
    PROPERTY_POP_CK,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DELIVER_MS,
    encode_properties,
)
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.topic_names import RETRY_PREFIX, pop_retry_topic_v1, pop_retry_topic_v2
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.runtime.clock import Clock
from rocketpy.store.interfaces import JoiningReader, LogEnd
from rocketpy.store.results import PutMessageStatus

_RETRY_QUEUES: Final = 1  # as Apache

_log = structlog.get_logger(__name__)


class RetryTopics:
    """Names and creates retry topics.

    Args:
        topics: topic table.
        offsets: committed offsets, which get an entry for a new topic.
        is_v2: whether names are of version 2.
    """

    def __init__(self, topics: TopicTable, offsets: ConsumerOffsets, *, is_v2: bool) -> None:
        self._topics = topics
        self._offsets = offsets
        self._is_v2 = is_v2

    def topic_of(self, point: CheckPoint) -> str | None:
        """Return the retry topic of a check point's messages; None if it cannot be created now."""
        topic = point.topic
        if not topic.startswith(RETRY_PREFIX):
            make = pop_retry_topic_v2 if self._is_v2 else pop_retry_topic_v1
            topic = make(topic, point.group)
        try:
            self._ensure(topic, point.group)
        except (StoreError, OSError) as error:
            _log.warning("retry topic not created", topic=topic, error=str(error))
            return None
        return topic

    def _ensure(self, topic: str, group: str) -> None:
        is_new = self._topics.get(topic) is None
        if not self._topics.is_written(topic):
            # On disk before the check point is passed: redelivered messages of a topic that is
            # lost in a crash could not be read.
            with self._topics.one_write():
                self._topics.create_on_send_back(topic, _RETRY_QUEUES)
        if is_new and self._offsets.query(group, topic, 0) == NO_OFFSET:
            self._offsets.commit(group, topic, 0, 0)


MAX_PENDING: Final = 20_000
"""Check points of one revive queue in memory, about 600 bytes each."""
MAX_EARLY_ACKS: Final = 5_000
"""Acks of one revive queue in memory that precede their check point or have none."""
_AHEAD_MS: Final = 60_000
"""A check point this far in the future was stored before the clock was set back."""
QUIET_MS: Final = 3_000
"""After this long without a message, everything due by now has been read."""
DUE_AFTER_MS: Final = CHECK_POINT_LEAD_MS + 1_000
_READS_PER_STEP: Final = 8
_POINTS_PER_STEP: Final = 64
"""Bounds of one step, so that each revive queue gets its share of the thread."""

_log = structlog.get_logger(__name__)


class ReviveStore(JoiningReader, LogEnd, Protocol):
    """Store of a revive: messages, and how much of the log is flushed and dispatched."""

    @property
    def dispatch_behind_bytes(self) -> int:
        """Size of the part of the log that is not yet in the queues."""
        ...


class _NoPoints:
    """Filter that skips check points by the tag codes of their queue entries."""

    _CODE: Final = tags_code(CHECK_POINT_TAG)
    weight: Final = 1

    def matches_tags_code(self, tags_code: int) -> bool:
        return tags_code != self._CODE

    def matches_record(self, _record: memoryview) -> bool:
        return True

    def match_records(
        self, _view: memoryview, _positions: Sequence[int], _sizes: Sequence[int]
    ) -> None:
        return None


_NO_POINTS: Final = _NoPoints()


class _Done(NamedTuple):
    """A check point that was processed when the log ended at `phy_end`.

    After a restart it must be read from `first`: an ack may precede its check point.
    """

    first: int
    revive_offset: int
    phy_end: int


class _EarlyAcks(NamedTuple):
    """Acks that were read before their check point; the first is at `revive_offset`."""

    revive_offset: int
    offsets: list[int]


class RetryTopicNames(Protocol):
    """Interface of `RetryTopics`."""

    def topic_of(self, point: CheckPoint) -> str | None:
        """Return the retry topic of a check point's messages; None if it cannot be created now."""
        ...


class ReviveOffsets(Protocol):
    """Interface of the committed offsets, which have the progress of revive queues."""

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return an offset; `NO_OFFSET` when there is none."""
        ...

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Store an offset."""
        ...


class Reviver:
    """Stores unacked messages in retry topics.

    Args:
        store: source of the messages.
        put: stores their copies.
        aside: parks copies that cannot be stored for long.
        log: stores check points again that cannot be processed for long.
        retry_topics: names and creates retry topics.
        topics: topic table; nothing is redelivered of a deleted topic.
        groups: group table; nothing is redelivered to a deleted group.
        clock: time.
    """

    def __init__(
        self,
        store: JoiningReader,
        put: SystemWriter,
        aside: PutRetry,
        log: ReviveLog,
        *,
        retry_topics: RetryTopicNames,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        clock: Clock,
    ) -> None:
        self._store = store
        self._put = put
        self._aside = aside
        self._log = log
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._retry_topics = retry_topics

    def revive(self, point: CheckPoint, revive_queue_id: int) -> bool:
        """Redeliver the unacked messages of a check point, and mark each as acked in it.

        Args:
            point: the check point.
            revive_queue_id: its revive queue.

        Returns:
            False when a message could not be stored; the caller must try again later.
        """
        if (
            self._topics.get(normal_topic(point.topic, point.group)) is None
            or self._groups.get(point.group) is None
        ):
            return True
        for queue_offset in point.offsets(acked=False):
            try:
                message = self._read(point, queue_offset)
            except (RocketPyError, OSError) as error:
                if not self._postpone(point, revive_queue_id):
                    return False
                _log.error(
                    "popped message unreadable, check point postponed",
                    topic=point.topic,
                    queue_id=point.queue_id,
                    error=str(error),
                )
                return True
            if message is not None:
                topic = self._retry_topics.topic_of(point)
                if topic is None:
                    return self._postpone(point, revive_queue_id)
                if not self._retry(point, message, topic):
                    return False
            point.note_acked((queue_offset,))
        return True

    def _postpone(self, point: CheckPoint, revive_queue_id: int) -> bool:
        """Store a check point again for later, once processing has failed for long."""
        if not self._aside.fails_long(self._clock.monotonic_ms()):
            return False
        times = decimal(point.re_put_times) or 0
        later = dataclasses.replace(
            point,
            invisible_ms=self._clock.time_ms() + WAIT_MS - point.pop_time_ms,
            re_put_times=str(times + 1),
        )
        stored = self._log.put_check_point(later, revive_queue_id)
        return stored.status is PutMessageStatus.PUT_OK

    def _read(self, point: CheckPoint, queue_offset: int) -> MessageExt | None:
        """Read a message; None when retention deleted it or it is damaged.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no file descriptor is free.
        """
        found = self._store.get_message(point.topic, point.queue_id, queue_offset, 1, 1)
        for record in found.buffers:
            try:
                message = decode_message(record, inflate=False)
            except CorruptRecordError as error:
                _log.error("damaged message not redelivered", error=str(error))
                return None
            return message if message.queue_offset == queue_offset else None
        return None

    def _retry(self, point: CheckPoint, message: MessageExt, topic: str) -> bool:
        properties = message.properties
        properties.pop(PROPERTY_POP_CK, None)
        properties[PROPERTY_ORIGIN_GROUP] = point.group
        if message.reconsume_times == 0 or PROPERTY_FIRST_POP_TIME not in properties:
            properties[PROPERTY_FIRST_POP_TIME] = str(point.pop_time_ms)
        copy = copy_of(message, topic, 0, properties)
        copy.reconsume_times = message.reconsume_times + 1
        if len(copy.properties) > MAX_PROPERTIES_BYTES:
            for name in (PROPERTY_FIRST_POP_TIME, PROPERTY_ORIGIN_GROUP):
                # Without the two additions the properties fit, as they did when sent.
                properties.pop(name, None)
            copy.properties = encode_properties(properties)
        try:
            stored = self._put.put(copy)
        except Exception:
            if self._aside.store(copy, self._clock.monotonic_ms()) is None:
                raise  # the revive queue pauses, and the message is tried again
            _log.exception("popped message parked", topic=topic)
            return True
        if stored.status in NEVER_STORED:
            _log.error(
                "popped message discarded",
                topic=topic,
                phy_offset=message.phy_offset,
                status=stored.status.value,
            )
            return True
        if stored.status is PutMessageStatus.PUT_OK:
            return True
        return self._aside.store(copy, self._clock.monotonic_ms()) is not None


class ReviveQueue:
    """Reads one queue of the revive topic.

    Args:
        queue: the queue.
        store: how much of the log is flushed and dispatched.
        reviver: redelivers messages.
        offsets: committed offsets.
        timer: how far the timer has delivered.
        clock: time.
        max_pending: maximal number of check points in memory.
    """

    def __init__(
        self,
        queue: SystemQueue,
        store: ReviveStore,
        reviver: Reviver,
        *,
        offsets: ReviveOffsets,
        timer: Timer,
        clock: Clock,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self._queue = queue
        self._store = store
        self._reviver = reviver
        self._offsets = offsets
        self._timer = timer
        self._clock = clock
        self._max_pending = max_pending
        self._points: dict[PopKey, CheckPoint] = {}
        self._early: dict[PopKey, _EarlyAcks] = {}
        # First ack of check points in memory whose acks precede them.
        self._acked_from: dict[PopKey, int] = {}
        self._done: collections.deque[_Done] = collections.deque()
        self._last_done = NO_OFFSET
        self._is_held_up = False
        self._read_offset = -1
        self._skipped_from: int | None = None
        self._end_ms = 0
        self._complete_ms = 0
        self._sample: tuple[int, int] | None = None

    @property
    def pending(self) -> int:
        """Number of check points in memory."""
        return len(self._points)

    @property
    def pending_points(self) -> list[CheckPoint]:
        """Check points in memory."""
        return list(self._points.values())

    @property
    def next_offset(self) -> int:
        """First offset that must be read (again); negative before the first read."""
        return self._read_offset if self._skipped_from is None else self._skipped_from

    @property
    def queue_id(self) -> int:
        """Queue id within the revive topic."""
        return self._queue.queue_id

    def step(self) -> bool:
        """Read the next messages and redeliver due ones; return whether there is more to do now."""
        self._commit()
        # Messages that the timer has delivered can be read once they are dispatched to the queues.
        # The sample is therefore kept until dispatching has reached the end of the log it saw.
        store = self._store
        delivered_ms, end = self._sample or (
            self._timer.delivered_before_ms(),
            store.max_phy_offset,
        )
        is_visible = store.max_phy_offset - store.dispatch_behind_bytes >= end
        has_read = self._scan()
        if is_visible and not has_read:  # all acks that were due before this time have been read
            self._complete_ms = delivered_ms
        self._sample = None if is_visible else (delivered_ms, end)
        return self._revive_due() or has_read

    def _scan(self) -> bool:
        if self._read_offset < 0:
            committed = self._offsets.query(REVIVE_GROUP, self._queue.topic, self._queue.queue_id)
            # The committed offset is that of the last processed check point, as in Apache. A power
            # cut, or a replaced store, may have made the queue shorter.
            after = committed + 1 if committed != NO_OFFSET else 0
            self._read_offset = min(after, self._queue.max_offset)
        if self._skipped_from is not None and not self._points:
            self._read_offset, self._skipped_from = self._skipped_from, None
            # Their acks are read again, so the times up to which acks are complete restart too.
            self._end_ms = self._complete_ms = 0
        for _ in range(_READS_PER_STEP):
            if self._read_offset >= self._queue.max_offset:
                self._reached_end()
                return False
            wanted = None if self._skipped_from is None else _NO_POINTS
            found = self._queue.read(self._read_offset, wanted=wanted)
            for message in found.messages:
                self._take(message)
            if found.next_offset <= self._read_offset:
                return False
            self._read_offset = found.next_offset
        return True

    def _reached_end(self) -> None:
        """Conclude from the end of the queue that everything due by now has been read."""
        now_ms = self._clock.time_ms()
        if self._end_ms and now_ms - self._end_ms > QUIET_MS:
            self._end_ms = now_ms

    def _take(self, message: MessageExt) -> None:
        tag = message.properties.get(PROPERTY_TAGS)
        try:
            if tag == CHECK_POINT_TAG:
                self._take_point(CheckPoint.decode(message.body), message)
            elif tag in {ACK_TAG, BATCH_ACK_TAG}:
                self._take_ack(PopAck.decode(message.body), message.queue_offset)
        except BadBodyError as error:
            _log.error("check point or ack unreadable", error=str(error))
        deliver_ms = message.properties.get(PROPERTY_TIMER_DELIVER_MS, "")
        if deliver_ms.isdecimal():
            self._end_ms = max(self._end_ms, int(deliver_ms))

    def _take_point(self, point: CheckPoint, message: MessageExt) -> None:
        if not point.topic or not point.group:
            return
        if len(self._points) >= self._max_pending:
            if self._skipped_from is None:
                self._skipped_from = message.queue_offset
            return
        if self._skipped_from is not None:
            return  # read again together with the skipped ones before it
        point.revive_offset = message.queue_offset
        key = key_of(point)
        known = self._points.get(key)
        if known is not None:
            # Two check points of one key: a message whose invisible time was changed in the same
            # millisecond in which a pop started with it, as after a kill.
            known.include(point)
            # Or the timer delivered it twice, as after a kill. The offset must not advance past
            # those in between, so the newest check point takes the position of the duplicate: both
            # are passed together, and the duplicate is not redelivered after another kill.
            next(reversed(self._points.values())).revive_offset = message.queue_offset
            return
        self._points[key] = point
        early = self._early.pop(key, None)
        if early is not None:
            point.note_acked(early.offsets)
            self._acked_from[key] = early.revive_offset

    def _take_ack(self, ack: PopAck, revive_offset: int) -> None:
        key = key_of(ack)
        offsets = [ack.offset] if ack.offsets is None else ack.offsets
        point = self._points.get(key)
        if point is not None:
            point.note_acked(offsets)
            return
        # A late timer may deliver an ack before its check point.
        before = self._early.pop(key, _EarlyAcks(revive_offset, []))
        all_of_them = [*before.offsets, *offsets][-MAX_POP_COUNT:]
        self._early[key] = _EarlyAcks(before.revive_offset, all_of_them)
        if len(self._early) > MAX_EARLY_ACKS:
            # The oldest one is dropped. Its message may be redelivered although it is acked.
            del self._early[next(iter(self._early))]

    def _revive_due(self) -> bool:
        """Process due check points in queue order; whether more are due."""
        # The time of a message that is early (not one of the timer) must not make others due.
        now_ms = self._clock.time_ms()
        end_ms = min(self._end_ms, now_ms)
        due: list[PopKey] = []
        for key, point in self._points.items():
            over_ms = point.pop_time_ms + point.invisible_ms
            if over_ms > now_ms + _AHEAD_MS:
                continue  # its acks are as far in the future; the following ones need not wait
            if end_ms - over_ms <= DUE_AFTER_MS or over_ms >= self._complete_ms:
                break
            due.append(key)
            if len(due) > _POINTS_PER_STEP:
                break
        for key in due[:_POINTS_PER_STEP]:
            point = self._points[key]
            if not self._reviver.revive(point, self._queue.queue_id):
                return False
            del self._points[key]
            # Copies that were redelivered are in the log by now, even if a put failed in between.
            # So is the check point's own entry in the queue; if a power cut removes that entry,
            # its offset belongs to another message after the restart.
            first = min(self._acked_from.pop(key, point.revive_offset), point.revive_offset)
            self._done.append(_Done(first, point.revive_offset, self._store.max_phy_offset))
        return len(due) > _POINTS_PER_STEP

    def _commit(self) -> None:
        """Commit the last offset up to which all redelivered messages are on disk."""
        flushed = self._store.kept_phy_offset
        before, offset = self._last_done, self._last_done
        while self._done and self._done[0].phy_end <= flushed:
            offset = max(offset, self._done.popleft().revive_offset)
        self._last_done = offset
        if offset == before and not self._is_held_up:
            return
        waiting = [each.first for each in self._done]
        waiting += self._acked_from.values()  # without their acks they would be redelivered
        waiting += [each.revive_offset for each in itertools.islice(self._points.values(), 1)]
        self._is_held_up = any(each < offset for each in waiting)
        if not self._is_held_up:
            topic, queue_id = self._queue.topic, self._queue.queue_id
            self._offsets.commit(REVIVE_GROUP, topic, queue_id, offset)


class ReviveService:
    """Background service that steps all revive queues.

    Args:
        make_queues: creates the queues; called once the topic table is loaded.
        interval_ms: interval of the steps while there is nothing to do.
    """

    name = "PopRevive"

    def __init__(self, make_queues: Callable[[], list[ReviveQueue]], interval_ms: int) -> None:
        self._make_queues = make_queues
        self._queues: list[ReviveQueue] = []
        self._interval_ms = interval_ms

    @property
    def pending(self) -> int:
        """Number of check points in memory."""
        return sum(queue.pending for queue in self._queues)

    def step(self, now_ms: int) -> int:
        """Do a bounded amount of work per queue; see `rocketpy.runtime.service.Service.step`."""
        if not self._queues:
            self._queues = self._make_queues()
        has_more = [self._step(queue) for queue in self._queues]
        return now_ms if any(has_more) else now_ms + self._interval_ms

    def _step(self, queue: ReviveQueue) -> bool:
        try:
            return queue.step()
        except Exception:  # noqa: BLE001 - one queue must not hold up the others
            _log.exception("revive failed", queue_id=queue.queue_id)
            return False
