"""Reads and writes beside brokers that hang or are read-only."""

import asyncio
import json
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.errors import RequestTimeoutError, RocketPyError
from rocketpy.testing.cluster import ClusterThread
from tests.integration.client.daemons import Cluster
from tests.integration.spark.engine import Engine, read_batch
from tests.integration.spark.task import in_task, write
from tests.spark.fill import fill, stored

__all__ = ["in_task"]

COUNT = 400
BOTH = {"broker-a", "broker-b"}


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("daemons"), 2).running() as running:
        asyncio.run(prepare(running.namesrv))
        yield running


async def prepare(namesrv: str) -> None:
    async with rocketpy.admin.connect(namesrv) as admin:
        for topic in ("T", "Sunk", "Late"):
            await admin.create_topic(topic, queues=1)
    async with rocketpy.connect(namesrv) as client:
        producer = client.producer()
        futures = [producer.send_nowait("T", b"%d" % number) for number in range(COUNT)]
        await asyncio.gather(*futures)


@contextmanager
def frozen(daemons: Cluster, name: str) -> Iterator[None]:
    """Suspend a broker, and resume it at the end."""
    daemons.signal(name, signal.SIGSTOP)
    try:
        yield
    finally:
        daemons.signal(name, signal.SIGCONT)


def on(rows: Counter[Any], broker: str) -> int:
    return sum(count for row, count in rows.items() if row[0] == broker)


@pytest.mark.alternate
def test_stream_beside_a_suspended_broker_reads_the_other_one(daemons: Cluster) -> None:
    engine = Engine(daemons, subscribe="T", timeoutMs=5000)
    assert engine.trigger()  # the first batch is empty
    with frozen(daemons, "broker-b"):
        engine.drain()
        assert on(engine.rows, "broker-a") == engine.rows.total() > 0
    engine.drain()

    assert engine.rows.total() == COUNT
    assert set(engine.rows.values()) == {1}


def test_read_of_a_briefly_suspended_broker_completes(daemons: Cluster) -> None:
    options = {"fetch.batchSize": 10, "arrow.batchRows": 10, "fetch.prefetch": 2}
    engine = Engine(daemons, subscribe="T", **options)
    engine.trigger()
    start, reader = json.loads(engine.log[-1]), engine.reader
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    rows = 0
    for partition in reader.partitions(start, end):
        name = partition.wanted.broker_name  # type: ignore[attr-defined]
        for number, batch in enumerate(reader.read(partition)):
            rows += batch.num_rows
            if number == 3:
                daemons.signal(name, signal.SIGSTOP)
                threading.Timer(1, daemons.signal, (name, signal.SIGCONT)).start()

    assert rows == COUNT


@pytest.mark.alternate
def test_read_of_a_suspended_broker_raises_and_names_it(daemons: Cluster) -> None:
    engine = Engine(daemons, subscribe="T", **{"fetch.timeoutMs": 1000})
    engine.trigger()
    start, reader = json.loads(engine.log[-1]), engine.reader
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    (partition,) = (
        each
        for each in reader.partitions(start, end)
        if each.wanted.broker_name == "broker-b"  # type: ignore[attr-defined]
    )
    address = daemons.addresses["broker-b"]
    with frozen(daemons, "broker-b"):
        with pytest.raises(RequestTimeoutError, match=f"broker broker-b at {address}"):
            list(reader.read(partition))
        with pytest.raises(RocketPyError, match=address):  # planning a batch fails as well
            read_batch(daemons, subscribe="T", timeoutMs=5000)

    assert read_batch(daemons, subscribe="T").total() == COUNT


@pytest.mark.alternate
@pytest.mark.usefixtures("in_task")
def test_write_beside_a_suspended_broker_uses_the_other_one(daemons: Cluster) -> None:
    with frozen(daemons, "broker-b"):
        report = write({"nameservers": daemons.namesrv}, "Sunk", COUNT)
        assert sum(each.rows for each in report.stored) == COUNT

    assert {each.broker_name for each in report.stored} == {"broker-a"}
    # Requests that the suspended broker received are stored when it resumes: at least once.
    found = read_batch(daemons, subscribe="Sunk")
    assert {row[3] for row in found} == {row[3] for row in found if row[0] == "broker-a"}
    assert len({row[3] for row in found}) == COUNT


@pytest.mark.usefixtures("in_task")
def test_write_to_suspended_brokers_fails_and_names_them(daemons: Cluster) -> None:
    options = {"nameservers": daemons.namesrv, "sendTimeoutMs": "1s", "topic": "Late"}
    with frozen(daemons, "broker-a"), frozen(daemons, "broker-b"):
        with pytest.raises(RocketPyError, match=r"127\.0\.0\.1:"):
            write(options, "Late", 10)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path / "cluster", brokers=2) as running:
        fill(running, "T", queues=1, count=40)
        yield running


def forbid_writes(cluster: ClusterThread, broker: str) -> None:
    async def run() -> None:
        async with rocketpy.admin.connect(cluster.namesrv) as admin:
            await admin.wipe_write_permission(broker)

    cluster.run(run())


@pytest.mark.usefixtures("in_task")
def test_read_only_broker_is_read_and_not_written(cluster: ClusterThread) -> None:
    options = {"nameservers": cluster.namesrv}
    everything = stored(cluster, "T")
    forbid_writes(cluster, "broker-a")

    assert read_batch(cluster, subscribe="T") == everything
    report = write(options, "T", 50)
    assert sum(each.rows for each in report.stored) == 50
    assert {each.broker_name for each in report.stored} == {"broker-b"}
    engine = Engine(cluster, subscribe="T")
    engine.drain()
    assert engine.rows == stored(cluster, "T")
    assert engine.rows.total() == 40 + 50

    forbid_writes(cluster, "broker-b")
    # Use another client, because this one has cached the old routes.
    with pytest.raises(RocketPyError, match="topic T takes no messages"):
        write(options | {"timeoutMs": "4000", "sendTimeoutMs": "2s"}, "T", 5)
    assert stored(cluster, "T").total() == 40 + 50


def test_streams_with_the_same_progress_group_each_read_all(
    cluster: ClusterThread,
) -> None:
    engines = [
        Engine(cluster, subscribe="T", progressGroup="shared", maxOffsetsPerTrigger=limit)
        for limit in (7, 13)
    ]
    while any([engine.trigger() for engine in engines]):  # noqa: C419 - both, each time
        pass

    for engine in engines:
        assert engine.rows == stored(cluster, "T")
    later = Engine(cluster, subscribe="T", startingOffsets="group", startingGroup="shared")
    later.drain()
    assert 0 <= later.rows.total() <= 40
