from typing import Any

import orjson
import pytest

from rocketpy.broker.clients.client_registry import ClientChannel, ConsumerTable
from rocketpy.broker.clients.queue_locks import QueueLocks
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.metadata.topics import TopicTable
from rocketpy.broker.operation.lock_queues import QueueLocking
from rocketpy.broker.processor.consumer_manage import MAX_REQUEST_BYTES, LockProcessor
from rocketpy.errors import BadBodyError
from rocketpy.proto.bodies.topic import TopicConfig
from tests.unit.broker.fakes import FakeChannel, FakeClock, MemoryFile, request

QUEUE = {"brokerName": "b", "queueId": 1, "topic": "T"}


class Kit:
    """Clients a and b are members of group g; topic T has two queues."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.locks = QueueLocks()
        self.consumers = ConsumerTable()
        topics = TopicTable(BrokerConfig(broker_name="b"), MemoryFile(), self.clock)
        topics.put(TopicConfig("T", 2, 2, 6))
        for client_id in "ab":
            self.join(client_id)
        locking = QueueLocking(self.locks, topics, self.consumers, self.clock)
        self.processor = LockProcessor(locking)

    def join(self, client_id: str) -> None:
        client = ClientChannel(FakeChannel(), client_id, 0, 493, 0)  # type: ignore[arg-type]
        self.consumers.register(
            "g",
            client,
            [],
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            consume_from_where="",
        )

    def run(self, code: int, body: bytes) -> Any:
        processor: Any = self.processor.processors[code]
        return processor(FakeChannel(), request(code, {}, body))

    def ask(self, code: int, client_id: str, *queues: Any, group: str = "g") -> list[Any]:
        wanted = {"clientId": client_id, "consumerGroup": group, "mqSet": queues or [QUEUE]}
        response = self.run(code, orjson.dumps(wanted))
        assert response.code == 0
        locked: list[Any] = orjson.loads(response.body)["lockOKMQSet"] if response.body else []
        return locked


def test_one_client_at_a_time_until_it_lets_go_or_is_silent() -> None:
    kit = Kit()
    assert kit.ask(41, "a") == [QUEUE]
    assert kit.ask(41, "b") == []
    kit.clock.now_ms += 60_001
    assert kit.ask(41, "b") == [QUEUE]
    kit.ask(42, "b")
    assert kit.ask(41, "a") == [QUEUE]


@pytest.mark.parametrize(
    "changes", [{"topic": "U"}, {"queueId": 2}, {"queueId": -1}, {"queueId": 2**31 - 1}]
)
def test_a_queue_that_is_not_there_is_not_locked(changes: dict[str, Any]) -> None:
    kit = Kit()
    assert kit.ask(41, "a", {**QUEUE, **changes}, QUEUE) == [QUEUE]
    assert len(kit.locks) == 1


@pytest.mark.parametrize(("client_id", "group"), [("stranger", "g"), ("a", "made-up")])
def test_who_is_no_member_locks_nothing(client_id: str, group: str) -> None:
    kit = Kit()
    assert kit.ask(41, client_id, group=group) == []
    assert len(kit.locks) == 0


@pytest.mark.parametrize("code", [41, 42])
def test_a_request_over_the_limit_is_not_read(code: int) -> None:
    kit = Kit()
    assert kit.run(code, b"[" * (MAX_REQUEST_BYTES + 1)).code == 29


@pytest.mark.parametrize(
    "body", [b"", b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T"}]}']
)
def test_bad_bodies(body: bytes) -> None:
    with pytest.raises(BadBodyError):
        Kit().run(41, body)
