"""Templates of requests that differ in few fields: the other parts of the header are encoded once.

Sends of a producer to one queue differ only in opaque, time and properties. `RequestTemplate`
caches the bytes in between; its frames equal those of `encode_command` for the same fields. The
fields of a request are created on access, and may be changed.
"""

import struct
from typing import Final, TypeAlias

import msgpack  # type: ignore[import-untyped]  # has no stubs
import orjson

from rocketpy.proto.wire.codes import RPC_VERSION, LanguageCode
from rocketpy.proto.wire.command import RemotingCommand, encode_command
from rocketpy.proto.wire.compiled_requests import compiled_sends

_PREFIX: Final = struct.Struct(">iI")
_LANGUAGE: Final = int(LanguageCode.PYTHON)
_JSON: Final = 0
_MSGPACK: Final = 2
_packb: Final = msgpack.packb
_COMPILED: Final = compiled_sends()


HeaderParts: TypeAlias = tuple[bytes, bytes, bytes, bytes]


class RequestTemplate:
    """Header of requests that have the same fields except a time and a text.

    Attributes:
        code: request code.
        parts: encoded parts of the header by serialize type, for those used so far: in JSON around
            time, text and opaque, in MSGPACK around opaque, time and text.

    Args:
        code: request code.
        fields: all fields; the values of the two variable ones are ignored.
        time: the wire name of the time, which comes before the text.
        text: the wire name of the text.
    """

    __slots__ = ("_fields", "_text", "_time", "code", "parts")

    def __init__(self, code: int, fields: dict[str, str], *, time: str, text: str) -> None:
        names = list(fields)
        assert names.index(time) < names.index(text), names
        self.code: int = code
        self._fields = fields
        self._time = time
        self._text = text
        self.parts: dict[int, HeaderParts] = {}

    def fields(self, time_ms: int, text: str) -> dict[str, str]:
        """Return the fields of one request."""
        fields = self._fields.copy()
        fields[self._time] = str(time_ms)
        fields[self._text] = text
        return fields

    def json_frame(self, opaque: int, time_ms: int, text: str, body: bytes) -> bytes:
        """Return the frame with a JSON header."""
        first, second, third, fourth = self.parts.get(_JSON) or self.make_parts(_JSON)
        shown = orjson.dumps(text)
        header = b"%b%d%b%b%b%d%b" % (first, time_ms, second, shown, third, opaque, fourth)
        size = len(header)
        return b"%b%b%b" % (_PREFIX.pack(4 + size + len(body), size), header, body)

    def msgpack_frame(self, opaque: int, time_ms: int, text: str, body: bytes) -> bytes:
        """Return the frame with a MSGPACK header."""
        first, second, third, fourth = self.parts.get(_MSGPACK) or self.make_parts(_MSGPACK)
        time = _packb(str(time_ms))
        header = b"".join((first, _packb(opaque), second, time, third, _packb(text), fourth))
        size = len(header)
        return b"".join((_PREFIX.pack(4 + size + len(body), _MSGPACK << 24 | size), header, body))

    def make_parts(self, kind: int) -> HeaderParts:
        """Encode the constant parts of the header, and cache them in `parts`.

        Args:
            kind: serialize type: JSON or MSGPACK.
        """
        made = self._msgpack_parts() if kind == _MSGPACK else self._json_parts()
        self.parts[kind] = made
        return made

    def _json_parts(self) -> HeaderParts:
        parts, part, comma = [], b'{"code":%d,"extFields":{' % self.code, b""
        for name, value in self._fields.items():
            part += comma + orjson.dumps(name) + b":"
            comma = b","
            if name == self._time:  # quoted here, because the time is formatted as digits
                parts.append(part + b'"')
                part = b'"'
            elif name == self._text:
                parts.append(part)
                part = b""
            else:
                part += orjson.dumps(value)
        before, between = parts
        return (
            before,
            between,
            part + b'},"flag":0,"language":"PYTHON","opaque":',
            b',"serializeTypeCurrentRPC":"JSON","version":%d}' % RPC_VERSION,
        )

    def _msgpack_parts(self) -> HeaderParts:
        packer = msgpack.Packer()
        head: bytes = packer.pack_array_header(7) + _packb(self.code) + _packb(_LANGUAGE)
        parts, part = [], _packb(0) + _packb(None) + packer.pack_map_header(len(self._fields))
        for name, value in self._fields.items():
            part += _packb(name)
            if name in {self._time, self._text}:
                parts.append(part)
                part = b""
            else:
                part += _packb(value)
        before, between = parts
        return head + _packb(RPC_VERSION), before, between, part


class PreparedRequest(RemotingCommand):
    """Request of a template, with fields that are created on access."""

    __slots__ = ("_made", "_template", "_text", "_time_ms")

    def __init__(self, template: RequestTemplate, time_ms: int, text: str, body: bytes) -> None:
        self.code: int = template.code
        self.language: int = _LANGUAGE
        self.version: int = RPC_VERSION
        self.opaque: int = 0
        self.flag: int = 0
        self.remark: str | None = None
        self.body: bytes = body
        self.serialize_type: int = _JSON
        self._made: dict[str, str] | None = None
        self._template = template
        self._time_ms = time_ms
        self._text = text

    @property
    def ext_fields(self) -> dict[str, str]:
        """The header fields; may be changed."""
        if self._made is None:
            self._made = self._template.fields(self._time_ms, self._text)
        return self._made

    @ext_fields.setter
    def ext_fields(self, fields: dict[str, str]) -> None:
        self._made = fields

    def frame(self) -> bytes:
        """Return the complete frame, as `encode_command` does."""
        kind = self.serialize_type
        if self._made is not None or self.flag or kind not in {_JSON, _MSGPACK}:
            return encode_command(self)
        template = self._template
        if (
            _COMPILED is not None and type(self.body) is bytes
        ):  # a serializer may return other buffers
            parts = template.parts.get(kind) or template.make_parts(kind)
            drawn = _COMPILED.frame(kind, parts, self.opaque, self._time_ms, self._text, self.body)
            if drawn is not None:
                return drawn
        draw = template.msgpack_frame if kind else template.json_frame
        return draw(self.opaque, self._time_ms, self._text, self.body)
