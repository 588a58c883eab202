"""Half messages: the stored form of transactional messages until their producer commits them.

A half message is in a topic that no consumer reads; its topic and queue are properties. Its
transaction bits are cleared: the store then gives it a queue offset, which identifies it in
decisions and in the check-back.

Source: TransactionalMessageBridge (parseHalfMessageInner, renewHalfMessageInner,
renewImmunityHalfMessageInner), EndTransactionProcessor.endMessageTransaction,
DefaultTransactionalMessageCheckListener.toMessageExtBrokerInner (5.4.0).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.broker.property_templates import PropertyTemplate
from rocketpy.broker.system_topics.system_writer import copy_of, copy_of_raw
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import (
    PROPERTY_CHECK_IMMUNITY_TIME,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_PRODUCER_GROUP,
    PROPERTY_REAL_QUEUE_ID,
    PROPERTY_REAL_TOPIC,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET,
    encode_properties,
)
from rocketpy.proto.record.raw_record import RawRecord
from rocketpy.proto.record.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
)
from rocketpy.proto.topic_names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from rocketpy.proto.validators import MAX_PROPERTIES_BYTES
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.store.results import PutMessage

MAX_HALF_PROPERTIES_BYTES: Final = MAX_PROPERTIES_BYTES - 96
"""Bound on the properties of a half message: a check-back adds up to 96 bytes to them."""
_BROKERS_OWN: Final = (PROPERTY_TRANSACTION_CHECK_TIMES, PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)


def is_half_message(properties: Mapping[str, str], reconsume_times: int) -> bool:
    """Return whether a sent message starts a transaction.

    A committed message keeps TRAN_MSG, and clients before 4.6.1 return it with that property when
    its consumption failed. A retried message with a delay level is therefore not a half message.
    """
    if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return reconsume_times == 0 or not as_int(properties.get(PROPERTY_DELAY_TIME_LEVEL), 0) > 0


def as_int(text: str | None, default: int) -> int:
    """Return a property as a number; `default` when it is missing or not a number."""
    try:
        return int(text) if text is not None else default
    except ValueError:
        return default


class HalfMessages:
    """Converts transactional messages to half messages before they are stored.

    Args:
        config: the broker's settings; see `configure`.
        address: this broker's address, for refusals.

    Attributes:
        rejects: whether transactional messages are refused.
    """

    def __init__(self, config: BrokerConfig, address: str) -> None:
        self.rejects: bool = config.reject_transaction_message
        self._address = address

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self.rejects = config.reject_transaction_message

    def __call__(
        self, message: PutMessage, properties: dict[str, str], _request: SendRequest
    ) -> Refusal | None:
        """See `rocketpy.broker.operation.send.put_transforms.PutTransform`."""
        if not is_half_message(properties, message.reconsume_times):
            if message.sys_flag & TRANSACTION_PREPARED:
                # With the flag alone it would be stored without a queue offset: never visible.
                remark = "the transaction flag is set, but property TRAN_MSG is not true"
                return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
            return None
        if self.rejects:
            remark = f"the broker[{self._address}] sending transaction message is forbidden"
            return Refusal(ResponseCode.NO_PERMISSION, remark)
        if not properties.get(PROPERTY_PRODUCER_GROUP):
            remark = "a transactional message needs property PGROUP: its producer's group"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        for name in _BROKERS_OWN:
            properties.pop(name, None)
        if message.uniq_key:
            properties[PROPERTY_TRANSACTION_ID] = message.uniq_key
        properties[PROPERTY_REAL_TOPIC] = message.topic
        properties[PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
        message.properties = encode_properties(properties)
        if len(message.properties) > MAX_HALF_PROPERTIES_BYTES:
            remark = f"the properties of a half message exceed {MAX_HALF_PROPERTIES_BYTES} bytes"
            return Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        message.sys_flag &= ~TRANSACTION_MASK
        message.topic, message.queue_id = TRANS_HALF_TOPIC, 0
        return None


class RealQueue(NamedTuple):
    """Topic and queue to which a half message is committed."""

    topic: str
    queue_id: int


def real_queue(properties: Mapping[str, str]) -> RealQueue | None:
    """Return the topic and queue of a half message's commit; None if no property holds them."""
    topic = properties.get(PROPERTY_REAL_TOPIC)
    queue_id = as_int(properties.get(PROPERTY_REAL_QUEUE_ID), -1)
    return RealQueue(topic, queue_id) if topic and queue_id >= 0 else None


def immunity_ms(properties: Mapping[str, str], timeout_ms: int) -> int | None:
    """Return how long a half must not be checked, in ms; None without such a property."""
    text = properties.get(PROPERTY_CHECK_IMMUNITY_TIME)
    if not text:
        return None
    seconds = as_int(text, -1)
    return timeout_ms if seconds == -1 else seconds * 1000


class HalfTemplate(NamedTuple):
    """Parsed properties of a half message, as far as its commit or rollback needs them.

    Attributes:
        properties: the properties that are checked.
        place: topic and queue to which it is committed, if given.
        committed: properties of the committed message.
    """

    properties: Mapping[str, str]
    place: RealQueue | None
    committed: PropertyTemplate


def half_template(properties: dict[str, str], _: object = None) -> HalfTemplate:
    """Parse the properties of a half message, as `PropertyTemplates` expects it."""
    wanted = (PROPERTY_PRODUCER_GROUP, PROPERTY_CHECK_IMMUNITY_TIME)
    kept = {name: properties[name] for name in wanted if name in properties}
    place = real_queue(properties)
    properties.pop(PROPERTY_REAL_TOPIC, None)
    properties.pop(PROPERTY_REAL_QUEUE_ID, None)
    return HalfTemplate(kept, place, PropertyTemplate.of(properties))


def committed_message(
    half: RawRecord, place: RealQueue, properties: PropertyTemplate, uniq_key: bytes
) -> PutMessage:
    """Return the message that consumers get once a half is committed.

    Args:
        half: the stored half.
        place: topic and queue of the message.
        properties: see `HalfTemplate`.
        uniq_key: value of UNIQ_KEY in the properties.
    """
    message = copy_of_raw(half, place.topic, place.queue_id, properties, uniq_key)
    message.sys_flag = (half.sys_flag & ~TRANSACTION_MASK) | TRANSACTION_COMMIT
    message.prepared_transaction_offset = half.phy_offset
    return message


def check_times(half: MessageExt) -> int:
    """Return how often a producer was asked about a half."""
    return as_int(half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES), 0)


def renewed_half(half: MessageExt, checks: int) -> PutMessage:
    """Return a copy of a half for the end of its queue.

    Args:
        half: the stored half.
        checks: how often a producer was asked, including this time.
    """
    properties = half.properties.copy()
    if checks:
        properties[PROPERTY_TRANSACTION_CHECK_TIMES] = str(checks)
    properties.setdefault(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
    return copy_of(half, TRANS_HALF_TOPIC, 0, properties)


def abandoned_half(half: MessageExt) -> PutMessage:
    """Return a copy of a half for the topic of abandoned halves."""
    return copy_of(half, TRANS_CHECK_MAX_TIME_TOPIC, 0, half.properties)


def resumed_half(stored: MessageExt) -> PutMessage:
    """Return a copy of an abandoned half for the half queue, with its count of checks reset."""
    properties = stored.properties.copy()
    properties[PROPERTY_TRANSACTION_CHECK_TIMES] = "0"
    properties.pop(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    return copy_of(stored, TRANS_HALF_TOPIC, 0, properties)
