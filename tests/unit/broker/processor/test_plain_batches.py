"""Batches on the compiled path: the same responses and files as in Python."""

import random
import struct
from collections.abc import Callable

import pytest

from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.proto.record.message import BatchItem, encode_batch
from rocketpy.proto.wire.frame import CommandReader
from tests.sampling import sample
from tests.unit.broker.processor.frames import binary_frame, ext_of, frame, msgpack_frame
from tests.unit.broker.processor.plain_send_kit import (
    UNIQ_KEY,
    assert_same,
    batch_body,
    batch_fields,
    both_ways,
    cuts,
    outcome_of,
    space_of,
)

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="the compiled path is not installed, or switched off"
)
FIRST = frame(34, {"clientID": "x"}, b"{}", 0)
WRITERS = (frame, binary_frame, msgpack_frame)


def properties_of(number: int, tag: str = "") -> bytes:
    return f"UNIQ_KEY\x01{UNIQ_KEY.format(number)}\x02{tag}".encode()


def items(number: int, count: int = 32, size: int = 40, tags: tuple[str, ...] = ("",)) -> bytes:
    """The body of a batch."""
    return encode_batch(
        BatchItem(n, b"x" * size, properties_of(number * 10_000 + n, tags[n % len(tags)]))
        for n in range(count)
    )


def batch(number: int, body: bytes, queue_id: int = 0, **fields: str) -> bytes:
    ext = ext_of("first", queue_id, "WAIT\x01true\x02", m="true") | fields
    return WRITERS[number % 3](320, ext, body, number)


def without(name: str, number: int = 1) -> bytes:
    ext = ext_of("first", 0, "WAIT\x01true\x02", m="true")
    del ext[name]
    return frame(320, ext, items(number, 2), number)


def random_batches(rng: random.Random, count: int, odd: float) -> bytes:
    frames = []
    for number in range(count):
        ext = ext_of("first", rng.randrange(4), "", m="true") | batch_fields(rng, odd)
        body = batch_body(rng, number, odd)
        frames.append(rng.choice(WRITERS)(rng.choice((310, 320)), ext, body, number))
    return b"".join(frames)


@pytest.mark.parametrize("seed", sample(range(4), 2))
def test_compiled_batches_any_batches_in_any_chunks_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    segments = [[FIRST, *cuts(rng, random_batches(rng, 60, odd))] for odd in (0.001, 0.1, 0.5, 1.0)]
    pure, compiled = both_ways(monkeypatch, segments)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 30_000


@pytest.mark.parametrize("seed", sample(range(10, 13), 2))
def test_compiled_batches_many_small_files_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A batch goes into one log file as a whole, and so do its keys into an index file."""
    rng = random.Random(seed)
    properties = {
        "mappedFileSizeCommitLog": str(32 << 10),
        "mappedFileSizeConsumeQueue": "400",
        "maxHashSlotNum": "7",
        "maxIndexNum": "41",
    }
    segments = [[FIRST, *cuts(rng, random_batches(rng, 80, odd))] for odd in (0.001, 0.3)]
    pure, compiled = both_ways(monkeypatch, segments, properties)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 1_000
    assert sum("/commitlog/" in path for path in pure.files) > 5


@pytest.mark.parametrize("seed", sample(range(20, 24), 2))
def test_compiled_batches_full_disk_equals_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    left_bytes = rng.randrange(4_096, 150_000)

    little_space = space_of(left_bytes)
    segments = [[FIRST, *cuts(rng, random_batches(rng, 200, 0.01))]]
    pure, compiled = both_ways(monkeypatch, segments, None, little_space)
    assert_same(pure, compiled)
    assert pure.store[2] > 10, "batches that were refused"


@pytest.mark.parametrize("seed", sample(range(30, 34), 2))
def test_compiled_batches_damaged_batches_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Damage in the lengths of a batch refuses it as a whole."""
    rng = random.Random(seed)
    segments = []
    for number in range(60):
        body = bytearray(batch_body(rng, number, 0.01))
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.choice((*range(24), *range(len(body))))
            if at < len(body):
                body[at] = rng.choice((0, 1, 2, 22, 127, 128, 255, rng.randrange(256)))
        frames = [batch(number, items(1_000 + number, 3)), batch(number, bytes(body))]
        segments.append([FIRST, *frames, batch(number, items(2_000 + number, 3))])
    pure, compiled = both_ways(monkeypatch, segments)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 10_000


