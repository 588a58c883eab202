"""Readiness of a controller with etcd, and its settings."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketpy.controller.config import ControllerConfig
from rocketpy.controller.controller import Controller
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.clock import SystemClock
from rocketpy.testing.sim_files import SimFiles
from tests.unit.controller.fake_etcd import EtcdServer, FakeEtcd

LOOPBACK = RemotingServerConfig(bind_address="127.0.0.1")


@pytest.fixture
def etcd() -> FakeEtcd:
    return FakeEtcd(EtcdServer(SystemClock().monotonic_ms))


@pytest.fixture
async def controller(tmp_path: Path, etcd: FakeEtcd) -> AsyncIterator[Controller]:
    config = ControllerConfig(
        controller_store_path=str(tmp_path), controller_listen_port=0, server=LOOPBACK,
        controller_storage="etcd", etcd_endpoints="http://127.0.0.1:1",
    )  # fmt: skip
    made = Controller(config, clock=SystemClock(), files=SimFiles(), etcd=etcd)
    yield made
    await made.stop()


async def test_controller_is_ready_when_one_leads(controller: Controller) -> None:
    assert [each.code for each in controller.not_ready()] == ["starting"]
    await controller.start()
    assert [each.code for each in controller.not_ready()] == ["no_leader"]
    leadership = controller._leadership
    assert leadership is not None
    await leadership._step()
    assert controller.not_ready() == []
    await controller.stop()
    assert [each.code for each in controller.not_ready()] == ["stopping"]


async def test_controller_without_etcd_has_no_leader(
    controller: Controller, etcd: FakeEtcd
) -> None:
    etcd.is_cut_off = True
    await controller.start()
    assert [each.code for each in controller.not_ready()] == ["no_leader"]


async def test_controller_stop_is_idempotent_and_before_start(controller: Controller) -> None:
    await controller.stop()
    await controller.start()
    await controller.stop()
    await controller.stop()


def test_controller_settings_follow_live_changes(controller: Controller) -> None:
    controller.settings.update({"slowRequestMillis": "7"})
    assert controller._remoting.slow_requests.limit_ms == 7
