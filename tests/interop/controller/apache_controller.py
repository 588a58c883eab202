"""Apache's controller as a process, alone in its group."""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from rocketpy.proto.headers.controller import GetMetaDataResponseHeader
from rocketpy.proto.wire.codes import RequestCode
from tests.bad_input.kit import Wire
from tests.integration.client.daemons import LOOPBACK, Place
from tests.peer.apache import JVM, PEER
from tests.ports import free_port

START_LIMIT_S = 200.0


class ApacheController:
    """Controller of Apache 5.4.0 with DLedger.

    Args:
        home: its directory.
        place: how it is started.
        settings: more lines of controller.conf.

    Attributes:
        address: `host:port` for brokers and tools.
    """

    def __init__(self, home: Path, place: Place = LOOPBACK, settings: Sequence[str] = ()) -> None:
        self._home = home
        self._prefix = place.prefix
        self.address = f"{place.host}:{free_port()}"
        home.mkdir(parents=True)
        self._configuration = home / "controller.conf"
        self._configuration.write_text(
            "controllerDLegerGroup=group1\n"
            f"controllerDLegerPeers=n0-{self.address}\n"
            "controllerDLegerSelfId=n0\n"
            f"controllerStorePath={home}/store\n"
            f"listenPort={free_port()}\n"
            "mappedFileSize=1048576\n" + "".join(f"{each}\n" for each in settings)
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it leads."""
        environ = {
            **os.environ,
            "ROCKETMQ_HOME": str(self._home),
            "JAVA_TOOL_OPTIONS": f"{JVM} -Xmx256m -Duser.home={self._home}",
        }
        words = [*self._prefix, "bash", str(PEER), "java",
                 "org.apache.rocketmq.controller.ControllerStartup", "-c",
                 str(self._configuration)]  # fmt: skip
        output = self._home / "controller.out"
        with output.open("wb") as out:
            self._process = subprocess.Popen(words, env=environ, stdout=out, stderr=out)
        deadline = time.monotonic() + START_LIMIT_S
        while not self._leads():
            assert self._process.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.2)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; wait for the end of a process that is killed or stopped."""
        assert self._process is not None
        self._process.send_signal(number)
        if number in {signal.SIGKILL, signal.SIGTERM}:
            self._process.wait(60)

    def end(self) -> None:
        """Kill it; idempotent."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(60)

    def _leads(self) -> bool:
        try:
            with Wire(self.address) as peer:
                response = peer.call(RequestCode.CONTROLLER_GET_METADATA_INFO, {})
        except (OSError, EOFError):
            return False
        if response.code != 0:
            return False
        return GetMetaDataResponseHeader.from_ext(response.ext_fields).is_leader
