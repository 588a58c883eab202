"""Streams during changes of queues, topics and brokers."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row

import rocketpy.admin
from rocketpy.errors import ConfigError, DataLossError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.jobs.parquet_archive.manifest import ArchiveLog
from rocketpy.spark.jobs.parquet_archive.source import COMPRESSION, ROOT, ArchiveReader, reported
from rocketpy.testing.cluster import ClusterThread
from tests.integration.spark.engine import Engine, rows_in
from tests.spark import fill as filling
from tests.spark.fill import message_of, stored
from tests.unit.spark.jobs.kit import in_archive


def fill(cluster: ClusterThread, topic: str, **numbers: int) -> None:
    """Store small messages in small log files."""
    filling.fill(cluster, topic, **numbers, body=lambda n: b"%d" % n)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterThread]:
    # Log files of 64 KiB with a retention below an hour, so that retention deletes some.
    properties = {"mappedFileSizeCommitLog": str(1 << 16), "fileReservedTime": "0"}
    with ClusterThread(tmp_path / "cluster", brokers=2, properties=properties) as running:
        yield running


def put(cluster: ClusterThread, broker: int, topic: str, queue_id: int, numbers: range) -> None:
    async def run() -> None:
        for number in numbers:
            message = message_of(topic, queue_id, number, lambda n: b"%d" % n)
            cluster.brokers[broker].parts.store.put_message(message)

    cluster.run(run())


def change_topic(cluster: ClusterThread, topic: str, broker: int, read: int, write: int) -> None:
    async def run() -> None:
        config = TopicConfig(topic_name=topic, read_queue_nums=read, write_queue_nums=write)
        cluster.brokers[broker].parts.topics.put(config)

    cluster.run(run())
    until(lambda: route_reads(cluster, topic, broker) == read)


def route_reads(cluster: ClusterThread, topic: str, broker: int) -> int:
    async def run() -> int:
        async with rocketpy.admin.connect(cluster.namesrv) as admin:
            if not await admin.topic_exists(topic):
                return -1
            route = await admin.topic_route(topic)
        name = cluster.brokers[broker].parts.identity.broker_name
        found = [q.read_queue_nums for q in route.queue_datas if q.broker_name == name]
        return found[0] if found else 0

    return cluster.run(run())


def delete_topic(cluster: ClusterThread, topic: str) -> None:
    async def run() -> None:
        async with rocketpy.admin.connect(cluster.namesrv) as admin:
            await admin.delete_topic(topic)

    cluster.run(run())


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def trim(cluster: ClusterThread, topic: str) -> int:
    """Run retention on the first broker; return the queue's first offset."""
    store: Any = cluster.brokers[0].parts.store
    (retention,) = (one for one in store.services if one.name == "CleanCommitLogService")
    store.delete_expired_files()
    now_ms = time.monotonic_ns() // 1_000_000
    while store.min_phy_offset == 0:
        now_ms = max(retention.step(now_ms), now_ms + 1)
    (queues,) = (one for one in store.services if one.name == "CleanConsumeQueueService")
    queues.step(now_ms)
    until(lambda: store.min_offset(topic, 0) > 0)
    return int(store.min_offset(topic, 0))


def test_stream_reads_new_queues_and_brokers_from_earliest(cluster: ClusterThread) -> None:
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(10))
    engine = Engine(cluster, subscribe="T", startingOffsets="latest")
    engine.drain()
    assert engine.rows.total() == 0

    change_topic(cluster, "T", 0, 3, 3)
    change_topic(cluster, "T", 1, 2, 2)
    put(cluster, 0, "T", 2, range(10, 17))
    put(cluster, 1, "T", 1, range(20, 25))
    put(cluster, 0, "T", 0, range(30, 33))
    engine.drain()

    assert engine.rows.total() == 7 + 5 + 3
    assert set(engine.rows.values()) == {1}
    assert engine.rows == stored(cluster, "T") - Counter(
        {row: 1 for row in stored(cluster, "T") if row[:2] == ("broker-a", 0) and row[2] < 10}
    )


def test_stream_available_now_excludes_later_messages_and_queues(cluster: ClusterThread) -> None:
    fill(cluster, "T", queues=1, count=40)
    engine = Engine(cluster, subscribe="T", maxOffsetsPerTrigger=9)
    engine.restart(available_now=True)
    fill(cluster, "T", queues=2, count=30, first=40)
    engine.drain()
    assert engine.rows.total() == 40
    assert max(engine.counts) <= 9

    engine.restart(available_now=True)
    engine.drain()
    assert engine.rows == stored(cluster, "T")


