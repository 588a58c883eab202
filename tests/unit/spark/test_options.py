"""Parsing of options: types, checks and suggestions."""

import pytest

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.options import (
    Option,
    boolean,
    choice,
    duration_ms,
    options_of,
    parse_known,
    parse_options,
    size_bytes,
    whole,
    words,
)
from rocketpy.spark.read_options import BatchOptions, RowOptions, StreamOptions
from rocketpy.spark.sink.options import SinkOptions
from rocketpy.spark.store_source.options import StoreOptions

NEEDED = {"nameservers": "127.0.0.1:9876", "subscribe": "orders"}
ALL = [
    pytest.param(kind, each, id=f"{kind.__name__}-{each.name}")
    for kind in (BatchOptions, StreamOptions)
    for each in options_of(kind)
]


@pytest.mark.parametrize(("kind", "declared"), ALL)
@pytest.mark.parametrize("place", [0, -1])
def test_parse_options_misspelt_name_suggests_the_right_one(
    kind: type, declared: Option, place: int
) -> None:
    letters = list(declared.name)
    letters[place] = "x" if letters[place] != "x" else "y"
    wrong = "".join(letters)

    with pytest.raises(ConfigError) as caught:
        parse_options({**NEEDED, wrong: "1"}, kind)

    assert caught.value.key == wrong
    assert f"did you mean {declared.name}?" in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "name", "queries"),
    [
        (BatchOptions, "maxOffsetsPerTrigger", "streams (readStream)"),
        (BatchOptions, "PROGRESSGROUP", "streams (readStream)"),
        (StreamOptions, "pushdown", "batch reads of topics, reads of store directories"),
        (StreamOptions, "topic", "writes"),
        (SinkOptions, "subscribe", "streams (readStream), batch reads of topics"),
        (StoreOptions, "fetch.prefetch", "streams (readStream), batch reads of topics"),
    ],
)
def test_parse_options_of_another_query_names_the_query(
    kind: type, name: str, queries: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options({name: "1"}, kind)

    assert str(caught.value) == f"{name}: no such option of this query, it is for {queries}"


def test_parse_options_matches_any_case_and_aliases() -> None:
    found = parse_options({"RocketMQ.Namesrv.Addr": "a;b:1", "SUBSCRIBE": "x, y"}, BatchOptions)

    assert found.nameservers == ("a:9876", "b:1")
    assert found.subscribe == ("x", "y")


def test_parse_options_ignores_options_added_by_spark() -> None:
    found = parse_options({**NEEDED, "checkpointLocation": "/tmp/c", "path": "p"}, StreamOptions)

    assert found.subscribe == ("orders",)


def test_parse_options_names_missing_and_duplicate_options() -> None:
    with pytest.raises(ConfigError, match="nameservers: is required"):
        parse_options({"subscribe": "x"}, BatchOptions)
    with pytest.raises(ConfigError, match="nameservers: is given twice"):
        parse_options({**NEEDED, "rocketmq.namesrv.addr": "b"}, BatchOptions)


def test_options_hide_secrets() -> None:
    found = parse_options({**NEEDED, "accessKey": "ak", "secretKey": "s3cret"}, BatchOptions)
    assert "s3cret" not in repr(found)
    assert found.credentials is not None
    assert found.credentials.secret_key == "s3cret"

    with pytest.raises(ConfigError) as caught:
        parse_options({**NEEDED, "accessKey": "ak", "secretKey": " "}, BatchOptions)
    assert str(caught.value) == "secretKey: its value is empty"


@pytest.mark.parametrize(
    ("options", "words_"),
    [
        ({"subscribe": ""}, "subscribe: or subscribePattern or assign is required"),
        ({"assign": '{"t":{"b":[0]}}'}, "assign: excludes subscribe"),
        ({"subscribePattern": "x.*"}, "subscribePattern: excludes subscribe"),
        ({"startingOffsets": "earliest", "startingTimestamp": "1"}, "startingTimestamp: excludes"),
        ({"startingTimestamp": "1780315200"}, "1780315200, which seems to be in seconds"),
        ({"endingTimestamp": "1780315200"}, "1780315200, which seems to be in seconds"),
        ({"endingTimestamp": "-1"}, "'-1' is not a time in ms since 1970"),
        (
            {"startingOffsetsByTimestamp": '{"t":{"b":{"0":1780315200}}}'},
            "1780315200, which seems to be in seconds",
        ),
        ({"startingOffsets": "group"}, "startingGroup: needs startingOffsets=group"),
        ({"startingGroup": "g"}, "startingGroup: needs startingOffsets=group"),
        ({"startingOffsets": "erliest"}, "'erliest' is not one of earliest, latest, group"),
        ({"startingOffsets": '{"t":{"b":{"0":-3}}}'}, "-3 at t/b/0"),
        ({"startingOffsets": '{"t":{"b":{"x":1}}}'}, "'x' for a queue id at t/b"),
        ({"startingOffsets": '{"t":'}, "is not JSON"),
        ({"endingOffsets": '{"t":{"b":{"0":-2}}}'}, "endingOffsets: cannot be the earliest"),
        ({"endingOffsets": "earliest"}, "'earliest' is not one of latest"),
        ({"failOnDataLoss": "true", "onDataLoss": "skip"}, "onDataLoss: excludes failOnDataLoss"),
        ({"accessKey": "a"}, "secretKey: is missing"),
        ({"minPartitions": "0"}, "minPartitions: '0' is less than 1"),
        ({"fetch.batchSize": "many"}, "fetch.batchSize: 'many' is not a whole number"),
        ({"include": "propertys"}, "did you mean properties?"),
        ({"subExpression": " || "}, "subExpression: subscription expression"),
        (
            {"subExpression": "a IS NULL AMD b = 'x'", "expressionType": "SQL92"},
            "subExpression: at character 11: the condition ends before",
        ),
        ({"startingOffsets": "group", "startingGroup": "a b"}, "startingGroup: 'a b'"),
        ({"nameservers": ";"}, "nameservers: ';' names no address"),
    ],
)
def test_options_invalid_combinations_raise(options: dict[str, str], words_: str) -> None:
    for kind in (BatchOptions, StreamOptions):
        with pytest.raises(ConfigError) as caught:
            parse_options({**NEEDED, **options}, kind)
        assert words_ in str(caught.value)


@pytest.mark.parametrize("start", ["latest", '{"t":{"b":{"0":-1}}}'])
def test_batch_options_starting_at_latest_raise(start: str) -> None:
    options = {**NEEDED, "startingOffsets": start}

    with pytest.raises(ConfigError, match="startingOffsets: a batch cannot start at the latest"):
        parse_options(options, BatchOptions)
    assert parse_options(options, StreamOptions).starting_offsets is not None


def test_stream_options_progress_group_that_is_no_group_raises() -> None:
    with pytest.raises(ConfigError, match="progressGroup: 'bad group!' is no name of a group"):
        parse_options({**NEEDED, "progressGroup": "bad group!"}, StreamOptions)


def test_stream_options_invalid_pattern_and_limits_raise() -> None:
    with pytest.raises(ConfigError, match=r"subscribePattern: .* is not a regular expression"):
        parse_options({"nameservers": "a", "subscribePattern": "("}, BatchOptions)
    limits = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}
    with pytest.raises(ConfigError, match=r"minOffsetsPerTrigger: is more than max.* \(5\)"):
        parse_options({**NEEDED, **limits}, StreamOptions)


