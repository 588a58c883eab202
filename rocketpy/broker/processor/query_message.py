"""Adapter of QUERY_MESSAGE (12) and VIEW_MESSAGE_BY_ID (33) to `operation.query_messages`.

Source: QueryMessageProcessor.java (5.4.0).
"""

from rocketpy.broker.operation.query_messages import KeyQuery, QueryMessages
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.proto.headers.pull import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
)
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, encode_head, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor


class QueryMessageProcessor:
    """Processes queries of single messages."""

    def __init__(self, messages: QueryMessages) -> None:
        self._messages = messages

    @property
    def processors(self) -> dict[int, Processor]:
        """Processors by request code."""
        return {
            RequestCode.QUERY_MESSAGE: self.query,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view,
        }

    def query(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand | bytes:
        """Process QUERY_MESSAGE (12): return the messages with a key, newest first."""
        header = QueryMessageRequestHeader.from_ext(request.ext_fields)
        found = self._messages.by_key(
            KeyQuery(
                header.topic,
                header.key,
                header.max_num,
                header.begin_timestamp,
                header.end_timestamp,
                header.index_type or None,
                bool(header.unique_key_query),
            )
        )
        if isinstance(found, Refusal):
            return make_response(request, *found)
        ext_fields = QueryMessageResponseHeader(
            index_last_update_timestamp=found.last_update_timestamp_ms,
            index_last_update_phyoffset=found.last_update_phy_offset,
        ).to_ext()
        return _frame(make_response(request, ext_fields=ext_fields), b"".join(found.records))

    def view(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand | bytes:
        """Process VIEW_MESSAGE_BY_ID (33): return the message at a physical offset."""
        header = ViewMessageRequestHeader.from_ext(request.ext_fields)
        record = self._messages.by_phy_offset(header.offset)
        if isinstance(record, Refusal):
            return make_response(request, *record)
        return _frame(make_response(request), record)


def _frame(response: RemotingCommand, body: bytes) -> bytes:
    return encode_head(response, len(body)) + body
