"""Conditions that narrow a read exactly, or are left to Spark."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import datasource as source

from rocketpy.arrow import row_schema
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.schema import default_schema
from rocketpy.spark.source.batch import BatchReader
from rocketpy.spark.source.format import batch_reader
from rocketpy.spark.source.pushdown import Narrowing
from rocketpy.spark.store_source.format import store_reader, store_schema

RANGE = QueueRange("T", "broker-a", 1, 10, 90)
TIME = ("storeTimestamp",)


def narrowing(style: str = "rocketmq") -> Narrowing:
    return Narrowing(row_schema(style=style))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("condition", "queue", "taken"),
    [
        (source.EqualTo(("queueId",), 1), 1, True),
        (source.EqualTo(("queueId",), 1), 2, False),
        (source.GreaterThan(("queueId",), 1), 1, False),
        (source.LessThanOrEqual(("queueId",), 1), 1, True),
        (source.In(("queueId",), (0, 2)), 1, False),
        (source.Not(source.EqualTo(("queueId",), 1)), 1, False),
        (source.Not(source.In(("queueId",), (5,))), 1, True),
        (source.EqualTo(("topic",), "T"), 0, True),
        (source.StringStartsWith(("topic",), "X"), 0, False),
        (source.StringContains(("brokerName",), "ker"), 0, True),
        (source.StringEndsWith(("brokerName",), "-b"), 0, False),
        (source.EqualNullSafe(("brokerName",), "broker-a"), 0, True),
    ],
)
def test_narrowing_by_queue_selects_queues(
    condition: source.Filter, queue: int, taken: bool
) -> None:
    found = narrowing()

    assert found.add(condition)
    assert found.takes(MessageQueue("T", "broker-a", queue)) is taken


@pytest.mark.parametrize(
    ("condition", "bounds"),
    [
        (source.EqualTo(("queueOffset",), 20), (20, 21)),
        (source.GreaterThan(("queueOffset",), 20), (21, 90)),
        (source.GreaterThanOrEqual(("queueOffset",), 20), (20, 90)),
        (source.LessThan(("queueOffset",), 20), (10, 20)),
        (source.LessThanOrEqual(("queueOffset",), 20), (10, 21)),
    ],
)
def test_narrowing_by_offset_narrows_the_range(
    condition: source.Filter, bounds: tuple[int, int]
) -> None:
    found = narrowing()

    assert found.add(condition)
    assert found.narrowed(RANGE)[3:] == bounds


def test_narrowing_by_time_leaves_the_condition_to_spark() -> None:
    found = narrowing()
    at = datetime.fromtimestamp(1_700_000_000.5, UTC)

    assert not found.add(source.GreaterThanOrEqual(TIME, at))
    assert not found.add(source.LessThan(TIME, at))
    assert found.since_ms == 1_700_000_000_499
    assert found.until_ms == 1_700_000_000_502


@pytest.mark.parametrize(
    "condition",
    [
        source.EqualTo(("keys",), "k"),
        source.In(("queueOffset",), (1, 2)),
        source.EqualTo(("properties", "a"), "b"),
        source.IsNotNull(("properties",)),
        source.Not(source.EqualTo(("queueOffset",), 1)),
        source.EqualTo(("queueId",), None),
        source.IsNull(("queueId",)),
    ],
)
def test_narrowing_leaves_other_conditions_to_spark(condition: source.Filter) -> None:
    found = narrowing()

    assert not found.add(condition)
    assert found.narrowed(RANGE) == RANGE
    assert found.takes(RANGE.queue)


def test_narrowing_of_not_null_by_names_of_the_style() -> None:
    found = narrowing("kafka")

    assert found.add(source.IsNotNull(("partition",)))
    assert found.add(source.EqualTo(("offset",), 20))
    assert not found.add(source.EqualTo(("queueOffset",), 30))
    assert found.narrowed(RANGE)[3:] == (20, 21)


def test_reader_with_conditions_warns_once_that_spark_keeps_them(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    topics = {"nameservers": "127.0.0.1:1", "subscribe": "T", "pushdown": "true"}
    stores = {"path": str(tmp_path), "pushdown": "true"}
    readers = (
        batch_reader(topics, default_schema(topics)),
        store_reader(stores, store_schema(stores)),
    )
    for reader in readers:
        caplog.clear()
        assert list(reader.pushFilters([source.LessThan(("queueOffset",), 20)])) == []
        assert [each.levelname for each in caplog.records] == ["WARNING"]
        assert "call load() for each query" in caplog.text
        caplog.clear()
        assert list(reader.pushFilters([])) == []
        assert not caplog.records
    del topics["pushdown"]
    assert type(batch_reader(topics, default_schema(topics))) is BatchReader
