"""Results of handlers that are published."""

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pydantic
import pytest

import rocketpy
from rocketpy import App
from rocketpy.errors import ConfigError, ConnectError, IllegalMessageError
from rocketpy.testing.app import TestApp


@dataclass
class Order:
    id: str
    price: Decimal = Decimal(0)


@dataclass
class Bill:
    order: str
    total: Decimal


def make_app(**options: Any) -> App:
    return App("127.0.0.1:1", group="shop", **options)


@pytest.mark.parametrize("form", ["async", "plain", "partial", "message"])
async def test_result_is_sent_and_read_by_another_handler(form: str) -> None:
    app, bills = make_app(), []

    async def bill(order: Order) -> Bill | None:
        return Bill(order.id, order.price) if order.price else None

    def plain_bill(order: Order) -> Bill | None:
        return Bill(order.id, order.price) if order.price else None

    async def message_bill(message: rocketpy.ReceivedMessage[Order]) -> Bill | None:
        return await bill(message.decode())

    forms: dict[str, Any] = {
        "async": bill, "plain": plain_bill, "partial": functools.partial(bill),
        "message": message_bill,
    }  # fmt: skip
    handler = forms[form]
    assert app.publisher("bills", tag="new")(app.subscribe("orders")(handler)) is handler

    @app.subscribe("bills", group="books", filter="new")
    async def book(bill: Bill) -> None:
        bills.append(bill)

    async with TestApp(app) as test:
        await test.publish("orders", Order("o1", Decimal("9.90")))
        await test.publish("orders", Order("o2"))
        await test.run_until_idle()
        assert bills == [Bill("o1", Decimal("9.90"))]
        assert len(test.sent("bills")) == 1
        assert len(test.acked("shop")) == 2


async def test_message_is_redelivered_when_its_result_is_not_stored() -> None:
    app = make_app()

    @app.publisher("bills")
    @app.subscribe("orders", max_retries=1)
    async def bill(order: Order) -> str:
        return order.id

    async with TestApp(app) as test:
        test.fail_sends(ConnectError("no route to the broker"))
        await test.publish("orders", Order("o1"))
        await test.run_until_idle()
        assert (test.acked("shop"), len(test.retried("shop"))) == ([], 1)
        assert len(test.dead("shop")) == 1


async def test_several_publishers_and_returned_messages_are_sent() -> None:
    app = make_app()

    @app.publisher("all")
    @app.publisher("bills")
    @app.subscribe("orders")
    async def bill(order: str) -> Any:
        return rocketpy.Message(topic="special", body="s", tag="x") if order == "s" else order

    @app.publisher("prices")
    @app.responder("quotes", group="pricing")
    async def quote(request: str) -> str:
        return request.upper()

    async with TestApp(app) as test:
        for topic, body in (("orders", "o1"), ("orders", "s"), ("quotes", "q")):
            await test.publish(topic, body)
        await test.run_until_idle()
        sent = {topic: [each.body for each in test.sent(topic)] for topic in ("all", "bills")}
        assert sent == {"all": [b"o1"], "bills": [b"o1"]}
        assert [each.tag for each in test.sent("special")] == ["x", "x"]
        assert [each.body for each in test.sent("prices")] == [b"Q"]
        assert test.answers("pricing") == ["Q"]


def test_publisher_that_cannot_work_is_refused_where_it_is_written() -> None:
    app = make_app()

    async def bill(order: Order) -> None: ...

    with pytest.raises(ConfigError, match="bill is not a handler yet: put @app"):
        app.publisher("bills")(bill)

    @app.subscribe("orders", batch=10)
    async def bill_all(orders: list[Order]) -> None: ...

    with pytest.raises(ConfigError, match="bill_all takes lists"):
        app.publisher("bills")(bill_all)
    with pytest.raises(IllegalMessageError):
        app.publisher("bad topic")
    wrong: Any = {"tags": "x"}
    with pytest.raises(TypeError, match="did you mean tag"):
        app.publisher("bills", **wrong)


def test_publisher_of_several_messages_is_refused_where_it_is_written() -> None:
    app = make_app()

    @app.subscribe("orders", group="both")
    async def both(order: str) -> list[rocketpy.Message]:
        return []

    @app.subscribe("orders", group="maybe")
    async def maybe(order: str) -> tuple[rocketpy.Message, rocketpy.Message] | None: ...

    for handler in (both, maybe):
        with pytest.raises(TypeError, match=r"has messages in it; return one, or send each"):
            app.publisher("bills")(handler)


async def test_publisher_does_not_send_a_list_of_messages_as_one_body() -> None:
    app = make_app()

    @app.publisher("bills")
    @app.subscribe("orders")
    async def bill(order: str) -> Any:
        return [rocketpy.Message(topic="special", body=order)]

    async with TestApp(app) as test:
        await test.publish("orders", "o1")
        await test.run_until_idle()
        assert test.sent("bills") == []
        assert (len(test.acked("shop")), len(test.dead("shop"))) == (0, 1)


class Receipt(pydantic.BaseModel):
    order: str
    note: str = pydantic.Field(default="", exclude=True)
    total: Decimal = pydantic.Field(default=Decimal(0), alias="Summe")


class Sealed(pydantic.BaseModel):
    seal: str = pydantic.Field(exclude=True)


class Letter(pydantic.BaseModel):
    sealed: list[Sealed] = []


