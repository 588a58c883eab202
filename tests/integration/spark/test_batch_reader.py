"""Start and end of batch reads, and errors of the driver."""

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

import rocketpy.admin
from rocketpy.arrow import row_schema
from rocketpy.errors import (
    ConfigError,
    DataLossError,
    NoNameServerError,
    TopicNotExistError,
)
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.options import parse_options
from rocketpy.spark.read_options import BatchOptions
from rocketpy.spark.schema import default_schema, row_schema_to_spark
from rocketpy.spark.source.executor import ConnectionCache
from rocketpy.spark.source.format import batch_reader
from rocketpy.testing.cluster import ClusterThread
from tests.integration.spark.engine import Row, read_batch, rows_in
from tests.spark.fill import fill, stored


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterThread]:
    with ClusterThread(tmp_path_factory.mktemp("cluster"), brokers=2) as running:
        fill(running, "T", queues=2, count=400)
        running.create_topic("Empty", 3)
        fill(running, "ns%T", queues=1, count=20)
        yield running


@pytest.fixture(scope="module")
def halves(cluster: ClusterThread) -> tuple[int, Counter[Row]]:
    """A time and the messages stored at or after it; 200 messages precede it."""
    fill(cluster, "Times", queues=2, count=200)
    time.sleep(0.05)
    middle_ms = time.time_ns() // 1_000_000
    time.sleep(0.05)
    fill(cluster, "Times", queues=2, count=120, first=200)
    later = Counter({row: 1 for row in stored(cluster, "Times") if row[2] >= 50})
    assert later.total() == 120
    return middle_ms, later


def by_queue(topic: str, value: int, queues: int = 2) -> str:
    table = {str(queue_id): value for queue_id in range(queues)}
    return json.dumps({topic: {"broker-a": table, "broker-b": table}})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"startingOffsets": "earliest", "endingOffsets": "latest"},
        {"startingOffsets": by_queue("T", -2), "endingOffsets": by_queue("T", -1)},
        {"startingTimestamp": 1},
        {"endingTimestamp": 1 << 42},
        {"minPartitions": 64},
        {"maxRecordsPerPartition": 7},
        {"fetch.batchSize": 3, "fetch.prefetch": 1},
        {"checkCrc": "true"},
    ],
    ids=lambda options: "-".join(options) or "defaults",
)
def test_batch_read_returns_every_message_once(
    cluster: ClusterThread, options: dict[str, Any]
) -> None:
    assert read_batch(cluster, subscribe="T", **options) == stored(cluster, "T")


def test_batch_read_by_times_divides_a_topic(
    cluster: ClusterThread, halves: tuple[int, Counter[Row]]
) -> None:
    middle_ms, later = halves
    everything = stored(cluster, "Times")
    times = by_queue("Times", middle_ms)

    for start in ({"startingTimestamp": middle_ms}, {"startingOffsetsByTimestamp": times}):
        assert read_batch(cluster, subscribe="Times", **start) == later
    for end in ({"endingTimestamp": middle_ms}, {"endingOffsetsByTimestamp": times}):
        assert read_batch(cluster, subscribe="Times", **end) == everything - later


def test_batch_read_from_a_future_time_fails_or_is_empty(cluster: ClusterThread) -> None:
    options: dict[str, Any] = {"subscribe": "T,Empty", "startingTimestamp": 1 << 42}

    with pytest.raises(ConfigError, match=r"no message at or after its time in T/broker"):
        read_batch(cluster, **options)
    options["startingOffsetsByTimestampStrategy"] = "latest"
    assert read_batch(cluster, **options) == Counter()


def test_batch_read_starts_at_offsets_of_a_group(cluster: ClusterThread) -> None:
    async def commit() -> None:
        async with rocketpy.admin.connect(cluster.namesrv) as admin:
            await admin.create_group("readers")
            await admin.set_offsets("readers", {MessageQueue("T", "broker-a", 1): 60})

    cluster.run(commit())
    found = read_batch(cluster, subscribe="T", startingOffsets="group", startingGroup="readers")

    expected = {r for r in stored(cluster, "T") if r[:2] != ("broker-a", 1) or r[2] >= 60}
    assert set(found) == expected


def test_batch_read_in_a_namespace_uses_its_names(cluster: ClusterThread) -> None:
    options = {"nameservers": cluster.namesrv, "subscribe": "T", "namespace": "ns"}
    reader = batch_reader(options, default_schema(options))
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]

    assert {topic for each in batches for topic in each.column("topic").to_pylist()} == {"T"}
    assert sum(each.num_rows for each in batches) == 20
    pattern = {"subscribePattern": "T.*", "namespace": "ns"}
    assert read_batch(cluster, **pattern) == stored(cluster, "ns%T")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"subscribe": "Nowhere,T"}, TopicNotExistError, "no topic Nowhere: name server"),
        ({"assign": '{"T":{"broker-a":[0,9]}}'}, ConfigError, "queue T/broker-a/9 does not exist"),
        (
            {"subscribe": "T", "startingOffsets": '{"T":{"broker-a":{"0":1}}}'},
            ConfigError,
            "has no entry for T/broker-a/1, T/broker-b/0",
        ),
        (
            {"subscribe": "T", "startingOffsets": by_queue("T", 0, 3)},
            ConfigError,
            "queue T/broker-a/2, T/broker-b/2 is not part of the read",
        ),
        (
            {"subscribe": "T", "startingOffsets": by_queue("T", 500)},
            DataLossError,
            "T/broker-a/0 [100, 500): the queue ends at 100",
        ),
        (
            {"subscribe": "T", "endingOffsets": by_queue("T", 130)},
            DataLossError,
            "T/broker-b/1 [100, 130): the queue ends at 100",
        ),
    ],
    ids=["topic", "queue", "unsaid", "unknown", "start", "end"],
)
def test_batch_read_invalid_options_fail_on_the_driver(
    cluster: ClusterThread, options: dict[str, str], error: type[Exception], words: str
) -> None:
    values = {"nameservers": cluster.namesrv, **options}
    reader = batch_reader(values, default_schema(values))
    with pytest.raises(error) as caught:
        reader.partitions()

    assert words in str(caught.value)


