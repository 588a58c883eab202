"""Streams from a RocketPy broker: consecutive batches, limits and restarts."""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext

from rocketpy.testing.cluster import ClusterThread
from tests.spark.fill import Row, fill, stored

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("cluster")) as running:
        yield running


class Stream:
    """Stream of topics into Parquet, run repeatedly on one checkpoint."""

    def __init__(self, spark: "SparkSession", cluster: ClusterThread, home: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._home = home
        self.batches: list[dict[str, Any]] = []
        self.through: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]] | None = None

    def start(self, trigger: dict[str, Any], **options: Any) -> Any:
        values = {"startingOffsets": "earliest", **options}
        reader = self._spark.readStream.format("rocketmq")
        frame = reader.options(nameservers=self._cluster.namesrv, **values).load()
        columns = ("brokerName", "queueId", "queueOffset", "crc32(body) AS crc", "keys")
        frame = frame.selectExpr(*columns)
        if self.through is not None:
            frame = frame.mapInArrow(self.through, frame.schema)
        writer = frame.writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._home / "checkpoint"))
        return writer.trigger(**trigger).start(str(self._home / "out"))

    def run(self, **options: Any) -> list[dict[str, Any]]:
        """Read the current messages; return the progress of each batch with a new end."""
        query = self.start({"availableNow": True}, **options)
        query.awaitTermination()
        batches = [json.loads(each.json) for each in query.recentProgress]
        self.batches += batches
        return batches

    def rows(self) -> Counter[Row]:
        """Return the written rows, read by pyarrow."""
        found: Counter[Row] = Counter()
        log = (self._home / "out" / "_spark_metadata").glob("[0-9]*")
        lines = {line for entry in log for line in entry.read_text().splitlines()[1:]}
        for line in lines:
            path = json.loads(line)["path"].removeprefix("file://")
            for row in pq.ParquetFile(path).read().to_pylist():
                key = (row["brokerName"], row["queueId"], row["queueOffset"], row["crc"])
                found[key] += 1
        return found


@pytest.fixture
def stream(spark: "SparkSession", cluster: ClusterThread, tmp_path: Path) -> Stream:
    return Stream(spark, cluster, tmp_path)


def offsets(batch: dict[str, Any], end: str) -> dict[str, Any] | None:
    found = batch["sources"][0][end]
    return None if found is None else found["o"]


def chained(batches: list[dict[str, Any]]) -> bool:
    return all(
        offsets(one, "endOffset") == offsets(following, "startOffset")
        for one, following in itertools.pairwise(batches)
    )


def forget(log: Path, number: int, *, least: int = 0) -> None:
    """Delete an entry of one of Spark's logs, as if it had never been written."""
    if number >= least:
        (log / str(number)).unlink(missing_ok=True)
        (log / f".{number}.crc").unlink(missing_ok=True)


