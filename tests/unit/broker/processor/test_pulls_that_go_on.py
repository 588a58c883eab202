"""Continuing pulls are served by comparisons with the plan; the store may change in between."""

import asyncio
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from rocketpy.broker.broker import Broker
from rocketpy.broker.fast_path.compiled_path import is_compiled
from rocketpy.broker.fast_path.pull_service import FastPullService
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.testing.sim_cluster import SimCluster, run_simulation
from tests.sampling import sample
from tests.unit.broker.processor.frames import binary_frame, frame
from tests.unit.broker.processor.plain_pull_kit import (
    QUEUES,
    SPARSE,
    SUB_VERSION,
    TOPIC,
    fill,
    heartbeat,
)
from tests.unit.broker.processor.plain_send_kit import pure_python
from tests.unit.remoting.fakes import FakeTransport

needs_compiled = pytest.mark.skipif(
    not is_compiled(), reason="the compiled path is not installed, or switched off"
)
SMALL = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "4000"}
Change = Callable[[Broker, random.Random], None]
"""What befalls a broker between two pulls."""


def nothing(_broker: Broker, _rng: random.Random) -> None:
    """Most pulls come with nothing in between."""


def more(broker: Broker, rng: random.Random) -> None:
    """New messages: the tail of a queue is another memory, the log may begin another file."""
    fill(broker, rng.randrange(1 << 30), rng.choice((1, 5, 60, 300)))


def to_disk(broker: Broker, rng: random.Random) -> None:
    """Move entries from memory to a file, and free the memory."""
    store: Any = broker.parts.store
    queue = store._table.get(TOPIC, rng.randrange(QUEUES))
    if queue is not None:
        queue.flush()
        queue.settle()


def first_file_goes(broker: Broker, _rng: random.Random) -> None:
    """Retention: a file of the log, and then what it held in the queues."""
    store: Any = broker.parts.store
    log = store._log
    if len(log.files) > 2:
        log.delete_oldest()
        for queue_id in range(QUEUES):
            queue = store._table.get(TOPIC, queue_id)
            if queue is not None:
                while queue.min_offset < queue.max_offset:
                    if queue.entry(queue.min_offset)[0] >= log.min_phy_offset:
                        break
                    queue.min_offset += 1


def only_the_log_goes(broker: Broker, _rng: random.Random) -> None:
    """The moment in between: queues name messages that are no longer there."""
    log: Any = cast("Any", broker.parts.store)._log
    if len(log.files) > 2:
        log.delete_oldest()


def damage(broker: Broker, rng: random.Random) -> None:
    """A record turns out to be damaged."""
    store: Any = broker.parts.store
    queue = store._table.get(TOPIC, rng.randrange(QUEUES))
    if queue is not None and queue.max_offset > queue.min_offset:
        entry = queue.entry(rng.randrange(queue.min_offset, queue.max_offset))
        store._log.report_damage(entry[0], "for a test")


def deleted(broker: Broker, rng: random.Random) -> None:
    """The topic goes, and comes back with other messages; the same name, other queues."""
    store: Any = broker.parts.store
    store.delete_topics([TOPIC])
    fill(broker, rng.randrange(1 << 30), 200)


def reset(broker: Broker, rng: random.Random) -> None:
    """An offset waits to be delivered, also to a group that never pulls."""
    group = rng.choice(("all", "some", "never seen"))
    broker.parts.offsets.assign_reset(group, TOPIC, rng.randrange(QUEUES), rng.randrange(50))


CHANGES = {
    "more messages": more,
    "entries to the disk": to_disk,
    "a file goes": first_file_goes,
    "only the log's file goes": only_the_log_goes,
    "damage": damage,
    "deleted": deleted,
    "a reset": reset,
}


def pull(
    group: str, queue_id: int, queue_offset: int, number: int, binary: bool, waits_ms: int = 0
) -> bytes:
    ext = {
        "consumerGroup": group,
        "topic": TOPIC,
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        "maxMsgNums": "9",
        "sysFlag": "3" if waits_ms else "1",
        "commitOffset": str(queue_offset),
        "suspendTimeoutMillis": str(waits_ms),
        "subVersion": str(SUB_VERSION),
        "expressionType": "TAG",
    }
    return (binary_frame if binary else frame)(11, ext, b"", number)


