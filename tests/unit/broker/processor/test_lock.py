from typing import Any

import orjson
import pytest

from rocketpy.broker.processor.lock import LockProcessor
from rocketpy.broker.queue_locks import QueueLocks
from rocketpy.errors import BadBodyError
from tests.unit.broker.fakes import FakeChannel, FakeClock, request

QUEUE = {"brokerName": "b", "queueId": 1, "topic": "T"}


def ask(processor: LockProcessor, code: int, client_id: str) -> list[Any]:
    body = {"clientId": client_id, "consumerGroup": "g", "mqSet": [QUEUE]}
    run: Any = processor.processors[code]
    response = run(FakeChannel(), request(code, {}, orjson.dumps(body)))
    assert response.code == 0
    locked: list[Any] = orjson.loads(response.body)["lockOKMQSet"] if response.body else []
    return locked


def test_one_client_at_a_time_until_it_lets_go_or_is_silent() -> None:
    clock = FakeClock()
    processor = LockProcessor(QueueLocks(), clock)
    assert ask(processor, 41, "a") == [QUEUE]
    assert ask(processor, 41, "b") == []
    clock.now_ms += 60_001
    assert ask(processor, 41, "b") == [QUEUE]
    ask(processor, 42, "b")
    assert ask(processor, 41, "a") == [QUEUE]


@pytest.mark.parametrize(
    "body", [b"", b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T"}]}']
)
def test_bad_bodies(body: bytes) -> None:
    with pytest.raises(BadBodyError):
        LockProcessor(QueueLocks(), FakeClock()).lock(FakeChannel(), request(41, {}, body))  # type: ignore[arg-type]
