"""Middlewares around sends and handlers: their order, what they see, change and end."""

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

import pytest

import rocketpy
from rocketpy import Message, ReceivedMessage, Retry, TxState
from rocketpy.client.callbacks.middleware import Handle, Proceed, Sending
from rocketpy.errors import ClosedError, ConfigError, FlowControlError, TooManyInFlightError
from rocketpy.proto.record.properties import parse_properties
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import until

SEND, BATCH = 310, 320


class Noted:
    """A middleware that writes down what passes."""

    def __init__(self, name: str, events: list[Any]) -> None:
        self.name = name
        self.events = events

    async def __call__(self, given: Any, proceed: Any) -> Any:
        self.events.append(f"{self.name} begins")
        try:
            return await proceed(given)
        except BaseException as error:
            self.events.append(f"{self.name} sees {type(error).__name__}")
            raise
        finally:
            self.events.append(f"{self.name} ends")


async def stamp(sending: Sending, proceed: Proceed) -> Any:
    sending.add_headers({"stamp": sending.kind})
    return await proceed(sending)


def headers_of(cluster: Cluster) -> list[str | None]:
    return [
        parse_properties(request.ext_fields["i"]).get("stamp") for request in cluster.of_code(SEND)
    ]


def test_first_is_the_outermost_and_sees_results_and_errors() -> None:
    async def main(cluster: Cluster) -> None:
        events: list[Any] = []
        layers = [Noted("outer", events), Noted("inner", events)]
        async with cluster.client() as client:
            producer = client.producer(middlewares=layers, retries=0)
            result = await producer.send("t", b"x")
            assert b"x" in cluster.record("t", result.queue.queue_id, result.offset)
            assert events == ["outer begins", "inner begins", "inner ends", "outer ends"]
            events.clear()
            cluster.script[SEND] = [215]
            with pytest.raises(FlowControlError):
                await producer.send("t", b"x")
            assert events[2:] == [
                "inner sees FlowControlError",
                "inner ends",
                "outer sees FlowControlError",
                "outer ends",
            ]
            assert producer.in_flight == 0

    run_sim(main)


def test_every_way_to_send_goes_through_them() -> None:
    async def main(cluster: Cluster) -> None:
        kinds: list[str] = []

        async def note(sending: Sending, proceed: Proceed) -> Any:
            kinds.append(sending.kind)
            return await proceed(sending)

        async def answer(message: ReceivedMessage) -> bytes:
            assert message.headers["stamp"] == "request"
            return b"yes"

        async with cluster.client() as client:
            producer = client.producer(
                group="p", middlewares=[note, stamp], tx_checker=lambda _: TxState.COMMIT
            )
            await producer.send(Message(topic="t", body=b"1", headers={"own": "1"}))
            await producer.send_nowait("t", b"2", tag="a")
            producer.send_oneway("t", b"3")
            await producer.flush()
            async with producer.transaction("t", b"4"):
                pass
            assert headers_of(cluster) == ["send", "send", "oneway", "transaction"]
            first = parse_properties(cluster.of_code(SEND)[0].ext_fields["i"])
            assert first["own"] == "1"
            assert len(await producer.send_batch("t", [b"5", Message(topic="t", body=b"6")])) == 2
            async with client.responder("q", group="r", handler=answer):
                reply = await producer.request("q", b"7", timeout=20)
            assert reply.body == b"yes"
        assert kinds == ["send", "send", "oneway", "transaction", "batch", "request"]

    run_sim(main, topics=("t", "q"))


def test_headers_of_a_batch_s_messages_are_kept_and_more_are_added() -> None:
    async def main(cluster: Cluster) -> None:
        got: list[dict[str, str]] = []
        async with cluster.client() as client:
            producer = client.producer(middlewares=[stamp])
            await producer.send_batch(
                "t", [b"a", Message(topic="t", body=b"b", headers={"h": "1"})]
            )
            await producer.send_batch("t", [b"c"], headers={"all": "2"})
            async with client.consumer("t", group="c", start="earliest") as consumer:
                while len(got) < 3:
                    message = await consumer.getone(timeout=10)
                    assert message is not None
                    got.append(dict(message.headers))
        wanted = [{"stamp": "batch"}, {"h": "1", "stamp": "batch"}, {"all": "2", "stamp": "batch"}]
        assert sorted(map(str, got)) == sorted(map(str, wanted))

    run_sim(main, queues=1)


