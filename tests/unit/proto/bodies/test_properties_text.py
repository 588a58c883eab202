import pytest

from rocketpy.proto.bodies.properties_text import decode_properties_text, encode_properties_text


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a=1\nb = 2\r\nc:3\rd 4\n", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("# comment\n! comment\n  \n\ta=1 ", {"a": "1 "}),
        ("a=1\\\n   2\\\n3\nb=4", {"a": "123", "b": "4"}),
        ("path=C\\:\\\\x\\ty", {"path": "C:\\x\ty"}),
        ("a\\ b\\=c=\\u00e9\\ud83d\\ude80", {"a b=c": "é🚀"}),
        ("half=\\ud83d", {"half": "\ufffd"}),
        ("a=1\na=2", {"a": "2"}),
        ("key", {"key": ""}),
        ("key=", {"key": ""}),
        ("a=b=c", {"a": "b=c"}),
        ("a=1\\", {"a": "1"}),
        ("u=\\u12", {"u": "u12"}),
    ],
)
def test_decode(text, properties):
    assert decode_properties_text(text) == properties
    assert decode_properties_text(text.encode()) == properties


def test_encode_is_sorted():
    assert encode_properties_text({"b": "2", "a": "1"}) == b"a=1\nb=2\n"


def test_bytes_that_are_not_utf8():
    assert decode_properties_text(b"a=\xff") == {"a": "\ufffd"}
