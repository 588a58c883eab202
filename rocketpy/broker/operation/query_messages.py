"""Queries of single messages, by key or by physical offset.

A query by key reads the index and then each record it names, so it runs on a pool and never on an
event loop. It is bounded in records and bytes.

Source: QueryMessageProcessor.java (5.4.0).
"""

from typing import Final, NamedTuple

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.errors import RocketPyError
from rocketpy.proto.record.message import decode_message
from rocketpy.proto.record.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.store.interfaces import KeyIndex
from rocketpy.store.results import QueryIndexResult

_MAX_RECORDS_BYTES: Final = 15 * 1024 * 1024
"""Bound of one response: frames are limited to 16 MiB."""
_UNIQUE_KEY: Final = "U"
_KEY: Final = "K"
_TAG: Final = "T"


class KeyQuery(NamedTuple):
    """Parameters of a query by key.

    Attributes:
        topic: topic of the messages.
        key: one of their keys, their unique id or their tag.
        max_count: maximal number of messages.
        begin_ms: earliest store time.
        end_ms: latest store time.
        index_type: `K` key, `U` unique id, `T` tag; None is key or unique id.
        is_unique: whether the key is a unique id; then `max_count` is replaced by the default.
    """

    topic: str
    key: str
    max_count: int
    begin_ms: int
    end_ms: int
    index_type: str | None
    is_unique: bool


class FoundMessages(NamedTuple):
    """Messages with a key.

    Attributes:
        records: the stored records, newest first, in the order of the index.
        last_update_timestamp_ms: store time of the newest indexed message.
        last_update_phy_offset: physical offset of the newest indexed message.
    """

    records: list[bytes]
    last_update_timestamp_ms: int
    last_update_phy_offset: int


class QueryMessages:
    """Queries single messages.

    Args:
        store: the message store.
        default_count: maximal number of results of a query by unique id.
        max_count: maximal number of results of any query.
    """

    def __init__(self, store: KeyIndex, *, default_count: int, max_count: int) -> None:
        self._store = store
        self._default_count = default_count
        self._max_count = max_count

    def by_key(self, query: KeyQuery) -> FoundMessages | Refusal:
        """Return the messages with a key."""
        wanted_count, index_type = query.max_count, query.index_type
        if query.is_unique:
            wanted_count = self._default_count
            index_type = index_type or _UNIQUE_KEY
        found = self._store.query_index(
            query.topic,
            query.key,
            max(1, min(wanted_count, self._max_count)),
            query.begin_ms,
            query.end_ms,
            index_type,
            # The index contains only hashes, which collide.
            accept=lambda phy_offset: self._record(phy_offset, query, index_type) is not None,
        )
        records = self._records(found, query, index_type)
        if not records:
            remark = "can not find message, maybe time range not correct"
            return Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return FoundMessages(records, found.last_update_timestamp_ms, found.last_update_phy_offset)

    def by_phy_offset(self, phy_offset: int) -> bytes | Refusal:
        """Return the message at a physical offset."""
        try:
            record = self._store.look_message(phy_offset) if phy_offset >= 0 else None
        except RocketPyError:
            record = None
        if record is None:
            remark = f"can not find message by the offset, {phy_offset}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return bytes(record)

    def _record(self, phy_offset: int, query: KeyQuery, index_type: str | None) -> bytes | None:
        """Return the record at an offset; None if it has another key, is damaged or deleted."""
        try:
            view = self._store.look_message(phy_offset)
            record = None if view is None else bytes(view)
            if record is None or not _has_key(record, query.topic, query.key, index_type):
                return None
        except RocketPyError:
            # A damaged record must not hide the others.
            return None
        return record

    def _records(
        self, found: QueryIndexResult, query: KeyQuery, index_type: str | None
    ) -> list[bytes]:
        records: list[bytes] = []
        size_bytes = 0
        for phy_offset in found.phy_offsets:
            record = self._record(phy_offset, query, index_type)
            if record is None:
                continue
            size_bytes += len(record)
            # The first record is returned whatever its size.
            if records and size_bytes > _MAX_RECORDS_BYTES:
                break
            records.append(record)
        return records


def _has_key(record: bytes, topic: str, key: str, index_type: str | None) -> bool:
    """Return whether a record has the key."""
    message = decode_message(record, inflate=False)
    # The index hashes topic and key together, so another topic's record may be found.
    if message.topic != topic:
        return False
    properties = message.properties
    if index_type == _TAG:
        return properties.get(PROPERTY_TAGS) == key
    by_id = properties.get(PROPERTY_UNIQ_KEY) == key
    if index_type == _UNIQUE_KEY:
        return by_id
    by_key = key in properties.get(PROPERTY_KEYS, "").split(" ")
    return by_key if index_type == _KEY else by_id or by_key
