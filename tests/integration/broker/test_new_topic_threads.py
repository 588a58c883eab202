"""Threads that send to new topics while their table's file fails at times."""

import itertools
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.persistent_table import TableWriter
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.refusal import Refusal
from rocketpy.broker.operation.send.admission import SendAdmission
from rocketpy.broker.operation.send.send import SendOperation
from rocketpy.broker.operation.send_request import SendRequest, Sent
from rocketpy.errors import DiskFullError
from rocketpy.proto.bodies.topic import TopicConfig
from rocketpy.runtime.clock import SystemClock
from rocketpy.runtime.service import ServiceThread, connect
from tests.unit.broker.fakes import FakeClock, FakeStore, MemoryFile


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class FailingFile(MemoryFile):
    """Takes two writes of three, one at a time."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.names: frozenset[str] = frozenset()
        self._rng = rng
        self._busy = threading.Lock()

    def save(self, value: object) -> None:
        assert self._busy.acquire(blocking=False), "two write at once"
        try:
            names = frozenset(value["topicConfigTable"])  # type: ignore[index]
            if self._rng.random() < 1 / 3:
                raise DiskFullError("no space")
            self.names = names
        finally:
            self._busy.release()


class World:
    """Senders, operators, and a writer of the table.

    Attributes:
        broken: topics of which a sender was told success although the file lacks them.
        answers: how often each send was answered.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.file = FailingFile(random.Random(seed))
        config, clock = BrokerConfig(broker_name="b"), FakeClock()
        self.topics = topics = TopicTable(config, self.file, clock)
        topics.load()
        self.admission = SendAdmission(topics, config, clock, max_body_bytes=1_000)
        topics.on_change = self.admission.forget
        self.sends = SendOperation(
            FakeStore(),
            self.admission,
            [],
            lambda *_: None,
            config=config,
            answers_wait=False,
            when_announced=lambda told: told(),
            clock=clock,
            rng=random.Random(seed),
        )
        self.writer = TableWriter(topics)
        self.broken: list[str] = []
        self.answers: Counter[int] = Counter()
        self.numbers = itertools.count()
        self._deleted: set[str] = set()

    def send(self, sender: int) -> None:
        rng = random.Random(f"{self.seed}/{sender}")
        for count in range(100):
            shared, own = f"T{rng.randrange(30)}", f"N{sender}-{count}"
            self._send(rng.choice((shared, own)))

    def operate(self, operator: int) -> None:
        rng = random.Random(f"{self.seed}/{operator}")
        for _ in range(40):
            topic = f"T{rng.randrange(30)}"
            try:
                if rng.random() < 0.5:
                    self._deleted.add(topic)
                    with self.topics.deleting([topic]):
                        self.topics.delete(topic)
                else:
                    self.topics.put(TopicConfig(topic, rng.randrange(1, 9), 4))
            except DiskFullError:
                pass

    def _send(self, topic: str) -> None:
        number = next(self.numbers)

        def settled(refused: Refusal | None) -> None:
            self.answers[number] += 1
            if refused is None and topic not in self.file.names | self._deleted:
                self.broken.append(topic)

        sent = self.sends.send(
            SendRequest(
                topic, 0, b"x", b"", b"\x7f\0\0\1\0\0\0\1", "h", 0, 0, 1, 0, None, "TBW102", 4
            )
        )
        if isinstance(sent, Refusal):
            settled(sent)
        elif not sent.new_topic:
            settled(None)
        else:
            assert isinstance(sent, Sent)
            self.sends.when_settled(sent, settled)


@pytest.mark.parametrize("seed", range(5))
def test_topic_creation_acknowledged_implies_topic_is_on_disk(seed: int) -> None:
    world = World(seed)
    runner = ServiceThread(world.writer, SystemClock())
    connect(world.writer, runner.wake)
    runner.start()
    try:
        with ThreadPoolExecutor(8) as threads:
            work = [threads.submit(world.send, number) for number in range(5)]
            work += [threads.submit(world.operate, number) for number in range(5, 8)]
            for each in work:
                each.result(60)
    finally:
        runner.stop()
    world.topics.write()
    assert world.broken == []
    assert world.answers == dict.fromkeys(range(next(world.numbers)), 1), "one answer each"
    topics, known = world.topics, world.admission.known
    assert dict(topics.written) == dict(topics.entries)
    assert all(policy.config is topics.written[name] for name, policy in known.items())
