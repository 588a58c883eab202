"""Two brokers as processes, one of them killed, frozen or slow, while a load runs."""

import asyncio
import contextlib
import signal
from pathlib import Path

import pytest

from tests.integration.client.daemons import Cluster
from tests.integration.client.load import Load
from tests.sampling import sample

pytestmark = pytest.mark.timeout(400)

HARM = {"killed": signal.SIGKILL, "frozen": signal.SIGSTOP}
CASES = [  # in this order a sample has every kind
    ("killed", True), ("killed", False), ("frozen", False), ("frozen", True), ("slow", True),
    ("slow", False),
]  # fmt: skip


async def harm(load: Load, cluster: Cluster, kind: str) -> None:
    """Phases of a run: one second without faults, some with faults on broker a, one without."""
    await load.peace("broker-a", "broker-b")
    load.phase = "noticing"
    if kind == "slow":
        cluster.proxies["broker-a"].delay_s = 0.7
    else:
        cluster.signal("broker-a", HARM[kind])
    await asyncio.sleep(1.5)  # its share of a send is a second
    await load.watch(cluster.addresses["broker-a"])
    load.phase = "after"
    if kind == "slow":
        cluster.proxies["broker-a"].delay_s = 0
    elif kind == "frozen":
        cluster.signal("broker-a", signal.SIGCONT)
    else:
        await asyncio.to_thread(cluster.start, "broker-a")
    await asyncio.sleep(1)


@pytest.mark.parametrize(("kind", "avoids"), sample(CASES, 2))
async def test_no_send_is_lost_and_the_bad_broker_is_avoided_as_the_table_says(
    tmp_path: Path, kind: str, avoids: bool
) -> None:
    behind_proxy = ("broker-a",) if kind == "slow" else ()
    async with contextlib.AsyncExitStack() as stack:
        cluster = stack.enter_context(Cluster(tmp_path, 2, behind_proxy).running())
        for proxy in cluster.proxies.values():
            await proxy.start()
            stack.push_async_callback(proxy.stop)
        load = Load(cluster.namesrv, latency_fault=avoids)
        async with load.running():
            await harm(load, cluster, kind)
        assert load.failed == {}, "the other broker takes them all"
        bad, good = (cluster.addresses[name] for name in ("broker-a", "broker-b"))
        before, trouble = load.attempts["before"], load.attempts["trouble"]
        assert abs(before[bad] - before[good]) <= load.workers
        assert trouble[good] > load.workers
        if avoids and "broker-b" not in load.ever_avoided:  # else this machine itself was slow
            assert load.avoids("broker-a")  # for 30 s when it is slow, for 10 minutes when it fails
            assert trouble[bad] == 0
            assert load.attempts["noticing"][bad] < before[bad]
            assert load.attempts["after"][bad] == 0
        elif not avoids and kind != "killed":  # of whose end the name server hears at once
            assert trouble[bad] > 0
        await load.check_stored()


@pytest.mark.parametrize("number", sample([signal.SIGKILL, signal.SIGTERM], 2))
async def test_restart_of_the_only_broker_is_bridged(
    tmp_path: Path, number: signal.Signals
) -> None:
    with Cluster(tmp_path, 1).running() as cluster:
        load = Load(cluster.namesrv, timeout_s=100)
        async with load.running():
            await asyncio.sleep(0.5)
            await asyncio.to_thread(cluster.signal, "broker-a", number)
            before = len(load.sent)
            await asyncio.sleep(1)
            await asyncio.to_thread(cluster.start, "broker-a")
            await asyncio.sleep(2)
        assert load.failed == {}
        assert len(load.sent) >= before + load.workers
        await load.check_stored()


async def test_broker_that_stays_away_costs_each_send_its_time(tmp_path: Path) -> None:
    with Cluster(tmp_path, 1).running() as cluster:
        load = Load(cluster.namesrv, timeout_s=1)
        async with load.running():
            await asyncio.sleep(0.5)
            await asyncio.to_thread(cluster.signal, "broker-a", signal.SIGKILL)
            await asyncio.sleep(2)
            await asyncio.to_thread(cluster.start, "broker-a")
            await asyncio.sleep(2)
        assert load.failed
        load.check_failures()
        await load.check_stored()
