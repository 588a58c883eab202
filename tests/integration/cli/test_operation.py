"""Logs, log level, health and version of server processes."""

import http.client
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import rocketpy
from tests.integration.cli.test_daemon import daemon, ready_line

LIMIT_S = 100.0


def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def rocketpy_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "rocketpy", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def standalone(path: Path) -> list[str]:
    return ["standalone", "--data", str(path / "data"), "--namesrv-port", "0", "--port", "0"]


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_health_port_and_ping_tell_when_puts_are_refused(tmp_path: Path) -> None:
    arguments = [*standalone(tmp_path), "-D", "healthListenPort=0"]
    with daemon(*arguments) as process:
        ready = ready_line(process)
        port, namesrv, broker = ready["health_port"], ready["namesrv"], ready["broker"]
        expected = {"version": rocketpy.__version__, "reasons": []}
        assert get(port, "/live") == (200, {"live": True, **expected})
        assert get(port, "/ready") == (200, {"ready": True, **expected})
        ping = ["cluster", "ping", "--ready", "-n", namesrv]
        assert rocketpy_command(*ping, "--all").returncode == 0

        change = ["broker-config", "set", "-n", namesrv, "-b", broker, "brokerPermission=4"]
        assert rocketpy_command(*change).returncode == 0
        status, body = get(port, "/ready")
        assert status == 503
        assert body["reasons"] == [
            {
                "code": "no_write_permission",
                "message": "brokerPermission is 4: producers may not send",
            }
        ]
        assert get(port, "/live")[0] == 200
        assert rocketpy_command(*ping).returncode == 0  # the name server is ready
        for which in (["--all"], ["-b", broker]):
            done = rocketpy_command(*ping, *which, "-o", "json")
            assert done.returncode == 1
            assert json_rows(done.stdout)[-1]["not_ready"].startswith("no_write_permission: ")
        assert rocketpy_command("cluster", "ping", "-n", namesrv, "-b", broker).returncode == 0
        [row] = json_rows(rocketpy_command("cluster", "list", "-n", namesrv, "-o", "json").stdout)
        assert row["rocketpy"] == rocketpy.__version__
        assert row["version"] == "V5_4_0"
        assert "no_write_permission" in row["not_ready"]


def json_rows(text: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(text)
    return rows


def test_ready_is_false_while_a_server_starts_and_stops() -> None:
    # A server whose start and stop hold the loop, as a recovery does; it asks for its own health.
    code = """
import http.client, json, sys, os, signal, threading
from rocketpy.cli.servers.daemon import Operation, run_server
from rocketpy.remoting import health_pages as module
from rocketpy.runtime import logs
from rocketpy.runtime.config.operation import OperationConfig

made = []
init = module.HealthPages.__init__
def remember(self, *arguments):
    init(self, *arguments)
    made.append(self)
module.HealthPages.__init__ = remember

def ask(path):
    connection = http.client.HTTPConnection("127.0.0.1", made[0].port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    print(answer.status, path, [each["code"] for each in body["reasons"]], flush=True)

class Held:
    async def start(self):
        ask("/live"), ask("/ready")
    async def stop(self):
        ask("/live"), ask("/ready")

def addresses():
    def later():
        ask("/live"), ask("/ready")
        os.kill(os.getpid(), signal.SIGTERM)
    threading.Timer(0.2, later).start()
    return {}

logs.configure(log_format="json")
operation = Operation(config=OperationConfig(health_listen_port=0))
sys.exit(run_server(Held(), addresses, operation))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "200 /live []",
        "503 /ready ['starting']",
        "200 /live []",
        "200 /ready []",
        "200 /live []",
        "503 /ready ['stopping']",
    ]


def test_log_level_of_both_servers_changes_while_they_run_and_goes_back(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    with daemon(*standalone(tmp_path), "--log-file", str(log)) as process:
        ready = wait_for(log, "ready")
        for command, selected in (
            ("broker-config", ["-b", ready["broker"]]),
            ("namesrv-config", []),
        ):
            set_ = [command, "set", *selected, "-n", ready["namesrv"]]
            done = rocketpy_command(*set_, "logLevel=debug", "logLevelExpiresSeconds=1")
            assert done.returncode == 0, done.stderr
            changed = wait_for(log, "log level changed", log_level="debug")
            assert changed["expires_s"] == 1
            wait_for(log, "log level changed", log_level="info")
            log.write_text("")
        done = rocketpy_command(
            "broker-config", "set", "-b", ready["broker"], "-n", ready["namesrv"], "logLevel=loud"
        )
        assert done.returncode == 1
        assert "logLevel" in done.stderr
        process.terminate()
        _, errors = process.communicate(timeout=LIMIT_S)
        assert errors == ""


def wait_for(log: Path, event: str, **fields: object) -> dict[str, Any]:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for line in events(log.read_text() if log.exists() else ""):
            if line["event"] == event and fields.items() <= line.items():
                return line
        time.sleep(0.05)
    raise AssertionError(f"{event} {fields} is not in {log.read_text()}")


def test_log_file_is_rotated_and_bounded(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    code = f"""
import logging
from pathlib import Path
from rocketpy.runtime import logs
logs.configure(file=logs.LogFile(Path({str(log)!r}), 2_000, 2))
for number in range(100):
    logging.getLogger("rocketpy").warning("line number=%d", number)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT_S)
    files = sorted(each.name for each in tmp_path.iterdir())
    assert files == ["server.log", "server.log.1", "server.log.2"]
    assert all(each.stat().st_size <= 2_000 for each in tmp_path.iterdir())
    assert "number=99" in log.read_text()


