"""Encoder of responses to sends, from templates: one formatting call per message.

Sends are frequent enough that the general encoder would be noticeable, and their responses always
have the same structure. Unusual ones (a header type, or a key that must be escaped) are left to the
general encoder.

Source: SendMessageResponseHeader.java, SendMessageProcessor.java (5.4.0).
"""

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from rocketpy.broker.operation.send.admission import TopicSendPolicy
from rocketpy.proto.wire.codes import RPC_VERSION, LanguageCode
from rocketpy.proto.wire.command import RemotingCommand, encode_command, make_response
from rocketpy.proto.wire.fastjson import dumps
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.proto.wire.msgpack_header import encode_msgpack_header
from rocketpy.remoting.connection.channel import Channel


class PlainSendRules(NamedTuple):
    """Rules of the compiled send path, computed once and replaced when settings change.

    Attributes:
        known: policies of topics.
        count_stored: called with topic, number of messages and bytes of stored messages.
        special_properties: properties that need the general path.
        own_properties: added to each message, encoded.
        max_body_bytes: maximal size of a body.
        json_parts: parts of a JSON header around code, physical offset (16 hexadecimal digits),
            queue id, queue offset, UNIQ_KEY and opaque.
        binary_parts: parts of a ROCKETMQ header before opaque, up to the length of the ext fields,
            then before physical offset, queue id, queue offset and UNIQ_KEY; the last three are
            texts after their length.
        msgpack_parts: parts of a MSGPACK header before opaque, physical offset, queue id, queue
            offset and UNIQ_KEY.
        batch_msgpack_parts: the same for a batch, with all message ids in place of the offset.
        answer_later: sends responses when the log is on disk up to an offset; called with the
            channel, the offset, the responses, and opaque and header type of each request.
        next_id: text before the physical offset of a batch's second message.
        delays_ms: the delay levels, level 1 first.
    """

    known: Mapping[str, TopicSendPolicy]
    count_stored: Callable[[str, int, int], None]
    special_properties: frozenset[str]
    own_properties: bytes
    max_body_bytes: int
    json_parts: tuple[bytes, ...]
    binary_parts: tuple[bytes, ...]
    msgpack_parts: tuple[bytes, ...]
    batch_msgpack_parts: tuple[bytes, ...]
    next_id: bytes
    delays_ms: tuple[int, ...]
    answer_later: Callable[[Channel, int, bytes, Sequence[tuple[int, int]]], None]


_JSON: Final = 0
_ROCKETMQ: Final = 1
_MSGPACK: Final = 2
_PREFIX: Final = struct.Struct(">iI")
_BINARY_FIXED: Final = struct.Struct(">hbhiiii")
_LENGTH: Final = struct.Struct(">i")
_MSGPACK_FIXED: Final = struct.Struct(">BBHBBHBiBB")
_RESPONSE_FLAG: Final = 1
_LANGUAGE: Final = LanguageCode.PYTHON
_MAX_OPAQUE: Final = 0x7FFFFFFF
_MARK: Final = "\0mark"
_PACKED_MARK: Final = b"\xa5\0mark"


def _text(text: bytes) -> bytes:
    """Encode a msgpack text of up to 255 bytes."""
    return bytes((0xD9, len(text))) + text


def _entry(key: str, value: bytes) -> bytes:
    name = key.encode()
    return struct.pack(">h", len(name)) + name + _LENGTH.pack(len(value)) + value


