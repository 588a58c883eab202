"""Writer of messages that the broker itself stores: due delays, decided transactions, retries.

They bypass admission: their senders were admitted when they sent them.

Source: MessageExtBrokerInner, ScheduleMessageService.messageTimeUp,
TransactionalMessageBridge.renewHalfMessageInner (5.4.0).
"""

from collections.abc import Callable, Mapping
from typing import Final

from rocketpy.broker.property_templates import PropertyTemplate
from rocketpy.proto.record.message import MessageExt, host_to_bytes
from rocketpy.proto.record.properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    encode_properties,
)
from rocketpy.proto.record.raw_record import RawRecord
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.interfaces import MessageWriter
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus

NEVER_STORED: Final = frozenset(
    {PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED}
)
"""Results that another attempt does not change."""
_PUT_OK: Final = PutMessageStatus.PUT_OK


def copy_of(
    stored: MessageExt, topic: str, queue_id: int, properties: Mapping[str, str]
) -> PutMessage:
    """Return a copy of a stored message for another queue.

    Body, flags, times, hosts and the number of tries stay; index keys and the tags code follow the
    given properties.

    Args:
        stored: decoded with `inflate=False`, so that its body is as stored.
        topic: target topic.
        queue_id: target queue.
        properties: properties of the copy.
    """
    tags = properties.get(PROPERTY_TAGS)
    return PutMessage(
        topic,
        queue_id,
        stored.body,
        encode_properties(properties),
        host_to_bytes(stored.born_host),
        stored.flag,
        stored.sys_flag,
        stored.born_timestamp_ms,
        tags_code(tags) if tags else 0,
        properties.get(PROPERTY_UNIQ_KEY),
        properties.get(PROPERTY_KEYS),
        tags,
        stored.reconsume_times,
        stored.prepared_transaction_offset,
        store_host=host_to_bytes(stored.store_host),
    )


def copy_of_raw(
    stored: RawRecord, topic: str, queue_id: int, template: PropertyTemplate, uniq_key: bytes
) -> PutMessage:
    """Return a copy of a stored message for another queue like `copy_of`, without decoding it.

    Args:
        stored: the stored message.
        topic: target topic.
        queue_id: target queue.
        template: template of the properties of the copy.
        uniq_key: value of UNIQ_KEY, from `PropertyTemplates`.
    """
    properties, key = template.fill(uniq_key)
    return PutMessage(
        topic,
        queue_id,
        stored.body,
        properties,
        stored.born_host,
        stored.flag,
        stored.sys_flag,
        stored.born_timestamp_ms,
        template.tags_code,
        key,
        template.keys,
        template.tags,
        stored.reconsume_times,
        stored.prepared_transaction_offset,
        store_host=stored.store_host,
    )


class SystemWriter:
    """Stores messages of the broker itself, and counts them.

    Args:
        store: the message store.
        count: called with topic, number of messages and bytes.

    Attributes:
        parks: whether messages that cannot be stored for long may be parked; see `PutRetry`.
    """

    parks: bool = True

    def __init__(self, store: MessageWriter, count: Callable[[str, int, int], None]) -> None:
        self._store = store
        self._count = count

    def put(self, message: PutMessage) -> PutMessageResult:
        """Store a message; see the status for success. It may not be on disk yet."""
        result = self._store.put_message(message)
        if result.status is _PUT_OK:
            self._count(message.topic, 1, result.size_bytes)
        return result

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back once everything before `phy_end` is on disk (True), or failed (False)."""
        self._store.when_durable(phy_end, callback)
