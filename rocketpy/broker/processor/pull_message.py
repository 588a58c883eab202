"""PULL_MESSAGE and LITE_PULL_MESSAGE: read a queue, or wait for something to read.

Step 12 of the life of a message (docs/ARCHITECTURE.md). The processor decides; the store
reads, `rocketpy.broker.long_polling` waits, and the channel writes. Checks run in Apache's
order, the first that fails answers.

Source: PullMessageProcessor.java, DefaultPullMessageResultHandler.java (5.4.0).
"""

import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.consumer_offsets import ConsumerOffsets
from rocketpy.broker.filters import TagFilter, filter_of
from rocketpy.broker.long_polling import MAX_HOLD_MS, HeldPull, PullRequestHold
from rocketpy.broker.processor.pull_response import pull_frame
from rocketpy.broker.registry import ConsumerTable
from rocketpy.broker.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.topics import TopicTable
from rocketpy.errors import HeaderFieldError
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand, encode_command, make_response
from rocketpy.proto.headers.pull import PullMessageRequestHeader
from rocketpy.proto.perm import PERM_READ
from rocketpy.proto.subscription import SubscriptionData, build_subscription, is_tag_type
from rocketpy.proto.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketpy.remoting.channel import Channel
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import GetMessageResult, GetMessageStatus, MessageFilter

_LITE_PULL: Final = int(RequestCode.LITE_PULL_MESSAGE)
_FORBIDDEN_BROKER: Final = 1
_FORBIDDEN_GROUP: Final = 2
_FORBIDDEN_TOPIC: Final = 3
_FORBIDDEN_BROADCAST: Final = 4
_FORBIDDEN_SUBSCRIPTION: Final = 5
_MAX_PULL_BYTES: Final = 8 * 1024 * 1024
_MAX_REMEMBERED_EXPRESSIONS: Final = 1024
_RANGES: Final = struct.Struct(">iiiiqqqq")

_CODE_BY_STATUS: Final[Mapping[GetMessageStatus, int]] = MappingProxyType(
    {
        GetMessageStatus.FOUND: int(ResponseCode.SUCCESS),
        GetMessageStatus.NO_MATCHED_MESSAGE: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
        GetMessageStatus.MESSAGE_WAS_REMOVING: int(ResponseCode.PULL_RETRY_IMMEDIATELY),
        GetMessageStatus.OFFSET_FOUND_NULL: int(ResponseCode.PULL_NOT_FOUND),
        GetMessageStatus.OFFSET_OVERFLOW_ONE: int(ResponseCode.PULL_NOT_FOUND),
        GetMessageStatus.OFFSET_OVERFLOW_BADLY: int(ResponseCode.PULL_OFFSET_MOVED),
        GetMessageStatus.OFFSET_TOO_SMALL: int(ResponseCode.PULL_OFFSET_MOVED),
        GetMessageStatus.OFFSET_RESET: int(ResponseCode.PULL_OFFSET_MOVED),
        GetMessageStatus.NO_MATCHED_LOGIC_QUEUE: int(ResponseCode.PULL_OFFSET_MOVED),
        GetMessageStatus.NO_MESSAGE_IN_QUEUE: int(ResponseCode.PULL_OFFSET_MOVED),
    }
)
assert set(_CODE_BY_STATUS) == set(GetMessageStatus)
_EMPTY_QUEUE: Final = frozenset(
    {GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE}
)
_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)


class MessageReader(Protocol):
    """What a pull needs of the store."""

    def get_message(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_count: int,
        max_bytes: int,
        filter: MessageFilter | None = None,  # noqa: A002
    ) -> GetMessageResult:
        """Read a queue."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First offset of a queue."""
        ...

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Offset after the last of a queue."""
        ...


class PullCounter(Protocol):
    """What a pull counts."""

    def inc_group_get(self, group: str, topic: str, count: int, size_bytes: int) -> None:
        """Count messages handed out."""
        ...

    def inc_broker_get(self, count: int) -> None:
        """Count messages handed out."""
        ...


class PullFields(NamedTuple):
    """The header of a pull."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    max_count: int
    max_bytes: int
    sys_flag: int
    commit_offset: int
    suspend_ms: int
    expression: str | None
    expression_type: str | None
    sub_version: int


class _Refused(Exception):  # noqa: N818 - an outcome which ends the checks, not an error
    """A check said no; carries the response."""

    def __init__(self, response: RemotingCommand) -> None:
        super().__init__()
        self.response = response


