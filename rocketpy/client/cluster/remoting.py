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
    """

    hooks: list[RpcHook]

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

    async def close(self) -> None:
        """Close every connection."""
        ...
