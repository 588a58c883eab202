"""Send-back: a consumer returns a failed message, which is stored again for its group.

The copy goes through a delay level into the group's retry topic or, after the last attempt, into
the group's dead letters. Once the consumer counts the message as consumed, the copy is the only one
that can be redelivered. With SYNC_FLUSH the consumer is therefore answered when the copy is on
disk; Apache does not wait.

Source: AbstractSendMessageProcessor.consumerSendMsgBack (5.4.0).
"""

import random
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

import structlog

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.persistent_table import Settled
from rocketpy.broker.metadata.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.put_transforms import DLQ_QUEUE_NUMS
from rocketpy.broker.stats.broker_stats import BrokerStats
from rocketpy.broker.system_topics.system_writer import SystemWriter, copy_of
from rocketpy.errors import RocketPyError, StoreError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.perm import is_writeable
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.proto.record.properties import (
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_ORIGIN_MESSAGE_ID,
    PROPERTY_RETRY_TOPIC,
    PROPERTY_WAIT_STORE_MSG_OK,
    with_dead_letter_cause,
)
from rocketpy.proto.topic_names import DLQ_PREFIX, RETRY_PREFIX
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.store.interfaces import RecordReader
from rocketpy.store.results import PutMessage, PutMessageStatus

_log = structlog.get_logger(__name__)

FIRST_RETRY_LEVEL: Final = 3
"""Delay level of the first retry, 10 s by default; each further one is a level higher."""

_UNIT_SUB: Final = 2
_PUT_OK: Final = PutMessageStatus.PUT_OK

Delay: TypeAlias = Callable[[PutMessage, dict[str, str], int], None]
"""Redirects a message to a delay level (from 1), given the message and its properties, in place."""


Cause: TypeAlias = tuple[str | None, str | None, int | None, str | None]
"""Class name of an exception, its text, when it was raised (ms since 1970), and the member's id."""


class SendBackRequest(NamedTuple):
    """Parameters of a send-back.

    Attributes:
        group: group that could not consume the message.
        phy_offset: position of the message in this broker's log.
        delay_level: above 0: this level; 0: grows with the attempts; below 0: dead letter at once.
        origin_topic: topic the consumer read it from; None is not checked.
        max_reconsume_times: attempts after which it is a dead letter; None: the group's setting.
        is_unit: unit bit of a retry topic that must be created.
        cause: of a dead letter, as `with_dead_letter_cause` takes it; None when it is not known.
    """

    group: str
    phy_offset: int
    delay_level: int
    origin_topic: str | None = None
    max_reconsume_times: int | None = None
    is_unit: bool = False
    cause: Cause | None = None


class Copied(NamedTuple):
    """The stored copy, if there is one.

    Attributes:
        phy_end: end of the copy in the log; 0: no copy was made, because the group wants no
            retries, or the message is a dead letter already.
        topic: topic in which the group, or a reader of dead letters, will find it.
    """

    phy_end: int = 0
    topic: str = ""


