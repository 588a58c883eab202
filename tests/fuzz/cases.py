"""Inputs of the fuzz target by seed: frames of every kind, unusual, damaged, and too many."""

import random
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rocketpy.testing.sim_cluster import SimCluster
from tests.unit.broker.processor.frames import binary_frame, ext_of, frame
from tests.unit.broker.processor.plain_pull_kit import some_pull
from tests.unit.broker.processor.plain_send_kit import TOPICS, UNIQ_KEY, cuts, some_send
from tests.unit.broker.processor.transaction_frames import answers_in, some_end

_HEARTBEAT = frame(34, {"clientID": "x"}, b"{}", 0)
_WIDE_QUEUES = 100
_ODD_INTS = (0, 1, 3, 4, 21, 0x7F, 0xFF, 0x100, 0xFFFF, 0x10000, 0xFFFFFF, 0x7FFFFFFF, -1, -(2**31))
_ODD_BYTES = (0, 1, 2, 32, 34, 44, 45, 48, 57, 58, 92, 117, 123, 125, 127, 128, 255)
_PROPERTIES = (
    "",
    "a\x011\x02",
    "a\x01\x02",
    "a\x012\x02b\x01x\x02",
    "b\x01y\x02a\x013",
    "ab\x011\x02",
)
_CONDITIONS = (
    "a > 1",
    "a IS NULL",
    "a = 2 AND b = 'x'",
    "b IN ('x', 'y')",
    "a < 0",
    "1 = 1",
    "a <",
)
_STORES: tuple[dict[str, str], ...] = (
    {},
    {},
    {},
    {
        "mappedFileSizeCommitLog": str(96 << 10),
        "mappedFileSizeConsumeQueue": "400",
        "maxHashSlotNum": "7",
        "maxIndexNum": "23",
    },
    {"messageIndexEnable": "false"},
    {"flushDiskType": "SYNC_FLUSH"},
    {"maxFrameBytes": "700"},
)


class Case(NamedTuple):
    """Case of a fuzz run: settings of a broker, its history, and the bytes of each connection."""

    segments: list[list[bytes]]
    properties: dict[str, str]
    prepare: Callable[[SimCluster], None]


def case_of(seed: int) -> Case:
    """Return the case of a seed; the same one always."""
    rng = random.Random(seed)
    segments = []
    for part in range(rng.choice((6, 12, 24))):
        make = rng.choice(
            (_odd_frames, _reframed, _reframed, _reframed, _damaged, _extreme, _pulls)
        )
        data = make(rng, part * 1_000)
        segments.append([_HEARTBEAT, _plain(part), *_cuts(rng, data)])
    left_bytes = rng.randrange(4_096, 400_000) if rng.random() < 0.1 else 0

    def prepare(cluster: SimCluster) -> None:
        cluster.create_topic("wide", _WIDE_QUEUES)
        for number in range(20):
            cluster.create_topic(_many(number))
        files = cluster.brokers[0].files
        if left_bytes:
            files.capacity_bytes = files.used_bytes + left_bytes

    return Case(segments, rng.choice(_STORES), prepare)


def ends_of(seed: int, responses: Sequence[bytes]) -> list[bytes]:
    """Segment of end-transaction requests, some damaged, among further sends."""
    rng = random.Random(seed)
    known = answers_in(responses)
    frames = []
    for number, answer in enumerate(rng.choices(known, k=60) if known else ()):
        frames.append(some_end(rng, answer, number, rng.choice((0.01, 0.5))))
        if rng.random() < 0.3:
            frames.append(some_send(rng, 500_000 + number, 0.05))
        if rng.random() < 0.2:
            frames[-1] = _with_right_lengths(rng, frames[-1])
    return [_HEARTBEAT, *_cuts(rng, b"".join(frames))]


def _many(number: int) -> str:
    """Topics of every length up to the limit of a name."""
    return f"t{number}_".ljust(1 + number * 6, "x")


def _plain(number: int, topic: str = TOPICS[0], properties: str = "", **fields: str) -> bytes:
    text = f"UNIQ_KEY\x01{UNIQ_KEY.format(number)}\x02{properties}"
    return frame(310, ext_of(topic, number % 4, text) | fields, b"x" * 20, number)


def _cuts(rng: random.Random, data: bytes) -> list[bytes]:
    return [data] if rng.random() < 0.3 else cuts(rng, data)


def _odd_frames(rng: random.Random, first: int) -> bytes:
    odd = rng.choice((0.01, 0.1, 0.5, 1.0))
    return b"".join(some_send(rng, first + n, odd) for n in range(rng.choice((1, 10, 60))))


def _reframed(rng: random.Random, first: int) -> bytes:
    """Damage within header and body, with right lengths again: it is read to its depths."""
    frames = []
    for number in range(first, first + rng.choice((2, 5, 20))):
        whole = some_send(rng, number, 0.05)
        frames.append(_with_right_lengths(rng, whole) if rng.random() < 0.5 else whole)
    return b"".join(frames)


