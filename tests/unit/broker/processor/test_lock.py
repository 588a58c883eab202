"""Requests for queue locks."""

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


def test_lock_is_exclusive_until_released_or_expired() -> None:
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
def test_lock_of_missing_queue_is_not_granted(changes: dict[str, Any]) -> None:
    kit = Kit()
    assert kit.ask(41, "a", {**QUEUE, **changes}, QUEUE) == [QUEUE]
    assert len(kit.locks) == 1


@pytest.mark.parametrize(("client_id", "group"), [("stranger", "g"), ("a", "made-up")])
def test_lock_by_unknown_member_is_not_granted(client_id: str, group: str) -> None:
    kit = Kit()
    assert kit.ask(41, client_id, group=group) == []
    assert len(kit.locks) == 0


@pytest.mark.parametrize("code", [41, 42])
def test_lock_request_too_long_is_refused(code: int) -> None:
    kit = Kit()
    assert kit.run(code, b"[" * (MAX_REQUEST_BYTES + 1)).code == 29


@pytest.mark.parametrize(
    "body", [b"", b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T"}]}']
)
def test_lock_invalid_body_is_refused(body: bytes) -> None:
    with pytest.raises(BadBodyError):
        Kit().run(41, body)
