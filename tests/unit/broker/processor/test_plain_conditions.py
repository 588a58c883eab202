"""Pulls with an SQL92 condition on the compiled path: the same responses as in Python."""

import random
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest

from rocketpy.broker.broker import Broker
from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.proto.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketpy.proto.record.message import decode_messages
from rocketpy.proto.record.record import MAGIC_V1, MAGIC_V2
from rocketpy.proto.record.sys_flag import BORN_HOST_V6, STORE_HOST_V6
from rocketpy.proto.subscription import build_subscription
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.sql92.condition import Condition
from rocketpy.store.results import BatchColumns, BatchEntry, PutBatch
from tests.sampling import sample
from tests.unit.broker.processor.frames import frame
from tests.unit.broker.processor.plain_pull_kit import (
    QUEUES,
    SPARSE,
    SUB_VERSION,
    TOPIC,
    PullOutcome,
    assert_same_pulls,
    pull_outcome_of,
    pulled_both_ways,
    some_pull,
)
from tests.unit.broker.processor.plain_send_kit import cuts

needs_compiled = pytest.mark.skipif(
    not is_compiled(), reason="the compiled path is not installed, or switched off"
)
EXPRESSIONS: Final = (
    *("a BETWEEN 0 AND 2 AND carrier IN ('UA', 'AA')", "a > 5", "a IS NULL", "a IS NOT NULL"),
    *("b = 'x'", "a = 1 OR b IN ('x', 'y')", "carrier CONTAINS 'A'", "NOT (a < 3)", "ab = 1"),
    *("a IS NULL OR a IS NOT NULL", "a > 1000000", "TAGS = 'red'", "1 = 1", "1 = 2", "b = 'é'"),
    *("a > 1.5 OR b = TRUE", "a = b", "none IS NULL AND a < 2", "a <>", "' = '", "n < 40"),
    " OR ".join(f"{name} = '1'" for name in ("a", "b", "ab", "carrier", "p", "q", "r", "s", "t")),
)
_VALUES: Final = (
    *(b"", b"0", b"1", b"2", b"3", b"7", b"9", b"10", b"-1", b"+1", b"1.5", b" 1", b"x", b"y"),
    *(b"UA", b"AA", b"true", "é".encode(), b"\xff\xfe", b"a\x011", b"1\x01", b"red", b"x" * 70),
    *(b"9" * 30, b"z" * 300),
)
_NAMES: Final = (b"a", b"a", b"a", b"b", b"ab", b"carrier", b"carrier", b"TAGS", b"", b"A", b"t")
Prepare = Callable[[Broker], None]


def heartbeat() -> bytes:
    """The first frame of a connection: a member of a group for each expression that is one."""
    consumers = [
        ConsumerData(
            group_name=f"by-{number}",
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=[
                build_subscription(TOPIC, expression, "SQL92", sub_version=SUB_VERSION)
            ],
        )
        for number, expression in enumerate(EXPRESSIONS)
    ]
    return frame(34, {}, HeartbeatData(client_id="client", consumer_data_set=consumers).encode(), 0)


FIRST = heartbeat()


def some_properties(rng: random.Random, number: int) -> bytes:
    """Mostly those of an ordinary producer; else missing, doubled, empty or odd ones."""
    if rng.random() < 0.5:
        carrier = rng.choice((b"UA", b"AA"))
        return b"UNIQ_KEY\x01%032d\x02a\x01%d\x02carrier\x01%b\x02n\x01%d\x02" % (
            *(number, number % 10, carrier, number),
        )
    pairs = [
        rng.choice(_NAMES) + rng.choice((b"\x01", b"\x01", b"\x01", b"\x01", b"")) + value
        for value in rng.choices(_VALUES, k=rng.choice((0, 1, 2, 4, 8)))
    ]
    return b"\x02".join(pairs) + rng.choice((b"\x02", b"\x02", b"", b"\x02\x02"))


def put(
    broker: Broker,
    properties: Sequence[bytes],
    body_bytes: int = 20,
    topic: str = TOPIC,
    queue_id: int = 0,
    **fields: Any,
) -> None:
    entries = [BatchEntry(b"x" * body_bytes, each) for each in properties]
    broker.parts.store.put_batch(PutBatch(topic, queue_id, BatchColumns.of(entries), **fields))


