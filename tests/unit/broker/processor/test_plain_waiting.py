"""Suspended pulls on the compiled path: held, resumed and answered as in Python."""

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import pytest

from rocketpy.broker.broker import Broker
from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.broker.fast_path.pull_service import PlannedPullReply
from rocketpy.proto.bodies.group import SubscriptionGroupConfig
from rocketpy.proto.record.message import BatchItem, decode_messages, encode_batch
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from tests.sampling import sample
from tests.unit.broker.processor.frames import binary_frame, ext_of, frame, msgpack_frame
from tests.unit.broker.processor.plain_pull_kit import (
    GROUPS,
    QUEUES,
    SUB_VERSION,
    TAGS,
    TOPIC,
    heartbeat,
)
from tests.unit.broker.processor.plain_send_kit import UNIQ_KEY, count_served, pure_python
from tests.unit.remoting.fakes import FakeTransport

pytestmark = pytest.mark.skipif(
    not is_compiled(), reason="the compiled path is not installed, or switched off"
)
FIRST = heartbeat()


class Waited(NamedTuple):
    """Observable state of a broker with suspended pulls."""

    responses: list[list[bytes]]
    offsets: dict[str, Any]
    pulled: dict[Any, dict[int, int]]
    counts: dict[str, tuple[int, int, int]]
    reads: tuple[int, int, int]
    held: tuple[int, int]
    served_bytes: int


def frames_in(data: bytes) -> list[bytes]:
    """Sorted responses: a bulk announces each tag once and therefore resumes in another order."""
    found = []
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        found.append(data[:size])
        data = data[size:]
    return sorted(found)


