"""Requests whose answer is read as a type."""

import pickle
from dataclasses import dataclass
from typing import Any

import pytest

import rocketpy
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import RemoteError, UnreadableBodyError
from tests.unit.client.sim import Cluster, run_sim


@dataclass
class Price:
    cents: int
    currency: str = "EUR"


class PickleSerializer:
    """Serializer of a user, which raises other exceptions than ours."""

    def dumps(self, value: Any) -> bytes:
        return pickle.dumps(value)

    def loads(self, data: bytes) -> Any:
        return pickle.loads(data)


async def pass_on(call: Any, proceed: Any) -> Any:
    return await proceed(call)


async def ask(cluster: Cluster, answer: Any, kind: Any, **options: Any) -> Any:
    """Return what a request for `kind` gives, and the number of handled requests."""
    reply_serializer = options.pop("reply_serializer", rocketpy.json)

    async def handler(message: ReceivedMessage) -> Any:
        cluster.asked += 1  # type: ignore[attr-defined]
        return answer

    cluster.asked = 0  # type: ignore[attr-defined]
    async with (
        cluster.client() as client,
        cluster.client() as other,
        other.responder("t", group="r", handler=handler, reply_serializer=reply_serializer),
    ):
        producer = client.producer(**options)
        return await producer.request("t", b"book", type=kind, timeout=3)


CASES: list[tuple[Any, Any, Any, Any]] = [
    (None, rocketpy.json, Price(990), Price),
    (None, rocketpy.json, [Price(1), Price(2, "USD")], list[Price]),
    (None, rocketpy.json, Price(7), Price | None),
    (None, rocketpy.plain, "nine", str),
    (None, rocketpy.plain, b"\xff", bytes),
    (rocketpy.json, rocketpy.json, "nine", str),
    (rocketpy.TypedSerializer(bytes), rocketpy.json, Price(3), Price),
    (rocketpy.msgpack, rocketpy.msgpack, Price(4), Price),
    (rocketpy.msgpack, rocketpy.msgpack, b"\xff", bytes),
    (PickleSerializer(), PickleSerializer(), Price(5), Price),
    (PickleSerializer(), PickleSerializer(), {"cents": 6}, Price),
]


@pytest.mark.parametrize("middlewares", [(), (pass_on,)], ids=["plain", "middleware"])
@pytest.mark.parametrize(("serializer", "reply_serializer", "answer", "kind"), CASES)
def test_answer_is_read_as_the_type_asked_for(
    serializer: Any, reply_serializer: Any, answer: Any, kind: Any, middlewares: Any
) -> None:
    options = {} if serializer is None else {"serializer": serializer}

    async def main(cluster: Cluster) -> None:
        read = await ask(
            cluster,
            answer,
            kind,
            reply_serializer=reply_serializer,
            middlewares=list(middlewares),
            **options,
        )
        assert read == (Price(6) if answer == {"cents": 6} else answer)
        assert type(read) is not dict

    run_sim(main)


@pytest.mark.parametrize(
    ("answer", "options", "words"),
    [
        (
            b"{",
            {"reply_serializer": rocketpy.plain},
            "1 bytes, cannot be read as Price: ",
        ),
        ({"cents": "x"}, {}, "cannot be read as Price: .*cents"),
        (
            b"no pickle",
            {"reply_serializer": rocketpy.plain, "serializer": PickleSerializer()},
            "cannot be read as Price",
        ),
    ],
)
def test_answer_of_another_type_is_an_error_that_says_where(
    answer: Any, options: dict[str, Any], words: str
) -> None:
    async def main(cluster: Cluster) -> None:
        with pytest.raises(UnreadableBodyError, match=words) as caught:
            await ask(cluster, answer, Price, **options)
        assert caught.value.__cause__ is not None
        assert not caught.value.retriable
        assert cluster.asked == 1  # type: ignore[attr-defined]

    run_sim(main)


@pytest.mark.parametrize("kind", [5, Cluster, lambda: None, "Price"])
def test_request_for_a_type_that_cannot_be_read_is_not_sent(kind: Any) -> None:
    async def main(cluster: Cluster) -> None:
        with pytest.raises(TypeError):
            await ask(cluster, b"", kind)
        assert cluster.asked == 0  # type: ignore[attr-defined]

    run_sim(main)


def test_error_of_the_responder_is_not_read_as_the_type() -> None:
    async def fail(message: ReceivedMessage) -> bytes:
        raise LookupError("no such book")

    async def main(cluster: Cluster) -> None:
        async with (
            cluster.client() as client,
            cluster.client() as other,
            other.responder("t", group="r", handler=fail),
        ):
            with pytest.raises(RemoteError, match="no such book"):
                await client.producer().request("t", b"book", type=Price, timeout=3)

    run_sim(main)
