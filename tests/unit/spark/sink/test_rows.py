"""Conversion of record batches to messages, and reasons for invalid rows."""

import itertools
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from rocketpy.proto.record.properties import parse_properties
from rocketpy.spark.options import parse_options
from rocketpy.spark.sink.columns import Columns, Role
from rocketpy.spark.sink.options import SinkOptions
from rocketpy.spark.sink.rows import BadRow, RowReader, SinkRow

TYPES: dict[Role, pa.DataType] = {
    "topic": pa.string(),
    "body": pa.binary(),
    "keys": pa.string(),
    "tags": pa.string(),
    "properties": pa.map_(pa.string(), pa.string()),
    "delayLevel": pa.int32(),
    "deliverTime": pa.timestamp("us", tz="UTC"),
    "shardingKey": pa.string(),
    "flag": pa.int32(),
    "msgId": pa.string(),
}


def read(
    *rows: dict[str, Any], types: dict[str, pa.DataType] | None = None, **given: str
) -> list[SinkRow | BadRow]:
    """Convert rows that have the columns of the first one."""
    names: list[Any] = list(rows[0])
    kinds: dict[str, pa.DataType] = {str(name): kind for name, kind in TYPES.items()}
    kinds |= types or {}
    batch = pa.record_batch(
        [pa.array([row.get(name) for row in rows], kinds[name]) for name in names], names=names
    )
    options = parse_options({"nameservers": "127.0.0.1:9876", **given}, SinkOptions)
    columns = Columns({name: index for index, name in enumerate(names)})
    ids = map("ID{}".format, itertools.count())
    reader = RowReader(columns, options, "q/7/2", ids.__next__)
    return [row for part in reader.read(batch) for row in part]


def properties(row: SinkRow | BadRow) -> dict[str, str]:
    assert isinstance(row, SinkRow), row
    return parse_properties(row.message.properties)


def reason(row: SinkRow | BadRow) -> str:
    assert isinstance(row, BadRow), row
    return row.reason


def test_read_row_with_a_body_only() -> None:
    first, second = read({"topic": "a", "body": b"1"}, {"topic": "b", "body": b"2"})

    assert isinstance(first, SinkRow)
    assert (first.number, first.topic, first.message.body) == (0, "a", b"1")
    assert properties(first) == {"UNIQ_KEY": "ID0", "WAIT": "true", "_spark_id": "q/7/2/0"}
    assert properties(second)["_spark_id"] == "q/7/2/1"
    assert not first.is_delayed
    assert first.order_key is None


def test_read_row_with_every_column() -> None:
    (row,) = read(
        {
            "topic": "a", "body": "grüße", "keys": ["k1", "k2"], "tags": "A",
            "properties": [("city", "münchen")], "shardingKey": 17, "flag": 5, "msgId": "M1",
        },
        types={"body": pa.string(), "keys": pa.list_(pa.string()), "shardingKey": pa.int64()},
        messageId="column",
    )  # fmt: skip

    assert isinstance(row, SinkRow)
    assert row.message.body == "grüße".encode()
    assert (row.message.flag, row.message.msg_id, row.order_key) == (5, "M1", 17)
    assert properties(row) == {
        "UNIQ_KEY": "M1", "WAIT": "true", "TAGS": "A", "KEYS": "k1 k2", "city": "münchen",
        "__SHARDINGKEY": "17", "_spark_id": "q/7/2/0",
    }  # fmt: skip


def test_read_topic_option_takes_precedence_over_the_column() -> None:
    (row,) = read({"topic": "a", "body": b"1"}, topic="b")

    assert isinstance(row, SinkRow)
    assert row.topic == "b"


def test_read_null_values_are_missing_parts() -> None:
    (row,) = read({**dict.fromkeys(TYPES), "topic": "a", "body": b"1"})

    assert properties(row) == {"UNIQ_KEY": "ID0", "WAIT": "true", "_spark_id": "q/7/2/0"}


def test_read_removes_properties_set_by_brokers_and_clients() -> None:
    """Brokers and clients set theirs again; tags, keys and sharding key are kept."""
    was_read = {
        "UNIQ_KEY": "old", "WAIT": "false", "TAGS": "A", "KEYS": "k", "__SHARDINGKEY": "s",
        "MSG_REGION": "r", "TRACE_ON": "true", "CLUSTER": "c", "_spark_id": "x/1/2/3", "own": "1",
        "empty": None,
    }  # fmt: skip
    row = {"topic": "a", "body": b"1", "properties": list(was_read.items())}
    (kept,) = read(row)
    (replaced,) = read({**row, "tags": "B", "keys": "l", "shardingKey": "t"})

    assert properties(kept) == {
        "UNIQ_KEY": "ID0", "WAIT": "true", "TAGS": "A", "KEYS": "k", "__SHARDINGKEY": "s",
        "own": "1", "_spark_id": "q/7/2/0",
    }  # fmt: skip
    found = properties(replaced)
    assert (found["TAGS"], found["KEYS"], found["__SHARDINGKEY"]) == ("B", "l", "t")
    assert isinstance(replaced, SinkRow)
    assert replaced.order_key == "t"


