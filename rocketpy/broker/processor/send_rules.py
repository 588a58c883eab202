"""What may be sent where: the checks of a send, with Apache's codes.

What a topic allows is kept in `SendRules.known` until the topic changes, so that an
ordinary send costs one look-up.

Source: AbstractSendMessageProcessor.msgCheck, SendMessageProcessor.handlePutMessageResult (5.4.0).
"""

import struct
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.subscription_groups import SubscriptionGroupTable
from rocketpy.broker.topics import NOT_SENDABLE_TOPICS, TopicTable
from rocketpy.errors import HeaderFieldError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand
from rocketpy.proto.headers.base import parse_int32, parse_int64
from rocketpy.proto.perm import PERM_WRITE
from rocketpy.proto.sys_flag import MULTI_TAGS, TRANSACTION_MASK
from rocketpy.proto.topic_names import DLQ_PREFIX, RETRY_PREFIX
from rocketpy.proto.validators import check_topic
from rocketpy.remoting.channel import Channel
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessageStatus

Refusal: TypeAlias = tuple[int, str]

_V3_4_9: Final = 121
_LONG_NAMES: Final = int(RequestCode.SEND_MESSAGE)
_RANGES: Final = struct.Struct(">iiiqi")
_UNIT: Final = 1
_UNIT_SUB: Final = 2
_DLQ_QUEUE_NUMS: Final = 1
_DEFAULT_DELAY: Final = "0"


class SendFields(NamedTuple):
    """The header of a send, whatever its spelling."""

    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    flag: int
    properties: str
    reconsume_times: int
    is_batch: bool
    ext: Mapping[str, str]


class TopicSendPolicy(NamedTuple):
    """What a send needs to know of a topic.

    Attributes:
        config: what this was worked out from.
        is_simple: an ordinary message needs no look at anything but this.
        is_open: nothing but the queue id need be checked.
        is_plain: neither a retry topic nor anything else with rules of its own.
        queue_limit: queue ids from here on are refused.
        write_queue_nums: for a random choice.
        sys_flag: bits every message of the topic gets.
    """

    config: TopicConfig
    is_simple: bool
    is_open: bool
    is_plain: bool
    queue_limit: int
    write_queue_nums: int
    sys_flag: int


def read_fields(request: RemotingCommand) -> SendFields:
    """Read the header: long names for code 10, one-letter names otherwise.

    Raises:
        HeaderFieldError: a field is missing, no number, or out of its type's range.
    """
    ext = request.ext_fields
    try:
        if request.code != _LONG_NAMES or "b" in ext:
            queue_id = int(ext["e"])
            sys_flag = int(ext["f"])
            born_ms = int(ext["g"])
            flag = int(ext["h"])
            retries = ext.get("j")
            reconsume = int(retries) if retries else 0
            _RANGES.pack(queue_id, sys_flag, flag, born_ms, reconsume)
            return SendFields(
                ext["b"],
                queue_id,
                sys_flag,
                born_ms,
                flag,
                ext.get("i", ""),
                reconsume,
                ext.get("m") == "true",
                ext,
            )
        queue_id = int(ext["queueId"])
        sys_flag = int(ext["sysFlag"])
        born_ms = int(ext["bornTimestamp"])
        flag = int(ext["flag"])
        reconsume = int(ext.get("reconsumeTimes") or 0)
        _RANGES.pack(queue_id, sys_flag, flag, born_ms, reconsume)
        return SendFields(
            ext["topic"],
            queue_id,
            sys_flag,
            born_ms,
            flag,
            ext.get("properties", ""),
            reconsume,
            ext.get("batch") == "true",
            ext,
        )
    except (KeyError, ValueError, struct.error):
        raise _bad_field(ext, is_short=request.code != _LONG_NAMES or "b" in ext) from None


def _bad_field(ext: Mapping[str, str], *, is_short: bool) -> HeaderFieldError:
    """Find the field that `read_fields` stumbled over."""
    for short, name, parse in _FIELDS:
        wire_name = short if is_short else name
        shown = f"{short} ({name})" if is_short else name
        text = ext.get(wire_name)
        if text is None:
            if name != "reconsumeTimes":
                return HeaderFieldError(shown, "is missing")
        elif parse is not None and (text or name != "reconsumeTimes"):
            try:
                parse(shown, text)
            except HeaderFieldError as error:
                return error
    return HeaderFieldError("queueId", "is not a decimal integer")