def test_log_file_that_cannot_be_opened_is_one_sentence(tmp_path: Path) -> None:
    log = tmp_path / "missing" / "server.log"
    done = rocketpy_command("namesrv", "-p", "0", "--log-file", str(log))
    assert done.returncode == 1
    assert done.stderr == f"rocketpy: {log}: No such file or directory\n"


def test_log_file_on_a_full_disk_is_reported_once(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    code = """
import logging
from pathlib import Path
from rocketpy.runtime import logs
logs.configure(file=logs.LogFile(Path("/dev/full"), 1 << 40, 1))
for number in range(100):
    logging.getLogger("rocketpy").warning("line number=%d", number)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    lines = done.stderr.splitlines()
    assert lines[0] == "log file not written: /dev/full: [Errno 28] No space left on device"
    assert done.stderr.count("log file not written") == 1


def test_hang_up_stops_cleanly_and_nohup_is_respected(tmp_path: Path) -> None:
    arguments = ["namesrv", "-p", "0", "-D", f"dataDir={tmp_path}"]
    # The tests themselves may run under nohup.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        with daemon(*arguments) as process:
            ready_line(process)
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGHUP)
            _, errors = process.communicate(timeout=LIMIT_S)
            assert process.returncode == 0
            assert events(errors)[-1]["event"] == "stopped"
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with daemon(*arguments) as process:
            ready_line(process)
            process.send_signal(signal.SIGHUP)
            process.terminate()
            _, errors = process.communicate(timeout=LIMIT_S)
            assert [each["event"] for each in events(errors)].count("stopping") == 1
            assert process.returncode == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_standalone_on_a_terminal_prints_one_line(tmp_path: Path) -> None:
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "rocketpy", *standalone(tmp_path)],
        stdin=subprocess.DEVNULL,
        stdout=its_end,
        stderr=its_end,
    )
    os.close(its_end)
    try:
        shown = os.read(terminal, 4096).decode()
        assert shown.startswith("ready: name server 127.0.0.1:"), shown
        assert shown.endswith(f", data {tmp_path / 'data'}, Ctrl-C stops\r\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
        with pytest.raises(OSError, match="Input/output"):  # no other end, and nothing printed
            os.read(terminal, 4096)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


@pytest.mark.parametrize(
    "program", ["rocketpy-broker", "rocketpy-controller", "rocketpy-namesrv", "rocketpy"]
)
def test_version_of_each_program(program: str) -> None:
    done = subprocess.run(
        [Path(sys.executable).parent / program, "--version"],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert done.stdout.startswith(f"{program}, version {rocketpy.__version__} (plain sends: ")


def test_start_lines_have_the_version_and_console_times_an_offset(tmp_path: Path) -> None:
    with daemon("namesrv", "-p", "0", "-D", f"dataDir={tmp_path}") as process:
        assert ready_line(process)["version"] == rocketpy.__version__
    code = """
import logging
from rocketpy.runtime import logs
logs.configure()
logging.getLogger("rocketpy").warning("now")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
        env={**os.environ, "TZ": "America/New_York"},
    )
    assert done.stderr[:29][-6:] in {"-05:00", "-04:00"}, done.stderr
