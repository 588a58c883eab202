"""The compiled send path gives the same responses and files as the Python path."""

import random
from collections.abc import Callable
from functools import partial

import pytest

from rocketpy.broker.fast_path.compiled_path import is_compiled, send_path
from rocketpy.errors import ResourceShortError, StoreFormatError
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.testing.sim_cluster import SimCluster
from tests.sampling import sample
from tests.unit.broker.fakes import FakeChannel
from tests.unit.broker.processor import plain_send_kit
from tests.unit.broker.processor.frames import ext_of, frame
from tests.unit.broker.processor.plain_send_kit import (
    UNIQ_KEY,
    assert_same,
    both_ways,
    cuts,
    outcome_of,
    some_send,
    space_of,
)
from tests.unit.remoting.fakes import FakeTransport

needs_compiled = pytest.mark.skipif(
    not is_compiled(), reason="the compiled path is not installed, or switched off"
)
FIRST = frame(34, {"clientID": "x"}, b"{}", 0)


def plain(number: int, body: bytes = b"x" * 100, **fields: str) -> bytes:
    properties = f"UNIQ_KEY\x01{UNIQ_KEY.format(number)}\x02WAIT\x01true\x02"
    return frame(310, ext_of("first", number % 4, properties, **fields), body, number)


def responses_in(data: bytes) -> list[RemotingCommand]:
    return CommandReader().feed(data.removesuffix(b"!"))


def some_segments(rng: random.Random, count: int = 200) -> list[list[bytes]]:
    """Frames on four connections, from hardly odd to very."""
    segments = []
    for part, odd in enumerate((0.01, 0.05, 0.3, 1.0)):
        frames = [some_send(rng, number, odd) for number in range(part * count, (part + 1) * count)]
        segments.append([FIRST, *cuts(rng, b"".join(frames))])
    return segments


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(8), 3))
def test_compiled_path_any_frames_in_any_chunks_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    pure, compiled = both_ways(monkeypatch, some_segments(random.Random(seed)))
    assert_same(pure, compiled)
    assert compiled.served_bytes > 40_000
    assert len(pure.arrivals) > 400


@needs_compiled
def test_compiled_path_bulk_notifies_each_queue_and_tag_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pull that waits for a tag is resumed by a bulk that contains it at any position."""
    tagged = [
        f"UNIQ_KEY\x01{UNIQ_KEY.format(n)}\x02TAGS\x01{tag}\x02" for n, tag in enumerate("aabacaba")
    ]
    first, *rest = [frame(310, ext_of("first", 0, each), b"x", n) for n, each in enumerate(tagged)]
    pure, compiled = both_ways(monkeypatch, [[FIRST, first, b"".join(rest)]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == len(b"".join(rest))
    ends = {arrival[2] for arrival in pure.arrivals}
    told = compiled.arrivals[len(pure.arrivals) - len(rest) :]
    assert [arrival[:3] for arrival in told] == [("first", 0, max(ends))] * 3
    assert len({arrival[3] for arrival in told}) == 3


@needs_compiled
@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"flushDiskType": "SYNC_FLUSH"},
        {"messageIndexEnable": "false"},
        {"mappedFileSizeCommitLog": str(96 << 10), "mappedFileSizeConsumeQueue": "400"},
    ],
)
def test_compiled_path_ipv6_client_equals_python(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    six = partial(FakeTransport, ("fd00::7", 4321))
    monkeypatch.setattr(plain_send_kit, "FakeTransport", six)
    segments = some_segments(random.Random(60))
    pure, compiled = both_ways(monkeypatch, segments, properties)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 10_000
    assert any(b"\xfd\0" + bytes(13) + b"\x07" in content for content in pure.files.values())


@needs_compiled
def test_compiled_path_checksum_equals_python_for_all_lengths(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From 64 bytes on whole blocks of 16 are taken another way than the rest."""
    rng = random.Random(3)
    sizes = [*range(330), 1_023, 1_024, 4_095, 9_001]
    sends = [plain(number, rng.randbytes(size)) for number, size in enumerate(sizes)]
    reads = [b"".join(sends[at : at + 10]) for at in range(4, len(sends), 10)]
    pure, compiled = both_ways(monkeypatch, [[FIRST, *sends[:4], *reads]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == len(b"".join(reads))


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(100, 104), 2))
def test_compiled_path_many_small_files_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    properties = {
        "mappedFileSizeCommitLog": str(96 << 10),
        "mappedFileSizeConsumeQueue": "400",
        "maxHashSlotNum": "7",
        "maxIndexNum": "23",
    }
    pure, compiled = both_ways(monkeypatch, some_segments(random.Random(seed)), properties)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 10_000
    assert sum("/index/" in path for path in pure.files) > 10


