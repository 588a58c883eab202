"""Runs Spark as users do: with a home directory, a standalone cluster, and jobs as processes."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import pyspark

from tests.ports import free_port
from tests.spark.settings import environment, settings

ROOT = Path(__file__).parents[2]
_GAVE_UP = ("Python worker failed to connect back", "calling None.org.apache.spark.api.java.JavaS")
"""Output when Spark gave up waiting, as on a busy machine: for a planner after 10 s, or at its
start for the master of the executors. No setting extends these limits."""
ARCHIVE = ROOT / "examples" / "spark_archive.py"
_START_S = 150.0


def make_home(directory: Path) -> Path:
    """Create a SPARK_HOME with separate logs and work directories; the rest is pyspark's."""
    package = Path(pyspark.__file__).parent
    home = directory / "spark-home"
    home.mkdir()
    for each in package.iterdir():
        if each.name not in {"work", "logs", "conf"}:
            (home / each.name).symlink_to(each)
    (home / "conf").mkdir()
    lines = [f"{key} {value}\n" for key, value in settings(directory).items()]
    (home / "conf" / "spark-defaults.conf").write_text("".join(lines))
    return home


def home_environment(home: Path) -> dict[str, str]:
    """Return the environment of a program that runs with this SPARK_HOME."""
    return {
        **os.environ,
        **environment(home),
        "SPARK_HOME": str(home),
        "SPARK_CONF_DIR": str(home / "conf"),
        "SPARK_NO_DAEMONIZE": "1",
        "PYTHONPATH": str(ROOT),
    }


def gave_up(said: str) -> bool:
    """Return whether the output shows that Spark gave up waiting for its own processes."""
    return any(words in said for words in _GAVE_UP)


class Program:
    """Child process with a log, and all processes that it has started.

    Args:
        command: the command line.
        home: SPARK_HOME.
        log: file for its output.
    """

    def __init__(self, command: list[str], home: Path, log: Path) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, env=home_environment(home), cwd=ROOT, stdout=output, stderr=output
            )

    @property
    def text(self) -> str:
        """Its output so far."""
        return self.log.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process.poll() is None

    def wait(self, limit_s: float) -> int:
        """Wait for its end; return its exit code."""
        return self._process.wait(limit_s)

    def wait_for(self, pattern: str, *, count: int = 1, limit_s: float = _START_S) -> None:
        """Wait until its output has a number of matches of a pattern."""

        def is_said() -> bool:
            return len(re.findall(pattern, self.text)) >= count

        self.wait_until(is_said, f"{pattern!r}", limit_s)

    def wait_until(self, condition: Callable[[], bool], what: str, limit_s: float) -> None:
        """Wait until a condition holds.

        Raises:
            AssertionError: the process ended, or the time is over; with its output and threads.
        """
        deadline = time.monotonic() + limit_s
        while True:
            was_running = (
                self.is_running
            )  # checked first, because the last action of the process counts
            if condition():
                return
            assert was_running, f"ended too soon:\n{self.text[-4000:]}"
            assert time.monotonic() < deadline, (
                f"no {what} in {limit_s} s:\n{self.text[-4000:]}\n{self.stacks()}"
            )
            time.sleep(0.05)

    def family(self) -> dict[int, str]:
        """Return its process and all descendants: command line by pid."""
        return family(self._process.pid)

    def stacks(self) -> str:
        """Return the stacks of its JVMs, to diagnose a hang."""
        jstack = shutil.which("jstack") or "true"
        jvms = [pid for pid, line in self.family().items() if "java" in line.split(" ")[0]]
        return "\n".join(_output_of([jstack, str(pid)]) for pid in jvms)

    def kill(self) -> None:
        """Kill the process and all its descendants with SIGKILL."""
        pids = self.family()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.kill()


def _output_of(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return f"{command}: no answer"
    return done.stdout


def family(root: int) -> dict[int, str]:
    """Return a process and its descendants: command line by pid."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                parents.setdefault(parent, []).append(int(entry.name))
    found: dict[int, str] = {}
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        with contextlib.suppress(OSError):
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            found[pid] = line.replace(b"\0", b" ").decode(errors="replace")
        waiting += parents.get(pid, [])
    return found


@contextlib.contextmanager
def standalone(home: Path, directory: Path, *, workers: int = 2) -> Iterator[str]:
    """Run a master and workers with one core each; yields the master's address.

    Each worker has its own loopback address, because the second attempt of a slow task starts only
    on another host.
    """
    spark_class = str(home / "bin" / "spark-class")
    port = free_port()
    address = f"spark://127.0.0.1:{port}"
    master = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
    worker = [spark_class, "org.apache.spark.deploy.worker.Worker",
              "--cores", "1", "--memory", "1g", "--webui-port", "0"]  # fmt: skip
    with contextlib.ExitStack() as stack:
        log = directory / "master.log"
        command = [*master, "--port", str(port), "--webui-port", "0"]
        first = stack.enter_context(Program(command, home, log))
        first.wait_for("New state: ALIVE")
        for number in range(workers):
            log = directory / f"worker-{number}.log"
            place = ["--host", f"127.0.0.{number + 1}", "--work-dir", f"{directory}/work-{number}"]
            command = [*worker, *place, address]
            stack.enter_context(Program(command, home, log))
        first.wait_for("Registering worker", count=workers)
        yield address


@contextlib.contextmanager
def connect_server(home: Path, directory: Path) -> Iterator[str]:
    """Run Spark's Connect server; yields its address.

    It starts within 20 s, but once did not report that within five minutes. If it does not listen,
    a second one is started, and a warning shows output and threads of the first one.
    """
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2,3]",
               "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
               "--conf", "spark.connect.grpc.binding.address=127.0.0.1"]  # fmt: skip
    for number in range(2):
        port = free_port()
        place = ["--conf", f"spark.connect.grpc.binding.port={port}", "spark-internal"]
        log = directory / f"connect-{number}.log"
        with Program([*command, *place], home, log) as server:
            try:
                server.wait_until(lambda: _listens(port), "server", 150)  # noqa: B023 - now
            except AssertionError as error:
                if number or not server.is_running:
                    raise
                with warnings.catch_warnings():
                    warnings.simplefilter("always")  # shown, but not an error here
                    warnings.warn(str(error), stacklevel=1)
            else:
                yield f"sc://127.0.0.1:{port}"
                return


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=10):
        return True
    return False


def archive_files(directory: Path) -> list[Path]:
    """Return the files that a Parquet sink has committed, from its metadata log."""
    log = directory / "_spark_metadata"
    batches = {each.name: each for each in log.iterdir() if each.name[0].isdigit()}
    compacted = [int(name.removesuffix(".compact")) for name in batches if "." in name]
    last = max(compacted, default=-1)
    chosen = [path for name, path in batches.items()
              if name == f"{last}.compact" or ("." not in name and int(name) > last)]  # fmt: skip
    found = []
    for path in chosen:
        for line in path.read_text().splitlines()[1:]:
            entry = json.loads(line)
            assert entry["action"] == "add", entry
            found.append(Path(entry["path"].removeprefix("file://")))
    return found