def test_stream_with_ending_offsets_stops_there(cluster: ClusterThread) -> None:
    fill(cluster, "T", queues=1, count=40)
    table = {"broker-a": {"0": 7}, "broker-b": {"0": -1}}
    engine = Engine(cluster, subscribe="T", endingOffsets=json.dumps({"T": table}))
    engine.drain()

    assert Counter(row[0] for row in engine.rows) == {"broker-a": 7, "broker-b": 20}


def test_stream_removed_queue_that_was_read_is_not_a_loss(cluster: ClusterThread) -> None:
    change_topic(cluster, "T", 0, 2, 2)
    put(cluster, 0, "T", 0, range(5))
    put(cluster, 0, "T", 1, range(5, 9))
    engine = Engine(cluster, subscribe="T")
    engine.drain()
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(9, 12))
    engine.drain()
    assert engine.rows.total() == 12

    engine.restart()  # without cached state of the removed queue
    put(cluster, 0, "T", 0, range(12, 13))
    engine.drain()
    assert engine.rows.total() == 13


def test_stream_removed_queue_with_unread_messages_names_the_loss(cluster: ClusterThread) -> None:
    change_topic(cluster, "T", 0, 2, 2)
    put(cluster, 0, "T", 1, range(4))
    engine = Engine(cluster, subscribe="T")
    engine.drain()
    put(cluster, 0, "T", 1, range(4, 9))
    change_topic(cluster, "T", 0, 1, 1)

    with pytest.raises(
        DataLossError, match=r"T/broker-a/1 \[4, 9\): the queue is no longer readable"
    ):
        engine.trigger()
    engine.restart(failOnDataLoss="false")
    put(cluster, 0, "T", 0, range(10, 12))
    engine.drain()
    assert engine.rows.total() == 4 + 2


def test_stream_deleted_topic_names_the_unread_messages(cluster: ClusterThread) -> None:
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(4))
    engine = Engine(cluster, subscribe="T")
    engine.drain()
    put(cluster, 0, "T", 0, range(4, 9))
    engine.reader.planner.next(  # the ends are known, the batch is not read
        engine.reader.planner.initial()._replace(offsets={MessageQueue("T", "broker-a", 0): 4}),
        is_limited=False,
    )
    delete_topic(cluster, "T")

    with pytest.raises(DataLossError, match=r"T/broker-a/0 \[4, 9\): the topic was deleted"):
        engine.trigger()
    engine.restart(onDataLoss="skip")
    assert not engine.trigger()


def test_stream_recreated_topic_is_a_loss_and_then_read(cluster: ClusterThread) -> None:
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(9))
    engine = Engine(cluster, subscribe="T")
    engine.drain()
    delete_topic(cluster, "T")
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(20, 23))

    with pytest.raises(DataLossError, match=r"T/broker-a/0 \[3, 9\): the queue ends at 3"):
        engine.trigger()
    engine.restart(onDataLoss="skip")
    engine.drain()
    assert engine.rows.total() == 9 + 3


def lose(cluster: ClusterThread, store: Path, read: Callable[[], Any]) -> None:
    """Make a broker lose messages that were read, as in a power cut before a flush."""
    kept = store.with_name("kept")
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(5))
    cluster.run(cluster.brokers[0].stop())
    shutil.copytree(store, kept)
    cluster.restart_broker(0)
    put(cluster, 0, "T", 0, range(5, 9))
    read()
    cluster.run(cluster.brokers[0].stop())
    shutil.rmtree(store)
    shutil.copytree(kept, store)
    cluster.restart_broker(0)
    put(cluster, 0, "T", 0, range(20, 22))


