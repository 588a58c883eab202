import pyarrow as pa

from rocketpy.proto.trace import (
    ConsumeBeginTrace,
    ConsumeEndTrace,
    RecallTrace,
    SendTrace,
    encode_trace,
)
from rocketpy.spark.jobs.trace_events import EVENTS, decode_batches, decode_bodies

SEND = SendTrace(
    time_ms=1000, region="r", group="pg", topic="T", msg_id="m1", broker="b:1", body_bytes=3,
    cost_ms=7, success=False,
)  # fmt: skip
BEGIN = ConsumeBeginTrace(
    time_ms=1100, region="r", group="cg", request_id="q", msg_id="m1", retries=2
)
END = ConsumeEndTrace(request_id="q", msg_id="m1", cost_ms=40, success=False, outcome=4)
RECALL = RecallTrace(time_ms=1, region="r", group="g", topic="T", msg_id="m2")


def test_event_of_a_record_is_a_row() -> None:
    body = "".join(encode_trace(each) for each in (SEND, BEGIN, END, RECALL)).encode()
    batch = decode_bodies([body], ["10.0.0.1:4711"])
    assert batch.schema == EVENTS
    assert [tuple(row.values()) for row in batch.to_pylist()] == [
        ("send", 1000, "pg", "T", "m1", None, "b:1", 7, False, None, None),
        ("begin", 1100, "cg", None, "m1", "q", "10.0.0.1", None, None, None, 2),
        ("end", 0, "", None, "m1", "q", "10.0.0.1", 40, False, 4, None),
    ]


def test_decode_bodies_skips_invalid_traces() -> None:
    batch = decode_bodies([b"\xff\xfe", None, b"", encode_trace(SEND).encode()], [None] * 4)
    assert batch.column("msg_id").to_pylist() == ["m1"]
    assert decode_bodies([], []).schema == EVENTS


def test_decode_batches_decodes_each_batch() -> None:
    rows = pa.RecordBatch.from_pydict(
        {"body": [encode_trace(SEND).encode()] * 2, "bornHost": ["h:1", "h:2"]}
    )
    assert [batch.num_rows for batch in decode_batches([rows, rows])] == [2, 2]
