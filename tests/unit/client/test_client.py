"""Client: its parts share connections, and close in order."""

import asyncio
import inspect
from datetime import timedelta
from typing import Any

import pytest

import rocketpy
from rocketpy.client.client import Client
from rocketpy.client.config import ClientConfig
from rocketpy.errors import (
    ClosedError,
    ConfigError,
    NameServerAddressError,
    NoNameServerError,
    NoRouteError,
    UnreadableBodyError,
)
from rocketpy.proto.wire.command import RemotingCommand, make_response
from tests.unit.client.sim import NAMESRV, Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing, of_topic, until

SEND, UNREGISTER, CLUSTER_INFO = 310, 35, 106


def no_broker(_: str, request: RemotingCommand) -> RemotingCommand:
    return make_response(request, 0, body=b'{"brokerAddrTable":{},"clusterAddrTable":{}}')


def test_nothing_is_sent_before_something_is_wanted() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client():
            await pass_time(10)
        assert cluster.requests == []

    run_sim(main)


@pytest.mark.parametrize("kind", ["producer", "consumer", "pull_consumer", "pop_consumer"])
def test_client_makes_nothing_unless_it_is_started(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        client = cluster.client()
        arguments = ["t"] if kind in {"consumer", "pop_consumer"} else []
        with pytest.raises(ClosedError, match="not started"):
            getattr(client, kind)(*arguments)
        for use in (lambda: client.client_id, client.health):
            with pytest.raises(ClosedError):
                use()
        await client.close()  # does nothing
        await client.start()
        await client.start()
        getattr(client, kind)(*arguments)
        await client.close()
        with pytest.raises(ClosedError):
            getattr(client, kind)(*arguments)

    run_sim(main)


def test_all_parts_share_one_client_id_and_its_connections() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        async with cluster.client() as client:
            await client.producer().send("t", b"x")
            await client.producer(group="h").send("t", b"x")
            async with client.consumer("t", group="c", handler=nothing):
                assert cluster.members("c") == [client.client_id]
        assert len(cluster.remotings) == 1

    run_sim(main)


def test_consumers_are_closed_before_the_producers_their_handlers_send_with() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 1)
        sent: list[Any] = []
        async with cluster.client() as client:
            producer = client.producer()

            async def handler(_message: rocketpy.ReceivedMessage) -> None:
                await pass_time(3)
                sent.append(await producer.send("t", b"from the handler"))

            consumer = client.consumer("t", group="c", start="earliest", handler=handler)
            await consumer.start()
            await pass_time(1)
        assert len(sent) >= 1, "the handler in hand was finished, and could send"
        assert cluster.members("c") == []

    run_sim(main, queues=1)


def test_part_that_cannot_be_closed_keeps_no_other_from_it() -> None:
    async def main(cluster: Cluster) -> None:
        client = cluster.client()
        await client.start()
        producer, consumer = client.producer(), client.pull_consumer()
        closed: list[str] = []

        async def broken() -> None:
            raise RuntimeError("cannot close")

        async def noted() -> None:
            closed.append("producer")

        consumer.close = broken  # type: ignore[method-assign]
        producer.close = noted  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="cannot close"):
            await client.close()
        assert closed == ["producer"]
        with pytest.raises(ClosedError):
            client.health()

    run_sim(main)


def test_health_shows_consumers_that_are_running() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = client.consumer("t", group="c", handler=nothing)
            assert client.health().consumers == {}
            async with consumer:
                await until(lambda: of_topic(consumer))
                health = client.health()
                assert list(health.consumers) == ["c"]
                assert health.ok
                assert health.client_id == client.client_id
            assert client.health().consumers == {}

    run_sim(main)


def test_groups_without_a_name_are_the_clients_in_its_namespace() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(group="mine", namespace="ns") as client:
            assert client.producer().group == "ns%mine"
            assert client.producer(group="other").group == "ns%other"
            assert client.pull_consumer().group == "ns%mine"
            assert client.consumer("t", group="c").group == "ns%c"

    run_sim(main)


def test_responder_needs_a_handler_of_single_messages() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            for options in ({}, {"handler": nothing, "batch": 2}):
                with pytest.raises(ConfigError) as refused:
                    client.responder("t", group="c", **options)  # type: ignore[arg-type]
                assert refused.value.key in {"handler", *options}

    run_sim(main)


