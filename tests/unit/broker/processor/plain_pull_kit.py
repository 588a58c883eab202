"""Pulls through one broker both ways: served by Python, and by the compiled path."""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from rocketpy.broker.broker import Broker
from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.proto.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.subscription import build_subscription
from rocketpy.store.results import BatchColumns, BatchEntry, PutBatch
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from tests.unit.broker.processor.frames import binary_frame, frame, msgpack_frame
from tests.unit.broker.processor.plain_send_kit import count_served, feed, pure_python

TOPIC, SPARSE, QUEUES = "pulled", "sparse", 3
TAGS = ("", "red", "green", "blue")
GROUPS = {"all": "*", "some": "red || green", "one": "blue", "none": "black", "lite": "*"}
SUB_VERSION = 7
_ODD_VALUES = (
    *("", "0", "-1", "7", "007", "+1", " 1", "400", "2147483648", "9" * 18, "9" * 19, "a\\b"),
    *("*", SPARSE, "SQL92", "red || || ", "é", "a > 1", "x" * 300, "unknown", "new-group"),
)


class PullOutcome(NamedTuple):
    """Observable state of a broker after pulls."""

    responses: list[bytes]
    offsets: dict[str, Any]
    pulled: dict[Any, dict[int, int]]
    counts: dict[str, tuple[int, int, int]]
    reads: tuple[int, int, int]
    groups: list[str]
    served_bytes: int


def fill(broker: Broker, seed: int, count: int = 400) -> None:
    """Store messages of many sizes and tags, in batches of many lengths, in several queues."""
    rng = random.Random(seed)
    store = broker.parts.store
    left = count
    while left > 0:
        tags = rng.choices(TAGS, k=rng.choice((1, 1, 2, 7, 40)))
        queue = rng.choice((TOPIC, TOPIC, TOPIC, SPARSE)), rng.randrange(QUEUES)
        entries = [
            BatchEntry(
                rng.randbytes(rng.choice((0, 1, 30, 100, 100, 2_000))),
                f"TAGS\x01{tag}\x02".encode() if tag else b"",
                tags_code=tags_code(tag) if tag else 0,
            )
            for tag in tags
        ]
        store.put_batch(PutBatch(*queue, BatchColumns.of(entries)))
        left -= len(tags)


def heartbeat() -> bytes:
    """The first frame of a connection: a client that is a member of every group."""
    consumers = [
        ConsumerData(
            group_name=group,
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            subscription_data_set=[
                build_subscription(topic, expression, "TAG", sub_version=SUB_VERSION)
                for topic in (TOPIC, SPARSE)
            ],
        )
        for group, expression in GROUPS.items()
    ]
    body = HeartbeatData(client_id="client", consumer_data_set=consumers).encode()
    return frame(34, {}, body, 0)


def some_pull(rng: random.Random, number: int, odd: float, **fields: str) -> bytes:
    """A frame: mostly a pull that finds something, with a probability anything else."""
    ext = {
        "consumerGroup": rng.choice(tuple(GROUPS)),
        "topic": TOPIC,
        "queueId": str(rng.randrange(QUEUES)),
        "queueOffset": str(rng.randrange(120)),
        "maxMsgNums": rng.choice(("1", "3", "32", "32", "32", "1000")),
        "sysFlag": rng.choice(("0", "1", "2", "3", "3")),
        "commitOffset": str(rng.randrange(90)),
        "suspendTimeoutMillis": "15000",
        "subVersion": "0",
        "expressionType": "TAG",
        "bname": "broker-a",
    }
    if rng.random() < 0.3:
        ext["maxMsgBytes"] = rng.choice(("1", "500", "5000", "0", "-1", "2147483647"))
    if rng.random() < 0.3:
        ext |= {"sysFlag": "4", "subscription": rng.choice(("*", "red", "red||blue", "", "a||b"))}
    ext |= fields
    header: dict[str, Any] = {}
    code = rng.choice((11, 11, 11, 361))
    if rng.random() < odd:
        name = rng.choice((*ext, "subscription", "maxMsgBytes", "other"))
        ext[name] = rng.choice(_ODD_VALUES)
    if rng.random() < 0.3 * odd:
        ext.pop(rng.choice(tuple(ext)))
    if rng.random() < 0.2 * odd:
        header["flag"] = rng.choice((1, 2, 3, 4))
    if rng.random() < 0.1 * odd:
        code = rng.choice((10, 34, 310, 12, 9_999))
    if rng.random() < 0.5 and not header:
        return rng.choice((binary_frame, msgpack_frame))(code, ext, b"", number)
    return frame(code, ext, rng.choice((b"", b"", b"body")), number, **header)


def pull_outcome_of(
    segments: Sequence[Sequence[bytes]],
    properties: dict[str, str] | None = None,
    prepare: Callable[[Broker], None] = lambda broker: fill(broker, 1),
) -> PullOutcome:
    """Fill a broker, feed each segment on a separate connection, and return the state."""

    async def scenario(cluster: SimCluster) -> PullOutcome:
        for topic in (TOPIC, SPARSE):
            cluster.create_topic(topic, QUEUES)
        broker = cluster.brokers[0].broker
        prepare(broker)
        server: Any = broker._servers[0]
        served = count_served(server)
        selector = server._selectors[0]
        responses = [await feed(selector.new_connection("10.0.0.7"), each) for each in segments]
        parts = broker.parts
        offsets: Any = parts.offsets
        counters: Any = parts.stats._group_get
        numbers: Any = parts.store._stats
        return PullOutcome(
            responses,
            offsets.to_json() | {"dataVersion": None},
            {key: dict(queues) for key, queues in offsets._pulled.queues.items()},
            {
                key: (one.times, one.count, one.size_bytes)
                for key, one in counters._counters.items()
            },
            (numbers.get_found_count, numbers.transferred_count, numbers.get_missed_count),
            sorted(parts.groups.all()),
            served[0],
        )

    return run_simulation(scenario, properties=properties)


def pulled_both_ways(
    monkeypatch: pytest.MonkeyPatch,
    segments: Sequence[Sequence[bytes]],
    properties: dict[str, str] | None = None,
    prepare: Callable[[Broker], None] = lambda broker: fill(broker, 1),
) -> tuple[PullOutcome, PullOutcome]:
    """Return what Python makes of frames, and what the compiled path does."""
    with pure_python(monkeypatch):
        pure = pull_outcome_of(segments, properties, prepare)
    assert is_compiled()
    return pure, pull_outcome_of(segments, properties, prepare)


def assert_same_pulls(pure: PullOutcome, compiled: PullOutcome) -> None:
    """Fail with the first thing that differs."""
    assert pure.served_bytes == 0
    for number, (one, two) in enumerate(zip(pure.responses, compiled.responses, strict=True)):
        assert one == two, f"responses of connection {number}"
    assert pure == compiled._replace(served_bytes=0)
