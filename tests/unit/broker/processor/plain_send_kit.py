"""Two ways through one broker: the same frames with and without the compiled path."""

import asyncio
import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from rocketpy.broker.broker import Broker
from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.broker.feature import DueMessageWriter
from rocketpy.proto.record.message import BatchItem, encode_batch
from rocketpy.remoting.connection.connection import Connection
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from tests.unit.broker.processor.delay_frames import some_delayed
from tests.unit.broker.processor.frames import binary_frame, ext_of, frame, msgpack_frame
from tests.unit.broker.processor.transaction_frames import some_half
from tests.unit.remoting.fakes import FakeTransport

TOPICS = ("first", "second", "%RETRY%group", "multi")
UNIQ_KEY = "7F00000100002A139A1F0000{:08X}"


class Outcome(NamedTuple):
    """Observable state of a broker after frames."""

    responses: list[bytes]
    files: dict[str, bytes]
    arrivals: list[tuple[str, int, int, int]]
    counts: dict[str, tuple[int, int]]
    store: tuple[int, int, int]
    transactions: dict[str, object]
    delivered: dict[int, int]
    served_bytes: int
    due_in_runs: list[int]


def properties_of(rng: random.Random, number: int, odd: float) -> str:
    """Properties of any kind: plain ones mostly."""
    pairs = [("UNIQ_KEY", UNIQ_KEY.format(number)), ("WAIT", rng.choice(("true", "false")))]
    if rng.random() < 0.3:
        pairs.append(("TAGS", rng.choice(("TagA", "a||b", "t" * 300, "#", "Ünï", "日本𝄞"))))
    if rng.random() < 0.3:
        pairs.append(
            (
                "KEYS",
                rng.choice(("k", "k1 k2", " k1  k2 ", " ", "k " * 40, "\u00e9 \uffff", "𝄞")),
            )
        )
    if rng.random() < 0.3:
        name = rng.choice(("color", "q'\"\\/", "x" * 200, "KEY", "XKEYS", "größe"))
        pairs.append((name, rng.choice(('bl"ue\\ /\t', "\x7f\0", "ß€𝄞"))))
    if rng.random() < 0.05 * odd:
        pairs.append((rng.choice(("TRACE_ON", "CLUSTER", "MSG_REGION", "POP_CK")), "true"))
    if rng.random() < 0.03 * odd:
        pairs.append(rng.choice(pairs))
    if rng.random() < 0.03 * odd:
        pairs.append(("", rng.choice(("", "v"))))
    if rng.random() < 0.03 * odd:
        pairs.append(("empty", ""))
    if rng.random() < 0.03 * odd:
        pairs[0] = ("UNIQ_KEY", rng.choice(("with space", "dash-1", "Ü1", "k\x01y")))
    if rng.random() < 0.02 * odd:
        pairs.pop(0)
    rng.shuffle(pairs)
    text = "".join(f"{name}\x01{value}\x02" for name, value in pairs)
    return text[:-1] if rng.random() < 0.03 * odd else text


def some_send(rng: random.Random, number: int, odd: float) -> bytes:
    """A frame: a plain send, a half or what is delayed, with a probability anything else."""
    kind = rng.random()
    make = some_half if kind < 0.1 else some_delayed if kind < 0.2 else _some_plain
    return make(rng, number, odd)


def _some_plain(rng: random.Random, number: int, odd: float) -> bytes:
    fields: dict[str, str] = {}
    header: dict[str, object] = {}
    topic = TOPICS[0] if rng.random() > 0.3 * odd else rng.choice((*TOPICS, "unknown", "ünknown"))
    kind = rng.random() / odd
    if kind < 0.2:
        name = rng.choice("efghijm")
        fields[name] = rng.choice(
            ("", "-1", "4", "007", "+1", " 1", "1_0", "2147483648", "9" * 18, "9" * 19, "1.0")
        )
    elif kind < 0.25:
        fields["f"] = rng.choice(("1", "4", "8", "12", "16", "32", "256", "-2147483648"))
    elif kind < 0.3:
        header["flag"] = rng.choice((1, 2, 3, 4))
    elif kind < 0.33:
        header["opaque"] = rng.choice((-1, 2**31 - 1, -(2**31), "7", None, 1.0))
    elif kind < 0.36:
        header |= rng.choice(({"remark": "x"}, {"language": "GO"}, {"language": 3}, {"new": 1}))
    elif kind < 0.38:
        header["extFields"] = rng.choice((None, {}, {"b": topic}, {"b": 7}))
    elif kind < 0.40:
        fields["longer"] = rng.choice(("name", "ü"))
    elif kind < 0.42:
        return frame(rng.choice((10, 34, 999)), {"clientID": "x"}, b"{}", number)
    ext = ext_of(topic, rng.randrange(4), properties_of(rng, number, odd)) | fields
    body = rng.randbytes(rng.choice((0, 1, 7, 8, 9, 100, 100, 100, 3_000)))
    code = 310
    if rng.random() < 0.25:
        code = rng.choice((320, 320, 320, 310))
        body, ext = batch_body(rng, number, odd), ext | {"m": "true"} | batch_fields(rng, odd)
    if rng.random() < 0.03 * odd:
        body *= 700  # more than a message may have
    if rng.random() < 0.5 and not header.keys() - {"flag"}:
        write = rng.choice((binary_frame, msgpack_frame))
        return write(code, ext, body, number, cast("int", header.get("flag", 0)))
    return frame(code, ext, body, number, ensure_ascii=rng.random() < 0.3, **header)


