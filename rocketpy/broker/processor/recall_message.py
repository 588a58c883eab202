"""Adapter of RECALL_MESSAGE (370) to `operation.scheduling.recall`.

Source: RecallMessageProcessor (5.4.0).
"""

from typing import Final

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.scheduling.recall import RecallOperation, RecallRequest
from rocketpy.proto.headers.send import RecallMessageRequestHeader, RecallMessageResponseHeader
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor, Response

_NOT_DURABLE: Final = Refusal(
    ResponseCode.FLUSH_DISK_TIMEOUT,
    "the recall is stored but not yet on disk, or not on enough slaves",
)


class RecallMessageProcessor:
    """Processes recalls of timed messages."""

    def __init__(self, recalls: RecallOperation, region_id: str) -> None:
        self._recalls = recalls
        self.region_id = region_id

    @property
    def processors(self) -> dict[int, Processor]:
        """Processors by request code."""
        return {RequestCode.RECALL_MESSAGE: self.recall}

    def recall(self, channel: Channel, request: RemotingCommand) -> Response:
        """Process RECALL_MESSAGE (370): cancel the delivery of a timed message."""
        header = RecallMessageRequestHeader.from_ext(request.ext_fields)
        done = self._recalls.recall(
            RecallRequest(
                header.topic,
                header.recall_handle,
                header.producer_group or "",
                channel.remote_host_bytes,
            )
        )
        region_id = self.region_id
        if isinstance(done, Refusal):
            return _refused(request, done, region_id)
        deferred = channel.defer(request)

        def settled(is_durable: bool) -> None:
            if is_durable:
                sent = RecallMessageResponseHeader(msg_id=done.message_id, region_id=region_id)
                deferred.set(make_response(deferred.request, ext_fields=sent.to_ext()))
            else:
                deferred.set(_refused(deferred.request, _NOT_DURABLE, region_id))

        self._recalls.when_durable(done, settled)
        return deferred


def _refused(request: RemotingCommand, refusal: Refusal, region_id: str) -> RemotingCommand:
    header = RecallMessageResponseHeader(region_id=region_id)
    return make_response(request, refusal.code, refusal.remark, header.to_ext())
