"""Adapter of pop requests to `rocketpy.broker.pop`.

POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION and POLLING_INFO are 200050, 200052, 200054 and 200055;
ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME are 200051, 200151 and 200053.

Source: PopMessageProcessor, PeekMessageProcessor, NotificationProcessor, PollingInfoProcessor,
AckMessageProcessor, ChangeInvisibleTimeProcessor (5.4.0).
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.pop.ack import AckOperation
from rocketpy.broker.pop.checks import PeerClocks
from rocketpy.broker.pop.peek import (
    NotificationOperation,
    NotificationOutcome,
    NotificationRequest,
    PeekOperation,
    PeekRequest,
)
from rocketpy.broker.pop.pop import PopOperation, PopOutcome
from rocketpy.broker.pop.pop_locks import GroupQueue
from rocketpy.broker.pop.suspended_pops import SuspendedPop
from rocketpy.broker.pop.take import Popped, PopRequest
from rocketpy.proto.bodies.pop import BatchAckMessageRequestBody
from rocketpy.proto.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, encode_command, encode_head, make_response
from rocketpy.proto.wire.fastjson import loads_plain
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor, Response
from rocketpy.runtime.clock import Clock
from rocketpy.store.interfaces import FlushNotice

_NO_FIELDS: Final[dict[str, str]] = {}
_NOTHING: Final = PopMessageResponseHeader(
    pop_time=0, invisible_time=0, revive_qid=0, rest_num=0
).to_ext()
_NOT_STORED: Final = "the check points of the messages are not on disk"


class PopMessageProcessor:
    """Processes pops, peeks and notifications, at once or when they are resumed.

    Args:
        pops: carries out pops.
        peeks: carries out peeks.
        notifications: carries out notifications.
        store: durability of check points.
        clock: time.
    """

    def __init__(
        self,
        pops: PopOperation,
        peeks: PeekOperation,
        notifications: NotificationOperation,
        store: FlushNotice,
        clock: Clock,
    ) -> None:
        self._pops = pops
        self._peeks = peeks
        self._notifications = notifications
        self._store = store
        self._peers = PeerClocks(clock)

    @property
    def processors(self) -> Mapping[int, Processor]:
        """Processors by request code."""
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def pop(self, channel: Channel, request: RemotingCommand) -> bytes | None:
        """Process POP_MESSAGE (200050); None when the response is sent later.

        Raises:
            HeaderFieldError: a field is missing, not a number, or out of range.
        """
        header = PopMessageRequestHeader.from_ext(request.ext_fields)
        wanted = PopRequest(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.max_msg_nums,
            header.invisible_time,
            self._peers.born_ms(channel, header.born_time, header.poll_time),
            header.poll_time,
            header.init_mode,
            header.exp or "",
            header.exp_type,
            bool(header.order),
            header.attempt_id,
        )
        head = _head(request)
        outcome = self._pops.pop(wanted, channel, partial(self._reply_to_pop, channel, head))
        self._forget_if_lost(channel)
        if outcome is None:
            return None
        return self._pop_frame(channel, head, outcome)

    def peek(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process PEEK_MESSAGE (200052): return messages without popping them.

        Raises:
            HeaderFieldError: a field is missing, not a number, or out of range.
        """
        header = PeekMessageRequestHeader.from_ext(request.ext_fields)
        wanted = PeekRequest(
            header.consumer_group, header.topic, header.queue_id, header.max_msg_nums
        )
        peeked = self._peeks.peek(wanted)
        if isinstance(peeked, Refusal):
            return make_response(request, peeked.code, peeked.remark, _NOTHING)
        code, remark = ResponseCode.SUCCESS, "FOUND"
        if not peeked.records:
            code, remark = ResponseCode.PULL_NOT_FOUND, "NO_MESSAGE_IN_QUEUE"
        fields = {**_NOTHING, "restNum": str(peeked.rest_count)}
        return make_response(request, code, remark, fields, b"".join(peeked.records))

    def notify(self, channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        """Process NOTIFICATION (200054); None when the response is sent later.

        Raises:
            HeaderFieldError: a field is missing, not a number, or out of range.
        """
        header = NotificationRequestHeader.from_ext(request.ext_fields)
        wanted = NotificationRequest(
            header.consumer_group,
            header.topic,
            header.queue_id,
            self._peers.born_ms(channel, header.born_time, header.poll_time),
            header.poll_time,
            bool(header.order),
            header.attempt_id,
        )
        head = _head(request)
        reply = partial(self._reply_to_notification, head)
        outcome = self._notifications.notify(wanted, channel, reply)
        self._forget_if_lost(channel)
        if outcome is None:
            return None
        return _notified(head, outcome)

    def polling_info(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Process POLLING_INFO (200055): return the number of suspended pops.

        Raises:
            HeaderFieldError: a field is missing, not a number, or out of range.
        """
        header = PollingInfoRequestHeader.from_ext(request.ext_fields)
        count = self._notifications.count_waiting(
            header.topic, header.queue_id, header.consumer_group
        )
        if isinstance(count, Refusal):
            return make_response(request, *count)
        return make_response(
            request, ext_fields=PollingInfoResponseHeader(polling_num=count).to_ext()
        )

    def on_open(self, channel: Channel) -> None:
        """Do nothing: state is created by requests."""

    def on_idle(self, channel: Channel) -> None:
        """Do nothing: the close that follows is reported as well."""

    def on_close(self, channel: Channel) -> None:
        """Drop the suspended requests of a lost connection."""
        self._pops.forget(channel)
        self._notifications.forget(channel)
        self._peers.forget(channel)

    def _forget_if_lost(self, channel: Channel) -> None:
        # The close was reported before the request was suspended, and is not reported again.
        if not channel.is_open:
            self.on_close(channel)

    def _reply_to_pop(
        self, channel: Channel, head: RemotingCommand, waiting: SuspendedPop
    ) -> bytes | None:
        try:
            outcome = self._pops.resume(waiting)
            return None if outcome is None else self._pop_frame(channel, head, outcome)
        except Exception as error:  # noqa: BLE001 - no caller above would answer the client
            return _failed(head, error)

    def _reply_to_notification(self, head: RemotingCommand, waiting: SuspendedPop) -> bytes | None:
        try:
            outcome = self._notifications.resume(waiting)
            return None if outcome is None else encode_command(_notified(head, outcome))
        except Exception as error:  # noqa: BLE001 - no caller above would answer the client
            return _failed(head, error)

    def _pop_frame(
        self, channel: Channel, head: RemotingCommand, outcome: PopOutcome
    ) -> bytes | None:
        """The response; None when it is sent later, once its check points are on disk."""
        if isinstance(outcome, Refusal):
            return encode_command(make_response(head, outcome.code, outcome.remark, _NOTHING))
        frame = _popped(head, outcome)
        if not outcome.durable_at:
            return frame

        def settled(is_durable: bool) -> None:
            refusal = make_response(head, ResponseCode.SYSTEM_ERROR, _NOT_STORED, _NOTHING)
            channel.send(frame if is_durable else encode_command(refusal))

        self._store.when_flushed(outcome.durable_at, settled)
        return None


def _head(request: RemotingCommand) -> RemotingCommand:
    """Return the fields of a request that its response needs, so that the rest can be freed."""
    return RemotingCommand(
        request.code, 0, 0, request.opaque, 0, None, _NO_FIELDS, b"", request.serialize_type
    )


def _popped(head: RemotingCommand, popped: Popped) -> bytes:
    fields = PopMessageResponseHeader(
        pop_time=popped.pop_time_ms,
        invisible_time=popped.invisible_ms,
        revive_qid=popped.revive_queue_id,
        rest_num=popped.rest_count,
        start_offset_info=popped.start_offsets,
        msg_offset_info=popped.message_offsets,
        order_count_info=popped.order_counts,
    )
    remark = "FOUND" if popped.records else "NO_MESSAGE_IN_QUEUE"
    response = make_response(head, popped.code, remark, fields.to_ext())
    body_bytes = sum(map(len, popped.records))
    return b"".join((encode_head(response, body_bytes), *popped.records))


def _notified(head: RemotingCommand, outcome: NotificationOutcome) -> RemotingCommand:
    if isinstance(outcome, Refusal):
        return make_response(head, outcome.code, outcome.remark)
    fields = NotificationResponseHeader(has_msg=outcome.has_message, polling_full=outcome.is_full)
    return make_response(head, ext_fields=fields.to_ext())


def _failed(head: RemotingCommand, error: Exception) -> bytes:
    remark = f"{type(error).__name__}: {error}"
    return encode_command(make_response(head, ResponseCode.SYSTEM_ERROR, remark, _NOTHING))


MAX_REQUEST_BYTES: Final = 1 << 20
"""Longest body that is parsed; enough for some thousands of acks."""


class PopAckProcessor:
    """Processes acks and changes of invisible times.

    Args:
        acks: carries them out.
        store: durability of acks.
    """

    def __init__(self, acks: AckOperation, store: FlushNotice) -> None:
        self._acks = acks
        self._store = store

    @property
    def processors(self) -> Mapping[int, Processor]:
        """Processors by request code."""
        return {
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.ack_batch,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change_invisible,
        }

    def ack(self, channel: Channel, request: RemotingCommand) -> Response:
        """Process ACK_MESSAGE (200051).

        Raises:
            HeaderFieldError: a field is missing, not a number, or out of range.
        """
        header = AckMessageRequestHeader.from_ext(request.ext_fields)
        queue = GroupQueue(header.topic, header.consumer_group, header.queue_id)
        outcome = self._acks.ack(queue, header.offset, header.extra_info)
        if isinstance(outcome, Refusal):
            return make_response(request, *outcome)
        return self._when_flushed(channel, request, outcome.durable_at)

    def ack_batch(self, channel: Channel, request: RemotingCommand) -> Response:
        """Process BATCH_ACK_MESSAGE (200151); returns the last refusal, as Apache does.

        Raises:
            BadBodyError: the body is invalid.
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
        return self._when_flushed(channel, request, durable_at)

    def change_invisible(self, channel: Channel, request: RemotingCommand) -> Response:
        """Process CHANGE_MESSAGE_INVISIBLETIME (200053).

        Raises:
            HeaderFieldError: a field is missing, not a number, or out of range.
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
        return self._when_flushed(channel, request, outcome.durable_at, fields.to_ext())

    def _when_flushed(
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

        self._store.when_flushed(durable_at, settled)
        return deferred