_FIELDS: Final[tuple[tuple[str, str, Callable[[str, str], int] | None], ...]] = (
    ("b", "topic", None),
    ("e", "queueId", parse_int32),
    ("f", "sysFlag", parse_int32),
    ("g", "bornTimestamp", parse_int64),
    ("h", "flag", parse_int32),
    ("j", "reconsumeTimes", parse_int32),
)


def refuse_special(properties: Mapping[str, str]) -> Refusal | None:
    """Refuse what this version cannot do, rather than store it as something else."""
    if properties.get("TRAN_MSG", "").lower() == "true":
        return ResponseCode.NO_PERMISSION, _NO_HALF_MESSAGES
    delay = properties.get("DELAY", _DEFAULT_DELAY)
    try:
        level = int(delay)
    except ValueError:
        return ResponseCode.SYSTEM_ERROR, f"property DELAY is not a number: {delay[:32]!r}"
    timers = ("TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS")
    if level > 0 or any(properties.get(name) for name in timers):
        return (
            ResponseCode.MESSAGE_ILLEGAL,
            "this broker version does not support delayed messages (DELAY, TIMER_*)",
        )
    return None


_NO_HALF_MESSAGES: Final = (
    "this broker version does not support transactional messages: "
    "sending transaction message is forbidden"
)