class SendResponses:
    """Encodes responses to sends.

    Args:
        store_host: the broker's address in the format of records: 8 or 20 bytes.
        region_id: value of MSG_REGION.
        trace_on: value of TRACE_ON.
    """

    __slots__ = (
        "_batch_json",
        "_binary_tail",
        "_ids",
        "_json",
        "_msgpack_ext",
        "_region",
        "_trace",
    )

    def __init__(self, store_host: bytes, *, region_id: str, trace_on: bool) -> None:
        self._ids = store_host.hex().upper()
        self._region = region_id
        self._trace = "true" if trace_on else "false"
        msg_id_chars = len(self._ids) + 16
        self._json = (
            b'{"code":%d,"extFields":{"MSG_REGION":"'
            + dumps(region_id)[1:-1].replace(b"%", b"%%")
            + b'","TRACE_ON":"'
            + self._trace.encode()
            + b'","msgId":"'
            + self._ids.encode()
            + b'%016X","queueId":"%d","queueOffset":"%d","transactionId":"%b"},'
            + b'"flag":1,"language":"'
            + _LANGUAGE.name.encode()
            + b'","opaque":%d,"serializeTypeCurrentRPC":"JSON","version":'
            + str(RPC_VERSION).encode()
            + b"}"
        )
        self._batch_json = self._json.replace(self._ids.encode() + b"%016X", b"%b")
        self._binary_tail = (
            _entry("MSG_REGION", region_id.encode())
            + _entry("TRACE_ON", self._trace.encode())
            + b"\0\5msgId"
            + _LENGTH.pack(msg_id_chars)
            + self._ids.encode()
        )

        self._msgpack_ext = b"".join(
            (
                b"\x86",
                _text(b"MSG_REGION") + _text(region_id.encode()[:255]),
                _text(b"TRACE_ON") + _text(self._trace.encode()),
                _text(b"msgId") + bytes((0xD9, msg_id_chars)) + self._ids.encode(),
            )
        )

    @property
    def json_parts(self) -> tuple[bytes, ...]:
        """Parts around the six values of a JSON header, in their order: see `frame`."""
        parts = re.split(rb"%(?:d|b|016X)", self._json.replace(b"%%", b"\0"))
        return tuple(part.replace(b"\0", b"%") for part in parts)

    @property
    def binary_parts(self) -> tuple[bytes, ...]:
        """Parts around the values of a ROCKETMQ header: see `_binary`."""
        fixed = _BINARY_FIXED.pack(0, _LANGUAGE, RPC_VERSION, 0, _RESPONSE_FLAG, 0, 0)
        names = (b"\0\7queueId", b"\0\x0bqueueOffset", b"\0\x0dtransactionId")
        return (fixed[:5], fixed[9:17], self._binary_tail, *names)

    @property
    def msgpack_parts(self) -> tuple[bytes, ...]:
        """Parts before the values of a MSGPACK header: see `_msgpack`."""
        header = self._msgpack(0, 0, 0, b"", b"", b"")[_PREFIX.size :]
        id_end = _MSGPACK_FIXED.size + len(self._msgpack_ext) + 16
        queue_id, queue_offset, uniq_key = header[id_end:].split(b"\xa0")
        return header[:9], header[13 : id_end - 16], queue_id, queue_offset, uniq_key[:-1]

    @property
    def batch_msgpack_parts(self) -> tuple[bytes, ...]:
        """Parts before opaque and the texts of a batch's MSGPACK header: see `general`."""
        fields = dict.fromkeys(("msgId", "queueId", "queueOffset", "transactionId"), _MARK)
        sample = encode_msgpack_header(
            0,
            _LANGUAGE,
            RPC_VERSION,
            _MAX_OPAQUE,
            _RESPONSE_FLAG,
            None,
            {"MSG_REGION": self._region, "TRACE_ON": self._trace} | fields,
        )
        head, _, rest = sample.partition(b"\xce\x7f\xff\xff\xff")
        return (head, *rest.split(_PACKED_MARK)[:-1])

    @property
    def next_id(self) -> bytes:
        """Text before the physical offset of a batch's second message: see `msg_ids`."""
        return b"," + self._ids.encode()

    def msg_id(self, phy_offset: int) -> str:
        """Return the offset message id of a record."""
        return f"{self._ids}{phy_offset:016X}"

    def msg_ids(self, phy_offsets: Sequence[int]) -> str:
        """Return the offset message ids of a batch, as its response lists them."""
        numbers = struct.pack(f">{len(phy_offsets)}q", *phy_offsets).hex(",", 8).upper()
        return self._ids + numbers.replace(",", "," + self._ids)

    def frame(
        self,
        request: RemotingCommand,
        code: int,
        phy_offset: int,
        queue_id: int,
        queue_offset: int,
        transaction_id: str,
    ) -> bytes:
        """Return the response frame for a stored message.

        Args:
            request: source of the opaque and the header type.
            code: 0, or the code of a partial success.
            phy_offset: position of the record.
            queue_id: its queue.
            queue_offset: its offset in the queue.
            transaction_id: the message's UNIQ_KEY.
        """
        kind = request.serialize_type
        # Letters and digits, the characters of clients' ids, need no escaping in JSON.
        key = transaction_id.encode()
        if kind == _JSON and key.isalnum():
            header = self._json % (
                code,
                phy_offset,
                queue_id,
                queue_offset,
                key,
                request.opaque,
            )
            size = len(header)
            return _PREFIX.pack(size + 4, size) + header
        if kind == _ROCKETMQ:
            return self._binary(
                request.opaque, code, phy_offset, b"%d" % queue_id, b"%d" % queue_offset, key
            )
        if kind == _MSGPACK and len(transaction_id) < 64:  # 255 bytes of UTF-8 at most
            return self._msgpack(
                request.opaque, code, phy_offset, b"%d" % queue_id, b"%d" % queue_offset, key
            )
        return self.general(
            request, code, self.msg_id(phy_offset), queue_id, queue_offset, transaction_id
        )

    def batch_frame(
        self,
        request: RemotingCommand,
        phy_offsets: Sequence[int],
        queue_id: int,
        queue_offset: int,
        transaction_id: str,
    ) -> bytes:
        """Return the response frame for a stored batch; its message id is a list of ids.

        Args:
            request: source of the opaque and the header type.
            phy_offsets: positions of its records.
            queue_id: its queue.
            queue_offset: offset of its first message.
            transaction_id: the batch's UNIQ_KEY.
        """
        ids, key = self.msg_ids(phy_offsets), transaction_id.encode()
        if request.serialize_type != _JSON or not key.isalnum():
            return self.general(request, 0, ids, queue_id, queue_offset, transaction_id)
        header = self._batch_json % (0, ids.encode(), queue_id, queue_offset, key, request.opaque)
        size = len(header)
        return _PREFIX.pack(size + 4, size) + header

    def _msgpack(
        self,
        opaque: int,
        code: int,
        phy_offset: int,
        queue_id: bytes,
        queue_offset: bytes,
        transaction_id: bytes,
    ) -> bytes:
        header = b"%b%b%016X\xa7queueId%c%b\xabqueueOffset%c%b\xadtransactionId\xd9%c%b" % (
            _MSGPACK_FIXED.pack(
                0x97, 0xCD, code, _LANGUAGE, 0xCD, RPC_VERSION, 0xD2, opaque, _RESPONSE_FLAG, 0xC0
            ),
            self._msgpack_ext,
            phy_offset,
            0xA0 | len(queue_id),
            queue_id,
            0xA0 | len(queue_offset),
            queue_offset,
            len(transaction_id),
            transaction_id,
        )
        size = len(header)
        return _PREFIX.pack(size + 4, _MSGPACK << 24 | size) + header

    def general(  # noqa: PLR0917 - the response's own fields
        self,
        request: RemotingCommand,
        code: int,
        msg_id: str,
        queue_id: int,
        queue_offset: int,
        transaction_id: str,
        remark: str | None = None,
        *,
        recall_handle: str = "",
    ) -> bytes:
        """Return the same response from the general encoder, optionally with a recall handle."""
        ext_fields = {
            "MSG_REGION": self._region,
            "TRACE_ON": self._trace,
            "msgId": msg_id,
            "queueId": str(queue_id),
            "queueOffset": str(queue_offset),
            "transactionId": transaction_id,
        }
        if recall_handle:
            ext_fields["recallHandle"] = recall_handle
        return encode_command(make_response(request, code, remark, ext_fields))

    @staticmethod
    def unconfirmed(frames: bytes, code: int, remark: str) -> bytes:
        """Return responses of stored messages with another status.

        Clients read the place of the message with every status of a stored one.

        Args:
            frames: the responses with code 0.
            code: 10 or 12: neither disk nor replicas have confirmed the messages.
            remark: the reason.
        """
        commands = CommandReader().feed(frames)
        for command in commands:
            command.code, command.remark = code, remark
        return b"".join(map(encode_command, commands))

    def refusal(self, request: RemotingCommand, code: int, remark: str) -> RemotingCommand:
        """Return a refusal with ext fields, because clients read them without a check."""
        ext_fields = {"MSG_REGION": self._region, "TRACE_ON": self._trace}
        return make_response(request, code, remark, ext_fields)

    def _binary(
        self,
        opaque: int,
        code: int,
        phy_offset: int,
        queue_id: bytes,
        queue_offset: bytes,
        transaction_id: bytes,
    ) -> bytes:
        pack = _LENGTH.pack
        ext = b"%b%016X\0\7queueId%b%b\0\x0bqueueOffset%b%b\0\x0dtransactionId%b%b" % (
            self._binary_tail,
            phy_offset,
            pack(len(queue_id)),
            queue_id,
            pack(len(queue_offset)),
            queue_offset,
            pack(len(transaction_id)),
            transaction_id,
        )
        size = _BINARY_FIXED.size + len(ext)
        fixed = _BINARY_FIXED.pack(
            code, _LANGUAGE, RPC_VERSION, opaque, _RESPONSE_FLAG, 0, len(ext)
        )
        return _PREFIX.pack(size + 4, _ROCKETMQ << 24 | size) + fixed + ext