def test_read_delays_become_properties() -> None:
    level, moment = read(
        {"topic": "a", "body": b"1", "delayLevel": 3, "deliverTime": None},
        {"topic": "a", "body": b"1", "deliverTime": datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)},
    )

    assert properties(level)["DELAY"] == "3"
    assert properties(moment)["TIMER_DELIVER_MS"] == "1001"  # never sooner
    assert isinstance(moment, SinkRow)
    assert moment.is_delayed
    assert moment.message.moment is not None


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"topic": "a", "body": None}, "the body is null"),
        ({"topic": "a", "body": b""}, "the body is empty"),
        ({"topic": None, "body": b"1"}, "the topic is null or empty"),
        ({"topic": "a b", "body": b"1"}, "illegal characters"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "body": b"1"}, "not allowed"),
        ({"topic": "a", "body": b"x" * 101}, "101 bytes exceeds the limit of 100 bytes"),
        ({"topic": "a", "body": b"1", "tags": "a\x01"}, "must not contain"),
        ({"topic": "a", "body": b"1", "properties": [("a\x02", "b")]}, "must not contain"),
        ({"topic": "a", "body": b"1", "properties": [("a", "b" * 33_000)]}, "exceed the limit"),
        ({"topic": "a", "body": b"1", "delayLevel": 19}, "delay level 19 is not in 1..18"),
        (
            {"topic": "a", "body": b"1", "delayLevel": 1, "deliverTime": datetime.now(UTC)},
            "delayLevel and deliverTime exclude each other",
        ),
    ],
)
def test_read_invalid_row_returns_the_reason(row: dict[str, Any], words: str) -> None:
    bad, good = read(row, {"topic": "a", "body": b"1"}, maxMessageSize="100")

    assert words in reason(bad)
    assert properties(good)["_spark_id"] == "q/7/2/1"


def test_read_delivery_time_in_seconds_is_invalid() -> None:
    types = {"deliverTime": pa.int64()}
    seconds, ms = read(
        {"topic": "t", "body": b"x", "deliverTime": 1_795_878_327},
        {"topic": "t", "body": b"x", "deliverTime": 1_795_878_327_000},
        types=types,
    )

    assert reason(seconds) == (
        "deliverTime has 1795878327, which seems to be in seconds: give ms since 1970"
    )
    assert properties(ms)["TIMER_DELIVER_MS"] == "1795878327000"


def test_read_list_of_keys_with_blanks_is_invalid() -> None:
    kinds = {"keys": pa.list_(pa.string())}
    (bad,) = read({"topic": "a", "body": b"1", "keys": ["a b"]}, types=kinds)

    assert "separates keys" in reason(bad)


def test_read_keys_not_utf8_are_invalid() -> None:
    (bad,) = read({"topic": "a", "body": b"1", "keys": b"\xff"}, types={"keys": pa.binary()})

    assert reason(bad) == "keys are not UTF-8"


def test_read_large_rows_in_small_slices() -> None:
    options = parse_options({"nameservers": "n:1", "topic": "t"}, SinkOptions)
    reader = RowReader(Columns({"body": 0}), options, "q", lambda: "ID")
    batch = pa.record_batch([pa.array([b"x" * (1 << 20)] * 20)], names=["body"])

    parts = [len(part) for part in reader.read(batch)]

    assert sum(parts) == reader.rows == 20
    assert max(parts) <= 8


def test_dead_returns_a_message_with_the_reason() -> None:
    options = parse_options({"nameservers": "n:1", "topic": "t"}, SinkOptions)
    reader = RowReader(Columns({"body": 0}), options, "q", lambda: "ID")
    row = reader.dead(BadRow(4, "orders", b"abc", "too \x01 bad"), "%DLQ%g")
    bare = reader.dead(BadRow(5, "", b"", "the body is null"), "%DLQ%g")

    assert (row.topic, row.message.body) == ("%DLQ%g", b"abc")
    found = properties(row)
    assert (found["DLQ_ORIGIN_TOPIC"], found["_spark_error"]) == ("orders", "too   bad")
    assert found["_spark_id"] == "q/4"
    assert bare.message.body == b"the body is null"


@pytest.mark.parametrize("msg_id", ["id\x02DELAY\x011", "id\x01"])
def test_read_message_id_with_separators_is_invalid(msg_id: str) -> None:
    (row,) = read({"topic": "a", "body": b"1", "msgId": msg_id}, messageId="column")

    assert reason(row) == "msgId must not contain \\x01 or \\x02"


def test_read_blank_tags_and_keys_are_missing() -> None:
    types: dict[str, pa.DataType] = {"keys": pa.list_(pa.string())}
    (row,) = read({"topic": "a", "body": b"1", "tags": "  ", "keys": [None, ""]}, types=types)

    assert properties(row).keys() == {"UNIQ_KEY", "WAIT", "_spark_id"}
    assert isinstance(row, SinkRow)
    assert "TAGS" not in row.message.properties
    assert "KEYS" not in row.message.properties
