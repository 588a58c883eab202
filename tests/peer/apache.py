"""Apache's name server and broker as processes on loopback, started by tests/peer/peer.sh."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from rocketpy.proto.wire.codes import RequestCode
from tests.bad_input.kit import Wire
from tests.ports import free_port

PEER = Path(__file__).with_name("peer.sh")
_REGISTRATION_LIMIT_S = 150.0
# JVMs that live for a minute or two: to compile little costs least.
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


PATIENT = ("waitTimeMillsInSendQueue=30000", "osPageCacheBusyTimeOutMills=30000")
"""On a busy machine a send waits longer than the usual 200 ms. One-way ones would be lost then."""


def require_peer() -> None:
    """Skip a test where Apache's servers and tools cannot run."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        pytest.skip("needs a JDK and Maven")


@dataclass
class Apache:
    """A name server and the broker `apache-a` with a directory as their home.

    They may be started again on the same directory and ports, after ours had them meanwhile.

    Attributes:
        home: has `store`, and what they print.
        settings: more lines of broker.conf.
        heap: the broker's.
        namesrv_port: the name server's.
        port: the broker's.
        other_namesrv: where the broker registers, if not with the name server beside it.
    """

    home: Path
    settings: tuple[str, ...] = ()
    heap: str = "512m"
    namesrv_port: int = field(default_factory=free_port)
    port: int = field(default_factory=free_port)
    other_namesrv: str = ""

    @property
    def namesrv(self) -> str:
        """The name server's address."""
        return self.other_namesrv or f"127.0.0.1:{self.namesrv_port}"

    @property
    def address(self) -> str:
        """The broker's address."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start both; they serve, and the name server knows the broker, when it returns.

        A broker whose first registration took too long says that it started all the same, and tries
        again half a minute later.
        """
        registration = f"namesrvAddr={self.namesrv}"
        self._peer("start", str(self.home), registration, *PATIENT, *self.settings)
        deadline = time.monotonic() + _REGISTRATION_LIMIT_S
        while not self._is_known():
            assert time.monotonic() < deadline, "the name server does not know the broker"
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop both as a user does, and wait for their end: the store is closed then."""
        self._peer("stop", str(self.home))

    def kill(self) -> None:
        """Kill both: a clean stop takes Apache's broker many seconds."""
        for pid_file in self.home.glob("*.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid_file.read_text()), signal.SIGKILL)
            pid_file.unlink()

    def signal(self, number: signal.Signals) -> None:
        """Send the broker a signal."""
        os.kill(int((self.home / "broker.pid").read_text()), number)

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Start both servers, and stop both on exit, even after an error."""
        try:
            self.start()
            yield self
        finally:
            self.stop()

    @contextmanager
    def borrowed(self) -> Iterator[Self]:
        """Start both servers, and kill both on exit: for a store that is not opened again."""
        try:
            self.start()
            yield self
        finally:
            self.kill()

    def _is_known(self) -> bool:
        with Wire(self.namesrv) as peer:
            response = peer.call(RequestCode.GET_BROKER_CLUSTER_INFO)
        return f'"{self.address}"'.encode() in response.body

    def _peer(self, *words: str) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        environ = {
            **os.environ,
            "PEER_NS_PORT": str(self.namesrv_port),
            "PEER_PORT": str(self.port),
            "PEER_HEAP": self.heap,
            "JAVA_TOOL_OPTIONS": JVM,
        }
        # The servers inherit the output, so it goes to a file: a pipe would never end.
        path = self.home / "peer.log"
        with path.open("ab") as log:
            done = subprocess.run(
                ["bash", str(PEER), *words], env=environ, stdout=log, stderr=log, check=False
            )
        assert done.returncode == 0, f"peer.sh {words[0]}: {path.read_text()[-2000:]}"