def batch_fields(rng: random.Random, odd: float) -> dict[str, str]:
    """Header fields of a batch that differ from those of a message."""
    fields = {
        "i": rng.choice(("WAIT\x01true\x02", "WAIT\x01false\x02", "", "UNIQ_KEY\x01OwnId1\x02"))
    }
    if rng.random() < 0.1 * odd:
        fields["i"] = rng.choice(
            ("UNIQ_KEY\x01a b\x02", "TRAN_MSG\x01true\x02", "DELAY\x010\x02", "x")
        )
    if rng.random() < 0.1 * odd:
        fields[rng.choice("dkl")] = rng.choice(("", "7", "-1", "x", "TRUE", "4294967296"))
    return fields


def batch_body(rng: random.Random, number: int, odd: float) -> bytes:
    """The messages of a batch: of one shape, or of any."""
    numbers = range(number * 100, number * 100 + rng.choice((1, 2, 3, 7, 32)))
    size = rng.choice((0, 8, 40, 100))
    if rng.random() < 0.5:
        shared = rng.choice(("", "TAGS\x01a\x02", "color\x01größe\x02"))
        properties = [f"UNIQ_KEY\x01{UNIQ_KEY.format(each)}\x02{shared}" for each in numbers]
    else:
        properties = [properties_of(rng, each, odd / len(numbers)) for each in numbers]
    flags = (0, 0, 7, -1)
    items = [
        BatchItem(rng.choice(flags), rng.randbytes(size), text.encode()) for text in properties
    ]
    body = encode_batch(items)
    if rng.random() < 0.1 * odd:
        at = rng.randrange(len(body) + 1)
        cut = rng.choice((body[:at], body[at:], body + b"\0", b"", body + bytes(22)))
        return cut.replace(b"UNIQ_KEY", b"\xff\xfeIQKEY", rng.randrange(2))
    return body


def cuts(rng: random.Random, data: bytes) -> list[bytes]:
    """Bytes as socket reads would bring them."""
    reads = []
    while data:
        size = rng.choice((1, 10, 500, 3_000, 65_536))
        reads.append(data[:size])
        data = data[size:]
    return reads


async def feed(connection: Connection, reads: Sequence[bytes]) -> bytes:
    transport = FakeTransport()
    connection.connection_made(cast("asyncio.BaseTransport", transport))
    for read in reads:
        if transport.is_closing():
            break
        connection.data_received(read)
        while connection.is_reading_paused and not transport.is_closing():  # noqa: ASYNC110 - a slice is over
            await asyncio.sleep(0)
    await asyncio.wait([connection.gone], timeout=0.02)  # in simulated time
    return b"".join(transport.writes) + b"!" * transport.is_closing()


def count_served(server: Any) -> list[int]:
    """Return one number: the bytes that the compiled path serves from now on, if there is one."""
    handler = server._table.byte_handler
    served = [0]

    def counted(channel: Any, data: bytes) -> tuple[int, bytes]:
        served_bytes, response = handler(channel, data)
        served[0] += served_bytes
        return served_bytes, response

    if handler is not None:
        server._table.byte_handler = counted
    return served


def space_of(left_bytes: int) -> Callable[[SimCluster], None]:
    """Return what leaves the first broker's disk so much space."""

    def leave(cluster: SimCluster) -> None:
        files = cluster.brokers[0].files
        files.capacity_bytes = files.used_bytes + left_bytes

    return leave


def transactions_of(broker: Broker) -> dict[str, object]:
    """Transaction state of a broker: decided halves, op messages, number of open ones."""
    runs: Any = next(each.runs for each in broker.parts.features if each.runs is not None)
    ledger, ops = runs._ledger, runs._ops
    return {
        "states": bytes(ledger._states),
        "unsettled": sorted(ledger._unsettled),
        "to be written": list(ops._pending),
        "op messages": list(ops._written),
        "open": {topic: runs.counts.of(topic) for topic in TOPICS},
    }


class _CountedRuns:
    """Notes how many messages each run delivered."""

    def __init__(self, runs: DueMessageWriter) -> None:
        self._runs = runs
        self.stored: list[int] = []

    def deliver(self, *arguments: Any) -> tuple[int, int]:
        stored, phy_end = self._runs.deliver(*arguments)
        self.stored.append(stored)
        return stored, phy_end


def _delivery_of(broker: Broker) -> Any:
    return next(each for each in broker.parts.loop_services if each.name == "DelayDelivery")


