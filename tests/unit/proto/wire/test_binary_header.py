import random
import struct
from typing import Any

import pytest

from rocketpy.errors import BadHeaderError
from rocketpy.proto.wire import binary_header
from rocketpy.proto.wire.binary_header import decode_binary_header, encode_binary_header
from rocketpy.proto.wire.json_header import MAX_EXT_FIELDS

EXAMPLE = bytes.fromhex(
    "000a0301ed000000050000000000000002686900000008000161000000016 2".replace(" ", "")
)
FIXED = struct.pack(">hbhiii", 10, 0, 493, 1, 0, 0)


def test_example_of_the_protocol():
    fields = (10, 3, 493, 5, 0, "hi", {"a": "b"})
    assert decode_binary_header(EXAMPLE) == fields
    assert encode_binary_header(*fields) == EXAMPLE


def test_java_cuts_the_code_to_16_bits():
    header = encode_binary_header(200_050, 0, 493, 0, 0, None, {})
    assert decode_binary_header(header)[0] == 3442


@pytest.mark.parametrize("language", [-1, 14, 100])
def test_unknown_languages(language):
    header = bytearray(encode_binary_header(1, 0, 0, 0, 0, None, {}))
    header[2] = language & 0xFF
    assert decode_binary_header(bytes(header))[1] == -1
    assert encode_binary_header(1, language, 0, 0, 0, None, {})[2] == 7


@pytest.mark.parametrize("size", range(len(EXAMPLE)))
def test_every_cut_is_refused(size):
    with pytest.raises(BadHeaderError):
        decode_binary_header(EXAMPLE[:size])


def ext(data: bytes, length: int | None = None) -> bytes:
    return FIXED + struct.pack(">i", len(data) if length is None else length) + data


@pytest.mark.parametrize(
    "header",
    [
        FIXED[:-4] + struct.pack(">ii", -1, 0),
        FIXED[:-4] + struct.pack(">ii", 1 << 30, 0),
        ext(b"", -1),
        ext(b"", 5),
        ext(b"\0"),
        ext(b"\0\x05a"),
        ext(b"\xff\xffaaaaaaaaa"),
        ext(b"\0\x01a\0\0\0\x09b"),
        ext(b"\0\x01a\xff\xff\xff\xff"),
        ext(b"\0\x01\xff\0\0\0\0"),
        FIXED[:-4] + struct.pack(">i", 1) + b"\xff" + bytes(4),
    ],
)
def test_lengths_and_texts_that_are_wrong(header):
    with pytest.raises(BadHeaderError):
        decode_binary_header(header)


def test_empty_names_and_values_are_kept():
    assert decode_binary_header(ext(b"\0\0\0\0\0\0"))[6] == {"": ""}


def test_bytes_after_the_ext_fields_are_ignored():
    assert decode_binary_header(ext(b"") + b"more")[6] == {}


def test_number_of_ext_fields_is_bounded():
    fields = {str(n): "" for n in range(MAX_EXT_FIELDS + 1)}
    with pytest.raises(BadHeaderError, match="more than"):
        decode_binary_header(encode_binary_header(1, 0, 0, 0, 0, None, fields))


def decoded(data: bytes) -> object:
    try:
        return decode_binary_header(data)
    except BadHeaderError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(6))
def test_headers_that_are_like_others_are_read_as_each_is_alone(monkeypatch, seed):
    """Few lengths, so that many are equal; some damaged, some with unusual text."""
    layouts: dict[int, Any] = {}
    monkeypatch.setattr(binary_header, "_layouts", layouts)
    rng = random.Random(seed)
    shapes = [
        [(rng.choice("abcd") * rng.randrange(3), rng.randrange(3)) for _ in range(rng.randrange(5))]
        for _ in range(6)
    ]
    known = 0
    for _ in range(1_500):
        fields = {}
        for name, size in rng.choice(shapes):
            fields[name] = "".join(rng.choices("xyz\0\xe9", (9, 9, 9, 1, 1), k=size))
        data = bytearray(encode_binary_header(1, 0, 493, 7, 0, None, fields))
        for _ in range(rng.choice((0, 0, 0, 1, 2))):
            data[rng.randrange(17, len(data))] = rng.choice((0, 1, 2, 97, 0xC3, 0xA9, 0xFF))
        together = decoded(bytes(data))
        known += layouts.get(len(data) - 21) is not None
        monkeypatch.setattr(binary_header, "_layouts", {})
        assert together == decoded(bytes(data))
        monkeypatch.setattr(binary_header, "_layouts", layouts)
    assert known > 500


def test_layout_goes_when_others_come_instead(monkeypatch):
    layouts: dict[int, Any] = {}
    monkeypatch.setattr(binary_header, "_layouts", layouts)
    first, second = ({"a": "1", "b": "22"}, {"a": "11", "b": "2"})
    for fields, names in ((first, (1, 2)), *[(second, (1, 2))] * 7, (second, (2, 1))):
        header = encode_binary_header(1, 0, 493, 7, 0, None, fields)
        assert decode_binary_header(header)[6] == fields
        (layout,) = layouts.values()
        parts = layout.unpack_from(header, 21)
        assert tuple(map(len, parts[1::2])) == (names if fields is second else (1, 2))


def test_layouts_are_bounded(monkeypatch):
    layouts: dict[int, Any] = {}
    monkeypatch.setattr(binary_header, "_layouts", layouts)
    for size in range(1_200):
        fields = {"a": "x" * size}
        header = encode_binary_header(1, 0, 493, 7, 0, None, fields)
        assert decode_binary_header(header)[6] == decode_binary_header(header)[6] == fields
        assert len(layouts) <= 256
    assert max(layouts) <= 1_024
