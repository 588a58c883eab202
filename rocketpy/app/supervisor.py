"""Supervisor of the worker processes of `rocketpy run`, with restarts after code changes."""

import importlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from rocketpy.app.application import App
from rocketpy.errors import ConfigError
from rocketpy.runtime.stop_signals import stop_signals

logger: logging.Logger = logging.getLogger(__name__)

_LOOK_S: Final = 0.5
_RESTART_PAUSE_S: Final = 1.0
_MAX_FILES: Final = 10_000
_STOP_S: Final = 30.0


def load_app(target: str) -> App:
    """Import the app at `module:name`; the working directory is searched first.

    Raises:
        ConfigError: the module or the app does not exist.
    """
    module_name, colon, attribute = target.partition(":")
    if not colon or not module_name or not attribute:
        raise ConfigError(f"{target!r} is not MODULE:NAME, as in shop.worker:app", key="APP")
    if not all(part.isidentifier() for part in module_name.split(".")):
        path = module_name.removesuffix(".py").removeprefix("./").strip("/")
        raise ConfigError(
            f"{module_name!r} is not the name of a module; a file is named by its path from the "
            f"working directory with dots, as in {path.replace('/', '.')}:{attribute}",
            key="APP",
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(f"module {module_name} does not exist in {here}", key="APP") from error
    found = getattr(module, attribute, None)
    if not isinstance(found, App):
        raise ConfigError(f"module {module_name} has no app {attribute}", key="APP")
    return found


def check_work(app: App, target: str) -> None:
    """Refuse an app without handlers, which would run and do nothing; log one that has hooks only.

    Raises:
        ConfigError: nothing is registered that runs.
    """
    if app.subscriptions or app.checker is not None:  # the checker responds to brokers
        return
    if not app.hooks["start"]:
        raise ConfigError(
            f"{target} has no handlers: import the modules that register them in "
            f"{target.partition(':')[0]}",
            key="APP",
        )
    logger.warning("app without handlers started: app=%(app)s", {"app": target})


def code_version(directory: Path) -> tuple[int, int]:
    """Return a version of the Python files below a directory: newest time, and number of files.

    Hidden directories are skipped; at most 10,000 files are checked.
    """
    newest = count = 0
    for folder, names, files in os.walk(directory):
        names[:] = [each for each in names if not each.startswith(".") and each != "__pycache__"]
        for name in files:
            if name.endswith(".py"):
                try:
                    newest = max(newest, (Path(folder) / name).stat().st_mtime_ns)
                except OSError:  # removed in between; the count differs then
                    continue
                count += 1
        if count >= _MAX_FILES:
            break
    return newest, count


class Process(Protocol):
    """Interface of a worker process."""

    pid: int
    returncode: int | Any

    def poll(self) -> int | None:
        """Return the exit code, None while the process runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process; raises subprocess.TimeoutExpired."""
        ...

    def terminate(self) -> None:
        """Ask the process to end."""
        ...

    def kill(self) -> None:
        """Kill the process."""
        ...


class Supervisor:
    """Supervisor that keeps worker processes running.

    A worker that ends unexpectedly is restarted after a second. SIGTERM, SIGINT and SIGHUP,
    unless it is ignored, end all workers, whose handlers finish the messages in progress.

    Args:
        command: command line of one worker.
        workers: number of workers.
        version: workers are restarted when its result changes; None for never.
        start: starts a process.
        sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        version: Callable[[], object] | None = None,
        *,
        start: Callable[[list[str]], Process] = subprocess.Popen,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._start = start
        self._sleep = sleep
        self._command = list(command)
        self._workers = workers
        self._version = version
        self._processes: list[Process] = []
        self._is_stopping = False

    def run(self) -> int:
        """Run until a signal; returns the exit code."""
        for number in stop_signals():
            signal.signal(number, lambda *_: self.stop())
        seen = None if self._version is None else self._version()
        try:
            while not self._is_stopping:
                self._fill()
                self._sleep(_LOOK_S)
                now = None if self._version is None else self._version()
                if now != seen:
                    seen = now
                    logger.info("code changed, workers restarted")
                    self._end_all()
        finally:
            self._end_all()
        return 0

    def stop(self) -> None:
        """Ask `run` to end."""
        self._is_stopping = True

    def _fill(self) -> None:
        ended = [each for each in self._processes if each.poll() is not None]
        for process in ended:
            logger.warning(
                "worker ended: pid=%(pid)d returncode=%(returncode)s",
                {"pid": process.pid, "returncode": process.returncode},
            )
            self._processes.remove(process)
        if ended:
            self._sleep(_RESTART_PAUSE_S)
        while len(self._processes) < self._workers and not self._is_stopping:
            self._processes.append(self._start(self._command))

    def _end_all(self) -> None:
        for process in self._processes:
            process.terminate()
        deadline_s = time.monotonic() + _STOP_S
        for process in self._processes:
            try:
                process.wait(max(0.0, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                logger.warning(
                    "worker did not end in time, killed: pid=%(pid)d", {"pid": process.pid}
                )
                process.kill()
                process.wait()
        self._processes.clear()
