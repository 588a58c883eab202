"""Our client and two of Apache's brokers, one of them killed or frozen while a load runs."""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.client.load import Load
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

PEER = Path(__file__).parents[2] / "peer" / "peer.sh"


class Apache:
    """A name server and the brokers `apache-a` and `apache-b`, each started by a peer.sh."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = {name: (free_port(), free_port()) for name in ("apache-a", "apache-b")}
        self.namesrv = f"127.0.0.1:{self._ports['apache-a'][0]}"
        self.addresses = {name: f"127.0.0.1:{port}" for name, (_, port) in self._ports.items()}

    def start(self, name: str) -> None:
        namesrv_port, port = self._ports[name]
        env = {
            **os.environ,
            "PEER_NS_PORT": str(namesrv_port),
            "PEER_PORT": str(port),
            "PEER_HEAP": "512m",
        }
        # The second broker's own name server has nothing to do: both register with the first one's.
        settings = [f"brokerName={name}", f"namesrvAddr={self.namesrv}"]
        with (self._directory / f"{name}.log").open("ab") as log:
            command = ["bash", str(PEER), "start", str(self._directory / name), *settings]
            subprocess.run(command, env=env, check=True, stdout=log, stderr=log)

    def signal(self, name: str, number: signal.Signals) -> None:
        os.kill(int((self._directory / name / "broker.pid").read_text()), number)

    def end(self, name: str) -> None:
        """Kill what `start` started: a clean stop takes Apache's broker seconds."""
        for pid_file in self._directory.glob(f"{name}/*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid_file.read_text()), signal.SIGKILL)
            pid_file.unlink()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("needs a JDK and Maven")
    servers = Apache(tmp_path_factory.mktemp("apache"))
    try:
        servers.start("apache-a")
        servers.start("apache-b")
        yield servers
    finally:
        for name in servers.addresses:
            servers.end(name)


# In this order: a broker that was killed stays away.
@pytest.mark.parametrize("kind", ["frozen", "killed"])
async def test_no_send_is_lost_when_one_of_apache_s_brokers_is_bad(
    apache: Apache, kind: str
) -> None:
    load = Load(apache.namesrv, latency_fault=True)
    bad, good = apache.addresses["apache-b"], apache.addresses["apache-a"]
    async with load.running():
        await asyncio.sleep(2)
        load.phase = "noticing"
        apache.signal("apache-b", signal.SIGSTOP if kind == "frozen" else signal.SIGKILL)
        await asyncio.sleep(2)
        await load.watch(bad)
        if kind == "frozen":
            apache.signal("apache-b", signal.SIGCONT)
    assert load.failed == {}
    assert load.attempts["before"][bad] > 0
    assert load.attempts["trouble"][bad] == 0 or load.avoids("apache-a")
    assert load.attempts["trouble"][good] > load.workers
    if kind == "killed":
        await asyncio.to_thread(apache.end, "apache-b")
        await asyncio.to_thread(apache.start, "apache-b")
    await load.check_stored()
