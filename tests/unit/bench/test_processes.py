"""Benchmarks as programs: what they import, whose ports they measure, how they end."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes import listens

ROOT = Path(__file__).parents[3]
PLAIN = """
import runpy, sys
for name in ("numpy", "pandas", "pyarrow", "pyspark", "matplotlib", "aiokafka", "nats"):
    sys.modules[name] = None
sys.argv = sys.argv[1:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""Runs a module where only RocketPy itself is installed."""


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ("bench --list", ""),
        ("bench --features --list", ""),
        ("bench --further --list", ""),
        ("bench --ceiling --list", ""),
        ("bench --pairs --list", ""),
        ("bench.sdk --list", "awaited"),
        ("bench.spark --list", "B8"),
    ],
)
def test_bench_lists_its_rows_in_a_plain_environment(arguments: str, key: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *arguments.split()],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert key in done.stdout
    assert done.stdout.count("\n") > 2


def test_bench_of_spark_without_spark_names_the_verb() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, "bench.spark"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.endswith("is not installed: make setup-spark installs it\n")


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="no tables of connections here")
def test_listens_knows_whose_port_it_is() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens(os.getpid(), port)
        child = subprocess.Popen(["sleep", "60"])
        try:
            assert not listens(child.pid, port)
            with socket.create_connection(("127.0.0.1", port)) as peer:
                assert not listens(os.getpid(), peer.getsockname()[1])
        finally:
            child.kill()
            child.wait()
    assert not listens(os.getpid(), port)


def test_bench_that_is_terminated_stops_its_broker(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from bench.processes import end_on_sigterm, start_rocketpy

end_on_sigterm()
side = start_rocketpy(Path(sys.argv[1]), settles_s=0)
try:
    print(side.pids["broker"], flush=True)
    sys.stdin.read()
finally:
    side.stop()
"""
    bench = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert bench.stdout is not None
    broker = int(bench.stdout.readline())
    bench.send_signal(signal.SIGTERM)
    bench.communicate(timeout=100)
    assert bench.returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(broker, 0)


def test_bench_that_is_terminated_while_its_broker_starts_ends_it(tmp_path: Path) -> None:
    code = """
import os, signal, sys, threading
from pathlib import Path
from bench import processes

processes.end_on_sigterm()
wait = processes._wait_ready
def interrupted(process, log, end_s):
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    return wait(process, log, end_s)
processes._wait_ready = interrupted
processes.start_rocketpy(Path(sys.argv[1]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        timeout=100,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
