"""Processes of the sides of a benchmark: start, processor time, memory."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = [
    "PEER",
    "ROOT",
    "Side",
    "compile_package",
    "start_apache",
    "start_nothing",
    "start_rocketpy",
]

ROOT = Path(__file__).parents[1]
PEER = ROOT / "tests" / "peer" / "peer.sh"
APACHE_NS_PORT, APACHE_PORT = 29876, 30911
_PACKAGES = ("rocketpy", "pyspark_rocketmq", "pyspark_rocketmq_store", "bench")
_TICKS = os.sysconf("SC_CLK_TCK")
_SETTLES_S = 3.0
"""Pause between readiness and the reading of memory."""


def pid_cpu_s(pid: int) -> float:
    """Return the processor time of a process so far, user and system, seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def pid_rss_mib(pid: int) -> float:
    """Return the resident memory of a process, with pages of files."""
    return _status_kib(pid, "VmRSS") / 1024


def pid_own_mib(pid: int) -> float:
    """Return the anonymous resident memory of a process, without pages of files."""
    return _status_kib(pid, "RssAnon") / 1024


def _status_kib(pid: int, name: str) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))


@dataclass
class Side:
    """Running system under load.

    Attributes:
        name: "rocketpy", "pure" (ours without its compiled parts), "apache" or "nothing".
        namesrv: address for clients.
        pids: process ids by role; those whose role begins with "broker" are charged.
        ready_s: seconds from start to ready.
        idle_rss_mib: resident memory by role, right after start.
        home: its directory.
        sends: what serves plain sends, as the ready line says.
        broker: address of the broker, where its ready line says it.
        ready_at_s: monotonic time at which it was ready.
    """

    name: str
    namesrv: str
    pids: Mapping[str, int]
    ready_s: float
    idle_rss_mib: Mapping[str, float]
    home: Path
    process: subprocess.Popen[bytes] | None = None
    sends: str = ""
    broker: str = ""
    ready_at_s: float = field(default_factory=time.monotonic)

    def cpu_s(self) -> float:
        """Processor time of the broker so far, user and system, seconds."""
        return sum(pid_cpu_s(pid) for role, pid in self.pids.items() if role.startswith("broker"))

    def rss_mib(self) -> dict[str, float]:
        """Resident memory of every process now."""
        return {role: pid_rss_mib(pid) for role, pid in self.pids.items()}

    def stop(self) -> None:
        """Stop what was started."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)
        else:
            subprocess.run(["bash", str(PEER), "stop", str(self.home)], check=True)


def start_apache(home: Path, heap: str, defines: Sequence[str] = ()) -> Side:
    """Start the real name server and broker, 5.4.0, with `home` as their directory."""
    env = os.environ | {
        "PEER_NS_PORT": str(APACHE_NS_PORT),
        "PEER_PORT": str(APACHE_PORT),
        "PEER_HEAP": heap,
    }
    started = time.monotonic()
    subprocess.run(
        ["bash", str(PEER), "start", str(home), "bindAddress=127.0.0.1", *defines],
        check=True,
        env=env,
    )
    ready_at_s = time.monotonic()
    pids = {role: int((home / f"{role}.pid").read_text()) for role in ("namesrv", "broker")}
    time.sleep(_SETTLES_S)
    idle = {role: pid_rss_mib(pid) for role, pid in pids.items()}
    return Side(
        "apache",
        f"127.0.0.1:{APACHE_NS_PORT}",
        pids,
        ready_at_s - started,
        idle,
        home,
        ready_at_s=ready_at_s,
    )


def compile_package() -> None:
    """Compile the byte code of the source tree, as an installation does."""
    env = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-m", "compileall", "-q", *_PACKAGES]
    subprocess.run(command, cwd=ROOT, env=env, check=True)


def start_rocketpy(
    home: Path,
    defines: Sequence[str] = (),
    *,
    pure: bool = False,
    settles_s: float = _SETTLES_S,
    limit_s: float = 120,
    verb: Sequence[str] | None = None,
) -> Side:
    """Start a RocketPy server on free ports with `home` as its directory.

    Args:
        home: where its log and its data are.
        defines: `key=value` settings.
        pure: without compiled parts.
        settles_s: how long to wait before its memory is read.
        limit_s: by when it must be ready.
        verb: which server, with its options; `standalone` unless given.
    """
    home.mkdir(parents=True, exist_ok=True)
    log = home / "rocketpy.log"
    if verb is None:
        verb = ["standalone", "--data", str(home / "data"), "--namesrv-port", "0", "--port", "0"]
    command = [sys.executable, "-m", "rocketpy", *verb, "--log-format", "json"]
    command += [word for define in defines for word in ("-D", define)]
    env = os.environ | ({"ROCKETPY_PURE": "1"} if pure else {})
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT, env=env
        )
    ready = _wait_ready(process, log, started + limit_s)
    ready_at_s = time.monotonic()
    time.sleep(settles_s)
    return Side(
        "pure" if pure else "rocketpy",
        ready.get("namesrv", ""),
        {"broker": process.pid},
        ready_at_s - started,
        {"broker": pid_rss_mib(process.pid)},
        home,
        process,
        ready.get("sends", ""),
        ready.get("broker", ""),
        ready_at_s,
    )


def start_nothing(home: Path) -> Side:
    """Start the broker that stores nothing (`bench.nothing`)."""
    home.mkdir(parents=True, exist_ok=True)
    log = home / "nothing.log"
    started = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.nothing"],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
        )
    ready = _wait_ready(process, log, started + 30)
    ready_s = time.monotonic() - started
    rss = {"broker": pid_rss_mib(process.pid)}
    return Side("nothing", ready["namesrv"], {"broker": process.pid}, ready_s, rss, home, process)


def _wait_ready(process: subprocess.Popen[bytes], log: Path, end_s: float) -> dict[str, str]:
    """Return the fields of the ready line; ends a process without one."""
    while True:
        for line in log.read_text().splitlines():
            if '"event":"ready"' in line.replace(": ", ":"):
                fields: dict[str, str] = json.loads(line)
                return fields
        if process.poll() is not None or time.monotonic() > end_s:
            process.kill()
            process.wait()
            raise SystemExit(f"the server did not start:\n{log.read_text()}")
        time.sleep(0.005)
