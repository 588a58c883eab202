"""Simultaneous creations of topics share one write and one announcement."""

import contextlib
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from rocketpy.broker.admin.topic_creations import TopicCreations
from rocketpy.broker.admin.topics import TopicAdmin
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.errors import DiskFullError
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.deferred_response import DeferredResponse
from rocketpy.runtime.clock import SystemClock
from rocketpy.store.files.json_file import JsonFile
from rocketpy.testing.sim_files import ProcessEndedError, SimFiles
from tests.sampling import sample
from tests.unit.broker.admin.kit import Kit
from tests.unit.broker.fakes import FakeChannel

CREATE = RequestCode.UPDATE_AND_CREATE_TOPIC


class Creations:
    """Creations by one connection, and the threads and name servers that the test plays."""

    def __init__(self, kit: Kit, threads: int = 1) -> None:
        self.kit = kit
        self.channel = FakeChannel()
        self.pool = BusinessPool("admin", threads, 100, 0, clock=SystemClock())
        self.unannounced: list[Callable[[], None]] = []
        self.admin = kit.admin(TopicAdmin)
        self.creations = TopicCreations(
            {CREATE: self.admin.update}, kit.topics, self.pool, self.unannounced.append
        )

    def ask(self, topic: str, queues: int = 4, body: bytes = b"", **more: str) -> DeferredResponse:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        request = make_request(CREATE, {**fields, **more}, body)
        return self.creations.process(self.channel, request)  # type: ignore[arg-type]

    def announce(self) -> None:
        while self.unannounced:
            self.unannounced.pop(0)()

    def responses(self) -> list[RemotingCommand]:
        return [response for _, response in self.channel.deferred]

    def codes(self) -> list[int]:
        return [response.code for response in self.responses()]


def test_creations_queued_together_share_write_and_announcement(kit: Kit) -> None:
    asked = Creations(kit)
    for number in range(5):
        asked.ask(f"t{number}")
    assert (kit.topics_file.saves, kit.topics.get("t0")) == (0, None)
    while asked.pool.run_one():
        pass
    assert kit.topics_file.saves == 1
    assert {"t0", "t4"} <= set(kit.topics_file.value["topicConfigTable"])
    assert asked.codes() == []
    assert len(asked.unannounced) == 1
    asked.announce()
    assert asked.codes() == [0] * 5


def test_creations_single_one_is_written_without_delay(kit: Kit) -> None:
    asked = Creations(kit)
    for number in range(3):
        asked.ask(f"t{number}")
        assert asked.pool.run_one()
        assert kit.topics_file.saves == number + 1
        asked.announce()
    assert asked.codes() == [0] * 3


def test_creations_inline_ones_of_one_iteration_share_write(kit: Kit) -> None:
    asked = Creations(kit, threads=0)
    asked.ask("a")
    asked.ask("e")
    assert kit.topics_file.saves == 0
    asked.channel.loop.turn()
    assert kit.topics_file.saves == 1
    asked.announce()
    assert asked.codes() == [0, 0]


def test_creations_invalid_one_does_not_affect_others(kit: Kit) -> None:
    asked = Creations(kit)
    for topic, perm in (("a", "6"), ("b/", "6"), ("c", "no"), ("d", "6")):
        asked.ask(topic, perm=perm)
    asked.creations.write()
    asked.announce()
    assert asked.codes() == [0, 29, 1, 0]
    assert kit.topics.get("a")
    assert kit.topics.get("d")
    assert kit.topics_file.saves == 1


def test_creations_failed_write_fails_all(kit: Kit) -> None:
    asked = Creations(kit)
    kit.topics_file.failure = DiskFullError("no space")
    asked.ask("a")
    asked.ask("b/")
    asked.ask("c")
    asked.creations.write()
    asked.announce()
    assert asked.codes() == [1, 29, 1]
    assert "no space" in (asked.responses()[0].remark or "")
    assert (kit.topics.get("a"), kit.topics.get("c")) == (None, None)
    kit.topics_file.failure = None
    asked.ask("a")
    asked.creations.write()
    asked.announce()
    assert asked.codes()[3:] == [0]


