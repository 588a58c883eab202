"""Messages that the broker itself stores: a delay that is due, a decided transaction, a retry.

They take no way through admission: who sent them first was admitted.

Source: MessageExtBrokerInner, ScheduleMessageService.messageTimeUp,
TransactionalMessageBridge.renewHalfMessageInner (5.4.0).
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from rocketpy.broker.system_topics.property_cache import PropertyTemplate, filled
from rocketpy.proto.record.message import MessageExt, host_to_bytes
from rocketpy.proto.record.properties import (
    PROPERTY_KEYS,
    PROPERTY_TAGS,
    PROPERTY_UNIQ_KEY,
    encode_properties,
)
from rocketpy.proto.record.raw_record import RawRecord
from rocketpy.proto.record.tags import tags_code
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus

NEVER_STORED: Final = frozenset(
    {PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED}
)
"""Trying again helps nothing."""
_PUT_OK: Final = PutMessageStatus.PUT_OK


class _Store(Protocol):
    def put_message(self, message: PutMessage) -> PutMessageResult: ...

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None: ...


def copy_of(
    stored: MessageExt, topic: str, queue_id: int, properties: Mapping[str, str]
) -> PutMessage:
    """Return a stored message as one to store again, elsewhere.

    Body, flags, times, hosts and the number of tries stay; index keys and the tags code follow
    the given properties.

    Args:
        stored: decoded with ``inflate=False``, so that its body is as it was stored.
        topic: where to.
        queue_id: queue within the topic.
        properties: of the new message.
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
    stored: RawRecord, topic: str, queue_id: int, outline: PropertyTemplate, uniq_key: bytes
) -> PutMessage:
    """Return a stored message as one to store again, as `copy_of` does, without decoding it.

    Args:
        stored: as it was stored.
        topic: where to.
        queue_id: queue within the topic.
        outline: of the new message's properties.
        uniq_key: what goes into it, from `PropertyTemplates`.
    """
    properties, key = filled(outline, uniq_key)
    return PutMessage(
        topic,
        queue_id,
        stored.body,
        properties,
        stored.born_host,
        stored.flag,
        stored.sys_flag,
        stored.born_timestamp_ms,
        outline.tags_code,
        key,
        outline.keys,
        outline.tags,
        stored.reconsume_times,
        stored.prepared_transaction_offset,
        store_host=stored.store_host,
    )


class SystemWriter:
    """Stores messages of the broker's own making and counts them.

    Args:
        store: where to.
        count: told topic, number of messages and bytes.
    """

    def __init__(self, store: _Store, count: Callable[[str, int, int], None]) -> None:
        self._store = store
        self._count = count

    def put(self, message: PutMessage) -> PutMessageResult:
        """Store one message; its status says whether it is stored. It may not be on disk yet."""
        result = self._store.put_message(message)
        if result.status is _PUT_OK:
            self._count(message.topic, 1, result.size_bytes)
        return result

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back once everything before `phy_end` is on disk (True) or failed (False)."""
        self._store.when_durable(phy_end, callback)
