"""`rocketpy run` with real processes: a worker that dies, code that changes, probes, the end."""

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

import rocketpy.sync
from rocketpy.errors import StartError
from rocketpy.testing.cluster import ClusterThread

T = TypeVar("T")
WAIT_S = 60.0
APP = """
import os
from pathlib import Path

import rocketpy

app = rocketpy.App({namesrv!r}, group="workers")


@app.on_start
def begun() -> None:
    Path("worker-{version}-%d" % os.getpid()).touch()


@app.subscribe("jobs", group="workers", start="earliest")
async def work(message: rocketpy.ReceivedMessage) -> None:
    (Path("done") / message.body.decode()).write_text("{version}")
"""


class Run:
    """A directory with an app in it, and `rocketpy run` there."""

    def __init__(self, directory: Path, cluster: ClusterThread) -> None:
        self._directory = directory
        self._namesrv = cluster.namesrv
        (directory / "done").mkdir()
        self.write("one")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rocketpy", "run", "shop:app", "--workers", "2", "--reload"],
            cwd=directory,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )

    def write(self, version: str) -> None:
        """Write the app's code."""
        new = self._directory / "shop.new"
        new.write_text(APP.format(namesrv=self._namesrv, version=version))
        new.replace(self._directory / "shop.py")

    def workers(self, version: str) -> set[int]:
        """Ids of the processes that have begun with a version of the code and live."""
        begun = {int(each.name.rpartition("-")[2]) for each in self._begun(version)}
        return {pid for pid in begun if is_alive(pid)}

    def all_workers(self) -> set[int]:
        return {int(each.name.rpartition("-")[2]) for each in self._begun("*")}

    def done_by(self, job: str) -> str:
        """Return the code version that handled a job; empty before that."""
        with contextlib.suppress(FileNotFoundError):
            return (self._directory / "done" / job).read_text()
        return ""

    def _begun(self, version: str) -> list[Path]:
        return list(self._directory.glob(f"worker-{version}-*"))


def is_alive(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # before, or after its file was opened
        return False


def wait_for(what: Callable[[], T]) -> T:
    deadline = time.monotonic() + WAIT_S
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Run, ClusterThread]]:
    home = tmp_path / "app"
    home.mkdir()
    with ClusterThread(tmp_path / "cluster") as cluster:
        cluster.create_topic("jobs", queues=4)
        run = Run(home, cluster)
        try:
            yield run, cluster
        finally:
            for pid in run.all_workers():
                if is_alive(pid):
                    os.kill(pid, signal.SIGKILL)
            if run.process.poll() is None:
                run.process.kill()
            run.process.wait(WAIT_S)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
@pytest.mark.timeout(300)
def test_run_restarts_workers_reloads_code_and_ends_all_processes(
    running: tuple[Run, ClusterThread],
) -> None:
    run, cluster = running
    with rocketpy.sync.connect(cluster.namesrv, group="asks") as client:
        producer = client.producer()

        def serves(job: str) -> str:
            for number in range(8):  # each of four queues gets two
                producer.send("jobs", f"{job}-{number}")
            done = [wait_for(lambda n=n: run.done_by(f"{job}-{n}")) for n in range(8)]  # type: ignore[misc]
            assert len(set(done)) == 1, done
            return done[0]

        first = wait_for(lambda: len(found := run.workers("one")) == 2 and found)
        assert first
        assert serves("first") == "one"

        victim = min(first)
        os.kill(victim, signal.SIGKILL)
        second = wait_for(lambda: len(found := run.workers("one") - {victim}) == 2 and found)
        assert second
        assert not is_alive(victim)
        assert serves("after a kill") == "one"

        run.write("two")
        third = wait_for(lambda: len(found := run.workers("two")) == 2 and found)
        assert third
        assert run.workers("one") == set(), "those have ended before"
        assert serves("after a change") == "two"

        run.process.send_signal(signal.SIGTERM)
        assert run.process.wait(WAIT_S) == 0
        assert not any(is_alive(pid) for pid in run.all_workers())
        assert len(run.all_workers()) == 5


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def probe(port: int, path: str) -> tuple[int, Any] | None:
    """Return status and JSON of a probe; None while nothing listens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection), contextlib.suppress(ConnectionError):
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    return None


def codes(answer: tuple[int, Any] | None) -> list[str]:
    return [] if answer is None else [each["code"] for each in answer[1]["reasons"]]


@pytest.mark.timeout(300)
def test_run_answers_probes_from_its_start_to_its_end(tmp_path: Path) -> None:
    port = free_port()
    with ClusterThread(tmp_path / "cluster") as cluster:
        (tmp_path / "shop.py").write_text(APP.format(namesrv=cluster.namesrv, version="one"))
        cluster.create_topic("jobs")
        process = subprocess.Popen(
            [sys.executable, "-m", "rocketpy", "run", "shop:app", "--health-port", str(port)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        try:
            ready = wait_for(lambda: (found := probe(port, "/ready")) and found[0] == 200 and found)
            assert ready
            assert ready[1]["ready"] is True
            assert ready[1]["reasons"] == []
            live = probe(port, "/live")
            assert live is not None
            assert (live[0], live[1]["live"]) == (200, True)
            cluster.refuse_broker()
            wait_for(lambda: "consumer_failed" in codes(probe(port, "/ready")))
            assert (probe(port, "/live") or [0])[0] == 200, "a restart would not help"
            process.send_signal(signal.SIGTERM)
            assert process.wait(WAIT_S) == 0
            assert probe(port, "/live") is None
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(WAIT_S)


async def test_app_that_waits_for_its_servers_is_alive_and_not_ready() -> None:
    port = free_port()
    app = rocketpy.App(f"127.0.0.1:{free_port()}", group="workers")
    serving = asyncio.create_task(app.serve(health_port=port))
    await asyncio.sleep(0)
    ready = await asyncio.to_thread(probe, port, "/ready")
    live = await asyncio.to_thread(probe, port, "/live")
    assert (ready or [0])[0] == 503
    assert codes(ready) == ["starting"]
    assert (live or [0])[0] == 200
    with pytest.raises(StartError, match="choose another health port or health address"):
        await rocketpy.App("127.0.0.1:1", group="others").serve(health_port=port)
    app.stop()
    await serving
    assert probe(port, "/live") is None
