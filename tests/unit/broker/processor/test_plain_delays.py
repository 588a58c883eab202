"""Messages with a delay level on the compiled path: the same result as in Python."""

import random

import pytest

from rocketpy.broker.fast_path.compiled_path import is_compiled
from tests.sampling import sample
from tests.unit.broker.processor.delay_frames import LEVELS, UNIQ_KEY, some_delayed
from tests.unit.broker.processor.frames import ext_of, frame
from tests.unit.broker.processor.plain_send_kit import (
    assert_same,
    both_ways,
    cuts,
    some_send,
    space_of,
)

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="the compiled path is not installed, or switched off"
)
FIRST = frame(34, {"clientID": "x"}, b"{}", 0)
SCHEDULE_QUEUES = sorted({int(level) - 1 for level in LEVELS})


def delayed(number: int, level: str, pairs: str = "", **fields: str) -> bytes:
    text = f"UNIQ_KEY\x01{UNIQ_KEY.format(number)}\x02DELAY\x01{level}\x02{pairs}"
    return frame(310, ext_of("first", number % 4, text) | fields, b"x" * 100, number)


def warm() -> list[bytes]:
    """Put to every queue once: the compiled path uses known queues only."""
    sends = (frame(310, ext_of("first", n, f"UNIQ_KEY\x01K{n}\x02"), b"", n) for n in range(4))
    waiting = (delayed(10 + n, level) for n, level in enumerate(LEVELS))
    return [FIRST, b"".join(sends), b"".join(waiting)]


def segments_of(rng: random.Random, count: int = 120) -> list[list[bytes]]:
    """Delayed messages among others: from hardly odd to very."""
    segments = [warm()]
    for part, odd in enumerate((0.01, 0.1, 1.0)):
        frames = [
            rng.choice((some_send, some_delayed, some_delayed))(rng, part * count + n, odd)
            for n in range(count)
        ]
        segments.append([FIRST, *cuts(rng, b"".join(frames))])
    return segments


@pytest.mark.parametrize("seed", sample(range(3), 3))
def test_compiled_delays_any_sends_in_any_chunks_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    segments = segments_of(random.Random(seed))
    pure, compiled = both_ways(monkeypatch, segments)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 40_000


@pytest.mark.parametrize(
    "properties",
    [
        {
            "mappedFileSizeCommitLog": str(96 << 10),
            "mappedFileSizeConsumeQueue": "400",
            "maxHashSlotNum": "7",
            "maxIndexNum": "23",
        },
        {"messageIndexEnable": "false"},
        {"flushDiskType": "SYNC_FLUSH"},
        {"messageDelayLevel": "1s 5m"},
        {"messageDelayLevel": " ".join(f"{n}s" for n in range(1, 71))},
        {"timerWheelEnable": "false"},
    ],
)
def test_compiled_delays_stores_and_settings_equal_python(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    segments = segments_of(random.Random(10))
    pure, compiled = both_ways(monkeypatch, segments, properties)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 5_000


@pytest.mark.parametrize("seed", sample(range(20, 22), 2))
def test_compiled_delays_full_disk_equals_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    left_bytes = rng.randrange(40_000, 200_000)

    little_space = space_of(left_bytes)
    pure, compiled = both_ways(monkeypatch, segments_of(rng), None, little_space)
    assert_same(pure, compiled)


def test_compiled_delays_mixed_with_ordinary_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stored in one call, each counted and announced in the queue of its level."""
    sends = [frame(310, ext_of("first", n, f"UNIQ_KEY\x01P{n}\x02"), b"", n) for n in range(4)]
    mixed = b"".join(
        delayed(100 + n, level, "TAGS\x01a\x02KEYS\x01k\x02") + sends[n % 4]
        for n, level in enumerate(LEVELS)
    )
    pure, compiled = both_ways(monkeypatch, [warm(), [FIRST, mixed]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == len(mixed)
    waiting = {
        queue_id: following
        for topic, queue_id, following, _ in compiled.arrivals
        if topic == "SCHEDULE_TOPIC_XXXX"
    }
    counts = {queue_id: LEVELS.count(str(queue_id + 1)) for queue_id in SCHEDULE_QUEUES}
    assert waiting == {queue_id: 2 * count for queue_id, count in counts.items()}


@pytest.mark.parametrize("level", ["0", "-1", "19", "2147483648", "01", "+1", "x", " 1"])
def test_compiled_delays_ineligible_levels_use_python(
    monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """Invalid levels, unusual notations, and levels above the last one."""
    pure, compiled = both_ways(monkeypatch, [warm(), [FIRST, delayed(5, level)]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == 0


@pytest.mark.parametrize(
    "pairs",
    [
        "TIMER_DELAY_SEC\x015\x02",
        "REAL_TOPIC\x01second\x02",
        "REAL_QID\x013\x02",
        "TRAN_MSG\x01false\x02",
        "CLUSTER\x01mine\x02",
        "DELAY\x012\x02",
        f"long\x01{'v' * 32_650}\x02",
    ],
)
def test_compiled_delays_ineligible_properties_use_python(
    monkeypatch: pytest.MonkeyPatch, pairs: str
) -> None:
    pure, compiled = both_ways(monkeypatch, [warm(), [FIRST, delayed(5, "1", pairs)]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == 0


@pytest.mark.parametrize("fields", [{"j": "1"}, {"f": "4"}, {"f": "8"}, {"b": "%RETRY%group"}])
def test_compiled_delays_ineligible_sends_use_python(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]
) -> None:
    pure, compiled = both_ways(monkeypatch, [warm(), [FIRST, delayed(5, "1", **fields)]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == 0
