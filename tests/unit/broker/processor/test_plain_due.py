"""Due messages stored in bulk by the compiled path: the same result as in Python."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from rocketpy.testing.sim_cluster import SimCluster
from tests.sampling import sample
from tests.unit.broker.processor import plain_send_kit
from tests.unit.broker.processor.delay_frames import UNIQ_KEY, delay_properties
from tests.unit.broker.processor.frames import ext_of, frame
from tests.unit.broker.processor.plain_send_kit import (
    Outcome,
    assert_same,
    both_ways,
    outcome_of,
    space_of,
)
from tests.unit.remoting.fakes import FakeTransport

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="the compiled path is not installed, or switched off"
)
FIRST = frame(34, {"clientID": "x"}, b"{}", 0)
WARM_PUTS = 8
LATER_S = 1.5
"""Level 1 is due: of one level the order is that of its queue, both ways."""


def sent(number: int, topic: str, pairs: str = "") -> bytes:
    text = f"UNIQ_KEY\x01{UNIQ_KEY.format(number)}\x02{pairs}"
    return frame(310, ext_of(topic, number % 4, text), b"x" * (number % 120), number)


def delayed(number: int, topic: str = "first", pairs: str = "") -> bytes:
    return sent(number, topic, f"DELAY\x011\x02{pairs}")


def warm() -> list[bytes]:
    """Put to every queue once: a bulk uses known queues only."""
    return [FIRST, b"".join(sent(n, topic) for topic in ("first", "second") for n in range(4))]


def both_delivered(
    monkeypatch: pytest.MonkeyPatch,
    reads: Sequence[bytes],
    properties: dict[str, str] | None = None,
    prepare: Callable[[SimCluster], None] = lambda _: None,
) -> Outcome:
    """Feed and wait, both ways, and return what the compiled one left: the same."""
    segments = [warm(), [FIRST, *reads]]
    pure, compiled = both_ways(monkeypatch, segments, properties, prepare, LATER_S)
    assert_same(pure, compiled)
    return compiled


def some_reads(rng: random.Random, odd: float, count: int = 300) -> list[bytes]:
    """Messages of level 1 of any kind."""
    frames = []
    for number in range(count):
        topic = "first" if rng.random() < 0.7 else rng.choice(("second", "%RETRY%group"))
        text = delay_properties(rng, number, odd).replace("DELAY\x0118\x02", "DELAY\x011\x02")
        body = rng.randbytes(rng.choice((0, 1, 8, 100, 3_000)))
        frames.append(frame(310, ext_of(topic, rng.randrange(4), text), body, number))
    return [b"".join(frames[at : at + 20]) for at in range(0, count, 20)]


@pytest.mark.parametrize("seed", sample(range(3), 3))
@pytest.mark.parametrize("odd", [0.0, 0.3])
def test_compiled_due_any_messages_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int, odd: float
) -> None:
    compiled = both_delivered(monkeypatch, some_reads(random.Random(seed), odd))
    assert sum(compiled.due_in_runs) > 40
    assert compiled.delivered[1] > 150


def test_compiled_due_ipv6_messages_use_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plain_send_kit, "FakeTransport", partial(FakeTransport, ("fd00::7", 4321)))
    compiled = both_delivered(monkeypatch, some_reads(random.Random(4), 0.0))
    assert sum(compiled.due_in_runs) == 0
    assert compiled.delivered[1] > 150
    assert compiled.served_bytes > 10_000


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
        {"sendMessageThreadPoolNums": "4"},
    ],
)
def test_compiled_due_stores_and_settings_equal_python(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    compiled = both_delivered(monkeypatch, some_reads(random.Random(10), 0.05), properties)
    assert sum(compiled.due_in_runs) > 20
    assert compiled.delivered[1] > 150


@pytest.mark.parametrize("seed", sample(range(20, 23), 3))
def test_compiled_due_full_disk_equals_python(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The reader stays before the first message that found no room."""
    rng = random.Random(seed)
    left_bytes = rng.randrange(100_000, 300_000)

    little_space = space_of(left_bytes)
    both_delivered(monkeypatch, some_reads(rng, 0.0), None, little_space)


