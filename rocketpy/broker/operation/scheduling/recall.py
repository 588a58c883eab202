"""Recall of a timed message: a second timed message for the same time, which removes the first.

Source: RecallMessageProcessor, TimerMessageStore.buildDeleteKey (5.4.0).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.scheduling.delivery_time import decimal
from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.errors import BadBodyError
from rocketpy.proto.perm import PERM_WRITE
from rocketpy.proto.recall_handle import RecallHandle, decode_recall_handle
from rocketpy.proto.record.properties import (
    PROPERTY_BORN_TIMESTAMP,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_TAGS,
    PROPERTY_TIMER_DEL_UNIQKEY,
    PROPERTY_TIMER_DELIVER_MS,
    PROPERTY_UNIQ_KEY,
    encode_properties,
)
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.runtime.clock import Clock
from rocketpy.store.results import PutMessage, PutMessageStatus

_TAG: Final = "_RECALL_TAG_"
_BODY: Final = b"0"

_FORBIDDEN: Final = Refusal(
    ResponseCode.NO_PERMISSION,
    "recall failed, operation is forbidden: recallMessageEnable is false",
)
_NOT_AVAILABLE: Final = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available"
)


class RecallRequest(NamedTuple):
    """Parameters of a recall.

    Attributes:
        topic: topic of the message.
        handle: recall handle from the response to the send.
        producer_group: group of the producer.
        born_host: address of the producer, in the format of records.
    """

    topic: str
    handle: str
    producer_group: str
    born_host: bytes


class Recalled(NamedTuple):
    """A stored recall.

    Attributes:
        message_id: id of the recalled message.
        phy_end: the recall is durable once the commit log is flushed up to here.
    """

    message_id: str
    phy_end: int


class RecallOperation:
    """Recalls timed messages; safe from any thread.

    Args:
        put: stores the recall.
        postponement: schedules the recall for the time of the message.
        topic_exists: returns whether a topic exists.
        config: the broker's settings; see `configure`.
        clock: time.
    """

    def __init__(
        self,
        put: SystemWriter,
        postponement: MessageScheduler,
        *,
        topic_exists: Callable[[str], bool],
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        self._put = put
        self._postponement = postponement
        self._topic_exists = topic_exists
        self._config = config
        self._clock = clock

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config

    def when_durable(self, recalled: Recalled, callback: Callable[[bool], None]) -> None:
        """Call back once a recall is as durable as the store's mode requires, or failed."""
        self._put.when_durable(recalled.phy_end, callback)

    def recall(self, request: RecallRequest) -> Recalled | Refusal:
        """Recall a message.

        The message is not delivered if the recall enters the timer wheel before it is due.
        """
        handle = self._admit(request)
        if isinstance(handle, Refusal):
            return handle
        now_ms = self._clock.time_ms()
        # The key of the recalled message identifies it in the slot that both share.
        properties = {
            PROPERTY_TAGS: _TAG,
            PROPERTY_TIMER_DEL_UNIQKEY: handle.message_id,
            PROPERTY_UNIQ_KEY: handle.message_id,
            PROPERTY_TIMER_DELIVER_MS: handle.timestamp,
            PROPERTY_BORN_TIMESTAMP: str(now_ms),
        }
        if request.producer_group:
            properties[PROPERTY_PRODUCER_GROUP] = request.producer_group
        message = PutMessage(
            handle.topic,
            0,
            _BODY,
            encode_properties(properties),
            request.born_host,
            born_timestamp_ms=now_ms,
            tags_code=tags_code(_TAG),
            uniq_key=handle.message_id,
            tags=_TAG,
        )
        # Through the scheduler like the message itself, so that both get the same slot.
        refused = self._postponement.postpone(message)
        if refused is not None:
            return refused
        result = self._put.put(message)
        if result.status is PutMessageStatus.PUT_OK:
            return Recalled(handle.message_id, result.phy_end)
        remark = f"recall failed, execute error: {result.status.value}"
        return Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _admit(self, request: RecallRequest) -> RecallHandle | Refusal:
        config, now_ms = self._config, self._clock.time_ms()
        if not config.recall_message_enable:
            return _FORBIDDEN
        if config.start_accept_send_request_time_stamp > now_ms:
            return _NOT_AVAILABLE
        if not config.broker_permission & PERM_WRITE:
            return _NOT_AVAILABLE
        # Before the handle is decoded: Apache reports a missing topic first.
        if not self._topic_exists(request.topic):
            remark = f"recall failed, the topic[{request.topic}] not exist"
            return Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        try:
            handle = decode_recall_handle(request.handle)
        except BadBodyError as error:
            return _illegal(str(error))
        if handle.topic != request.topic:
            return _illegal("recall failed, topic not match")
        # Each broker has its own timer wheel: the message is not in that of another broker.
        if handle.broker_name != config.broker_name:
            return _illegal("recall failed, broker service not available")
        moment_ms = decimal(handle.timestamp)
        # A time in the past means that the message was delivered.
        limit_ms = self._postponement.timers.max_delay_ms
        if moment_ms is None or not 0 < moment_ms - now_ms < limit_ms:
            return _illegal("recall failed, timestamp invalid")
        return handle


def _illegal(remark: str) -> Refusal:
    return Refusal(ResponseCode.ILLEGAL_OPERATION, remark)
