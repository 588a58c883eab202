"""Apache's broker in controller mode as a process, which a test may kill and start again."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tests.integration.client.daemons import LOOPBACK, Place
from tests.peer.apache import JVM, PATIENT, PEER
from tests.ports import free_port

START_LIMIT_S = 200.0
_OPEN = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/sun.nio.ch=ALL-UNNAMED "
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED "
    "--add-opens=java.base/java.lang=ALL-UNNAMED"
)


class ApacheBroker:
    """Broker `broker-a` of a group with a controller.

    Args:
        home: its directory.
        namesrv: address of the name server.
        controller: address of the controller.
        place: how it is started.
        settings: more lines of broker.conf.

    Attributes:
        home: its directory.
        address: `host:port` for clients.
    """

    def __init__(
        self,
        home: Path,
        namesrv: str,
        controller: str,
        place: Place = LOOPBACK,
        settings: Sequence[str] = (),
    ) -> None:
        self.home = home
        self._prefix = place.prefix
        port = free_port()
        self.address = f"{place.host}:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        home.mkdir(parents=True)
        self._configuration = home / "broker.conf"
        lines = [
            "brokerClusterName=DefaultCluster",
            "brokerName=broker-a",
            f"brokerIP1={place.host}",
            f"brokerIP2={place.host}",
            f"listenPort={port}",
            f"haListenPort={free_port()}",
            f"namesrvAddr={namesrv}",
            f"storePathRootDir={home}/store",
            f"storePathCommitLog={home}/store/commitlog",
            "mappedFileSizeCommitLog=67108864",
            "timerWheelEnable=false",
            "autoCreateTopicEnable=true",
            # A new master creates the topics that it has not fetched, with as many queues.
            "defaultTopicQueueNums=1",
            "enableControllerMode=true",
            f"controllerAddr={controller}",
            "allAckInSyncStateSet=true",
            *PATIENT,
            *settings,
        ]
        self._configuration.write_text("\n".join(lines) + "\n")

    @property
    def log(self) -> bytes:
        """Commit log, without the zeros of its last file."""
        files = sorted((self.home / "store" / "commitlog").glob("*"))
        return b"".join(each.read_bytes() for each in files).rstrip(b"\0")

    @property
    def output(self) -> Path:
        """File of what it prints."""
        return self.home / "broker.out"

    def start(self) -> None:
        """Start it; it serves when it has a master, which `wait` waits for."""
        environ = {
            **os.environ,
            "ROCKETMQ_HOME": str(self.home),
            "JAVA_TOOL_OPTIONS": f"{JVM} -Xmx512m {_OPEN} -Duser.home={self.home}",
        }
        words = [*self._prefix, "bash", str(PEER), "java",
                 "org.apache.rocketmq.broker.BrokerStartup", "-c",
                 str(self._configuration)]  # fmt: skip
        with self.output.open("wb") as out:
            self._process = subprocess.Popen(words, env=environ, stdout=out, stderr=out)

    def wait(self) -> None:
        """Wait until it reports its start."""
        assert self._process is not None
        deadline = time.monotonic() + START_LIMIT_S
        while b"boot success" not in self.output.read_bytes():
            assert self._process.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; wait for the end of a process that is killed or stopped."""
        assert self._process is not None
        self._process.send_signal(number)
        if number in {signal.SIGKILL, signal.SIGTERM}:
            self._process.wait(120)

    def kill(self) -> None:
        """Kill it as `kill -9` does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(60)
            self._process = None
