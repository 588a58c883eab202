"""Pulls on the compiled path: the same responses and counts as in Python."""

import json
import random
import struct
from functools import partial
from typing import Any

import pytest

from rocketpy.broker.broker import Broker
from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.errors import ResourceShortError
from rocketpy.proto.record.message import decode_messages
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from tests.sampling import sample
from tests.unit.broker.processor import plain_send_kit
from tests.unit.broker.processor.frames import binary_frame, frame, msgpack_frame
from tests.unit.broker.processor.plain_pull_kit import (
    QUEUES,
    SUB_VERSION,
    TOPIC,
    PullOutcome,
    assert_same_pulls,
    fill,
    heartbeat,
    pull_outcome_of,
    pulled_both_ways,
    some_pull,
)
from tests.unit.broker.processor.plain_send_kit import cuts
from tests.unit.remoting.fakes import FakeTransport

needs_compiled = pytest.mark.skipif(
    not is_compiled(), reason="the compiled path is not installed, or switched off"
)
FIRST = heartbeat()


def plain_ext(queue_offset: int) -> dict[str, str]:
    return {
        "consumerGroup": "all",
        "topic": TOPIC,
        "queueId": "0",
        "queueOffset": str(queue_offset),
        "maxMsgNums": "32",
        "sysFlag": "3",
        "commitOffset": "5",
        "suspendTimeoutMillis": "15000",
        "subVersion": str(SUB_VERSION),
        "expressionType": "TAG",
    }


def plain(number: int, queue_offset: int = 0, **fields: str) -> bytes:
    return frame(11, plain_ext(queue_offset) | fields, b"", number)


def some_segments(rng: random.Random, count: int = 60) -> list[list[bytes]]:
    """Frames on four connections, from hardly odd to very."""
    segments = []
    for part, odd in enumerate((0.0, 0.05, 0.3, 1.0)):
        frames = [some_pull(rng, number, odd) for number in range(part * count, (part + 1) * count)]
        segments.append([FIRST, *cuts(rng, b"".join(frames))])
    return segments


def answers(outcome: PullOutcome) -> list[RemotingCommand]:
    found = [CommandReader().feed(data.removesuffix(b"!")) for data in outcome.responses]
    return [answer for each in found for answer in each if answer.ext_fields.get("maxOffset")]


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(8), 3))
def test_compiled_pulls_any_pulls_in_any_chunks_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    segments = some_segments(random.Random(seed))
    pure, compiled = pulled_both_ways(
        monkeypatch, segments, prepare=lambda broker: fill(broker, seed)
    )
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes > 10_000
    assert pure.reads[0] > 50


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(300, 306), 3))
def test_compiled_pulls_messages_before_restart_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    def prepare(broker: Broker) -> None:
        fill(broker, seed)
        store: Any = broker.parts.store
        half = store.queue_entry(TOPIC, 0, store._table.get(TOPIC, 0).max_offset // 2)[0]
        store._log.verified_from = half if seed % 2 else 1 << 40

    segments = some_segments(random.Random(seed))
    pure, compiled = pulled_both_ways(monkeypatch, segments, prepare=prepare)
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes > 1_000


@needs_compiled
def test_compiled_pulls_ipv6_client_equals_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker's address is part of records, not of pull responses."""
    six = partial(FakeTransport, ("fd00::7", 4321))
    monkeypatch.setattr(plain_send_kit, "FakeTransport", six)
    segments = some_segments(random.Random(50))
    pure, compiled = pulled_both_ways(monkeypatch, segments)
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes > 10_000


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(100, 104), 2))
def test_compiled_pulls_many_small_files_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A pull that continues in the next log file is served by Python."""
    small = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "400"}
    segments = some_segments(random.Random(seed))
    pure, compiled = pulled_both_ways(
        monkeypatch, segments, small, lambda broker: fill(broker, seed)
    )
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes > 1_000


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(200, 203), 3))
def test_compiled_pulls_later_queue_start_and_entries_on_disk_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Deleted files move the beginning of a queue; what was flushed is read from its files."""

    def prepare(broker: Broker) -> None:
        fill(broker, seed, 600)
        store: Any = broker.parts.store
        for queue_id in range(QUEUES):
            queue = store._table.get(TOPIC, queue_id)
            queue.flush()
            queue.settle()
            queue.min_offset = min(40, queue.max_offset)
        fill(broker, seed + 1, 100)

    segments = some_segments(random.Random(seed))
    pure, compiled = pulled_both_ways(monkeypatch, segments, prepare=prepare)
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes > 5_000
    assert any(answer.code == ResponseCode.PULL_OFFSET_MOVED for answer in answers(pure))