@pytest.mark.parametrize("write", WRITERS)
def test_compiled_batches_serve_all_of_a_read(
    monkeypatch: pytest.MonkeyPatch, write: Callable[..., bytes]
) -> None:
    """Only the first message of a queue, and of an index file, is for Python."""
    ext = ext_of("first", 0, "WAIT\x01true\x02", m="true")
    first = write(320, ext, items(0, 2), 7)
    rest = b"".join(
        write(320, ext, items(n, 32, tags=("", "TAGS\x01a\x02", "KEYS\x01k1 k2\x02")), n)
        for n in range(1, 9)
    )
    pure, compiled = both_ways(monkeypatch, [[FIRST, first, rest]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == len(rest)
    assert pure.store[0] == 2 + 8 * 32
    last = next(each for each in CommandReader().feed(compiled.responses[0]) if each.opaque == 8)
    assert last.ext_fields["msgId"].count(",") == 31
    assert last.ext_fields["transactionId"] == UNIQ_KEY.format(80_000)
    assert len({arrival[3] for arrival in pure.arrivals}) == 2


@pytest.mark.parametrize("text", ["TRUE", "True", "tRuE", "FALSE", "", "yes", "true "])
def test_compiled_batches_any_spelling_of_batch_flag(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """The flag is read like a Java boolean; with code 310 it alone marks a batch."""
    ext = ext_of("first", 0, "WAIT\x01true\x02", m=text)
    sent = [WRITERS[n % 3](310, ext, items(n, 2), n) for n in range(3)]
    pure, compiled = both_ways(monkeypatch, [[FIRST, batch(9, items(9, 1)), *sent]])
    assert_same(pure, compiled)
    stored = 2 if text.lower() == "true" else 1
    if text.lower() != "true":  # one message, which takes the long way for want of an id
        assert pure.store[0] == 1 + 3
    assert pure.store[0] == 1 + 3 * stored


def test_compiled_batches_response_has_id_of_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [batch(n, items(n, 2), i="UNIQ_KEY\x01Own1\x02") for n in range(6)]
    pure, compiled = both_ways(monkeypatch, [[FIRST, sent[0], b"".join(sent[1:])]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == sum(map(len, sent[1:]))
    ids = {each.ext_fields.get("transactionId") for each in CommandReader().feed(pure.responses[0])}
    assert ids == {None, "Own1"}


def test_compiled_batches_more_messages_than_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    properties = {
        "mappedFileSizeCommitLog": str(8 << 20),
        "mappedFileSizeConsumeQueue": "400000",
        "maxIndexNum": "20000",
        "maxMessageSize": str(1 << 20),
    }
    sent = [batch(n, items(n, 1_500, 1)) for n in range(4)]
    pure, compiled = both_ways(monkeypatch, [[FIRST, sent[0], b"".join(sent[1:])]], properties)
    assert_same(pure, compiled)
    assert compiled.served_bytes == len(sent[1]) + len(sent[2])
    too_large = batch(9, items(9, 5_000, 1))
    pure, compiled = both_ways(monkeypatch, [[FIRST, sent[0], too_large]], properties)
    assert_same(pure, compiled)
    assert compiled.served_bytes == 0
    assert pure.store[0] == 6_500


def nested(body: bytes, size: int) -> bytes:
    """A batch's body, the first message's length said to be another."""
    return struct.pack(">i", size) + body[4:]


NOT_PLAIN = {
    "a delay": batch(1, encode_batch([BatchItem(0, b"", properties_of(1) + b"DELAY\x011\x02")])),
    "no id": batch(1, encode_batch([BatchItem(0, b"x", b"")])),
    "an id with a blank": batch(1, encode_batch([BatchItem(0, b"x", b"UNIQ_KEY\x01a b\x02")])),
    "no text": batch(1, encode_batch([BatchItem(0, b"x", properties_of(1) + b"a\x01\xff\x02")])),
    "a negative length": batch(1, nested(items(1, 2), -1)),
    "a great length": batch(1, nested(items(1, 2), 0x7FFFFFFF)),
    "a length of nothing": batch(1, nested(items(1, 2), 0)),
    "bytes behind it": batch(1, items(1, 2) + b"\0" * 5),
    "no message": batch(1, b""),
    "a transaction": batch(1, items(1, 2), f="4"),
    "its own delay": batch(1, items(1, 2), i="DELAY\x011\x02"),
    "no group": without("a"),
    "no template": without("c"),
    "no number of queues": without("d"),
    "tries that are no number": batch(1, items(1, 2), l="x"),
    "a retry topic": batch(1, items(1, 2), b="%RETRY%group"),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_compiled_batches_ineligible_batches_use_python(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is judged as a whole before anything of it is stored."""
    sent = [batch(n, items(n, 2)) for n in range(4)]
    reads = [FIRST, sent[0], sent[1] + NOT_PLAIN[name] + sent[2], sent[3]]
    pure, compiled = both_ways(monkeypatch, [reads])
    assert_same(pure, compiled)
    assert compiled.served_bytes == sum(map(len, sent[1:]))


def test_compiled_batches_without_module_equal_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETPY_PURE", "1")
    outcome = outcome_of([[FIRST, *(batch(n, items(n, 32)) for n in range(3))]])
    assert outcome.served_bytes == 0
    assert outcome.store[0] == 96
