"""SEND_MESSAGE in its three forms (10, 310, 320): a request in, a stored message, a frame out.

The adapter of the remoting protocol to `SendOperation`. An ordinary message takes a short way:
its header fields are read straight from the request, and its response comes from a template.

Source: SendMessageProcessor.java (5.4.0).
"""

from collections.abc import Sequence
from typing import Final

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.property_scanner import SPECIAL_PROPERTIES
from rocketpy.broker.operation.send.send import SendOperation
from rocketpy.broker.operation.send_request import SendRequest, Sent
from rocketpy.broker.processor.send_response import PlainSendRules, SendResponses
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
_SYSTEM_BUSY: Final = int(ResponseCode.SYSTEM_BUSY)
_V3_4_9: Final = 121
"""Clients before this version do not know `maxReconsumeTimes`: what they send is no limit."""


class SendMessageProcessor:
    """Answers sends.

    Args:
        operation: stores what is sent.
        config: the broker's settings; see `configure`.
        delays_ms: the delay levels, level 1 first.

    Attributes:
        plain_rules: what the compiled path goes by.
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
        """Note the broker's address as it stands in records, which message ids begin with."""
        self._store_host = store_host
        self.configure(self._config)

    def configure(self, config: BrokerConfig) -> None:
        """Take over changed settings."""
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
        """Answer requests of which opaque and header type are known when the disk has the log."""
        deferred = channel.defer_run(len(asked))
        responses = self._responses

        def settled(refused: Refusal | None) -> None:
            if refused is None:
                deferred.set(frames)
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
        """Store what a request brings; None when nobody waits for a response.

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
            _header(request)  # when a number does not fit its field, says which one
        return self._response(channel, request, sent)

    def _send_plain(self, channel: Channel, request: RemotingCommand) -> Sent | Refusal | None:
        """Send an ordinary message, its header read in part; None for what takes the long way."""
        ext = request.ext_fields
        if request.code != _SEND_V2 or ("m" in ext and ext["m"] != "false"):
            return None  # true in other letters is true, too
        try:
            policy = self._known[ext["b"]]
            queue_id, flag, sys_flag, born_ms = ext["e"], ext["h"], ext["f"], ext["g"]
            times = ext.get("j", "0")
            if not (queue_id + flag + sys_flag + born_ms + times).replace("-", "").isdecimal():
                return None  # `int` takes more than Java does
            # As `SendRequest(...)`, without its Python frame.
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
        # From here on nothing keeps the request: neither its body nor its fields.
        deferred = channel.defer(request)
        responses = self._responses

        def settled(refused: Refusal | None) -> None:
            deferred.set(
                frame
                if refused is None
                else responses.refusal(deferred.request, refused.code, refused.remark)
            )

        self._operation.when_settled(sent, settled)
        return deferred


def _header(request: RemotingCommand) -> SendMessageRequestHeader:
    ext = request.ext_fields
    if request.code != _LONG_NAMES or "b" in ext:
        return SendMessageRequestHeaderV2.from_ext(ext)
    return SendMessageRequestHeader.from_ext(ext)


def _send_request(channel: Channel, request: RemotingCommand) -> SendRequest:
    """Read all of a header.

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
