"""Compiled or Python sends: shown by `--version`, the ready line and brokerStatus."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rocketpy.admin
from rocketpy.broker.fast_path.compiled_path import is_compiled
from tests.integration.cli.test_daemon import daemon, ready_line

NO_MODULE = """
import sys
sys.modules["rocketpy.broker.fast_path._plain_sends"] = None
from rocketpy.cli.main import main
main()
"""
"""The command where the compiled module is not installed, whatever is installed here."""


def command(code: str, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environ},
    )


async def runtime_of(namesrv: str, broker: str) -> dict[str, str]:
    async with rocketpy.admin.connect(namesrv) as admin:
        return await admin.broker_runtime(broker)


@pytest.mark.parametrize("pure", ["", "1"])
def test_version_ready_line_and_status_say_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pure: str
) -> None:
    if pure:
        monkeypatch.setenv("ROCKETPY_PURE", pure)
    path = "compiled" if is_compiled() else "python"
    assert not pure or path == "python"

    version = command("from rocketpy.cli.main import main; main()", "--version")
    assert version.stdout == f"rocketpy, version {rocketpy.__version__} (plain sends: {path})\n"

    arguments = ["--data", str(tmp_path / "data"), "--namesrv-port", "0", "--port", "0"]
    with daemon("standalone", *arguments) as process:
        ready = ready_line(process)
        assert ready["sends"] == path
        status = asyncio.run(runtime_of(ready["namesrv"], ready["broker"]))
        assert status["plainSends"] == path


def test_sends_on_a_thread_pool_show_in_version_and_status(tmp_path: Path) -> None:
    arguments = ["--data", str(tmp_path / "data"), "--namesrv-port", "0", "--port", "0"]
    with daemon("standalone", *arguments, "-D", "sendMessageThreadPoolNums=2") as process:
        ready = ready_line(process)
        assert ready["sends"] == "python"
        status = asyncio.run(runtime_of(ready["namesrv"], ready["broker"]))
        assert status["plainSends"] == "python"


def test_without_the_module_python_serves(tmp_path: Path) -> None:
    done = command(NO_MODULE, "--version", ROCKETPY_COMPILED="")
    assert done.returncode == 0
    assert done.stdout.endswith("(plain sends: python)\n")


@pytest.mark.parametrize("what", ["--version", "standalone"])
def test_required_compiled_module_that_is_missing_is_an_error(tmp_path: Path, what: str) -> None:
    arguments = ["--data", str(tmp_path / "data"), "--namesrv-port", "0", "--port", "0"]
    environ = {"ROCKETPY_COMPILED": "1", "ROCKETPY_PURE": ""}
    done = command(NO_MODULE, what, *(arguments if what == "standalone" else []), **environ)
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("rocketpy: ")
    assert "ROCKETPY_COMPILED=1" in sentence
    assert "C compiler" in sentence
    assert "Traceback" not in done.stderr
    assert '"ready"' not in done.stderr


def test_pure_is_stronger_than_compiled() -> None:
    done = command(NO_MODULE, "--version", ROCKETPY_COMPILED="1", ROCKETPY_PURE="1")
    assert done.returncode == 0
    assert done.stdout.endswith("(plain sends: python)\n")
