"""Batches have exactly the rows of the range, and account for missing offsets."""

from typing import Any

import pytest

from rocketpy.arrow import RecordDecoder, row_schema
from rocketpy.arrow.missing_rows import LOST_UNTIL
from rocketpy.errors import BadBodyError, CorruptRecordError, DataLossError
from rocketpy.proto.record.message import MessageExt, encode_message
from rocketpy.spark.offsets import QueueRange
from rocketpy.spark.source.fetch import Pulled
from rocketpy.spark.source.record_batches import BatchMaker
from tests.unit.spark.queue_broker import record

WANTED = QueueRange("T", "broker-a", 0, 0, 100)


def pulled(start: int, end: int, rows: Any = None, lost: str = "") -> Pulled:
    offsets = range(start, end) if rows is None else rows
    body = b"" if lost else b"".join(map(record, offsets))
    return Pulled(start, end, body, end, lost)


def maker(**changes: Any) -> BatchMaker:
    schema = row_schema()
    values: dict[str, Any] = {"is_filtered": False, "policy": "fail", **changes}
    return BatchMaker(WANTED, schema, RecordDecoder(schema), **values)


def rows_of(made: BatchMaker, *pieces: Pulled) -> list[Any]:
    return [*made.batches(pieces), *made.finish()]


def offsets(made: BatchMaker, *pieces: Pulled) -> list[int]:
    return [
        each for batch in rows_of(made, *pieces) for each in batch.column("queueOffset").to_pylist()
    ]


def test_batches_join_consecutive_pulls() -> None:
    batches = list(maker().batches([pulled(0, 5), pulled(5, 9)]))

    assert len(batches) == 1
    assert batches[0].column("queueOffset").to_pylist() == list(range(9))
    assert batches[0].column("keys").to_pylist() == [f"k{each}" for each in range(9)]
    assert batches[0].schema.equals(row_schema().arrow)


def test_batches_drop_records_outside_the_piece() -> None:
    made = maker(is_filtered=True)

    assert offsets(made, pulled(0, 5, [1, 4, 6, 8]), pulled(5, 10, [6, 8, 12])) == [1, 4, 6, 8]
    assert made.lost == []


def test_batches_without_filter_report_missing_offsets_as_lost() -> None:
    with pytest.raises(DataLossError) as caught:
        offsets(maker(), pulled(0, 6, [0, 1, 4, 5]))
    assert "T/broker-a/0 [2, 4)" in str(caught.value)
    assert "failOnDataLoss=false" in str(caught.value)

    made = maker(policy="skip")
    assert offsets(made, pulled(0, 6, [1, 4]), pulled(6, 9, [8]), pulled(9, 20, lost="gone")) == [
        1,
        4,
        8,
    ]
    assert made.lost == [
        WANTED._replace(start=0, end=1),
        WANTED._replace(start=2, end=4),
        WANTED._replace(start=5, end=8),
        WANTED._replace(start=9, end=20),
    ]


def test_batches_mark_lost_messages_by_rows() -> None:
    made = maker(policy="mark")
    rows = [
        row
        for batch in rows_of(made, pulled(0, 3, [0, 2]), pulled(3, 7, lost="x"))
        for row in batch.to_pylist()
    ]

    marks = [row for row in rows if row["properties"] and row["properties"][0][0] == LOST_UNTIL]
    assert [(m["queueOffset"], m["properties"][0][1], m["body"]) for m in marks] == [
        (1, "2", None),
        (3, "7", None),
    ]
    assert [row["queueOffset"] for row in rows if row["body"]] == [0, 2]


def test_batches_mark_a_lost_range_by_one_row() -> None:
    made = maker(policy="mark")
    pieces = [[pulled(0, 5), pulled(5, 10, lost="x")], [pulled(10, 15, lost="x")], [pulled(15, 20)]]
    rows = [row for each in pieces for batch in made.batches(each) for row in batch.to_pylist()]
    rows += [row for batch in made.finish() for row in batch.to_pylist()]

    found = [(row["queueOffset"], dict(row["properties"]).get(LOST_UNTIL)) for row in rows]
    assert [each for each in found if each[1]] == [(5, "15")]
    assert [each for each, until in found if not until] == [*range(5), *range(15, 20)]


@pytest.mark.parametrize("at", [5, 6])
def test_batches_mark_each_lost_range_once_in_any_order(at: int) -> None:
    made = maker(policy="mark")
    # The end of the range is lost as well, and is noted first.
    pieces = [pulled(0, 5, lost="the queue begins later"), pulled(5, 10, range(at, 8))]
    rows = [row for batch in rows_of(made, *pieces) for row in batch.to_pylist()]

    found = [(row["queueOffset"], dict(row["properties"]).get(LOST_UNTIL)) for row in rows]
    assert [each for each in found if each[1]] == [(0, str(at)), (8, "10")]
    assert [each for each, until in found if not until] == [*range(at, 8)]
    assert [(each.start, each.end) for each in made.lost] == [(0, at), (8, 10)]


