"""A name server, a master and a slave as processes, and the requests of a test to them."""

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from rocketpy.errors import ConnectionLostError
from rocketpy.proto.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketpy.proto.record.message import MessageExt, decode_messages
from rocketpy.proto.record.sys_flag import PULL_SUBSCRIPTION, PULL_SUSPEND
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.runtime.clock import SystemClock
from rocketpy.testing.cluster import SMALL_STORE
from tests.integration.client.daemons import Daemon
from tests.ports import free_port

LIMIT_S = 60.0


class Pair:
    """Processes of a pair; `master` and `slave` are their names here.

    Attributes:
        directory: of everything.
        namesrv: `host:port`.
        addresses: `host:port` of both brokers.
    """

    def __init__(self, directory: Path, **properties: str) -> None:
        self.directory = directory
        self.addresses: dict[str, str] = {}
        self._daemons: dict[str, Daemon] = {}
        port = free_port()
        self.namesrv = f"127.0.0.1:{port}"
        self.set_namesrv()
        secret = directory / "secret"
        secret.write_text("0123456789abcdef0123456789abcdef\n")
        self._settings: dict[str, dict[str, str]] = {}
        self._properties = {"replicationSecretFile": str(secret), **properties}
        for name in ("master", "slave"):
            self._add(name, brokerName="broker-a")
        self.set_roles(master="master", slave="slave")

    def _add(self, name: str, **properties: str) -> None:
        port = free_port()
        self._settings[name] = {
            **SMALL_STORE,
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(port),
            "haListenPort": str(free_port()),
            "storePathRootDir": str(self.store(name)),
            "slaveReadEnable": "true",
            "flushConsumerOffsetInterval": "500",
            **self._properties,
            **properties,
        }
        self.addresses[name] = f"127.0.0.1:{port}"

    def set_namesrv(self, **properties: str) -> None:
        """Set properties that the name server has from its next start."""
        values = {
            "bindAddress": "127.0.0.1",
            "dataDir": f"{self.directory}/namesrv",
            **properties,
        }
        port = self.namesrv.rpartition(":")[2]
        log = self.directory / "namesrv.log"
        self._daemons["namesrv"] = Daemon(log, "namesrv", "-p", port, *_words(values))

    def add_group(self, name: str) -> None:
        """Add a master of another group, before the start."""
        self._add(name, brokerName=name)
        self.set_roles(master=name)

    def set_roles(self, **roles: str) -> None:
        """Set the roles that brokers have from their next start.

        Args:
            roles: name of the broker that is the `master`, and the `slave`.
        """
        for role, name in roles.items():
            kind = {"brokerId": "1", "brokerRole": "SLAVE"}
            if role == "master":
                kind = {"brokerId": "0", "brokerRole": "SYNC_MASTER"}
            values = {**self._settings[name], **kind}
            log = self.directory / f"{name}.log"
            self._daemons[name] = Daemon(log, "broker", "-n", self.namesrv, *_words(values))

    def store(self, name: str) -> Path:
        return self.directory / name

    def log_of(self, name: str) -> bytes:
        """Return the commit log, the allocated rest of the last file included."""
        files = sorted((self.store(name) / "commitlog").iterdir())
        return b"".join(each.read_bytes() for each in files)

    def start(self, name: str) -> None:
        self._daemons[name].start()

    def kill(self, name: str) -> None:
        self._daemons[name].signal(signal.SIGKILL)

    def stop(self, name: str) -> None:
        self._daemons[name].signal(signal.SIGTERM)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Requests"]:
        """Start all, and end all in any case."""
        client = new_client()
        try:
            for daemon in self._daemons.values():
                await asyncio.to_thread(daemon.start)
            yield Requests(self, client)
        finally:
            await client.close()
            self.end()

    def end(self) -> None:
        """End all processes."""
        for daemon in self._daemons.values():
            daemon.end()


def _words(properties: Mapping[str, str]) -> list[str]:
    return [word for pair in properties.items() for word in ("-D", "=".join(pair))]


def new_client() -> RemotingClient:
    return RemotingClient(RemotingClientConfig(), clock=SystemClock(), rng=random.Random(1))


class Requests:
    """Requests to one broker of a pair, without a route."""

    def __init__(self, pair: Pair, client: RemotingClient) -> None:
        self._pair = pair
        self._client = client

    async def ask(
        self, name: str, code: int, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send a request; the connection to a broker that has restarted is opened again."""
        for _ in range(2):
            request = make_request(code, ext or {}, body)
            with contextlib.suppress(ConnectionLostError):
                return await self._client.invoke(self._pair.addresses[name], request, 30_000)
        raise AssertionError(f"the connection to the {name} was lost twice")

    async def pull(
        self,
        name: str,
        topic: str,
        group: str,
        queue_id: int,
        offset: int,
        wait_ms: int = 0,
    ) -> tuple[RemotingCommand, list[MessageExt]]:
        header = PullMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=32,
            sys_flag=PULL_SUBSCRIPTION | (PULL_SUSPEND if wait_ms else 0),
            commit_offset=0,
            suspend_timeout_millis=wait_ms,
            subscription="*",
            sub_version=0,
        )
        response = await self.ask(name, RequestCode.PULL_MESSAGE, header.to_ext())
        return response, decode_messages(response.body) if response.code == 0 else []

    async def read_queue(self, name: str, topic: str, group: str, queue_id: int) -> list[bytes]:
        """Return the bodies of a whole queue."""
        bodies: list[bytes] = []
        offset = 0
        while True:
            response, messages = await self.pull(name, topic, group, queue_id, offset)
            if response.code != 0:
                return bodies
            bodies += [each.body for each in messages]
            found = PullMessageResponseHeader.from_ext(response.ext_fields)
            offset = found.next_begin_offset

    async def commit(self, name: str, topic: str, group: str, offset: int) -> int:
        ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": str(offset)}
        return (await self.ask(name, RequestCode.UPDATE_CONSUMER_OFFSET, ext)).code

    async def committed(self, name: str, topic: str, group: str) -> int:
        """Return the committed offset of queue 0; -1 without one."""
        ext = {"consumerGroup": group, "topic": topic, "queueId": "0"}
        response = await self.ask(name, RequestCode.QUERY_CONSUMER_OFFSET, ext)
        return int(response.ext_fields["offset"]) if response.code == 0 else -1


async def until(
    condition: Callable[[], Awaitable[bool]], what: str, limit_s: float = LIMIT_S
) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + limit_s
    while not await condition():
        assert time.monotonic() < deadline, f"not within {limit_s} s: {what}"
        await asyncio.sleep(0.1)
