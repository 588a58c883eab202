"""Frames, the outermost layer of the remoting protocol.

One frame carries one command. All integers are big-endian; offsets in bytes::

    0         4        5         8                8+H              4+L
    | L: i32  | T: u8  | H: u24  | header, H bytes | body, L-4-H bytes |

`L` is the length of all bytes after it. `T` is the serialization of the header (0 JSON, 1 ROCKETMQ,
2 MSGPACK). A complete frame has at most 16 MiB, its header at most 8 MiB: the response to a batch
lists the id of every message, and 4 MiB of the smallest messages have 6 MiB of ids.

Source: NettyDecoder, RemotingCommand of 5.4.0.
"""

import struct
from typing import Final

from rocketpy.errors import BadFrameError, FrameTooLongError, ProtocolError
from rocketpy.proto.wire.binary_header import decode_binary_header
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.json_header import decode_json_header
from rocketpy.proto.wire.msgpack_header import decode_msgpack_header

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Default limit of a complete frame, including its first word."""

MAX_HEADER_BYTES: Final = 8 * 1024 * 1024
"""Limit of a header."""

_PREFIX: Final = struct.Struct(">iI")
_LENGTH: Final = struct.Struct(">i")
_MAX_JSON_WORD: Final = MAX_HEADER_BYTES
"""Largest second word of a JSON header within the limit."""
_GUESSES: Final = {
    b"\x16\x03": "TLS",
    b"GE": "HTTP",
    b"PO": "HTTP",
    b"HE": "HTTP",
    b"HT": "HTTP",
    b"SS": "SSH",
    b"PR": "PROXY",
    b"PRI ": "gRPC, or other HTTP/2",
}
"""Other protocols by their first bytes, none of which is a length within limits."""
_DECODERS: Final = (decode_json_header, decode_binary_header, decode_msgpack_header)


class CommandReader:
    """Decoder of a connection's byte stream into commands.

    Pass the bytes of each read to `feed`. Complete frames before a malformed one are returned and
    `error` is set; later bytes are ignored, and the caller closes the connection. At most one
    frame's bytes are held, and never more than were received.
    """

    __slots__ = ("_max_length_bytes", "_needed_bytes", "_pending", "error", "pending_bytes")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.error: ProtocolError | None = None
        self._max_length_bytes = max_frame_bytes - 4
        self._pending = bytearray()
        self._needed_bytes = 0
        self.pending_bytes: int = 0

    def feed(self, data: bytes) -> list[RemotingCommand]:
        """Add received bytes, and return the complete commands."""
        commands: list[RemotingCommand] = []
        if self.error is not None:
            return commands
        pending = self._pending
        if pending:
            if len(pending) + len(data) < self._needed_bytes:
                pending += data
                self.pending_bytes = len(pending)
                return commands
            data = b"".join((pending, data))
            self.drop()
        position = 0
        end = len(data)
        try:
            while end - position >= 8:
                length, word = _PREFIX.unpack_from(data, position)
                following = position + 4 + length
                if not 4 <= length <= self._max_length_bytes or following > end:
                    break  # _hold raises if the length is invalid
                header_at = position + 8
                body_at = header_at + (word & 0xFFFFFF)
                if word <= _MAX_JSON_WORD and body_at <= following:
                    fields = decode_json_header(data[header_at:body_at])
                    commands.append(RemotingCommand(*fields, data[body_at:following]))
                else:
                    commands.append(_decode_other(data, word, header_at, body_at, following))
                position = following
            if position < end:
                self._hold(data, position)
        except ProtocolError as error:
            self.error = error
        return commands

    def take(self, data: bytes) -> bytes:
        """Return the held and these bytes once they have a complete frame, and hold none.

        For callers that inspect bytes before `feed`. Without a complete frame the bytes are held
        and nothing is returned; without an unfinished frame they are returned unchanged.
        """
        pending = self._pending
        if not pending or self.error is not None:
            return data
        if len(pending) + len(data) < self._needed_bytes:
            pending += data
            self.pending_bytes = len(pending)
            return b""
        data = b"".join((pending, data))
        self.drop()
        return data

    def keep(self, data: bytes) -> None:
        """Hold received bytes for the next `feed`."""
        if data and self.error is None:
            self._pending += data
            self._needed_bytes = 0
            self.pending_bytes = len(self._pending)

    def drop(self) -> None:
        """Drop an unfinished frame."""
        self._pending.clear()
        self.pending_bytes = 0

    def _hold(self, data: bytes, position: int) -> None:
        """Hold the start of an unfinished frame, unless its length is invalid."""
        self._needed_bytes = 4
        if len(data) - position >= 4:
            length: int = _LENGTH.unpack_from(data, position)[0]
            if length < 4:
                msg = f"frame length {length} is too small"
                raise BadFrameError(msg)
            if length > self._max_length_bytes:
                begin = data[position : position + 4]
                guess = _GUESSES.get(begin) or _GUESSES.get(begin[:2], "")
                raise FrameTooLongError(length + 4, self._max_length_bytes + 4, guess)
            self._needed_bytes = 4 + length
        self._pending += memoryview(data)[position:]
        self.pending_bytes = len(self._pending)


def _decode_other(
    data: bytes, word: int, header_at: int, body_at: int, following: int
) -> RemotingCommand:
    """Decode a frame with another serialization than JSON, or with invalid lengths."""
    if body_at > following:
        msg = f"header of {body_at - header_at} bytes is longer than its frame"
        raise BadFrameError(msg)
    if body_at - header_at > MAX_HEADER_BYTES:
        raise FrameTooLongError(body_at - header_at, MAX_HEADER_BYTES)
    serialize_type = word >> 24
    if serialize_type >= len(_DECODERS):
        msg = f"unknown header serialization {serialize_type}"
        raise BadFrameError(msg)
    fields = _DECODERS[serialize_type](data[header_at:body_at])
    return RemotingCommand(*fields, data[body_at:following], serialize_type)


def decode_command(frame: bytes) -> RemotingCommand:
    """Decode exactly one frame, for tests and tools; connections use `CommandReader`.

    Raises:
        ProtocolError: the frame is malformed, truncated, or followed by other bytes.
    """
    reader = CommandReader()
    commands = reader.feed(frame)
    if reader.error is not None:
        raise reader.error
    if len(commands) != 1 or reader.pending_bytes:
        msg = f"{len(commands)} frames and {reader.pending_bytes} more bytes instead of one frame"
        raise BadFrameError(msg)
    return commands[0]