def _pulls(rng: random.Random, first: int) -> bytes:
    """Pulls behind or among the sends that stored what they find, some of them damaged within."""
    count = rng.choice((5, 30))
    sends = [
        _plain(4 * number, properties=rng.choice(_PROPERTIES))
        for number in range(first, first + count)
    ]
    pulls = []
    odd, damaged = rng.choice((0.0, 0.1, 0.5)), rng.choice((0.0, 0.1, 0.5))
    for number in range(first + count, first + 2 * count):
        offset = str(rng.randrange(count))
        fields = {"topic": TOPICS[0], "queueOffset": offset, "sysFlag": "5", "subscription": "*"}
        fields["queueId"] = rng.choice("0000123")
        if rng.random() < 0.7:
            fields |= {"expressionType": "SQL92", "subscription": rng.choice(_CONDITIONS)}
        whole = some_pull(rng, number, odd, **fields)
        pulls.append(_with_right_lengths(rng, whole) if rng.random() < damaged else whole)
    frames = sends + pulls
    if rng.random() < 0.5:
        rng.shuffle(frames)
    return b"".join(frames)


def _with_right_lengths(rng: random.Random, whole: bytes) -> bytes:
    word = struct.unpack_from(">i", whole, 4)[0]
    kind, size = word >> 24, word & 0xFFFFFF
    header, body = _havoc(rng, whole[8 : 8 + size], rng.choice((1, 1, 2, 6))), whole[8 + size :]
    head = struct.pack(">ii", 4 + len(header) + len(body), kind << 24 | len(header))
    return head + header + body


def _damaged(rng: random.Random, first: int) -> bytes:
    """Damage anywhere, lengths of frames included; or noise."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.choice((1, 8, 40, 3_000)))
    data = b"".join(some_send(rng, first + n, 0.05) for n in range(8))
    return _havoc(rng, data, rng.choice((1, 1, 2, 5, 20)))


def _havoc(rng: random.Random, data: bytes, times: int) -> bytes:
    """Change some bytes, numbers and stretches."""
    found = bytearray(data)
    for _ in range(times):
        # The first bytes are those of a header, where damage does most.
        at = rng.randrange(min(len(found), rng.choice((8, 40, 500, len(found) + 1))) + 1)
        size = rng.choice((1, 2, 4, 30, 700))
        match rng.randrange(8):
            case 0 | 1:
                found[at : at + 1] = bytes((rng.choice(_ODD_BYTES),))
            case 2:
                found[at : at + 1] = bytes((rng.randrange(256),))
            case 3:
                found[at : at + 4] = struct.pack(">i", rng.choice(_ODD_INTS))
            case 4:
                del found[at : at + size]
            case 5:
                found[at:at] = found[at : at + size]
            case 6:
                found[at:at] = rng.randbytes(size)
            case _:
                digits = rng.choice((b"9" * 18, b"9" * 19, b"-0", b"00", b"2147483648", b""))
                found[at : at + 2] = digits
    return bytes(found)


def _extreme(rng: random.Random, first: int) -> bytes:
    """Plain but more than one call takes, or just as much: sends, keys, queues, topics, pairs."""
    match rng.randrange(8):
        case 0:
            return b"".join(_plain(first + n) for n in range(rng.choice((1_023, 1_024, 1_100))))
        case 1:
            keys = "KEYS\x01" + "k " * rng.choice((100, 4_000, 8_191, 8_192, 16_000)) + "\x02"
            return b"".join(_plain(first + n, properties=keys) for n in range(3))
        case 2:
            return b"".join(
                _plain(first + n, "wide", e=str(n)) for n in range(rng.choice((64, 65, 100)))
            )
        case 3:
            return b"".join(_plain(first + n, _many(n)) for n in range(20)) * 2
        case 4:
            count = rng.choice((62, 63, 64, 65))
            pairs = "".join(f"p{n}\x01v\x02" for n in range(count))
            return _plain(first, properties=pairs) * 2
        case 5:
            fields = {f"x{n}": "y" for n in range(rng.choice((50, 51, 52, 80)))}
            ext = ext_of(TOPICS[0], 0, f"UNIQ_KEY\x01{UNIQ_KEY.format(first)}\x02") | fields
            return frame(310, ext, b"", first) + binary_frame(310, ext, b"", first)
        case 6:
            size = rng.choice((32_000, 32_600, 32_700, 32_766, 32_767, 65_000, 70_000))
            return _plain(first, properties=f"long\x01{'v' * size}\x02") + _plain(first + 1)
        case _:
            body = rng.randbytes(rng.choice((65_535, 65_536, 70_000)))
            text = f"UNIQ_KEY\x01{UNIQ_KEY.format(first)}\x02"
            return binary_frame(310, ext_of(TOPICS[0], 1, text), body, first) + _plain(first)
