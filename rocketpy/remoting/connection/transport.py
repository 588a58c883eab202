"""Interface of transports, and their reset."""

import socket
import struct
from typing import Any, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

# `struct linger`: l_onoff 1, l_linger 0.
_NO_LINGER = struct.pack("ii", 1, 0)


class WriteTransport(Protocol):
    """Part of a transport that a channel and its connection use."""

    def write(self, data: Buffer, /) -> None:
        """Queue bytes for the peer."""
        ...

    def close(self) -> None:
        """Close once queued output has been written."""
        ...

    def abort(self) -> None:
        """Close now, drop queued output."""
        ...

    def is_closing(self) -> bool:
        """Whether it is closed or about to be."""
        ...

    def pause_reading(self) -> None:
        """Read nothing more from the peer."""
        ...

    def resume_reading(self) -> None:
        """Read again."""
        ...

    def get_write_buffer_size(self) -> int:
        """Bytes queued."""
        ...

    def get_extra_info(self, name: str) -> Any:  # noqa: ANN401 - as asyncio has it
        """Return information about the connection: `peername`, and `socket` where there is one."""
        ...


def reset(transport: WriteTransport) -> None:
    """End a connection at once, on both sides; only before `connection_lost` was called.

    After a plain close the kernel first sends its queued output (megabytes). To a peer that does
    not read it never can, and the connection stays. With SO_LINGER 0 the kernel drops the output
    and sends a reset (RST).
    """
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