class Crossed(pydantic.BaseModel):
    amount: int = pydantic.Field(validation_alias="in", serialization_alias="out")


class Chosen(pydantic.BaseModel):
    amount: int = pydantic.Field(
        validation_alias=pydantic.AliasChoices("amount", "count"), serialization_alias="count"
    )


async def test_pydantic_result_is_read_by_another_handler_as_it_was_returned() -> None:
    app, receipts = make_app(), []

    @app.publisher("receipts")
    @app.subscribe("orders")
    async def receive(order: Order) -> Receipt:
        return Receipt(order=order.id, Summe=order.price)

    @app.subscribe("receipts", group="books")
    async def book(receipt: Receipt) -> None:
        receipts.append(receipt)

    async with TestApp(app) as test:
        await test.publish("orders", Order("o1", Decimal("9.90")))
        await test.run_until_idle()
        assert receipts == [Receipt(order="o1", Summe=Decimal("9.90"))]
        with pytest.raises(IllegalMessageError, match=r"body\.note: this str would be read as"):
            await app.producer.send("receipts", Receipt(order="o2", note="lost"))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (Sealed, r"Sealed\.seal: an excluded field is not written"),
        (Letter | None, r"\.sealed\.seal: an excluded field"),
        (list[Crossed], r"\.amount: it is written under another name than it is read from"),
    ],
)
def test_result_that_no_reader_could_get_is_refused_when_it_is_decorated(
    kind: Any, words: str
) -> None:
    app = make_app()

    async def handle(order: Order) -> Any:
        return order

    handle.__annotations__["return"] = kind
    app.subscribe("orders")(handle)
    with pytest.raises(TypeError, match=rf"handle\(\): no reader could get its result .*{words}"):
        app.publisher("bills")(handle)
    with pytest.raises(TypeError, match="no reader could get its result"):
        app.responder("questions", group="answers")(handle)


@dataclass
class Named:
    name: str | None


class Opaque:
    pass


class Base(ABC):
    @abstractmethod
    def total(self) -> int: ...


@pytest.mark.parametrize(
    ("kind", "serializer", "words"),
    [
        (set[complex], None, r"JSON: set\[complex\]: complex has no form there"),
        (list[Opaque] | None, rocketpy.json, r"JSON: .*Opaque has no form there"),
        (dict[str, range], None, r"JSON: .*range has no form there"),
        (Order, rocketpy.plain, r"bytes: .*Order has no form there"),
        (int | None, rocketpy.text, r"text: .*int has no form there"),
        (dict[str, set[int]], rocketpy.msgpack, r"MessagePack: .*set has no form there"),
        (Order, rocketpy.msgpack, r"MessagePack: Order\.price: Decimal has no form there"),
    ],
)
def test_result_that_cannot_be_written_is_refused_when_it_is_decorated(
    kind: Any, serializer: Any, words: str
) -> None:
    app = make_app() if serializer is None else make_app(serializer=serializer)

    async def handle(message: rocketpy.ReceivedMessage) -> Any:
        return message

    handle.__annotations__["return"] = kind
    app.subscribe("orders")(handle)
    with pytest.raises(TypeError, match=rf"handle\(\): its result cannot be written as {words}"):
        app.publisher("bills")(handle)
    with pytest.raises(TypeError, match="its result cannot be written"):
        app.responder("questions", group="answers")(handle)


@pytest.mark.parametrize(
    ("kind", "serializer"),
    [
        (Base, rocketpy.json),
        (object, rocketpy.text),
        (list[Any] | rocketpy.Message, rocketpy.json),
        (Decimal | bytes, rocketpy.json),
        (str | None, rocketpy.text),
        (rocketpy.Message | bytes, rocketpy.plain),
        (dict[str, tuple[int, ...]], rocketpy.msgpack),
        (Named, rocketpy.msgpack),
    ],
)
def test_result_that_may_be_written_is_not_refused(kind: Any, serializer: Any) -> None:
    app = make_app(serializer=serializer)

    async def handle(message: rocketpy.ReceivedMessage) -> Any:
        return message

    handle.__annotations__["return"] = kind
    app.publisher("bills")(app.subscribe("orders")(handle))


@pytest.mark.parametrize("kind", [Receipt, Chosen, Bill, rocketpy.Message, "Unknown | None"])
def test_result_that_readers_may_get_is_not_refused(kind: Any) -> None:
    app = make_app()

    async def handle(order: Order) -> Any:
        return order

    if kind != "Unknown | None":
        handle.__annotations__["return"] = kind
    app.publisher("bills")(app.subscribe("orders")(handle))


@pytest.mark.parametrize(
    "options",
    [
        {"delay": -1}, {"delay": float("nan")}, {"delay_level": 99}, {"delay_level": -1},
        {"delay": 5, "delay_level": 3}, {"deliver_at": 2**63}, {"headers": {"KEYS": "a"}},
        {"headers": {"a": ""}}, {"headers": {"a": 5}}, {"keys": ["a b"]}, {"keys": [5]},
        {"tag": "a\x01"}, {"headers": {"a": "x" * 40_000}}, {"flag": 1 << 31},
        {"queue": rocketpy.MessageQueue("other", "broker-a", 0)},
    ],
    ids=str,
)  # fmt: skip
def test_publisher_options_that_no_message_can_have_are_refused_at_the_decorator(
    options: Any,
) -> None:
    with pytest.raises((IllegalMessageError, TypeError)):
        make_app().publisher("bills", **options)
