import pytest

from rocketpy.proto.record import properties
from rocketpy.proto.record.properties import encode_properties, parse_properties, properties_text


@pytest.mark.parametrize(
    ("stored", "parsed"),
    [
        (b"", {}),
        (b"a\x011\x02", {"a": "1"}),
        (b"a\x011", {"a": "1"}),
        (b"a\x01\x02b\x012\x02", {"b": "2"}),
        (b"\x011\x02", {}),
        (b"novalue\x02", {}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"\x02\x02\x01\x02", {}),
        (b"a\x01\xff\x02", {"a": "\ufffd"}),
    ],
)
def test_parse(stored, parsed):
    assert parse_properties(stored) == parse_properties(memoryview(stored)) == parsed


def test_encode():
    assert properties_text({"a": "1", "é": "ü"}) == "a\x011\x02é\x01ü\x02"
    assert encode_properties({"é": "ü"}) == "é\x01ü\x02".encode()
    assert encode_properties({}) == b""


def test_names_of_the_system_are_reserved():
    constants = {value for name, value in vars(properties).items() if name.startswith("PROPERTY_")}
    assert "TAGS" in constants
    assert constants <= properties.SYSTEM_PROPERTIES