def test_stream_cut_queue_resumes_with_later_messages(
    cluster: ClusterThread, tmp_path: Path
) -> None:
    engine = Engine(cluster, subscribe="T")
    lose(cluster, tmp_path / "cluster" / "broker-a", engine.drain)

    with pytest.raises(DataLossError, match=r"T/broker-a/0 \[7, 9\): .* resumes at 5"):
        engine.trigger()
    position = engine.log[-1]
    marking = Engine(cluster, subscribe="T", onDataLoss="mark")
    marking.log = [position]
    marking.drain()
    assert min(marking.rows) == ("broker-a", 0, 5, -1)  # offsets 5 to 8, read and lost
    assert marking.rows.total() == 1 + 2
    engine.restart(onDataLoss="skip")
    engine.drain()
    assert engine.rows.total() == 9 + 2
    assert set(engine.rows.values()) == {1}

    without_times = {k: v for k, v in json.loads(position).items() if k != "s"}
    engine.log = [json.dumps(without_times)]  # of a version that did not store them
    engine.restart()
    engine.drain()
    assert engine.rows.total() == 9 + 2  # at the end: no message is read again
    put(cluster, 0, "T", 0, range(22, 25))
    engine.drain()
    assert engine.rows.total() == 9 + 2 + 3


def test_archive_of_a_cut_queue_has_lost_and_later_messages(
    cluster: ClusterThread, tmp_path: Path
) -> None:
    root = tmp_path / "archive"
    options = {"nameservers": cluster.namesrv, "subscribe": "T", "startingOffsets": "earliest"}
    options |= {ROOT: str(root), COMPRESSION: "snappy"}
    position: dict[str, Any] = {}

    def batches(query: str, **more: str) -> None:
        nonlocal position
        reader = ArchiveReader(options | more)
        start = position or reader.initialOffset()
        with ArchiveLog(root) as log:
            for number in range(5):
                end = reader.latestOffset(start, reader.getDefaultReadLimit())
                parts = reader.partitions(start, end)
                rows = [
                    row for part in parts for each in reader.read(part) for row in each.to_pylist()
                ]
                log.commit(query, number, *reported(Row(**row) for row in rows))
                start = position = end

    lose(cluster, tmp_path / "cluster" / "broker-a", lambda: batches("before"))
    assert in_archive(root).total() == 9
    with pytest.raises(DataLossError, match=r"T/broker-a/0 \[7, 9\)"):
        batches("failing")
    batches("skipping", onDataLoss="skip")
    assert in_archive(root) == Counter(
        {("T", "broker-a", 0, offset): 1 + (offset in {5, 6}) for offset in range(9)}
    )
    batches("on", onDataLoss="skip")
    assert in_archive(root).total() == 9 + 2


def make_again(cluster: ClusterThread, topic: str, numbers: range) -> None:
    """Delete a topic, create it again, and store other messages."""
    delete_topic(cluster, topic)
    change_topic(cluster, topic, 0, 1, 1)
    put(cluster, 0, topic, 0, numbers)


@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
@pytest.mark.parametrize("limit", [{}, {"maxOffsetsPerTrigger": 7}], ids=["unlimited", "limited"])
def test_stream_recreated_topic_with_more_messages_is_a_loss_and_then_read_whole(
    cluster: ClusterThread, is_restarted: bool, limit: dict[str, int]
) -> None:
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(20))
    engine = Engine(cluster, subscribe="T", **limit)
    skipping = Engine(cluster, subscribe="T", onDataLoss="skip", **limit)
    marking = Engine(cluster, subscribe="T", onDataLoss="mark", **limit)
    for each in (engine, skipping, marking):
        each.drain()
        assert each.rows.total() == 20
    make_again(cluster, "T", range(100, 150))
    if is_restarted:
        for each in (engine, skipping, marking):
            each.restart()

    with pytest.raises(DataLossError, match=r"T/broker-a/0 \[0, 20\): .*other messages now"):
        engine.trigger()
    assert engine.rows.total() == 20
    skipping.drain()
    assert skipping.rows.total() == 20 + 50
    assert set(skipping.rows.values()) == {1}
    marking.drain()
    assert marking.rows.total() == 20 + 50 + 1
    assert ("broker-a", 0, 0, -1) in marking.rows
    put(cluster, 0, "T", 0, range(200, 203))
    skipping.drain()
    assert skipping.rows.total() == 20 + 50 + 3


def test_stream_recreated_topic_with_unread_messages_is_a_loss(cluster: ClusterThread) -> None:
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(20))
    engine = Engine(cluster, subscribe="T")
    engine.trigger()  # only makes the start durable
    make_again(cluster, "T", range(100, 130))

    with pytest.raises(DataLossError, match=r"T/broker-a/0 \[0, 20\)"):
        engine.trigger()
    engine.restart(onDataLoss="skip")
    engine.drain()
    assert engine.rows.total() == 30


