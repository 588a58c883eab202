"""Replicas of RocketPy join a controller of Apache."""

import asyncio
import signal
from pathlib import Path

import pytest

from tests.integration.broker.failover_group import FailoverGroup
from tests.integration.broker.test_failover import Load, check, is_full, lose_master, until
from tests.interop.controller.apache_controller import ApacheController
from tests.peer.apache import require_peer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


async def test_killed_master_is_replaced_by_a_controller_of_apache(tmp_path: Path) -> None:
    require_peer()
    controller = ApacheController(tmp_path / "apache")

    async def faults(group: FailoverGroup, load: Load) -> None:
        lost = await lose_master(group, load, signal.SIGKILL)
        await asyncio.to_thread(group.start, lost)
        await until(lambda: is_full(group), "the lost one is back")

    await check(tmp_path, faults, controller=(controller.address, controller))
