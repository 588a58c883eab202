"""Properties of many records, cut at once."""

import numpy as np
import pyarrow as pa
import pytest

from rocketpy.arrow.properties import Pairs


def cut(*texts: bytes) -> Pairs:
    ends = np.cumsum([len(each) for each in texts])
    starts = ends - [len(each) for each in texts]
    return Pairs(pa.py_buffer(b"".join(texts)), starts.astype(np.int64), ends.astype(np.int64))


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param((b"a\x011\x02b\x012\x02", b"a\x013\x02b\x014\x02"), id="one shape"),
        pytest.param((b"a\x011\x02b\x012\x02", b"b\x014\x02"), id="two shapes"),
        pytest.param((b"a\x011\x02b\x012\x02", b"b\x013\x02a\x014\x02"), id="another order"),
        pytest.param((b"a\x011", b"", b"a\x013\x02b\x014"), id="no last separator"),
        pytest.param((b"", b""), id="none"),
        pytest.param((), id="no record"),
    ],
)
def test_regular_texts_become_maps(texts: tuple[bytes, ...]) -> None:
    found = cut(*texts)

    pairs = [[p.partition(b"\1")[::2] for p in text.split(b"\2") if p] for text in texts]
    assert not found.odd.any()
    assert found.maps().to_pylist() == [
        [(name.decode(), value.decode()) for name, value in each] for each in pairs
    ]
    for name in ("a", "b", "c"):
        values, has = found.values_of(name)
        wanted = [dict(each).get(name.encode()) for each in pairs]
        assert has.tolist() == [value is not None for value in wanted]
        assert values.to_pylist() == [(value or b"").decode() for value in wanted]


@pytest.mark.parametrize(
    "odd",
    [
        b"a\x01\x02",
        b"\x01a\x02",
        b"a\x02",
        b"a",
        b"\x02",
        b"a\x01b\x01c\x02",
        b"a\x011\x02a\x012\x02",
        b"a\x01\xff\x02",
    ],
)
def test_a_text_out_of_shape_is_told_of(odd: bytes) -> None:
    plain = b"a\x011\x02"

    assert cut(plain, odd, plain).odd.tolist() == [False, True, False]
    assert cut(odd).odd.tolist() == [True]


def test_a_name_that_comes_twice_in_one_shape_of_all() -> None:
    assert cut(b"a\x011\x02a\x012\x02", b"a\x013\x02a\x014\x02").odd.all()