def test_stream_with_a_checkpoint_of_an_older_version_recognises_another_queue(
    cluster: ClusterThread,
) -> None:
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(20))
    engine = Engine(cluster, subscribe="T")
    engine.drain()
    position = json.loads(engine.log[-1])
    seen = position.pop("s")["T"]["broker-a"]["0"]
    engine.log = [json.dumps(position | {"t": {"broker-a": seen[1]}})]
    put(cluster, 0, "T", 0, range(20, 25))
    engine.restart()
    engine.drain()
    assert engine.rows.total() == 25
    engine.log = [json.dumps(position | {"t": {"broker-a": seen[1]}})]
    make_again(cluster, "T", range(100, 150))
    engine.restart()

    with pytest.raises(DataLossError, match=r"T/broker-a/0 \[0, 20\)"):
        engine.trigger()


@pytest.mark.parametrize("policy", ["fail", "skip", "mark"])
def test_stream_planned_batch_of_a_recreated_topic_is_lost(
    cluster: ClusterThread, policy: str
) -> None:
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(20))
    engine = Engine(cluster, subscribe="T", onDataLoss=policy)
    engine.drain()
    put(cluster, 0, "T", 0, range(20, 30))
    reader, start = engine.reader, json.loads(engine.log[-1])
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    make_again(cluster, "T", range(100, 150))
    engine.restart()
    reader = engine.reader  # repeats the batch, as Spark does after a crash

    if policy == "fail":
        with pytest.raises(DataLossError, match=r"T/broker-a/0 \[20, 30\): .*other messages now"):
            rows_in(reader, reader.partitions(start, end))
        return
    rows = rows_in(reader, reader.partitions(start, end))
    assert rows == ({("broker-a", 0, 20, -1): 1} if policy == "mark" else {})
    engine.log.append(json.dumps(end))
    engine.drain()
    assert engine.rows.total() == 20 + 50 + (policy == "mark")


def test_stream_queue_that_shrank_and_grew_again_is_a_loss(
    cluster: ClusterThread, tmp_path: Path
) -> None:
    engine = Engine(cluster, subscribe="T")
    lose(cluster, tmp_path / "cluster" / "broker-a", engine.drain)
    put(cluster, 0, "T", 0, range(22, 40))  # more than the position again

    with pytest.raises(DataLossError, match=r"T/broker-a/0 \[5, 9\): .*other messages now"):
        engine.trigger()
    engine.restart(onDataLoss="skip")
    engine.drain()
    assert engine.rows.total() == 9 + 20
    assert set(engine.rows.values()) == {1}


def test_stream_deleted_topic_that_was_read_is_not_a_loss(cluster: ClusterThread) -> None:
    fill(cluster, "U", queues=1, count=4)
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(9))
    engine = Engine(cluster, subscribe="T,U")
    engine.drain()
    delete_topic(cluster, "T")
    assert not engine.trigger()
    put(cluster, 0, "U", 0, range(10, 12))
    engine.drain()
    assert engine.rows.total() == 9 + 4 + 2
    engine.restart()
    assert not engine.trigger()


@pytest.mark.parametrize("policy", ["fail", "skip", "mark"])
def test_stream_expired_messages_fail_skip_or_mark(cluster: ClusterThread, policy: str) -> None:
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(4))
    engine = Engine(cluster, subscribe="T", onDataLoss=policy)
    engine.drain()
    put(cluster, 0, "T", 0, range(4, 900))
    engine.stop()
    low = trim(cluster, "T")
    assert 4 < low < 900
    engine.restart()  # a restarted reader without cached state of the queue

    if policy == "fail":
        with pytest.raises(DataLossError, match=rf"T/broker-a/0 \[4, {low}\): the queue begins"):
            engine.trigger()
        return
    engine.drain()
    marks = [row for row in engine.rows if row[3] == -1]
    assert marks == ([("broker-a", 0, 4, -1)] if policy == "mark" else [])
    assert engine.rows.total() == 4 + (900 - low) + len(marks)


