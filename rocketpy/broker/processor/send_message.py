"""Adapter of SEND_MESSAGE in its three forms (10, 310, 320) to `SendOperation`.

Fast-path eligible messages are read straight from the header fields of the request, and their
response comes from a template.

Source: SendMessageProcessor.java (5.4.0).
"""

from collections.abc import Sequence
from typing import Final

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.send import SendOperation
from rocketpy.broker.operation.send_request import SendRequest, Sent
from rocketpy.broker.processor.send_response import PlainSendRules, SendResponses
from rocketpy.broker.property_templates import SPECIAL_PROPERTIES
from rocketpy.proto.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_request
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Response, flow_control

_LONG_NAMES: Final = int(RequestCode.SEND_MESSAGE)
_SEND_V2: Final = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_ONEWAY: Final = 2
_SUCCESS: Final = 0
_new: Final = tuple.__new__
_MESSAGE_ILLEGAL: Final = int(ResponseCode.MESSAGE_ILLEGAL)
_UNCONFIRMED: Final = frozenset(
    {int(ResponseCode.FLUSH_DISK_TIMEOUT), int(ResponseCode.FLUSH_SLAVE_TIMEOUT)}
)
"""Refusals of messages that are stored all the same."""
_SYSTEM_BUSY: Final = int(ResponseCode.SYSTEM_BUSY)
_V3_4_9: Final = 121
"""Clients before this version do not send `maxReconsumeTimes`, so the field is ignored."""