def change(broker: Broker, queue_offset: int, change_one: Callable[[memoryview], None]) -> None:
    """Change a record of queue 0 where it lies."""
    store: Any = broker.parts.store
    phy_offset, size, _ = store.queue_entry(TOPIC, 0, queue_offset)
    view, base, _ = store._log.written_part(phy_offset)
    with memoryview(view.obj) as buffer:
        change_one(buffer[phy_offset - base : phy_offset - base + size])


def fill(broker: Broker, seed: int, count: int = 600) -> None:
    """Store messages with properties in several queues, some from hosts with long addresses."""
    rng = random.Random(seed)
    number = 0
    while number < count:
        size = rng.choice((1, 1, 7, 40))
        fields: dict[str, Any] = {}
        if rng.random() < 0.2:
            fields = {"born_host": bytes(20), "sys_flag": BORN_HOST_V6}
        if rng.random() < 0.2:
            fields["store_host"] = bytes(20)
            fields["sys_flag"] = fields.get("sys_flag", 0) | STORE_HOST_V6
        put(
            broker,
            [some_properties(rng, number + each) for each in range(size)],
            rng.choice((0, 1, 100, 100, 2_000)),
            rng.choice((TOPIC, TOPIC, TOPIC, SPARSE)),
            rng.randrange(QUEUES),
            **fields,
        )
        number += size


def some_segments(rng: random.Random, count: int = 60) -> list[list[bytes]]:
    """Pulls on three connections, from hardly odd to odd."""
    segments = []
    for part, odd in enumerate((0.0, 0.05, 0.3)):
        frames = []
        for number in range(part * count, (part + 1) * count):
            which = rng.randrange(len(EXPRESSIONS))
            fields = {"expressionType": "SQL92", "queueOffset": str(rng.randrange(180))}
            if rng.random() < 0.5:
                fields |= {"sysFlag": rng.choice("4567"), "subscription": EXPRESSIONS[which]}
            else:
                fields["consumerGroup"] = f"by-{which}"
            frames.append(some_pull(rng, number, odd, **fields))
        segments.append([FIRST, *cuts(rng, b"".join(frames))])
    return segments


def by(expression: str, number: int = 1, queue_offset: int = 0, **fields: str) -> bytes:
    """A pull of the messages of queue 0 that meet a condition."""
    ext = {
        "consumerGroup": "all",
        "topic": TOPIC,
        "queueId": "0",
        "queueOffset": str(queue_offset),
        "maxMsgNums": "32",
        "sysFlag": "5",
        "commitOffset": "5",
        "suspendTimeoutMillis": "0",
        "subVersion": "0",
        "subscription": expression,
        "expressionType": "SQL92",
    }
    return frame(11, ext | fields, b"", number)


def answers(outcome: PullOutcome) -> list[RemotingCommand]:
    found = [CommandReader().feed(data.removesuffix(b"!")) for data in outcome.responses]
    return [answer for each in found for answer in each if answer.ext_fields.get("maxOffset")]


def numbered(count: int) -> list[bytes]:
    return [b"n\x01%d\x02" % number for number in range(count)]


def pulled(
    monkeypatch: pytest.MonkeyPatch,
    pulls: Sequence[bytes],
    prepare: Prepare,
    properties: dict[str, str] | None = None,
) -> PullOutcome:
    """Return the result of pulls, which must be equal for both paths."""
    pure, compiled = pulled_both_ways(monkeypatch, [[FIRST, *pulls]], properties, prepare)
    assert_same_pulls(pure, compiled)
    return compiled


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(8), 3))
def test_compiled_conditions_any_pulls_in_any_chunks_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    segments = some_segments(random.Random(seed))
    pure, compiled = pulled_both_ways(
        monkeypatch, segments, prepare=lambda broker: fill(broker, seed)
    )
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes > 5_000
    assert pure.reads[0] > 30
    codes = {answer.code for answer in answers(pure)}
    assert codes >= {0, ResponseCode.PULL_RETRY_IMMEDIATELY}


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(100, 104), 3))
def test_compiled_conditions_many_small_files_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    small = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "400"}
    segments = some_segments(random.Random(seed))
    pure, compiled = pulled_both_ways(
        monkeypatch, segments, small, lambda broker: fill(broker, seed)
    )
    assert_same_pulls(pure, compiled)
    assert compiled.served_bytes > 500