_CODE_BY_STATUS: Final[Mapping[PutMessageStatus, tuple[int, str]]] = MappingProxyType(
    {
        PutMessageStatus.FLUSH_DISK_TIMEOUT: (ResponseCode.FLUSH_DISK_TIMEOUT, ""),
        PutMessageStatus.FLUSH_SLAVE_TIMEOUT: (ResponseCode.FLUSH_SLAVE_TIMEOUT, ""),
        PutMessageStatus.SLAVE_NOT_AVAILABLE: (ResponseCode.SLAVE_NOT_AVAILABLE, ""),
        PutMessageStatus.CREATE_MAPPED_FILE_FAILED: (
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "service not available now: the disk is full, no log file could be created",
        ),
        PutMessageStatus.OS_PAGE_CACHE_BUSY: (
            ResponseCode.SYSTEM_BUSY,
            "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
        ),
        PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: (
            ResponseCode.SYSTEM_ERROR,
            "in-sync replicas not enough",
        ),
        PutMessageStatus.UNKNOWN_ERROR: (ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
        PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED: (
            ResponseCode.SYSTEM_ERROR,
            "too many light queues",
        ),
        PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL: (
            ResponseCode.SYSTEM_BUSY,
            "timer message is under flow control",
        ),
        PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL: (
            ResponseCode.MESSAGE_ILLEGAL,
            "timer message illegal",
        ),
        PutMessageStatus.WHEEL_TIMER_NOT_ENABLE: (
            ResponseCode.SYSTEM_ERROR,
            "accurate timer message is not enabled",
        ),
    }
)


class SendRules:
    """Knows what may be sent where.

    Args:
        topics: the topic table; changed topics must be reported to `forget`.
        groups: subscription groups, for retry topics.
        clock: time, for a broker that opens later.
        max_body_bytes: limit of a body.
        unavailable_reason: why the store refuses writes, if it does.

    Attributes:
        known: facts of the topics that were sent to.
        max_body_bytes: limit of a body.
    """

    def __init__(
        self,
        topics: TopicTable,
        groups: SubscriptionGroupTable,
        clock: Clock,
        *,
        max_body_bytes: int,
        unavailable_reason: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.known: dict[str, TopicSendPolicy] = {}
        self.max_body_bytes = max_body_bytes
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._unavailable_reason = unavailable_reason
        self._config: BrokerConfig | None = None

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings."""
        self._config = config
        self.known.clear()

    def forget(self, topic: str) -> None:
        """A topic changed or went: work out its facts anew."""
        self.known.pop(topic, None)

    def admit(self, fields: SendFields) -> TopicSendPolicy | Refusal:
        """Check a send whose topic's facts are unknown or not simple; remembers them."""
        config = self._config
        assert config is not None
        opens_ms = config.start_accept_send_request_time_stamp
        if opens_ms > self._clock.time_ms():
            return ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {opens_ms}"
        topic = fields.topic
        problem = check_topic(topic)
        if problem is not None:
            return ResponseCode.INVALID_PARAMETER, problem
        if topic in NOT_SENDABLE_TOPICS:
            return ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden."
        found = self._topics.get(topic) or self._create(fields)
        if found is None:
            return ResponseCode.TOPIC_NOT_EXIST, self._topics.absence(topic)
        writable = bool(config.broker_permission & PERM_WRITE)
        if not writable and found.order:
            return (
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_name}] sending message is forbidden",
            )
        is_open = opens_ms == 0 and (writable or not found.order)
        is_plain = not topic.startswith(RETRY_PREFIX) and not found.is_batch_cq
        facts = self.known[topic] = TopicSendPolicy(
            config=found,
            is_simple=is_open and is_plain,
            is_open=is_open,
            is_plain=is_plain,
            queue_limit=max(found.read_queue_nums, found.write_queue_nums),
            write_queue_nums=found.write_queue_nums,
            sys_flag=MULTI_TAGS if found.topic_filter_type == "MULTI_TAG" else 0,
        )
        return facts

    def admit_batch(
        self, fields: SendFields, facts: TopicSendPolicy, body_bytes: int
    ) -> Refusal | None:
        """Check what only a batch must not do."""
        if fields.topic.startswith(RETRY_PREFIX):
            return (
                ResponseCode.MESSAGE_ILLEGAL,
                f"batch request does not support retry group {fields.topic}",
            )
        if facts.config.is_batch_cq:
            return ResponseCode.MESSAGE_ILLEGAL, _NO_BATCH_CQ
        if fields.sys_flag & TRANSACTION_MASK:
            return ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be transactional"
        if body_bytes > self.max_body_bytes:
            return self.too_large()
        return None

    def redirect(self, fields: SendFields, facts: TopicSendPolicy, version: int) -> str | Refusal:
        """Decide where a message for a retry topic goes: there, or to the dead letters."""
        topic = fields.topic
        if facts.config.is_batch_cq:
            return ResponseCode.MESSAGE_ILLEGAL, _NO_BATCH_CQ
        group_name = topic[len(RETRY_PREFIX) :]
        group = self._groups.get_or_create(group_name)
        if group is None:
            return (
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group not exist, {group_name}",
            )
        limit = group.retry_max_times
        wanted = fields.ext.get("l") or fields.ext.get("maxReconsumeTimes")
        if version >= _V3_4_9 and wanted:
            try:
                limit = int(wanted)
            except ValueError:
                return ResponseCode.SYSTEM_ERROR, "maxReconsumeTimes is not a number"
        if fields.reconsume_times > limit:
            dead = DLQ_PREFIX + group_name
            self._topics.create_on_send_back(dead, _DLQ_QUEUE_NUMS)
            return dead
        return topic

    def bad_queue(self, fields: SendFields, facts: TopicSendPolicy, channel: Channel) -> Refusal:
        """A queue id the topic does not have."""
        return (
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{fields.queue_id}] is illegal (topic {fields.topic}, "  # noqa: ISC004
            f"{facts.queue_limit} queues). Producer: {channel.remote_address}",
        )

    def too_large(self) -> Refusal:
        """Body or properties over the limit."""
        return (
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. "  # noqa: ISC004
            f"msg body length limit {self.max_body_bytes}B, msg properties length limit 32KB.",
        )

    def half_message(self) -> Refusal:
        """The prepared bit: such a message would be stored and never seen."""
        return ResponseCode.NO_PERMISSION, _NO_HALF_MESSAGES

    def not_available(self, reason: str | None = None) -> Refusal:
        """The store takes nothing now."""
        why = reason or self._unavailable_reason() or "disk full, read-only or shutting down"
        return ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {why}"

    def _create(self, fields: SendFields) -> TopicConfig | None:
        ext = fields.ext
        topic = fields.topic
        is_retry = topic.startswith(RETRY_PREFIX)
        unit = (ext.get("k") or ext.get("unitMode")) == "true"
        sys_flag = (_UNIT_SUB if is_retry else _UNIT) if unit else 0
        template = ext.get("c") or ext.get("defaultTopic") or ""
        try:
            wanted = int(ext.get("d") or ext.get("defaultTopicQueueNums") or 0)
        except ValueError:
            raise HeaderFieldError("defaultTopicQueueNums", "is not a number") from None
        created = self._topics.create_on_send(topic, template, wanted, sys_flag)
        if created is None and is_retry:
            created = self._topics.create_on_send_back(topic, 1, topic_sys_flag=sys_flag)
        return created


_NO_BATCH_CQ: Final = "this broker version does not support topics with queue.type BatchCQ"


def status_response(status: PutMessageStatus, rules: SendRules) -> Refusal:
    """Code and remark of a put that did not end well."""
    if status in {PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED}:
        return rules.too_large()
    if status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
        return rules.not_available()
    return _CODE_BY_STATUS.get(status, (ResponseCode.SYSTEM_ERROR, status.value))
