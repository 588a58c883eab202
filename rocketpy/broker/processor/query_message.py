"""QUERY_MESSAGE (12) by key, VIEW_MESSAGE_BY_ID (33) by physical offset.

Source: QueryMessageProcessor.java (5.4.0).
"""

from typing import Final, Protocol

from rocketpy.errors import RocketPyError
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand, encode_head, make_response
from rocketpy.proto.headers.pull import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketpy.proto.message import decode_message
from rocketpy.proto.properties import PROPERTY_UNIQ_KEY
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor
from rocketpy.store.results import QueryIndexResult

_MAX_BODY_BYTES: Final = 15 * 1024 * 1024
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


class QueryMessageProcessor:
    """Finds single messages."""

    def __init__(self, store: MessageFinder, *, default_count: int, max_count: int) -> None:
        """Set the limits.

        Args:
            store: where to look.
            default_count: how many a look-up by unique id returns at most.
            max_count: how many any look-up returns at most.
        """
        self._store = store
        self._default_count = default_count
        self._max_count = max_count

    @property
    def processors(self) -> dict[int, Processor]:
        """Request code to processor."""
        return {
            RequestCode.QUERY_MESSAGE: self.query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view,
        }

    def query(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand | bytes:
        """12: the messages with a key, newest first as the index has them."""
        header = QueryMessageRequestHeader.from_ext(request.ext_fields)
        topic, key, max_count = header.topic, header.key, header.max_num
        begin_ms, end_ms = header.begin_timestamp, header.end_timestamp
        index_type = header.index_type or None
        if header.unique_key_query:
            max_count = self._default_count
            index_type = index_type or _UNIQUE_KEY
        max_count = max(1, min(max_count, self._max_count))
        found = self._store.query_index(topic, key, max_count, begin_ms, end_ms, index_type)
        records = self._records(found, topic, key, index_type)
        if not records:
            return make_response(
                request,
                ResponseCode.QUERY_NOT_FOUND,
                "can not find message, maybe time range not correct",
            )
        response = QueryMessageResponseHeader(
            index_last_update_timestamp=found.last_update_timestamp_ms,
            index_last_update_phyoffset=found.last_update_phy_offset,
        )
        return _frame(make_response(request, ext_fields=response.to_ext()), b"".join(records))

    def view(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand | bytes:
        """33: the message at a physical offset."""
        offset = ViewMessageRequestHeader.from_ext(request.ext_fields).offset
        try:
            record = self._store.look_message(offset) if offset >= 0 else None
        except RocketPyError:
            record = None
        if record is None:
            return make_response(
                request,
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {offset}",
            )
        return _frame(make_response(request), bytes(record))

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
            if records and size_bytes > _MAX_BODY_BYTES:
                break
            records.append(record)
        return records


def _has_key(record: bytes, topic: str, key: str, index_type: str | None) -> bool:
    """The index knows hashes only; the record knows its keys."""
    message = decode_message(record, inflate=False)
    if message.topic != topic:
        return False
    if index_type == _TAG:
        return message.tags == key
    by_id = message.properties.get(PROPERTY_UNIQ_KEY) == key
    if index_type == _UNIQUE_KEY:
        return by_id
    by_key = key in message.keys
    return by_key if index_type == _KEY else by_id or by_key


def _frame(response: RemotingCommand, body: bytes) -> bytes:
    return encode_head(response, len(body)) + body
