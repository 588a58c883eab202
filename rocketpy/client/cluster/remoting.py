"""Interface of the remoting layer for the client; `rocketpy.remoting.client` implements it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.calls import Call, RpcHook


class Remoting(Protocol):
    """Requests out and responses in, by address `host:port`.

    Attributes:
        hooks: see each request before it is encoded.
        on_silence: called with the address of a server that does not answer sends.
        on_disconnect: called with the address of a server whose connection has ended.
    """

    hooks: list[RpcHook]
    on_silence: Callable[[str], None] | None
    on_disconnect: Callable[[str], None] | None

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Send a request and wait for its response."""
        ...

    def invoke_future(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        """Send a request; the future has the response or a ClientError."""
        ...

    def start(self, address: str, call: Call) -> None:
        """Send a request; what becomes of it, a response or a ClientError, goes to the call."""
        ...

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        """Send a request that has no response."""
        ...

    def register(
        self,
        code: int,
        processor: Callable[
            [Any, RemotingCommand],
            RemotingCommand | bytes | Awaitable[RemotingCommand | None] | None,
        ],
    ) -> None:
        """Answer requests of this code that servers send to us."""
        ...

    def abandon(self, address: str, reason: str) -> None:
        """Fail the calls to a server that another one has replaced, if it is silent."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