def test_responder_answers_with_what_its_handler_returns() -> None:
    async def main(cluster: Cluster) -> bytes:
        async def answer(message: rocketpy.ReceivedMessage) -> bytes:
            return message.body.upper()

        async with cluster.client() as asked, cluster.client() as asking:
            async with asked.responder("t", group="c", handler=answer):
                found = await asking.producer().request("t", b"question", timeout=10)
        return bytes(found.body)

    assert run_sim(main) == b"QUESTION"


def test_responder_s_function_gets_the_body_and_returns_the_answer() -> None:
    async def main(cluster: Cluster) -> None:
        def answer(body: dict[str, int], message: rocketpy.ReceivedMessage) -> dict[str, int]:
            return {"price": body["sku"] * 2, "retries": message.retries}

        options = {"group": "pricing", "serializer": rocketpy.json}
        async with cluster.client() as asked, cluster.client() as asking:
            async with asked.responder("t", handler=answer, **options):  # type: ignore[arg-type]
                producer = asking.producer(serializer=rocketpy.json)
                found = await producer.request("t", {"sku": 3}, timeout=10)
        assert found.decode() == {"price": 6, "retries": 0}

    run_sim(main)


@pytest.mark.parametrize("told", [True, False])
def test_request_that_cannot_be_read_goes_to_the_error_handler(*, told: bool) -> None:
    async def main(cluster: Cluster) -> None:
        errors: list[Exception] = []
        app = rocketpy.App(cluster.client())

        @app.responder("t", group="c", start="earliest", stop_timeout=1)
        async def quote(body: dict[str, int]) -> int:
            return body["sku"]

        if told:

            @app.on_error
            async def note(message: rocketpy.ReceivedMessage, error: Exception) -> None:
                errors.append(error)

        cluster.put("t", b"{")
        async with app:
            await pass_time(5)
        assert [type(each) for each in errors] == [UnreadableBodyError] * told
        assert [each["delayLevel"] for each in cluster.sent_back] == ["-1"] * (not told)

    run_sim(main, queues=1)


def test_client_describes_itself_by_its_own_identity() -> None:
    async def main(cluster: Cluster) -> None:
        ids = []
        for _ in range(2):
            async with cluster.client() as client:
                ids.append(client.client_id)
        assert ids[0] != ids[1], "process and time tell clients apart"
        assert all(each.startswith("10.0.0.1@") for each in ids)

    run_sim(main)


def test_connect_takes_the_fields_of_its_configuration() -> None:
    client = rocketpy.connect("127.0.0.1:9876", group="shop", api_timeout=0.007)
    assert isinstance(client, Client)
    assert client.config == ClientConfig("127.0.0.1:9876", group="shop", api_timeout=0.007)
    parameters = set(inspect.signature(rocketpy.connect).parameters)
    assert {"name_servers", "group", "namespace", "credentials"} <= parameters
    with pytest.raises(ConfigError):
        rocketpy.connect("127.0.0.1:9876", group="no blank")


def test_client_that_is_left_by_an_error_is_closed() -> None:
    async def main(cluster: Cluster) -> None:
        client = cluster.client()

        async def used() -> None:
            async with client:
                client.producer()
                raise ValueError("of the user")

        with pytest.raises(ValueError, match="of the user"):
            await used()
        with pytest.raises(ClosedError):
            client.health()
        await asyncio.wait_for(client.close(), 1)

    run_sim(main)


def test_ready_waits_for_a_name_server_and_a_broker() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.down.add(NAMESRV)
        cluster.script[CLUSTER_INFO] = [None] * 3 + [no_broker] * 2
        asyncio.get_running_loop().call_later(10, cluster.down.clear)
        began_ms = cluster.clock.monotonic_ms()
        async with cluster.client() as client:
            await client.ready(timeout=60)
            assert cluster.clock.monotonic_ms() - began_ms >= 10_000
            await client.ready(timeout=0)

    run_sim(main)


def test_ready_raises_what_was_missing_at_the_end() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            cluster.script[CLUSTER_INFO] = [no_broker] * 100
            with pytest.raises(NoRouteError, match="no broker"):
                await client.ready(timeout=3)
            cluster.down.add(NAMESRV)
            began_ms = cluster.clock.monotonic_ms()
            with pytest.raises(NoNameServerError):
                await client.ready(timeout=timedelta(seconds=3))
            assert 2_000 <= cluster.clock.monotonic_ms() - began_ms <= 4_000
        with pytest.raises(ClosedError):
            await client.ready()

    run_sim(main)


def test_ready_without_an_address_fails_at_once() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(name_servers="") as client:
            with pytest.raises(NameServerAddressError):
                await client.ready()

    run_sim(main)
