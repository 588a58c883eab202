"""A batch of several requests says what became of each message."""

import pickle
from typing import Any

import pytest

from rocketpy.client.callbacks.middleware import Proceed, Sending, SendMiddleware
from rocketpy.client.producer.batch import listed, partly_sent
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import (
    MessageIllegalError,
    NotSentError,
    PartlySentError,
    ServiceNotAvailableError,
)
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, run_sim

BATCH = 320
BODIES = [bytes([48 + number]) * 900 for number in range(6)]


async def passed_on(sending: Sending, proceed: Proceed) -> Any:
    return await proceed(sending)


def options_for_three_requests() -> dict[str, Any]:
    return {"max_message_bytes": 2_600, "retries": 0}


def test_batch_that_fails_half_way_says_what_is_stored() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(**options_for_three_requests())
            assert len(await producer.send_batch("t", BODIES)) == 6
            assert len(cluster.of_code(BATCH)) == 3
            cluster.script[BATCH] = [None, 13]
            with pytest.raises(PartlySentError, match="2 of 6 messages are stored") as caught:
                await producer.send_batch("t", BODIES)
        error = caught.value
        assert isinstance(error.__cause__, MessageIllegalError)
        assert not error.retriable
        assert error.stored == 2
        stored, failed, left = error.outcomes[:2], error.outcomes[2:4], error.outcomes[4:]
        for body, result in zip(BODIES, stored, strict=False):
            assert isinstance(result, SendResult)
            assert body in cluster.record("t", result.queue.queue_id, result.offset)
        assert failed == [error.__cause__] * 2
        assert [type(each) for each in left] == [NotSentError] * 2
        assert len(cluster.of_code(BATCH)) == 5, "the last part was not tried"

    run_sim(main)


def test_batch_that_fails_at_once_raises_as_any_send() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(**options_for_three_requests())
            cluster.script[BATCH] = [13]
            with pytest.raises(MessageIllegalError):
                await producer.send_batch("t", BODIES)
        assert len(cluster.of_code(BATCH)) == 1

    run_sim(main)


@pytest.mark.parametrize("layers", [[], [passed_on]], ids=["plain", "with a middleware"])
def test_one_body_is_no_batch(layers: list[SendMiddleware]) -> None:
    async def main(cluster: Cluster) -> None:
        one_body: list[Any] = ["hello", b"hello", bytearray(b"hello"), memoryview(b"hello"), ""]
        async with cluster.client() as client:
            producer = client.producer(middlewares=layers)
            for body in one_body:
                with pytest.raises(TypeError, match=r"takes a list of bodies, not one \w+: give"):
                    await producer.send_batch("t", body)
            assert cluster.of_code(BATCH) == []
            assert len(await producer.send_batch("t", iter(("a", b"b")))) == 2

    run_sim(main)


def test_options_are_checked_although_a_batch_is_empty() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer: Any = client.producer()
            assert await producer.send_batch("t", []) == []
            with pytest.raises(TypeError, match="did you mean tag"):
                await producer.send_batch("t", [], tags="a")

    run_sim(main)


def test_partly_sent_error_can_be_pickled_and_retried() -> None:
    result = SendResult(0, "ID", "OFF", MessageQueue("t", "b", 1), 7)  # type: ignore[arg-type]
    error = partly_sent([result], 2, 4, ServiceNotAvailableError(14, "full"))
    assert error.retriable
    again = pickle.loads(pickle.dumps(error))
    assert again.outcomes[0] == result
    assert [str(each) for each in again.outcomes[1:]] == [
        "[14] full",
        "[14] full",
        "not sent: an earlier part of the batch failed",
    ]
    assert (again.stored, again.retriable, str(again)) == (1, True, str(error))


@pytest.mark.parametrize("body", ["ab", b"ab", {"a": 1, "b": 2}])
def test_listed_single_body_raises(body: Any) -> None:
    with pytest.raises(TypeError, match=r"not one (str|bytes|dict): give \[body\]"):
        listed(body)
