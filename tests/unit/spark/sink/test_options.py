"""Options of writes: misspelt names and contradictions are errors."""

import pytest

from rocketpy.errors import ConfigError
from rocketpy.spark.options import Option, options_of, parse_options
from rocketpy.spark.sink.options import SinkOptions

NEEDED = {"nameservers": "127.0.0.1:9876"}


@pytest.mark.parametrize("declared", options_of(SinkOptions), ids=lambda each: each.name)
def test_sink_options_misspelt_name_suggests_the_right_one(declared: Option) -> None:
    wrong = declared.name[:-1] + ("x" if declared.name[-1] != "x" else "y")

    with pytest.raises(ConfigError, match=f"{wrong}: no such option; did you mean") as raised:
        parse_options({**NEEDED, wrong: "1"}, SinkOptions)

    assert declared.name in str(raised.value)


def test_sink_options_defaults() -> None:
    found = parse_options(NEEDED, SinkOptions)

    assert (found.send_mode, found.on_error, found.message_id) == ("sync", "fail", "auto")
    assert found.dead_topic == ""


@pytest.mark.parametrize(
    ("given", "topic"),
    [({}, "%DLQ%spark_sink"), ({"producerGroup": "g"}, "%DLQ%g"), ({"dlqTopic": "bad"}, "bad")],
)
def test_dead_topic_by_options(given: dict[str, str], topic: str) -> None:
    assert parse_options({**NEEDED, "onError": "dlq", **given}, SinkOptions).dead_topic == topic


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"topic": "a b"}, "topic: .*illegal characters"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "topic: .*not allowed"),
        ({"dlqTopic": "bad"}, "dlqTopic: needs onError=dlq"),
        ({"producerGroup": "a b"}, "group: .*illegal characters"),
        ({"sendMode": "async"}, "sendMode: 'async' is not one of sync, oneway"),
        ({"onError": "skip"}, "onError: 'skip' is not one of fail, dlq"),
        ({"inflight": "0"}, "inflight: '0' is less than 1"),
        ({"batch.maxBytes": "8m"}, "batch.maxBytes: '8m' is more than"),
        ({"sendTimeoutMs": "0"}, "sendTimeoutMs: is less than 1 ms"),
    ],
)
def test_sink_options_invalid_values_raise(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_options({**NEEDED, **given}, SinkOptions)
