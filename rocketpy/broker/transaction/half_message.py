"""A half message: what a transactional message is until its producer commits it.

It lies in a topic that no consumer reads; its own topic and queue are properties. Its transaction
bits are cleared, so that it has a place in a queue, by which its producer and the check name it.

Source: TransactionalMessageBridge (parseHalfMessageInner, renewHalfMessageInner,
renewImmunityHalfMessageInner), EndTransactionProcessor.endMessageTransaction,
DefaultTransactionalMessageCheckListener.toMessageExtBrokerInner (5.4.0).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send_request import SendRequest
from rocketpy.broker.system_topics.property_cache import PropertyTemplate, outline_of
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
"""Leaves room for what a check adds."""
_BROKERS_OWN: Final = (PROPERTY_TRANSACTION_CHECK_TIMES, PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET)


def is_half_message(properties: Mapping[str, str], reconsume_times: int) -> bool:
    """Whether a message that is sent begins a transaction.

    A committed message keeps TRAN_MSG, and clients before 4.6.1 send it back with it: so a retry
    with a delay is none.
    """
    if properties.get(PROPERTY_TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return reconsume_times == 0 or not as_int(properties.get(PROPERTY_DELAY_TIME_LEVEL), 0) > 0


def as_int(text: str | None, default: int) -> int:
    """A property as a number; `default` when there is none, or it is none."""
    try:
        return int(text) if text is not None else default
    except ValueError:
        return default


class HalfMessages:
    """Turns a transactional message into a half message on its way to the store.

    Args:
        config: the broker's settings; see `configure`.
        address: this broker's address, for a refusal.

    Attributes:
        rejects: whether transactional messages are refused.
    """

    def __init__(self, config: BrokerConfig, address: str) -> None:
        self.rejects: bool = config.reject_transaction_message
        self._address = address

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings."""
        self.rejects = config.reject_transaction_message

    def __call__(
        self, message: PutMessage, properties: dict[str, str], _request: SendRequest
    ) -> Refusal | None:
        """See `rocketpy.broker.operation.send.put_transforms.PutTransform`."""
        if not is_half_message(properties, message.reconsume_times):
            if message.sys_flag & TRANSACTION_PREPARED:
                # Stored as it is, it would never be seen.
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


class RealPlace(NamedTuple):
    """Where a half message goes when it is committed."""

    topic: str
    queue_id: int


def real_place(properties: Mapping[str, str]) -> RealPlace | None:
    """Where a half message goes when it is committed; None when it does not say."""
    topic = properties.get(PROPERTY_REAL_TOPIC)
    queue_id = as_int(properties.get(PROPERTY_REAL_QUEUE_ID), -1)
    return RealPlace(topic, queue_id) if topic and queue_id >= 0 else None


def immunity_ms(properties: Mapping[str, str], timeout_ms: int) -> int | None:
    """How long its producer wants a half not to be checked, ms; None when it does not say."""
    text = properties.get(PROPERTY_CHECK_IMMUNITY_TIME)
    if not text:
        return None
    seconds = as_int(text, -1)
    return timeout_ms if seconds == -1 else seconds * 1000


class HalfOutline(NamedTuple):
    """What the end of a transaction needs of its half's properties.

    Attributes:
        properties: those of the half that an end looks at.
        place: where it goes when it is committed, if it says so.
        committed: the properties it has there.
    """

    properties: Mapping[str, str]
    place: RealPlace | None
    committed: PropertyTemplate


def half_outline(properties: dict[str, str], _: object = None) -> HalfOutline:
    """Read a half's properties; for `PropertyTemplates`."""
    wanted = (PROPERTY_PRODUCER_GROUP, PROPERTY_CHECK_IMMUNITY_TIME)
    kept = {name: properties[name] for name in wanted if name in properties}
    place = real_place(properties)
    properties.pop(PROPERTY_REAL_TOPIC, None)
    properties.pop(PROPERTY_REAL_QUEUE_ID, None)
    return HalfOutline(kept, place, outline_of(properties))


def committed_message(
    half: RawRecord, place: RealPlace, properties: PropertyTemplate, uniq_key: bytes
) -> PutMessage:
    """The message that consumers see once a half is committed.

    Args:
        half: as it is stored.
        place: where it goes.
        properties: see `HalfOutline`.
        uniq_key: what goes into them.
    """
    message = copy_of_raw(half, place.topic, place.queue_id, properties, uniq_key)
    message.sys_flag = (half.sys_flag & ~TRANSACTION_MASK) | TRANSACTION_COMMIT
    message.prepared_transaction_offset = half.phy_offset
    return message


def check_times(half: MessageExt) -> int:
    """How often its producer was asked about a half."""
    return as_int(half.properties.get(PROPERTY_TRANSACTION_CHECK_TIMES), 0)


def renewed_half(half: MessageExt, checks: int) -> PutMessage:
    """A half to store again at the end of its queue.

    Args:
        half: as it was read.
        checks: how often its producer was asked, this time included.
    """
    properties = half.properties.copy()
    if checks:
        properties[PROPERTY_TRANSACTION_CHECK_TIMES] = str(checks)
    properties.setdefault(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, str(half.queue_offset))
    return copy_of(half, TRANS_HALF_TOPIC, 0, properties)


def given_up(half: MessageExt) -> PutMessage:
    """A half for the topic of those that are asked about no more."""
    return copy_of(half, TRANS_CHECK_MAX_TIME_TOPIC, 0, half.properties)


def resumed_half(stored: MessageExt) -> PutMessage:
    """A half that was given up, to be asked about from the beginning."""
    properties = stored.properties.copy()
    properties[PROPERTY_TRANSACTION_CHECK_TIMES] = "0"
    properties.pop(PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET, None)
    return copy_of(stored, TRANS_HALF_TOPIC, 0, properties)
