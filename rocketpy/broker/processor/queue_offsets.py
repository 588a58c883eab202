"""Adapter of queries for the ends of queues (29 to 32).

A missing queue is answered like an empty one, because clients ask before the first message.
Source: AdminBrokerProcessor.java (5.4.0).
"""

from rocketpy.proto.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
)
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.store.interfaces import QueueTimes


class OffsetProcessor:
    """Processes queries for the ends of queues."""

    def __init__(self, store: QueueTimes) -> None:
        self._store = store

    @property
    def processors(self) -> dict[int, Processor]:
        """Processors by request code."""
        return {
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search,
            RequestCode.GET_MAX_OFFSET: self.last,
            RequestCode.GET_MIN_OFFSET: self.first,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self.earliest_time,
        }

    def search(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process SEARCH_OFFSET_BY_TIMESTAMP (29): first offset stored at or after a time."""
        header = SearchOffsetRequestHeader.from_ext(request.ext_fields)
        upper = (header.boundary_type or "").lower() == "upper"
        offset = self._store.offset_by_time(header.topic, header.queue_id, header.timestamp, upper)
        return _offset(request, offset)

    def last(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process GET_MAX_OFFSET (30): offset of the next message."""
        header = GetMaxOffsetRequestHeader.from_ext(request.ext_fields)
        return _offset(request, self._store.max_offset(header.topic, header.queue_id))

    def first(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process GET_MIN_OFFSET (31): first offset that is not deleted."""
        header = GetMinOffsetRequestHeader.from_ext(request.ext_fields)
        return _offset(request, self._store.min_offset(header.topic, header.queue_id))

    def earliest_time(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process GET_EARLIEST_MSG_STORETIME (32): store time of the first message."""
        header = GetEarliestMsgStoretimeRequestHeader.from_ext(request.ext_fields)
        time_ms = self._store.earliest_store_time_ms(header.topic, header.queue_id)
        response = GetEarliestMsgStoretimeResponseHeader(timestamp=time_ms)
        return make_response(request, ext_fields=response.to_ext())


def _offset(request: RemotingCommand, offset: int) -> RemotingCommand:
    response = OffsetResponseHeader(offset=max(0, offset))
    return make_response(request, ext_fields=response.to_ext())
