"""Half messages and commits on the compiled path: the same bytes as in Python."""

import random
from collections.abc import Callable, Sequence

import pytest

from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.testing.sim_cluster import SimCluster
from tests.sampling import sample
from tests.unit.broker.processor.frames import ext_of, frame
from tests.unit.broker.processor.plain_send_kit import (
    Outcome,
    assert_same,
    both_ways,
    cuts,
    outcome_of,
    pure_python,
    some_send,
    space_of,
)
from tests.unit.broker.processor.transaction_frames import (
    answers_in,
    end_ext,
    half_properties,
    some_end,
    some_half,
)

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="the compiled path is not installed, or switched off"
)
FIRST = frame(34, {"clientID": "x"}, b"{}", 0)
Prepare = Callable[[SimCluster], None]


def unprepared(_cluster: SimCluster) -> None:
    """Leave the broker as it is."""


def half(number: int, **fields: str) -> bytes:
    text = half_properties(random.Random(number), number)
    ext = ext_of("first", number % 4, text) | {"f": "4"} | fields
    return frame(310, ext, b"x" * 100, number)


def end(answer: RemotingCommand, **fields: str) -> bytes:
    return frame(37, end_ext(answer) | fields, b"", 0, flag=2)


def answers_to_halves(monkeypatch: pytest.MonkeyPatch) -> list[RemotingCommand]:
    """Responses to the halves 5, 6 and 7 of `warm`."""
    answers = answers_in(pure_outcome(monkeypatch, [warm()]).responses)
    return [each for number in (5, 6, 7) for each in answers if each.opaque == number]


def pure_outcome(
    monkeypatch: pytest.MonkeyPatch,
    segments: Sequence[Sequence[bytes]],
    properties: dict[str, str] | None = None,
    prepare: Prepare = unprepared,
) -> Outcome:
    """Responses of the Python path, which determine the possible end requests."""
    with pure_python(monkeypatch):
        return outcome_of(segments, properties, prepare)


def with_ends(
    monkeypatch: pytest.MonkeyPatch,
    rng: random.Random,
    properties: dict[str, str] | None = None,
    prepare: Prepare = unprepared,
) -> list[list[bytes]]:
    """Halves among sends, then their ends among more of both: from hardly odd to very."""
    segments: list[list[bytes]] = []
    for part, odd in enumerate((0.01, 0.1, 1.0)):
        sends = [some_send, some_half, some_half]
        frames = [rng.choice(sends)(rng, part * 200 + n, odd) for n in range(100)]
        segments.append([FIRST, *cuts(rng, b"".join(frames))])
        known = answers_in(pure_outcome(monkeypatch, segments, properties, prepare).responses)
        frames = []
        for number, answer in enumerate(rng.choices(known, k=100) if known else ()):
            frames.append(some_end(rng, answer, number, odd))
            if rng.random() < 0.5:
                frames.append(rng.choice(sends)(rng, part * 200 + 100 + number, odd))
        segments.append([FIRST, *cuts(rng, b"".join(frames))])
    return segments


@pytest.mark.parametrize("seed", sample(range(3), 3))
@pytest.mark.parametrize("op_bytes", ["4096", "40"])
def test_compiled_transactions_any_ends_in_any_chunks_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int, op_bytes: str
) -> None:
    properties = {"transactionOpMsgMaxSize": op_bytes}
    segments = with_ends(monkeypatch, random.Random(seed), properties)
    pure, compiled = both_ways(monkeypatch, segments, properties)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 40_000
    states = compiled.transactions["states"]
    assert isinstance(states, bytes)
    assert states.count(1) > 50, "halves that were committed"
    assert compiled.transactions["unsettled"] == []


