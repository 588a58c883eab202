"""Limits of rate, by the store times of the broker."""

from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from rocketpy.proto.record.properties import encode_properties
from rocketpy.spark.jobs import dlq, replay
from rocketpy.store import to_arrow
from rocketpy.store.results import PutMessage
from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import fill

pytestmark = pytest.mark.timeout(900)

RATE = 200


def check_pace(times: list[float], rate: float) -> None:
    """Check that messages are stored evenly: in all, and in each half second."""
    times = sorted(times)
    took = times[-1] - times[0]
    assert (len(times) - 1) / took == pytest.approx(rate, rel=0.25)
    for at in times:
        within = sum(at <= each < at + 0.5 for each in times)
        assert within <= rate * 0.5 * 1.7 + 4
    assert max(later - sooner for sooner, later in pairwise(times)) < 1.5


def stored(store: Path, topic: str) -> list[float]:
    rows = to_arrow(store, topics=[topic]).read_all().to_pylist()
    return [row["storeTimestamp"].timestamp() for row in rows]


@pytest.mark.usefixtures("spark")
def test_replay_sends_evenly_at_the_rate(tmp_path: Path) -> None:
    with ClusterThread(tmp_path / "cluster") as cluster:
        fill(cluster, "src", queues=4, count=600, body=lambda n: b"%d" % n)
        cluster.create_topic("dst", 4)
        done = CliRunner().invoke(
            replay.command,
            ["src", "--to", "dst", "--rate", str(RATE), "--namesrv", cluster.namesrv],
            catch_exceptions=False,
        )
        assert done.exit_code == 0, done.output
        times = stored(tmp_path / "cluster" / "broker-a", "dst")
    assert len(times) == 600
    check_pace(times, RATE)


@pytest.mark.usefixtures("spark")
def test_requeue_of_dead_letters_is_even_at_the_rate(tmp_path: Path) -> None:
    with ClusterThread(tmp_path / "cluster") as cluster:
        cluster.create_topic("dst", 2)
        cluster.create_topic("%DLQ%readers", 2)

        async def put() -> None:
            for number in range(500):
                properties = encode_properties({"DLQ_ORIGIN_TOPIC": "dst"})
                message = PutMessage("%DLQ%readers", number % 2, b"%d" % number, properties)
                cluster.brokers[0].parts.store.put_message(message)

        cluster.run(put())
        done = CliRunner().invoke(
            dlq.command,
            ["readers", "--requeue", "--yes", "--rate", str(RATE), "--namesrv", cluster.namesrv],
            catch_exceptions=False,
        )
        assert done.exit_code == 0, done.output
        times = stored(tmp_path / "cluster" / "broker-a", "dst")
    assert len(times) == 500
    check_pace(times, RATE)
