"""Commands and servers run on uvloop, and on asyncio's own loop where there is none."""

import asyncio
import logging
import sys

import pytest

from rocketpy.cli.servers import daemon
from rocketpy.remoting.network import event_loop
from rocketpy.remoting.network.event_loop import new_event_loop
from rocketpy.terminal.common import run


async def loop_s_home() -> str:
    return type(asyncio.get_running_loop()).__module__.partition(".")[0]


@pytest.fixture
def without_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    event_loop._warn_once.cache_clear()


def test_event_loop_is_uvloop_when_installed() -> None:
    assert run(loop_s_home()) == "uvloop"


def test_event_loop_without_uvloop_is_asyncio_with_one_warning(
    without_uvloop: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert run(loop_s_home()) == "asyncio"
        assert run(loop_s_home()) == "asyncio"
        new_event_loop().close()
    assert [record.getMessage() for record in caplog.records] == [
        "uvloop not installed, using the slower asyncio event loop"
    ]


def test_daemon_runs_without_uvloop(without_uvloop: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "_on_signals", lambda *_: None)

    class Server:
        home = ""

        async def start(self) -> None:
            self.home = await loop_s_home()
            raise KeyError("it has begun")

        async def stop(self) -> None:
            pass

    server = Server()
    with pytest.raises(KeyError):
        daemon.run_server(server, dict)
    assert server.home == "asyncio"
