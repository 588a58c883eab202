"""The cases are those of java.util.Properties.load."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.errors import ConfigError
from rocketpy.runtime.config.properties_file import (
    Property,
    format_properties,
    parse_properties,
    read_properties,
)


def pairs(text: str) -> list[tuple[str, str]]:
    return [(each.key, each.value) for each in parse_properties(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", [("a", "b")]),
        ("  a = b  ", [("a", "b")]),
        ("a:b", [("a", "b")]),
        ("a b c", [("a", "b c")]),
        ("a", [("a", "")]),
        ("a=", [("a", "")]),
        ("a==b", [("a", "=b")]),
        ("a = = b", [("a", "= b")]),
        ("# x\n! y\n\n   \na=1", [("a", "1")]),
        ("a=1#not a comment", [("a", "1#not a comment")]),
        ("a=1\r\nb=2\rc=3\n", [("a", "1"), ("b", "2"), ("c", "3")]),
        ("a=1,\\\n   2,\\\n   3\nb=4", [("a", "1,2,3"), ("b", "4")]),
        ("a=1\\\\\nb=2", [("a", "1\\"), ("b", "2")]),
        ("a=1\\", [("a", "1")]),
        ("a=1\\\n# still the value", [("a", "1# still the value")]),
        ("a\\=b=c", [("a=b", "c")]),
        ("a\\ b=c", [("a b", "c")]),
        ("a=x\\ty\\nz\\u0041\\q", [("a", "x\ty\nzAq")]),
        ("a=1\na=2", [("a", "1"), ("a", "2")]),
        ("\ufeffa=1", [("a", "1")]),
        ("path=C:\\\\temp", [("path", "C:\\temp")]),
        ("a\\ b\\=c=\\u00e9\\ud83d\\ude80", [("a b=c", "é🚀")]),
        ("half=\\ud83d", [("half", "\ufffd")]),
        ("delay=1s 5s 10s", [("delay", "1s 5s 10s")]),
    ],
)
def test_reads_as_java_does(text: str, expected: list[tuple[str, str]]) -> None:
    assert pairs(text) == expected


def test_whole_body_becomes_a_table() -> None:
    assert read_properties(b"a=1\nb=2\na=3") == {"a": "3", "b": "2"}
    with pytest.raises(ConfigError, match=r"x\.conf: .*utf-8"):
        read_properties(b"a=\xff", source="x.conf")


def test_lines_are_counted_from_one_and_name_where_a_property_begins() -> None:
    text = "# head\n\na=1\nb=2\\\n  3\nc=4"
    assert parse_properties(text) == [
        Property("a", "1", 3),
        Property("b", "23", 4),
        Property("c", "4", 6),
    ]


@pytest.mark.parametrize("text", ["k=\\u12", "k=\\u12g4", "k=\\u"])
def test_broken_escape_is_an_error_with_its_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"x\.conf:2: k") as caught:
        parse_properties("\n" + text, source="x.conf")
    assert caught.value.line == 2


keys = st.from_regex(r"[a-zA-Z][a-zA-Z0-9.]{0,20}", fullmatch=True)
values = st.text(
    st.characters(blacklist_categories=("Cs", "Cc"), whitelist_characters="\n\r\\")
).map(str.strip)


@given(st.dictionaries(keys, values))
def test_format_properties_round_trip(properties: dict[str, str]) -> None:
    assert dict(pairs(format_properties(properties))) == properties


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse_properties(text)
    except ConfigError:
        return
    assert all(isinstance(each.key, str) for each in found)


def test_written_lines_are_sorted() -> None:
    assert format_properties({"b": "2", "a": "1"}) == "a=1\nb=2\n"