@pytest.mark.parametrize("policy", ["fail", "skip", "mark"])
def test_stream_damaged_record_fails_skips_or_marks(
    cluster: ClusterThread, tmp_path: Path, policy: str
) -> None:
    change_topic(cluster, "T", 0, 1, 1)
    put(cluster, 0, "T", 0, range(100, 109))
    cluster.run(cluster.brokers[0].stop())
    (log,) = (tmp_path / "cluster" / "broker-a" / "commitlog").iterdir()
    data = log.read_bytes()
    log.write_bytes(data.replace(b"104", b"1x4", 1))
    cluster.restart_broker(0)

    engine = Engine(cluster, subscribe="T", onDataLoss=policy)
    if policy == "fail":
        with pytest.raises(DataLossError, match=r"T/broker-a/0 \[4, 5\): .*damaged"):
            engine.drain()
        return
    engine.drain()
    marks = [row[2] for row in engine.rows if row[3] == -1]
    assert marks == ([4] if policy == "mark" else [])
    assert {row[2] for row in engine.rows if row[3] != -1} == {0, 1, 2, 3, 5, 6, 7, 8}
    assert set(engine.rows.values()) == {1}


def test_stream_checkpoint_of_other_topics_raises(cluster: ClusterThread) -> None:
    for topic in ("T", "U"):
        fill(cluster, topic, queues=1, count=4)
    engine = Engine(cluster, subscribe="T")
    engine.drain()
    engine.restart(subscribe="U")
    with pytest.raises(ConfigError, match="checkpoint of a query that reads T; this one reads U"):
        engine.trigger()

    engine.restart(subscribe="T,U")
    engine.drain()
    assert engine.rows == stored(cluster, "T") + stored(cluster, "U")


def test_stream_waits_for_an_unreachable_broker(cluster: ClusterThread) -> None:
    fill(cluster, "T", queues=1, count=10)
    engine = Engine(cluster, subscribe="T", timeoutMs=2000)
    engine.drain()
    stopped = cluster.brokers[1]
    cluster.run(stopped.stop())
    put(cluster, 0, "T", 0, range(10, 16))
    engine.drain()
    assert engine.rows.total() == 16

    cluster.restart_broker(1)
    put(cluster, 1, "T", 0, range(20, 27))
    engine.drain()
    assert engine.rows == stored(cluster, "T")


def test_stream_during_a_broker_restart_loses_nothing(cluster: ClusterThread) -> None:
    fill(cluster, "T", queues=1, count=300)
    options = {"fetch.batchSize": 10, "arrow.batchRows": 10, "fetch.prefetch": 2}
    engine = Engine(cluster, subscribe="T", **options)
    engine.trigger()
    start, reader = json.loads(engine.log[-1]), engine.reader
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    offsets = []
    for partition in reader.partitions(start, end):
        for number, batch in enumerate(reader.read(partition)):
            offsets += batch.column("queueOffset").to_pylist()
            if number == 3:
                cluster.restart_broker(0)

    assert offsets == [*range(150), *range(150)]


def test_stream_with_min_offsets_waits_for_the_delay(cluster: ClusterThread) -> None:
    fill(cluster, "T", queues=1, count=10)
    limits = {"minOffsetsPerTrigger": 8, "maxTriggerDelay": "1h"}
    engine = Engine(cluster, subscribe="T", **limits)
    engine.drain()
    assert engine.rows.total() == 10
    put(cluster, 0, "T", 0, range(10, 15))
    assert not engine.trigger()
    put(cluster, 0, "T", 0, range(15, 20))
    assert engine.trigger()
    assert engine.rows.total() == 20

    put(cluster, 0, "T", 0, range(20, 21))
    assert not engine.trigger()
    engine.restart(available_now=True)  # the wait ends
    engine.drain()
    assert engine.rows.total() == 21


def test_stream_progress_group_is_a_start_of_another_read(cluster: ClusterThread) -> None:
    fill(cluster, "T", queues=2, count=40)
    engine = Engine(cluster, subscribe="T", progressGroup="spark", maxOffsetsPerTrigger=12)
    for _ in range(4):  # the first is empty; each stores the progress of the previous one
        engine.trigger()

    async def lag() -> int:
        async with rocketpy.admin.connect(cluster.namesrv) as admin:
            return (await admin.group_lag("spark", "T")).lag

    assert engine.rows.total() == 36
    assert cluster.run(lag()) == 40 - 24
    later = Engine(cluster, subscribe="T", startingOffsets="group", startingGroup="spark")
    later.drain()
    assert later.rows.total() == 40 - 24
