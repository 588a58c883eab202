"""Check points, acks and batches of acks, as Apache stores and sends them."""

from dataclasses import fields

import pytest

from rocketpy.errors import BadBodyError
from rocketpy.proto.bodies.pop import BatchAck, BatchAckMessageRequestBody, CheckPoint, PopAck

# Seen in a store of 5.4.0.
CHECK_POINT = (
    b'{"bm":0,"bn":"vec-a","c":"vec_pop_group","d":[0,1,2,3,4,5,6,7],"it":10000,"n":8,'
    b'"pt":1795251247112,"q":0,"reviveTime":1795251257112,"ro":0,"so":0,"t":"VecPop"}'
)
ACK = b'{"ao":1,"bn":"vec-a","c":"vec_pop_group","pt":1795251247112,"q":0,"so":0,"t":"VecPop"}'


def test_check_point_is_what_apache_stores() -> None:
    point = CheckPoint.decode(CHECK_POINT)
    assert point.encode() == CHECK_POINT
    assert point.unique_key == "VecPop@0@0@vec_pop_group@1795251247112@vec-a@ck"
    point.start_offset, point.offset_diffs, point.count = 10, [0, 2, 5], 3
    assert [point.offset_at(index) for index in range(3)] == [10, 12, 15]
    assert [point.index_of(offset) for offset in (9, 10, 11, 12, 15, 16)] == [-1, 0, -1, 1, 2, -1]
    point.offset_diffs = []  # an old one: its messages lie side by side
    assert [point.index_of(offset) for offset in (9, 10, 12, 13)] == [-1, 0, 2, -1]
    assert point.offset_at(2) == 12


def test_ack_is_what_apache_stores() -> None:
    ack = PopAck.decode(ACK)
    assert ack.encode() == ACK
    assert (ack.tag, ack.unique_key) == ("ack", "VecPop@0@1@vec_pop_group@1795251247112@vec-a@ack")
    old = PopAck.decode(b'{"ackOffset":1,"consumerGroup":"g","popTime":2,"ackOffsetList":[1]}')
    assert (old.offset, old.group, old.pop_time_ms, old.tag) == (1, "g", 2, "bAck")


def test_batch_ack_is_what_apache_sends() -> None:
    body = (
        b'{"acks":[{"b":"CQI=","c":"g","it":2,"pt":1,"q":1,"r":"0","rq":2,"so":3,"t":"T"}],'
        b'"brokerName":"broker-a"}'
    )
    assert BatchAckMessageRequestBody.decode(body).encode() == body


def test_check_point_that_is_made_here_says_everything_that_apache_reads() -> None:
    point = CheckPoint("T", "g", 1, 5, 1_000, 60_000, 2, [0, 3], "b", revive_time_ms=61_000)
    assert point.encode() == (
        b'{"bm":0,"bn":"b","c":"g","d":[0,3],"it":60000,"n":2,"pt":1000,"q":1,'
        b'"reviveTime":61000,"ro":0,"so":5,"t":"T"}'
    )
    assert CheckPoint.decode(point.encode()) == point


def test_old_check_points_lack_what_was_added_later() -> None:
    point = CheckPoint.decode(b'{"bm":3,"n":2,"so":7,"t":"T","c":"g","pt":1,"it":2,"q":0}')
    assert (point.broker_name, point.offset_diffs, point.re_put_times) == (None, [], None)
    assert (point.bit_map, point.revive_offset, point.revive_time_ms) == (3, 0, 0)
    assert point.unique_key.endswith("@None@ck")


def test_check_point_missing_numbers_are_zero() -> None:
    point, ack, batch = CheckPoint.decode(b"{}"), PopAck.decode(b"{}"), BatchAck.decode(b"{}")
    for body in (point, ack, batch):
        numbers = [getattr(body, one.name) for one in fields(body) if one.type is int]
        assert len(numbers) >= 4
        assert set(numbers) == {0}


def test_check_point_index_of_other_offset_is_minus_one() -> None:
    point = CheckPoint(start_offset=10, count=3)
    assert [point.index_of(offset) for offset in (-1, 9, 12, 13, 1 << 62)] == [-1, -1, 2, -1, -1]
    assert CheckPoint(start_offset=10, count=0).index_of(10) == -1


