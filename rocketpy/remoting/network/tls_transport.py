"""A transport over TLS whose unsent output can be seen.

The event loop's TLS encrypts all it is given at once and hands it to the socket's transport, where
nobody sees it: a peer that reads nothing would neither look slow nor count in the memory budget.
Here what is to be sent waits in a queue of our own and is fed to the TLS in small pieces, as the
peer takes them.
"""

import asyncio
import collections
from typing import Any, cast

from rocketpy.remoting.connection.transport import Buffer

PIECE_BYTES = 64 * 1024
"""What TLS is given at once. It holds this much, its ciphertext and what the socket's transport
takes before it says stop: about 256 KiB a peer that are not counted."""


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """Between a TLS transport, whose protocol it is, and a protocol, whose transport it is."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        """Stand before a protocol; the event loop gives the TLS transport (`connection_made`)."""
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
        """Take the TLS transport, ready for data."""
        self._tls = cast("asyncio.Transport", transport)
        self._tls.set_write_buffer_limits(PIECE_BYTES, PIECE_BYTES // 4)
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        """Hand on what came."""
        if not self._is_closing:
            self._protocol.data_received(data)

    def eof_received(self) -> bool | None:
        """Hand on that nothing more comes."""
        return self._protocol.eof_received()

    def pause_writing(self) -> None:
        """Feed no more: TLS holds enough."""
        self._is_tls_full = True

    def resume_writing(self) -> None:
        """Feed on."""
        self._is_tls_full = False
        self._feed()
        if self._is_protocol_paused and (
            not self._is_tls_full  # nothing is queued, and nobody will call again
            or self.get_write_buffer_size() <= self._low_bytes
        ):
            self._is_protocol_paused = False
            self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what is queued and tell the protocol."""
        self._is_closing = True
        self._forget()
        self._protocol.connection_lost(exc)

    # ---- the transport of the protocol

    def write(self, data: Buffer) -> None:
        """Queue bytes for the peer."""
        if self._is_closing or not data:
            return
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
        """Close once what is queued has been written; read nothing more."""
        if not self._is_closing:
            self._is_closing = True
            if not self._queue:
                self._tls.close()

    def abort(self) -> None:
        """Close now, forget what is queued."""
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
        """Say at how many unsent bytes the protocol is paused, and when it goes on."""
        self._high_bytes = PIECE_BYTES if high is None else high
        self._low_bytes = self._high_bytes // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """Bytes that wait here and in the TLS."""
        return self._queued_bytes + self._tls.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio has it
        """What is known about the connection."""
        return self._tls.get_extra_info(name, default)

    def _feed(self) -> None:
        """Give TLS piece after piece until it is full; a frame goes with its last piece."""
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
