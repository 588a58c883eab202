"""Composition of the name server."""

from pathlib import Path

import pytest

from rocketpy.errors import ClosedError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.server import NameServer
from rocketpy.remoting.config import RemotingServerConfig
from tests.unit.broker.fakes import FakeClock


def make(tmp_path: Path, **server: object) -> NameServer:
    config = NamesrvConfig(
        kv_config_path=str(tmp_path / "kv.json"),
        server=RemotingServerConfig(listen_port=0, **server),  # type: ignore[arg-type]
    )
    return NameServer(config, clock=FakeClock())


async def test_name_server_start_is_single_and_stop_idempotent(tmp_path: Path) -> None:
    server = make(tmp_path, bind_address="127.0.0.1")
    await server.stop()
    await server.start()
    try:
        assert server.address == f"127.0.0.1:{server.port}"
        with pytest.raises(ClosedError, match="already"):
            await server.start()
    finally:
        await server.stop()
        await server.stop()


def test_limits_follow_the_settings(tmp_path: Path) -> None:
    server = make(tmp_path)
    server.settings.update({"maxTopics": "5"})
    assert server.routes.limits.max_topics == 5


async def test_name_server_not_ready_has_a_reason(tmp_path: Path) -> None:
    server = make(tmp_path, bind_address="127.0.0.1")
    assert [each.code for each in server.not_ready()] == ["starting"]
    await server.start()
    try:
        assert server.not_ready() == []
        server.settings.update({"needWaitForService": "true"})
        assert [each.code for each in server.not_ready()] == ["waiting_for_brokers"]
    finally:
        await server.stop()
    assert server.not_ready()[0].code == "stopping"
