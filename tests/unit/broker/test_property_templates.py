"""Cached property templates give the same bytes as parsing and encoding."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketpy.broker.property_templates import (
    HOLE,
    PropertyTemplate,
    PropertyTemplates,
)
from rocketpy.broker.system_topics.system_writer import copy_of, copy_of_raw
from rocketpy.proto.record.message import MessageExt, decode_message, encode_message
from rocketpy.proto.record.properties import encode_properties, parse_properties
from rocketpy.proto.record.raw_record import split_record
from rocketpy.proto.record.tags import tags_code

ID = "7F00000100002A139A1F00000000"
OTHER_ID = "7F00000100002A139A1F0000ABCD"


def _templates() -> PropertyTemplates[PropertyTemplate]:
    return PropertyTemplates(lambda properties, _place: PropertyTemplate.of(properties))


def _expected(properties: bytes) -> tuple[bytes, str | None]:
    parsed = parse_properties(properties)
    return encode_properties(parsed), parsed.get("UNIQ_KEY")


REGULAR = (
    f"UNIQ_KEY\x01{ID}\x02WAIT\x01true\x02",
    f"TRAN_MSG\x01true\x02UNIQ_KEY\x01{ID}\x02PGROUP\x01p\x02__transactionId__\x01{ID}\x02",
    f"TAGS\x01ä\x02UNIQ_KEY\x01{ID}\x02KEYS\x01a b\x02x\x01y\x01z\x02",
)
IRREGULAR = (
    "",
    "WAIT\x01true\x02",
    f"UNIQ_KEY\x01{ID}",  # no end: clients before 5.0
    f"XUNIQ_KEY\x01{ID}\x02",
    f"x\x01UNIQ_KEY\x01{ID}\x02",
    f"XUNIQ_KEY\x01{OTHER_ID}\x02UNIQ_KEY\x01{ID}\x02",
    f"UNIQ_KEY\x01{OTHER_ID}\x02UNIQ_KEY\x01{ID}\x02",  # the last one counts
    f"UNIQ_KEY\x01{ID}\x02KEYS\x01{ID}\x02",
    f"UNIQ_KEY\x01{ID}\x02TAGS\x01{ID}\x02",
    f"UNIQ_KEY\x01{ID}\x02x{ID}\x01y\x02",
    f"UNIQ_KEY\x01{ID}\x02__transactionId__\x01x{ID}\x02",
    f"UNIQ_KEY\x01{ID}\x02empty\x01\x02",
    f"UNIQ_KEY\x01{ID}\x02\x02",
    f"UNIQ_KEY\x01{ID}\x02a\x01\0\x02",
    "UNIQ_KEY\x01\0\x02",
    "UNIQ_KEY\x01short\x02",
    f"UNIQ_KEY\x01{ID * 3}\x02",
    f"UNIQ_KEY\x01{ID[:-1]}-\x02",
    f"UNIQ_KEY\x01{ID}\x02x\x01{'y' * 2_000}\x02",
)


@pytest.mark.parametrize("text", [*REGULAR, *IRREGULAR])
def test_templates_equal_parsing_and_encoding(text: str) -> None:
    templates = _templates()
    for _ in range(2):  # learned, and remembered
        for own in (ID, OTHER_ID):
            properties = text.replace(ID, own).encode()
            uniq_key, template = templates.of(properties)
            assert template.fill(uniq_key) == _expected(properties)


@pytest.mark.parametrize(("texts", "is_found"), [(REGULAR, True), (IRREGULAR, False)])
def test_templates_irregular_properties_are_not_cached(
    texts: tuple[str, ...], is_found: bool
) -> None:
    templates = _templates()
    for text in texts:
        assert (templates.find(text.encode()) is not None) == is_found, text


def test_templates_invalid_utf8_is_not_cached() -> None:
    templates = _templates()
    properties = f"UNIQ_KEY\x01{ID}\x02x\x01".encode() + b"\xff\x02"
    assert templates.find(properties) is None
    uniq_key, template = templates.of(properties)
    assert template.fill(uniq_key) == _expected(properties)


_PIECES = ["UNIQ_KEY", "__transactionId__", "TAGS", "\x01", "\x02", ID, OTHER_ID, HOLE, "a", "ü"]


@given(st.lists(st.lists(st.sampled_from(_PIECES), max_size=12).map("".join), max_size=4))
def test_templates_any_bytes_equal_parsing(texts: list[str]) -> None:
    templates = _templates()
    for text in texts:
        for own in (ID, OTHER_ID):
            properties = text.replace(ID, own).encode()
            uniq_key, template = templates.of(properties)
            assert template.fill(uniq_key) == _expected(properties)
            tags = parse_properties(properties).get("TAGS")
            assert (template.tags, template.tags_code) == (tags, tags_code(tags) if tags else 0)


def test_templates_are_made_once_until_cleared() -> None:
    made = []

    def make(properties: dict[str, str], place: object) -> int:
        made.append((properties["UNIQ_KEY"], place))
        return len(made)

    templates = PropertyTemplates(make)
    first, second = (f"UNIQ_KEY\x01{own}\x02".encode() for own in (ID, OTHER_ID))
    assert templates.find(first, 1) == (ID.encode(), 1)
    assert templates.find(second, 1) == (OTHER_ID.encode(), 1)
    assert templates.find(first, 2) == (ID.encode(), 2)
    templates.clear()
    assert templates.find(first, 1) == (ID.encode(), 3)
    assert made == [(HOLE, 1), (HOLE, 2), (HOLE, 1)]


def test_templates_cache_is_bounded() -> None:
    templates = _templates()
    for number in range(5_000):
        templates.find(f"UNIQ_KEY\x01{ID}\x02x\x01{number}\x02".encode())
    assert len(templates._made) <= 2_048


def test_raw_copy_equals_copy_of_decoded_message() -> None:
    for hosts in (("1.2.3.4:5", "6.7.8.9:10"), ("[::1]:5", "6.7.8.9:10"), ("[::1]:5", "[::2]:6")):
        stored = MessageExt(
            "S", 3, 7, 11, 900, 0x301, 1_234, hosts[0], 5_678, hosts[1], 2, 77, b"body",
            {"TAGS": "a", "UNIQ_KEY": ID, "KEYS": "k"},
        )  # fmt: skip
        record = encode_message(stored)
        raw = split_record(record)
        uniq_key, template = _templates().of(raw.properties)
        decoded = decode_message(record, inflate=False)
        assert copy_of_raw(raw, "T", 4, template, uniq_key) == copy_of(
            decoded, "T", 4, decoded.properties
        )
