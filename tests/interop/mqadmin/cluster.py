"""A name server and a broker of ours on their own thread, so that Java tools can be waited for."""

import asyncio
import random
import threading
from pathlib import Path

from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.parts import BrokerParts
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.server import NameServer
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.clock import SystemClock
from rocketpy.store.config import MessageStoreConfig

START_TIMEOUT_S = 120
MIB = 1 << 20


class LocalCluster:
    """Name server and broker.

    Attributes:
        namesrv: address of the name server.
        broker: address of the broker.
        broker_name: its name.
        cluster_name: the cluster's name.
    """

    broker_name = "rocketpy-a"
    cluster_name = "DefaultCluster"

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._parts: BrokerParts | None = None
        self.namesrv = ""
        self.broker = ""
        self._thread = threading.Thread(target=self._main, name="cluster")

    def start(self) -> None:
        """Start both; returns when they listen."""
        self._thread.start()
        assert self._ready.wait(START_TIMEOUT_S), "the cluster did not start"
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Stop both."""
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(START_TIMEOUT_S)
        assert not self._thread.is_alive(), "the cluster did not stop"
        if self._failure is not None:
            raise self._failure

    @property
    def parts(self) -> BrokerParts:
        """Parts of the broker, to compare results with."""
        assert self._parts is not None
        return self._parts

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as failure:  # noqa: BLE001 - handed to the test's thread
            self._failure = failure
        self._ready.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopped = asyncio.Event()
        clock = SystemClock()
        local = RemotingServerConfig(bind_address="127.0.0.1", listen_port=0)
        settings = NamesrvConfig(data_dir=str(self._directory / "namesrv"), server=local)
        namesrv = NameServer(settings, clock=clock, rng=random.Random(1))
        await namesrv.start()
        self.namesrv = f"127.0.0.1:{namesrv.port}"
        broker = Broker(
            BrokerConfig(
                broker_name=self.broker_name,
                broker_cluster_name=self.cluster_name,
                broker_ip1="127.0.0.1",
                listen_port=0,
                namesrv_addr=self.namesrv,
            ),
            store_config=MessageStoreConfig(
                store_path_root_dir=str(self._directory / "store"),
                mapped_file_size_commit_log=64 * MIB,
            ),
            server_config=local,
            clock=clock,
            rng=random.Random(2),
        )
        await broker.start()
        self.broker = f"127.0.0.1:{broker.port}"
        self._parts = broker.parts
        self._ready.set()
        await self._stopped.wait()
        await broker.stop()
        await namesrv.stop()
