"""Every operation on the disk fails, or is the last one, while all features are in play.

One scenario runs again and again: a broker with SYNC_FLUSH gets messages of every kind while the
n-th operation on its disk fails (the disk, no space, no descriptor), or the process or the power
goes before it. `FAULT_STEP=1` tries every n; a commit tries a few of each, and
`make test` a sample of those (`tests.sampling`).

Beside that, for a while, only one kind of message cannot be stored, or only some files cannot be
written.
"""

import asyncio
import errno
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketpy.client.producer.producer import Producer
from rocketpy.errors import DiskFullError, ResourceShortError, StoreError
from rocketpy.proto.topic_names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from rocketpy.testing.sim_cluster import SimBroker, SimCluster, run_simulation
from rocketpy.testing.sim_files import ProcessEndedError
from tests.sampling import sample
from tests.simulation.features import KINDS, POP_TOPIC, QUEUES, SETTINGS, TOPIC, Features, quiet

STEP = int(os.environ.get("FAULT_STEP", "100"))

Break = Callable[[SimBroker], None]
"""Arms a fault before the work begins."""


def ends(operation: int, *, power: bool) -> Break:
    """The process, or the power, goes after an operation, before the next one."""

    def arm(broker: SimBroker) -> None:
        at_operation(broker, operation, _changes, lambda: broker.end_after(0, power=power))

    return arm


def fails(operation: int, error: Exception) -> Break:
    """Fails one file operation with a possible error."""

    def fail() -> None:
        raise error

    return lambda broker: at_operation(broker, operation, lambda kind: _may(kind, error), fail)


def outage(path_part: str, error: Exception) -> Break:
    """Every operation on some files fails, until all is mended."""

    def arm(broker: SimBroker) -> None:
        def on_operation(kind: str, path: Path) -> None:
            if path_part in str(path) and _may(kind, error):
                raise error

        broker.files.on_operation = on_operation

    return arm


def at_operation(
    broker: SimBroker, operation: int, counts: Callable[[str], bool], then: Callable[[], None]
) -> None:
    """Do something once, before the n-th operation of some kinds."""
    left = operation

    def on_operation(kind: str, _: Path) -> None:
        nonlocal left
        left -= counts(kind)
        if left < 0:
            broker.files.on_operation = None
            then()

    broker.files.on_operation = on_operation


def _changes(kind: str) -> bool:
    return kind != "open"


def _may(kind: str, error: Exception) -> bool:
    if isinstance(error, DiskFullError):
        return kind in {"allocate", "write", "change", "truncate"}
    if isinstance(error, ResourceShortError):
        return kind in {"open", "truncate"}
    return True


async def scenario(cluster: SimCluster, arm: Break, *, stops: bool = True) -> Features:
    """Work while something breaks, mend it, and judge.

    Args:
        cluster: with one broker.
        arm: lets something break.
        stops: whether the broker is stopped cleanly in between.
    """
    (broker,) = cluster.brokers
    for topic in (TOPIC, POP_TOPIC):
        cluster.create_topic(topic, QUEUES)
    features = Features(broker.clock.time_ms)
    async with cluster.client() as consuming, cluster.client() as sending:
        await features.start_consumers(consuming)
        producer = features.producer(sending)
        arm(broker)
        watch = asyncio.ensure_future(_start_again(broker))
        await _send_all(features, producer)
        await asyncio.sleep(2)
        if stops and broker.is_running:
            await broker.stop()
        await _send_all(features, producer)
        await asyncio.sleep(8)
        watch.cancel()
        await _mend(broker)
        await quiet(features, 120, 20)
    return features


async def _send_all(features: Features, producer: Producer) -> None:
    for kind in KINDS:
        await features.send(producer, kind)
        await asyncio.sleep(0.1)


async def _start_again(broker: SimBroker) -> None:
    """Start the broker whenever it does not run."""
    while True:
        await asyncio.sleep(0.5)
        if not broker.is_running:
            await _try_to_start(broker)


async def _try_to_start(broker: SimBroker) -> None:
    try:
        await broker.start()
    except ProcessEndedError:
        return
    except (StoreError, OSError):
        broker.kill()  # whoever started it would read why


async def _mend(broker: SimBroker) -> None:
    broker.files.on_operation = broker.files.capacity_bytes = None
    broker.files.start_process()
    if broker.is_running and not broker.broker.parts.store.is_writable:
        await broker.stop()
    if not broker.is_running:
        await broker.start()


def count_operations(counted: Callable[[str], bool], flush: str) -> int:
    """Number of operations of a run without faults."""
    count = 0

    def arm(broker: SimBroker) -> None:
        def on_operation(kind: str, _: Path) -> None:
            nonlocal count
            count += counted(kind)

        broker.files.on_operation = on_operation

    run(arm, flush)
    return count


def run(arm: Break, flush: str = "SYNC_FLUSH", *, stops: bool = True) -> Features:
    """Run the scenario with a fault."""
    properties = {**SETTINGS, "flushDiskType": flush}
    return run_simulation(
        lambda cluster: scenario(cluster, arm, stops=stops), properties=properties
    )


def _nothing(_: SimBroker) -> None:
    pass


def test_scenario_has_every_kind_in_it() -> None:
    features = run(_nothing)
    assert set(KINDS) <= features.counts.keys()
    assert features.counts["checked"] > 0
    assert max(features.delivered.values()) > 1
    assert not features.counts["failed"]


