"""Supervisor of worker processes: number, restarts, end by a signal."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketpy.app.supervisor import Supervisor, code_version, load_app
from rocketpy.cli.main import command
from rocketpy.errors import ConfigError


class Worker:
    """Process that runs until the test ends it."""

    def __init__(self, pid: int, *, is_deaf: bool = False) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.asked: list[str] = []
        self._is_deaf = is_deaf

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            raise subprocess.TimeoutExpired("worker", timeout or 0)
        return self.returncode

    def terminate(self) -> None:
        self.asked.append("terminate")
        if not self._is_deaf:
            self.returncode = 0

    def kill(self) -> None:
        self.asked.append("kill")
        self.returncode = -9


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [(each, signal.getsignal(each)) for each in numbers]
    signal.signal(signal.SIGHUP, lambda *_: None)  # it may be ignored: the tests may run with nohup
    yield
    for number, handler in before:
        signal.signal(number, handler)


def supervised(
    turns: list[Callable[[list[Worker]], object]],
    *,
    version: list[int] | None = None,
    last: signal.Signals = signal.SIGTERM,
    **options: bool,
) -> list[Worker]:
    """Run two workers; each wait for the next look is one of the turns, then a signal comes."""
    started: list[Worker] = []
    signalled: list[int] = []

    def start(given: list[str]) -> Worker:
        assert given == ["worker", "app"]
        started.append(Worker(len(started), **options))
        return started[-1]

    def sleep(seconds: float) -> None:
        if turns:
            turns.pop(0)(started)
        else:
            assert not signalled, "runs on"
            signalled.append(last)
            os.kill(os.getpid(), last)

    look = None if version is None else lambda: version[0]
    assert Supervisor(["worker", "app"], 2, look, start=start, sleep=sleep).run() == 0
    return started


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signal_ends_all_workers(number: signal.Signals) -> None:
    started = supervised([], last=number)
    assert [each.asked for each in started] == [["terminate"], ["terminate"]]


def test_supervisor_restarts_a_worker_that_ends() -> None:
    def end_one(started: list[Worker]) -> None:
        started[0].returncode = 1

    started = supervised([end_one, lambda _: None])
    assert len(started) == 3
    assert [each.asked for each in started] == [[], ["terminate"], ["terminate"]]


def test_supervisor_restarts_workers_after_code_changes() -> None:
    version = [1]

    def change(_: list[Worker]) -> None:
        version[0] += 1

    started = supervised([lambda _: None, change], version=version)
    assert len(started) == 4
    assert all(each.asked == ["terminate"] for each in started)


def test_worker_that_does_not_end_is_killed() -> None:
    assert [each.asked for each in supervised([], is_deaf=True)] == [["terminate", "kill"]] * 2


def test_version_of_code_is_that_of_its_python_files(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "b.py").write_text("")
    first = code_version(tmp_path)
    assert first[1] == 1
    (tmp_path / "notes.txt").write_text("")
    assert code_version(tmp_path) == first
    os.utime(tmp_path / "a.py", ns=(first[0] + 5, first[0] + 5))
    assert code_version(tmp_path) == (first[0] + 5, 1)
    (tmp_path / "a.py").unlink()
    assert code_version(tmp_path) == (0, 0)


def test_app_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_of_a_test.py").write_text(
        "import rocketpy\napp = rocketpy.App('a:1')\nx = 5\n"
    )
    (tmp_path / "broken_of_a_test.py").write_text("import no_such_module_anywhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert load_app("shop_of_a_test:app").client.config.name_servers == "a:1"
    for target, words in (
        ("shop_of_a_test", "MODULE:NAME"),
        ("shop_of_a_test:x", "module shop_of_a_test has no app x"),
        ("shop_of_a_test:y", "has no app y"),
        ("none_of_a_test:app", "module none_of_a_test does not exist"),
        ("./worker:app", "'./worker' is not the name of a module; .* as in worker:app"),
        ("shop/worker.py:app", "is not the name of a module; .* as in shop.worker:app"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_app(target)
    with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
        load_app("broken_of_a_test:app")


def test_run_names_an_app_that_cannot_be_loaded() -> None:
    result = CliRunner().invoke(command, ["run", "nowhere_of_a_test:app"])
    assert result.exit_code != 0
    assert isinstance(result.exception, ConfigError)
