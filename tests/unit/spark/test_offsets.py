"""Offsets in checkpoints: canonical text, and errors for other sources."""

import json

import pytest

from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.spark.offsets import (
    LastSeen,
    QueueRange,
    StreamOffset,
    from_json,
    range_words,
    to_json,
)

A0, A1, A10 = (MessageQueue("T", "broker-a", queue_id) for queue_id in (0, 1, 10))
B0 = MessageQueue("S", "broker-b", 0)


def test_to_json_of_equal_offsets_is_equal_text() -> None:
    first = to_json(StreamOffset({A10: 3, A0: 123, B0: 0, A1: 7}))
    second = to_json(StreamOffset({B0: 0, A0: 123, A1: 7, A10: 3}))

    assert json.dumps(first) == json.dumps(second)
    assert json.dumps(first) == (
        '{"v": 1, "o": {"S": {"broker-b": {"0": 0}}, '
        '"T": {"broker-a": {"0": 123, "1": 7, "10": 3}}}}'
    )


@pytest.mark.parametrize("is_first", [True, False])
def test_from_json_decodes_to_json(is_first: bool) -> None:
    position = StreamOffset({A0: 5, B0: 6}, is_first)
    timed = position._replace(seen={B0: LastSeen(9, 2), A0: LastSeen(4, 1)})

    assert from_json(json.loads(json.dumps(to_json(position)))) == position
    assert from_json(json.loads(json.dumps(to_json(timed)))) == timed
    assert json.dumps(to_json(timed)["s"]) == (
        '{"S": {"broker-b": {"0": [9, 2]}}, "T": {"broker-a": {"0": [4, 1]}}}'
    )


def test_from_json_of_an_older_version_has_times_of_brokers() -> None:
    old = {"v": 1, "o": {"T": {"broker-a": {"0": 5, "1": 6}}}, "t": {"broker-a": 7}}

    assert from_json(old).seen == {A0: LastSeen(-1, 7), A1: LastSeen(-1, 7)}
    newer = old | {"s": {"T": {"broker-a": {"1": [8, 9]}}}}
    assert from_json(newer).seen == {A0: LastSeen(-1, 7), A1: LastSeen(8, 9)}
    assert from_json(to_json(from_json(newer))) == from_json(newer)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"orders": {"0": 5}}, "not an offset of this source"),
        (7, "not an offset of this source"),
        ({"v": 2, "o": {}}, "have version 2"),
        ({"v": 1, "o": {"T": {"a": {"0": -1}}}}, "-1 at T/a/0"),
        ({"v": 1, "o": {"T": {"a": [1]}}}, "[1] at T/a, where a JSON object is expected"),
        ({"v": 1, "o": {}, "t": {"a": "now"}}, "'now' at t/a"),
        ({"v": 1, "o": {}, "s": {"T": {"a": {"0": 7}}}}, "7 at T/a/0"),
        ({"v": 1, "o": {"T": {"0": 23}}}, "between topic and queue id is the name of the broker"),
    ],
)
def test_from_json_of_another_source_raises(found: object, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_json(found)

    assert str(caught.value).startswith("checkpointLocation: ")
    assert words in str(caught.value)


def test_range_words_shows_the_first_ranges() -> None:
    ranges = [QueueRange("T", "broker-a", queue_id, 5, 9) for queue_id in range(25)]

    assert str(ranges[0]) == "T/broker-a/0 [5, 9)"
    assert ranges[0].size == 4
    assert ranges[0].queue == A0
    assert range_words(ranges[:2]) == "T/broker-a/0 [5, 9), T/broker-a/1 [5, 9)"
    assert range_words(ranges).endswith("T/broker-a/19 [5, 9) and 5 more")
