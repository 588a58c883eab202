"""Columns of a frame are found by name and checked by type, on the driver."""

from collections.abc import Mapping

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from rocketpy.errors import ConfigError
from rocketpy.spark.options import parse_options
from rocketpy.spark.sink.columns import find_columns
from rocketpy.spark.sink.options import SinkOptions

TEXT, BYTES, WHOLE = StringType(), BinaryType(), IntegerType()


def options(**given: str) -> SinkOptions:
    return parse_options({"nameservers": "127.0.0.1:9876", **given}, SinkOptions)


def schema(columns: Mapping[str, DataType]) -> StructType:
    found = StructType()
    for name, kind in columns.items():
        found.add(name, kind)
    return found


def test_find_columns_in_any_case_and_order_finds_each_role() -> None:
    columns = {
        "TAGS": TEXT, "Body": BYTES, "topic": TEXT, "keys": ArrayType(TEXT),
        "properties": MapType(TEXT, TEXT), "delaylevel": WHOLE, "deliverTime": TimestampType(),
        "shardingKey": LongType(), "flag": WHOLE, "msgId": TEXT,
    }  # fmt: skip
    found = find_columns(schema(columns), options(messageId="column"))

    assert found.places == {
        "tags": 0, "body": 1, "topic": 2, "keys": 3, "properties": 4, "delayLevel": 5,
        "deliverTime": 6, "shardingKey": 7, "flag": 8, "msgId": 9,
    }  # fmt: skip


def test_find_columns_accepts_names_of_the_kafka_sink() -> None:
    found = find_columns(schema({"key": BYTES, "value": TEXT}), options(topic="orders"))

    assert found.places == {"keys": 0, "body": 1}


def test_find_columns_ignores_other_columns_of_a_read() -> None:
    read = {
        "topic": TEXT, "brokerName": TEXT, "queueId": WHOLE, "queueOffset": LongType(),
        "msgId": TEXT, "keys": TEXT, "tags": TEXT, "body": BYTES,
        "bornTimestamp": TimestampType(), "storeTimestamp": TimestampType(), "bornHost": TEXT,
        "storeHost": TEXT, "sysFlag": WHOLE, "flag": WHOLE, "reconsumeTimes": WHOLE,
        "properties": MapType(TEXT, TEXT),
    }  # fmt: skip
    found = find_columns(schema(read), options())

    assert found.places == {
        "topic": 0, "keys": 5, "tags": 6, "body": 7, "flag": 13, "properties": 15,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "given", "words"),
    [
        ({"topic": TEXT}, {}, "body: a column for the body is required"),
        ({"body": TEXT}, {}, "topic: give the option topic or a column"),
        ({"topic": TEXT, "body": TEXT, "tag": TEXT}, {}, "tag: .* did you mean tags"),
        ({"topic": TEXT, "body": TEXT, "zzz": TEXT}, {}, "zzz: a message has no such part. Drop"),
        ({"topic": TEXT, "body": DoubleType()}, {}, "body: .* binary or string, not double"),
        ({"topic": WHOLE, "body": TEXT}, {}, "topic: .* string, not int"),
        ({"body": TEXT, "value": TEXT}, {"topic": "t"}, "value: column body is the body, too"),
        (
            {"topic": TEXT, "body": TEXT, "properties": MapType(TEXT, WHOLE)},
            {},
            "properties: .* map<string,string>, not map<string,int>",
        ),
        (
            {"topic": TEXT, "body": TEXT, "deliverTime": TimestampNTZType()},
            {},
            "deliverTime: .* cast it to timestamp",
        ),
        ({"topic": TEXT, "body": TEXT}, {"messageId": "column"}, "msgId: .* needs this column"),
    ],
)
def test_find_columns_of_an_invalid_schema_names_the_column(
    columns: Mapping[str, DataType], given: Mapping[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        find_columns(schema(columns), options(**given))