def read_pull(ext: Mapping[str, str]) -> PullFields:
    """Read the header of a pull.

    Raises:
        HeaderFieldError: a field is missing, no number, or out of its type's range.
    """
    try:
        queue_id = int(ext["queueId"])
        queue_offset = int(ext["queueOffset"])
        max_count = int(ext["maxMsgNums"])
        wanted_bytes = int(ext.get("maxMsgBytes") or 0)
        sys_flag = int(ext["sysFlag"])
        commit_offset = int(ext["commitOffset"])
        suspend_ms = int(ext["suspendTimeoutMillis"])
        sub_version = int(ext["subVersion"])
        _RANGES.pack(
            queue_id,
            max_count,
            wanted_bytes,
            sys_flag,
            queue_offset,
            commit_offset,
            suspend_ms,
            sub_version,
        )
        return PullFields(
            ext["consumerGroup"],
            ext["topic"],
            queue_id,
            queue_offset,
            max_count if max_count > 0 else 1,
            min(wanted_bytes, _MAX_PULL_BYTES) if wanted_bytes > 0 else _MAX_PULL_BYTES,
            sys_flag,
            commit_offset,
            suspend_ms,
            ext.get("subscription"),
            ext.get("expressionType"),
            sub_version,
        )
    except (KeyError, ValueError, struct.error):
        PullMessageRequestHeader.from_ext(ext)  # raises, and names the field
        raise HeaderFieldError("queueId", "is not a decimal integer") from None


