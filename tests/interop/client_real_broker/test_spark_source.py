"""The Spark source's readers against Apache's broker: its limits, its offsets, its answers."""

import asyncio
import json
import time
from collections import Counter

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.errors import ConfigError, DataLossError
from rocketpy.spark.schema import default_schema
from rocketpy.spark.source.format import batch_reader
from rocketpy.spark.source.stream import StreamReader

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

COUNT = 1_000


@pytest.fixture(scope="module")
def topic(namesrv: str) -> str:
    async def run() -> None:
        async with rocketpy.admin.connect(namesrv) as admin:
            await admin.create_topic("SparkSource", 2)
        async with rocketpy.connect(namesrv, group="filler") as client:
            producer = client.producer()
            for first in range(0, COUNT, 100):
                sends = [
                    producer.send(
                        "SparkSource",
                        f"{number}-".encode() * (number % 40 + 1),
                        tag=f"Tag{number % 3}",
                        properties={"number": str(number)},
                    )
                    for number in range(first, first + 100)
                ]
                await asyncio.gather(*sends)

    asyncio.run(run())
    return "SparkSource"


def read(namesrv: str, topic: str, **options: object) -> list[dict[str, object]]:
    values = {key: str(value) for key, value in options.items()}
    values |= {"nameservers": namesrv, "subscribe": topic}
    reader = batch_reader(values, default_schema(values))
    parts = reader.partitions()
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def numbers(rows: list[dict[str, object]]) -> Counter[int]:
    return Counter(int(dict(row["properties"])["number"]) for row in rows)  # type: ignore[call-overload]


def test_batch_has_every_message_once(namesrv: str, topic: str) -> None:
    rows = read(namesrv, topic)

    assert numbers(rows) == Counter(range(COUNT))
    bodies = {int(dict(row["properties"])["number"]): row["body"] for row in rows}  # type: ignore[call-overload]
    assert all(body == f"{n}-".encode() * (n % 40 + 1) for n, body in bodies.items())
    split = read(namesrv, topic, minPartitions=8, checkCrc="true")
    assert numbers(split) == Counter(range(COUNT))


def test_filters_and_times(namesrv: str, topic: str) -> None:
    tagged = read(namesrv, topic, subExpression="Tag1")
    assert numbers(tagged) == Counter(n for n in range(COUNT) if n % 3 == 1)
    condition = "number BETWEEN 10 AND 19"
    chosen = read(namesrv, topic, expressionType="SQL92", subExpression=condition)
    assert numbers(chosen) == Counter(range(10, 20))
    with pytest.raises(ConfigError, match="subExpression"):
        read(namesrv, topic, expressionType="SQL92", subExpression="a > > 1")

    now_ms = time.time_ns() // 1_000_000
    assert numbers(read(namesrv, topic, endingTimestamp=now_ms)) == Counter(range(COUNT))
    assert numbers(read(namesrv, topic, startingTimestamp=1)) == Counter(range(COUNT))


def test_offsets_out_of_range_are_reported(namesrv: str, topic: str) -> None:
    offsets = json.dumps({topic: {"apache-a": {"0": 9_999, "1": 0}}})
    with pytest.raises(DataLossError, match="9999"):
        read(namesrv, topic, startingOffsets=offsets)


@pytest.mark.parametrize("limit", [{"maxOffsetsPerTrigger": "300"}, {"maxBytesPerTrigger": "100k"}])
def test_stream_keeps_its_limits_and_stores_its_progress(
    namesrv: str, topic: str, limit: dict[str, str]
) -> None:
    options = {
        "nameservers": namesrv,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "progressGroup": f"progress-{next(iter(limit))}",
        **limit,
    }
    reader = StreamReader(options, default_schema(options))
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    found: Counter[int] = Counter()
    while True:
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end == start:
            break
        rows = [
            row
            for part in reader.partitions(start, end)
            for batch in reader.read(part)
            for row in batch.to_pylist()
        ]
        assert len(rows) <= int(limit.get("maxOffsetsPerTrigger", COUNT))
        assert sum(len(row["body"]) for row in rows) < 100 << 10 or "maxBytes" not in str(limit)
        found += numbers(rows)
        start = end
        reader.commit(end)
    reader.stop()

    async def lag() -> int:
        async with rocketpy.admin.connect(namesrv) as admin:
            return (await admin.group_lag(options["progressGroup"], topic)).lag

    assert found == Counter(range(COUNT))
    assert asyncio.run(lag()) == 0


async def store_messages(namesrv: str, topic: str, count: int) -> None:
    async with rocketpy.connect(namesrv, group="filler") as client:
        producer = client.producer()
        await asyncio.gather(*(producer.send(topic, b"%d" % number) for number in range(count)))


async def make_topic(namesrv: str, topic: str) -> None:
    async with rocketpy.admin.connect(namesrv) as admin:
        await admin.create_topic(topic, 2)


async def delete_topic(namesrv: str, topic: str) -> None:
    async with rocketpy.admin.connect(namesrv) as admin:
        await admin.delete_topic(topic)


def test_stream_recognises_recreated_topic_and_no_other(namesrv: str) -> None:
    topic = "SparkAgain"
    asyncio.run(make_topic(namesrv, topic))
    options = {"nameservers": namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    readers = {
        policy: StreamReader(options | {"onDataLoss": policy}, default_schema(options))
        for policy in ("fail", "skip")
    }
    positions = {policy: reader.initialOffset() for policy, reader in readers.items()}

    def drain(policy: str) -> int:
        reader, count = readers[policy], 0
        while True:
            start = positions[policy]
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            if end == start:
                return count
            parts = reader.partitions(start, end)
            count += sum(batch.num_rows for part in parts for batch in reader.read(part))
            positions[policy] = end

    for _ in range(3):  # new messages alone are no other queue
        asyncio.run(store_messages(namesrv, topic, 100))
        assert drain("fail") == drain("skip") == 100
    asyncio.run(delete_topic(namesrv, topic))
    time.sleep(1)
    asyncio.run(make_topic(namesrv, topic))
    asyncio.run(store_messages(namesrv, topic, 700))
    with pytest.raises(DataLossError, match="has other messages now"):
        drain("fail")
    assert drain("skip") == 700
    for reader in readers.values():
        reader.stop()
