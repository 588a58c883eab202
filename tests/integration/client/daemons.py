"""A name server and brokers as processes, which a test may kill, freeze and slow down."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rocketpy.testing.cluster import SMALL_STORE
from tests.ports import free_port

_START_LIMIT_S = 100.0
_INSIDE = "127.0.0.2"  # where a broker listens whose clients come through a proxy


class Place(NamedTuple):
    """Address and command line of a server process.

    Attributes:
        host: address that it listens on.
        prefix: words before its command.
        module: what Python runs, with arguments before those of the server.
    """

    host: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()
    module: tuple[str, ...] = ("rocketpy",)


LOOPBACK = Place()


class Daemon:
    """Server process; `start` returns when it reports that it is ready.

    Args:
        log: file of its standard error; the last start's.
        arguments: of `rocketpy`.
        place: how it is started.
    """

    def __init__(self, log: Path, *arguments: str, place: Place = LOOPBACK) -> None:
        self._log = log
        self._command = [
            *place.prefix, sys.executable, "-m", *place.module, *arguments, "--log-format", "json",
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stderr=log)
        deadline = time.monotonic() + _START_LIMIT_S
        while not self._is_ready():
            assert self._process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.05)

    @property
    def pid(self) -> int:
        """Process id of the last start."""
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; wait for the end of a process that is killed or stopped."""
        assert self._process is not None
        self._process.send_signal(number)
        if number in {signal.SIGKILL, signal.SIGTERM}:
            self._process.wait(60)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(60)

    def _is_ready(self) -> bool:
        for line in self._log.read_bytes().splitlines():
            with contextlib.suppress(json.JSONDecodeError):
                if json.loads(line).get("event") == "ready":
                    return True
        return False


class SlowProxy:
    """Hands bytes on both ways, those to the client after `delay_s`."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.delay_s = 0.0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection(_INSIDE, self._port)
        for source, sink, is_slow in ((reader, to_writer, False), (to_reader, writer, True)):
            task = asyncio.create_task(self._hand_on(source, sink, is_slow))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _hand_on(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, is_slow: bool
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            while chunk := await source.read(1 << 16):
                if is_slow and self.delay_s:
                    loop.call_later(self.delay_s, sink.write, chunk)
                else:
                    sink.write(chunk)
        except ConnectionError:
            pass  # the other end has gone: so does this one
        finally:
            sink.close()


class Cluster:
    """A name server and brokers `broker-a`, `broker-b`, ...; those in `behind_proxy` through one.

    `properties` are broker.conf keys for every broker, over `SMALL_STORE`.

    Attributes:
        namesrv: `host:port`.
        addresses: of the brokers, by name, as clients see them.
        proxies: by name of the broker; a test starts and stops them.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int,
        behind_proxy: tuple[str, ...] = (),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        port = free_port()
        self.namesrv = f"127.0.0.1:{port}"
        self.addresses: dict[str, str] = {}
        self.proxies: dict[str, SlowProxy] = {}
        self._namesrv = Daemon(
            directory / "namesrv.log", "namesrv", "-p", str(port), "-D", "bindAddress=127.0.0.1",
            "-D", f"dataDir={directory}/namesrv",
        )  # fmt: skip
        self._brokers: dict[str, Daemon] = {}
        for name in (f"broker-{letter}" for letter in "abcdef"[:brokers]):
            port = free_port()
            values = {
                "brokerName": name,
                "brokerIP1": "127.0.0.1",
                "bindAddress": _INSIDE if name in behind_proxy else "127.0.0.1",
                "listenPort": str(port),
                "storePathRootDir": f"{directory}/{name}",
                **SMALL_STORE,
                **(properties or {}),
            }
            settings = [word for pair in values.items() for word in ("-D", "=".join(pair))]
            self._brokers[name] = Daemon(
                directory / f"{name}.log", "broker", "-n", self.namesrv, *settings
            )
            self.addresses[name] = f"127.0.0.1:{port}"
            if name in behind_proxy:
                self.proxies[name] = SlowProxy(port)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a broker."""
        self._brokers[name].signal(number)

    def start(self, name: str) -> None:
        """Start a broker again on its store."""
        self._brokers[name].start()

    @contextmanager
    def running(self) -> Iterator["Cluster"]:
        """Start all, and end all in any case."""
        daemons = [self._namesrv, *self._brokers.values()]
        try:
            for daemon in daemons:
                daemon.start()
            yield self
        finally:
            for daemon in daemons:
                daemon.end()
