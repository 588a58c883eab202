"""Interface between the network and a server that takes its connections.

`Selector` is the one of remoting; the HA port of replication has another, with another protocol.
"""

import asyncio
from collections.abc import Awaitable
from typing import Protocol, TypeVar


class AcceptedProtocol(asyncio.Protocol):
    """Protocol of an accepted connection.

    Attributes:
        is_attached: whether it has a transport.
        proxied_source: IP and port of the client, when a proxy in front has sent them.
    """

    def __init__(self) -> None:
        self.is_attached: bool = False
        self.proxied_source: tuple[str, int] | None = None


C = TypeVar("C", bound=AcceptedProtocol)


class Acceptor(Protocol[C]):
    """Owner of accepted connections; used on its loop only.

    Attributes:
        loop: set by `bind`.
    """

    loop: asyncio.AbstractEventLoop

    def bind(self, loop: asyncio.AbstractEventLoop) -> None:
        """Live on this loop from now on."""
        ...

    def new_connection(self, ip: str, *, is_crowded: bool = False) -> C:
        """Return the protocol of a new, admitted connection.

        A caller that cannot give it a transport calls its `connection_lost`.

        Args:
            ip: the peer's address as it was admitted; released when the connection is gone.
            is_crowded: whether the system has little room left for connections.

        Raises:
            ConnectionRefusedError: there is no room; the caller closes the socket.
        """
        ...

    def open(self, connection: C, coroutine: Awaitable[None]) -> "asyncio.Future[None]":
        """Run the coroutine that gives a connection its transport."""
        ...

    async def drain(self, grace_ms: int) -> None:
        """Close all connections within a time."""
        ...
