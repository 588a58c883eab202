"""Blocking connection to a cluster, for planners and tasks of queries.

Spark calls from threads without an event loop. So a connection has its own loop, which runs only
while a caller waits for a result. Sockets that a server closes between two calls are detected at
the next call, which connects again.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from rocketpy.admin.servers import Servers
from rocketpy.client.cluster.broker_api import BrokerApi
from rocketpy.client.cluster.name_servers import NameServers
from rocketpy.client.credentials import RequestSigner, find_credentials
from rocketpy.errors import ConfigError, ConnectError, RocketPyError
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.network.event_loop import new_event_loop
from rocketpy.runtime.clock import Clock, SystemClock
from rocketpy.spark.read_options import ConnectionOptions

T = TypeVar("T")


class Connection:
    """Connections to the servers of one cluster, for one thread at a time.

    Args:
        options: addresses, account, TLS and time limit.
        clock: default: the system clock.

    Attributes:
        servers: for operations of `rocketpy.admin`.
        api: for requests of consumers to brokers.
    """

    def __init__(self, options: ConnectionOptions, *, clock: Clock | None = None) -> None:
        self.clock: Clock | SystemClock = clock or SystemClock()
        self._loop = new_event_loop()
        rng = random.SystemRandom()
        remoting = RemotingClient(options.remoting, clock=self.clock, rng=rng)
        credentials = find_credentials(options.credentials)
        if credentials is not None:
            remoting.hooks.append(RequestSigner(credentials))
        limit_ms = options.timeout_ms
        name_servers = NameServers(options.nameservers, remoting, rng, limit_ms)
        self.servers: Servers = Servers(
            name_servers, remoting, clock=self.clock, timeout_ms=limit_ms
        )
        self.api: BrokerApi = BrokerApi(remoting, limit_ms)
        self.is_closed: bool = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the connection's loop and return its result."""
        return self._loop.run_until_complete(coroutine)

    def close(self) -> None:
        """Close every connection; a second call does nothing."""
        if self.is_closed:
            return
        self.is_closed = True
        try:
            self.run(self.servers.close())
        finally:
            self._loop.close()


def refused_static(topic: str) -> ConfigError:
    """Return the error for a static topic: its offsets differ from those of brokers' queues."""
    return ConfigError(
        f"{topic} is a static topic (its queues move between brokers), which is neither read nor "
        "written here; read the brokers' store directories with format rocketmq.store",
        key="topic",
    )


async def with_retries(operation: Callable[[], Awaitable[T]], *, retries: int, pause_ms: int) -> T:
    """Run an idempotent operation, and repeat it after retriable errors.

    Args:
        operation: called for each attempt.
        retries: attempts after the first one.
        pause_ms: between two attempts; longer while the client avoids an unreachable address.
    """
    for attempt in range(retries + 1):
        try:
            return await operation()
        except RocketPyError as error:
            if not error.retriable or attempt == retries:
                raise
            wait_ms = max(pause_ms, error.retry_in_ms if isinstance(error, ConnectError) else 0)
            await asyncio.sleep(wait_ms / 1000)
    raise AssertionError("the last attempt returns or raises")