def test_compiled_due_bulk_notifies_once_and_counts_each(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = [
        b"".join(delayed(n, pairs="TAGS\x01a\x02") for n in range(at, at + 8)) for at in (0, 8)
    ]
    compiled = both_delivered(monkeypatch, reads)
    assert sum(compiled.due_in_runs) == 16
    assert compiled.counts["first"][0] == 16, "what was sent was counted a second before"
    assert compiled.store[0] == WARM_PUTS + 2 * 16
    told = [each for each in compiled.arrivals if each[0] == "first" and each[3]]
    assert sorted(each[1:3] for each in told) == [(n, 5) for n in range(4)]


@pytest.mark.parametrize(
    "pairs",
    ["CLUSTER\x01mine\x02", "REAL_QID\x0199\x02", "PGROUP\x01g\x02", "TAGS\x01a b\x02"],
)
def test_compiled_due_any_sender_properties_equal_python(
    monkeypatch: pytest.MonkeyPatch, pairs: str
) -> None:
    compiled = both_delivered(monkeypatch, [delayed(1), delayed(2, pairs=pairs), delayed(3)])
    assert compiled.delivered[1] == 3
    assert sum(compiled.due_in_runs) == 3


def test_compiled_due_deleted_topic_does_not_delay_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before it is due, and between the look at it and the append lock."""

    def deleted_soon(cluster: SimCluster) -> None:
        parts = cluster.brokers[0].broker.parts
        begin = parts.store.direct.begin

        def delete(topic: str) -> None:
            if parts.topics.get(topic) is not None:
                parts.topics.delete(topic)
                parts.store.delete_topics([topic])

        def begin_without(places: Any, *others: Any) -> Any:
            if any(topic == "first" for topic, *_ in places) and len(places) == 2:
                delete("first")
            return begin(places, *others)

        parts.store.direct.begin = begin_without  # type: ignore[method-assign,assignment]

    monkeypatch.delenv("ROCKETPY_PURE", raising=False)
    reads = [delayed(1), delayed(5, "second"), delayed(9), delayed(13, "second")]
    found = outcome_of([warm(), [FIRST, *reads]], None, deleted_soon, LATER_S)
    assert found.delivered[1] == 4
    assert found.store[0] == WARM_PUTS + 4 + 2, "those of the other topic"


def test_compiled_due_damaged_message_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ROCKETPY_PURE", raising=False)
    body = b"here it is, and long enough to be found"

    def damaged(cluster: SimCluster) -> None:
        files = cluster.brokers[0].files

        def spoil() -> None:
            for path, node in files._names.items():
                if node is not None and "commitlog" in Path(path).parts:
                    at = bytes(node.memory).find(body)
                    if at >= 0:
                        node.memory[at - 40] ^= 0xFF

        cluster.loop.call_later(0.5, spoil)

    text = f"UNIQ_KEY\x01{UNIQ_KEY.format(9)}\x02DELAY\x011\x02"
    bad = frame(310, ext_of("first", 1, text), body, 9)
    found = outcome_of([warm(), [FIRST, delayed(1), bad, delayed(2)]], None, damaged, LATER_S)
    assert found.delivered[1] == 3
    assert sum(found.due_in_runs) >= 1


@pytest.mark.parametrize("is_pure", ["0", "1"])
def test_compiled_due_failing_listener_duplicates_nothing(
    monkeypatch: pytest.MonkeyPatch, is_pure: str
) -> None:
    """Neither sends nor due messages are lost, and later listeners are called."""
    monkeypatch.setenv("ROCKETPY_PURE", is_pure)
    told: list[tuple[str, int]] = []

    def failing(cluster: SimCluster) -> None:
        def fail(topic: str, queue_id: int, _next_offset: int, _tags_code: int) -> None:
            told.append((topic, queue_id))
            raise OSError("simulated failure")

        cluster.brokers[0].broker.parts.store.on_arrival = fail

    found = outcome_of([warm(), [FIRST, delayed(1), delayed(2)]], None, failing, 12.0)
    assert found.delivered[1] == 2
    assert found.store[0] == WARM_PUTS + 2 + 2
    assert not any(response.endswith(b"!") for response in found.responses), "no line was closed"
    assert {("first", 1), ("first", 2)} <= set(told[-2:])


@pytest.mark.parametrize("step", ["begin", "end"])
def test_compiled_due_failed_bulk_is_delivered_one_by_one(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Also when it raises each time: as a run none of them would ever be stored."""
    monkeypatch.delenv("ROCKETPY_PURE", raising=False)

    def failing(cluster: SimCluster) -> None:
        direct = cluster.brokers[0].broker.parts.store.direct
        begin, end = direct.begin, direct.end
        is_bad = False

        def bad_begin(places: Any, *others: Any) -> Any:
            nonlocal is_bad
            is_bad = any(topic == "second" for topic, *_ in places) and len(places) > 1
            if is_bad and step == "begin":
                raise ValueError("simulated failure")
            return begin(places, *others)

        def bad_end(space: Any, run: Any) -> None:
            if not is_bad:
                return end(space, run)
            end(space, None)  # lets go of the append lock, as it does when it fails
            raise ValueError("simulated failure")

        direct.begin = bad_begin  # type: ignore[method-assign,assignment]
        direct.end = bad_end  # type: ignore[method-assign]

    reads = [delayed(1), delayed(2, "second"), *(delayed(n) for n in range(3, 9))]
    found = outcome_of([warm(), [FIRST, b"".join(reads)]], None, failing, LATER_S)
    assert found.delivered[1] == 8
    assert sum(found.due_in_runs) == 0
    assert found.store[0] == WARM_PUTS + 8 + 8, "each is stored once where it belongs"


def test_compiled_due_bulk_is_limited_to_a_mebibyte(monkeypatch: pytest.MonkeyPatch) -> None:
    """A larger message is delivered in a separate bulk."""
    sizes = [100, 400_000, 400_000, 400_000, 2_000_000, 100, 100]
    reads = [
        frame(310, ext_of("first", 0, f"UNIQ_KEY\x01U{n}\x02DELAY\x011\x02"), bytes(size), n)
        for n, size in enumerate(sizes)
    ]
    large = {"mappedFileSizeCommitLog": str(16 << 20), "maxMessageSize": str(4 << 20)}
    compiled = both_delivered(monkeypatch, reads, large)
    assert compiled.due_in_runs == [3, 1, 1, 2]


def test_compiled_due_full_topic_does_not_delay_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages that a bulk cannot store are tried one by one, then parked."""
    monkeypatch.delenv("ROCKETPY_PURE", raising=False)

    def failing(cluster: SimCluster) -> None:
        store = cluster.brokers[0].broker.parts.store
        begin, put = store.direct.begin, store.put_message

        def begin_without(places: Any, *others: Any) -> Any:
            return (
                None if any(topic == "second" for topic, *_ in places) else begin(places, *others)
            )

        def put_without(message: PutMessage) -> PutMessageResult:
            if message.topic == "second":
                return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
            return put(message)

        store.direct.begin = begin_without  # type: ignore[method-assign,assignment]
        store.put_message = put_without  # type: ignore[method-assign]

    bad = [delayed(n, "second") for n in (2, 4)]
    reads = [delayed(1), bad[0], delayed(3), bad[1], *(delayed(n) for n in range(5, 45))]
    found = outcome_of([warm(), [FIRST, b"".join(reads)]], None, failing, 20.0)
    assert found.delivered[1] == 44
    assert sum(found.due_in_runs) == 11, "those behind the batch of the last one that failed"
    assert found.store[0] == WARM_PUTS + 44 + 42 + 2, "two wait again"