ENDS = {"kill": False, "power": True}
ERRORS = {
    "disk": lambda: OSError(errno.EIO, "simulated disk failure"),
    "space": lambda: DiskFullError("simulated: no space"),
    "descriptor": lambda: ResourceShortError("simulated: too many open files"),
}


CASES = [
    *((name, "SYNC_FLUSH") for name in (*ENDS, *ERRORS)),
    *((name, "ASYNC_FLUSH") for name in ("kill", *ERRORS)),
]
"""Without SYNC_FLUSH a power cut takes what was appended last."""


def operations_of(name: str, flush: str) -> int:
    """Number of operations that a fault may hit."""
    if name in ENDS:
        return count_operations(_changes, flush)
    error = ERRORS[name]()
    return count_operations(lambda kind: _may(kind, error), flush)


def run_fault(name: str, operation: int, flush: str) -> None:
    """Run the scenario with one fault at one operation."""
    try:
        run(
            ends(operation, power=ENDS[name]) if name in ENDS else fails(operation, ERRORS[name]()),
            flush,
        )
    except Exception as error:
        error.add_note(f"fault {name} at operation {operation}, {flush}")
        raise


@pytest.mark.timeout(600 + 80_000 // STEP)
@pytest.mark.parametrize(("name", "flush"), CASES)
def test_fault_at_any_operation_costs_nothing(name: str, flush: str) -> None:
    operations = range(STEP // 2, operations_of(name, flush), STEP)
    for operation in sample(operations, 4):
        run_fault(name, operation, flush)


FILES = (
    "config/delayOffset.json",
    "config/timercheck",
    "timerlog",
    "timerwheel",
    "config/consumerOffset.json",
    "config/topics.json",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("path_part", "name"), sample(itertools.product(FILES, ["disk", "space"]), 4)
)
def test_files_that_cannot_be_written_for_a_while_cost_nothing(path_part: str, name: str) -> None:
    run(outage(path_part, ERRORS[name]()))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_full_disk_refuses_and_costs_nothing(flush: str) -> None:
    def fill(broker: SimBroker) -> None:
        broker.files.capacity_bytes = broker.files.used_bytes + 8_192

    features = run(fill, flush)
    assert features.counts["failed"]


REVIVE_TOPIC = "rmq_sys_REVIVE_LOG"
SYSTEM_TOPICS = (
    TRANS_OP_HALF_TOPIC,
    TRANS_HALF_TOPIC,
    REVIVE_TOPIC,
    TIMER_TOPIC,
    SCHEDULE_TOPIC,
)
KINDS_OF_MESSAGES: dict[str, Callable[[PutMessage], bool]] = {
    "op messages": lambda message: message.topic == TRANS_OP_HALF_TOPIC,
    "halves": lambda message: message.topic == TRANS_HALF_TOPIC,
    "check points and acks": lambda message: (
        REVIVE_TOPIC in message.topic or REVIVE_TOPIC.encode() in message.properties
    ),
    "timed messages": lambda message: message.topic == TIMER_TOPIC,
    "delayed messages": lambda message: message.topic == SCHEDULE_TOPIC,
    "retries": lambda message: message.topic.startswith("%RETRY%"),
    "what comes of them": lambda message: message.topic in {TOPIC, POP_TOPIC},
}


def refusing(
    wanted: Callable[[PutMessage], bool], patch: pytest.MonkeyPatch
) -> tuple[Break, list[str]]:
    """Let some messages not be stored, as without space, until all is mended.

    Returns:
        What arms it, and topics of the messages that were refused.
    """
    refused: list[str] = []
    brokers: list[SimBroker] = []
    put = MessageStore.put_message

    def picky(store: MessageStore, message: PutMessage) -> PutMessageResult:
        is_broken = bool(brokers) and brokers[0].files.on_operation is not None
        if is_broken and wanted(message):
            refused.append(message.topic)
            return PutMessageResult(PutMessageStatus.CREATE_MAPPED_FILE_FAILED)
        return put(store, message)

    patch.setattr(MessageStore, "put_message", picky)

    def arm(broker: SimBroker) -> None:
        brokers.append(broker)
        broker.files.on_operation = lambda _kind, _path: None

    return arm, refused


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("kind", "flush"),
    sample(itertools.product(KINDS_OF_MESSAGES, ["SYNC_FLUSH", "ASYNC_FLUSH"]), 4),
)
def test_one_kind_of_message_cannot_be_stored_for_a_while(
    kind: str, flush: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is lost, nothing stays behind, and no transaction is committed twice."""
    arm, refused = refusing(KINDS_OF_MESSAGES[kind], monkeypatch)
    features = run(arm, flush, stops=False)
    assert refused
    twice = {body: n for body, n in features.delivered.items() if n > 1 and _is_committed(body)}
    assert not twice


def _is_committed(body: bytes) -> bool:
    return body.partition(b"/")[0] in {b"commit", b"forget"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["op messages", "check points and acks"])
def test_broker_that_cannot_store_them_stops_and_starts_and_loses_nothing(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    arm, refused = refusing(KINDS_OF_MESSAGES[kind], monkeypatch)
    features = run(arm, "ASYNC_FLUSH")
    assert refused
    twice = {body: n for body, n in features.delivered.items() if n > 1 and _is_committed(body)}
    assert not twice


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("topic", "name"), sample(itertools.product(SYSTEM_TOPICS, ["disk", "space"]), 4)
)
def test_queues_of_the_system_that_cannot_be_written_for_a_while_cost_nothing(
    topic: str, name: str
) -> None:
    run(outage(f"consumequeue/{topic}", ERRORS[name]()))
