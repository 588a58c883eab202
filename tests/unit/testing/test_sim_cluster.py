"""A scenario of the whole system runs in virtual time and repeats; the docs' example is one."""

import logging
import re
from pathlib import Path

import pytest

from rocketpy.errors import ClosedError
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from rocketpy.testing.sim_files import ProcessEndedError
from rocketpy.testing.sim_loop import pass_time

ROOT = Path(__file__).resolve().parents[3]
SYNC = {"flushDiskType": "SYNC_FLUSH"}


def test_example_of_the_docs_runs(caplog: pytest.LogCaptureFixture) -> None:
    text = (ROOT / "docs" / "simulation.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    test = names["test_nothing_is_lost_with_the_power"]
    assert callable(test)
    test()
    assert "damaged" not in caplog.text, "nothing of a dead broker writes to its successor's disk"


def test_broker_can_end_while_it_starts_and_start_again() -> None:
    async def scenario(cluster: SimCluster) -> None:
        broker = cluster.brokers[0]
        broker.kill()
        with pytest.raises(ClosedError):
            _ = broker.broker
        with pytest.raises(ProcessEndedError):
            await broker.start(end_after=0, power=True)
        assert not broker.is_running
        await broker.start()
        assert broker.is_running

    run_simulation(scenario, properties=SYNC)


def test_stop_that_is_cut_short_is_an_end_too() -> None:
    async def scenario(cluster: SimCluster) -> bool:
        cluster.brokers[0].end_after(0)
        await cluster.brokers[0].stop()
        return cluster.brokers[0].is_running

    assert run_simulation(scenario) is False


def test_hour_of_idling_takes_no_time_and_breaks_nothing() -> None:
    async def scenario(cluster: SimCluster) -> list[object]:
        async with cluster.client() as client:
            client.producer()
            await pass_time(3_600)
        assert cluster.loop.time() > 3_600
        return list(cluster.loop.errors)

    assert run_simulation(scenario, brokers=2) == []


def test_simulated_servers_log_to_logging(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(_: SimCluster) -> None:
        return None

    caplog.set_level(logging.INFO)
    run_simulation(scenario)
    assert capsys.readouterr() == ("", "")
    assert any("broker started" in each.getMessage() for each in caplog.records)