def _delivered(broker: Broker) -> dict[int, int]:
    """Delivered offset of each delay level."""
    offsets = _delivery_of(broker)._offsets
    return {level: offsets.of_level(level).position for level in offsets.levels}


def outcome_of(
    segments: Sequence[Sequence[bytes]],
    properties: dict[str, str] | None = None,
    prepare: Callable[[SimCluster], None] = lambda _: None,
    later_s: float = 0.0,
    between: Callable[[SimCluster, int], None] = lambda _cluster, _number: None,
) -> Outcome:
    """Feed each segment to a broker on a separate connection, and return the observable state.

    Args:
        segments: what is read from each connection.
        properties: settings of the broker.
        prepare: called before.
        later_s: when to look, after all is fed; delayed messages become due meanwhile.
        between: called before each segment, with its number.
    """

    async def scenario(cluster: SimCluster) -> Outcome:
        for topic in TOPICS[:2]:
            cluster.create_topic(topic)
        broker = cluster.brokers[0].broker
        store = broker.parts.store
        arrivals: list[tuple[str, int, int, int]] = []
        store.on_arrival = lambda *arrival: arrivals.append(arrival)
        counts: dict[str, tuple[int, int]] = {}
        server: Any = broker._servers[0]
        selector = server._selectors[0]
        served = count_served(server)
        delivery = _delivery_of(broker)
        runs = None if delivery._runs is None else _CountedRuns(delivery._runs)
        delivery._runs = runs
        prepare(cluster)
        responses = []
        for number, each in enumerate(segments):
            between(cluster, number)
            responses.append(await feed(selector.new_connection("10.0.0.7"), each))
        never = asyncio.get_running_loop().create_future()
        await asyncio.wait([never], timeout=later_s)  # in simulated time
        counts = {
            topic: (count[0], count[1])
            for topic, count in broker.parts.message_counter._stored.items()
        }
        stats = store._parts.stats
        numbers = (stats.put_count, stats.put_bytes, stats.put_failed_count)
        files = cluster.brokers[0].files
        content = {
            str(path): bytes(node.memory)
            for path, node in files._names.items()
            if node is not None and {"commitlog", "consumequeue", "index"} & set(Path(path).parts)
        }
        return Outcome(
            responses,
            content,
            arrivals,
            counts,
            numbers,
            transactions_of(broker),
            _delivered(broker),
            served[0],
            runs.stored if runs else [],
        )

    return run_simulation(scenario, properties=properties)


@contextlib.contextmanager
def pure_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let brokers that are started now serve everything in Python: the reference."""
    with monkeypatch.context() as patched:
        patched.setenv("ROCKETPY_PURE", "1")
        yield


def both_ways(
    monkeypatch: Any,
    segments: Sequence[Sequence[bytes]],
    properties: dict[str, str] | None = None,
    prepare: Callable[[SimCluster], None] = lambda _: None,
    later_s: float = 0.0,
    between: Callable[[SimCluster, int], None] = lambda _cluster, _number: None,
) -> tuple[Outcome, Outcome]:
    """Return what Python makes of frames, and what the compiled path does."""
    with pure_python(monkeypatch):
        pure = outcome_of(segments, properties, prepare, later_s, between)
    assert is_compiled()
    return pure, outcome_of(segments, properties, prepare, later_s, between)


def _told(
    arrivals: Iterable[tuple[str, int, int, int]],
) -> tuple[dict[tuple[str, int], int], set[tuple[str, int, int]]]:
    """Return the announced end and tags of each queue; a bulk announces each tag once."""
    ends: dict[tuple[str, int], int] = {}
    tags = set()
    for topic, queue_id, following, tags_code in arrivals:
        ends[topic, queue_id] = max(following, ends.get((topic, queue_id), 0))
        tags.add((topic, queue_id, tags_code))
    return ends, tags


def assert_same(pure: Outcome, compiled: Outcome, *, has_deletions: bool = False) -> None:
    """Fail with the first thing that differs.

    Args:
        pure: what Python made of the frames.
        compiled: what the compiled path did.
        has_deletions: whether topics were deleted, whose queues began anew.
    """
    assert pure.served_bytes == 0
    for number, (one, other) in enumerate(zip(pure.responses, compiled.responses, strict=True)):
        assert one == other, f"responses of connection {number}"
    assert pure.files.keys() == compiled.files.keys()
    for path, content in pure.files.items():
        assert content == compiled.files[path], path
    assert _told(pure.arrivals) == _told(compiled.arrivals)
    # Where a run ends differs (a read, a frame for Python), so the number of times does too.
    for told in (pure, compiled):
        most = told.store[0] if has_deletions else arrived(told)
        assert len(told.arrivals) <= most, "told more often than there are messages"
    assert pure.counts == compiled.counts
    assert pure.store == compiled.store
    assert pure.transactions == compiled.transactions
    assert pure.delivered == compiled.delivered
    assert pure.due_in_runs == []


def arrived(outcome: Outcome) -> int:
    """Number of messages announced to listeners; a bulk announces each queue once."""
    ends, _ = _told(outcome.arrivals)
    return sum(ends.values())
