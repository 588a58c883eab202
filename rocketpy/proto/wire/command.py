"""Class `RemotingCommand`, a request or response, and its encoding as a frame.

The three header serializations are in `json_header`, `binary_header` and `msgpack_header`. `frame`
decodes received bytes to commands. `request_template` encodes requests that differ in few fields.

Source: RemotingCommand of 5.4.0.
"""

import struct
from typing import ClassVar, Final

from rocketpy.proto.wire.binary_header import encode_binary_header
from rocketpy.proto.wire.codes import FLAG_ONEWAY, FLAG_RESPONSE, RPC_VERSION, LanguageCode
from rocketpy.proto.wire.json_header import encode_json_header
from rocketpy.proto.wire.msgpack_header import encode_msgpack_header

_PREFIX: Final = struct.Struct(">iI")
_LANGUAGE: Final = int(LanguageCode.PYTHON)
_JSON: Final = 0
_ROCKETMQ: Final = 1


class RemotingCommand:
    """Request or response of the remoting protocol.

    Attributes:
        code: a request or response code.
        language: a `LanguageCode` value; -1 if unknown.
        version: of the peer's protocol, 493 for 5.4.0.
        opaque: number that a response shares with its request on a connection.
        flag: bit 0 response, bit 1 one-way.
        remark: text of the peer for failure codes.
        ext_fields: the header fields, always text; empty when absent.
        body: raw; empty when absent.
        serialize_type: of the header: 0 JSON, 1 ROCKETMQ, 2 MSGPACK.
    """

    __slots__ = (
        "body",
        "code",
        "ext_fields",
        "flag",
        "language",
        "opaque",
        "remark",
        "serialize_type",
        "version",
    )

    def __init__(  # noqa: PLR0913, PLR0917 - the wire's own fields; keywords would cost the hot path
        self,
        code: int,
        language: int,
        version: int,
        opaque: int,
        flag: int,
        remark: str | None,
        ext_fields: dict[str, str],
        body: bytes = b"",
        serialize_type: int = 0,
    ) -> None:
        self.code: int = code
        self.language: int = language
        self.version: int = version
        self.opaque: int = opaque
        self.flag: int = flag
        self.remark: str | None = remark
        self.ext_fields: dict[str, str] = ext_fields
        self.body: bytes = body
        self.serialize_type: int = serialize_type

    @property
    def is_response(self) -> bool:
        """Whether this is a response."""
        return self.flag & FLAG_RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        """Whether it is one-way, without a response."""
        return self.flag & FLAG_ONEWAY != 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RemotingCommand):
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name) for name in RemotingCommand.__slots__
        )

    __hash__: ClassVar[None]  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        kind = "response" if self.is_response else "oneway" if self.is_oneway else "request"
        return (
            f"<{kind} code={self.code} opaque={self.opaque} remark={self.remark!r} "
            f"ext={self.ext_fields!r} body={len(self.body)} bytes>"
        )


def make_request(
    code: int, ext_fields: dict[str, str] | None = None, body: bytes = b"", *, oneway: bool = False
) -> RemotingCommand:
    """Create a request; the sender sets `opaque`."""
    return RemotingCommand(
        int(code),
        _LANGUAGE,
        RPC_VERSION,
        0,
        FLAG_ONEWAY if oneway else 0,
        None,
        {} if ext_fields is None else ext_fields,
        body,
    )


def make_response(
    request: RemotingCommand,
    code: int = 0,
    remark: str | None = None,
    ext_fields: dict[str, str] | None = None,
    body: bytes = b"",
) -> RemotingCommand:
    """Create the response to `request`, with its opaque and header serialization.

    The code in a ROCKETMQ header has 16 bits, which is enough for every response code.
    """
    return RemotingCommand(
        int(code),
        _LANGUAGE,
        RPC_VERSION,
        request.opaque,
        FLAG_RESPONSE,
        remark,
        {} if ext_fields is None else ext_fields,
        body,
        request.serialize_type,
    )


def encode_head(command: RemotingCommand, body_bytes: int) -> bytes:
    """Return the frame up to its body, so that body buffers can follow without a copy.

    `body_bytes` is the length of the body that the caller sends after it.
    """
    serialize_type = command.serialize_type
    if serialize_type == _JSON:
        header = encode_json_header(
            command.code,
            command.language,
            command.version,
            command.opaque,
            command.flag,
            command.remark,
            command.ext_fields,
        )
    else:
        encode = encode_binary_header if serialize_type == _ROCKETMQ else encode_msgpack_header
        header = encode(
            command.code,
            command.language,
            command.version,
            command.opaque,
            command.flag,
            command.remark,
            command.ext_fields,
        )
    length = len(header)
    return _PREFIX.pack(4 + length + body_bytes, serialize_type << 24 | length) + header


def encode_command(command: RemotingCommand) -> bytes:
    """Return the complete frame."""
    body = command.body
    if body:
        return encode_head(command, len(body)) + body
    return encode_head(command, 0)