def test_one_may_answer_in_place_of_the_send_or_send_elsewhere() -> None:
    async def main(cluster: Cluster) -> None:
        async def route(sending: Sending, proceed: Proceed) -> Any:
            if sending.body == b"drop":
                return None
            sending.topic = "u"
            return await proceed(sending)

        async with cluster.client() as client:
            producer = client.producer(middlewares=[route])
            assert await producer.send("t", b"drop") is None
            result = await producer.send("t", b"keep")
        assert result.queue.topic == "u"
        assert len(cluster.of_code(SEND)) == 1

    run_sim(main, topics=("t", "u"))


def test_sends_in_a_middleware_count_and_a_close_waits_for_them() -> None:
    async def main(cluster: Cluster) -> None:
        gate = asyncio.Event()

        async def wait(sending: Sending, proceed: Proceed) -> Any:
            await gate.wait()
            return await proceed(sending)

        async with cluster.client() as client:
            producer = client.producer(middlewares=[wait], max_in_flight=2)
            futures = [producer.send_nowait("t", b"x") for _ in range(2)]
            with pytest.raises(TooManyInFlightError):
                producer.send_nowait("t", b"x")
            with pytest.raises(TooManyInFlightError):
                producer.send_oneway("t", b"x")
            ready = asyncio.create_task(producer.ready())
            await pass_time(1)
            assert not ready.done()
            assert producer.in_flight == 2
            closing = asyncio.create_task(producer.close())
            await pass_time(1)
            assert not closing.done()
            gate.set()
            await closing
            assert [future.result().queue.topic for future in futures] == ["t", "t"]
            assert producer.in_flight == 0
            ready.cancel()
            with pytest.raises(ClosedError):
                await producer.send("t", b"x")
        assert len(cluster.of_code(SEND)) == 2

    run_sim(main)


def test_one_way_send_that_a_middleware_fails_is_counted_as_lost() -> None:
    async def main(cluster: Cluster) -> None:
        async def refuse(_sending: Sending, _proceed: Proceed) -> Any:
            raise PermissionError("no")

        async with cluster.client() as client:
            producer = client.producer(middlewares=[refuse])
            producer.send_oneway("t", b"x")
            await producer.flush()
            assert producer.lost_oneway == 1
            with pytest.raises(PermissionError):
                await producer.send_nowait("t", b"x")

    run_sim(main)


def test_one_way_send_whose_middleware_is_cancelled_is_counted_as_lost() -> None:
    async def main(cluster: Cluster) -> None:
        async def cancelled(_sending: Sending, _proceed: Proceed) -> Any:
            raise asyncio.CancelledError

        async with cluster.client() as client:
            producer = client.producer(middlewares=[cancelled])
            producer.send_oneway("t", b"x")
            await producer.flush()
            assert producer.lost_oneway == 1

    run_sim(main)


KINDS = ["consumer", "ordered", "pop_consumer"]


async def consume(cluster: Cluster, kind: str, handler: Any, **more: Any) -> None:
    if kind == "ordered":
        kind, more = "consumer", {"ordered": True, "ordered_retry_pause": 1, **more}
    options = {"group": "c", "start": "earliest", **more}
    async with cluster.client() as client:
        async with getattr(client, kind)("t", handler=handler, **options):
            await pass_time(30)


@pytest.mark.parametrize("kind", KINDS)
def test_around_a_handler_the_first_is_the_outermost_and_sees_what_it_raises(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"x")
        events: list[Any] = []

        async def handle(message: ReceivedMessage) -> None:
            events.append(message.body)
            if events.count(message.body) == 1:
                raise Retry(1)

        layers = [Noted("outer", events), Noted("inner", events)]
        await consume(cluster, kind, handle, middlewares=layers)
        assert events[:7] == [
            "outer begins",
            "inner begins",
            b"x",
            "inner sees Retry",
            "inner ends",
            "outer sees Retry",
            "outer ends",
        ]

    run_sim(main, queues=1)


def test_one_may_end_the_matter_hand_fewer_on_and_hold_an_error_back() -> None:
    async def main(cluster: Cluster) -> None:
        for body in (b"seen", b"new", b"bad"):
            cluster.put("t", body)
        got: list[bytes] = []

        async def fresh(messages: Sequence[ReceivedMessage], handle: Handle) -> Any:
            return await handle([each for each in messages if each.body != b"seen"])

        async def calm(messages: Sequence[ReceivedMessage], handle: Handle) -> None:
            try:
                await handle(messages)
            except KeyError:
                got.append(b"held back")

        async def take(messages: list[ReceivedMessage]) -> None:
            got.extend(each.body for each in messages)
            if b"bad" in got:
                raise KeyError("bad")

        await consume(cluster, "consumer", take, middlewares=[calm, fresh], batch=10)
        assert got == [b"new", b"bad", b"held back"]
        assert cluster.sent_back == []
        assert cluster.offsets["c", "broker-a", "t", 0] == 3

    run_sim(main, queues=1)