def test_creations_changes_of_one_topic_apply_in_order(kit: Kit) -> None:
    kit.add_topic("t", 4)
    asked = Creations(kit)
    asked.ask("t", 8)
    asked.ask("t", 4)
    asked.ask("new", 4, attributes="+message.type=FIFO")
    asked.ask("new", 2, attributes="+reserve.time=3")
    asked.creations.write()
    known, new = kit.topics.get("t"), kit.topics.get("new")
    assert known is not None
    assert new is not None
    assert known.read_queue_nums == 4
    assert dict(new.attributes) == {"message.type": "FIFO", "reserve.time": "3"}


def test_creations_later_request_sees_earlier_creations(kit: Kit) -> None:
    asked = Creations(kit)
    delete = asked.creations.behind(asked.admin.delete)
    asked.ask("t")
    request = make_request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    response = delete(asked.channel, request)  # type: ignore[arg-type]
    assert isinstance(response, RemotingCommand)
    assert response.code == 0
    asked.announce()
    assert asked.codes() == [0]
    while asked.pool.run_one():
        pass
    assert kit.topics.get("t") is None


def test_creations_later_request_waits_for_write_of_other_thread(kit: Kit) -> None:
    asked = Creations(kit)
    asked.ask("t")
    is_writing, may_write = threading.Event(), threading.Event()
    one_write = kit.topics.one_write

    def slow_write() -> contextlib.AbstractContextManager[None]:
        is_writing.set()
        assert may_write.wait(10)
        return one_write()

    kit.topics.one_write = slow_write  # type: ignore[method-assign, assignment]
    has_begun = threading.Event()

    def begun(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        has_begun.set()
        return asked.admin.delete(channel, request)

    delete = asked.creations.behind(begun)
    request = make_request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "t"})
    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(asked.creations.write)
        assert is_writing.wait(10)
        deleting = threads.submit(delete, asked.channel, request)  # type: ignore[arg-type]
        assert not has_begun.wait(0.05), "it came behind the creation"
        may_write.set()
        writing.result()
        assert isinstance(response := deleting.result(), RemotingCommand)
    assert response.code == 0
    assert kit.topics.get("t") is None


def test_creations_large_request_is_written_at_once(kit: Kit) -> None:
    asked = Creations(kit)
    asked.ask("a", body=bytes(1 << 20))
    assert kit.topics_file.saves == 0
    asked.ask("e", body=bytes(1))
    assert kit.topics_file.saves == 1
    asked.announce()
    assert asked.codes() == [0, 0]


@pytest.mark.parametrize("threads", [0, 1])
def test_creations_write_of_empty_queue_does_nothing(kit: Kit, threads: int) -> None:
    asked = Creations(kit, threads)
    asked.ask("a")
    asked.creations.write()
    asked.channel.loop.turn()
    while asked.pool.run_one():
        pass
    asked.announce()
    assert (kit.topics_file.saves, asked.codes()) == (1, [0])


@pytest.mark.parametrize("seed", sample(range(40), 2))
def test_creations_answered_topic_survives_power_cut(kit: Kit, seed: int) -> None:
    rng = random.Random(seed)
    files = SimFiles()
    document = JsonFile(Path("/config/topics.json"), files)
    kit.topics = kit.parts["topics"] = TopicTable(kit.configs.broker, document, kit.clock)
    asked = Creations(kit)
    files.end_process_after(rng.randrange(40), partial(files.power_cut, rng))
    names: list[str] = []
    with contextlib.suppress(ProcessEndedError):
        while len(names) < 40:
            for _ in range(rng.randint(1, 5)):
                names.append(f"t{len(names)}")
                asked.ask(names[-1])
            while asked.pool.run_one():
                pass
            asked.announce()
    files.start_process()
    again = TopicTable(kit.configs.broker, JsonFile(Path("/config/topics.json"), files), kit.clock)
    again.load()
    found = [name for name in names if again.get(name)]
    assert set(asked.codes()) <= {0}
    assert found[: len(asked.codes())] == names[: len(asked.codes())]