@needs_compiled
@pytest.mark.parametrize(
    "settings",
    [
        {"maxTransferCountOnMessageInMemory": "5"},
        {"maxTransferBytesOnMessageInMemory": "1000"},
        {"maxFilterMessageSize": "400"},
        {"enablePropertyFilter": "false"},
        {"accessMessageInMemoryMaxRatio": "0"},
    ],
    ids=str,
)
def test_compiled_conditions_settings_equal_python(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    segments = some_segments(random.Random(3), 40)
    pure, compiled = pulled_both_ways(monkeypatch, segments, settings, lambda each: fill(each, 3))
    assert_same_pulls(pure, compiled)


@needs_compiled
@pytest.mark.parametrize("seed", sample(range(200, 212), 3))
def test_compiled_conditions_damaged_records_use_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Damage in numbers that say where things are, in separators, or anywhere."""

    def prepare(broker: Broker) -> None:
        fill(broker, seed, 300)
        rng = random.Random(seed)

        def damage(record: memoryview) -> None:
            size = len(record)
            place = rng.choice((7, 36, 39, 84, 87, 99, 100, size - 1, rng.randrange(size)))
            record[place % size] ^= rng.choice((1, 2, 16, 128, 255))

        for at in range(0, broker.parts.store.max_offset(TOPIC, 0), 3):
            change(broker, at, damage)

    segments = some_segments(random.Random(seed), 30)
    pure, compiled = pulled_both_ways(monkeypatch, segments, prepare=prepare)
    assert_same_pulls(pure, compiled)


@needs_compiled
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_compiled_conditions_complete_queue_equals_python(
    monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    pulls = [by(expression, at, at) for at in range(0, 200, 9)]
    compiled = pulled(monkeypatch, pulls, lambda broker: fill(broker, 7, 700))
    is_left = expression in {"a <>", "' = '"} or len(expression) > 100
    assert (compiled.served_bytes == 0) == is_left


@needs_compiled
@pytest.mark.parametrize("host_flags", [0, BORN_HOST_V6, STORE_HOST_V6, 0x30])
@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
def test_compiled_conditions_each_record_layout_equals_python(
    monkeypatch: pytest.MonkeyPatch, magic: int, host_flags: int
) -> None:
    def prepare(broker: Broker) -> None:
        born_host = bytes(20 if host_flags & BORN_HOST_V6 else 8)
        store_host = bytes(20 if host_flags & STORE_HOST_V6 else 8)
        hosts: dict[str, Any] = {
            "born_host": born_host,
            "store_host": store_host,
            "sys_flag": host_flags,
        }
        put(broker, numbered(100), **hosts)
        if magic == MAGIC_V2:
            for at in range(100):
                change(broker, at, widen)

    def widen(record: memoryview) -> None:
        """Give the topic's length a second byte, and the topic one less."""
        at = bytes(record).index(bytes((len(TOPIC),)) + TOPIC.encode())
        record[at : at + 1 + len(TOPIC)] = bytes((0, len(TOPIC) - 1)) + TOPIC[1:].encode()
        record[4:8] = struct.pack(">i", MAGIC_V2)

    pull = by("n BETWEEN 10 AND 30 OR n = 99")
    compiled = pulled(monkeypatch, [pull], prepare)
    (answer,) = answers(compiled)
    found = [message.queue_offset for message in decode_messages(answer.body)]
    assert found == [*range(10, 31), 99]
    assert compiled.served_bytes == len(pull)


@needs_compiled
def test_compiled_conditions_no_match_within_limit_equals_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pulls = [by("n < 0", 1), by("n < 0", 2, 800), by("n < 0", 3, 900), by("n >= 999", 4, 900)]
    compiled = pulled(monkeypatch, pulls, lambda broker: put(broker, numbered(1_000)))
    assert [
        (answer.code, answer.ext_fields["nextBeginOffset"]) for answer in answers(compiled)
    ] == [
        (ResponseCode.PULL_RETRY_IMMEDIATELY, "800"),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, "1000"),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, "1000"),
        (ResponseCode.SUCCESS, "1000"),
    ]
    assert compiled.served_bytes == sum(map(len, pulls))


