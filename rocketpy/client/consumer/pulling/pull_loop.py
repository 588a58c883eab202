"""Pull loop of one queue: limits, long polling, decoding, and back-off after empty responses.

Source: DefaultMQPushConsumerImpl.pullMessage, PullAPIWrapper.processPullResult (5.4.0).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter, ge
from typing import Final, NamedTuple

from rocketpy.client.cluster.broker_api import PullResult, PullStatus
from rocketpy.client.cluster.instance import Instance
from rocketpy.client.cluster.replica_choice import ReplicaChoice
from rocketpy.client.cluster.route_table import MASTER_ID
from rocketpy.client.consumer.pulling.process_queue import ProcessQueue
from rocketpy.client.messages.compiled_decoder import decode_compiled
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import Serializer
from rocketpy.errors import (
    BadBodyError,
    BrokerError,
    ClientError,
    CorruptRecordError,
    InvalidParameterError,
    NoRouteError,
    RocketPyError,
    SubscriptionGroupNotExistError,
    TopicNotExistError,
)
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketpy.proto.subscription import SubscriptionData
from rocketpy.proto.topic_names import LMQ_PREFIX
from rocketpy.proto.wire.codes import ResponseCode

SHORTEST_PAUSE_MS: Final = 20


class EmptyPollBackoff:
    """Back-off after long polls that a broker answers early and empty.

    A broker that holds a poll for its whole time is polled again at once. Without the back-off,
    one that does not hold polls would be polled in a busy loop.

    Args:
        held_ms: time for which the broker was asked to hold a poll.
        longest_ms: upper bound of the pause.
    """

    __slots__ = ("_count", "_longest_ms")

    def __init__(self, held_ms: int, longest_ms: int) -> None:
        self._count = 0
        self._longest_ms = max(SHORTEST_PAUSE_MS, min(held_ms, longest_ms))

    def pause_ms(self, *, was_empty: bool, spent_ms: int) -> int:
        """Return the pause before the next poll.

        Args:
            was_empty: whether the response had no messages.
            spent_ms: duration of the poll.
        """
        if not was_empty:
            self._count = 0
            return 0
        # The shift is bounded, because the count grows for as long as responses are empty.
        pause_ms = min(SHORTEST_PAUSE_MS << min(self._count, 16), self._longest_ms)
        self._count += 1
        return max(0, pause_ms - spent_ms)


logger: logging.Logger = logging.getLogger(__name__)

# As in Apache's clients (PULL_TIME_DELAY_MILLS_WHEN_BROKER_FLOW_CONTROL).
FLOW_CONTROL_PAUSE_MS = 20
MOST_BODY_BYTES: Final = 16 * 1024 * 1024
"""Inflated size after which decoding stops; the rest is pulled again. Bounds the memory of one
response, whose bodies may inflate to a thousand times their size."""
_OFFSET_OF: Final[Callable[[ReceivedMessage], int]] = attrgetter("offset")
# The broker has lost a subscription or has an old one: a heartbeat brings it.
_FORGOTTEN = frozenset(
    {
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullSettings:
    """Settings that all pulls of one consumer share.

    Attributes:
        post_subscription: whether pulls carry the filter, because the heartbeat does not.
        commit_offset: whether pulls carry the offset to commit.
        serializer: reads bodies in `message.decode()`.
    """

    group: str
    batch: int = 32
    batch_bytes: int = 256 * 1024
    interval_ms: int = 0
    suspend_ms: int = 15_000
    timeout_ms: int = 30_000
    error_pause_ms: int = 1_000
    post_subscription: bool = False
    commit_offset: bool = True
    serializer: Serializer | None = None


class Pulled(NamedTuple):
    """Messages of a response body.

    Attributes:
        messages: the readable ones, in order.
        bad: those whose body cannot be inflated, with the reason; their body is as stored.
        is_whole: whether the whole body was decoded; see `MOST_BODY_BYTES`.
    """

    messages: list[MessageExt]
    bad: list[tuple[MessageExt, Exception]]
    is_whole: bool


def decode_pulled(body: bytes) -> Pulled:
    """Decode the body of a response to a pull or a pop, up to `MOST_BODY_BYTES` inflated.

    Raises:
        CorruptRecordError: a record is malformed or cut.
    """
    good: list[MessageExt] = []
    bad: list[tuple[MessageExt, Exception]] = []
    position, size_bytes = 0, 0
    while position < len(body) and size_bytes < MOST_BODY_BYTES:
        try:
            message = decode_message(body, position)
        except CorruptRecordError as error:
            # A body that cannot be inflated must not stop the queue. A record that is malformed
            # raises here again.
            message = decode_message(body, position, inflate=False)
            bad.append((message, error))
        else:
            good.append(message)
        size_bytes += len(message.body)
        position += message.store_size_bytes
    return Pulled(good, bad, position == len(body))


def check_topic(wanted: str, topic: str) -> None:
    """Check that a message is of the queue's topic; a faulty broker may mix up responses.

    Args:
        wanted: topic of the queue; a light queue has messages of any topic.
        topic: topic of the message.

    Raises:
        BadBodyError: the topics differ.
    """
    if topic != wanted and not wanted.startswith(LMQ_PREFIX):
        raise BadBodyError(f"a pull of topic {wanted} returned a message of topic {topic[:255]}")


def check_offsets(offsets: list[int], begin: int, end: int) -> None:
    """Check the offsets of a response: messages would be repeated or skipped otherwise.

    Args:
        offsets: of the messages, in their order.
        begin: the offset that was asked for; none may be smaller.
        end: the offset of the next pull; all must be smaller.

    Raises:
        BadBodyError: the offsets do not ascend, or leave the range, or there are none.
    """
    if not offsets:
        raise BadBodyError(f"a pull from offset {begin} found messages, but returned none")
    first, last = offsets[0], offsets[-1]
    if first >= begin and last < end:
        is_dense = last - first == len(offsets) - 1 and offsets == list(range(first, last + 1))
        if is_dense or not any(map(ge, offsets, islice(offsets, 1, None))):
            return
    raise BadBodyError(
        f"a pull from offset {begin} returned {len(offsets)} messages whose offsets do not ascend "
        f"below {end}, the first at {first}, the last at {last}"
    )


class PullLoop:
    """Loop that pulls one queue until it is dropped.

    Args:
        instance: connections and routes.
        queue: receives the messages, and has the limits.
        subscription: returns the present subscription; called for each pull.
        settings: shared by all queues of a consumer.
        deliver: called with messages that were put into the process queue.
        reject: called with a message whose body cannot be inflated.
        offset_moved: called with the right offset when ours is outside the queue.
        on_failure: called with each failure, and with None after the next success.
    """

    def __init__(
        self,
        instance: Instance,
        queue: ProcessQueue,
        subscription: Callable[[], SubscriptionData],
        settings: PullSettings,
        *,
        deliver: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        reject: Callable[[ProcessQueue, ReceivedMessage, Exception], Awaitable[None]],
        offset_moved: Callable[[ProcessQueue, int], Awaitable[None]],
        on_failure: Callable[[ProcessQueue, Exception | None], None],
    ) -> None:
        self._instance = instance
        self._queue = queue
        self._subscription = subscription
        self._settings = settings
        self._deliver = deliver
        self._reject = reject
        self._offset_moved = offset_moved
        self._on_failure = on_failure
        self._namespace = instance.config.namespace
        self._decode_compiled = decode_compiled(
            queue.queue, serializer=settings.serializer, settlement=queue, namespace=self._namespace
        )
        name, routes = queue.queue.broker_name, instance.routes
        self._choice = ReplicaChoice(lambda: routes.replicas(name), instance.clock)
        self._broker_id = MASTER_ID  # of the replica that was asked last
        self._failing = False
        self._was_missing = False
        self._newest_ms = 0  # store time of the newest message so far, by the broker's clock
        self._empty_polls = EmptyPollBackoff(settings.suspend_ms, settings.error_pause_ms)

    def _header(
        self, subscription: SubscriptionData, commit_offset: int
    ) -> PullMessageRequestHeader:
        settings, entry = self._settings, self._queue
        # After a failure the broker must answer at once, so that the end of it is noticed soon.
        flag = 0 if self._failing else PULL_SUSPEND
        expression = None
        if settings.post_subscription:
            flag |= PULL_SUBSCRIPTION
            expression = subscription.sub_string
        # Apache's clients clear the flag for a slave, too: the master has the group's offsets.
        if settings.commit_offset and commit_offset and self._broker_id == MASTER_ID:
            flag |= PULL_COMMIT_OFFSET
        else:
            commit_offset = 0
        return PullMessageRequestHeader(
            consumer_group=settings.group,
            topic=entry.queue.topic,
            queue_id=entry.queue.queue_id,
            queue_offset=entry.next_pull_offset,
            max_msg_nums=settings.batch,
            sys_flag=flag,
            commit_offset=commit_offset,
            suspend_timeout_millis=settings.suspend_ms,
            subscription=expression,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            max_msg_bytes=settings.batch_bytes,
            bname=entry.queue.broker_name,
        )

    async def run(self) -> None:
        """Pull from `queue.next_pull_offset` on, until the queue is dropped."""
        queue = self._queue
        while not queue.dropped:
            if queue.paused or queue.is_full() is not None:
                await queue.wait_for_space()
                continue
            pause_ms = 0
            try:
                commit_offset = queue.commit_offset or 0
                subscription = self._subscription()
                result = await self._pull(subscription, commit_offset)
                if self._queue.dropped:  # while the broker held the pull
                    return
                asked = queue.next_pull_offset
                # By the tags that were sent: the user may have changed the filter meanwhile.
                await self._use(result, subscription.tags_set)
            except RocketPyError as error:
                self._was_missing |= isinstance(error, TopicNotExistError)
                pause_ms = self._note_failure(error)
            else:
                self._note_success()
                pause_ms = self._empty_polls.pause_ms(
                    # A response that skips filtered messages is not empty: it advances the offset.
                    was_empty=queue.next_pull_offset <= asked,
                    spent_ms=self._instance.clock.monotonic_ms() - queue.pulled_at_ms,
                )
                pause_ms = max(self._settings.interval_ms, pause_ms)
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)

    async def _pull(self, subscription: SubscriptionData, commit_offset: int) -> PullResult:
        queue = self._queue
        broker_id = self._choice.choose()
        if broker_id is None:
            raise NoRouteError(f"broker {queue.queue.broker_name} has no address")
        self._broker_id = broker_id
        address = self._instance.routes.replicas(queue.queue.broker_name)[broker_id]
        header = self._header(subscription, commit_offset)
        queue.last_pull_ms = self._instance.clock.time_ms()
        # Before the request: a loop whose pulls fail is alive, and a restart would not help it.
        queue.pulled_at_ms = self._instance.clock.monotonic_ms()
        try:
            return await self._instance.api.pull(address, header, self._settings.timeout_ms)
        except (TopicNotExistError, SubscriptionGroupNotExistError) as error:
            # A slave has the topics and groups of its master some seconds later.
            if self._broker_id == MASTER_ID:
                raise
            raise self._not_served(str(error)) from error

    async def _use(self, result: PullResult, tags: set[str]) -> None:
        queue = self._queue
        if result.status is PullStatus.OFFSET_ILLEGAL and self._broker_id != MASTER_ID:
            self._check_at_slave(result)
        if self._was_missing:
            if await self._is_new_topic(result):
                logger.warning(
                    "topic was made again, read from its first message: queue=%(queue)s "
                    "offset=%(offset)d next_offset=%(next_offset)d",
                    {
                        "queue": queue.queue,
                        "offset": queue.next_pull_offset,
                        "next_offset": result.min_offset,
                    },
                )
                await self._offset_moved(queue, result.min_offset)
                return
            self._was_missing = False
        self._choice.suggest(result.suggested_broker_id)
        queue.broker_min_offset = result.min_offset
        queue.broker_max_offset = result.max_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            # A broker refuses an offset inside the queue only after a reset of the group's offset.
            is_inside = result.min_offset <= queue.next_pull_offset <= result.max_offset
            logger.log(
                logging.INFO if is_inside else logging.WARNING,
                "pull offset moved by the broker: queue=%(queue)s offset=%(offset)d "
                "next_offset=%(next_offset)d reason=%(reason)s",
                {
                    "reason": "reset" if is_inside else "outside the queue",
                    "offset": queue.next_pull_offset,
                    "queue": queue.queue,
                    "next_offset": result.next_begin_offset,
                },
            )
            # This drops the process queue and starts another loop, so that this one ends.
            await self._offset_moved(queue, result.next_begin_offset)
            return
        if result.next_begin_offset < queue.next_pull_offset:
            raise BadBodyError(
                f"the response to a pull from offset {queue.next_pull_offset} continues before "
                f"it, at {result.next_begin_offset}"
            )
        if result.status is PullStatus.FOUND:
            await self._take(result, tags)
        else:
            queue.next_pull_offset = result.next_begin_offset

    async def _is_new_topic(self, result: PullResult) -> bool:
        """Return whether the topic was deleted and made again since the last message.

        A new master may lack a topic for a moment as well. In a queue that is the same, the oldest
        message is not newer than one that was delivered.
        """
        queue = self._queue
        if not self._newest_ms or result.min_offset >= queue.next_pull_offset:
            return False
        address = self._instance.routes.replicas(queue.queue.broker_name)[self._broker_id]
        oldest_ms = await self._instance.api.earliest_store_time_ms(address, queue.queue)
        return oldest_ms > self._newest_ms

    def _check_at_slave(self, result: PullResult) -> None:
        """Check that a slave has the offset that was asked for.

        A slave may lag behind its master, and may have begun later: its limits are not those of
        the queue, and messages would be repeated or skipped by them.

        Raises:
            NoRouteError: it does not; the pull is repeated.
        """
        low, high, wanted = result.min_offset, result.max_offset, self._queue.next_pull_offset
        if not low <= wanted <= high:
            raise self._not_served(f"it has offsets {low}..{high}, and the next one is {wanted}")

    def _not_served(self, reason: str) -> NoRouteError:
        return NoRouteError(
            f"{self._queue.queue} cannot be read from slave {self._broker_id} of its broker yet: "
            f"{reason}; waiting for the slave or its master"
        )

    async def _take(self, result: PullResult, tags: set[str]) -> None:
        """Deliver the messages of a response.

        Args:
            result: of a pull that found messages.
            tags: wanted; compared as text, because brokers compare their hashes only.
        """
        queue = self._queue
        begin, end = queue.next_pull_offset, result.next_begin_offset
        unreadable: dict[int, Exception] = {}
        messages = None
        # The compiled decoder takes offsets as stored and knows no delta.
        if self._decode_compiled is not None and not result.offset_delta:
            messages = self._decode_compiled(result.body)
        if messages is None:
            messages, unreadable, end = self._decode(result, begin, end)
        else:
            check_offsets(list(map(_OFFSET_OF, messages)), begin, end)
        if tags:
            messages = [m for m in messages if m.offset in unreadable or m.ext.tags in tags]
        if messages:
            self._newest_ms = messages[-1].ext.store_timestamp_ms
        # Before the delivery, because outcomes of messages that are not in the table do not count.
        queue.put(messages)
        queue.next_pull_offset = end
        readable = messages
        if unreadable:
            readable = [message for message in messages if message.offset not in unreadable]
        if readable:
            self._deliver(queue, readable)
        for message in messages if unreadable else ():
            error = unreadable.get(message.offset)
            if error is not None:
                await self._reject(queue, message, error)

    def _decode(
        self, result: PullResult, begin: int, end: int
    ) -> tuple[list[ReceivedMessage], dict[int, Exception], int]:
        """Decode a response in Python; see `check_offsets` for the range.

        Returns:
            The messages in order; why the bodies of some cannot be inflated, by their offsets; and
            the offset of the next pull.
        """
        entry = self._queue
        exts, bad, is_whole = decode_pulled(result.body)
        if bad:
            # By offset, because the table must ascend: its first entry is the offset to commit.
            exts = sorted([*exts, *(ext for ext, _ in bad)], key=attrgetter("queue_offset"))
        for ext in exts:
            check_topic(entry.queue.topic, ext.topic)
            ext.queue_offset += result.offset_delta
        offsets = [ext.queue_offset for ext in exts]
        check_offsets(offsets, begin, end)
        if not is_whole:
            end = offsets[-1] + 1
        unreadable = {ext.queue_offset: error for ext, error in bad}
        messages = [
            ReceivedMessage(
                ext,
                entry.queue,
                serializer=self._settings.serializer,
                settlement=entry,
                namespace=self._namespace,
            )
            for ext in exts
        ]
        return messages, unreadable, end

    def _note_success(self) -> None:
        if self._failing:
            self._failing = False
            self._on_failure(self._queue, None)

    def _note_failure(self, error: RocketPyError) -> int:
        """Report the failure to `health()`; return the pause before the next pull, ms."""
        pause_ms = self._choice.note_failure(self._broker_id, error, self._settings.error_pause_ms)
        # A busy broker: not a failure to report, and the pull is repeated sooner.
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_PAUSE_MS
        self._failing = True
        self._on_failure(self._queue, error)
        if isinstance(error, ClientError):
            self._instance.refresh_routes_soon()
            self._instance.heartbeat_soon()
        elif isinstance(error, InvalidParameterError):  # the topic has fewer queues now
            self._instance.refresh_routes_soon()
        elif isinstance(error, BrokerError) and error.code in _FORGOTTEN:
            self._instance.heartbeat_soon()
        return pause_ms
