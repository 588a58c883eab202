"""Batch reads from Apache's broker: every message once, at the acknowledged offset."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

import rocketpy
import rocketpy.admin
from rocketpy.client.sending.result import SendResult
from tests.peer.apache import Apache, require_peer

COUNT = 400
TOPIC = "batch_in"
GROUP = "batch_position"

pytestmark = [pytest.mark.timeout(600), pytest.mark.long]

Place = tuple[str, int, int]
"""Broker, queue, offset."""


def body_of(number: int) -> bytes:
    """Return a body; lengths vary, and the client compresses the longest."""
    return f"{number}-grüße ".encode() * (1 + number % 50 * 20)


async def _fill(namesrv: str) -> list[SendResult]:
    async with rocketpy.admin.connect(namesrv) as admin:
        await admin.create_topic(TOPIC, queues=4)
    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(group="batch_filler")
        return [
            await producer.send(
                TOPIC, body_of(n), tag="even" if n % 2 == 0 else "odd", keys=[f"k{n}", "all"]
            )
            for n in range(COUNT)
        ]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[SendResult]]]:
    """Apache's servers, and the acknowledgement of each message."""
    require_peer()
    with Apache(tmp_path_factory.mktemp("apache")).borrowed() as servers:
        yield servers.namesrv, asyncio.run(_fill(servers.namesrv))


def read(spark: SparkSession, namesrv: str, **options: str) -> DataFrame:
    source = spark.read.format("rocketmq").options(nameservers=namesrv, subscribe=TOPIC)
    return source.options(**options).load()


def place(result: SendResult) -> Place:
    return result.queue.broker_name, result.queue.queue_id, result.offset


def places(frame: DataFrame) -> Counter[Place]:
    rows = frame.select("brokerName", "queueId", "queueOffset").collect()
    return Counter((row[0], row[1], row[2]) for row in rows)


def test_batch_from_apache_has_rows_at_acknowledged_offsets(
    spark: SparkSession, filled: tuple[str, list[SendResult]]
) -> None:
    namesrv, results = filled
    sent = {place(result): number for number, result in enumerate(results)}
    assert len(sent) == COUNT
    rows = read(spark, namesrv, include="properties,msgId").collect()
    assert len(rows) == COUNT
    for row in rows:
        number = sent.pop((row.brokerName, row.queueId, row.queueOffset))
        assert bytes(row.body) == body_of(number)
        assert row.tags == ("odd" if number % 2 else "even")
        assert row.topic == TOPIC
        assert row.msgId == results[number].msg_id
    assert not sent


def test_batch_from_apache_by_tags_and_offsets(
    spark: SparkSession, filled: tuple[str, list[SendResult]]
) -> None:
    namesrv, results = filled
    broker = results[0].queue.broker_name
    begin, end = ({TOPIC: {broker: {str(q): at for q in range(4)}}} for at in (20, 70))
    offsets = {"startingOffsets": json.dumps(begin), "endingOffsets": json.dumps(end)}
    within = Counter(place(each) for each in results if 20 <= each.offset < 70)
    assert within.total() == 200
    assert places(read(spark, namesrv, **offsets)) == within
    odd = Counter(place(each) for number, each in enumerate(results) if number % 2)
    assert places(read(spark, namesrv, subExpression="odd")) == odd


def test_batch_from_apache_starts_at_a_groups_offsets(
    spark: SparkSession, filled: tuple[str, list[SendResult]]
) -> None:
    namesrv, results = filled

    async def commit() -> None:
        async with rocketpy.admin.connect(namesrv) as admin:
            await admin.create_group(GROUP)
            queues = {each.queue for each in results}
            await admin.set_offsets(GROUP, dict.fromkeys(queues, 90))

    asyncio.run(commit())
    left = Counter(place(each) for each in results if each.offset >= 90)
    assert left.total() > 0
    frame = read(spark, namesrv, startingOffsets="group", startingGroup=GROUP)
    assert places(frame) == left