def stored_at(offset: int, time_ms: int) -> bytes:
    message = MessageExt(
        topic="T", queue_offset=offset, body=b"x", store_timestamp_ms=time_ms,
        born_host="127.0.0.1:1", store_host="127.0.0.1:2",
    )  # fmt: skip
    return encode_message(message)


@pytest.mark.parametrize("policy", ["fail", "skip", "mark"])
def test_batches_messages_stored_after_planning_in_another_queue_are_lost(policy: str) -> None:
    body = b"".join(stored_at(each, 1_000 + each) for each in range(6))
    piece = Pulled(0, 6, body, 6)

    same = maker(policy=policy, planned_ms=1_003, is_other=lambda: False)
    assert offsets(same, piece) == [*range(6)]  # the broker's clock was set back
    later = maker(policy=policy, planned_ms=1_005, is_other=lambda: True)
    assert offsets(later, piece) == [*range(6)]
    other = maker(policy=policy, planned_ms=1_003, is_other=lambda: True)
    if policy == "fail":
        with pytest.raises(DataLossError, match=r"T/broker-a/0 \[4, 6\): .*other messages now"):
            offsets(other, piece)
        return
    assert offsets(other, piece) == ([0, 1, 2, 3, 4] if policy == "mark" else [0, 1, 2, 3])
    assert other.lost == [WANTED._replace(start=4, end=6)]


def test_batches_of_invalid_data_raise() -> None:
    with pytest.raises(BadBodyError, match="duplicate or unordered"):
        offsets(maker(), pulled(0, 3, [0, 1, 1]))
    with pytest.raises(BadBodyError, match="are no records"):
        offsets(maker(), Pulled(0, 3, b"nonsense" * 40, 3))


def test_batches_of_a_damaged_record_raise_or_skip() -> None:
    flipped = bytearray(record(1))
    flipped[-1 - len(b"KEYS\x01k1") - len(b"\x00\x00T") - 3] ^= 1  # in the body
    body = record(0) + bytes(flipped) + record(2)
    schema = row_schema()

    for policy, expected in (("fail", None), ("skip", [0, 2])):
        decoder = RecordDecoder(schema, check_crc=True, damaged=policy)  # type: ignore[arg-type]
        made = BatchMaker(WANTED, schema, decoder, is_filtered=False, policy="fail")
        if expected is None:
            with pytest.raises(CorruptRecordError, match="1000"):
                offsets(made, Pulled(0, 3, body, 3))
        else:
            assert offsets(made, Pulled(0, 3, body, 3)) == expected
            assert decoder.damaged_count == 1


def test_batches_record_of_another_queue_is_damaged() -> None:
    body = record(0) + record(1, queue_id=47) + record(2)
    schema = row_schema()

    with pytest.raises(CorruptRecordError, match=r"offset 1000: it is offset 1 of T/broker-a/0 "):
        offsets(maker(), Pulled(0, 3, body, 3))
    decoder = RecordDecoder(schema, damaged="skip")
    made = BatchMaker(WANTED, schema, decoder, is_filtered=False, policy="fail")
    assert offsets(made, Pulled(0, 3, body, 3)) == [0, 2]
    assert decoder.damaged_count == 1


@pytest.mark.parametrize("at", [3, 5])
def test_batches_record_without_size_is_lost_when_skipping(at: int) -> None:
    """Apache's brokers return what the consume queue points to, without a check of the log."""
    flipped = bytearray(record(1))
    flipped[at] ^= 8  # size or magic
    body = record(0) + bytes(flipped) + record(2)
    schema = row_schema()
    decoder = RecordDecoder(schema, damaged="skip")

    with pytest.raises(DataLossError, match=r"\[1, 2\)"):
        offsets(
            BatchMaker(WANTED, schema, decoder, is_filtered=False, policy="fail"),
            Pulled(0, 3, body, 3),
        )
    skipping = BatchMaker(WANTED, schema, decoder, is_filtered=False, policy="skip")
    assert offsets(skipping, Pulled(0, 3, body, 3)) == [0, 2]
    assert skipping.lost == [WANTED._replace(start=1, end=2)]


def test_batches_topic_column_has_no_namespace() -> None:
    made = maker(topic="orders", policy="mark")

    rows, marks = rows_of(made, pulled(0, 2), pulled(2, 5, lost="x"))
    assert rows.column("topic").to_pylist() == ["orders", "orders"]
    assert marks.column("topic").to_pylist() == ["orders"]
