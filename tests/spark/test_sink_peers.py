"""The official Java client reads messages that Spark writes to RocketPy's and Apache's broker.

It also reads its dead letters after they were sent back.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

import rocketpy.admin
from rocketpy.spark.jobs.dlq import dead_letters, to_requeue, triage
from rocketpy.spark.jobs.replay import send
from rocketpy.spark.jobs.rows import collected, topic_frame
from rocketpy.testing.cluster import ClusterThread
from tests.interop.java_clients.jvm import JavaClient, bodies, wait_for
from tests.peer.apache import Apache, require_peer
from tests.sampling import sample
from tests.spark.sink_kit import write

COUNT = 500

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", autouse=True)
def maven() -> None:
    require_peer()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Apache's name server and broker."""
    with Apache(tmp_path_factory.mktemp("apache")).borrowed() as servers:
        yield servers.namesrv


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ClusterThread(tmp_path_factory.mktemp("ours")) as cluster:
        yield cluster.namesrv


@pytest.mark.parametrize("side", sample(["ours", "apache"], 2))
def test_java_client_reads_messages_of_the_sink(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, side: str
) -> None:
    namesrv = request.getfixturevalue(side)
    number = F.col("id").cast("string")
    df = spark.range(0, COUNT, 1, 2).select(
        F.concat(F.lit("grüße-"), number).alias("body"),
        F.array(F.concat(F.lit("k"), number), F.lit("all")).alias("keys"),
        F.when(F.col("id") % 2 == 0, "even").otherwise("odd").alias("tags"),
        F.create_map(F.lit("city"), F.lit("münchen")).alias("properties"),
        F.when(F.col("id") % 5 == 0, F.col("id") % 10).alias("shardingKey"),
        F.when(F.col("id") % 100 == 3, 1).alias("delayLevel"),
    )
    write(df, namesrv, topic="spark_out")

    java = JavaClient("5.4.0", namesrv, tmp_path)
    try:
        consumer = java.push("readers", "spark_out")
        got = java.receive(consumer, COUNT, 120)
    finally:
        java.close()
    by_body = {one["body"]: one for one in got}
    assert by_body.keys() == {f"grüße-{n}" for n in range(COUNT)}
    for n in range(COUNT):
        one = by_body[f"grüße-{n}"]
        assert one["keys"] == f"k{n} all"
        assert one["tags"] == ("odd" if n % 2 else "even")
        assert one["properties"]["city"] == "münchen"
        assert one["properties"]["_spark_id"].endswith(f"/{n // 250}/{n % 250}")
    for key in range(0, 10, 5):
        queues = {by_body[f"grüße-{n}"]["queueId"] for n in range(key, COUNT, 10)}
        assert len(queues) == 1


async def message_count(namesrv: str, topic: str) -> int:
    async with rocketpy.admin.connect(namesrv) as admin:
        if not await admin.topic_exists(topic):
            return 0
        return (await admin.topic_status(topic)).messages


@pytest.mark.parametrize("side", sample(["ours", "apache"], 2))
def test_dlq_requeue_of_a_java_consumers_letters(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, side: str
) -> None:
    namesrv = request.getfixturevalue(side)
    java = JavaClient("5.4.0", namesrv, tmp_path)
    try:
        producer = java.producer()
        ids = {one["msgId"] for one in java.send(producer, "given_up", count=4)}
        consumer = java.push("weary", "given_up", fail=4, level=-1)  # no retry
        wait_for(lambda: asyncio.run(message_count(namesrv, "%DLQ%weary")) == 4, 120)

        letters = dead_letters(topic_frame(spark, namesrv, "%DLQ%weary"))
        (row,) = collected(triage(letters))
        assert (row["group"], row["originTopic"], row["letters"]) == ("weary", "given_up", 4)
        send(to_requeue(letters), namesrv, new_ids=False, options={})
        got = java.receive(consumer, 4, 120)
    finally:
        java.close()
    assert bodies(got) == [f"body-{number}" for number in range(4)]
    assert {one["msgId"] for one in got} == ids
