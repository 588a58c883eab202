import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def daemon(*arguments: str, **environ: str) -> Iterator["subprocess.Popen[str]"]:
    """Run a command, and end it in any case."""
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketpy", *arguments, "--log-format", "json"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environ},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def ready_line(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        try:
            event: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError:
            continue
        if event["event"] == "ready":
            return event
    raise AssertionError("never ready: " + "".join(seen))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(
    ("server", "key"), [("namesrv", "dataDir"), ("controller", "controllerStorePath")]
)
def test_daemon_says_when_it_is_ready_and_stops_cleanly(
    tmp_path: Path, number: signal.Signals, server: str, key: str
) -> None:
    with daemon(server, "-p", "0", "-D", f"{key}={tmp_path}") as process:
        ready = ready_line(process)
        host, _, port = ready[server].rpartition(":")
        assert ready["ms"] > 0
        with socket.create_connection((host, int(port)), timeout=60):
            pass
        process.send_signal(number)
        _, rest = process.communicate(timeout=100)
        assert process.returncode == 0, rest
        assert [json.loads(line)["event"] for line in rest.splitlines()][-1] == "stopped"
        assert "Traceback" not in rest


def test_taken_port_is_one_sentence_and_exit_code_1(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        arguments = ["-p", port, "-D", "bindAddress=127.0.0.1", "-D", f"dataDir={tmp_path}"]
        with daemon("namesrv", *arguments) as process:
            _, errors = process.communicate(timeout=100)
    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith("rocketpy: ")
    assert port in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_daemon_notifies_the_service_manager(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(path))
        manager.settimeout(100)
        with daemon("namesrv", "-p", "0", NOTIFY_SOCKET=str(path)) as process:
            assert manager.recv(100) == b"READY=1"
            process.terminate()
            assert manager.recv(100) == b"STOPPING=1"
            process.communicate(timeout=100)


def test_strict_configuration_refuses_what_has_no_effect(tmp_path: Path) -> None:
    path = tmp_path / "n.conf"
    path.write_text("listenPort=0\nlistenPrt=1\n")
    with daemon("namesrv", "-c", str(path), "--strict-config") as process:
        _, errors = process.communicate(timeout=100)
    assert process.returncode == 2
    assert f"{path}:2: listenPrt: unknown key" in errors.splitlines()[-1]


def test_controller_runs_beside_a_name_server(tmp_path: Path) -> None:
    settings = ["enableControllerInNamesrv=true", "controllerListenPort=0",
                f"controllerStorePath={tmp_path}/controller", f"dataDir={tmp_path}"]  # fmt: skip
    words = [word for each in settings for word in ("-D", each)]
    with daemon("namesrv", "-p", "0", *words) as process:
        ready = ready_line(process)
        for name in ("namesrv", "controller"):
            host, _, port = ready[name].rpartition(":")
            with socket.create_connection((host, int(port)), timeout=60):
                pass
        process.terminate()
        _, rest = process.communicate(timeout=100)
    assert process.returncode == 0, rest
    assert (tmp_path / "controller" / "controller.log").exists()


def test_both_servers_run_in_one_process(tmp_path: Path) -> None:
    data = tmp_path / "data"
    arguments = ["--data", str(data), "--namesrv-port", "0", "--port", "0"]
    with daemon("standalone", *arguments) as process:
        ready = ready_line(process)
        for name in ("namesrv", "broker"):
            host, _, port = ready[name].rpartition(":")
            with socket.create_connection((host, int(port)), timeout=60):
                pass
        # The store is locked: a second broker on it cannot start, and says so.
        with daemon("standalone", *arguments) as second:
            _, errors = second.communicate(timeout=100)
        assert second.returncode == 1
        assert "Traceback" not in errors
        process.terminate()
        _, rest = process.communicate(timeout=100)
        assert process.returncode == 0, rest
        assert not (data / "store" / "abort").exists()


def test_second_signal_ends_a_stop_that_hangs() -> None:
    # A server whose stop never ends, as a process of its own.
    code = """
import asyncio, sys
from rocketpy.cli.servers.daemon import run_server
from rocketpy.runtime import logs

class Hanging:
    async def start(self): pass
    async def stop(self): await asyncio.sleep(3600)

logs.configure(log_format="json")
sys.exit(run_server(Hanging(), dict))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    try:
        ready_line(process)
        process.terminate()
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["event"] == "stopping"
        process.terminate()
        assert process.wait(timeout=100) == 130
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_signal_while_starting_stops_without_ever_being_ready() -> None:
    code = """
import os, signal, sys, time
from rocketpy.cli.servers.daemon import run_server
from rocketpy.runtime import logs

class Slow:
    async def start(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.05)  # as a store that recovers: the loop stands still
    async def stop(self): pass

logs.configure(log_format="json")
sys.exit(run_server(Slow(), dict))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events[-2:] == ["stopping", "stopped"]
