"""Handles, offsets of responses, check points and acks, as Apache writes them."""

import pytest

from rocketpy.proto.bodies.pop import BatchAckMessageRequestBody, CheckPoint, PopAck
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
CHECK_POINT = (
    b'{"bm":0,"bn":"vec-a","c":"vec_pop_group","d":[0,1,2,3,4,5,6,7],"it":10000,"n":8,'
    b'"pt":1795251247112,"q":0,"reviveTime":1795251257112,"ro":0,"so":0,"t":"VecPop"}'
)
ACK = b'{"ao":1,"bn":"vec-a","c":"vec_pop_group","pt":1795251247112,"q":0,"so":0,"t":"VecPop"}'


def test_a_handle_is_read_and_written_as_apache_does() -> None:
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
def test_what_is_no_handle_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"handle|number"):
        parse_handle(text)


def test_marks_name_topics() -> None:
    for topic, mark in (("T", "0"), ("%RETRY%g_T", "1"), ("%RETRY%g+T", "2")):
        assert retry_mark(topic) == mark
        assert real_topic("T", "g", mark) == topic
        assert normal_topic(topic, "g") == "T"
    with pytest.raises(ValueError, match="no mark"):
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


def test_a_check_point_is_what_apache_stores() -> None:
    point = CheckPoint.decode(CHECK_POINT)
    assert point.encode() == CHECK_POINT
    assert point.unique_key == "VecPop@0@0@vec_pop_group@1795251247112@vec-a@ck"
    point.start_offset, point.offset_diffs, point.count = 10, [0, 2, 5], 3
    assert [point.offset_at(index) for index in range(3)] == [10, 12, 15]
    assert [point.index_of(offset) for offset in (9, 10, 11, 12, 15, 16)] == [-1, 0, -1, 1, 2, -1]
    point.offset_diffs = []  # an old one: its messages lie side by side
    assert [point.index_of(offset) for offset in (9, 10, 12, 13)] == [-1, 0, 2, -1]
    assert point.offset_at(2) == 12


def test_an_ack_is_what_apache_stores() -> None:
    ack = PopAck.decode(ACK)
    assert ack.encode() == ACK
    assert (ack.tag, ack.unique_key) == ("ack", "VecPop@0@1@vec_pop_group@1795251247112@vec-a@ack")
    old = PopAck.decode(b'{"ackOffset":1,"consumerGroup":"g","popTime":2,"ackOffsetList":[1]}')
    assert (old.offset, old.group, old.pop_time_ms, old.tag) == (1, "g", 2, "bAck")


def test_a_batch_ack_is_what_apache_sends() -> None:
    body = (
        b'{"acks":[{"b":"CQI=","c":"g","it":2,"pt":1,"q":1,"r":"0","rq":2,"so":3,"t":"T"}],'
        b'"brokerName":"broker-a"}'
    )
    assert BatchAckMessageRequestBody.decode(body).encode() == body