class SendBack:
    """Stores failed messages again for their groups; safe from any thread.

    Args:
        store: source of the messages.
        internal_put: stores the copies.
        delay: redirects a message to a delay level; None stores it for delivery at once.
        topics: topic table, in which retry and dead-letter topics are created.
        groups: group table, with the number of attempts.
        stats: counters.
        config: the broker's settings; see `configure`.
        rng: chooses a queue of the retry topic.
    """

    def __init__(
        self,
        store: RecordReader,
        internal_put: SystemWriter,
        delay: Delay | None,
        *,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        stats: BrokerStats,
        config: BrokerConfig,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._internal_put = internal_put
        self._delay = delay
        self._topics = topics
        self._groups = groups
        self._stats = stats
        self._config = config
        self._rng = rng

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def send_back(self, request: SendBackRequest) -> Copied | Refusal:
        """Store a failed message again."""
        try:
            return self._send_back(request)
        except (StoreError, OSError) as error:
            return not_created(error)

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back once everything before `phy_end` is on disk (True) or failed (False)."""
        self._internal_put.when_durable(phy_end, callback)

    def is_written(self, copied: Copied) -> bool:
        """Return whether the topic of a copy is on disk."""
        return not copied.topic or self._topics.is_written(copied.topic)

    def when_settled(self, copied: Copied, done: Settled) -> None:
        """Call back once the topic of a copy is on disk, or with why it is not."""
        self._topics.when_created((copied.topic,), done)

    def _send_back(self, request: SendBackRequest) -> Copied | Refusal:
        group = self._groups.get_or_create(request.group)
        if group is None:
            remark = f"subscription group not exist, {request.group}"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not is_writeable(self._config.broker_permission):
            remark = f"the broker[{self._config.broker_ip1}] sending message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        # Success without a copy, as in Apache: the group asked for no retries.
        if group.retry_queue_nums <= 0:
            return Copied()
        retry_topic = RETRY_PREFIX + group.group_name
        # The topic is checked before the message is read, as in Apache: it may be closed for all.
        refused = self._closed(retry_topic, group.retry_queue_nums, is_unit=request.is_unit)
        if refused is not None:
            return refused
        found = self._look_up(request)
        if isinstance(found, Refusal):
            return found
        # The consumer's own limit wins over that of the group, as in Apache.
        limit = request.max_reconsume_times
        if limit is None:
            limit = group.retry_max_times
        if found.reconsume_times >= limit or request.delay_level < 0:
            return self._bury(group, found, request.cause)
        level = request.delay_level or FIRST_RETRY_LEVEL + found.reconsume_times
        # Spread over the queues, so that several members of the group share the retries.
        queue_id = self._rng.randrange(group.retry_queue_nums)
        return self._put(group, found, retry_topic, queue_id, level)

    def _bury(
        self,
        group: SubscriptionGroupConfig,
        found: MessageExt,
        cause: Cause | None,
    ) -> Copied | Refusal:
        topic = DLQ_PREFIX + group.group_name
        # A group that consumes its dead letters must not loop them through its retry topic.
        if found.topic == topic:
            return Copied()
        refused = self._closed(topic, DLQ_QUEUE_NUMS)
        if refused is not None:
            return refused
        copied = self._put(group, found, topic, 0, 0, cause=cause)
        if not isinstance(copied, Refusal):
            origin = found.properties.get(PROPERTY_RETRY_TOPIC, found.topic)
            self._stats.inc_dead_letter(group.group_name, origin)
            _log.info(
                "message moved to dead letters",
                group=group.group_name,
                topic=origin,
                msg_id=found.msg_id,
                tries=found.reconsume_times + 1,
            )
        return copied

    def _closed(self, topic: str, queue_nums: int, *, is_unit: bool = False) -> Refusal | None:
        """Create a topic if necessary; returns why it cannot be written."""
        config = self._topics.create_on_send_back(
            topic, queue_nums, topic_sys_flag=_UNIT_SUB if is_unit else 0
        )
        if is_writeable(config.perm):
            return None
        remark = f"the topic[{topic}] sending message is forbidden"
        return Refusal(ResponseCode.NO_PERMISSION, remark)

    def _look_up(self, request: SendBackRequest) -> MessageExt | Refusal:
        offset = request.phy_offset
        try:
            record = self._store.look_message(offset) if offset >= 0 else None
            found = None if record is None else decode_message(record, inflate=False)
        except RocketPyError:  # the position is not the start of a record, or it is damaged
            found = None
        if found is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        # Clients name a retried message by its original topic. Apache refuses that; its Go client
        # ignores the response, so the message is lost.
        own = {None, found.topic, found.properties.get(PROPERTY_RETRY_TOPIC)}
        if request.origin_topic not in own:
            remark = f"look message by offset failed to check the topic name{offset}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return found

    def _put(
        self,
        group: SubscriptionGroupConfig,
        found: MessageExt,
        topic: str,
        queue_id: int,
        level: int,
        *,
        cause: Cause | None = None,
    ) -> Copied | Refusal:
        # A copy: the message that was read keeps its properties for the log and the statistics.
        properties = dict(found.properties)
        origin = properties.setdefault(PROPERTY_RETRY_TOPIC, found.topic)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, found.offset_msg_id)
        # As Apache. The consumer's response waits for the disk through `when_durable` instead.
        properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
        if cause is not None:
            properties = with_dead_letter_cause(properties, *cause)
        message = copy_of(found, topic, queue_id, properties)
        message.store_host = b""  # this broker's
        message.reconsume_times = found.reconsume_times + 1
        if level and self._delay is not None:
            self._delay(message, properties, level)
        result = self._internal_put.put(message)
        if result.status is not _PUT_OK:
            return Refusal(ResponseCode.SYSTEM_ERROR, result.status.value)
        self._stats.inc_send_back(group.group_name, origin)
        return Copied(result.phy_end, topic)


def not_created(failure: Exception) -> Refusal:
    """Return the refusal for a topic that cannot be created now."""
    return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {failure}")