def test_options_parse_offsets_and_queues_from_json() -> None:
    options = {
        "nameservers": "a",
        "assign": '{"t":{"broker-b":[1],"broker-a":[1,0]}}',
        "startingOffsets": '{"t":{"broker-a":{"0":23,"1":-2}}}',
    }
    found = parse_options(options, BatchOptions)

    assert found.assign == (
        MessageQueue("t", "broker-a", 0),
        MessageQueue("t", "broker-a", 1),
        MessageQueue("t", "broker-b", 1),
    )
    assert found.starting_offsets == {
        MessageQueue("t", "broker-a", 0): 23,
        MessageQueue("t", "broker-a", 1): -2,
    }


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        ({}, "fail"),
        ({"failOnDataLoss": "TRUE"}, "fail"),
        ({"failOnDataLoss": "false"}, "skip"),
        ({"onDataLoss": "mark"}, "mark"),
    ],
)
def test_data_loss_by_options(options: dict[str, str], policy: str) -> None:
    assert parse_options({**NEEDED, **options}, BatchOptions).data_loss == policy


def test_parse_known_ignores_other_options() -> None:
    found = parse_known({**NEEDED, "valueFormat": "STRING", "nonsense": "1"}, RowOptions)

    assert found.value_format == "string"


def test_parsers_parse_and_reject_values() -> None:
    assert size_bytes(1, 1 << 40)("8m") == 8 << 20
    assert size_bytes(1, 1 << 40)("2 GiB") == 2 << 30
    assert duration_ms("15m") == 900_000
    assert duration_ms("250") == 250
    assert boolean(" False ") is False
    assert choice("TAG", "SQL92")("sql92") == "SQL92"
    assert words()(" a,, b ,a") == ("a", "b")
    for parse, text in [
        (size_bytes(1, 10), "1k"),
        (size_bytes(1, 10), "1.5m"),
        (duration_ms, "1 week"),
        (boolean, "yes"),
        (whole(0), "1e3"),
        (whole(0, 5), "6"),
    ]:
        with pytest.raises(ValueError, match="is "):
            parse(text)
