import contextlib
import io
import json

import pytest

from rocketpy.proto.record.message import MessageExt
from rocketpy.terminal.render import iso, message_row, printable, show, show_line

ROWS = [
    {"name": "a", "count": 5, "ok": True, "rate": 1234.56, "tags": ["x", "y"], "none": None},
    {"name": "long" * 40, "count": 12_000, "ok": False, "rate": 0.0, "tags": [], "none": None},
]


def test_table_has_a_header_and_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, "table", columns=("count", "ok", "rate", "tags", "name"))
    assert capsys.readouterr().out.splitlines() == [
        "COUNT  OK      RATE  TAGS  NAME",
        "    5  yes  1,234.6  x y   a",
        f"12000  no       0.0        {'long' * 40}",
    ]


def test_table_shortens_free_text_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    long = "x" * 127
    names = ("topic", "group", "broker", "key", "value", "error", "tag")
    show([dict.fromkeys((*names, "body", "reason"), long)], "table")
    *whole, body, reason = capsys.readouterr().out.splitlines()[1].split()
    assert whole == [long] * len(names)
    assert body == reason == "x" * 57 + "..."


def test_json_output_has_all_keys(capsys: pytest.CaptureFixture[str]) -> None:
    show(ROWS, "json", columns=("count",))
    assert json.loads(capsys.readouterr().out) == ROWS
    show([], "json", empty="nothing")
    assert json.loads(capsys.readouterr().out) == []


def test_json_output_on_a_text_stream_without_bytes_is_printed() -> None:
    row = {"body": "grün"}
    for printed, expected in [(lambda: show([row], "json"), [row]), (lambda: show_line(row), row)]:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            printed()
        assert json.loads(output.getvalue()) == expected


def test_body_that_is_not_text_says_so_in_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"body": "//4=", "body_encoding": "base64"},
        {"body": "hello", "body_encoding": "utf-8"},
    ]
    show(rows, "table", columns=("body",))
    assert capsys.readouterr().out.split() == ["BODY", "base64://4=", "hello"]
    show(rows, "json")
    assert json.loads(capsys.readouterr().out) == rows


def test_json_of_a_lone_surrogate_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    show([{"name": "\udcff"}], "json")
    assert json.loads(capsys.readouterr().out) == [{"name": "\udcff"}]


def test_empty_table_is_a_sentence_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show([], "table", empty="no topics")
    assert capsys.readouterr() == ("", "no topics\n")
    show([], "table")
    assert capsys.readouterr() == ("", "")


def test_control_characters_are_escaped() -> None:
    assert printable("a\x1b[31mb\nc\u202e") == "a\\x1b[31mb\\nc\\u202e"
    assert printable("grün ☃") == "grün ☃"


def test_times() -> None:
    assert iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert iso(0) == iso(-1) == ""


def test_messages_are_text_when_they_can_be() -> None:
    def row(body: bytes) -> dict[str, object]:
        return message_row(
            MessageExt(
                topic="t",
                body=body,
                properties={"TAGS": "x", "KEYS": "a b", "UNIQ_KEY": "U"},
                store_host="1.2.3.4:5",
                store_timestamp_ms=1,
            ),
            {"1.2.3.4:6": "broker-b"},
        )

    text, binary = row("grün".encode()), row(b"\xff")
    assert (text["body"], text["body_encoding"]) == ("grün", "utf-8")
    assert (binary["body"], binary["body_encoding"]) == ("/w==", "base64")
    assert (text["tag"], text["keys"], text["msg_id"]) == ("x", ["a", "b"], "U")
    assert text["broker"] == "1.2.3.4:5"
    known = MessageExt(store_host="1.2.3.4:6")
    assert message_row(known, {"1.2.3.4:6": "broker-b"})["broker"] == "broker-b"
    assert message_row(known, "x")["broker"] == "x"
