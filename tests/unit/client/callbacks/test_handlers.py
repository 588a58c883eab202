"""Handlers that fail, and unreadable bodies: error handler, retries and dead letters."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest

import rocketpy
from rocketpy import Retry, ToDLQ
from rocketpy.errors import ConfigError, RemoteError, UnreadableBodyError
from tests.unit.client.pop_kit import CHANGE
from tests.unit.client.sim import Cluster, pass_time, run_sim

KINDS = ["consumer", "ordered", "pop_consumer"]


async def consume(
    cluster: Cluster, kind: str, handler: Any, seconds: float = 20, **more: Any
) -> Any:
    """Run a consumer over the stored messages; return it closed."""
    if kind == "ordered":
        kind, more = "consumer", {"ordered": True, "ordered_retry_pause": 2, **more}
    options = {"group": "c", "start": "earliest", "serializer": rocketpy.json, **more}
    async with cluster.client() as client:
        async with getattr(client, kind)("t", handler=handler, **options) as consumer:
            await pass_time(seconds)
    return consumer


def dead(cluster: Cluster) -> list[str]:
    """Offsets or copies that became dead letters; ordered consumers send copies."""
    back = [each["offset"] for each in cluster.sent_back if each["delayLevel"] == "-1"]
    copies = cluster.store().max_offset("%DLQ%c", 0)
    return back + [str(len(back) + n) for n in range(copies)]


@pytest.mark.parametrize("as_function", [False, True])
@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
def test_body_that_cannot_be_read_becomes_a_dead_letter_once(
    kind: str, *, as_function: bool
) -> None:
    async def main(cluster: Cluster) -> None:
        for body in (b"{", b'"good"', b"\xff"):
            cluster.put("t", body)
        got: list[Any] = []

        async def handle(body: Any, message: Any) -> None:
            got.append(body)

        def handle_in_a_thread(body: Any, message: Any) -> None:
            got.append(body)

        await consume(cluster, kind, handle_in_a_thread if as_function else handle)
        assert got == ["good"]
        assert len(dead(cluster)) == 2

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_error_handler_gets_the_error_and_decides(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        for body in (b"{", b'"ignore"', b'"bury"', b'"fine"'):
            cluster.put("t", body)
        told: list[tuple[bytes, type[Exception]]] = []

        async def handle(body: Any, message: Any) -> None:
            if body != "fine":
                raise ValueError(body)

        async def on_error(message: Any, error: Exception) -> None:
            told.append((message.body, type(error)))
            if message.body == b'"bury"':
                raise ToDLQ("as we like")

        consumer = await consume(cluster, kind, handle, on_error=on_error)
        assert told == [
            (b"{", UnreadableBodyError), (b'"ignore"', ValueError), (b'"bury"', ValueError),
        ]  # fmt: skip
        if kind == "pop_consumer":
            assert consumer.in_hand == 0
        else:
            assert sum(at for key, at in cluster.offsets.items() if key[2] == "t") == 4
        assert len(dead(cluster)) == 1

    run_sim(main, queues=1)


@pytest.mark.parametrize("order", [Retry(3), RuntimeError("the error handler is broken")])
def test_error_handler_exception_counts_as_the_handlers(order: Exception) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")

        async def handle(message: Any) -> None:
            raise KeyError("no")

        def on_error(message: Any, error: Exception) -> None:
            assert isinstance(error, KeyError)
            raise order

        await consume(cluster, "consumer", handle, on_error=on_error)
        assert cluster.sent_back[0]["delayLevel"] == ("3" if isinstance(order, Retry) else "0")

    run_sim(main, queues=1)


@pytest.mark.parametrize("where", ["handler", "function", "middleware", "on_error"])
@pytest.mark.parametrize(
    ("order", "level"), [(Retry(3), "3"), (ToDLQ("why"), "-1"), (Retry, "0"), (ToDLQ, "-1")]
)
def test_order_that_is_returned_counts_as_raised(where: str, order: Any, level: str) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")

        async def handle(message: Any) -> Any:
            if where == "on_error":
                raise ValueError
            return order if where == "handler" else None

        async def skip(messages: Any, proceed: Any) -> Any:
            return order

        more: dict[str, Any] = {}
        if where == "middleware":
            more["middlewares"] = [skip]
        if where == "on_error":
            more["on_error"] = lambda message, error: order
        handler = handle if where != "function" else lambda message: order
        await consume(cluster, "consumer", handler, seconds=1, **more)
        assert [each["delayLevel"] for each in cluster.sent_back] == [level]

    run_sim(main, queues=1)


def test_order_in_an_exception_group_does_not_go_to_the_error_handler() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")
        told: list[Exception] = []

        async def bury() -> None:
            raise ToDLQ("never")

        async def handle(message: Any) -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(bury())

        await consume(cluster, "consumer", handle, on_error=lambda _, error: told.append(error))
        assert told == []
        assert len(dead(cluster)) == 1

    run_sim(main, queues=1)


def test_orders_of_the_handler_do_not_go_to_the_error_handler() -> None:
    async def main(cluster: Cluster) -> None:
        for body in (b"0", b"1"):
            cluster.put("t", body)
        told: list[Exception] = []

        async def handle(message: Any) -> None:
            raise Retry(5) if message.body == b"0" else ToDLQ("no")

        async def on_error(message: Any, error: Exception) -> None:
            told.append(error)

        await consume(cluster, "consumer", handle, on_error=on_error)
        assert [each["delayLevel"] for each in cluster.sent_back] == ["5", "-1"]
        assert told == []

    run_sim(main, queues=1)


def test_one_bad_body_of_a_batch_leaves_the_others_to_the_handler() -> None:
    async def main(cluster: Cluster) -> None:
        for body in (b"1", b"{", b"3"):
            cluster.put("t", body)
        got: list[Any] = []

        async def handle(bodies: list[Any], messages: list[Any]) -> None:
            got.append((bodies, [each.body for each in messages]))

        await consume(cluster, "consumer", handle, batch=8)
        assert got == [([1, 3], [b"1", b"3"])]
        assert len(dead(cluster)) == 1

    run_sim(main, queues=1)


def test_failed_batch_with_a_bad_body_buries_the_bad_one_and_retries_the_others() -> None:
    async def main(cluster: Cluster) -> None:
        for body in (b"1", b"{"):
            cluster.put("t", body)

        async def handle(bodies: list[Any], messages: list[Any]) -> None:
            raise ValueError("no")

        await consume(cluster, "consumer", handle, batch=8)
        levels = {each["offset"]: each["delayLevel"] for each in cluster.sent_back}
        assert sorted(levels.values()) == ["-1", "0"]

    run_sim(main, queues=1)


# ---- work that nobody does


async def agen(message: Any) -> AsyncIterator[Any]:
    yield message


def gen(message: Any) -> Iterator[Any]:
    yield message


class Called:
    def __call__(self, message: Any) -> Iterator[Any]:
        yield message


WITH_YIELD = [agen, gen, Called(), partial(gen), partial(partial(agen)), partial(Called())]


@pytest.mark.parametrize("handler", WITH_YIELD)
@pytest.mark.parametrize("kind", ["consumer", "pop_consumer", "responder"])
def test_handler_with_yield_is_refused(kind: str, handler: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(ConfigError, match="has a yield") as caught:
                getattr(client, kind)("t", group="c", handler=handler)
            assert caught.value.key == "handler"

    run_sim(main)


@pytest.mark.parametrize("name", ["on_error", "middlewares", "on_assigned", "tx_checker"])
def test_generator_middleware_is_refused(name: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            options: dict[str, Any] = {name: [lambda given, call: agen(given), agen]}
            if name != "middlewares":
                options = {name: gen}
            make = client.producer if name == "tx_checker" else partial(client.consumer, "t")
            with pytest.raises(ConfigError, match="has a yield") as caught:
                make(**options)
            assert caught.value.key == name

    run_sim(main)


async def work(message: Any) -> None: ...


async def forgets_to_await(message: Any) -> Any:
    return work(message)


async def makes_a_generator(body: Any, message: Any) -> Any:
    return agen(message)


def makes_a_generator_in_a_thread(message: Any) -> Any:
    return gen(message)


async def forgets_in_a_batch(messages: Any) -> Any:
    return work(messages)


@pytest.mark.parametrize(
    ("handler", "options"),
    [
        (forgets_to_await, {}),
        (makes_a_generator, {}),
        (makes_a_generator_in_a_thread, {}),
        (forgets_in_a_batch, {"batch": 8}),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_handler_that_returns_its_work_undone_has_failed(
    kind: str, handler: Any, options: dict[str, Any]
) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")
        told: list[Exception] = []

        def note(message: Any, error: Exception) -> None:
            told.append(error)
            raise ToDLQ("seen")

        await consume(cluster, kind, handler, on_error=note, **options)
        assert ["that was never awaited" in str(each) for each in told] == [True]
        assert len(dead(cluster)) == 1

    run_sim(main, queues=1)


def test_middleware_that_does_not_await_the_handler_has_failed() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")

        async def forgets(messages: Any, call: Any) -> Any:
            return call(messages)

        await consume(cluster, "consumer", work, middlewares=[forgets], max_retries=0)
        assert len(cluster.sent_back) == 1

    run_sim(main, queues=1)


def test_error_handler_may_be_a_function_around_a_coroutine_function() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"{")
        told: list[Exception] = []

        async def note(message: Any, error: Exception) -> None:
            told.append(error)

        def around(message: Any, error: Exception) -> Any:
            return note(message, error)

        async def handle(body: Any, message: Any) -> None: ...

        await consume(cluster, "consumer", handle, on_error=around)
        assert len(told) == 1
        assert not dead(cluster)

    run_sim(main, queues=1)


class Stop(BaseException):
    """An exception outside of Exception, as `pytest.fail` raises it."""


class BrokenSerializer:
    def dumps(self, value: Any) -> bytes:
        raise Stop(value)

    def loads(self, data: bytes) -> Any:
        if data == b"1":
            raise Stop(data)
        return data


async def raising(message: Any) -> None:
    if message.body == b"1":
        raise Stop("no Exception")


def raising_in_a_thread(message: Any) -> None:
    if message.body == b"1":
        raise Stop("no Exception")


def closing_in_a_thread(message: Any) -> None:
    if message.body == b"1":
        raise GeneratorExit


async def closing(message: Any) -> None:
    closing_in_a_thread(message)


async def closing_by_a_thread(message: Any) -> None:
    if message.body == b"1":
        loop = asyncio.get_running_loop()
        call = loop.create_future()
        loop.call_soon(call.set_exception, GeneratorExit())  # as `asyncio.to_thread` does
        await call


async def raising_with_body(body: Any, message: Any) -> None:
    await raising(message)


async def raising_around(messages: Any, call: Any) -> Any:
    await raising(messages[0])
    return await call(messages)


async def passing_with_body(body: Any, message: Any) -> None: ...


def raising_backoff(retry: int) -> float:
    raise Stop(retry)


def raise_value_error_once(message: Any) -> None:
    if message.body == b"1":
        raise ValueError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("handler", "options"),
    [
        (raising, {}),
        (raising_in_a_thread, {}),
        (raising_with_body, {}),
        (passing_with_body, {"serializer": BrokenSerializer()}),
        (passing_with_body, {"middlewares": [raising_around]}),
        (raise_value_error_once, {"retry_backoff": raising_backoff}),
        (raising, {"on_error": lambda message, error: raising_in_a_thread(message)}),
        (closing, {}),
        (closing_in_a_thread, {}),
        (closing_by_a_thread, {}),
        (raising, {"on_error": lambda message, error: closing_in_a_thread(message)}),
    ],
    ids=[
        "async",
        "thread",
        "body",
        "serializer",
        "middleware",
        "backoff",
        "on_error",
        "async_generator_exit",
        "thread_generator_exit",
        "awaited_generator_exit",
        "on_error_generator_exit",
    ],
)
def test_exception_outside_of_exception_fails_its_message_only(
    kind: str, handler: Any, options: dict[str, Any]
) -> None:
    async def main(cluster: Cluster) -> None:
        for body in (b"0", b"1", b"2"):
            cluster.put("t", body)
        consumer = await consume(
            cluster, kind, handler, seconds=40, concurrency=1, max_retries=1, **options
        )
        if kind == "pop_consumer":
            assert consumer.in_hand == 0
            assert len(cluster.of_code(CHANGE)) + len(dead(cluster)) > 0, "it was nacked"
        else:
            assert sum(at for key, at in cluster.offsets.items() if key[2] == "t") == 3
            assert len(dead(cluster)) + len(cluster.sent_back) > 0, "it failed"

    run_sim(main, queues=1)


def test_error_handler_gets_an_exception_with_what_was_raised_as_its_cause() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")
        told: list[Exception] = []

        def note(message: Any, error: Exception) -> None:
            told.append(error)

        await consume(cluster, "consumer", raising, on_error=note)
        assert [type(each.__cause__) for each in told] == [Stop]
        assert isinstance(told[0], RuntimeError)
        assert cluster.sent_back == []

    run_sim(main, queues=1)


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt])
def test_exit_of_the_program_in_a_handler_ends_it(ending: type[BaseException]) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")

        async def leave(message: Any) -> None:
            raise ending

        await consume(cluster, "consumer", leave)

    with pytest.raises(ending):
        run_sim(main, queues=1)


def failing_key(message: Any) -> str:
    if message.body == b"1":
        raise KeyError("customer")
    return "k"


@pytest.mark.parametrize("key_of", [failing_key, lambda message: ["no hash", message.body]])
def test_key_function_that_fails_fails_its_message_only(key_of: Any) -> None:
    async def main(cluster: Cluster) -> None:
        for body in (b"0", b"1", b"2"):
            cluster.put("t", body)
        got: list[bytes] = []
        told: list[tuple[bytes, str]] = []

        async def handle(message: Any) -> None:
            got.append(message.body)

        def note(message: Any, error: Exception) -> None:
            told.append((message.body, type(error).__name__))

        await consume(cluster, "consumer", handle, order_by_key=key_of, on_error=note)
        if key_of is failing_key:
            assert (got, told) == ([b"0", b"2"], [(b"1", "KeyError")])
        else:
            assert told == [(body, "TypeError") for body in (b"0", b"1", b"2")]
        assert sum(at for key, at in cluster.offsets.items() if key[2] == "t") == 3

    run_sim(main, queues=1)


def test_responder_failures_of_one_kind_are_logged_with_one_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(message: Any) -> bytes:
        raise KeyError("the same line")

    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client, cluster.client() as other:
            async with other.responder("t", group="r", handler=fail):
                for _ in range(5):
                    with pytest.raises(RemoteError):
                        await client.producer().request("t", b"?", timeout=3)

    run_sim(main)
    logged = [each for each in caplog.records if "outcome=answered" in each.message]
    assert [each.exc_info is not None for each in logged] == [True]
