"""Trace records are those of the official clients, both ways."""

import pytest

from rocketpy.proto.trace import (
    ConsumeBeginTrace,
    ConsumeEndTrace,
    RecallTrace,
    SendTrace,
    TraceRecord,
    TransactionTrace,
    decode_traces,
    encode_trace,
    trace_keys,
)

SENT = SendTrace(
    time_ms=1,
    region="DefaultRegion",
    group="G",
    topic="T",
    msg_id="M",
    tag="A",
    keys="k1 k2",
    broker="127.0.0.1:10911",
    body_bytes=10,
    cost_ms=5,
    offset_msg_id="O",
)
CASES: list[tuple[TraceRecord, str]] = [
    (SENT, "Pub|1|DefaultRegion|G|T|M|A|k1 k2|127.0.0.1:10911|10|5|0|O|true;"),
    (
        ConsumeBeginTrace(time_ms=2, region="R", group="G", request_id="Q", msg_id="M", retries=3),
        "SubBefore|2|R|G|Q|M|3|null;",
    ),
    (
        ConsumeEndTrace(
            request_id="Q", msg_id="M", cost_ms=7, success=False, keys="k", outcome=2, time_ms=9,
            group="G",
        ),
        "SubAfter|Q|M|7|false|k|2|9|G;",
    ),
    (
        TransactionTrace(
            time_ms=3, region="R", group="G", topic="T", msg_id="M", keys="k", broker="b:1",
            transaction_id="X", state="COMMIT_MESSAGE", from_check=True,
        ),
        "EndTransaction|3|R|G|T|M|null|k|b:1|1|X|COMMIT_MESSAGE|true;",
    ),
    (
        RecallTrace(time_ms=4, region="R", group="G", topic="T", msg_id="M"),
        "Recall|4|R|G|T|M|true;",
    ),
]  # fmt: skip


def wire(text: str) -> str:
    return text.replace("|", "\x01").replace(";", "\x02")


@pytest.mark.parametrize(("record", "text"), CASES, ids=[case[0].kind for case in CASES])
def test_record_is_the_official_one(record: TraceRecord, text: str) -> None:
    assert encode_trace(record) == wire(text)
    assert decode_traces(wire(text)) == [record]


def test_message_holds_many() -> None:
    text = wire("".join(text for _, text in CASES))
    assert decode_traces(text) == [record for record, _ in CASES]


def test_old_clients_say_less() -> None:
    (sent,) = decode_traces(wire("Pub|1|R|G|T|M|A|k|b:1|10|5|0|true;"))
    assert isinstance(sent, SendTrace)
    assert (sent.offset_msg_id, sent.success, sent.message_type) == ("", True, 0)
    (newer,) = decode_traces(wire("Pub|1|R|G|T|M|A|k|b:1|10|5|0|O|true|10.0.0.1;"))
    assert isinstance(newer, SendTrace)
    assert newer.offset_msg_id == "O"
    (done,) = decode_traces(wire("SubAfter|Q|M|7|true|k;"))
    assert isinstance(done, ConsumeEndTrace)
    assert (done.time_ms, done.group, done.outcome) == (0, "", 0)


@pytest.mark.parametrize(
    "text", ["", ";", "Pub;", "Pub|x|R|G|T|M|A|k|b|10|5|0|O|true;", "Nothing|1;", "SubBefore|1|R;"]
)
def test_decode_traces_skips_invalid_records(text: str) -> None:
    assert decode_traces(wire(text) + wire(CASES[4][1])) == [CASES[4][0]]


def test_record_is_found_by_the_id_and_the_keys() -> None:
    assert trace_keys(SENT) == ["M", "k1", "k2"]
    assert [trace_keys(record) for record, _ in CASES[1:]] == [["M"], ["M", "k"], ["M", "k"], ["M"]]
