"""SYNC_FLUSH and SYNC_MASTER on the compiled path: answered and visible as in Python."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.testing.sim_cluster import SimCluster
from tests.sampling import sample
from tests.unit.broker.processor.frames import ext_of, frame
from tests.unit.broker.processor.plain_send_kit import (
    UNIQ_KEY,
    arrived,
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
SYNC = {"flushDiskType": "SYNC_FLUSH"}


def plain(number: int, topic: str = "first", wait: str = "true", **fields: Any) -> bytes:
    properties = f"UNIQ_KEY\x01{UNIQ_KEY.format(number)}\x02WAIT\x01{wait}\x02KEYS\x01a b\x02"
    return frame(310, ext_of(topic, number % 4, properties), b"x" * 100, number, **fields)


def segments(rng: random.Random, count: int = 150) -> list[list[bytes]]:
    found = []
    for part, odd in enumerate((0.01, 0.2, 1.0)):
        frames = [some_send(rng, number, odd) for number in range(part * count, (part + 1) * count)]
        found.append([FIRST, *cuts(rng, b"".join(frames))])
    return found


def reads(count: int, topic: str = "first") -> list[bytes]:
    """Reads of ten messages; the first four messages are the first of their queues."""
    return [b"".join(plain(at * 10 + n, topic) for n in range(10)) for at in range(count)]


def codes(data: bytes) -> list[int]:
    return [each.code for each in CommandReader().feed(data.removesuffix(b"!"))][1:]


@pytest.mark.parametrize("seed", sample(range(3), 3))
@pytest.mark.parametrize("index", ["true", "false"])
def test_compiled_sync_many_small_files_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int, index: str
) -> None:
    properties = SYNC | {
        "mappedFileSizeCommitLog": str(96 << 10),
        "mappedFileSizeConsumeQueue": "400",
        "maxHashSlotNum": "7",
        "maxIndexNum": "23",
        "messageIndexEnable": index,
    }
    pure, compiled = both_ways(monkeypatch, segments(random.Random(seed)), properties)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 3_000
    assert sum("/commitlog/" in path for path in pure.files) > 2


@pytest.mark.parametrize("seed", sample(range(10, 13), 3))
def test_compiled_sync_full_disk_equals_python(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    left_bytes = rng.randrange(4_096, 200_000)

    little_space = space_of(left_bytes)
    pure, compiled = both_ways(monkeypatch, segments(rng), SYNC, little_space)
    assert_same(pure, compiled)
    assert pure.store[2] > 20, "messages that were refused"


def test_compiled_sync_bulk_is_answered_after_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = reads(4)
    pure, compiled = both_ways(monkeypatch, [[FIRST, sent[0]], [FIRST, *sent[1:]]], SYNC)
    assert_same(pure, compiled)
    assert compiled.served_bytes == sum(map(len, sent[1:]))
    assert codes(compiled.responses[1]) == [0] * 30
    assert arrived(pure) == 40


def test_compiled_sync_sender_without_wait_is_answered_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = [plain(n) for n in range(4)]
    rest = [plain(4), plain(5, wait="false"), plain(6), plain(7, wait="false", flag=2)]
    mixed = b"".join(rest)
    pure, compiled = both_ways(monkeypatch, [[FIRST, b"".join(sent)], [FIRST, mixed]], SYNC)
    assert_same(pure, compiled)
    assert compiled.served_bytes == len(mixed)
    answers = CommandReader().feed(compiled.responses[1])
    assert [each.opaque for each in answers[1:]] == [5, 4, 6]


def test_compiled_sync_no_sender_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are answered at once, and a failed flush notifies no listener."""

    def fail(cluster: SimCluster) -> None:
        store = cluster.brokers[0].broker.parts.store

        def failing() -> int:
            raise OSError(5, "simulated failure")

        store._parts.log.flush = failing  # type: ignore[method-assign]

    sent = [plain(n, wait="false") for n in range(9)]
    read = b"".join(sent[4:])
    pure, compiled = both_ways(monkeypatch, [[FIRST, *sent[:4], read]], SYNC, fail)
    assert_same(pure, compiled)
    assert compiled.served_bytes == len(read)
    assert codes(compiled.responses[0]) == [0] * 9


