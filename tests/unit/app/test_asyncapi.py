"""AsyncAPI document of an app."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, Field

import rocketpy
from rocketpy import App, Headers, Message, Producer, ReceivedMessage


@dataclass
class Order:
    id: str
    amount: int = 1


@dataclass
class Bill:
    order: Order


class Receipt(BaseModel):
    number: int = Field(alias="no")
    bill: Bill


class Unknown:
    """Class that only a serializer of the user knows."""


class Bytes:
    """Serializer of a user."""

    def dumps(self, value: Any) -> bytes:
        return bytes(value)

    def loads(self, data: bytes) -> Unknown:
        return Unknown()


def references(node: Any) -> Iterator[str]:
    """Yield every reference in a document."""
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from references(each)


def resolved(document: dict[str, Any], reference: str) -> Any:
    found: Any = document
    for part in reference.removeprefix("#/").split("/"):
        found = found[part]
    return found


def message_of(document: dict[str, Any], operation: str) -> dict[str, Any]:
    [reference] = document["operations"][operation]["messages"]
    message: dict[str, Any] = resolved(document, reference["$ref"])
    return message


def shop() -> App:
    app = App("mq1:9876;mq2:9876", group="shop")

    @app.publisher("bills", tag="new")
    @app.subscribe("orders", group="billing", filter="paid")
    async def bill(order: Order, producer: Producer, headers: Headers) -> Bill | None:
        """Bill an order that
        was paid.

        Unpaid ones are left alone.
        """

    @app.responder("quotes")
    async def quote(request: dict[str, str]) -> Receipt:
        return Receipt(no=1, bill=Bill(Order("o1")))

    @app.subscribe(["a", "a|b"], group="counting", batch=10, sql="size > 1")
    def count(messages: list[ReceivedMessage]) -> None: ...

    return app


def test_document_has_topics_handlers_and_publishers() -> None:
    document = shop().asyncapi(title="Shop", version="1.2.0")
    assert document["asyncapi"] == "3.0.0"
    assert document["info"] == {"title": "Shop", "version": "1.2.0"}
    hosts = [each["host"] for each in document["servers"].values()]
    assert hosts == ["mq1:9876", "mq2:9876"]
    addresses = {key: each["address"] for key, each in document["channels"].items()}
    assert addresses == {
        "orders": "orders", "quotes": "quotes", "quote_reply": None,
        "a": "a", "a_b": "a|b", "bills": "bills",
    }  # fmt: skip
    actions = {key: each["action"] for key, each in document["operations"].items()}
    assert actions == {
        "bill": "receive", "quote": "receive", "count": "receive", "count_2": "receive",
        "bill_publish": "send",
    }  # fmt: skip
    assert document["operations"]["bill"]["summary"] == "Bill an order that was paid."
    assert document["operations"]["bill"]["description"] == "Unpaid ones are left alone."
    details = {"group": "billing", "filter": "paid"}
    assert document["operations"]["bill"]["x-rocketmq"] == details
    assert document["operations"]["quote"]["x-rocketmq"] == {"group": "shop"}
    details = {"group": "counting", "sql": "size > 1"}
    assert document["operations"]["count_2"]["x-rocketmq"] == details


def test_references_of_a_document_resolve() -> None:
    document = shop().asyncapi()
    assert json.loads(json.dumps(document)) == document
    found = set(references(document))
    assert len(found) > 10
    for reference in found:
        assert isinstance(resolved(document, reference), dict), reference


def test_payloads_are_the_schemas_of_annotations() -> None:
    document = shop().asyncapi()
    order = message_of(document, "bill")
    assert order["name"] == "Order"
    assert order["contentType"] == "application/json"
    schema = resolved(document, order["payload"]["$ref"])
    assert schema["required"] == ["id"]
    assert schema["properties"]["amount"] == {"type": "integer", "default": 1}
    bill = resolved(document, message_of(document, "bill_publish")["payload"]["$ref"])
    assert bill["properties"]["order"] == {"$ref": "#/components/schemas/Order"}
    assert message_of(document, "quote")["payload"]["type"] == "object"
    [answer] = document["operations"]["quote"]["reply"]["messages"]
    reference = resolved(document, answer["$ref"])["payload"]["$ref"]
    assert resolved(document, reference)["properties"]["no"]["type"] == "integer"
    assert reference == "#/components/schemas/pydantic.Receipt", "both libraries have a Bill"


@pytest.mark.parametrize(
    ("serializer", "kind", "content_type", "payload"),
    [
        (None, str, "text/plain", {"type": "string"}),
        (None, bytes, "application/octet-stream", {"type": "string", "format": "binary"}),
        (None, int, "application/json", {"type": "integer"}),
        (None, list[int], "application/json", {"type": "array", "items": {"type": "integer"}}),
        (None, None, None, {}),
        (rocketpy.json, str, "application/json", {"type": "string"}),
        (rocketpy.text, str, "text/plain", {"type": "string"}),
        (rocketpy.json, None, "application/json", {}),
        (rocketpy.TypedSerializer(int), None, "application/json", {"type": "integer"}),
        (rocketpy.msgpack, int, "application/msgpack", {"type": "integer"}),
        (Bytes(), Unknown, None, {}),
    ],
)
def test_content_type_and_payload_follow_from_the_serializer(
    serializer: Any, kind: Any, content_type: str | None, payload: dict[str, Any]
) -> None:
    app = App("a:1", group="g")
    options = {} if serializer is None else {"serializer": serializer}

    async def handler(body: Any) -> None: ...

    handler.__annotations__ = {} if kind is None else {"body": kind}
    app.subscribe("t", **options)(handler)
    message = message_of(app.asyncapi(), "handler")
    assert message.get("contentType") == content_type
    assert message["payload"] == payload


@pytest.mark.parametrize("result", [None, Message, Message | None, Any])
def test_result_of_unknown_type_has_any_payload(result: Any) -> None:
    app = App("a:1", group="g")

    async def handler(body: int) -> Any: ...

    handler.__annotations__["return"] = result
    app.publisher("u")(app.subscribe("t")(handler))
    assert message_of(app.asyncapi(), "handler_publish")["payload"] == {}


def test_document_of_an_app_without_handlers_or_servers_is_small() -> None:
    document = App().asyncapi()
    assert document["info"]["title"]
    assert document["channels"] == document["operations"] == {}
    assert "components" not in document
    assert "servers" not in document
