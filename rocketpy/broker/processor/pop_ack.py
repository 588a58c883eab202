"""ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME (200051, 200151, 200053).

Source: AckMessageProcessor.java, ChangeInvisibleTimeProcessor.java (5.4.0).
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.pop.ack import AckOperation
from rocketpy.broker.pop.queue_locks import GroupQueue
from rocketpy.proto.bodies.pop import BatchAckMessageRequestBody
from rocketpy.proto.codes import RequestCode, ResponseCode
from rocketpy.proto.command import RemotingCommand, make_response
from rocketpy.proto.fastjson import loads_plain
from rocketpy.proto.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from rocketpy.remoting.channel import Channel
from rocketpy.remoting.dispatch import Processor, Response

MAX_REQUEST_BYTES: Final = 1 << 20
"""Longest body that is read; some thousands of acks."""


class Durability(Protocol):
    """What responses wait for."""

    def when_durable(self, phy_end: int, callback: Callable[[bool], None]) -> None:
        """Call back once everything before `phy_end` is on disk (True) or failed (False)."""
        ...


class PopAckProcessor:
    """Takes acks.

    Args:
        acks: carries them out.
        store: says what is on disk.
    """

    def __init__(self, acks: AckOperation, store: Durability) -> None:
        self._acks = acks
        self._store = store

    @property
    def processors(self) -> Mapping[int, Processor]:
        """Request code to processor."""
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible,
        }

    def ack(self, channel: Channel, request: RemotingCommand) -> Response:
        """200051: one message.

        Raises:
            HeaderFieldError: a field is missing, no number, or out of its type's range.
        """
        header = AckMessageRequestHeader.from_ext(request.ext_fields)
        queue = GroupQueue(header.topic, header.consumer_group, header.queue_id)
        outcome = self._acks.ack(queue, header.offset, header.extra_info)
        if isinstance(outcome, Refusal):
            return make_response(request, *outcome)
        return self._when_durable(channel, request, outcome.durable_at)

    def ack_batch(self, channel: Channel, request: RemotingCommand) -> Response:
        """200151: messages of several pops; the last refusal is answered, as Apache does.

        Raises:
            BadBodyError: the body is not what it should be.
        """
        if len(request.body) > MAX_REQUEST_BYTES:
            remark = f"the request is longer than {MAX_REQUEST_BYTES} bytes"
            return make_response(request, ResponseCode.INVALID_PARAMETER, remark)
        wanted = None
        if request.body:
            wanted = BatchAckMessageRequestBody.from_json(loads_plain(request.body))
        if wanted is None or not wanted.acks:
            return make_response(request, ResponseCode.NO_MESSAGE, "nothing is acked")
        refused = None
        durable_at = 0
        for each in wanted.acks:
            outcome = self._acks.ack_batch(wanted.broker_name, each)
            if isinstance(outcome, Refusal):
                refused = outcome
            else:
                durable_at = max(durable_at, outcome.durable_at)
        if refused is not None:
            return make_response(request, *refused)
        return self._when_durable(channel, request, durable_at)

    def change_invisible(self, channel: Channel, request: RemotingCommand) -> Response:
        """200053: when a message comes back.

        Raises:
            HeaderFieldError: a field is missing, no number, or out of its type's range.
        """
        header = ChangeInvisibleTimeRequestHeader.from_ext(request.ext_fields)
        queue = GroupQueue(header.topic, header.consumer_group, header.queue_id)
        outcome = self._acks.change_invisible(
            queue, header.offset, header.extra_info, header.invisible_time
        )
        if isinstance(outcome, Refusal):
            return make_response(request, *outcome)
        fields = ChangeInvisibleTimeResponseHeader(
            pop_time=outcome.pop_time_ms,
            invisible_time=outcome.invisible_ms,
            revive_qid=outcome.revive_queue_id,
        )
        return self._when_durable(channel, request, outcome.durable_at, fields.to_ext())

    def _when_durable(
        self,
        channel: Channel,
        request: RemotingCommand,
        durable_at: int,
        fields: dict[str, str] | None = None,
    ) -> Response:
        if not durable_at:
            return make_response(request, ext_fields=fields)
        deferred = channel.defer(request)

        def settled(is_durable: bool) -> None:
            if is_durable:
                deferred.set(make_response(deferred.request, ext_fields=fields))
                return
            remark = "the ack is not on disk"
            deferred.set(make_response(deferred.request, ResponseCode.SYSTEM_ERROR, remark))

        self._store.when_durable(durable_at, settled)
        return deferred