@pytest.mark.parametrize("seed", range(10, 11))
@pytest.mark.parametrize(
    "properties",
    [
        {
            "mappedFileSizeCommitLog": str(96 << 10),
            "mappedFileSizeConsumeQueue": "400",
            "maxHashSlotNum": "7",
            "maxIndexNum": "23",
            "transactionOpMsgMaxSize": "100",
        },
        {"messageIndexEnable": "false"},
        {"flushDiskType": "SYNC_FLUSH"},
        {"rejectTransactionMessage": "true"},
        {"endTransactionThreadPoolNums": "2"},
    ],
)
def test_compiled_transactions_stores_and_settings_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int, properties: dict[str, str]
) -> None:
    segments = with_ends(monkeypatch, random.Random(seed), properties)
    pure, compiled = both_ways(monkeypatch, segments, properties)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 5_000


@pytest.mark.parametrize("seed", range(20, 22))
def test_compiled_transactions_full_disk_equals_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A claimed half that was not stored is open again."""
    rng = random.Random(seed)
    left_bytes = rng.randrange(40_000, 200_000)

    little_space = space_of(left_bytes)
    segments = with_ends(monkeypatch, rng, None, little_space)
    pure, compiled = both_ways(monkeypatch, segments, None, little_space)
    assert_same(pure, compiled)
    assert compiled.transactions["unsettled"] == []


def warm() -> list[bytes]:
    """Put to every queue once: the compiled path uses known queues only."""
    sends = b"".join(
        frame(310, ext_of("first", n, f"UNIQ_KEY\x01K{n}\x02"), b"", n) for n in range(4)
    )
    return [FIRST, sends + half(4), half(5) + half(6) + half(7)]


def test_compiled_transactions_of_a_read_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends and halves in turn, as many callers on one connection have them."""
    known = answers_to_halves(monkeypatch)
    mixed = b"".join(end(answer) + half(10 + n) for n, answer in enumerate(known))
    pure, compiled = both_ways(monkeypatch, [warm(), [FIRST, mixed]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == len(mixed) + sum(map(len, warm()[2:]))
    assert compiled.transactions["states"] == b"\0\1\1\1"
    assert compiled.transactions["open"] == {
        "first": 4,
        "second": 0,
        "%RETRY%group": 0,
        "multi": 0,
    }


def test_compiled_transactions_repeated_end_decides_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = answers_to_halves(monkeypatch)
    twice = end(known[0]) + end(known[1]) + end(known[0]) + half(9) + end(known[2])
    pure, compiled = both_ways(monkeypatch, [warm(), [FIRST, twice]])
    assert_same(pure, compiled)
    assert compiled.store[0] == 8 + 4, "the second commit of one half stores nothing"


@pytest.mark.parametrize(
    "fields",
    [
        {"producerGroup": "another"},
        {"tranStateTableOffset": "0"},
        {"commitLogOffset": "1"},
        {"commitLogOffset": "123456789012"},
        {"commitOrRollback": "12"},
        {"commitOrRollback": "0"},
    ],
)
def test_compiled_transactions_ineligible_ends_use_python(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]
) -> None:
    answer = answers_to_halves(monkeypatch)[-1]
    pure, compiled = both_ways(monkeypatch, [warm(), [FIRST, end(answer, **fields)]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == sum(map(len, warm()[2:]))


def test_compiled_transactions_failed_write_reopens_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure between claim and write closes the connection and decides nothing."""
    answer = answers_to_halves(monkeypatch)[-1]

    def fail_at_the_end(cluster: SimCluster) -> None:
        direct = cluster.brokers[0].broker.parts.store.direct
        finish = direct.end
        seen = []

        def fail(*arguments: object) -> None:
            finish(*arguments)  # type: ignore[arg-type] # as they came
            seen.append(arguments)
            if len(seen) == 2:
                raise OSError("simulated failure")

        direct.end = fail  # type: ignore[method-assign,assignment]

    found = outcome_of([warm(), [FIRST, end(answer)]], None, fail_at_the_end)
    assert found.responses[1].endswith(b"!"), "the connection was closed"
    assert found.transactions["states"] == b"\0\0\0\0"
    assert found.transactions["unsettled"] == []
