"""A broker group as processes: a name server, a master, slaves, and a link to each slave."""

import contextlib
import json
import re
import resource
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rocketpy.proto.wire.codes import RequestCode
from rocketpy.testing.cluster import SMALL_STORE
from tests.bad_input.kit import Wire
from tests.failover.skewed import MODULE, Skew
from tests.integration.client.daemons import Daemon, Place
from tests.ports import free_port
from tests.replication.link import Link

MASTER = "master"
LOG_FILE_BYTES = 4 << 20
SLAVE_TIMEOUT_S = 1.0
_SECRET = "0123456789abcdef0123456789abcdef\n"


class Group:
    """Processes of one group; `master`, `slave1`, ... are their names here.

    Attributes:
        slaves: names of the slaves.
        links: link of each slave to the master.
        skews: clocks of each broker.
        namesrv: `host:port`.
    """

    def __init__(self, directory: Path, slaves: int, flush: str, need: int = 2) -> None:
        self._directory = directory
        port = free_port()
        self.namesrv = f"127.0.0.1:{port}"
        self._daemons = {
            "namesrv": Daemon(
                directory / "namesrv.log", "namesrv", "-p", str(port),
                "-D", "bindAddress=127.0.0.1", "-D", f"dataDir={directory}/namesrv",
            )
        }  # fmt: skip
        (directory / "secret").write_text(_SECRET)
        self._ports: dict[str, int] = {}
        self.skews: dict[str, Skew] = {}
        ha_port = free_port()
        self._add(MASTER, flush, {
            "brokerId": "0", "brokerRole": "SYNC_MASTER", "haListenPort": str(ha_port),
            "inSyncReplicas": str(need), "slaveTimeout": str(round(1_000 * SLAVE_TIMEOUT_S)),
        })  # fmt: skip
        self.slaves = [f"slave{number}" for number in range(1, slaves + 1)]
        self.links: dict[str, Link] = {}
        for number, name in enumerate(self.slaves, start=1):
            link = self.links[name] = Link(ha_port)
            self._add(name, flush, {
                "brokerId": str(number), "brokerRole": "SLAVE",
                "haMasterAddress": f"127.0.0.1:{link.port}", "haListenPort": str(free_port()),
            })  # fmt: skip

    def _add(self, name: str, flush: str, own: dict[str, str]) -> None:
        port = self._ports[name] = free_port()
        values = {
            **SMALL_STORE,
            "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(port),
            "storePathRootDir": str(self.store(name)),
            "flushDiskType": flush,
            "slaveReadEnable": "true",
            "replicationSecretFile": f"{self._directory}/secret",
            **own,
        }
        settings = [word for pair in values.items() for word in ("-D", "=".join(pair))]
        log = self._directory / f"{name}.log"
        skew = self.skews[name] = Skew(self._directory / f"{name}.clock")
        place = Place(module=(MODULE, str(skew.path)))
        self._daemons[name] = Daemon(log, "broker", "-n", self.namesrv, *settings, place=place)

    @property
    def brokers(self) -> list[str]:
        """Names of the master and its slaves."""
        return [MASTER, *self.slaves]

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self._ports[name]}"

    def store(self, name: str) -> Path:
        return self._directory / name

    def start(self, name: str) -> None:
        self._daemons[name].start()

    def signal(self, name: str, number: signal.Signals) -> None:
        self._daemons[name].signal(number)

    def limit_files(self, name: str, size_bytes: int) -> None:
        """Let a process write no file beyond a size, as on a disk that is full; -1: no limit."""
        pid = self._daemons[name].pid
        limit = size_bytes if size_bytes >= 0 else resource.RLIM_INFINITY
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    @contextmanager
    def running(self) -> Iterator["Group"]:
        """Start all, and end all in any case."""
        try:
            for link in self.links.values():
                link.start()
            for daemon in self._daemons.values():
                daemon.start()
            yield self
        finally:
            for daemon in self._daemons.values():
                daemon.end()
            for link in self.links.values():
                link.stop()

    def status(self, name: str) -> dict[str, Any]:
        """Return what a broker says of its replication (907)."""
        with Wire(self.address(name)) as peer:
            found: dict[str, Any] = json.loads(peer.call(RequestCode.GET_BROKER_HA_STATUS).body)
        return found

    def end(self, name: str) -> int:
        """Return the end of a broker's log."""
        status = self.status(name)
        if name == MASTER:
            return int(status["masterCommitLogMaxOffset"])
        return int(status["haClientRuntimeInfo"]["maxOffset"])

    def wait_in_sync(self, limit_s: float) -> int:
        """Wait until all slaves have the whole log, and the master knows it; return its end.

        After a restart the master gives consumers only what slaves have confirmed again.

        Raises:
            AssertionError: they do not get it.
        """
        deadline = time.monotonic() + limit_s
        while True:
            ends: dict[str, object] = {}
            try:
                ends["confirmed"] = self.status(MASTER)["confirmedOffset"]
            except (OSError, ValueError, KeyError) as error:
                ends["confirmed"] = repr(error)
            for name in self.brokers:
                try:
                    ends[name] = self.end(name)
                except (OSError, ValueError, KeyError) as error:
                    ends[name] = repr(error)
            end = ends[MASTER]
            if isinstance(end, int) and set(ends.values()) == {end}:
                return end
            assert time.monotonic() < deadline, f"not in sync: {ends}; {self.last_lines()}"
            time.sleep(0.1)

    def log_bytes(self, name: str, start: int, end: int) -> bytes:
        """Return a part of a commit log."""
        parts = []
        for file in sorted((self.store(name) / "commitlog").iterdir()):
            base = int(file.name)
            low, high = max(start, base), min(end, base + LOG_FILE_BYTES)
            if low < high:
                with file.open("rb") as opened:
                    opened.seek(low - base)
                    parts.append(opened.read(high - low))
        return b"".join(parts)

    def last_lines(self) -> str:
        """Return the warnings of all brokers, for a failure's report."""
        found = []
        for name in self.brokers:
            with contextlib.suppress(OSError):
                lines = (self._directory / f"{name}.log").read_text().splitlines()
                loud = [line for line in lines if re.search(r'"(warning|error)"', line)]
                found.append(f"{name}: " + " | ".join(loud[-6:]))
        return "\n".join(found)
