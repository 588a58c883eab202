"""The profile `ha` of docker-compose.yml: a master is killed under load.

Two controllers share etcd where it is installed; elsewhere one has its state in a file.
"""

import asyncio
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.testing.cluster import SMALL_STORE
from tests.integration.broker.pair import until
from tests.integration.compose.stack import Service, Stack, has_etcd, load, running
from tests.integration.compose.traffic import Load

pytestmark = pytest.mark.timeout(400)

NAMESRVS = ("namesrv", "namesrv-2")
REPLICAS = [f"ha-{group}-{number}" for group in "ab" for number in (1, 2, 3)]


def without_etcd(document: dict[str, Any]) -> dict[str, Any]:
    """Return the file with one controller, which needs no etcd."""
    # A deep copy would still share what the services have from the same anchor.
    changed: dict[str, Any] = json.loads(json.dumps(document))
    services = changed["services"]
    for name in ("controller-2", "etcd-1", "etcd-2", "etcd-3"):
        del services[name]
    controller = services["controller-1"]
    del controller["depends_on"]
    settings = controller["environment"]
    del settings["ROCKETPY_ETCD_ENDPOINTS"]
    settings["ROCKETPY_CONTROLLER_STORAGE"] = "local"
    settings["ROCKETPY_CONTROLLERDLEGERPEERS"] = "n1-controller-1:9878"
    for name in REPLICAS:
        services[name]["environment"]["ROCKETPY_CONTROLLER_ADDR"] = "controller-1:9878"
        del services[name]["depends_on"]["controller-2"]
    return changed


def ha_stack(directory: Path) -> Stack:
    document = load()
    if not has_etcd():
        document = without_etcd(document)
    names = [name for name, each in document["services"].items() if each.get("profiles") == ["ha"]]
    return Stack(directory, {"namesrv", *names}, settings=SMALL_STORE, document=document)


def kill(service: Service) -> None:
    assert service.process is not None
    service.process.kill()
    service.process.wait()


async def lose_a_master(stack: Stack) -> Load:
    """Kill the master of one group, and start it again when the next one takes messages."""
    addresses = ";".join(stack.services[name].endpoint for name in NAMESRVS)
    async with (
        rocketpy.admin.connect(addresses) as admin,
        rocketpy.connect(addresses, route_refresh_interval=1) as client,
    ):

        async def has_masters() -> bool:
            return set(await admin.broker_addresses()) == {"ha-a", "ha-b"}

        await until(has_masters, "both groups have masters")
        await admin.create_topic("compose", queues=4)
        load = Load(client)
        tasks = [asyncio.create_task(load.send()), asyncio.create_task(load.receive())]
        await load.more(broker="ha-a")
        master = (await admin.broker_addresses())["ha-a"]
        lost = next(each for each in stack.services.values() if each.endpoint == master)
        kill(lost)
        killed_s = time.monotonic()
        await load.more(broker="ha-a")
        gap_s = time.monotonic() - killed_s
        print(f"{lost.name} killed; its group took 50 messages within {gap_s:.1f} s")
        await load.all_received()
        assert (await admin.broker_addresses())["ha-a"] != master

        stack.run(lost)
        await asyncio.to_thread(stack.wait_healthy, lost)

        async def is_slave() -> bool:
            rows = [each for each in await admin.replicas() if each.address == master]
            return [(each.role, each.in_sync) for each in rows] == [("SLAVE", True)]

        await until(is_slave, f"{lost.name} is a slave in sync")
        await load.more(broker="ha-a")
        tasks[0].cancel()
        await load.all_received()
        tasks[1].cancel()
        await asyncio.wait(tasks)

        again = Load(client)
        again.acknowledged = load.acknowledged
        reading = asyncio.create_task(again.receive("checkers"))
        await again.all_received()
        reading.cancel()
        await asyncio.wait([reading])
        return again


def test_ha_loses_nothing_acknowledged_when_a_master_is_killed(tmp_path: Path) -> None:
    started_s = time.monotonic()
    with running(ha_stack(tmp_path)) as stack:
        stack.start()
        print(f"{len(stack.services)} services healthy after {time.monotonic() - started_s:.1f} s")
        load = asyncio.run(lose_a_master(stack))
        assert set(load.acknowledged.values()) == {"ha-a", "ha-b"}
        for name, code in stack.stop_all().items():
            # etcd ends by the signal itself where it is not the first process of a container.
            assert code == (-signal.SIGTERM if name.startswith("etcd") else 0), name
        assert not list(stack.elsewhere.iterdir())
    print(f"{len(load.acknowledged)} messages, {time.monotonic() - started_s:.1f} s")
