"""Registration interval of brokers."""

import asyncio
import itertools

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
