import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from rocketpy.cli.main import command
from rocketpy.terminal.error_exit import run_command

# The plugin is switched off for this project's own tests (see pyproject.toml).
from rocketpy.testing.cluster import ClusterThread
from rocketpy.testing.plugin import rocketpy_cluster

__all__ = ["rocketpy_cluster"]


class Cli:
    """Runs `rocketpy` in this process, exit codes and error sentences included."""

    def __init__(self, namesrv: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.namesrv = namesrv
        self._capsys = capsys
        self.err = ""

    def __call__(self, *arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as ended:
            run_command(command, "rocketpy", list(arguments))
        out, self.err = self._capsys.readouterr()
        assert (ended.value.code or 0) == code, (arguments, out, self.err)
        assert "Traceback" not in self.err
        return out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@pytest.fixture
def quiet_servers() -> Iterator[None]:
    """Keep the log lines of servers in this process out of what commands print."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture
def cli(
    quiet_servers: None,
    rocketpy_cluster: ClusterThread,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Cli:
    monkeypatch.setenv("NAMESRV_ADDR", rocketpy_cluster.namesrv)
    return Cli(rocketpy_cluster.namesrv, capsys)


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return give