@pytest.mark.parametrize("as_function", [False, True])
def test_bodies_that_cannot_be_read_do_not_reach_them(*, as_function: bool) -> None:
    async def main(cluster: Cluster) -> None:
        for body in (b"{", b'"good"'):
            cluster.put("t", body)
        events: list[Any] = []
        told: list[str] = []

        async def handle(body: Any, message: Any) -> None:
            events.append(body)
            raise ValueError(body)

        def handle_in_a_thread(body: Any, message: Any) -> None:
            events.append(body)
            raise ValueError(body)

        await consume(
            cluster,
            "consumer",
            handle_in_a_thread if as_function else handle,
            middlewares=[Noted("one", events)],
            on_error=lambda _, error: told.append(type(error).__name__),
            serializer=rocketpy.json,
            concurrency=1,
        )
        assert events == ["one begins", "one ends", "one begins", "good", "one sees ValueError",
                          "one ends"]  # fmt: skip
        assert told == ["UnreadableBodyError", "ValueError"]

    run_sim(main, queues=1)


@pytest.mark.parametrize("wrong", [5, [5], [lambda _: None], "ab"])
def test_invalid_middleware_raises_at_the_call(wrong: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(ConfigError, match="middlewares"):
                client.producer(middlewares=wrong)
            with pytest.raises(ConfigError, match="middlewares"):
                client.consumer("t", handler=print, middlewares=wrong)
            with pytest.raises(ConfigError, match="needs a handler"):
                client.consumer("t", middlewares=[stamp])  # type: ignore[list-item]

    run_sim(main)


def test_one_that_cannot_be_awaited_is_named() -> None:
    async def main(cluster: Cluster) -> None:
        def plain(_sending: Sending, _proceed: Proceed) -> None:
            return None

        async with cluster.client() as client:
            with pytest.raises(ConfigError, match="to be a coroutine function"):
                client.producer(middlewares=[plain])  # type: ignore[list-item]
            # A wrapper may return the coroutine of what it wraps; whether it does shows the call.
            functools.update_wrapper(plain, stamp)
            producer = client.producer(middlewares=[plain])  # type: ignore[list-item]
            with pytest.raises(TypeError, match="is to be a coroutine function: it returned None"):
                await producer.send("t", b"x")
            assert producer.in_flight == 0

    run_sim(main)


def test_answers_go_through_those_of_the_app_and_of_the_responder() -> None:
    async def main(cluster: Cluster) -> None:
        events: list[Any] = []
        app = rocketpy.App(cluster.client(), group="g")

        @app.send_middleware
        async def outer(sending: Sending, proceed: Proceed) -> Any:
            events.append((sending.kind, sending.body))
            return await stamp(sending, proceed)

        async def inner(sending: Sending, proceed: Proceed) -> Any:
            assert sending.options.get("headers") == {"stamp": "reply"}
            sending.body = {**sending.body, "currency": "EUR"}
            return await proceed(sending)

        @app.responder("t", reply_middlewares=[inner])
        async def quote(sku: int) -> dict[str, int]:
            return {"price": sku}

        async with app, cluster.client() as asking:
            reply = await asking.producer(serializer=rocketpy.json).request("t", 7, timeout=10)
        assert events == [("reply", {"price": 7})]
        assert reply.decode() == {"price": 7, "currency": "EUR"}
        assert reply.headers == {"stamp": "reply"}

    run_sim(main)


def test_app_s_are_around_those_of_a_subscription() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"1")
        app = rocketpy.App(cluster.client())
        events: list[Any] = []
        app.middleware(Noted("app", events))

        @app.send_middleware
        async def note(sending: Sending, proceed: Proceed) -> Any:
            events.append(sending.topic)
            return await proceed(sending)

        @app.subscribe(
            "t", group="c", start="earliest", ordered=True, middlewares=[Noted("own", events)]
        )
        async def handle(body: int, producer: rocketpy.Producer) -> None:
            await producer.send("u", body)

        async with app:
            await until(lambda: len(events) == 5)
        assert events == ["app begins", "own begins", "u", "own ends", "app ends"]

    run_sim(main, queues=1, topics=("t", "u"))