@needs_compiled
@pytest.mark.parametrize(
    "settings",
    [
        {"maxTransferCountOnMessageInMemory": "5"},
        {"maxTransferBytesOnMessageInMemory": "1000"},
        {"brokerPermission": "2"},
        {"litePullMessageEnable": "false"},
        {"accessMessageInMemoryMaxRatio": "0"},
        {"autoCreateSubscriptionGroup": "false"},
    ],
    ids=str,
)
def test_compiled_pulls_settings_equal_python(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    segments = some_segments(random.Random(3), 30)
    assert_same_pulls(*pulled_both_ways(monkeypatch, segments, settings))


ODD_TEXTS = {
    "a name twice": '{"queueOffset":"0","queueOffset":"5",%s}',
    "a name within another field": '{"a":{"queueOffset":"3"},"queue\\u004fffset":"5",%s}',
    "a name within a name": '{"x\\"queueOffset":"3","queue\\u004fffset":"5",%s}',
    "a name within a value": '{"a":"\\"opaque\\":7,","queueOffset":"5",%s}',
    "number instead of text": '{"queueOffset":5,%s}',
    "zeros before it": '{"queueOffset":"0005",%s}',
    "a sign": '{"queueOffset":"+5",%s}',
    "behind zero": '{"queueOffset":"-5",%s}',
    "no digits": '{"queueOffset":"",%s}',
    "a fraction": '{"queueOffset":"5.0",%s}',
    "18 digits": '{"queueOffset":"999999999999999999",%s}',
    "19 digits": '{"queueOffset":"9999999999999999999",%s}',
    "blanks": '{"queueOffset" : "5",%s}',
    "none": "{%s}",
}


def of_text(number: str, ext: str) -> bytes:
    """A pull whose number and ext fields stand in its header as they are given."""
    header = (
        f'{{"code":11,"extFields":{ext},"flag":0,"language":"JAVA","opaque":{number},'
        '"serializeTypeCurrentRPC":"JSON","version":493}'
    ).encode()
    return struct.pack(">ii", 4 + len(header), len(header)) + header


@needs_compiled
@pytest.mark.parametrize("name", ODD_TEXTS)
def test_compiled_pulls_unusual_offset_is_parsed_like_python(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ext = plain_ext(0)
    del ext["queueOffset"]
    others = json.dumps(ext, separators=(",", ":"))[1:-1]
    odd = [of_text(str(number), ODD_TEXTS[name] % others) for number in (1, 2, 12)]
    segments = [[FIRST, plain(50), odd[0], plain(51), *odd[1:], plain(52)]]
    assert_same_pulls(*pulled_both_ways(monkeypatch, segments))


@needs_compiled
@pytest.mark.parametrize(
    "opaque",
    ["-5", "007", "0", "1234567890", "12.0", "12e0", "123456789.0000000001", '"12"', "null"],
)
def test_compiled_pulls_unusual_opaque_is_parsed_like_python(
    monkeypatch: pytest.MonkeyPatch, opaque: str
) -> None:
    ext = json.dumps(plain_ext(3), separators=(",", ":"))
    usual, odd = of_text("17", ext), of_text(opaque, ext)
    segments = [[FIRST, usual, odd], [FIRST, odd, usual], [FIRST, usual + odd]]
    assert_same_pulls(*pulled_both_ways(monkeypatch, segments))


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(300, 306), 3))
def test_compiled_pulls_damaged_frames_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    segments = []
    for part in range(40):
        data = bytearray(b"".join(some_pull(rng, part * 10 + n, 0.05) for n in range(6)))
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(rng.choice((40, 400, len(data))))
            data[at : at + 1] = rng.choice((b"", bytes((rng.randrange(256),)), rng.randbytes(9)))
        segments.append([FIRST, *cuts(rng, bytes(data))])
    assert_same_pulls(*pulled_both_ways(monkeypatch, segments))