class Peers:
    """Connections to a broker, by number."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._server: Any = broker._servers[0]
        self.transports: list[FakeTransport] = []
        self._connections: list[Any] = []
        self.served = count_served(self._server)

    def open(self) -> int:
        """Connect as a member of every group."""
        connection = self._server._selectors[0].new_connection("10.0.0.7")
        self.transports.append(FakeTransport())
        self._connections.append(connection)
        connection.connection_made(cast("asyncio.BaseTransport", self.transports[-1]))
        connection.data_received(FIRST)
        return len(self._connections) - 1

    async def feed(self, number: int, *frames: bytes) -> None:
        """Have frames come in one read, and what follows from them happen."""
        self._connections[number].data_received(b"".join(frames))
        await self.wait(0.001)

    async def lose(self, number: int) -> None:
        """Have a connection break."""
        self._server._selectors[0]._ips.pop(self._connections[number])  # nobody admitted it
        self._connections[number].connection_lost(None)
        await self.wait(0.001)

    async def wait(self, seconds: float) -> None:
        """Let simulated time pass."""
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)

    def end_of(self, queue_id: int) -> int:
        """Return the end of a queue."""
        return self.broker.parts.store.max_offset(TOPIC, queue_id)

    def outcome(self) -> Waited:
        """Look at what is left."""
        parts = self.broker.parts
        offsets: Any = parts.offsets
        numbers: Any = parts.store._stats
        counters: Any = parts.stats._group_get
        held = parts.suspended_pulls
        return Waited(
            [frames_in(b"".join(each.writes)) for each in self.transports],
            offsets.to_json() | {"dataVersion": None},
            {key: dict(queues) for key, queues in offsets._pulled.queues.items()},
            {
                key: (one.times, one.count, one.size_bytes)
                for key, one in counters._counters.items()
            },
            (numbers.get_found_count, numbers.transferred_count, numbers.get_missed_count),
            (held.count, held.size_bytes),
            self.served[0],
        )


def pull(number: int, queue_offset: int, queue_id: int = 0, **fields: str) -> dict[str, str]:
    return {
        "consumerGroup": "all",
        "topic": TOPIC,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": "32",
        "sysFlag": "3",
        "commitOffset": str(number % 7),
        "suspendTimeoutMillis": "15000",
        "subVersion": str(SUB_VERSION),
        "expressionType": "TAG",
    } | fields


def send(number: int, queue_id: int = 0, tag: str = "") -> bytes:
    tags = f"TAGS\x01{tag}\x02" if tag else ""
    properties = f"UNIQ_KEY\x01{UNIQ_KEY.format(number)}\x02{tags}"
    return frame(310, ext_of(TOPIC, queue_id, properties), b"x" * (number % 50), number)


def batch(number: int, queue_id: int, tags: Sequence[str]) -> bytes:
    items = [
        BatchItem(
            0, b"b", f"UNIQ_KEY\x01{UNIQ_KEY.format(number + n)}\x02TAGS\x01{tag}\x02".encode()
        )
        for n, tag in enumerate(tags)
    ]
    return frame(320, ext_of(TOPIC, queue_id, "", m="true"), encode_batch(items), number)


def group(name: str, **fields: object) -> bytes:
    return frame(200, {}, SubscriptionGroupConfig(name, **fields).encode(), 9_999)  # type: ignore[arg-type]


def waited(scenario: Any, properties: dict[str, str] | None = None) -> Waited:
    async def run(cluster: SimCluster) -> Waited:
        cluster.create_topic(TOPIC, QUEUES)
        peers = Peers(cluster.brokers[0].broker)
        producer = peers.open()
        for queue_id in range(QUEUES):
            await peers.feed(producer, send(queue_id, queue_id, "red"))
        await scenario(peers)
        return peers.outcome()

    return run_simulation(run, properties=properties)


def both_wait(
    monkeypatch: pytest.MonkeyPatch, scenario: Any, properties: dict[str, str] | None = None
) -> Waited:
    """Return what is left, which is the same both ways."""
    with pure_python(monkeypatch):
        pure = waited(scenario, properties)
    compiled = waited(scenario, properties)
    for number, (one, other) in enumerate(zip(pure.responses, compiled.responses, strict=True)):
        assert one == other, f"responses of connection {number}"
    assert pure.served_bytes == 0
    assert pure == compiled._replace(served_bytes=0)
    return compiled


def answers(outcome: Waited, number: int) -> list[RemotingCommand]:
    found = CommandReader().feed(b"".join(outcome.responses[number]))
    return [each for each in found if each.is_response and each.ext_fields.get("maxOffset")]


async def some_steps(seed: int, peers: Peers) -> None:
    """Pulls at the end of queues and what ends their waiting, in any order."""
    rng = random.Random(seed)
    consumers = [peers.open() for _ in range(3)]
    for number in range(100, 300):
        queue_id, kind = rng.randrange(QUEUES), rng.random()
        if kind < 0.5:
            await peers.feed(rng.choice(consumers), *_pulls(rng, number, peers))
        elif kind < 0.75:
            sends = [send(number * 10 + n, queue_id, rng.choice(TAGS)) for n in range(3)]
            await peers.feed(0, *sends[: rng.choice((1, 1, 3))])
        elif kind < 0.8:
            await peers.feed(0, batch(number * 10, queue_id, rng.choices(TAGS[1:], k=5)))
        elif kind < 0.9:
            await peers.wait(rng.choice((0.01, 0.4, 2.5)))
        elif kind < 0.93:
            await peers.feed(0, group("all", consume_enable=rng.random() < 0.7))
        elif kind < 0.96:
            await peers.feed(0, group("some", group_sys_flag=rng.randrange(3)))
        else:
            await peers.lose(consumers.pop(0))
            consumers.append(peers.open())
    await peers.wait(40)


def _pulls(rng: random.Random, number: int, peers: Peers) -> list[bytes]:
    found = []
    for each in range(rng.choice((1, 1, 3))):
        queue_id = rng.randrange(QUEUES)
        offset = peers.end_of(queue_id) + rng.choice((0, 0, 0, 0, 0, -1, 1))
        fields = {
            "consumerGroup": rng.choice(tuple(GROUPS)),
            "sysFlag": rng.choice(("3", "3", "3", "2", "1", "0")),
            "suspendTimeoutMillis": rng.choice(("15000", "300", "0", "-5", "99999999")),
            "maxMsgNums": rng.choice(("1", "32")),
        }
        if rng.random() < 0.3:
            expression = rng.choice(("*", "red", "red||blue", "green"))
            fields |= {"sysFlag": "6", "subscription": expression}
        write = rng.choice((frame, frame, binary_frame, msgpack_frame))
        ext = pull(number, offset, queue_id, **fields)
        found.append(write(rng.choice((11, 11, 361)), ext, b"", number * 10 + each))
    return found


@pytest.mark.parametrize("seed", sample(range(12), 3))
def test_compiled_waiting_any_pulls_and_arrivals_equal_python(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    outcome = both_wait(monkeypatch, partial(some_steps, seed))
    assert outcome.held == (0, 0)
    assert outcome.served_bytes > 20_000


@pytest.mark.parametrize(
    "properties",
    [
        {"longPollingEnable": "false"},
        {"maxHeldPulls": "3"},
        {"maxHeldPullsPerQueue": "1"},
        {"flushDiskType": "SYNC_FLUSH"},
        {"mappedFileSizeCommitLog": "4096", "mappedFileSizeConsumeQueue": "400"},
    ],
)
def test_compiled_waiting_settings_equal_python(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    both_wait(monkeypatch, partial(some_steps, 50), properties)


def test_compiled_waiting_pull_is_suspended_and_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    frames = [frame(11, pull(1, 1), b"", 7), send(50), frame(11, pull(2, 2), b"", 8)]

    async def scenario(peers: Peers) -> None:
        consumer = peers.open()
        await peers.feed(consumer, frames[0])
        assert peers.broker.parts.suspended_pulls.count == 1
        assert peers.served[0] in {0, len(frames[0])}
        await peers.feed(0, frames[1])
        assert peers.broker.parts.suspended_pulls.count == 0
        await peers.feed(consumer, frames[2])
        await peers.wait(16)

    outcome = both_wait(monkeypatch, scenario)
    assert outcome.served_bytes == sum(map(len, frames))
    found, empty = sorted(answers(outcome, 1), key=lambda answer: answer.opaque)
    assert (found.opaque, found.code) == (7, ResponseCode.SUCCESS)
    assert [message.queue_offset for message in decode_messages(found.body)] == [1]
    assert (empty.opaque, empty.code) == (8, ResponseCode.PULL_NOT_FOUND)


def test_compiled_waiting_lost_permission_is_refused_on_resume(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(peers: Peers) -> None:
        consumer = peers.open()
        await peers.feed(consumer, frame(11, pull(1, 1), b"", 7))
        await peers.feed(0, group("all", consume_enable=False))
        await peers.feed(0, send(50))

    outcome = both_wait(monkeypatch, scenario)
    refused = [
        each for each in CommandReader().feed(b"".join(outcome.responses[1])) if each.opaque == 7
    ]
    assert [each.code for each in refused] == [ResponseCode.NO_PERMISSION]


def test_compiled_waiting_failed_answer_falls_back_to_python(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_arguments: object) -> bytes:
        raise ValueError("simulated failure")

    async def scenario(peers: Peers) -> None:
        consumer = peers.open()
        await peers.feed(consumer, frame(11, pull(1, 1), b"", 7))
        runs: Any = next(iter(peers.broker.parts.suspended_pulls._by_owner.values()), None)
        for held in () if runs is None else runs.entries:
            if isinstance(held.reply, PlannedPullReply):
                monkeypatch.setattr(held.reply.service, "answer", fail)
        await peers.feed(0, send(50))

    outcome = both_wait(monkeypatch, scenario)
    (found,) = answers(outcome, 1)
    assert found.code == ResponseCode.SUCCESS
    assert len(decode_messages(found.body)) == 1
    assert "compiled pull failed" in caplog.text
