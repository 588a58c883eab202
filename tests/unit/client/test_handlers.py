"""Bodies that cannot be read, and handlers that fail: who is told, and what becomes of it."""

from typing import Any

import pytest

import rocketpy
from rocketpy import Retry, ToDLQ
from rocketpy.errors import UnreadableBodyError
from tests.unit.client.sim import Cluster, pass_time, run_sim

KINDS = ["consumer", "ordered", "pop_consumer"]


async def consume(
    cluster: Cluster, kind: str, handler: Any, seconds: float = 20, **more: Any
) -> Any:
    """Run a consumer over what is there; returns it closed."""
    if kind == "ordered":
        kind, more = "consumer", {"ordered": True, "ordered_retry_pause": 2, **more}
    options = {"group": "c", "start": "earliest", "serializer": rocketpy.json, **more}
    async with cluster.client() as client:
        async with getattr(client, kind)("t", handler=handler, **options) as consumer:
            await pass_time(seconds)
    return consumer


def dead(cluster: Cluster) -> list[str]:
    """Offsets or copies that became dead letters."""
    back = [each["offset"] for each in cluster.sent_back if each["delayLevel"] == "-1"]
    copies = [r for r in cluster.of_code(310) if r.ext_fields.get("b", "").startswith("%DLQ%")]
    return back + [str(len(back) + n) for n, _ in enumerate(copies)]


@pytest.mark.parametrize("as_function", [False, True])
@pytest.mark.parametrize("kind", ["consumer", "pop_consumer"])
def test_a_body_that_cannot_be_read_becomes_a_dead_letter_once(
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
def test_the_error_handler_is_told_and_decides(kind: str) -> None:
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
        if kind != "ordered":
            assert len(dead(cluster)) == 1

    run_sim(main, queues=1)


@pytest.mark.parametrize("order", [Retry(3), RuntimeError("the error handler is broken")])
def test_what_the_error_handler_raises_is_as_if_the_handler_had(order: Exception) -> None:
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


def test_a_failed_batch_with_a_bad_body_buries_the_bad_one_and_retries_the_others() -> None:
    async def main(cluster: Cluster) -> None:
        for body in (b"1", b"{"):
            cluster.put("t", body)

        async def handle(bodies: list[Any], messages: list[Any]) -> None:
            raise ValueError("no")

        await consume(cluster, "consumer", handle, batch=8)
        levels = {each["offset"]: each["delayLevel"] for each in cluster.sent_back}
        assert sorted(levels.values()) == ["-1", "0"]

    run_sim(main, queues=1)
