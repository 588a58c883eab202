"""An app's handlers without a broker."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rocketpy
from rocketpy import App, Headers, Message, Producer, ReceivedMessage, Retry, ToDLQ, TxState
from rocketpy.errors import (
    ClientError,
    ConfigError,
    IllegalMessageError,
    RemoteError,
    RequestTimeoutError,
    UnreadableBodyError,
)
from rocketpy.testing.app import TestApp


@dataclass
class Order:
    id: str
    amount: int = 1


def shop() -> App:
    app = App("nowhere:1", group="shop")

    @app.subscribe("orders", group="billing", filter="paid || late")
    async def bill(order: Order, message: ReceivedMessage, producer: Producer) -> None:
        if order.amount < 0:
            raise ToDLQ("negative")
        if order.amount == 0 and message.retries < 2:
            raise Retry(3)
        await producer.send("bills", {"order": order.id}, headers={"by": "billing"})

    @app.subscribe("bills", sql="by = 'billing'", batch=10)
    def print_all(bills: list[dict[str, str]], headers: list[Headers]) -> None:
        assert [each["by"] for each in headers] == ["billing"] * len(bills)

    return app


def bodies(messages: list[ReceivedMessage]) -> list[bytes]:
    return [each.body for each in messages]


async def test_handlers_get_what_is_published_and_what_others_send() -> None:
    async with TestApp(shop()) as test:
        await test.publish("orders", Order("a", 5), tag="paid")
        await test.publish(Message(topic="orders", body=Order("b"), tag="late"))
        await test.publish("orders", Order("c"), tag="new")
        assert test.acked("billing") == []
        assert await test.run_until_idle() == 4
        assert len(test.acked("billing")) == 2
        assert bodies(test.acked("shop")) == [b'{"order":"a"}', b'{"order":"b"}']
        assert test.sent("bills")[0].decode() == {"order": "a"}
        assert len(test.sent()) == 5
        with pytest.raises(ValueError, match="no handler has group"):
            test.acked("billling")


async def test_failing_handler_retries_and_then_buries_the_message() -> None:
    app = shop()

    @app.subscribe("hopeless", group="never", max_retries=3)
    async def fail(body: Any) -> None:
        raise KeyError(body)

    async with TestApp(app) as test:
        await test.publish("orders", Order("again", 0), tag="paid")
        await test.publish("orders", Order("bad", -1), tag="paid")
        await test.publish("hopeless", 1)
        await test.publish("orders", [5], tag="paid")
        await test.run_until_idle()
        assert [each.retries for each in test.retried("billing")] == [0, 1]
        assert [each.retries for each in test.acked("billing")] == [2]
        assert bodies(test.dead("billing")) == [b'{"id":"bad","amount":-1}', b"[5]"]
        assert [each.retries for each in test.retried("never")] == [0, 1, 2]
        [letter] = test.dead("never")
        assert (letter.retries, letter.properties["DLQ_EXCEPTION"]) == (3, "KeyError")
        assert (letter.properties["DLQ_REASON"], letter.properties["DLQ_MEMBER"]) == ("1", "test")


async def test_sends_fail_on_demand() -> None:
    async with TestApp(shop()) as test:
        test.fail_sends(ClientError("the brokers are away"))
        await test.publish("orders", Order("a"), tag="paid")
        await test.run_until_idle()
        assert len(test.dead("billing")) == 1, "after all its retries"
        test.fail_sends(None)
        await test.publish("orders", Order("b"), tag="paid")
        await test.run_until_idle()
        assert len(test.acked("billing")) == 1


async def test_hooks_error_handlers_and_all_ways_to_send_are_the_app_s() -> None:
    app = App("nowhere:1", group="g")
    events: list[Any] = []

    @app.on_start
    async def start() -> None:
        app.producer.send_oneway("t", "one way")
        await app.producer.send_batch("t", ["of a batch", Message(topic="t", body="another")])
        result = await app.producer.send_nowait("t", {"fails": True})
        await app.producer.ready()
        await app.producer.flush()
        events.append(result.status)

    @app.on_stop
    def stop() -> None:
        events.append("stop")

    @app.on_error
    def told(message: ReceivedMessage, error: Exception) -> None:
        events.append(type(error))

    @app.subscribe("t")
    async def handle(body: Any) -> None:
        if isinstance(body, dict):
            raise KeyError(body)

    async with TestApp(app) as test:
        await test.run_until_idle()
        assert len(test.acked("g")) == 4, "who handles errors has decided"
    assert events == [rocketpy.SendStatus.SEND_OK, KeyError, "stop"]


async def test_delays_and_retries_have_their_time_when_it_is_simulated() -> None:
    app = App("nowhere:1", group="g")
    seen: list[tuple[float, Any]] = []

    @app.subscribe("t")
    async def handle(body: Any, message: ReceivedMessage) -> None:
        seen.append((test.elapsed_s, body))
        if body == "fails twice" and message.retries < 2:
            raise KeyError(body)
        if body == "asks" and not message.retries:
            raise Retry(5)

    async with TestApp(app, simulated_time=True) as test:
        await test.publish("t", "in an hour", delay=3600)
        await test.publish("t", "level 2", delay_level=2)
        await test.publish("t", "fails twice")
        await test.publish("t", "asks")
        moment = datetime.now(UTC) + timedelta(days=1)
        await test.publish("t", "tomorrow", deliver_at=moment)
        assert await test.run_until_idle() == 2
        assert await test.pass_time(4.999) == 0
        assert await test.pass_time(timedelta(seconds=100)) == 4
        assert await test.pass_time(3600) == 1
        assert await test.pass_time(timedelta(days=1)) == 1
    assert seen[:-1] == [
        (0, "fails twice"),
        (0, "asks"),
        (5, "level 2"),
        (10, "fails twice"),
        (40, "fails twice"),
        (60, "asks"),
        (3600, "in an hour"),
    ]
    assert seen[-1][1] == "tomorrow"
    assert 82_000 < seen[-1][0] < 86_401


async def test_delays_that_handlers_or_the_backoff_choose_have_their_time() -> None:
    app = App("nowhere:1", group="g")
    seen: list[tuple[float, str]] = []

    def failing(name: str, error: Exception) -> Any:
        async def handle(message: ReceivedMessage) -> None:
            seen.append((test.elapsed_s, name))
            if not message.retries:
                raise error

        return handle

    app.subscribe("t", group="plain")(failing("plain", Retry(delay=45)))
    app.subscribe("t", group="ordered", ordered=True)(failing("ordered", Retry(delay=45)))
    app.subscribe("t", group="backed", retry_backoff=lambda _: 4)(failing("backed", KeyError()))
    async with TestApp(app, simulated_time=True) as test:
        await test.publish("t", "x")
        await test.run_until_idle()
        await test.pass_time(100)
    assert sorted(seen)[3:] == [(5, "backed"), (45, "ordered"), (60, "plain")]


async def test_time_passes_in_simulated_time_only() -> None:
    async with TestApp(shop()) as test:
        with pytest.raises(ClientError, match="simulated_time"):
            await test.pass_time(1)


async def test_sends_are_slow_or_frozen_on_demand() -> None:
    app = App("nowhere:1", group="g")
    errors: list[str] = []

    @app.subscribe("t", max_retries=0)
    async def handle(body: Any, producer: Producer) -> None:
        try:
            await producer.send("u", body, timeout=2)
        except RequestTimeoutError as error:
            errors.append(str(error))
            raise

    async with TestApp(app, simulated_time=True) as test:
        test.slow_sends(1.5)
        await test.publish("t", 1)
        await test.run_until_idle()
        assert (test.elapsed_s, len(test.sent("u"))) == (1.5, 1)
        test.slow_sends(2.5)
        await test.publish("t", 2)
        await test.run_until_idle()
        test.slow_sends(0)
        test.freeze_sends()
        await test.publish("t", 3)
        await test.run_until_idle()
        assert (test.elapsed_s, len(test.sent("u"))) == (5.5, 1)
        assert errors == ["no answer to a send to u within 2000 ms"] * 2
        test.freeze_sends(frozen=False)
        await test.publish("t", 4)
        await test.run_until_idle()
        assert [each.decode() for each in test.sent("u")] == [1, 4]
        assert len(test.dead("g")) == 2


async def test_middlewares_are_those_of_the_app() -> None:
    app = App("nowhere:1", group="g")
    events: list[Any] = []

    @app.middleware
    async def around(messages: Sequence[ReceivedMessage], handle: rocketpy.Handle) -> None:
        events.append(messages[0].topic)
        await handle(messages)

    @app.send_middleware
    async def stamp(sending: rocketpy.Sending, proceed: rocketpy.Proceed) -> Any:
        sending.add_headers({"kind": sending.kind})
        return await proceed(sending)

    @app.subscribe("t")
    async def handle(body: Any, producer: Producer) -> None:
        await producer.send("u", body)
        producer.send_oneway("u", body)
        await producer.send_batch("u", [body])
        await producer.send_nowait("u", body)

    async with TestApp(app) as test:
        await test.publish("t", 1)
        await test.run_until_idle()
        kinds = [each.headers["kind"] for each in test.sent("u")]
    assert events == ["t"]
    assert sorted(kinds) == ["batch", "oneway", "send", "send"]


async def test_answers_of_responders_are_recorded() -> None:
    app = App("nowhere:1", group="g")

    @app.send_middleware
    async def doubled(sending: rocketpy.Sending, proceed: rocketpy.Proceed) -> Any:
        assert sending.kind == "reply"
        sending.body = sending.body * 2
        return await proceed(sending)

    @app.responder("quotes", group="pricing")
    def quote(order: Order) -> list[str] | None:
        return [order.id] if order.amount else None

    async with TestApp(app) as test:
        await test.publish("quotes", Order("o1", 5))
        await test.publish("quotes", Order("o2", 0))
        await test.publish("quotes", {"id": 5})
        await test.run_until_idle()
        assert test.answers("pricing") == [["o1", "o1"]]
        assert len(test.acked("pricing")) == 2
        assert len(test.dead("pricing")) == 1


async def test_unsendable_and_endless_messages_raise() -> None:
    app = App("nowhere:1", group="g")

    @app.subscribe("round")
    async def again(body: Any, producer: Producer) -> None:
        await producer.send("round", body)

    async with TestApp(app) as test:
        wrong: dict[str, Any] = {"tags": "a"}
        with pytest.raises(TypeError, match="did you mean tag"):
            await test.publish("round", 1, **wrong)
        with pytest.raises(IllegalMessageError):
            await test.publish("no such topic", 1)
        await test.publish("round", 1)
        with pytest.raises(ClientError, match="more are due"):
            await test.run_until_idle()


def asking() -> App:
    app = App("nowhere:1", group="shop")

    @app.responder("quotes", group="pricing")
    async def quote(request: dict[str, str], message: ReceivedMessage) -> dict[str, int] | None:
        if request["sku"] == "again" and not message.retries:
            raise Retry(1)
        return {"price": 3} if request["sku"] != "unknown" else None

    @app.subscribe("quotes", group="audit")
    async def audit(request: dict[str, str]) -> None: ...

    @app.subscribe("carts", group="carts")
    async def price(sku: Any, producer: Producer) -> None:
        answer = await producer.request("quotes", {"sku": sku}, timeout=5)
        await producer.send("prices", answer.decode())

    @app.subscribe("parcels", group="parcels")
    async def track(parcel: Any, producer: Producer) -> None:
        answer = await producer.request("tracking", parcel)
        await producer.send("places", answer.decode())

    return app


async def test_requests_of_handlers_are_answered_by_the_app_s_responders() -> None:
    async with TestApp(asking()) as test:
        await test.publish("carts", "book")
        await test.publish("carts", "again")
        await test.run_until_idle()
        assert [each.decode() for each in test.sent("prices")] == [{"price": 3}] * 2
        assert test.answers("pricing") == [{"price": 3}] * 2
        assert len(test.acked("pricing")) == 2, "responders get a request once"
        assert len(test.acked("audit")) == 2, "others who subscribe get it, too"


async def test_request_without_an_answer_takes_its_timeout() -> None:
    async with TestApp(asking(), simulated_time=True) as test:
        await test.publish("carts", "unknown")
        await test.run_until_idle()
        assert test.elapsed_s == 5
        assert len(test.retried("carts")) == 1
        await test.publish("parcels", "p1")
        await test.run_until_idle()
        assert len(test.retried("parcels")) == 1
        test.answer_requests("tracking", lambda request: f"{request.decode()} in Ulm")
        await test.pass_time(60)
        assert len(test.acked("parcels")) == 1
        test.answer_requests("tracking", "delivered")
        await test.publish("parcels", "p2")
        await test.run_until_idle()
        places = [each.decode() for each in test.sent("places")]
        assert [each.rpartition(" ")[2] for each in places] == ["Ulm", "delivered"]
        test.freeze_sends()
        await test.publish("parcels", "p3")
        await test.run_until_idle()
        assert len(test.acked("parcels")) == 2


async def test_handler_answers_by_itself() -> None:
    app = App("nowhere:1", group="shop")

    @app.responder("sums", group="sums")
    async def add(numbers: list[int], message: ReceivedMessage, producer: Producer) -> None:
        await producer.reply(message, sum(numbers))

    async with TestApp(app) as test:
        assert (await app.producer.request("sums", [1, 2])).decode() == 3
        assert repr(app.producer) == "<Producer of a TestApp, group shop>"
        assert app.producer.stats.begun == 1
        await test.publish("sums", [1])
        await test.run_until_idle()
        assert len(test.acked("sums")) == 1


async def test_answer_is_read_as_the_type_asked_for() -> None:
    app = App("nowhere:1", group="shop")

    @app.responder("sums", group="sums")
    async def add(numbers: list[int]) -> int:
        return sum(numbers)

    async with TestApp(app):
        assert await app.producer.request("sums", [1, 2], type=int) == 3
        with pytest.raises(UnreadableBodyError, match=r"as dict\[str, int\]: "):
            await app.producer.request("sums", [1, 2], type=dict[str, int])


def paying(*, checks: list[TxState] | None = None) -> App:
    app = App("nowhere:1", group="shop")

    if checks is not None:

        @app.transaction_checker
        async def check(message: ReceivedMessage) -> TxState:
            assert message.decode() == "unknown"
            return checks.pop(0)

    @app.subscribe("orders", group="paying")
    async def pay(order: Any, producer: Producer) -> None:
        async with producer.transaction("paid", order) as tx:
            assert tx.id
            if order == "broke":
                raise ToDLQ("no money")
            if order == "unknown":
                tx.unknown()

    @app.subscribe("paid", group="sending")
    async def send(order: Any) -> None: ...

    return app


async def test_transactions_of_handlers_are_published_when_they_commit() -> None:
    async with TestApp(paying()) as test:
        for order in ("good", "broke", "unknown"):
            await test.publish("orders", order)
        await test.run_until_idle()
        assert [each.decode() for each in test.sent("paid")] == ["good"]
        assert [each.decode() for each in test.acked("sending")] == ["good"]
        assert len(test.dead("paying")) == 1
        test.fail_sends(ClientError("down"))
        await test.publish("orders", "good")
        await test.run_until_idle()
        assert len(test.sent("paid")) == 1
        assert len(test.dead("paying")) == 2


async def test_app_s_checker_is_asked_about_the_others_when_it_is_time() -> None:
    checks = [TxState.UNKNOWN, TxState.COMMIT]
    async with TestApp(paying(checks=checks), simulated_time=True) as test:
        await test.publish("orders", "unknown")
        await test.run_until_idle()
        await test.pass_time(29)
        assert len(checks) == 2
        await test.pass_time(1)
        assert len(checks) == 1
        assert test.sent("paid") == []
        await test.pass_time(30)
        assert len(test.acked("sending")) == 1
    async with TestApp(paying(checks=[TxState.ROLLBACK])) as test:
        await test.publish("orders", "unknown")
        await test.run_until_idle()
        assert test.sent("paid") == []


async def test_transaction_needs_a_group_and_takes_no_delay() -> None:
    nameless = App("nowhere:1")
    async with TestApp(nameless):
        with pytest.raises(ConfigError, match="group"):
            nameless.producer.transaction("paid", "x")
    app = paying()
    async with TestApp(app):
        with pytest.raises(IllegalMessageError, match="delayed"):
            async with app.producer.transaction("paid", "x", delay=5):
                pass
        with pytest.raises(ClientError, match="does not support recall"):
            await app.producer.recall("paid", "x")


@pytest.mark.parametrize("simulated_time", [False, True])
async def test_delay_that_no_broker_takes_is_refused(*, simulated_time: bool) -> None:
    app = paying()
    async with TestApp(app, simulated_time=simulated_time) as test:
        await test.publish("reminders", "x", delay=259_200)
        with pytest.raises(IllegalMessageError, match="3 days"):
            await app.producer.send("reminders", "x", delay=259_201)
        assert len(test.sent("reminders")) == 1


TEXTS = ["first", '"in quotes"', "5", "null", "{", "ä"]


async def test_text_body_is_unchanged_for_every_sender() -> None:
    app = App("nowhere:1")
    copies: list[str] = []
    got: list[Any] = []

    @app.subscribe("texts", group="texts")
    async def take(body: str, producer: Producer) -> None:
        await producer.send("copies", body)
        await producer.send("anything", body)

    @app.subscribe("copies", group="copies")
    async def take_copy(body: str, message: ReceivedMessage) -> None:
        assert message.body == body.encode(), "as a plain producer sends it"
        copies.append(body)

    @app.subscribe("anything", group="anything")
    async def take_anything(body: Any) -> None:
        got.append(body)

    async with TestApp(app) as test:
        for each in TEXTS:
            await test.publish("texts", each)
        await test.publish("anything", b"\x00as they are")
        await test.run_until_idle()
    assert copies == TEXTS
    assert got == ["\x00as they are", "first", "in quotes", 5, None, "{", "ä"]


async def test_responder_of_texts_answers_with_anything() -> None:
    app = App("nowhere:1")

    @app.responder("lengths", group="lengths")
    async def answer(body: str) -> dict[str, int]:
        return {"length": len(body)}

    async with TestApp(app) as test:
        result = await app.producer.request("lengths", "four")
        assert result.decode() == {"length": 4}
        assert test.answers("lengths") == [{"length": 4}]


async def test_responder_that_raises_answers_a_request_with_its_error() -> None:
    app = App("nowhere:1", group="shop")
    errors: list[str] = []

    @app.responder("quotes", group="pricing")
    async def price(name: str) -> str:
        raise ValueError(f"no {name}")

    @app.subscribe("carts", group="carts")
    async def ask(name: str, producer: Producer) -> None:
        try:
            await producer.request("quotes", name)
        except RemoteError as error:
            errors.append(f"{error.kind} {error.detail}")

    async with TestApp(app) as test:
        await test.publish("carts", "book")
        await test.run_until_idle()
        assert errors == ["ValueError no book"]
        assert len(test.acked("pricing")) == len(test.acked("carts")) == 1


async def test_repeated_failure_of_a_handler_has_one_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = App("nowhere:1", group="shop")

    @app.subscribe("orders", max_retries=5)
    async def fail(message: ReceivedMessage) -> None:
        raise ValueError(message.body)

    async with TestApp(app) as test:
        await test.publish("orders", b"x")
        assert await test.run_until_idle() == 6
    assert sum(each.exc_info is not None for each in caplog.records) == 1