def test_batch_read_offsets_out_of_range_are_narrowed_with_skip(cluster: ClusterThread) -> None:
    found = read_batch(
        cluster,
        subscribe="T",
        startingOffsets=by_queue("T", 90),
        endingOffsets=by_queue("T", 999),
        failOnDataLoss="false",
    )

    assert found == Counter({row: 1 for row in stored(cluster, "T") if row[2] >= 90})


def test_batch_read_invalid_filter_fails_on_the_driver(cluster: ClusterThread) -> None:
    options = {"expressionType": "SQL92", "subExpression": "a > > 5"}

    with pytest.raises(ConfigError, match="subExpression"):
        read_batch(cluster, subscribe="T", **options)


def test_batch_read_without_name_servers_names_them_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        addresses = f"127.0.0.1:{silent.getsockname()[1]};127.0.0.1:1"
        options = {
            "nameservers": addresses,
            "subscribe": "T",
            "timeoutMs": "600",
            "fetchOffset.numRetries": "0",
        }
        reader = batch_reader(options, default_schema(options))
        with pytest.raises(NoNameServerError) as caught:
            reader.partitions()

    assert all(each in str(caught.value) for each in addresses.split(";"))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"include": ""},
        {"include": "hosts,msgId,properties"},
        {"columns": "queueOffset,body"},
        {"schemaStyle": "kafka"},
        {"valueFormat": "string"},
    ],
    ids=lambda options: "-".join(options.values()) or "defaults",
)
def test_batch_read_rows_have_the_announced_schema(
    cluster: ClusterThread, options: dict[str, str]
) -> None:
    values = {"nameservers": cluster.namesrv, "subscribe": "T", **options}
    schema = default_schema(values)
    reader = batch_reader(values, schema)
    for part in reader.partitions():
        for batch in reader.read(part):
            assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))


def test_batch_read_user_schema_selects_columns_by_name(cluster: ClusterThread) -> None:
    values = {"nameservers": cluster.namesrv, "subscribe": "T"}
    chosen = row_schema_to_spark(row_schema(columns=["keys", "queueOffset"]))
    reader = batch_reader(values, chosen)
    batch = next(iter(reader.read(reader.partitions()[0])))
    assert batch.schema.names == ["keys", "queueOffset"]

    with pytest.raises(ConfigError, match="did you mean queueOffset"):
        batch_reader(values, StructType([StructField("queueOfset", IntegerType())]))
    with pytest.raises(ConfigError, match="queueOffset is bigint, not int"):
        batch_reader(values, StructType([StructField("queueOffset", IntegerType())]))


def test_connection_cache_reuses_and_closes_idle_connections() -> None:
    cache = ConnectionCache(idle_s=1.5)
    options = parse_options({"nameservers": "127.0.0.1:1", "subscribe": "T"}, BatchOptions)
    other = parse_options({"nameservers": "127.0.0.1:2", "subscribe": "T"}, BatchOptions)
    with cache.borrow(options) as first, cache.borrow(options) as beside:
        assert beside is not first
    with cache.borrow(options) as again, cache.borrow(other) as elsewhere:
        assert again in {first, beside}
        assert elsewhere not in {first, beside}
    deadline = time.monotonic() + 60
    while not (again.is_closed and elsewhere.is_closed):
        assert time.monotonic() < deadline
        time.sleep(0.02)

    with pytest.raises(KeyError), cache.borrow(options) as failed:
        raise KeyError
    assert failed.is_closed


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_batch_planned_before_its_topic_was_made_again_is_lost(
    cluster: ClusterThread, policy: str
) -> None:
    """Spark keeps a plan for all queries of one DataFrame."""
    topic = f"Again-{policy}"
    fill(cluster, topic, queues=1, count=40)
    values = {"nameservers": cluster.namesrv, "subscribe": topic, "onDataLoss": policy}
    reader = batch_reader(values, default_schema(values))
    planned = reader.partitions()
    assert rows_in(reader, planned).total() == 40

    async def delete() -> None:
        async with rocketpy.admin.connect(cluster.namesrv) as admin:
            await admin.delete_topic(topic)

    cluster.run(delete())
    fill(cluster, topic, queues=1, count=100, first=1_000)
    if policy == "fail":
        with pytest.raises(DataLossError, match=r"Again-fail/.*other messages"):
            rows_in(reader, planned)
    else:
        assert rows_in(reader, planned).total() == 0
    assert read_batch(cluster, subscribe=topic).total() == 100