class SendMessageProcessor:
    """Processes sends.

    Args:
        operation: stores messages.
        config: the broker's settings; see `configure`.
        delays_ms: the delay levels, level 1 first.

    Attributes:
        plain_rules: rules of the compiled path.
    """

    def __init__(
        self,
        operation: SendOperation,
        config: BrokerConfig,
        delays_ms: tuple[int, ...] = (),
    ) -> None:
        self._delays_ms = delays_ms
        self._known = operation.known
        self._operation = operation
        self._store_host = b""
        self._config = config
        self._responses = SendResponses(b"", region_id="", trace_on=True)
        self.configure(config)

    def listens_on(self, store_host: bytes) -> None:
        """Set the broker's address in the format of records, the prefix of message ids."""
        self._store_host = store_host
        self.configure(self._config)

    def configure(self, config: BrokerConfig) -> None:
        """Apply changed settings."""
        self._config = config
        self._responses = SendResponses(
            self._store_host, region_id=config.region_id, trace_on=config.trace_on
        )
        operation, responses = self._operation, self._responses
        self.plain_rules: PlainSendRules = PlainSendRules(
            operation.known,
            operation.count,
            SPECIAL_PROPERTIES,
            operation.own_properties,
            operation.max_body_bytes,
            responses.json_parts,
            responses.binary_parts,
            responses.msgpack_parts,
            responses.batch_msgpack_parts,
            responses.next_id,
            self._delays_ms,
            self._answer_later,
        )

    def _answer_later(
        self,
        channel: Channel,
        durable_at: int,
        frames: bytes,
        asked: Sequence[tuple[int, int]],
    ) -> None:
        """Send the responses of a bulk once the log is on disk."""
        deferred = channel.defer_run(len(asked))
        responses = self._responses

        def settled(refused: Refusal | None) -> None:
            if refused is None:
                deferred.set(frames)
                return
            if refused.code in _UNCONFIRMED:
                deferred.set(responses.unconfirmed(frames, refused.code, refused.remark))
                return
            refusals = []
            for opaque, serialize_type in asked:
                request = make_request(_SEND_V2)
                request.opaque, request.serialize_type = opaque, serialize_type
                refusal = responses.refusal(request, refused.code, refused.remark)
                refusals.append(encode_command(refusal))
            deferred.set(b"".join(refusals))

        self._operation.when_settled(Sent(0, 0, 0, "", durable_at), settled)

    def process(self, channel: Channel, request: RemotingCommand) -> Response:
        """Store the message of a request; None when no response is expected.

        Raises:
            HeaderFieldError: a header field is missing or wrong.
        """
        sent = self._send_plain(channel, request)
        if type(sent) is Sent:
            phy_offset, queue_id, queue_offset, uniq_key, durable_at, *_ = sent
            if not durable_at and not request.flag & _ONEWAY:
                return self._responses.frame(
                    request, _SUCCESS, phy_offset, queue_id, queue_offset, uniq_key
                )
        if sent is None:
            sent = self._operation.send(_send_request(channel, request))
        elif isinstance(sent, Refusal) and sent.code == _MESSAGE_ILLEGAL:
            # Parsed again by the general decoder, which names a number that is out of range.
            _header(request)
        return self._response(channel, request, sent)

    def _send_plain(self, channel: Channel, request: RemotingCommand) -> Sent | Refusal | None:
        """Store a fast-path eligible message; None when it needs the general path."""
        ext = request.ext_fields
        if request.code != _SEND_V2 or ("m" in ext and ext["m"] != "false"):
            return None  # a batch, unless "m" is exactly "false"
        try:
            policy = self._known[ext["b"]]
            queue_id, flag, sys_flag, born_ms = ext["e"], ext["h"], ext["f"], ext["g"]
            times = ext.get("j", "0")
            if not (queue_id + flag + sys_flag + born_ms + times).replace("-", "").isdecimal():
                return None  # `int` accepts more than Java, such as spaces and underscores
            # Like `SendRequest(...)`, but without the frame of its Python constructor.
            wanted = _new(SendRequest, (
                ext["b"], int(queue_id), request.body, ext["i"].encode(),
                channel.remote_host_bytes, channel.remote_address, int(flag), int(sys_flag),
                int(born_ms), int(times), None, "", 0, False, False,
            ))  # fmt: skip
        except (KeyError, ValueError):
            return None
        return self._operation.send_plain(policy, wanted) if policy.is_simple else None

    def _response(
        self, channel: Channel, request: RemotingCommand, sent: Sent | Refusal
    ) -> Response:
        if request.flag & _ONEWAY:
            return None
        if isinstance(sent, Refusal):
            if sent.code == _SYSTEM_BUSY:
                busy = flow_control(channel, request, sent.remark)
                return self._responses.refusal(request, busy.code, busy.remark or "")
            return self._responses.refusal(request, sent.code, sent.remark)
        if sent.phy_offsets:
            frame = self._responses.batch_frame(
                request, sent.phy_offsets, sent.queue_id, sent.queue_offset, sent.uniq_key
            )
        elif sent.recall_handle:
            frame = self._responses.general(
                request,
                _SUCCESS,
                self._responses.msg_id(sent.phy_offset),
                sent.queue_id,
                sent.queue_offset,
                sent.uniq_key,
                recall_handle=sent.recall_handle,
            )
        else:
            frame = self._responses.frame(
                request, _SUCCESS, sent.phy_offset, sent.queue_id, sent.queue_offset, sent.uniq_key
            )
        if not sent.durable_at and not sent.new_topic:
            return frame
        # From here on neither the body nor the fields of the request are referenced, so a slow
        # disk does not keep them in memory.
        deferred = channel.defer(request)
        responses = self._responses

        def settled(refused: Refusal | None) -> None:
            if refused is None:
                deferred.set(frame)
            elif refused.code in _UNCONFIRMED:
                deferred.set(responses.unconfirmed(frame, refused.code, refused.remark))
            else:
                deferred.set(responses.refusal(deferred.request, refused.code, refused.remark))

        self._operation.when_settled(sent, settled)
        return deferred


def _header(request: RemotingCommand) -> SendMessageRequestHeader:
    ext = request.ext_fields
    if request.code != _LONG_NAMES or "b" in ext:
        return SendMessageRequestHeaderV2.from_ext(ext)
    return SendMessageRequestHeader.from_ext(ext)


def _send_request(channel: Channel, request: RemotingCommand) -> SendRequest:
    """Parse all header fields.

    Raises:
        HeaderFieldError: a field is missing or wrong.
    """
    header = _header(request)
    return SendRequest(
        header.topic,
        header.queue_id,
        request.body,
        (header.properties or "").encode(),
        channel.remote_host_bytes,
        channel.remote_address,
        header.flag,
        header.sys_flag,
        header.born_timestamp,
        header.reconsume_times or 0,
        header.max_reconsume_times if request.version >= _V3_4_9 else None,
        header.default_topic,
        header.default_topic_queue_nums,
        bool(header.unit_mode),
        bool(header.batch) or request.code == _SEND_BATCH,
    )
