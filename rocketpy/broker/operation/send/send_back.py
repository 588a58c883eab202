"""Giving a message back: stored again for the same group, later and with its tries counted.

It goes through a delay level into the group's retry topic, or, after its last try, into the
group's dead letters. The copy is all that is left to redeliver once the consumer counts the
message as done, so with SYNC_FLUSH the consumer is told when the copy is on disk (Apache does not
wait).

Source: AbstractSendMessageProcessor.consumerSendMsgBack (5.4.0).
"""

import random
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol, TypeAlias

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
)
from rocketpy.proto.topic_names import DLQ_PREFIX, RETRY_PREFIX
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.store.results import PutMessage, PutMessageStatus

_log = structlog.get_logger(__name__)

FIRST_RETRY_LEVEL: Final = 3
"""The delay level of a first retry, 10 s by default; each further one is a level higher."""

_UNIT_SUB: Final = 2
_PUT_OK: Final = PutMessageStatus.PUT_OK

Delay: TypeAlias = Callable[[PutMessage, dict[str, str], int], None]
"""Makes a message a delayed one, in place: the message, its properties, a level from 1."""


class SendBackRequest(NamedTuple):
    """Which message is given back, and how.

    Attributes:
        group: that could not consume it.
        phy_offset: where the message lies in this broker's log.
        delay_level: from 1: as asked; 0: grows with the tries; below 0: a dead letter at once.
        origin_topic: the topic the consumer read it from; None is not checked.
        max_reconsume_times: tries after which it is a dead letter; None: as the group says.
        is_unit: the unit bit of a retry topic that must be created.
    """

    group: str
    phy_offset: int
    delay_level: int
    origin_topic: str | None = None
    max_reconsume_times: int | None = None
    is_unit: bool = False


class Copied(NamedTuple):
    """The copy that was stored, if one was.

    Attributes:
        phy_end: its end in the log; 0: none was made, because the group wants no retries, or it is
            a dead letter already.
        topic: where the group, or who reads its dead letters, finds it in the end.
    """

    phy_end: int = 0
    topic: str = ""


class MessageLookup(Protocol):
    """What this needs of the store."""

    def look_message(self, phy_offset: int) -> memoryview | None:
        """One whole record."""
        ...


class SendBack:
    """Stores messages again for groups that could not consume them; safe from any thread.

    Args:
        store: where the messages are.
        internal_put: stores the copies.
        delay: makes a message a delayed one; None stores it for delivery at once.
        topics: retry and dead-letter topics, created when they are not there.
        groups: say how often a message is tried.
        stats: counts.
        config: the broker's settings; see `configure`.
        rng: chooses a queue of the retry topic.
    """

    def __init__(
        self,
        store: MessageLookup,
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
        """Take over changed settings."""
        self._config = config

    def send_back(self, request: SendBackRequest) -> Copied | Refusal:
        """Store the message again."""
        try:
            return self._send_back(request)
        except (StoreError, OSError) as error:
            return not_created(error)

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back once everything before `phy_end` is on disk (True) or failed (False)."""
        self._internal_put.when_durable(phy_end, callback)

    def is_written(self, copied: Copied) -> bool:
        """Whether the topic of a copy is on disk."""
        return not copied.topic or self._topics.is_written(copied.topic)

    def when_settled(self, copied: Copied, done: Settled) -> None:
        """Call back once the topic of a copy is on disk, or why it is not."""
        self._topics.when_created((copied.topic,), done)

    def _send_back(self, request: SendBackRequest) -> Copied | Refusal:
        group = self._groups.get_or_create(request.group)
        if group is None:
            remark = f"subscription group not exist, {request.group}"
            return Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not is_writeable(self._config.broker_permission):
            remark = f"the broker[{self._config.broker_ip1}] sending message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if group.retry_queue_nums <= 0:
            return Copied()
        retry_topic = RETRY_PREFIX + group.group_name
        refused = self._closed(retry_topic, group.retry_queue_nums, is_unit=request.is_unit)
        if refused is not None:
            return refused
        found = self._look_up(request)
        if isinstance(found, Refusal):
            return found
        limit = request.max_reconsume_times
        if limit is None:
            limit = group.retry_max_times
        if found.reconsume_times >= limit or request.delay_level < 0:
            return self._bury(group, found)
        level = request.delay_level or FIRST_RETRY_LEVEL + found.reconsume_times
        queue_id = self._rng.randrange(group.retry_queue_nums)
        return self._put(group, found, retry_topic, queue_id, level)

    def _bury(self, group: SubscriptionGroupConfig, found: MessageExt) -> Copied | Refusal:
        topic = DLQ_PREFIX + group.group_name
        if found.topic == topic:  # a group that consumes its own dead letters, and fails again
            return Copied()
        refused = self._closed(topic, DLQ_QUEUE_NUMS)
        if refused is not None:
            return refused
        copied = self._put(group, found, topic, 0, 0)
        if not isinstance(copied, Refusal):
            origin = found.properties.get(PROPERTY_RETRY_TOPIC, found.topic)
            self._stats.inc_dead_letter(group.group_name, origin)
            _log.info(
                "to the dead letters",
                group=group.group_name,
                topic=origin,
                id=found.msg_id,
                tries=found.reconsume_times + 1,
            )
        return copied

    def _closed(self, topic: str, queue_nums: int, *, is_unit: bool = False) -> Refusal | None:
        """Ensure that a topic is there, or say why it takes nothing."""
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
        except RocketPyError:  # no record begins there, or it is damaged
            found = None
        if found is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"look message by offset failed, {offset}")
        # Clients name a retried message by the topic it was first sent to. Apache refuses that; its
        # Go client does not look at the response, and the message is lost.
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
    ) -> Copied | Refusal:
        properties = dict(found.properties)
        origin = properties.setdefault(PROPERTY_RETRY_TOPIC, found.topic)
        properties.setdefault(PROPERTY_ORIGIN_MESSAGE_ID, found.offset_msg_id)
        properties[PROPERTY_WAIT_STORE_MSG_OK] = "false"
        properties[PROPERTY_DELAY_TIME_LEVEL] = str(level)
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
    """Say that a topic cannot be made now."""
    return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {failure}")
