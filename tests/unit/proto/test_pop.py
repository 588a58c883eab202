"""Handles, and the offsets of responses, as Apache writes them."""

import pytest

from rocketpy.proto.pop import (
    PopHandle,
    message_offsets_part,
    normal_topic,
    order_count_parts,
    parse_handle,
    parse_queue_values,
    real_topic,
    retry_mark,
    start_offset_part,
)

# Seen in a store and on the wire of 5.4.0.
HANDLE = "0 1795251495948 60000 0 0 wire-bk 2 3"


def test_handle_is_read_and_written_as_apache_does() -> None:
    handle = parse_handle(HANDLE)
    assert handle == PopHandle(0, 1_795_251_495_948, 60_000, 0, "0", "wire-bk", 2, 3)
    assert handle.text() == HANDLE
    assert parse_handle(HANDLE[:-2]).queue_offset is None
    assert parse_handle("0 1 2 999 0 b 2 3").is_ordered


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        "0 1 2 3 0 b",
        HANDLE + " 4",
        "x 1 2 3 0 b 2 3",
        f"{1 << 63} 1 2 3 0 b 2 3",
        "٣ 1 2 3 0 b 2 3",
    ],
)
def test_parse_handle_invalid_raises(text: str) -> None:
    with pytest.raises(ValueError, match=r"handle|number"):
        parse_handle(text)


def test_marks_name_topics() -> None:
    for topic, mark in (("T", "0"), ("%RETRY%g_T", "1"), ("%RETRY%g+T", "2")):
        assert retry_mark(topic) == mark
        assert real_topic("T", "g", mark) == topic
        assert normal_topic(topic, "g") == "T"
    with pytest.raises(ValueError, match="unknown mark"):
        real_topic("T", "g", "3")


def test_offsets_of_a_response() -> None:
    starts = ";".join(start_offset_part("T", queue, 0) for queue in (2, 1))
    assert starts == "0 2 0;0 1 0"
    offsets = message_offsets_part("%RETRY%g_T", 0, [4, 7])
    assert offsets == "1 0 4,7"
    assert order_count_parts("T", 3, {5: 2}, 0) == ["0 qo3%5 2", "0 3 0"]
    assert parse_queue_values(f"{starts};{offsets}") == {
        ("0", "2"): [0],
        ("0", "1"): [0],
        ("1", "0"): [4, 7],
    }
    assert parse_queue_values(None) == parse_queue_values("") == {}
    for wrong in ("0 1", "0 1 x", "0 1 0;0 1 0"):
        with pytest.raises(ValueError, match=r"queue|number"):
            parse_queue_values(wrong)
