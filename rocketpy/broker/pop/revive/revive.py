"""Gives back what was popped and not acked in time: to the group's retry topic.

The revive topic is read in order. A check point waits in memory until everything has been read
that may ack its messages, about three seconds, and longer while the timer, which brings the acks,
is behind; then each message that is not acked is stored again in the retry topic. The offset of a
queue passes a check point only when what it gave back is on disk: after a crash a message may come
back twice, and none stays away.

A retry topic that takes nothing for long holds up those behind it for a while only: see `PutRetry`.
While one cannot be made (`topics.json` cannot be written), no delay level could deliver to it: the
check point is stored anew, for half a minute later. So is one whose messages cannot be read because
the disk fails. Whatever else is the matter with one revive queue, the others go on.

While a queue has `MAX_PENDING` check points in memory, further ones are passed over, by the tags in
their queue entries alone; acks are still looked for, and when there is room again reading goes on
at the first that was passed over.

Source: PopReviveService.java (5.4.0).

Where popped messages go that come back: a group's retry topic, made when it is needed.

Source: PopReviveService.reviveRetry, addRetryTopicIfNotExist (5.4.0).
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
from rocketpy.broker.operation.pull.pull import MessageReader
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
from rocketpy.store.results import PutMessageStatus

_RETRY_QUEUES: Final = 1

_log = structlog.get_logger(__name__)


class RetryTopics:
    """Names and makes retry topics.

    Args:
        topics: where they are made.
        offsets: where a group begins in a new one.
        is_v2: which kind is used.
    """

    def __init__(self, topics: TopicTable, offsets: ConsumerOffsets, *, is_v2: bool) -> None:
        self._topics = topics
        self._offsets = offsets
        self._is_v2 = is_v2

    def topic_of(self, point: CheckPoint) -> str | None:
        """Return the retry topic of a check point's messages; None when it cannot be made now."""
        topic = point.topic
        if not topic.startswith(RETRY_PREFIX):
            make = pop_retry_topic_v2 if self._is_v2 else pop_retry_topic_v1
            topic = make(topic, point.group)
        try:
            self._ensure(topic, point.group)
        except (StoreError, OSError) as error:
            _log.warning("no retry topic for popped messages", topic=topic, error=str(error))
            return None
        return topic

    def _ensure(self, topic: str, group: str) -> None:
        is_new = self._topics.get(topic) is None
        if not self._topics.is_written(topic):
            with self._topics.one_write():  # a check point that is passed counts on it
                self._topics.create_on_send_back(topic, _RETRY_QUEUES)
        if is_new and self._offsets.query(group, topic, 0) == NO_OFFSET:
            self._offsets.commit(group, topic, 0, 0)


MAX_PENDING: Final = 20_000
"""Check points of one revive queue in memory, some 600 bytes each."""
MAX_EARLY_ACKS: Final = 5_000
"""Acks of one revive queue that lie before their check point, or belong to none."""
_AHEAD_MS: Final = 60_000
"""A check point that comes so long before its time came before the clock was set back."""
QUIET_MS: Final = 3_000
"""Without a message for so long, everything up to now has been read."""
DUE_AFTER_MS: Final = CHECK_POINT_LEAD_MS + 1_000
_READS_PER_STEP: Final = 8
_POINTS_PER_STEP: Final = 64

_log = structlog.get_logger(__name__)


class ReviveStore(MessageReader, Protocol):
    """What reviving needs of the store."""

    @property
    def flushed_phy_offset(self) -> int:
        """End of what is on disk."""
        ...

    @property
    def max_phy_offset(self) -> int:
        """End of the log."""
        ...

    @property
    def dispatch_behind_bytes(self) -> int:
        """How much of it no queue knows yet."""
        ...


class _NoPoints:
    """Leaves check points out."""

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
    """A check point whose messages were given back; the log ended at `phy_end` then.

    It is read from `first` on: an ack may lie before its check point.
    """

    first: int
    revive_offset: int
    phy_end: int


class _EarlyAcks(NamedTuple):
    """Acks whose check point was not read yet; the first lies at `revive_offset`."""

    revive_offset: int
    offsets: list[int]