@needs_compiled
def test_compiled_pulls_complete_queue_with_many_pulls_per_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = pull_outcome_of([[FIRST, plain(0)]])
    high = int(answers(outcome)[0].ext_fields["maxOffset"])
    pulls_at = range(0, high, 7)
    pulls = [plain(at, at, maxMsgNums="7", commitOffset=str(at)) for at in pulls_at]
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, *pulls[:3], b"".join(pulls[3:])]])
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes == sum(map(len, pulls))
    found = [message for answer in answers(compiled) for message in decode_messages(answer.body)]
    assert [message.queue_offset for message in found] == list(range(high))
    assert compiled.offsets["offsetTable"][f"{TOPIC}@all"][0] == pulls_at[-1]


@needs_compiled
@pytest.mark.parametrize("write", [frame, binary_frame, msgpack_frame])
def test_compiled_pulls_each_header_format(monkeypatch: pytest.MonkeyPatch, write: Any) -> None:
    command = CommandReader().feed(plain(0))[0]
    pull = write(11, command.ext_fields, b"", 9)
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, pull]])
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes == len(pull)


@needs_compiled
def test_compiled_pulls_beyond_queue_end_use_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind = [plain(n, 5_000) for n in range(3)]
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, plain(7), b"".join(behind), plain(8)]])
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes == len(plain(7)) + len(plain(8))


@needs_compiled
def test_compiled_pulls_reset_is_delivered_by_python_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(broker: Broker) -> None:
        fill(broker, 1)
        broker.parts.offsets.assign_reset("all", TOPIC, 0, 3)

    segments = [[FIRST, plain(1, 9), plain(2, 3), plain(3, 4)]]
    pure, compiled = pulled_both_ways(
        monkeypatch, segments, {"useServerSideResetOffset": "true"}, prepare
    )
    assert_same_pulls(pure, compiled)
    assert [answer.code for answer in answers(compiled)][:2] == [ResponseCode.PULL_OFFSET_MOVED, 0]
    assert compiled.served_bytes == len(plain(2, 3)) + len(plain(3, 4))


def report_damage(broker: Broker, queue_offset: int, queue_id: int = 0) -> None:
    """Have the store know a record to be damaged."""
    store: Any = broker.parts.store
    store._log.report_damage(store.queue_entry(TOPIC, queue_id, queue_offset)[0], "of a test")


@needs_compiled
def test_compiled_pulls_only_damaged_records_use_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(broker: Broker) -> None:
        fill(broker, 1)
        report_damage(broker, 12)

    few = {"maxMsgNums": "4"}
    around = [plain(1, 6, **few), plain(4, 13)]
    at_it = [plain(2, 9, **few), plain(3, 12)]
    pulls = [[FIRST, around[0], *at_it, around[1]]]
    pure, compiled = pulled_both_ways(monkeypatch, pulls, None, prepare)
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes == sum(map(len, around))


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(420, 432), 3))
def test_compiled_pulls_known_damaged_records_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    def prepare(broker: Broker) -> None:
        fill(broker, seed)
        rng = random.Random(seed)
        table: Any = broker.parts.store
        for _ in range(rng.choice((1, 3, 10))):
            queue = rng.randrange(QUEUES)
            report_damage(broker, rng.randrange(table._table.get(TOPIC, queue).max_offset), queue)

    segments = some_segments(random.Random(seed))
    pure, compiled = pulled_both_ways(monkeypatch, segments, prepare=prepare)
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes


@needs_compiled
def test_compiled_pulls_unchecked_records_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def unchecked(broker: Broker) -> None:
        fill(broker, 1)
        store: Any = broker.parts.store
        store._log.verified_from = store.queue_entry(TOPIC, 0, 10)[0]

    pulls = [[FIRST, plain(1), plain(2, 1), plain(3, 10), plain(4, 11)]]
    pure, compiled = pulled_both_ways(monkeypatch, pulls, None, unchecked)
    assert_same_pulls(pure, compiled)
    # The compiled path checks them itself.
    assert compiled.served_bytes == sum(map(len, pulls[0][1:]))


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(400, 412), 3))
def test_compiled_pulls_any_damage_before_restart_equals_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    def prepare(broker: Broker) -> None:
        fill(broker, seed)
        rng = random.Random(seed)
        store: Any = broker.parts.store
        store._log.verified_from = 1 << 40
        for _ in range(rng.choice((1, 3, 10))):
            queue = rng.randrange(QUEUES)
            number = rng.randrange(store._table.get(TOPIC, queue).max_offset)
            place, size, _ = store.queue_entry(TOPIC, queue, number)
            view, base, _ = store._log.written_part(place)
            # Mostly what the check reads: size, magic, checksum, place, flags, lengths.
            byte = rng.choice((*range(12), *range(28, 40), *range(84, 92), size - 3, size // 2))
            at = place - base + min(byte, size - 1)
            view[at] = rng.choice((0, 0xFF, view[at] ^ 1, view[at] ^ 0x80))

    segments = some_segments(random.Random(seed))
    pure, compiled = pulled_both_ways(monkeypatch, segments, prepare=prepare)
    assert_same_pulls(pure, compiled)
    # Python serves every pull that would take a damaged one.
    assert pure.reads[0] > 50


@needs_compiled
def test_compiled_pulls_records_are_checked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(broker: Broker) -> None:
        fill(broker, 1)
        store: Any = broker.parts.store
        store._log.verified_from = 1 << 40
        brokers.append(broker)

    def proven(*pulls: bytes) -> list[tuple[int, int]]:
        pulled_both_ways(monkeypatch, [[FIRST, *pulls]], None, prepare)
        return [
            (start, end)
            for broker in brokers[-2:]
            for ranges in broker.parts.store.reader._proven._ranges.values()
            for start, end in ranges
        ]

    brokers: list[Broker] = []
    few = {"maxMsgNums": "4"}
    # Both ways remember the same; tags leave out what is between, so nothing is known of it.
    assert proven(plain(1, 2, **few), plain(2, 5, **few)) == [(2, 9), (2, 9)]
    tagged = {"sysFlag": "4", "subscription": "red || green || blue"}
    assert proven(plain(1, 2, **few, **tagged)) == []


@needs_compiled
def test_compiled_pulls_conditions_after_check_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def prepare(broker: Broker) -> None:
        fill(broker, 1)
        store: Any = broker.parts.store
        store._log.verified_from = 1 << 40

    sql = {"sysFlag": "4", "expressionType": "SQL92", "subscription": "1 = 1"}
    few = {"maxMsgNums": "4"}
    pulls = [
        plain(1, 2, **few),
        plain(2, 2, **few, **sql),
        plain(3, 3, **few, **sql),
        plain(4, 4, maxMsgNums="2", **sql),
    ]
    settings = {"enablePropertyFilter": "true"}
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, *pulls]], settings, prepare)
    assert_same_pulls(pure, compiled)
    # The third ends beyond what the first has checked.
    assert compiled.served_bytes == sum(map(len, (pulls[0], pulls[1], pulls[3])))


@needs_compiled
def test_compiled_pulls_failed_read_is_reported_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(broker: Broker) -> None:
        fill(broker, 1)

        def fails(*_: object) -> None:
            raise ResourceShortError("no descriptor")

        store: Any = broker.parts.store
        store.reader._ahead.window = fails

    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, plain(1), plain(2)]], None, prepare)
    assert_same_pulls(pure, compiled)
    assert b"ResourceShortError" in compiled.responses[0]


@needs_compiled
def test_compiled_pulls_per_call_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = b"".join(plain(n, n % 20) for n in range(150))
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, pulls]])
    assert_same_pulls(pure, compiled)
    assert len(pulls) * 9 // 10 < compiled.served_bytes < len(pulls), (
        "the one behind each 64 is not"
    )
    assert len(answers(compiled)) == 150


@pytest.mark.parametrize("pool", ["pull", "litePull"])
def test_compiled_pulls_pools_with_threads_use_python(pool: str) -> None:
    async def scenario(cluster: SimCluster) -> tuple[bool, bool]:
        broker = cluster.brokers[0].broker
        before = broker._pull_runs()
        broker.parts.pools = {**broker.parts.pools, pool: BusinessPool(pool, 1, 100, 0)}
        return before is not None, broker._pull_runs() is None

    assert run_simulation(scenario) == (True, True)
