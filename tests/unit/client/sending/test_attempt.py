"""Outcome of an attempt: success is reported at once, others in the next iteration of the loop."""

import asyncio
from typing import Any

from rocketpy.client.sending.attempt import SendAttempt
from rocketpy.errors import ConnectionLostError, RequestTimeoutError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.proto.wire.compiled_requests import StoredAnswer

QUEUE = MessageQueue("t", "b", 1)


class Send:
    def __init__(self) -> None:
        self.told: list[tuple[Any, Any]] = []
        self.attempt = SendAttempt(self, asyncio.get_running_loop(), QUEUE, 5, 900)

    def responded(
        self,
        attempt: SendAttempt,
        response: RemotingCommand | None,
        error: BaseException | None,
    ) -> None:
        assert attempt is self.attempt
        self.told.append((response, error))

    def stored(self, attempt: SendAttempt, answer: StoredAnswer) -> None:
        assert attempt is self.attempt
        self.told.append((answer, None))


async def test_success_is_reported_at_once() -> None:
    for code in (0, 10, 11, 12):
        send = Send()
        response = make_response(make_request(310), code)
        send.attempt.answer(response)
        assert send.told == [(response, None)]
        assert send.attempt.is_over


async def test_decoded_response_is_reported_at_once() -> None:
    send = Send()
    answer = (1, 90, 2, 7, "OFF", None, "DefaultRegion", None)
    assert send.attempt.stored(answer)
    assert send.told == [(answer, None)]
    assert send.attempt.is_over


async def test_refusal_is_reported_in_the_next_iteration_of_the_loop() -> None:
    send = Send()
    response = make_response(make_request(310), 2)
    send.attempt.answer(response)
    assert (send.told, send.attempt.is_over) == ([], True)
    await asyncio.sleep(0)
    assert send.told == [(response, None)]


async def test_error_is_reported_once_in_the_next_iteration_of_the_loop() -> None:
    send = Send()
    error = RequestTimeoutError("late")
    send.attempt.fail(error)
    send.attempt.fail(ConnectionLostError("and lost"))
    assert (send.told, send.attempt.is_over) == ([], True)
    await asyncio.sleep(0)
    assert send.told == [(None, error)]


async def test_error_after_the_answer_is_nobodys() -> None:
    send = Send()
    response = make_response(make_request(310), 0)
    send.attempt.answer(response)
    send.attempt.fail(ConnectionLostError("lost"))
    await asyncio.sleep(0)
    assert send.told == [(response, None)]


async def test_attempt_follows_a_future() -> None:
    loop = asyncio.get_running_loop()
    response, error = make_response(make_request(310), 0), ConnectionLostError("lost")
    answered, failed, cancelled = Send(), Send(), Send()
    futures: list[asyncio.Future[RemotingCommand]] = [loop.create_future() for _ in range(3)]
    for send, future in zip((answered, failed, cancelled), futures, strict=True):
        send.attempt.follow(future)
    futures[0].set_result(response)
    futures[1].set_exception(error)
    futures[2].cancel()
    await asyncio.sleep(0)
    assert answered.told == [(response, None)]
    assert failed.told == [(None, error)]
    ((nothing, reason),) = cancelled.told
    assert nothing is None
    assert isinstance(reason, asyncio.CancelledError)
    assert answered.attempt.is_over
    assert failed.attempt.is_over
    assert cancelled.attempt.is_over
