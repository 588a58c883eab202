"""Admission of sends: topic, permissions and sizes, with Apache's response codes.

What a topic allows is computed once (`TopicSendPolicy`) and cached in `SendAdmission.known` until
the topic changes, so that an ordinary send costs one dictionary lookup.

Source: AbstractSendMessageProcessor.msgCheck, SendMessageProcessor.handlePutMessageResult (5.4.0).
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.persistent_table import Settled
from rocketpy.broker.metadata.topics import NOT_SENDABLE_TOPICS, TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.errors import StoreError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.perm import PERM_WRITE
from rocketpy.proto.record.sys_flag import MULTI_TAGS, TRANSACTION_MASK
from rocketpy.proto.topic_names import RETRY_PREFIX
from rocketpy.proto.validators import check_topic
from rocketpy.proto.wire.codes import ROLE_CHANGE, ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessageStatus

_UNIT: Final = 1
_UNIT_SUB: Final = 2


class TopicSendPolicy(NamedTuple):
    """Policy of a topic for sends.

    Attributes:
        config: the topic, from which the policy was computed.
        is_simple: whether an ordinary message needs no check besides this policy.
        is_open: whether only the queue id must be checked.
        is_plain: whether no `PutTransform` applies to its messages, unlike those of retry topics.
        queue_limit: queue ids from here on are refused.
        write_queue_nums: number of queues for a random choice.
        sys_flag: system flags of all messages of the topic.
        is_written: whether the topic was on disk when the policy was computed.
    """

    config: TopicConfig
    is_simple: bool
    is_open: bool
    is_plain: bool
    queue_limit: int
    write_queue_nums: int
    sys_flag: int
    is_written: bool


class SendAdmission:
    """Checks sends, and caches the policies of topics.

    Args:
        topics: the topic table; changed topics must be reported to `forget`.
        config: the broker's settings; see `configure`.
        clock: time, for a broker that opens later.
        max_body_bytes: maximal size of a body.
        unavailable_reason: returns why the store refuses writes, if it does.
        shortage: returns the resource that the last refused put lacked.

    Attributes:
        known: policies of topics that were sent to and are on disk.
        max_body_bytes: maximal size of a body.
    """

    def __init__(
        self,
        topics: TopicTable,
        config: BrokerConfig,
        clock: Clock,
        *,
        max_body_bytes: int,
        unavailable_reason: Callable[[], str | None] = lambda: None,
        shortage: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.known: dict[str, TopicSendPolicy] = {}
        self.max_body_bytes = max_body_bytes
        self._topics = topics
        self._config = config
        self._clock = clock
        self._unavailable_reason = unavailable_reason
        self._shortage = shortage
        self._refusal: str | None = None

    def refuse(self, reason: str | None) -> None:
        """Refuse all sends before they are stored, while too few replicas are in sync.

        Args:
            reason: the remark for producers; None accepts them again.
        """
        self._refusal = reason
        # Without a cached policy every send is checked, those of the compiled path included.
        self.known.clear()

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config
        # Policies contain the old permissions; a thread that is computing one is handled by
        # `_remember`.
        self.known.clear()

    def forget(self, topic: str) -> None:
        """Drop the policy of a changed or deleted topic."""
        self.known.pop(topic, None)

    def exists(self, topic: str) -> bool:
        """Return whether the broker has a topic."""
        return self._topics.get(topic) is not None

    def is_written(self, topic: str) -> bool:
        """Return whether a topic is on disk."""
        return self._topics.is_written(topic)

    def when_settled(self, topic: str, done: Settled) -> None:
        """Call back once a topic is on disk, or with why it is not."""
        self._topics.when_created((topic,), done)

    def not_created(self, failure: Exception | None = None) -> Refusal:
        """Return the refusal for a topic that could not be written; the next send tries again.

        Args:
            failure: the reason; None uses that of the topic table.
        """
        why = failure or self._topics.failure or "try again"
        return self.not_available(f"the topic cannot be created: {why}")

    def admit(self, request: SendRequest) -> TopicSendPolicy | Refusal:
        """Check a send to a topic without a simple policy, and cache the policy."""
        config = self._config
        if self._refusal is not None:
            is_short = self._refusal.startswith(ROLE_CHANGE)
            code = ResponseCode.SERVICE_NOT_AVAILABLE if is_short else ResponseCode.SYSTEM_ERROR
            return Refusal(code, self._refusal)
        opens_ms = config.start_accept_send_request_time_stamp
        if opens_ms > self._clock.time_ms():
            return Refusal(ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {opens_ms}")
        topic = request.topic
        problem = check_topic(topic)
        if problem is not None:
            return Refusal(ResponseCode.INVALID_PARAMETER, problem)
        if topic in NOT_SENDABLE_TOPICS:
            remark = f"Sending message to topic[{topic}] is forbidden."
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        try:
            found = self._topics.get(topic) or self._create(request)
        except (StoreError, OSError) as error:
            return self.not_created(error)
        if found is None:
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, self._topics.absence(topic))
        if found.is_batch_cq:
            return _NO_BATCH_CQ
        writable = bool(config.broker_permission & PERM_WRITE)
        if not writable and found.order:
            remark = f"the broker[{config.broker_name}] sending message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        policy = _policy(
            topic,
            found,
            is_open=opens_ms == 0 and (writable or not found.order),
            is_written=self._topics.is_written(topic),
        )
        # Only topics on disk are cached: the fast path never makes a sender wait for its topic.
        if policy.is_written:
            self._remember(topic, policy, config)
        return policy

    def _remember(self, topic: str, policy: TopicSendPolicy, config: BrokerConfig) -> None:
        self.known[topic] = policy
        # A change of the topic (or the settings) calls `forget` after it was made. If that call
        # came before the line above, the change is seen here; if it comes later, it removes the
        # policy. So no outdated policy stays.
        is_current = self._topics.get(topic) is policy.config and self._config is config
        if not is_current or self._refusal is not None:
            self.known.pop(topic, None)

    def admit_batch(self, topic: str, sys_flag: int, body_bytes: int) -> Refusal | None:
        """Reject requests that are not allowed for batches."""
        if topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {topic}"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if sys_flag & TRANSACTION_MASK:
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, "a batch cannot be transactional")
        if body_bytes > self.max_body_bytes:
            return self.too_large()
        return None

    def bad_queue(self, request: SendRequest, policy: TopicSendPolicy) -> Refusal:
        """Return the refusal of a queue id that the topic does not have."""
        return Refusal(
            ResponseCode.INVALID_PARAMETER,
            f"request queueId[{request.queue_id}] is illegal (topic {request.topic}, "
            f"{policy.queue_limit} queues). Producer: {request.producer}",
        )

    def too_large(self) -> Refusal:
        """Return the refusal of a body or properties over the limit."""
        return Refusal(
            ResponseCode.MESSAGE_ILLEGAL,
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {self.max_body_bytes}B, msg properties length limit 32KB.",
        )

    def not_available(self, reason: str | None = None) -> Refusal:
        """Return the refusal while the store accepts nothing."""
        why = reason or self._unavailable_reason() or "disk full, read-only or shutting down"
        return Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now. {why}")

    def not_stored(self, status: PutMessageStatus) -> Refusal:
        """Return the refusal for the status of a failed put."""
        if status in {PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED}:
            return self.too_large()
        if status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
            return self.not_available()
        if status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
            return self.not_available(self._shortage() or "a resource of the broker runs short")
        return _BY_STATUS.get(status) or Refusal(ResponseCode.SYSTEM_ERROR, status.value)

    def _create(self, request: SendRequest) -> TopicConfig | None:
        topic = request.topic
        is_retry = topic.startswith(RETRY_PREFIX)
        sys_flag = (_UNIT_SUB if is_retry else _UNIT) if request.is_unit else 0
        created = self._topics.create_on_send(
            topic, request.template, request.template_queue_nums, sys_flag
        )
        # A retry topic is created even without auto-creation: its group exists.
        if created is None and is_retry:
            created = self._topics.create_on_send_back(topic, 1, topic_sys_flag=sys_flag)
        return created


def _policy(topic: str, config: TopicConfig, *, is_open: bool, is_written: bool) -> TopicSendPolicy:
    is_plain = not topic.startswith(RETRY_PREFIX)
    return TopicSendPolicy(
        config=config,
        is_simple=is_open and is_plain,
        is_open=is_open,
        is_plain=is_plain,
        queue_limit=max(config.read_queue_nums, config.write_queue_nums),
        write_queue_nums=config.write_queue_nums,
        sys_flag=MULTI_TAGS if config.topic_filter_type == "MULTI_TAG" else 0,
        is_written=is_written,
    )


_NO_BATCH_CQ: Final = Refusal(
    ResponseCode.MESSAGE_ILLEGAL,
    "this broker version does not support topics with queue.type BatchCQ",
)

_BY_STATUS: Final[Mapping[PutMessageStatus, Refusal]] = MappingProxyType(
    {
        status: Refusal(code, remark)
        for status, code, remark in (
            (PutMessageStatus.FLUSH_DISK_TIMEOUT, ResponseCode.FLUSH_DISK_TIMEOUT, ""),
            (PutMessageStatus.FLUSH_SLAVE_TIMEOUT, ResponseCode.FLUSH_SLAVE_TIMEOUT, ""),
            (PutMessageStatus.SLAVE_NOT_AVAILABLE, ResponseCode.SLAVE_NOT_AVAILABLE, ""),
            (
                PutMessageStatus.OS_PAGE_CACHE_BUSY,
                ResponseCode.SYSTEM_BUSY,
                "[PC_SYNCHRONIZED]broker busy, start flow control for a while",
            ),
            (
                PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH,
                ResponseCode.SYSTEM_ERROR,
                "in-sync replicas not enough",
            ),
            (PutMessageStatus.UNKNOWN_ERROR, ResponseCode.SYSTEM_ERROR, "UNKNOWN_ERROR"),
            (
                PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
                ResponseCode.SYSTEM_ERROR,
                "too many light queues",
            ),
            (
                PutMessageStatus.WHEEL_TIMER_FLOW_CONTROL,
                ResponseCode.SYSTEM_BUSY,
                "timer message is under flow control",
            ),
            (
                PutMessageStatus.WHEEL_TIMER_MSG_ILLEGAL,
                ResponseCode.MESSAGE_ILLEGAL,
                "timer message illegal",
            ),
            (
                PutMessageStatus.WHEEL_TIMER_NOT_ENABLE,
                ResponseCode.SYSTEM_ERROR,
                "accurate timer message is not enabled",
            ),
        )
    }
)
