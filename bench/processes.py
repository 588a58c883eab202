"""The two sides of a benchmark as processes: what they are, how to ask what they used."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PEER", "Side", "start_apache", "start_rocketpy"]

ROOT = Path(__file__).parents[1]
PEER = ROOT / "tests" / "peer" / "peer.sh"
APACHE_NS_PORT, APACHE_PORT = 29876, 30911
_TICKS = os.sysconf("SC_CLK_TCK")


def _pid_cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _pid_rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return (
        next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        / 1024
    )


@dataclass
class Side:
    """One running system under load.

    Attributes:
        name: "rocketpy" or "apache".
        namesrv: address for clients.
        pids: process ids by role; "broker" is the one whose CPU is charged.
        ready_s: seconds from start to ready.
        idle_rss_mib: resident memory by role, right after start.
    """

    name: str
    namesrv: str
    pids: Mapping[str, int]
    ready_s: float
    idle_rss_mib: Mapping[str, float]
    home: Path
    process: subprocess.Popen[bytes] | None = None

    def cpu_s(self) -> float:
        """Processor time of the broker process so far, user and system, seconds."""
        return _pid_cpu_s(self.pids["broker"])

    def rss_mib(self) -> dict[str, float]:
        """Resident memory of every process now."""
        return {role: _pid_rss_mib(pid) for role, pid in self.pids.items()}

    def stop(self) -> None:
        """Stop what was started."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
        else:
            subprocess.run(["bash", str(PEER), "stop", str(self.home)], check=True)


def start_apache(home: Path, heap: str) -> Side:
    """Start the real name server and broker, 5.4.0, with ``home`` as their directory."""
    env = os.environ | {
        "PEER_NS_PORT": str(APACHE_NS_PORT),
        "PEER_PORT": str(APACHE_PORT),
        "PEER_HEAP": heap,
    }
    started = time.monotonic()
    subprocess.run(
        ["bash", str(PEER), "start", str(home), "bindAddress=127.0.0.1"], check=True, env=env
    )
    ready_s = time.monotonic() - started
    pids = {role: int((home / f"{role}.pid").read_text()) for role in ("namesrv", "broker")}
    time.sleep(3)  # let its start-up work finish before memory is read
    idle = {role: _pid_rss_mib(pid) for role, pid in pids.items()}
    return Side("apache", f"127.0.0.1:{APACHE_NS_PORT}", pids, ready_s, idle, home)


def _compile_package() -> None:
    """Do for the source tree what an installation does: no start compiles Python."""
    env = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(
        [sys.executable, "-m", "compileall", "-q", "rocketpy"], cwd=ROOT, env=env, check=True
    )


def start_rocketpy(home: Path, options: list[str], limit_s: float = 30) -> Side:
    """Start `rocketpy standalone` on free ports with ``home`` as its directory."""
    home.mkdir(parents=True, exist_ok=True)
    log = home / "rocketpy.log"
    command = [
        sys.executable,
        "-m",
        "rocketpy",
        "standalone",
        "--data",
        str(home / "data"),
        "--namesrv-port",
        "0",
    ]
    command += ["--port", "0", "--log-format", "json", *options]
    _compile_package()
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    while True:
        ready = [
            line
            for line in log.read_text().splitlines()
            if '"event":"ready"' in line.replace(": ", ":")
        ]
        if ready:
            break
        if process.poll() is not None or time.monotonic() - started > limit_s:
            raise SystemExit(f"rocketpy did not start:\n{log.read_text()}")
        time.sleep(0.01)
    ready_s = time.monotonic() - started
    time.sleep(3)
    pids = {"broker": process.pid}
    idle = {"broker": _pid_rss_mib(process.pid)}
    return Side("rocketpy", json.loads(ready[0])["namesrv"], pids, ready_s, idle, home, process)
