"""Finding single messages: by key, by physical offset.

A look-up by key reads the index and then every record it names, so it belongs on a pool, never on
a loop; it is bounded in records and bytes.

Source: QueryMessageProcessor.java (5.4.0).
"""

from typing import Final, NamedTuple, Protocol

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.errors import RocketPyError
from rocketpy.proto.record.message import decode_message
from rocketpy.proto.record.properties import PROPERTY_KEYS, PROPERTY_TAGS, PROPERTY_UNIQ_KEY
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.store.results import QueryIndexResult

_MAX_RECORDS_BYTES: Final = 15 * 1024 * 1024
_UNIQUE_KEY: Final = "U"
_KEY: Final = "K"
_TAG: Final = "T"


class MessageFinder(Protocol):
    """What these requests need of the store."""

    def query_index(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin_ms: int,
        end_ms: int,
        index_type: str | None = None,
    ) -> QueryIndexResult:
        """Find records by key."""
        ...

    def look_message(self, phy_offset: int) -> memoryview | None:
        """One whole record."""
        ...


class KeyQuery(NamedTuple):
    """What to look for.

    Attributes:
        topic: of the messages.
        key: one of their keys, their unique id or their tag.
        max_count: how many at most.
        begin_ms: stored then or later.
        end_ms: stored then or before.
        index_type: ``K`` key, ``U`` unique id, ``T`` tag; None is key or unique id.
        is_unique: the key is a unique id: as many as are found, up to the default.
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
        records: as stored, newest first as the index has them.
        last_update_timestamp_ms: store time of the newest indexed message.
        last_update_phy_offset: physical offset of the newest indexed message.
    """

    records: list[bytes]
    last_update_timestamp_ms: int
    last_update_phy_offset: int


class QueryMessages:
    """Finds single messages.

    Args:
        store: where to look.
        default_count: how many a look-up by unique id returns at most.
        max_count: how many any look-up returns at most.
    """

    def __init__(self, store: MessageFinder, *, default_count: int, max_count: int) -> None:
        self._store = store
        self._default_count = default_count
        self._max_count = max_count

    def by_key(self, query: KeyQuery) -> FoundMessages | Refusal:
        """The messages with a key."""
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
        )
        records = self._records(found, query.topic, query.key, index_type)
        if not records:
            remark = "can not find message, maybe time range not correct"
            return Refusal(ResponseCode.QUERY_NOT_FOUND, remark)
        return FoundMessages(records, found.last_update_timestamp_ms, found.last_update_phy_offset)

    def by_phy_offset(self, phy_offset: int) -> bytes | Refusal:
        """The message at a physical offset."""
        try:
            record = self._store.look_message(phy_offset) if phy_offset >= 0 else None
        except RocketPyError:
            record = None
        if record is None:
            remark = f"can not find message by the offset, {phy_offset}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return bytes(record)

    def _records(
        self, found: QueryIndexResult, topic: str, key: str, index_type: str | None
    ) -> list[bytes]:
        records: list[bytes] = []
        size_bytes = 0
        for phy_offset in found.phy_offsets:
            try:
                view = self._store.look_message(phy_offset)
                record = None if view is None else bytes(view)
                if record is None or not _has_key(record, topic, key, index_type):
                    continue
            except RocketPyError:
                # A damaged record costs only itself.
                continue
            size_bytes += len(record)
            if records and size_bytes > _MAX_RECORDS_BYTES:
                break
            records.append(record)
        return records


def _has_key(record: bytes, topic: str, key: str, index_type: str | None) -> bool:
    """The index knows hashes only; the record knows its keys."""
    message = decode_message(record, inflate=False)
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