@pytest.mark.parametrize(("limit", "count"), [(1, 3), (7, 40), (1000, 300), (None, 300)])
def test_stream_batches_are_consecutive_and_limited(
    stream: Stream, cluster: ClusterThread, limit: int | None, count: int
) -> None:
    topic = f"L{limit}"
    fill(cluster, topic, queues=2, count=count)
    options = {} if limit is None else {"maxOffsetsPerTrigger": limit}
    batches = stream.run(subscribe=topic, **options)

    assert chained(batches)
    rows = [batch["numInputRows"] for batch in batches]
    assert rows[0] == 0  # the start of the stream is durable before anything is read
    assert sum(rows) == count
    assert max(rows) <= (limit or count)
    if limit is not None:
        assert len([each for each in rows if each]) == -(-count // limit)
    assert stream.rows() == stored(cluster, topic)


def test_stream_restart_resumes_at_the_checkpoint(stream: Stream, cluster: ClusterThread) -> None:
    fill(cluster, "Restart", queues=2, count=40)
    stream.run(subscribe="Restart")
    fill(cluster, "Restart", queues=2, count=33, first=40)
    later = stream.run(subscribe="Restart")

    assert chained(stream.batches)
    assert sum(batch["numInputRows"] for batch in later) == 33
    assert stream.rows() == stored(cluster, "Restart")


def test_stream_processing_time_trigger_reads_new_messages(
    stream: Stream, cluster: ClusterThread
) -> None:
    fill(cluster, "Timed", queues=2, count=20)
    query = stream.start({"processingTime": "50 milliseconds"}, subscribe="Timed",
                         maxOffsetsPerTrigger=7)  # fmt: skip
    query.processAllAvailable()
    assert stream.rows() == stored(cluster, "Timed")
    fill(cluster, "Timed", queues=2, count=15, first=20)
    query.processAllAvailable()
    query.stop()

    batches = [json.loads(each.json) for each in query.recentProgress]
    assert chained(batches)
    rows = [batch["numInputRows"] for batch in batches]
    assert sum(rows) == 35
    assert max(rows) <= 7
    assert stream.rows() == stored(cluster, "Timed")


def test_stream_replayed_batch_has_the_same_rows(
    stream: Stream, cluster: ClusterThread, tmp_path: Path
) -> None:
    fill(cluster, "Replay", queues=2, count=40)
    batches = stream.run(subscribe="Replay", maxOffsetsPerTrigger=25)
    last = max(int(each.name) for each in (tmp_path / "checkpoint" / "commits").glob("[0-9]*"))
    forget(tmp_path / "checkpoint" / "commits", last)
    forget(tmp_path / "out" / "_spark_metadata", last)
    fill(cluster, "Replay", queues=2, count=10, first=40)
    again = stream.run(subscribe="Replay", maxOffsetsPerTrigger=25)

    assert offsets(again[0], "startOffset") == offsets(batches[-1], "startOffset")
    assert offsets(again[0], "endOffset") == offsets(batches[-1], "endOffset")
    assert again[0]["numInputRows"] == batches[-1]["numInputRows"]
    assert stream.rows() == stored(cluster, "Replay")


def test_stream_retried_task_has_the_same_rows_and_one_commit(
    stream: Stream, cluster: ClusterThread, tmp_path: Path
) -> None:
    fill(cluster, "Fails", queues=2, count=40)

    def fails_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            if batch.num_rows and context.attemptNumber() == 0:
                yield batch.slice(0, 1)
                raise RuntimeError("the first attempt")
            yield batch

    stream.through = fails_at_first
    batches = stream.run(subscribe="Fails", maxOffsetsPerTrigger=25)

    assert chained(batches)
    assert stream.rows() == stored(cluster, "Fails")
    commits = {int(each.name) for each in (tmp_path / "checkpoint" / "commits").glob("[0-9]*")}
    assert commits == {batch["batchId"] for batch in batches}
    assert len(batches) == len(commits)


def test_stream_start_survives_a_crash_in_the_first_batch(
    stream: Stream, cluster: ClusterThread, tmp_path: Path
) -> None:
    fill(cluster, "First", queues=2, count=20)
    stream.run(subscribe="First", startingOffsets="latest")
    fill(cluster, "First", queues=2, count=15, first=20)
    # As if the driver had died before the first batch was committed.
    for number in range(1, -1, -1):
        forget(tmp_path / "checkpoint" / "commits", number)
        forget(tmp_path / "checkpoint" / "offsets", number, least=1)
    again = stream.run(subscribe="First", startingOffsets="latest")

    assert sum(batch["numInputRows"] for batch in again) == 15
    assert set(stream.rows()) == {row for row in stored(cluster, "First") if row[2] >= 10}


def test_stream_limit_of_bytes_counts_stored_sizes(stream: Stream, cluster: ClusterThread) -> None:
    fill(cluster, "Bytes", queues=2, count=60, body=lambda number: b"x" * (number * 37 % 900))
    store = cluster.brokers[0].parts.store
    sizes = {
        (queue_id, offset): entry[1]
        for queue_id in range(2)
        for offset in range(30)
        if (entry := store.queue_entry("Bytes", queue_id, offset)) is not None
    }
    limit = sum(sizes.values()) // 3
    batches = stream.run(subscribe="Bytes", maxBytesPerTrigger=limit)

    assert chained(batches)
    assert 3 <= len([each for each in batches if each["numInputRows"]]) <= 4
    for batch in batches[1:]:
        start, end = (offsets(batch, each) or {} for each in ("startOffset", "endOffset"))
        first, last = (each["Bytes"]["broker-a"] for each in (start, end))
        read = [sizes[int(q), n] for q in first for n in range(first[q], last[q])]
        assert sum(read) <= limit
    assert stream.rows() == stored(cluster, "Bytes")
