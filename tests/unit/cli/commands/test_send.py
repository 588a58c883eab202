"""Lines of standard input are taken apart; what cannot be is counted, not guessed."""

import pytest

from rocketpy.cli.commands.send import _Lines
from rocketpy.cli.main import command
from rocketpy.client.messages.send_options import SendOptions
from rocketpy.terminal.error_exit import run_command


def test_line_without_separators_is_a_body() -> None:
    options: SendOptions = {"tag": "a"}
    lines = _Lines(None, None, options)
    assert lines._parsed(b"a|b:c") == (b"a|b:c", options)
    assert lines._parsed(b" ") is None
    assert (lines._empty, lines._malformed) == (1, 0)


def test_tag_and_key_stand_before_the_body_in_this_order() -> None:
    lines = _Lines("|", "::", {"tag": "instead", "headers": {"h": "1"}})
    assert lines._parsed(b"paid|o1::a|b::c") == (
        b"a|b::c",
        {"tag": "paid", "keys": ["o1"], "headers": {"h": "1"}},
    )
    for malformed in (b"paid", b"paid|o1", b"paid|o1::"):
        assert lines._parsed(malformed) is None
    assert (lines._empty, lines._malformed) == (0, 3)


def test_tag_or_key_that_is_not_utf_8_is_skipped_and_counted() -> None:
    lines = _Lines("|", ":", {})
    assert lines._parsed(b"p\xe9|o1:body") is None
    assert lines._parsed(b"paid|o\xff1:body") is None
    assert lines._parsed(b"paid|o1:b\xe9dy") == (b"b\xe9dy", {"tag": "paid", "keys": ["o1"]})
    assert (lines._malformed, lines._undecoded) == (0, 2)


def test_lines_with_key_that_cannot_be_stored_are_skipped_and_counted() -> None:
    lines = _Lines(None, ":", {})
    assert lines._parsed(b"k 1:body") is None
    assert lines._parsed(b"k\x011:body") is None
    assert lines._parsed(b"k1:a body") == (b"a body", {"keys": ["k1"]})
    assert lines._undecoded == 2


@pytest.mark.parametrize(
    "wrong", [["t", "x", "-K", ":"], ["t", "x", "-T", "|"], ["t", "x", "--lines"],
              ["t", "--lines", "--count", "2"], ["t", "x", "--header", "none"],
              ["t", "x", "--header", "a=b", "--header", "a=c"],
              ["t", "x", "--order-key", "k", "--queue", "1"],
              ["t", "x", "--delay", "1", "--delay-level", "2"],
              ["t", "--lines", "-K", ":", "--key", "k"], ["t", "--lines", "-T", "|", "--tag", "a"]],
)  # fmt: skip
def test_options_that_contradict_are_usage_errors(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run_command(command, "rocketpy", ["send", *wrong])
    assert ended.value.code == 2