class PullMessageProcessor:
    """Turns a pull into a response, or parks it.

    Args:
        store: what to read.
        topics: topic table.
        groups: group table.
        consumers: connected consumers and their subscriptions.
        offsets: committed offsets.
        holds: where pulls wait; its `resume` is set here.
        stats: counters.
        config: the broker's settings; see `configure`.
        clock: time.
    """

    def __init__(  # noqa: PLR0913 - the parts a pull touches
        self,
        store: MessageReader,
        *,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        consumers: ConsumerTable,
        offsets: ConsumerOffsets,
        holds: PullRequestHold,
        stats: PullCounter,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._holds = holds
        self._stats = stats
        self._clock = clock
        self._config = config
        self._expressions: dict[tuple[str, str], TagFilter | None] = {}
        holds.resume = self._resume

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings."""
        self._config = config
        self._holds.max_held = config.max_held_pulls
        self._holds.max_held_per_queue = config.max_held_pulls_per_queue

    def process(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | bytes | None:
        """Answer a pull; None when it waits (or nobody does).

        Raises:
            HeaderFieldError: a header field is missing or wrong.
        """
        return self._run(channel, request, may_hold=True)

    def _resume(self, held: HeldPull) -> bytes | None:
        try:
            response = self._run(held.channel, held.request, may_hold=False)
        except Exception as error:  # noqa: BLE001 - runs on the bare loop; must be answered
            remark = f"{type(error).__name__}: {error}"
            response = make_response(held.request, ResponseCode.SYSTEM_ERROR, remark)
        return encode_command(response) if isinstance(response, RemotingCommand) else response

    def _run(
        self, channel: Channel, request: RemotingCommand, *, may_hold: bool
    ) -> RemotingCommand | bytes | None:
        fields = read_pull(request.ext_fields)
        try:
            group, topic = self._check_names(request, fields)
            tag_filter = self._filter(request, fields, group)
        except _Refused as refused:
            return refused.response
        result = self._read(fields, tag_filter)
        status = result.status
        code = _CODE_BY_STATUS[status]
        # Asking an empty queue for entry 0 is a consumer that came early, not one that is lost.
        if status in _EMPTY_QUEUE and fields.queue_offset == 0:
            code = _NOT_FOUND
        self._commit(fields, result.next_begin_offset, may_commit=may_hold)
        if code == 0:
            self._stats.inc_group_get(fields.group, fields.topic, result.count, result.size_bytes)
            self._stats.inc_broker_get(result.count)
        elif (
            code == _NOT_FOUND
            and may_hold
            and fields.sys_flag & PULL_SUSPEND
            and self._park(channel, request, fields, tag_filter)
        ):
            return None
        return pull_frame(
            request,
            code,
            result,
            suggested_broker_id=0,
            topic_sys_flag=topic.topic_sys_flag,
            group_sys_flag=group.group_sys_flag,
        )

    def _check_names(
        self, request: RemotingCommand, fields: PullFields
    ) -> tuple[SubscriptionGroupConfig, TopicConfig]:
        config = self._config
        if not config.broker_permission & PERM_READ:
            raise _forbidden(
                request,
                _FORBIDDEN_BROKER,
                f"the broker[{config.broker_name}] pulling message is forbidden",
            )
        if request.code == _LITE_PULL and not config.lite_pull_message_enable:
            raise _forbidden(
                request,
                _FORBIDDEN_BROKER,
                f"the broker[{config.broker_name}] for lite pull consumer is forbidden",
            )
        group = self._groups.get_or_create(fields.group)
        if group is None:
            raise _refused(
                request,
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{fields.group}] does not exist",
            )
        if not group.consume_enable:
            remark = f"subscription group no permission, {fields.group}"
            raise _forbidden(request, _FORBIDDEN_GROUP, remark)
        topic = self._topics.get(fields.topic)
        if topic is None:
            raise _refused(
                request,
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic[{fields.topic}] not exist, apply first please!",
            )
        if not topic.perm & PERM_READ:
            remark = f"the topic[{fields.topic}] pulling message is forbidden"
            raise _forbidden(request, _FORBIDDEN_TOPIC, remark)
        if not 0 <= fields.queue_id < topic.read_queue_nums:
            raise _refused(
                request,
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{fields.queue_id}] is illegal, topic:[{fields.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        if topic.is_batch_cq:
            # Rather than wait for ever beside messages that this version cannot read.
            remark = "this broker version does not support topics with queue.type BatchCQ"
            raise _refused(request, ResponseCode.SYSTEM_ERROR, remark)
        return group, topic

    def _filter(
        self, request: RemotingCommand, fields: PullFields, group: SubscriptionGroupConfig
    ) -> TagFilter | None:
        if fields.sys_flag & PULL_SUBSCRIPTION:
            if not is_tag_type(fields.expression_type):
                raise self._no_sql(request, fields.expression_type or "")
            return self._filter_of_expression(request, fields.topic, fields.expression or "*")
        members = self._consumers.group(fields.group)
        if members is None:
            raise _refused(
                request,
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's group info not exist",
            )
        if not group.consume_broadcast_enable and members.is_broadcast:
            remark = f"the consumer group[{fields.group}] can not consume by broadcast way"
            raise _forbidden(request, _FORBIDDEN_BROADCAST, remark)
        if self._groups.is_forbidden(fields.group, fields.topic):
            remark = f"the consumer group[{fields.group}] is forbidden for topic[{fields.topic}]"
            raise _forbidden(request, _FORBIDDEN_SUBSCRIPTION, remark)
        subscription = members.subscriptions.get(fields.topic)
        if subscription is None:
            raise _refused(
                request,
                ResponseCode.SUBSCRIPTION_NOT_EXIST,
                "the consumer's subscription not exist",
            )
        if subscription.sub_version < fields.sub_version:
            raise _refused(
                request,
                ResponseCode.SUBSCRIPTION_NOT_LATEST,
                "the consumer's subscription not latest",
            )
        return self._filter_of_subscription(request, subscription)

    def _filter_of_subscription(
        self, request: RemotingCommand, subscription: SubscriptionData
    ) -> TagFilter | None:
        if subscription.takes_all:
            return None
        if not is_tag_type(subscription.expression_type):
            raise self._no_sql(request, subscription.expression_type)
        return filter_of(subscription)

    def _filter_of_expression(
        self, request: RemotingCommand, topic: str, expression: str
    ) -> TagFilter | None:
        key = (topic, expression)
        if key in self._expressions:
            return self._expressions[key]
        try:
            found = filter_of(build_subscription(topic, expression))
        except ValueError as error:
            raise _refused(
                request,
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {error}",
            ) from None
        if len(self._expressions) >= _MAX_REMEMBERED_EXPRESSIONS:
            self._expressions.clear()
        self._expressions[key] = found
        return found

    def _read(self, fields: PullFields, tag_filter: TagFilter | None) -> GetMessageResult:
        if self._config.use_server_side_reset_offset:
            wanted = self._offsets.take_reset(fields.group, fields.topic, fields.queue_id)
            if wanted is not None:
                return GetMessageResult(
                    GetMessageStatus.OFFSET_RESET,
                    wanted,
                    self._store.min_offset(fields.topic, fields.queue_id),
                    self._store.max_offset(fields.topic, fields.queue_id),
                )
        return self._store.get_message(
            fields.topic,
            fields.queue_id,
            fields.queue_offset,
            fields.max_count,
            fields.max_bytes,
            tag_filter,
        )

    def _commit(self, fields: PullFields, next_offset: int, *, may_commit: bool) -> None:
        offsets = self._offsets
        offsets.commit_pull(fields.group, fields.topic, fields.queue_id, next_offset)
        if (
            may_commit
            and fields.sys_flag & PULL_COMMIT_OFFSET
            and not offsets.has_reset(fields.group, fields.topic, fields.queue_id)
        ):
            offsets.commit(fields.group, fields.topic, fields.queue_id, fields.commit_offset)

    def _park(
        self,
        channel: Channel,
        request: RemotingCommand,
        fields: PullFields,
        tag_filter: TagFilter | None,
    ) -> bool:
        config = self._config
        wait_ms = config.short_polling_time_mills
        if config.long_polling_enable:
            wait_ms = max(0, min(fields.suspend_ms, MAX_HOLD_MS))
        return self._holds.park(
            HeldPull(
                channel,
                request,
                fields.topic,
                fields.queue_id,
                fields.queue_offset,
                tag_filter,
                self._clock.monotonic_ms() + wait_ms,
            )
        )

    def _no_sql(self, request: RemotingCommand, expression_type: str) -> _Refused:
        remark = f"The broker does not support consumer to filter message by {expression_type}"
        return _refused(request, ResponseCode.SYSTEM_ERROR, remark)


def _refused(request: RemotingCommand, code: int, remark: str) -> _Refused:
    return _Refused(make_response(request, code, remark))


def _forbidden(request: RemotingCommand, kind: int, remark: str) -> _Refused:
    ext_fields = {"forbiddenType": str(kind)}
    return _Refused(make_response(request, ResponseCode.NO_PERMISSION, remark, ext_fields))
