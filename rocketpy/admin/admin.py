"""The entry to the admin operations: ``rocketpy.admin.connect()``.

Example:
    ::

        import asyncio
        import rocketpy.admin


        async def main() -> None:
            async with rocketpy.admin.connect("127.0.0.1:9876") as admin:
                await admin.create_topic("orders", queues=8)
                for group in await admin.groups():
                    print(group.group, group.lag)


        asyncio.run(main())
"""

import os
import random
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rocketpy.admin.messages import MessageOperations
from rocketpy.admin.topics import TopicOperations
from rocketpy.client.name_servers import NameServers, parse_addresses
from rocketpy.client.seams import Remoting
from rocketpy.proto.command import RemotingCommand
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.clock import Clock, SystemClock

TIMEOUT_MS = 5_000


class Admin(TopicOperations, MessageOperations):
    """mqadmin's operations as methods, on an Apache cluster as well as on ours.

    Operations ask the servers each time; nothing is remembered. Names and addresses of brokers
    come from the name servers. Use it with ``async with``.

    Args:
        name_servers: ``host:port`` of every name server.
        remoting: how requests travel; closed by :meth:`close`.
        clock: for look-ups by time.
        rng: chooses the name server that is asked first.
        timeout_ms: limit of one request.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        remoting: Remoting,
        *,
        clock: Clock,
        rng: random.Random,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        servers = NameServers(name_servers, remoting, rng, timeout_ms)
        super().__init__(servers, remoting, clock=clock, timeout_ms=timeout_ms)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; a second call does nothing."""
        await self._remoting.close()

    async def invoke(self, address: str, command: RemotingCommand) -> RemotingCommand:
        """Send any request to any server, for what has no method yet; codes are not checked."""
        return await self._remoting.invoke(address, command, self._timeout_ms)


def connect(
    name_servers: str | Sequence[str] | None = None,
    *,
    timeout_ms: int = TIMEOUT_MS,
    remoting: RemotingClientConfig | None = None,
    clock: Clock | None = None,
) -> Admin:
    """Return the admin operations of the cluster behind some name servers; nothing is sent yet.

    Args:
        name_servers: ``"host:9876;host2:9876"`` or a sequence; None takes ``NAMESRV_ADDR`` from
            the environment.
        timeout_ms: limit of one request.
        remoting: settings of the connections (TLS, limits).
        clock: the machine's by default.
    """
    given = name_servers if name_servers is not None else os.environ.get("NAMESRV_ADDR", "")
    used = clock or SystemClock()
    rng = random.SystemRandom()
    client = RemotingClient(remoting or RemotingClientConfig(), clock=used, rng=rng)
    return Admin(parse_addresses(given), client, clock=used, rng=rng, timeout_ms=timeout_ms)
