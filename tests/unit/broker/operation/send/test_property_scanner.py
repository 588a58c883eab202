"""A scanned message says the same as a parsed one, and anything unusual is left to the parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.broker.operation.send.property_scanner import SPECIAL_PROPERTIES, PropertyScanner
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.proto.record.tags import tags_code

KEY = "7F00000100002A139A1F0000000000AB"


def encoded(**properties: str) -> bytes:
    return encode_properties(properties)


def test_the_usual_message_is_plain() -> None:
    scanned = PropertyScanner().scan(encoded(UNIQ_KEY=KEY, WAIT="true", TAGS="TagA"))

    assert scanned is not None
    assert scanned == (KEY, (True, True, "TagA", tags_code("TagA")), None)


def test_the_id_may_stand_anywhere() -> None:
    scanner = PropertyScanner()

    first = scanner.scan(b"WAIT\x01false\x02UNIQ_KEY\x01" + KEY.encode() + b"\x02a\x01b\x02")

    assert first == (KEY, (True, False, None, 0), None)


@pytest.mark.parametrize("name", sorted(SPECIAL_PROPERTIES))
def test_special_properties_are_not_plain(name: str) -> None:
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
def test_nothing_is_known_without_an_id(properties: bytes) -> None:
    assert PropertyScanner().scan(properties) is None


def test_ids_and_keys_of_any_kind_are_found() -> None:
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
def test_malformed_properties_are_not_plain(properties: bytes) -> None:
    scanned = PropertyScanner().scan(properties)

    assert scanned is not None
    assert not scanned[1].is_plain


names = st.text(st.characters(codec="ascii", exclude_characters="\x00\x01\x02"), min_size=1)


@given(st.dictionaries(names, names, max_size=5), st.integers(0, 5))
def test_scanning_agrees_with_parsing(properties: dict[str, str], place: int) -> None:
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


def test_the_memory_is_bounded() -> None:
    scanner = PropertyScanner()
    for number in range(10_000):
        scanner.scan(encoded(UNIQ_KEY=KEY, n=str(number)))

    assert len(scanner._shapes) <= 4_096


def test_the_memory_of_names_is_bounded() -> None:
    scanner = PropertyScanner()
    for number in range(5_000):
        scanner.scan(encoded(UNIQ_KEY=KEY, KEYS="k") + encoded(**{f"n{number}": "v"}))

    assert len(scanner._names) <= 4_096


@given(
    st.lists(st.sampled_from(["\x01", "\x02", "a", "%s", "KEYS", "UNIQ_KEY", "TAGS"]), max_size=9)
)
def test_whatever_is_out_of_order_is_seen(pieces: list[str]) -> None:
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


pairs = st.sampled_from(
    [
        "UNIQ_KEY\x01{0}\x02",
        "UNIQ_KEY\x01{0}%s\x02",
        "KEYS\x01k{0}\x02",
        "KEYS\x01k {0}\x02",
        "TAGS\x01t{0}\x02",
        "TAGS\x01t\x02",
        "WAIT\x01false\x02",
        "DELAY\x011\x02",
        "%d\x01\u00e9{0}\x02",
        "n\x01\x02",
        "n\x01{0}",
        "\x02",
    ]
)


@given(st.lists(pairs, max_size=5), st.lists(st.lists(pairs, max_size=5), max_size=2))
def test_columns_are_what_each_message_alone_would_be(
    most: list[str], others: list[list[str]]
) -> None:
    each = [most, *others, most, most]
    run = ["".join(texts).format(number).encode() for number, texts in enumerate(each)]
    scanner = PropertyScanner()
    columns = scanner.scan_columns(run)
    if columns is None:
        return
    found = [scanner.scan(properties) for properties in run]
    assert None not in found
    alone = [one for one in found if one is not None]
    assert list(columns.uniq_keys) == [key for key, _, _ in alone]
    assert list(columns.keys) == [keys for _, _, keys in alone]
    assert list(columns.tags) == [shape.tags for _, shape, _ in alone]
    assert list(columns.tags_codes) == [shape.tags_code for _, shape, _ in alone]
    assert columns.waits == all(shape.waits for _, shape, _ in alone)
    assert {columns.is_plain} == {shape.is_plain for _, shape, _ in alone}


def test_usual_properties_are_taken_by_columns() -> None:
    run = [encoded(KEYS=f"k{n}", UNIQ_KEY=f"{KEY}{n}", TAGS=f"t{n}", a="%s") for n in range(3)]
    columns = PropertyScanner().scan_columns(run)

    assert columns is not None
    assert columns.is_plain
    assert columns.waits
    assert columns.keys == ["k0", "k1", "k2"]
    assert columns.tags == ["t0", "t1", "t2"]


def test_pairs_that_end_in_another_message_are_not_taken_by_columns() -> None:
    whole = encoded(UNIQ_KEY=KEY, KEYS="k")
    assert PropertyScanner().scan_columns([whole, whole + b"a", b"\x01b\x02" + whole]) is None
    assert PropertyScanner().scan_columns([whole[:-1], b"\x02" + whole]) is None