def consumed(
    seed: int, changes: Sequence[Change], properties: dict[str, str], often: float
) -> tuple[list[RemotingCommand], dict[Any, Any], Any]:
    """Drain queues for two groups while a broker changes; responses, offsets and counts."""

    async def scenario(cluster: SimCluster) -> tuple[list[RemotingCommand], dict[Any, Any], Any]:
        rng = random.Random(seed)
        for topic in (TOPIC, SPARSE):
            cluster.create_topic(topic, QUEUES)
        broker = cluster.brokers[0].broker
        fill(broker, seed)
        server: Any = broker._servers[0]
        connection = server._selectors[0].new_connection("10.0.0.7")
        transport = FakeTransport()
        connection.connection_made(transport)
        connection.data_received(heartbeat())
        places = {(group, queue): 0 for group in ("all", "some") for queue in range(QUEUES)}
        found: list[RemotingCommand] = []
        for number in range(1, 400):
            group, queue = place = rng.choice(list(places))
            transport.writes.clear()
            binary = rng.random() < 0.2
            connection.data_received(pull(group, queue, places[place], number, binary))
            answer = CommandReader().feed(b"".join(transport.writes))[0]
            found.append(answer)
            places[place] = int(answer.ext_fields["nextBeginOffset"])
            if answer.code and rng.random() < 0.5:
                places[place] = int(answer.ext_fields["minOffset"])
            if rng.random() < often:
                rng.choice(changes)(broker, rng)
        offsets: Any = broker.parts.offsets
        numbers: Any = broker.parts.store._stats
        counts = numbers.get_found_count, numbers.transferred_count, numbers.get_missed_count
        return found, offsets.to_json()["offsetTable"], (counts, offsets._pulled.queues)

    return run_simulation(scenario, properties=properties)


