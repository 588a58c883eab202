"""TLS transport whose unsent output is visible.

The event loop's TLS encrypts everything it is given at once and passes it to the socket's
transport, where it is not visible: a peer that reads nothing would neither appear slow nor count in
the memory budget. Here output waits in a queue and is fed to TLS in small pieces, as the peer takes
them.
"""

import asyncio
import collections
from typing import Any, cast

from rocketpy.remoting.connection.transport import Buffer

PIECE_BYTES = 64 * 1024
"""Size of a piece. TLS holds one piece, its ciphertext and what the socket's transport accepts
before it pauses: about 256 KiB for each peer that are not counted."""


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """Protocol of a TLS transport, and transport of the connection above it."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        """Wrap a protocol; the event loop provides the TLS transport (`connection_made`)."""
        super().__init__()
        self._protocol = protocol
        self._tls: asyncio.Transport
        self._queue: collections.deque[memoryview] = collections.deque()
        self._queued_bytes = 0
        self._high_bytes = self._low_bytes = PIECE_BYTES
        self._is_tls_full = False
        self._is_protocol_paused = False
        self._is_closing = False

    # ---- the protocol of the TLS transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the TLS transport, which is ready for data."""
        self._tls = cast("asyncio.Transport", transport)
        # Small limits: output is to wait in the visible queue, not below it.
        self._tls.set_write_buffer_limits(PIECE_BYTES, PIECE_BYTES // 4)
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Pass received data to the protocol."""
        if not self._is_closing:
            self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Pass the end of the input to the protocol."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Stop feeding TLS."""
        self._is_tls_full = True

    def resume_writing(self) -> None:
        """Continue to feed TLS."""
        self._is_tls_full = False
        self._feed()
        if self._is_protocol_paused and (
            not self._is_tls_full  # nothing is queued, so there will be no further call
            or self.get_write_buffer_size() <= self._low_bytes
        ):
            self._is_protocol_paused = False
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop queued output and notify the protocol."""
        self._is_closing = True
        self._forget()
        self._protocol.connection_lost(exc)

    # ---- the transport of the protocol

    def write(self, data: Buffer) -> None:
        """Queue bytes for the peer."""
        if self._is_closing or not data:
            return
        # The common case: nothing waits, and TLS encrypts it at once.
        if not self._queue and not self._is_tls_full and len(data) <= PIECE_BYTES:
            self._tls.write(data)
            return
        self._queue.append(memoryview(data))
        self._queued_bytes += len(data)
        self._feed()
        if not self._is_protocol_paused and self.get_write_buffer_size() > self._high_bytes:
            self._is_protocol_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Close once queued output has been written; read nothing more."""
        if not self._is_closing:
            self._is_closing = True
            # Otherwise `_feed` closes after the last piece.
            if not self._queue:
                self._tls.close()

    def abort(self) -> None:
        """Close now, drop queued output."""
        self._is_closing = True
        self._forget()
        self._tls.abort()

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        return self._is_closing or self._tls.is_closing()

    def pause_reading(self) -> None:
        """Read nothing more from the peer."""
        self._tls.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self._tls.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the numbers of unsent bytes at which the protocol is paused and resumed."""
        self._high_bytes = PIECE_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Bytes queued here and in TLS."""
        return self._queued_bytes + self._tls.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio has it
        """Return information about the connection."""
        return self._tls.get_extra_info(name, default)

    def _feed(self) -> None:
        """Write pieces to TLS until it is full; a frame is released with its last piece."""
        queue = self._queue
        while queue and not self._is_tls_full:
            data = queue[0]
            piece = data[:PIECE_BYTES]
            if len(piece) == len(data):
                queue.popleft()
            else:
                queue[0] = data[PIECE_BYTES:]
            self._queued_bytes -= len(piece)
            self._tls.write(piece)  # may call `pause_writing`
        if self._is_closing and not queue:
            self._tls.close()

    def _forget(self) -> None:
        self._queue.clear()
        self._queued_bytes = 0
