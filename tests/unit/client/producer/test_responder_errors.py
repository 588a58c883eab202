"""Responders whose handler fails, and requests whose time is over."""

import asyncio
import logging
from typing import Any

import pytest

import rocketpy
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.producer.request_reply import Answers
from rocketpy.errors import MOST_REMARK_CHARACTERS, RemoteError, RequestTimeoutError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.record.message import MessageExt
from rocketpy.proto.record.properties import MAX_DEAD_LETTER_TEXT
from tests.unit.broker.fakes import FakeClock
from tests.unit.client.sim import Cluster, pass_time, run_sim


async def ask(cluster: Cluster, handler: Any, time_s: float = 3, **options: Any) -> ReceivedMessage:
    async with cluster.client() as client, cluster.client() as other:
        async with other.responder("t", group="r", handler=handler, **options):
            return await client.producer().request("t", b"?", timeout=time_s)


async def raise_value_error(message: ReceivedMessage) -> bytes:
    raise ValueError("no price for " + message.body.decode())


@pytest.mark.parametrize(
    "serializer", [rocketpy.plain, rocketpy.json, rocketpy.TypedSerializer(int)]
)
def test_responder_that_raises_answers_with_class_and_text(serializer: Any) -> None:
    calls: list[int] = []

    async def fail(message: ReceivedMessage) -> bytes:
        calls.append(message.retries)
        return await raise_value_error(message)

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RemoteError, match=r"ValueError: no price for \?") as caught:
            await ask(cluster, fail, reply_serializer=serializer)
        assert (caught.value.kind, caught.value.detail) == ("ValueError", "no price for ?")
        assert not caught.value.retriable
        assert not cluster.sent_back, "the message is done"
        assert cluster.elapsed_ms < 10_000, "the caller does not wait for its time to be over"
        assert calls == [0]

    run_sim(main)


def test_plain_function_that_raises_answers_with_its_error() -> None:
    def fail(message: ReceivedMessage) -> bytes:
        raise KeyError("book")

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RemoteError) as caught:
            await ask(cluster, fail)
        assert caught.value.kind == "KeyError"

    run_sim(main)


def test_responder_that_leaks_a_cancellation_answers_with_an_error() -> None:
    async def leak(message: ReceivedMessage) -> bytes:
        work = asyncio.ensure_future(asyncio.Event().wait())
        work.cancel()
        return b"%d" % await work

    def leak_on_thread(message: ReceivedMessage) -> bytes:
        raise asyncio.CancelledError

    for handler in (leak, leak_on_thread):

        async def main(cluster: Cluster, handler: Any = handler) -> None:
            with pytest.raises(RemoteError) as caught:
                await ask(cluster, handler)
            assert caught.value.kind == "CancelledError"
            assert not cluster.sent_back, "the message is done"

        run_sim(main)


def test_responder_with_a_task_group_answers_with_the_error_of_the_task() -> None:
    async def look_up() -> None:
        raise KeyError("sku")

    async def price(message: ReceivedMessage) -> bytes:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(look_up())
        return b""

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RemoteError) as caught:
            await ask(cluster, price)
        assert (caught.value.kind, caught.value.detail) == ("KeyError", "'sku'")

    run_sim(main)


def test_middleware_that_raises_answers_with_its_error() -> None:
    async def refuse(messages: Any, handle: Any) -> Any:
        raise PermissionError("not you")

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RemoteError, match="PermissionError: not you"):
            await ask(cluster, raise_value_error, middlewares=[refuse])

    run_sim(main)


def test_body_that_the_responder_cannot_read_answers_with_an_error() -> None:
    async def price(body: Any, message: ReceivedMessage) -> bytes:
        return b"9"

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RemoteError) as caught:
            await ask(cluster, price, serializer=rocketpy.json)
        assert caught.value.kind == "UnreadableBodyError"

    run_sim(main)


@pytest.mark.parametrize("answer", [object(), b"x" * 5_000_000], ids=["no bytes", "too large"])
def test_answer_that_cannot_be_sent_is_answered_with_an_error(answer: Any) -> None:
    async def price(message: ReceivedMessage) -> Any:
        return answer

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RemoteError) as caught:
            await ask(cluster, price)
        assert caught.value.kind in {"TypeError", "IllegalMessageError"}
        assert not cluster.sent_back

    run_sim(main)


def test_error_handler_of_a_responder_is_called_beside_the_answer() -> None:
    seen: list[Exception] = []

    def note(message: ReceivedMessage, error: Exception) -> None:
        seen.append(error)

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RemoteError):
            await ask(cluster, raise_value_error, on_error=note)
        assert [type(each) for each in seen] == [ValueError]

    run_sim(main)


def test_long_error_text_is_cut() -> None:
    async def fail(message: ReceivedMessage) -> bytes:
        raise ValueError("x" * 1_000_000)

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RemoteError) as caught:
            await ask(cluster, fail)
        assert caught.value.detail == "x" * MOST_REMARK_CHARACTERS

    run_sim(main)


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError

    __repr__ = __str__


class MuteExit(GeneratorExit):
    """Exit outside of Exception, without a text."""