@needs_compiled
def test_compiled_path_store_without_index_equals_python(monkeypatch: pytest.MonkeyPatch) -> None:
    pure, compiled = both_ways(
        monkeypatch, some_segments(random.Random(7)), {"messageIndexEnable": "false"}
    )
    assert_same(pure, compiled)
    assert compiled.served_bytes > 40_000


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(200, 204), 2))
def test_compiled_path_full_disk_equals_python(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    rng = random.Random(seed)
    left_bytes = rng.randrange(4_096, 400_000)

    little_space = space_of(left_bytes)
    pure, compiled = both_ways(monkeypatch, some_segments(rng), None, little_space)
    assert_same(pure, compiled)
    assert pure.store[2] > 50, "messages that were refused"


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(300, 306), 2))
def test_compiled_path_damaged_frames_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    segments = []
    for part in range(60):
        data = bytearray(b"".join(some_send(rng, part * 10 + n, 0.05) for n in range(8)))
        for _ in range(rng.choice((1, 1, 2, 5))):
            # The first bytes are those of a header, where damage does most.
            at = rng.randrange(min(len(data), rng.choice((8, 40, 500, len(data)))))
            data[at] = rng.choice((0, 1, 2, 34, 44, 92, 123, 125, 255, rng.randrange(256)))
        end = len(data) if rng.random() < 0.7 else rng.randrange(len(data))
        segments.append([FIRST, plain(part), *cuts(rng, bytes(data[:end]))])
    pure, compiled = both_ways(monkeypatch, segments)
    assert_same(pure, compiled)
    assert compiled.served_bytes > 10_000


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(400, 404), 2))
def test_compiled_path_sync_flush_waits_for_disk(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    pure, compiled = both_ways(
        monkeypatch, some_segments(random.Random(seed)), {"flushDiskType": "SYNC_FLUSH"}
    )
    assert_same(pure, compiled)
    assert compiled.served_bytes > 10_000


@needs_compiled
def test_compiled_path_serves_sends_after_other_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bulk is compiled, up to 16 times a read; later ones are served by Python."""
    sent = [plain(number) for number in range(100)]
    timed = plain(0, i=f"UNIQ_KEY\x01{UNIQ_KEY.format(7)}\x02TIMER_DELAY_SEC\x019\x02")
    first = b"".join(sent[:4])
    few = sent[4] + FIRST + sent[5] + sent[6] + timed + FIRST + sent[7] + FIRST
    pure, compiled = both_ways(monkeypatch, [[FIRST, first], [FIRST, few]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == sum(map(len, sent[4:8]))
    many = b"".join(each + FIRST for each in sent[4:])
    pure, compiled = both_ways(monkeypatch, [[FIRST, first], [FIRST, many]])
    assert_same(pure, compiled)
    assert compiled.served_bytes == sum(map(len, sent[4:21]))


@needs_compiled
@pytest.mark.parametrize(
    "bad", [b"\0\0\0\3abc", b"\x7f\xff\xff\xff\0\0\0\1", b"\0\0\0\x08\0\0\0\4{{{{"]
)
def test_compiled_path_stops_at_malformed_frame(
    monkeypatch: pytest.MonkeyPatch, bad: bytes
) -> None:
    sent = [plain(number) for number in range(8)]
    reads = [b"".join(sent[:4]), sent[4] + FIRST + bad + b"".join(sent[5:])]
    pure, compiled = both_ways(monkeypatch, [[FIRST, *reads]])
    assert_same(pure, compiled)
    assert compiled.responses[0].endswith(b"!"), "the connection was closed"
    assert compiled.served_bytes == len(sent[4])


def reads_of(count: int) -> list[bytes]:
    return [b"".join(plain(at * 10 + n) for n in range(10)) for at in range(count)]


@needs_compiled
def test_compiled_path_failing_listener_is_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request is answered, and stored messages are found by consumers and after a restart."""
    monkeypatch.delenv("ROCKETPY_PURE", raising=False)
    found = []
    seen: list[Callable[[], tuple[int, int]]] = []

    def fail_later(cluster: SimCluster) -> None:
        store = cluster.brokers[0].broker.parts.store
        listener = store.on_arrival
        assert listener is not None

        def on_arrival(*arrival: object) -> None:
            listener(*arrival)  # type: ignore[arg-type] # as it came
            if store.max_phy_offset > 8_000:
                found.append(store.max_phy_offset)
                raise ValueError("simulated failure")

        store.on_arrival = on_arrival
        offsets = store._parts.offsets
        seen.append(lambda: (offsets.appended, offsets.dispatched))

    outcome = outcome_of([[FIRST, *reads_of(5)], [FIRST, plain(99)]], None, fail_later)
    appended, dispatched = seen[0]()
    assert appended == dispatched == outcome.store[1]
    assert outcome.served_bytes > 0
    assert found
    assert outcome.store[0] == 51
    codes = [one.code for data in outcome.responses for one in responses_in(data)[1:]]
    assert codes == [0] * 51


@needs_compiled
def test_compiled_path_topic_deleted_before_lock_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def delete_first(cluster: SimCluster) -> None:
        parts = cluster.brokers[0].broker.parts
        begin = parts.store.direct.begin

        def deleted_meanwhile(*places: object) -> object:
            parts.topics.delete("first")
            return begin(*places)  # type: ignore[arg-type] # as they came

        parts.store.direct.begin = deleted_meanwhile  # type: ignore[method-assign,assignment]

    monkeypatch.delenv("ROCKETPY_PURE", raising=False)
    outcome = outcome_of([[FIRST, *reads_of(3)]], {"autoCreateTopicEnable": "false"}, delete_first)
    assert outcome.served_bytes == 0
    codes = [response.code for response in responses_in(outcome.responses[0])]
    assert sorted(codes[1:]) == [0] * 10 + [17] * 20


@needs_compiled
@pytest.mark.parametrize(
    "fault", [OSError(28, "no space"), ResourceShortError("no memory"), StoreFormatError("odd")]
)
def test_compiled_path_failed_reserve_falls_back_to_python(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def short(cluster: SimCluster) -> None:
        log = cluster.brokers[0].broker.parts.store._parts.log

        def reserve(size_bytes: int) -> int:
            if size_bytes > 400:
                raise fault
            return reserve_one(size_bytes)

        reserve_one = log.reserve
        log.reserve = reserve  # type: ignore[method-assign]

    pure, compiled = both_ways(monkeypatch, [[FIRST, *reads_of(4)]], None, short)
    assert_same(pure, compiled)
    assert pure.store == (40, pure.store[1], 0)


@needs_compiled
def test_compiled_path_reentrant_call_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A concurrent or nested call is left to the general path."""
    monkeypatch.delenv("ROCKETPY_PURE", raising=False)
    inner = []

    def look_inside(cluster: SimCluster) -> None:
        broker = cluster.brokers[0].broker
        server = broker._servers[0]
        handler = server._table.byte_handler
        store = broker.parts.store

        def on_arrival(*_: object) -> None:
            assert handler is not None
            inner.append(handler(FakeChannel(), plain(7)))  # type: ignore[arg-type] # is enough

        store.on_arrival = on_arrival

    outcome = outcome_of([[FIRST, *reads_of(2)]], None, look_inside)
    assert outcome.served_bytes > 0
    assert outcome.store[0] == 20 + sum(served > 0 for served, _ in inner)


@needs_compiled
@pytest.mark.parametrize("frame_bytes", [300, 1_000])
def test_compiled_path_frame_over_limit_is_not_served(
    monkeypatch: pytest.MonkeyPatch, frame_bytes: int
) -> None:
    properties = {"maxFrameBytes": str(frame_bytes)}
    pure, compiled = both_ways(monkeypatch, [[FIRST, plain(1), plain(2, b"x" * 2_000)]], properties)
    assert_same(pure, compiled)


def test_compiled_path_disabled_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETPY_PURE", "1")
    assert not is_compiled()
    assert send_path(None) == "python"
    assert outcome_of([[FIRST, *reads_of(2)]]).served_bytes == 0


def change_some(rng: random.Random, names: list[str], cluster: SimCluster) -> None:
    """Delete some topics, change or create others, as nothing that comes by the server does."""
    parts = cluster.brokers[0].broker.parts
    for name in rng.sample(names, rng.choice((0, 0, 1, 2))):
        if rng.random() < 0.5 and parts.topics.get(name) is not None:
            parts.topics.delete(name)
            parts.store.delete_topics([name])
        else:
            cluster.create_topic(name, rng.randrange(1, 5))


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(8), 3))
def test_compiled_path_topic_changes_between_reads_apply(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Cached topics of an earlier bulk are not used for this one."""
    rng = random.Random(seed)
    names = [f"t{number}" for number in range(7)]
    segments = [[FIRST]]
    for number in range(80):
        some = rng.sample(names, rng.choice((1, 1, 2, 3, 6)))
        sends = [
            plain(number * 20 + each, b=rng.choice(some), e=str(rng.randrange(2)))
            for each in range(rng.randrange(1, 20))
        ]
        segments.append([FIRST, b"".join(sends)])

    def between(cluster: SimCluster, number: int) -> None:
        for name in names if number == 0 else ():
            cluster.create_topic(name)
        change_some(random.Random(seed * 1_000 + number), names, cluster)

    settings = {"autoCreateTopicEnable": "false"}
    pure, compiled = both_ways(monkeypatch, segments, settings, between=between)
    assert_same(pure, compiled, has_deletions=True)
    codes = {one.code for data in compiled.responses for one in responses_in(data)}
    assert {0, 17, 29} <= codes, "stored, no such topic, no such queue"
    assert compiled.served_bytes > 20_000