class Reviver:
    """Stores messages in retry topics.

    Args:
        store: where the messages lie.
        put: stores them again.
        aside: takes what cannot be stored for long.
        log: takes check points whose retry topic cannot be made for long.
        retry_topics: where they go.
        topics: topics that are gone give nothing back.
        groups: groups that are gone get nothing back.
        clock: time.
    """

    def __init__(
        self,
        store: MessageReader,
        put: SystemWriter,
        aside: PutRetry,
        log: ReviveLog,
        *,
        retry_topics: RetryTopics,
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
        """Give back the messages of a check point that are not acked; it notes each of them.

        Args:
            point: the check point.
            revive_queue_id: where it lies.

        Returns:
            False when one could not be stored: try again later.
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
                if not self._put_off(point, revive_queue_id):
                    return False
                _log.error(
                    "a popped message cannot be read, its check point is stored anew",
                    topic=point.topic,
                    queue_id=point.queue_id,
                    error=str(error),
                )
                return True
            if message is not None:
                topic = self._retry_topics.topic_of(point)
                if topic is None:
                    return self._put_off(point, revive_queue_id)
                if not self._retry(point, message, topic):
                    return False
            point.note_acked((queue_offset,))
        return True

    def _put_off(self, point: CheckPoint, revive_queue_id: int) -> bool:
        """Store a check point anew when it could not be dealt with for long."""
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
        """The message; None when retention deleted it, or it is damaged.

        Raises:
            OSError: the disk failed.
            ResourceShortError: no descriptor.
        """
        found = self._store.get_message(point.topic, point.queue_id, queue_offset, 1, 1)
        for record in found.buffers:
            try:
                message = decode_message(record, inflate=False)
            except CorruptRecordError as error:
                _log.error("a damaged message is not popped again", error=str(error))
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
                properties.pop(name, None)  # as long as they were when it was sent
            copy.properties = encode_properties(properties)
        try:
            stored = self._put.put(copy)
        except Exception:
            if self._aside.store(copy, self._clock.monotonic_ms()) is None:
                raise  # its revive queue waits, and then it is tried again
            _log.exception("a popped message cannot be stored", topic=topic)
            return True
        if stored.status in NEVER_STORED:
            _log.error(
                "a popped message cannot come back",
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
        store: how much of the log is on disk.
        reviver: gives messages back.
        offsets: where the queue's offset is committed.
        timer: tells how far it is.
        clock: time.
        max_pending: check points in memory.
    """

    def __init__(
        self,
        queue: SystemQueue,
        store: ReviveStore,
        reviver: Reviver,
        *,
        offsets: ConsumerOffsets,
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
        # Where the first ack lies of check points in memory that have one before them.
        self._acked_from: dict[PopKey, int] = {}
        self._done: collections.deque[_Done] = collections.deque()
        self._last_done = NO_OFFSET
        self._is_held_up = False
        self._read_offset = -1
        self._passed_over: int | None = None
        self._end_ms = 0
        self._complete_ms = 0
        self._sample: tuple[int, int] | None = None

    @property
    def pending(self) -> int:
        """Check points in memory."""
        return len(self._points)

    @property
    def queue_id(self) -> int:
        """Which of the revive topic's queues it is."""
        return self._queue.queue_id

    def step(self) -> bool:
        """Read on and give back what is due; whether there is more to do at once."""
        self._commit()
        # What the timer has delivered can be read when the queues know of it.
        store = self._store
        delivered_ms, end = self._sample or (
            self._timer.delivered_before_ms(),
            store.max_phy_offset,
        )
        is_visible = store.max_phy_offset - store.dispatch_behind_bytes >= end
        has_read = self._scan()
        if is_visible and not has_read:  # acks that are due before this have been read
            self._complete_ms = delivered_ms
        self._sample = None if is_visible else (delivered_ms, end)
        return self._revive_due() or has_read

    def _scan(self) -> bool:
        if self._read_offset < 0:
            committed = self._offsets.query(REVIVE_GROUP, self._queue.topic, self._queue.queue_id)
            # What is committed is the last check point that was dealt with, as Apache has it.
            # A power cut, or another store, may have made the queue shorter.
            after = committed + 1 if committed != NO_OFFSET else 0
            self._read_offset = min(after, self._queue.max_offset)
        if self._passed_over is not None and not self._points:
            self._read_offset, self._passed_over = self._passed_over, None
            self._end_ms = self._complete_ms = 0  # what acks them is read again, too
        for _ in range(_READS_PER_STEP):
            if self._read_offset >= self._queue.max_offset:
                self._reached_end()
                return False
            wanted = None if self._passed_over is None else _NO_POINTS
            found = self._queue.read(self._read_offset, wanted=wanted)
            for message in found.messages:
                self._take(message)
            if found.next_offset <= self._read_offset:
                return False
            self._read_offset = found.next_offset
        return True

    def _reached_end(self) -> None:
        """Nothing is left to read: what was due by now has come."""
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
            _log.error("a check point or ack cannot be read", error=str(error))
        deliver_ms = message.properties.get(PROPERTY_TIMER_DELIVER_MS, "")
        if deliver_ms.isdecimal():
            self._end_ms = max(self._end_ms, int(deliver_ms))

    def _take_point(self, point: CheckPoint, message: MessageExt) -> None:
        if not point.topic or not point.group:
            return
        if len(self._points) >= self._max_pending:
            if self._passed_over is None:
                self._passed_over = message.queue_offset
            return
        if self._passed_over is not None:
            return  # it is read again with those before it
        point.revive_offset = message.queue_offset
        key = key_of(point)
        known = self._points.get(key)
        if known is not None:
            # A message that is held once more in the very millisecond in which a pop began with it,
            # as after a kill, has the name of that pop.
            known.include(point)
            # Over a kill the timer delivers twice. Those in between must not be passed; with the
            # last of them this one is dealt with, too, and is not given back after another kill.
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
        # A late timer delivers an ack at once whose check point it has not come to yet.
        before = self._early.pop(key, _EarlyAcks(revive_offset, []))
        all_of_them = [*before.offsets, *offsets][-MAX_POP_COUNT:]
        self._early[key] = _EarlyAcks(before.revive_offset, all_of_them)
        if len(self._early) > MAX_EARLY_ACKS:
            del self._early[next(iter(self._early))]

    def _revive_due(self) -> bool:
        """Deal with check points in the order in which they lie; whether more are due."""
        # Early messages (there are none from the timer) must not make others due.
        now_ms = self._clock.time_ms()
        end_ms = min(self._end_ms, now_ms)
        due: list[PopKey] = []
        for key, point in self._points.items():
            over_ms = point.pop_time_ms + point.invisible_ms
            if over_ms > now_ms + _AHEAD_MS:
                continue  # its acks wait for the same time; those behind it do not wait for it
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
            # What was given back is in the log by now, whatever failed in between, and so is its
            # own place in the queue: one that a power cut takes is another one's next time.
            first = min(self._acked_from.pop(key, point.revive_offset), point.revive_offset)
            self._done.append(_Done(first, point.revive_offset, self._store.max_phy_offset))
        return len(due) > _POINTS_PER_STEP

    def _commit(self) -> None:
        """Commit the last offset whose messages are on disk, and those of all before it."""
        flushed = self._store.flushed_phy_offset
        before, offset = self._last_done, self._last_done
        while self._done and self._done[0].phy_end <= flushed:
            offset = max(offset, self._done.popleft().revive_offset)
        self._last_done = offset
        if offset == before and not self._is_held_up:
            return
        waiting = [each.first for each in self._done]
        waiting += self._acked_from.values()  # without its acks it would be given back
        waiting += [each.revive_offset for each in itertools.islice(self._points.values(), 1)]
        self._is_held_up = any(each < offset for each in waiting)
        if not self._is_held_up:
            topic, queue_id = self._queue.topic, self._queue.queue_id
            self._offsets.commit(REVIVE_GROUP, topic, queue_id, offset)


class ReviveService:
    """Steps all revive queues.

    Args:
        make_queues: makes the queues, once the broker knows its topics.
        interval_ms: how often it looks when there is nothing to do.
    """

    name = "PopRevive"

    def __init__(self, make_queues: Callable[[], list[ReviveQueue]], interval_ms: int) -> None:
        self._make_queues = make_queues
        self._queues: list[ReviveQueue] = []
        self._interval_ms = interval_ms

    @property
    def pending(self) -> int:
        """Check points in memory."""
        return sum(queue.pending for queue in self._queues)

    def step(self, now_ms: int) -> int:
        """A bounded piece of work for each queue; see `rocketpy.runtime.service.Service.step`."""
        if not self._queues:
            self._queues = self._make_queues()
        has_more = [self._step(queue) for queue in self._queues]
        return now_ms if any(has_more) else now_ms + self._interval_ms

    def _step(self, queue: ReviveQueue) -> bool:
        try:
            return queue.step()
        except Exception:  # noqa: BLE001 - one queue must not hold up the others
            _log.exception("a revive queue fails, it is tried again", queue_id=queue.queue_id)
            return False