@pytest.mark.parametrize(("diffs", "last"), [([], 12), ([0, 3, 7], 17)])
def test_check_point_says_which_of_its_messages_are_acked(diffs: list[int], last: int) -> None:
    point = CheckPoint(start_offset=10, count=3, offset_diffs=diffs)
    point.note_acked([last, 9, 1 << 62])
    assert point.bit_map == 0b100
    assert point.offsets(acked=True) == [last]
    assert point.offsets(acked=False) == [10, 13 if diffs else 11]
    point.note_acked(point.offsets(acked=False))
    assert (point.bit_map, point.offsets(acked=False)) == (0b111, [])


def test_name_of_today_counts_before_an_old_one() -> None:
    both = PopAck.decode(b'{"ackOffset":1,"ao":2,"consumerGroup":"old","c":"new"}')
    assert (both.offset, both.group) == (2, "new")
    assert b"consumerGroup" not in both.encode()


def test_every_long_name_of_an_old_ack_is_read() -> None:
    old = PopAck.decode(
        b'{"ackOffset":1,"startOffset":2,"consumerGroup":"g","topic":"t","queueId":3,'
        b'"popTime":4,"brokerName":"b"}'
    )
    assert old == PopAck("t", "g", 3, 2, 4, "b", 1)
    assert old.tag == "ack"


def test_pop_ack_of_several_has_its_tag_and_the_key_of_one() -> None:
    one, many = PopAck("t", "g", 3, 2, 4, "b", 1), PopAck("t", "g", 3, 2, 4, "b", 1, [1, 2])
    assert (one.tag, many.tag) == ("ack", "bAck")
    assert one.unique_key == many.unique_key == "t@3@1@g@4@b@ack"
    assert b"aol" not in one.encode()
    assert b'"aol":[1,2]' in many.encode()
    assert PopAck("t", "g", offset=1, offsets=[]).tag == "bAck"


def test_batch_without_acks_is_empty() -> None:
    assert BatchAckMessageRequestBody.decode(b"{}") == BatchAckMessageRequestBody()
    body = BatchAckMessageRequestBody("b", [BatchAck("g", "T", "1", 5, 6, 7, 8, 9, "AQ==")])
    [ack] = BatchAckMessageRequestBody.decode(body.encode()).acks
    assert (ack.group, ack.topic, ack.retry, ack.bit_set) == ("g", "T", "1", "AQ==")
    assert (ack.start_offset, ack.queue_id, ack.revive_queue_id) == (5, 6, 7)
    assert (ack.pop_time_ms, ack.invisible_ms) == (8, 9)


@pytest.mark.parametrize("kind", [CheckPoint, PopAck, BatchAckMessageRequestBody])
@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"text"])
def test_pop_bodies_invalid_json_raises(
    kind: type[CheckPoint | PopAck | BatchAckMessageRequestBody], data: bytes
) -> None:
    with pytest.raises(BadBodyError):
        kind.decode(data)


def test_pop_bodies_field_of_another_type_raises() -> None:
    for data in (b'{"t":[]}', b'{"n":"many"}', b'{"d":{}}'):
        with pytest.raises(BadBodyError):
            CheckPoint.decode(data)
    with pytest.raises(BadBodyError):
        BatchAckMessageRequestBody.decode(b'{"acks":5}')


def test_check_point_include_adds_messages_of_another() -> None:
    point = CheckPoint("t", "g", 0, 5, 7, 1_000, 2, [], "b")
    point.note_acked((6,))
    point.include(CheckPoint("t", "g", 0, 5, 7, 3_000, 3, [0, 1, 4], "b"))
    assert (point.offsets(acked=False), point.offsets(acked=True)) == ([5, 9], [6])
    assert (point.count, point.invisible_ms) == (3, 3_000)
    before = point.encode()
    point.include(CheckPoint("t", "g", 0, 5, 7, 1_000, 1, [0], "b"))
    assert point.encode() == before
