"""Frames: the outermost layer of the remoting protocol.

One frame carries one command. All integers are big-endian; offsets in bytes::

    0         4        5         8                8+H              4+L
    | L: i32  | T: u8  | H: u24  | header, H bytes | body, L-4-H bytes |

`L` counts everything after itself. `T` says how the header is written (0
JSON, 1 ROCKETMQ, 2 MSGPACK). A whole frame has at most 16 MiB, its header at
most 8 MiB: the response to a batch lists the id of every message, and 4 MiB of the
smallest messages have 6 MiB of ids.

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
"""Default limit of a whole frame, its first word included."""

MAX_HEADER_BYTES: Final = 8 * 1024 * 1024
"""The most a header may have."""

_PREFIX: Final = struct.Struct(">iI")
_LENGTH: Final = struct.Struct(">i")
_MAX_JSON_WORD: Final = MAX_HEADER_BYTES
"""Second words up to this one say: JSON, and a header that is not too long."""
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
"""What else speaks to a port by mistake, by its first bytes; none is a length within limits."""
_DECODERS: Final = (decode_json_header, decode_binary_header, decode_msgpack_header)


class CommandReader:
    """Turns a stream of bytes into commands; one for each connection.

    Feed it what a read returned. Whole frames before a malformed one are returned and
    `error` is set; from then on nothing more is read, and the caller closes the
    connection. At most one frame's bytes are held, and never more than were received.
    """

    __slots__ = ("_max_length_bytes", "_needed_bytes", "_pending", "error", "pending_bytes")

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES) -> None:
        self.error: ProtocolError | None = None
        self._max_length_bytes = max_frame_bytes - 4
        self._pending = bytearray()
        self._needed_bytes = 0
        self.pending_bytes: int = 0

    def feed(self, data: bytes) -> list[RemotingCommand]:
        """Take in what was read, and return the commands that are whole now."""
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
                    break  # _hold raises when the length is the reason
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
        """Return what is held and these bytes once a whole frame is there, and hold nothing.

        For who looks at bytes before they are fed. Without a whole frame the bytes are kept and
        nothing is returned; bytes that follow no unfinished frame come back as they are.
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
        """Take in what was read without looking at it; the next `feed` does."""
        if data and self.error is None:
            self._pending += data
            self._needed_bytes = 0
            self.pending_bytes = len(self._pending)

    def drop(self) -> None:
        """Forget an unfinished frame."""
        self._pending.clear()
        self.pending_bytes = 0

    def _hold(self, data: bytes, position: int) -> None:
        """Keep the start of an unfinished frame, unless its length is wrong."""
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
    """Decode a frame that is not plain JSON: another serialization, or wrong lengths."""
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
    """Decode exactly one whole frame (tests and tools; connections use `CommandReader`).

    Raises:
        ProtocolError: the frame is malformed, cut, or followed by something else.
    """
    reader = CommandReader()
    commands = reader.feed(frame)
    if reader.error is not None:
        raise reader.error
    if len(commands) != 1 or reader.pending_bytes:
        msg = f"{len(commands)} frames and {reader.pending_bytes} more bytes instead of one frame"
        raise BadFrameError(msg)
    return commands[0]
