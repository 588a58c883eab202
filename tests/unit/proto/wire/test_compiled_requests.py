"""The compiled codec of sends draws and reads what the reference does, or leaves it alone."""

import random
import sys

import pytest

from rocketpy.proto.wire import compiled_requests as loading
from rocketpy.proto.wire.command import encode_command
from rocketpy.proto.wire.compiled_requests import CompiledSends, compiled_sends
from tests.unit.proto.sends_cases import (
    compare,
    compare_answers,
    in_full_width,
    odd_answer,
    plain_answer,
)


@pytest.fixture
def compiled() -> CompiledSends:
    found = compiled_sends()
    if found is None:
        pytest.skip("nothing is compiled here")
    return found


def test_any_bytes(compiled: CompiledSends) -> None:
    assert sum(compare(compiled, seed) for seed in range(400)) > 1_000_000


def test_plain_answers_are_taken_as_far_as_they_are_whole(compiled: CompiledSends) -> None:
    rng = random.Random(1)
    for _ in range(100):
        frames = [encode_command(plain_answer(rng)) for _ in range(3)]
        data = b"".join(frames)
        assert compare_answers(compiled, data) == len(data)
        assert compare_answers(compiled, data[:-1]) == len(data) - len(frames[-1])
        assert compare_answers(compiled, data, len(frames[0]) - 1) == 0


def test_numbers_are_read_in_any_width(compiled: CompiledSends) -> None:
    rng = random.Random(4)
    for _ in range(100):
        data = in_full_width(plain_answer(rng))
        assert compare_answers(compiled, data * 2) == 2 * len(data)
        code = data.index(b"\x97\xcd") + 2
        for other in (b"\x00\x01", b"\xff\xff"):
            assert not compare_answers(compiled, data[:code] + other + data[code + 2 :])
        opaque = data.index(b"\xd2") + 1
        assert not compare_answers(compiled, data[:opaque] + b"\xff" + data[opaque + 1 :])


def test_decode_stops_at_unusual_response(compiled: CompiledSends) -> None:
    rng = random.Random(2)
    plain = encode_command(plain_answer(rng))
    for _ in range(300):
        odd = encode_command(odd_answer(rng))
        taken = compare_answers(compiled, plain + odd + plain)
        assert taken in {len(plain), len(plain + odd + plain)}


def test_call_takes_a_bounded_number(compiled: CompiledSends) -> None:
    plain = encode_command(plain_answer(random.Random(3)))
    assert compare_answers(compiled, plain * 1_100) == 1_024 * len(plain)


def test_numbers_out_of_range_are_left_to_the_reference(compiled: CompiledSends) -> None:
    parts = (b"a", b"b", b"c", b"d")
    for opaque, time_ms in ((-1, 5), (1 << 31, 5), (5, -1)):
        assert compiled.frame(0, parts, opaque, time_ms, "text", b"") is None


def test_compiled_codec_is_disabled_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETPY_PURE", "1")
    assert compiled_sends() is None
    monkeypatch.delenv("ROCKETPY_PURE")
    monkeypatch.setitem(sys.modules, loading._MODULE, None)
    monkeypatch.setenv("ROCKETPY_COMPILED", "0")
    assert compiled_sends() is None
    monkeypatch.setenv("ROCKETPY_COMPILED", "1")
    with pytest.raises(ImportError):
        compiled_sends()