@pytest.mark.parametrize(
    ("error", "kind", "detail"),
    [
        (UnprintableError(), "UnprintableError", "no text"),
        (MuteExit(), "MuteExit", "no text"),
        (ValueError("\ud800\x01\x02"), "ValueError", "?\x01\x02"),
        (type("\x01A\x02\n", (Exception,), {})("a"), "A", "a"),
        (type("\x01", (Exception,), {})("a"), "Exception", "a"),
        (type("K" * 100_000, (Exception,), {})("a"), "K" * MAX_DEAD_LETTER_TEXT, "a"),
        (type("\U00020000" * 100_000, (Exception,), {})("a"), "\U00020000" * 1_000, "a"),
    ],
    ids=["text", "exit", "surrogate", "separators", "no name", "long name", "wide name"],
)
def test_responder_error_that_cannot_be_shown_is_answered(
    error: BaseException, kind: str, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    # Captured lines with a surrogate cannot be sent from one process of pytest-xdist to another.
    caplog.set_level(logging.CRITICAL + 1, "rocketpy")

    async def fail(message: ReceivedMessage) -> bytes:
        raise error

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RemoteError) as caught:
            await ask(cluster, fail)
        assert (caught.value.kind, caught.value.detail) == (kind, detail)

    run_sim(main)


def test_serializer_error_that_cannot_be_shown_is_answered() -> None:
    class Broken:
        def dumps(self, value: Any) -> bytes:
            return b"?"

        def loads(self, data: bytes) -> Any:
            raise UnprintableError

    async def price(body: Any, message: ReceivedMessage) -> bytes:
        return b"9"

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RemoteError) as caught:
            await ask(cluster, price, serializer=Broken(), reply_serializer=rocketpy.plain)
        assert caught.value.kind == "UnreadableBodyError"

    run_sim(main)


def test_retry_of_a_responder_is_no_answer() -> None:
    async def again(message: ReceivedMessage) -> bytes:
        raise rocketpy.Retry

    async def main(cluster: Cluster) -> None:
        with pytest.raises(RequestTimeoutError):
            await ask(cluster, again, time_s=1)
        assert len(cluster.sent_back) == 1

    run_sim(main)


def test_request_whose_time_is_over_is_not_handled() -> None:
    async def main(cluster: Cluster) -> None:
        handled: list[bytes] = []

        async def price(message: ReceivedMessage) -> bytes:
            handled.append(message.body)
            return b"9"

        async with cluster.client() as client, cluster.client() as other:
            producer = client.producer()
            with pytest.raises(RequestTimeoutError):
                await producer.request("t", b"late", timeout=2)
            async with other.responder("t", group="r", handler=price, start="earliest"):
                assert (await producer.request("t", b"in time", timeout=30)).body == b"9"
                await pass_time(60)
        assert handled == [b"in time"]
        assert not cluster.sent_back

    run_sim(main)


def _request(born_ms: int, stored_ms: int, retries: int = 0, ttl: str = "2000") -> ReceivedMessage:
    ext = MessageExt(
        topic="t",
        body=b"?",
        properties={"TTL": ttl} if ttl else {},
        born_timestamp_ms=born_ms,
        store_timestamp_ms=stored_ms,
        reconsume_times=retries,
    )
    return ReceivedMessage(ext, MessageQueue("t", "b", 0))


@pytest.mark.parametrize(
    ("request_", "is_late"),
    [
        (_request(0, 0), False),
        (_request(-3_000, -3_000), True),
        (_request(-3_000, -1_000), False),  # the requester's clock is slow
        (_request(-3_000, -1_000, retries=1), True),
        (_request(-9_000, -9_000, ttl=""), False),
        (_request(-9_000, -9_000, ttl="soon"), False),
    ],
)
def test_time_of_a_request_counts_from_its_birth_or_storing(
    request_: ReceivedMessage, is_late: bool
) -> None:
    clock = FakeClock(0)
    assert Answers(None, None, clock).is_late(request_) is is_late  # type: ignore[arg-type]


async def test_requester_that_takes_no_errors_gets_none() -> None:
    """Apache's requesters would take the error's text as the answer."""
    answers = Answers(None, None, FakeClock(0))  # type: ignore[arg-type]
    assert not await answers.fail(_request(0, 0), ValueError("no"))


def test_failing_request_of_another_client_is_retried_within_its_time_only() -> None:
    async def main(cluster: Cluster) -> None:
        handled: list[int] = []

        async def fail(message: ReceivedMessage) -> bytes:
            handled.append(message.retries)
            raise ValueError("no")

        async with cluster.client() as client:
            properties = {
                "CORRELATION_ID": "1",
                "REPLY_TO_CLIENT": "java",
                "TTL": "3000",
                "CLUSTER": "DefaultCluster",
            }
            async with client.responder("t", group="r", handler=fail):
                await pass_time(1)
                await client.producer().send("t", b"?", properties=properties)
                await pass_time(5)
        assert handled == [0]
        assert len(cluster.sent_back) == 1, "as any message that fails"

    run_sim(main)