def test_compiled_sync_oneway_messages_are_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [plain(n) for n in range(4)]
    rest = b"".join(plain(n, flag=2) for n in range(4, 9))
    pure, compiled = both_ways(monkeypatch, [[FIRST, b"".join(sent)], [FIRST, rest]], SYNC)
    assert_same(pure, compiled)
    assert compiled.served_bytes == len(rest)
    assert codes(compiled.responses[1]) == []
    assert arrived(pure) == 9


def test_compiled_sync_failed_flush_is_reported_to_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The messages are in the log and nowhere else, and nothing is taken any more."""

    def fail_later(cluster: SimCluster) -> None:
        store = cluster.brokers[0].broker.parts.store
        log, flush = store._parts.log, store._parts.log.flush

        def failing() -> int:
            if store.max_phy_offset > 6_500:
                raise OSError(5, "simulated failure")
            return flush()

        log.flush = failing  # type: ignore[method-assign]

    sent = reads(5)
    pure, compiled = both_ways(
        monkeypatch, [[FIRST, *sent[:2]], [FIRST, *sent[2:]]], SYNC, fail_later
    )
    assert_same(pure, compiled)
    assert compiled.served_bytes > 0
    assert codes(compiled.responses[1]) == [14] * 30
    assert arrived(pure) == 20


def test_compiled_sync_topic_deleted_before_flush_equals_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Messages that wait for the flush get no queue entry then; those of other topics do."""

    def delete_first(cluster: SimCluster) -> None:
        store = cluster.brokers[0].broker.parts.store
        release = store._parts.offsets.on_visible

        def deleted_meanwhile(visible: int) -> None:
            if store._parts.stats.put_count >= 40:
                store.delete_topics(["first"])
            release(visible)

        store._parts.offsets.on_visible = deleted_meanwhile

    mixed = b"".join(plain(n, ("first", "second")[n % 8 // 4]) for n in range(100, 140))
    segments = [[FIRST, reads(1)[0] + reads(1, "second")[0]], [FIRST, mixed]]
    pure, compiled = both_ways(monkeypatch, segments, SYNC, delete_first)
    assert_same(pure, compiled)
    assert compiled.served_bytes == len(mixed)
    assert {arrival[0] for arrival in pure.arrivals[20:]} == {"second"}


def waits_for_replicas(*, until_confirmed: bool) -> Callable[[SimCluster], None]:
    """Make a SYNC_MASTER wait for replicas, which confirm messages or stall a moment later."""

    def prepare(cluster: SimCluster) -> None:
        store = cluster.brokers[0].broker.parts.store
        loop = asyncio.get_running_loop()

        def confirm() -> None:
            store.replicas.confirm(store.max_phy_offset)

        def wake() -> None:
            loop.call_later(0.01, confirm if until_confirmed else store.replicas.give_up)

        store.replicas.on_wait.append(wake)
        store.replicas.require()

    return prepare


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_compiled_sync_master_bulk_is_answered_after_confirmation(
    monkeypatch: pytest.MonkeyPatch, flush: str
) -> None:
    sent = reads(4)
    properties = {"brokerRole": "SYNC_MASTER", "flushDiskType": flush}
    pure, compiled = both_ways(
        monkeypatch,
        [[FIRST, sent[0]], [FIRST, *sent[1:]]],
        properties,
        waits_for_replicas(until_confirmed=True),
    )
    assert_same(pure, compiled)
    assert compiled.served_bytes == sum(map(len, sent[1:]))
    assert codes(compiled.responses[1]) == [0] * 30
    assert arrived(pure) == 40


def test_compiled_sync_master_unconfirmed_bulk_is_answered_with_unknown_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = reads(4)
    properties = {"brokerRole": "SYNC_MASTER"}
    pure, compiled = both_ways(
        monkeypatch,
        [[FIRST, sent[0]], [FIRST, *sent[1:]]],
        properties,
        waits_for_replicas(until_confirmed=False),
    )
    assert_same(pure, compiled)
    assert compiled.served_bytes > 0
    assert codes(compiled.responses[1]) == [12] * 30
    assert arrived(pure) == 0


def test_compiled_sync_master_without_replicas_answers_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = reads(4)
    properties = {"brokerRole": "SYNC_MASTER"}
    pure, compiled = both_ways(monkeypatch, [[FIRST, sent[0]], [FIRST, *sent[1:]]], properties)
    assert_same(pure, compiled)
    assert compiled.served_bytes == sum(map(len, sent[1:]))
    assert codes(compiled.responses[1]) == [0] * 30
    assert arrived(pure) == 40