def count_begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list with one number for each pull that Python begins from now on."""
    begun: list[int] = []
    begin = FastPullService.begin

    def counted(self: FastPullService, *asked: Any) -> Any:
        part = begin(self, *asked)
        if part is not None:
            begun.append(1)
        return part

    monkeypatch.setattr(FastPullService, "begin", counted)
    return begun


@needs_compiled
@pytest.mark.parametrize("name", [*CHANGES, "all"])
@pytest.mark.parametrize("seed", sample(range(3), 3))
def test_continuing_pulls_any_change_between_pulls_equals_python(
    monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    changes = list(CHANGES.values()) if name == "all" else [CHANGES[name]]
    begun = count_begun(monkeypatch)
    with pure_python(monkeypatch):
        pure = consumed(seed, changes, SMALL, 0.15)
    assert not begun
    compiled = consumed(seed, changes, SMALL, 0.15)
    for number, answers in enumerate(zip(pure[0], compiled[0], strict=True)):
        assert answers[0] == answers[1], f"answer {number}"
    assert pure[1:] == compiled[1:]
    answered = sum(1 for answer in compiled[0] if answer.body)
    assert answered > 50
    assert len(begun) < 0.9 * answered, "few go on where they were"


def consumed_as_it_comes(
    seed: int, changes: Sequence[Change], properties: dict[str, str]
) -> tuple[dict[int, RemotingCommand], dict[Any, Any], Any]:
    """Suspended pulls while a broker changes: responses, offsets and counts."""

    async def scenario(
        cluster: SimCluster,
    ) -> tuple[dict[int, RemotingCommand], dict[Any, Any], Any]:
        rng = random.Random(seed)
        for topic in (TOPIC, SPARSE):
            cluster.create_topic(topic, QUEUES)
        broker = cluster.brokers[0].broker
        fill(broker, seed, 20)
        server: Any = broker._servers[0]
        connection = server._selectors[0].new_connection("10.0.0.7")
        transport = FakeTransport()
        connection.connection_made(transport)
        connection.data_received(heartbeat())
        transport.writes.clear()
        places = {(group, queue): 0 for group in ("all", "some") for queue in range(QUEUES)}
        asked: dict[int, tuple[str, int]] = {}
        found: dict[int, RemotingCommand] = {}
        number, never = 0, asyncio.get_running_loop().create_future()
        for _ in range(150):
            for place in sorted(places.keys() - asked.values()):
                number += 1
                asked[number] = place
                binary = rng.random() < 0.2
                connection.data_received(pull(*place, places[place], number, binary, 15_000))
            change = more if rng.random() < 0.5 else rng.choice(changes)
            change(broker, rng)
            await asyncio.wait([never], timeout=0.05)  # in simulated time
            for answer in CommandReader().feed(b"".join(transport.writes)):
                if not answer.is_response or answer.opaque not in asked:
                    continue  # what a member is told, and the heartbeat's
                found[answer.opaque] = answer
                place = asked.pop(answer.opaque)
                places[place] = int(answer.ext_fields["nextBeginOffset"])
            transport.writes.clear()
        offsets: Any = broker.parts.offsets
        numbers: Any = broker.parts.store._stats
        counts = numbers.get_found_count, numbers.transferred_count
        return found, offsets.to_json()["offsetTable"], (counts, offsets._pulled.queues)

    return run_simulation(scenario, properties=properties)


@needs_compiled
@pytest.mark.parametrize("name", ["nothing", *CHANGES, "all"])
@pytest.mark.parametrize("seed", sample(range(3), 3))
def test_continuing_pulls_any_change_while_suspended_equals_python(
    monkeypatch: pytest.MonkeyPatch, name: str, seed: int
) -> None:
    each = CHANGES | {"nothing": nothing}
    changes = list(CHANGES.values()) if name == "all" else [each[name]]
    begun = count_begun(monkeypatch)
    properties = {} if name == "nothing" else SMALL
    with pure_python(monkeypatch):
        pure = consumed_as_it_comes(seed, changes, properties)
    assert not begun
    compiled = consumed_as_it_comes(seed, changes, properties)
    assert pure[0].keys() == compiled[0].keys()
    for number, answer in pure[0].items():
        assert answer == compiled[0][number], f"answer {number}"
    assert pure[1:] == compiled[1:]
    answered = sum(1 for answer in pure[0].values() if answer.body)
    assert answered > 50
    if name == "nothing":  # what waited goes on where it was
        assert len(begun) < 0.3 * answered


@needs_compiled
def test_continuing_pulls_call_python_once_per_queue_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun = count_begun(monkeypatch)
    found, _, (counts, _) = consumed(1, [nothing], {}, 0.0)
    full = sum(1 for answer in found if answer.body)
    assert counts[0] == full > 60
    # One of each queue and group, and of those that begin anew behind one that found nothing.
    assert len(begun) <= 2 * QUEUES + (len(found) - full) // 2


@needs_compiled
def test_continuing_pulls_unrelated_reset_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def others_are_reset(broker: Broker, _rng: random.Random) -> None:
        for queue_id in range(QUEUES):
            broker.parts.offsets.assign_reset("never seen", TOPIC, queue_id, 1)

    begun = count_begun(monkeypatch)
    found, _, (counts, _) = consumed(1, [others_are_reset], {}, 1.0)
    full = sum(1 for answer in found if answer.body)
    assert counts[0] == full > 60
    assert len(begun) <= 2 * QUEUES + (len(found) - full) // 2


@needs_compiled
def test_continuing_pulls_cursor_keeps_no_log_file() -> None:
    """A deleted file of a gigabyte must be freed although it was read once."""

    async def scenario(cluster: SimCluster) -> None:
        cluster.create_topic(TOPIC, QUEUES)
        cluster.create_topic(SPARSE, QUEUES)
        broker = cluster.brokers[0].broker
        fill(broker, 1, 3_000)
        server: Any = broker._servers[0]
        connection = server._selectors[0].new_connection("10.0.0.7")
        connection.connection_made(FakeTransport())
        connection.data_received(heartbeat())
        connection.data_received(pull("all", 0, 0, 1, binary=False))
        log: Any = cast("Any", broker.parts.store)._log
        held = [sys.getrefcount(each) for each in (log.files[0], log.files[0].view)]
        for number, queue_id in enumerate((0, 0, 0, 1, 1, 2), 2):
            connection.data_received(pull("all", queue_id, 9, number, binary=False))
        assert held == [sys.getrefcount(each) for each in (log.files[0], log.files[0].view)]

    run_simulation(scenario, properties=SMALL)
