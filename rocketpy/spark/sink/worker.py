"""Client of a worker process, shared by all its tasks with the same options.

The loop of the client runs on a separate thread, so that acknowledgements and timeouts are
processed while the task waits for its next rows.
"""

import asyncio
import os
import random
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from rocketpy.client.cluster.instance import Instance
from rocketpy.client.cluster.message_ids import MsgIds
from rocketpy.client.config import ClientConfig, ProducerConfig
from rocketpy.client.credentials import RequestSigner, find_credentials
from rocketpy.client.sending.transport import SendTransport
from rocketpy.proto.namespace import wrap_namespace
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.network.event_loop import new_event_loop
from rocketpy.runtime.clock import SystemClock
from rocketpy.spark.connection import refused_static
from rocketpy.spark.sink.options import SinkOptions

T = TypeVar("T")

_MOST_CLIENTS: Final = 4


class SinkClient:
    """Connections and routes on a separate event loop.

    Args:
        options: of the write.

    Attributes:
        instance: the client.
        transport: sends the messages.
        row_ids: generates message ids, for the one thread that converts rows to messages.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._namespace = options.namespace
        self._loop = new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="rocketpy-sink", daemon=True
        )
        self._thread.start()
        self.instance: Instance
        self.transport: SendTransport
        self.row_ids: MsgIds
        self.run(self._start(options))

    async def _start(self, options: SinkOptions) -> None:
        clock, rng = SystemClock(), random.SystemRandom()
        remoting = RemotingClient(options.remoting, clock=clock, rng=rng)
        credentials = find_credentials(options.credentials)
        if credentials is not None:
            remoting.hooks.append(RequestSigner(credentials))
        config = ClientConfig(
            name_servers=options.nameservers,
            namespace=options.namespace,
            api_timeout=options.timeout_ms / 1000,
        )
        self.instance = Instance(config, remoting, clock=clock, rng=rng, process_id=os.getpid())
        await self.instance.start()
        group = wrap_namespace(options.namespace, options.group)
        self.transport = SendTransport(self.instance, group, ProducerConfig())
        ip = self.instance.client_id.partition("@")[0]
        self.row_ids = MsgIds(ip, os.getpid(), clock, rng)

    async def check_topic(self, topic: str) -> None:
        """Check that messages can be sent to a topic.

        Raises:
            ConfigError: it is a static topic.
            NoRouteError: it has no route, and no broker creates it.
            NoNameServerError: no name server answers.
        """
        name = wrap_namespace(self._namespace, topic)
        await self.instance.routes.publish_queues(name)
        if self.instance.routes.is_static(name):
            raise refused_static(topic)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop and return a future of its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and wait for its result."""
        return self.submit(coroutine).result()

    def close(self) -> None:
        """Close the connections and end the thread."""
        self.run(self.instance.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_clients: dict[tuple[int, SinkOptions], SinkClient] = {}


def client_for(options: SinkOptions) -> SinkClient:
    """Return the client of this process for some options; the first task creates it.

    Tasks of a worker process run one after the other. The four clients used last are kept; Spark
    ends a worker process that is idle for a minute, and its clients with it.
    """
    key = os.getpid(), options
    client = _clients.pop(key, None)
    if client is None:
        while len(_clients) >= _MOST_CLIENTS:
            _clients.pop(next(iter(_clients))).close()
        client = SinkClient(options)
    _clients[key] = client
    return client
