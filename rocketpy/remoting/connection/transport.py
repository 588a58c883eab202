"""What a connection needs of a transport, and how one is ended at once."""

import socket
import struct
from typing import Any, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

_NO_LINGER = struct.pack("ii", 1, 0)


class WriteTransport(Protocol):
    """The part of a transport that a channel and its connection use."""

    def write(self, data: Buffer, /) -> None:
        """Queue bytes for the peer."""
        ...

    def close(self) -> None:
        """Close once what is queued has been written."""
        ...

    def abort(self) -> None:
        """Close now, forget what is queued."""
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
        """What is known about the connection: `peername`, and `socket` where there is one."""
        ...


def reset(transport: WriteTransport) -> None:
    """End a connection at once, on both sides; only while its end has not been told yet.

    A plain close leaves what the kernel has queued (megabytes) to be sent first: to a peer that
    does not read it never is, and the connection stays. With SO_LINGER 0 the kernel forgets it and
    tells the peer (RST).
    """
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