@needs_compiled
def test_compiled_conditions_continued_read_uses_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries of one file are all left out, and the read may look at more."""
    pull = by("n >= 150")
    small = {"mappedFileSizeConsumeQueue": "2000"}

    def prepare(broker: Broker) -> None:
        put(broker, numbered(200))
        store: Any = broker.parts.store
        store._table.get(TOPIC, 0).flush()
        store._table.get(TOPIC, 0).settle()

    compiled = pulled(monkeypatch, [pull], prepare, small)
    assert len(decode_messages(answers(compiled)[0].body)) == 32
    assert compiled.served_bytes == 0


@needs_compiled
def test_compiled_conditions_many_skipped_bytes_use_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(broker: Broker) -> None:
        for each in numbered(120):
            put(broker, [each], 40_000)

    pulls = [by("n >= 110", 1), by("n >= 110", 2, 40)]
    large = {"mappedFileSizeCommitLog": str(8 << 20)}
    compiled = pulled(monkeypatch, pulls, prepare, large)
    assert compiled.served_bytes == len(pulls[1])


@needs_compiled
def test_compiled_conditions_ineligible_records_equal_python(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records after a full response do not matter, earlier ones do."""

    def prepare(broker: Broker) -> None:
        put(broker, numbered(100))
        change(broker, 50, damage)

    def damage(record: memoryview) -> None:
        record[7] ^= 1

    pulls = [by("n >= 0", 1), by("n >= 0", 2, 18), by("n >= 0", 3, 19), by("n >= 0", 4, 51)]
    compiled = pulled(monkeypatch, pulls, prepare)
    assert compiled.served_bytes == sum(map(len, (pulls[0], pulls[1], pulls[3])))


@needs_compiled
def test_compiled_conditions_records_per_call_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    pulls = b"".join(by("n >= 399", n) for n in range(8))
    compiled = pulled(monkeypatch, [pulls], lambda broker: put(broker, numbered(400)))
    assert len(answers(compiled)) == 8
    assert len(pulls) * 6 // 8 <= compiled.served_bytes < len(pulls), "the one behind three is not"


@needs_compiled
def test_compiled_conditions_expensive_condition_checks_fewer_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that a pull that finds nothing holds up no others: 32 of 800, and one pull a call."""
    long = " OR ".join(f"n = {number}.5" for number in range(256))
    pulls = b"".join(by(long, n, 32 * n) for n in range(4))
    compiled = pulled(monkeypatch, [pulls], lambda broker: put(broker, numbered(400)))
    following = [answer.ext_fields["nextBeginOffset"] for answer in answers(compiled)]
    assert following == ["32", "64", "96", "128"]
    assert 0 < compiled.served_bytes < len(pulls)


@needs_compiled
def test_compiled_conditions_same_values_are_evaluated_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows: list[tuple[bytes, ...]] = []
    real = Condition.match_values

    def match_values(self: Condition, given: Any) -> list[bool]:
        rows.extend(given)
        return real(self, given)

    monkeypatch.setattr(Condition, "match_values", match_values)
    same = [b"a\x01%d\x02b\x01%b\x02" % (n % 5, b"x" * (n % 3)) for n in range(100)]
    pulls = [by("a = 1 AND b = 'xx'", number) for number in range(2)]
    compiled = pull_outcome_of([[FIRST, *pulls]], prepare=lambda broker: put(broker, same))
    assert compiled.served_bytes == sum(map(len, pulls))
    once = [(b"%d" % a, b"x" * b) for a in range(5) for b in range(3)]
    assert sorted(rows) == sorted(2 * once)
