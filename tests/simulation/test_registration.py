"""Registration of brokers in time."""

import asyncio
import itertools

import pytest

from rocketpy.namesrv.holder_check import ANSWER_TIMEOUT_MS
from rocketpy.testing.sim_cluster import SimCluster, run_simulation


def test_broker_registers_its_topics_every_thirty_seconds() -> None:
    async def scenario(cluster: SimCluster) -> list[int]:
        link = cluster.brokers[0].broker.parts.name_servers
        times: list[int] = []
        register = link.register_all

        async def noted() -> None:
            times.append(cluster.clock.monotonic_ms())
            await register()

        link.register_all = noted  # type: ignore[method-assign]
        await asyncio.sleep(200)
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    pauses = run_simulation(scenario)
    assert len(pauses) >= 5
    assert all(30_000 <= pause < 30_100 for pause in pauses)


@pytest.mark.parametrize("end", ["power", "partition"])
def test_broker_that_waits_for_a_name_takes_over_soon_after_the_first_vanished(end: str) -> None:
    async def scenario(cluster: SimCluster) -> None:
        first, second = cluster.brokers
        assert cluster._name_server is not None
        members = cluster._name_server.routes.members
        for _ in range(100):
            assert members("same") == {0: first.address}, "it is alive and keeps its routes"
            await asyncio.sleep(1)
        if end == "power":
            first.lose_power()
        else:
            cluster.network.partition([first.host.name], [cluster.namesrv.split(":")[0]])
        await asyncio.sleep(30 + ANSWER_TIMEOUT_MS / 1000 + 2)
        assert members("same") == {0: second.address}

    run_simulation(scenario, brokers=2, properties={"brokerName": "same"})
