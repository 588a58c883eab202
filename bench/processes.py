"""Processes of the sides of a benchmark: start, processor time, memory."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_port

__all__ = [
    "PEER",
    "ROOT",
    "Side",
    "compile_package",
    "end_on_sigterm",
    "listens",
    "start_apache",
    "start_nothing",
    "start_rocketpy",
]

ROOT = Path(__file__).parents[1]
PEER = ROOT / "tests" / "peer" / "peer.sh"
_PACKAGES = ("rocketpy", "pyspark_rocketmq", "pyspark_rocketmq_store", "bench")
_LISTEN = "0A"
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


def end_on_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does, so that it stops what it has started."""

    def on_signal(_number: int, _frame: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, on_signal)


def listens(pid: int, port: int) -> bool:
    """Return whether a process listens on a port of TCP, by the tables of /proc."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        path = Path(f"/proc/{pid}/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    links = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(str(descriptor.readlink()))
    return not inodes.isdisjoint(links)


def start_apache(home: Path, heap: str, defines: Sequence[str] = ()) -> Side:
    """Start the real name server and broker, 5.4.0, with `home` as their directory.

    Raises:
        SystemExit: another process has their ports.
    """
    ports = {"namesrv": free_port(), "broker": free_port()}
    env = os.environ | {
        "PEER_NS_PORT": str(ports["namesrv"]),
        "PEER_PORT": str(ports["broker"]),
        "PEER_HEAP": heap,
    }
    started = time.monotonic()
    command = ["bash", str(PEER), "start", str(home), "bindAddress=127.0.0.1", *defines]
    try:
        subprocess.run(command, check=True, env=env)
        ready_at_s = time.monotonic()
        pids = {role: int((home / f"{role}.pid").read_text()) for role in ports}
        for role, port in ports.items():
            _check_port(role, pids[role], port)
        time.sleep(_SETTLES_S)
        idle = {role: pid_rss_mib(pid) for role, pid in pids.items()}
    except BaseException:
        subprocess.run(["bash", str(PEER), "stop", str(home)], check=False)
        raise
    return Side(
        "apache",
        f"127.0.0.1:{ports['namesrv']}",
        pids,
        ready_at_s - started,
        idle,
        home,
        ready_at_s=ready_at_s,
    )


def _check_port(role: str, pid: int, port: int) -> None:
    if not listens(pid, port):
        raise SystemExit(f"another process has port {port} of Apache's {role}")


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
    try:
        ready = _wait_ready(process, log, started + limit_s)
        ready_at_s = time.monotonic()
        time.sleep(settles_s)
        rss_mib = pid_rss_mib(process.pid)
    except BaseException:
        _end(process)
        raise
    return Side(
        "pure" if pure else "rocketpy",
        ready.get("namesrv", ""),
        {"broker": process.pid},
        ready_at_s - started,
        {"broker": rss_mib},
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
    try:
        ready = _wait_ready(process, log, started + 30)
    except BaseException:
        _end(process)
        raise
    ready_s = time.monotonic() - started
    rss = {"broker": pid_rss_mib(process.pid)}
    return Side("nothing", ready["namesrv"], {"broker": process.pid}, ready_s, rss, home, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _wait_ready(process: subprocess.Popen[bytes], log: Path, end_s: float) -> dict[str, str]:
    """Return the fields of the ready line; raises SystemExit without one."""
    while True:
        for line in log.read_text().splitlines():
            if '"event":"ready"' in line.replace(": ", ":"):
                fields: dict[str, str] = json.loads(line)
                return fields
        if process.poll() is not None or time.monotonic() > end_s:
            raise SystemExit(f"the server did not start:\n{log.read_text()}")
        time.sleep(0.005)
