"""Any number of RocketPy name servers and brokers on a separate event loop."""

import asyncio
import random
import threading
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.request_table import Guard
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.server import NameServer
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.remoting.config import (
    RemotingClientConfig,
    RemotingServerConfig,
    TlsClientConfig,
    TlsServerConfig,
)
from rocketpy.runtime.clock import SystemClock
from rocketpy.runtime.config.config import Sources, load
from rocketpy.store.config import MessageStoreConfig
from rocketpy.testing.cluster import SMALL_STORE

T = TypeVar("T")
_LIMIT_S = 120
PATIENT = {"waitTimeMillsInSendQueue": "30000", "osPageCacheBusyTimeOutMills": "30000"}
"""On a busy machine a send waits longer than the usual 200 ms. One-way ones would be lost then, and
the client of 4.9 does not try the others again."""


class Servers:
    """Name servers, and masters that register with all of them.

    Args:
        directory: for the stores.
        name_servers: how many name servers.
        brokers: how many masters: `broker-a`, `broker-b`, ...
        properties: keys of broker.conf.
        tls: every port speaks it; brokers use it towards the name servers too.
        guards: of brokers by their number: what sees their requests first.
    """

    def __init__(
        self,
        directory: Path,
        *,
        name_servers: int = 1,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        tls: TlsServerConfig | None = None,
        guards: Mapping[int, Guard] | None = None,
    ) -> None:
        self._directory = directory
        self._counts = name_servers, brokers
        self._properties = {**SMALL_STORE, **PATIENT, **(properties or {})}
        self._server = RemotingServerConfig(bind_address="127.0.0.1", listen_port=0)
        self._client = RemotingClientConfig()
        if tls is not None:
            self._server = replace(self._server, tls=tls)
            self._client = replace(self._client, tls=TlsClientConfig(enable=True))
        self._guards = guards or {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servers", daemon=True)
        self.name_servers: list[NameServer] = []
        self.brokers: list[Broker | None] = []

    @property
    def namesrv(self) -> str:
        """Name server addresses for clients."""
        return ";".join(one.address for one in self.name_servers)

    def broker(self, number: int = 0) -> Broker:
        """A running broker; its parts may be read from any thread."""
        broker = self.brokers[number]
        assert broker is not None
        return broker

    def stored(self, topic: str) -> int:
        """Return the number of messages of a topic in the brokers."""
        total = 0
        for broker in filter(None, self.brokers):
            store = broker.parts.store
            config = broker.parts.topics.get(topic)
            for queue_id in range(config.write_queue_nums if config else 0):
                total += store.max_offset(topic, queue_id)  # nothing is deleted in these tests
        return total

    def sys_flags(self, topic: str) -> dict[int, int]:
        """Flags of a topic's messages by the length of their bodies as stored."""
        found: dict[int, int] = {}
        parts = self.broker().parts
        for queue_id in range(4):
            got = parts.store.get_message(topic, queue_id, 0, 32, 32 << 20)
            for record in got.buffers:
                message = decode_message(record, inflate=False)
                found[len(message.body)] = message.sys_flag
        return found

    def messages(self, topic: str) -> list[MessageExt]:
        """The messages of a topic, at most 1,000 a queue."""
        parts = self.broker().parts
        config = parts.topics.get(topic)
        found: list[MessageExt] = []
        for queue_id in range(config.write_queue_nums if config else 0):
            got = parts.store.get_message(topic, queue_id, 0, 1_000, 32 << 20)
            found += [decode_message(record) for record in got.buffers]
        return found

    def stop_broker(self, number: int) -> None:
        """Stop one broker cleanly."""
        self._run(self.broker(number).stop())
        self.brokers[number] = None

    def restart_broker(self, number: int = 0) -> None:
        """Stop one broker cleanly and start it on the same port and store."""
        port = self.broker(number).port
        self.stop_broker(number)
        self._run(self._start_broker(number, port))

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._run(self._stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_LIMIT_S)

    async def _start(self) -> None:
        name_servers, brokers = self._counts
        for number in range(name_servers):
            data = str(self._directory / f"namesrv-{number}")
            config = NamesrvConfig(data_dir=data, server=self._server)
            server = NameServer(config, clock=SystemClock())
            await server.start()
            self.name_servers.append(server)
        for number in range(brokers):
            self.brokers.append(None)
            await self._start_broker(number, 0)

    async def _stop(self) -> None:
        for broker in filter(None, self.brokers):
            await broker.stop()
        for server in self.name_servers:
            await server.stop()

    async def _start_broker(self, number: int, port: int) -> None:
        name = f"broker-{chr(ord('a') + number)}"
        values = {
            "brokerName": name,
            "brokerIP1": "127.0.0.1",
            "listenPort": str(port),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self._directory / name),
            **self._properties,
        }
        overrides = tuple(f"{key}={value}" for key, value in values.items())
        loaded = load(Sources(overrides=overrides), [BrokerConfig, MessageStoreConfig])
        broker = Broker(
            loaded.get(BrokerConfig),
            store_config=loaded.get(MessageStoreConfig),
            server_config=self._server,
            client_config=self._client,
            clock=SystemClock(),
            rng=random.Random(number),
            guard=self._guards.get(number),
        )
        await broker.start()
        self.brokers[number] = broker
