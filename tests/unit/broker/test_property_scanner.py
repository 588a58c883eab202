"""Scanned properties equal parsed ones; unusual properties are left to the parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.broker.property_templates import SPECIAL_PROPERTIES, PropertyScanner
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.proto.record.tags import tags_code

KEY = "7F00000100002A139A1F0000000000AB"


def encoded(**properties: str) -> bytes:
    return encode_properties(properties)


def test_scanner_ordinary_message_is_plain() -> None:
    scanned = PropertyScanner().scan(encoded(UNIQ_KEY=KEY, WAIT="true", TAGS="TagA"))

    assert scanned is not None
    assert scanned == (KEY, (True, True, "TagA", tags_code("TagA")), None)


def test_scanner_uniq_key_at_any_position() -> None:
    scanner = PropertyScanner()

    first = scanner.scan(b"WAIT\x01false\x02UNIQ_KEY\x01" + KEY.encode() + b"\x02a\x01b\x02")

    assert first == (KEY, (True, False, None, 0), None)


@pytest.mark.parametrize("name", sorted(SPECIAL_PROPERTIES))
def test_scanner_special_properties_are_not_plain(name: str) -> None:
    scanned = PropertyScanner().scan(encoded(UNIQ_KEY=KEY) + encoded(**{name: "1"}))

    assert scanned is not None
    assert not scanned[1].is_plain


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"WAIT\x01true\x02",
        b"UNIQ_KEY\x01",
        b"XUNIQ_KEY\x01abc\x02",
        b"UNIQ_KEY\x01\x02WAIT\x01true\x02",
        b"UNIQ_KEY\x01a\x02\xff\x01b\x02KEYS\x01k\x02",
    ],
)
def test_scanner_without_uniq_key_returns_none(properties: bytes) -> None:
    assert PropertyScanner().scan(properties) is None


def test_scanner_finds_any_uniq_key_and_keys() -> None:
    scanner = PropertyScanner()
    assert scanner.scan(b"UNIQ_KEY\x01a b\x02") == ("a b", (True, True, None, 0), None)
    keys = scanner.scan(encoded(KEYS="k1 k2", UNIQ_KEY=KEY, TAGS="t"))
    assert keys == (KEY, (True, True, "t", tags_code("t")), "k1 k2")


@pytest.mark.parametrize(
    "properties",
    [
        encoded(UNIQ_KEY=KEY, KEYS="k") + b"a\x01\x02",
        encoded(UNIQ_KEY=KEY, KEYS="k") + b"KEYS\x01again\x02",
        encoded(UNIQ_KEY=KEY)[:-1] + b"\x02WAIT\x01true",
        encoded(UNIQ_KEY=KEY) + b"no-separator\x02",
        encoded(UNIQ_KEY=KEY) + b"a\x01\x02",
    ],
)
def test_scanner_malformed_properties_return_none(properties: bytes) -> None:
    scanned = PropertyScanner().scan(properties)

    assert scanned is not None
    assert not scanned[1].is_plain


names = st.text(st.characters(codec="ascii", exclude_characters="\x00\x01\x02"), min_size=1)


@given(st.dictionaries(names, names, max_size=5), st.integers(0, 5))
def test_scanner_equals_parser(properties: dict[str, str], place: int) -> None:
    pairs = [pair for pair in properties.items() if pair[0] != "UNIQ_KEY"]
    pairs.insert(place, ("UNIQ_KEY", KEY))
    data = encode_properties(dict(pairs))
    scanned = PropertyScanner().scan(data)
    parsed = parse_properties(data)

    assert scanned is not None
    if scanned[1].is_plain:
        assert scanned[0] == parsed["UNIQ_KEY"]
        assert scanned[1].tags == parsed.get("TAGS")
        assert scanned[2] == parsed.get("KEYS")
        assert SPECIAL_PROPERTIES.isdisjoint(parsed)


def test_scanner_cache_is_bounded() -> None:
    scanner = PropertyScanner()
    for number in range(10_000):
        scanner.scan(encoded(UNIQ_KEY=KEY, n=str(number)))

    assert len(scanner._summaries._made) <= 2_048


@given(
    st.lists(st.sampled_from(["\x01", "\x02", "a", "%s", "KEYS", "UNIQ_KEY", "TAGS"]), max_size=9)
)
def test_scanner_detects_unusual_order(pieces: list[str]) -> None:
    """Also where the same names came in good order before."""
    scanner = PropertyScanner()
    for _ in range(2):
        scanner.scan(encoded(UNIQ_KEY=KEY, KEYS="k", a="b"))
    data = f"UNIQ_KEY\x01{KEY}\x02KEYS\x01{''.join(pieces)}\x02a\x01b\x02".encode()
    scanned, parsed = scanner.scan(data), parse_properties(data)
    assert scanned is not None
    assert scanned[0] == parsed["UNIQ_KEY"]
    assert scanned[2] == parsed.get("KEYS")
    is_regular = encode_properties(parsed) == data
    assert scanned[1].is_plain or not is_regular
