"""Every option of a producer and of the client itself has an effect."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import rocketpy
from rocketpy.client.cluster.name_servers import find_addresses
from rocketpy.client.config import ClientConfig, ProducerConfig
from rocketpy.client.messages.serializers import json as json_serializer
from rocketpy.client.messages.serializers import plain
from rocketpy.errors import ConfigError, IllegalMessageError, RequestTimeoutError, RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.remoting.config import RemotingClientConfig
from tests.unit.client.sends import stored_with
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing

SEND, BATCH, STORE, ROUTE, HEARTBEAT = 310, 320, 15, 105, 34

Observer = Callable[[Cluster, dict[str, Any]], Awaitable[Any]]


# ---- producers


async def send(cluster: Cluster, options: dict[str, Any], body: Any = b"x" * 5000) -> Any:
    async with cluster.client() as client:
        await client.producer(**options).send("t", body)
    return cluster.of_code(SEND)[-1]


async def sent_group(cluster: Cluster, options: dict[str, Any]) -> str:
    return (await send(cluster, options)).ext_fields["a"]


async def sent_flag(cluster: Cluster, options: dict[str, Any]) -> int:
    return int((await send(cluster, options)).ext_fields["f"])


async def sent_bytes(cluster: Cluster, options: dict[str, Any]) -> int:
    text = "".join(f"{{'id': {n}, 'customer': {n * n % 1009}}}" for n in range(3000)).encode()
    return len((await send(cluster, options, text)).body)


async def sent_body(cluster: Cluster, options: dict[str, Any]) -> bytes:
    try:
        return (await send(cluster, options, {"a": 1})).body
    except IllegalMessageError:
        return b""


async def attempts(cluster: Cluster, options: dict[str, Any]) -> int:
    cluster.script[SEND] = [1] * 20
    with pytest.raises(RocketPyError):
        await send(cluster, options)
    return len(cluster.of_code(SEND))


async def attempts_when_busy(cluster: Cluster, options: dict[str, Any]) -> int:
    cluster.script[SEND] = [2] * 20
    with pytest.raises(RocketPyError):
        await send(cluster, {"timeout": 10, **options})
    return len(cluster.of_code(SEND))


async def attempts_when_not_ok(cluster: Cluster, options: dict[str, Any]) -> int:
    cluster.script[SEND] = [stored_with(12)] * 3
    await send(cluster, options)
    return len(cluster.of_code(SEND))


async def gave_up_after(cluster: Cluster, options: dict[str, Any]) -> int:
    cluster.script[SEND] = ["lost"] * 20
    began = cluster.clock.monotonic_ms()
    with pytest.raises(RequestTimeoutError):
        await send(cluster, options)
    return (cluster.clock.monotonic_ms() - began) // 1000


async def second_attempt_after(cluster: Cluster, options: dict[str, Any]) -> int:
    cluster.script[SEND] = ["lost"]
    await send(cluster, {"timeout": 6, **options})
    first, second = (at for at, request in cluster.times if request.code == SEND)
    return round(second - first, -2)


async def too_large(cluster: Cluster, options: dict[str, Any]) -> bool:
    try:
        await send(cluster, options)
    except IllegalMessageError:
        return True
    return False


async def at_once(cluster: Cluster, options: dict[str, Any]) -> int:
    cluster.latency_ms = 1000
    async with cluster.client() as client:
        producer = client.producer(timeout=60, **options)
        sends = [asyncio.create_task(producer.send("t", b"x" * 100)) for _ in range(20)]
        await pass_time(0.5)
        most = producer.in_flight
        await asyncio.gather(*sends)
        return most


async def sends_to_failed(cluster: Cluster, options: dict[str, Any]) -> bool:
    """Whether any of ten sends goes to the broker that failed before."""
    async with cluster.client() as client:
        producer = client.producer(retries=0, **options)
        await producer.send("t", b"x", queue=MessageQueue("t", "broker-b", 0))
        cluster.script[SEND] = [1]
        with pytest.raises(RocketPyError):
            await producer.send("t", b"x", queue=MessageQueue("t", "broker-a", 0))
        await pass_time(15)  # 5.x forgets a failure after 10 s, 4.x after minutes
        results = [await producer.send("t", b"x") for _ in range(10)]
    return any(result.queue.broker_name == "broker-a" for result in results)


def sent_topics(cluster: Cluster) -> list[str]:
    """Topics beside `t` that something was sent to."""
    return sorted({request.ext_fields["b"] for request in cluster.of_code(SEND)} - {"t"})


async def traced_to(cluster: Cluster, options: dict[str, Any]) -> list[str]:
    async with cluster.client() as client:
        await client.producer(**options).send("t", b"x")
    return sent_topics(cluster)


async def traced_elsewhere(cluster: Cluster, options: dict[str, Any]) -> list[str]:
    return await traced_to(cluster, {"trace": True, **options})


async def batches_of_six(cluster: Cluster, options: dict[str, Any]) -> int:
    async with cluster.client() as client:
        producer = client.producer(**options)
        await asyncio.gather(*(producer.send("t", b"x" * 1_000) for _ in range(6)))
    return len(cluster.of_code(BATCH))


async def lingering(cluster: Cluster, options: dict[str, Any]) -> int:
    return await batches_of_six(cluster, {"linger": 0.1, **options})


PRODUCER: dict[str, tuple[Any, Any, Observer, Any, Any]] = {
    "group": ("", "h", sent_group, "g", "h"),
    "timeout": (2, 5, gave_up_after, 2, 5),
    "retries": (0, 4, attempts, 1, 5),
    "attempt_timeout": (0, 0.5, second_attempt_after, 2000, 500),
    "flow_control_retry": ("none", "immediate", attempts_when_busy, 1, 3),
    "retry_when_not_ok": (False, True, attempts_when_not_ok, 1, 3),
    "latency_fault": (False, True, sends_to_failed, True, False),
    "max_message_bytes": (5000, 4999, too_large, False, True),
    "compress_over_bytes": (0, 4096, sent_flag, 0, 1 | 3 << 8),
    "compression": ("zlib", "zstd", sent_flag, 1 | 3 << 8, 1 | 2 << 8),
    "max_in_flight": (3, 7, at_once, 3, 7),
    "max_in_flight_bytes": (300, 700, at_once, 3, 7),
    "linger": (0, 0.1, batches_of_six, 0, 1),
    "linger_messages": (2, 3, lingering, 3, 2),
    "linger_bytes": (3_000, 5_000, lingering, 3, 2),
    "serializer": (plain, json_serializer, sent_body, b"", b'{"a":1}'),
    "trace": (False, True, traced_to, [], ["RMQ_SYS_TRACE_TOPIC"]),
    "trace_topic": ("seen", "heard", traced_elsewhere, ["seen"], ["heard"]),
}


@pytest.mark.parametrize("option", sorted(PRODUCER))
def test_option_of_a_producer(option: str) -> None:
    one, two, observe, seen_one, seen_two = PRODUCER[option]
    for value, seen in ((one, seen_one), (two, seen_two)):
        brokers = 2 if option in {"latency_fault", "attempt_timeout", "retry_when_not_ok"} else 1

        async def main(cluster: Cluster, value: Any = value) -> Any:
            return await observe(cluster, {option: value})

        assert run_sim(main, brokers=brokers) == seen


def test_latency_profile_says_for_how_long_a_broker_is_avoided() -> None:
    async def main(cluster: Cluster) -> list[bool]:
        return [
            await sends_to_failed(cluster, {"latency_fault": True, "latency_profile": profile})
            for profile in ("4.x", "5.x")
        ]

    assert run_sim(main, brokers=2) == [False, True]


def test_compression_level_makes_bodies_smaller() -> None:
    async def main(cluster: Cluster) -> list[int]:
        return [await sent_bytes(cluster, {"compression_level": level}) for level in (1, 9)]

    fast, small = run_sim(main)
    assert small < fast


# ---- the client itself


async def client_id(cluster: Cluster, options: dict[str, Any]) -> str:
    async with cluster.client(**{"instance_name": "i", **options}) as client:
        return client.client_id


async def route_pause(cluster: Cluster, options: dict[str, Any]) -> int:
    async with cluster.client(**options) as client:
        await client.producer().send("t", b"x")
        await pass_time(200)
    return round(cluster.pause_ms(ROUTE, topic="t") / 1000)


async def heartbeat_pause(cluster: Cluster, options: dict[str, Any]) -> int:
    async with cluster.client(**options) as client:
        await client.producer().send("t", b"x")
        await pass_time(200)
    return round(cluster.pause_ms(HEARTBEAT) / 1000)


async def stored_after(cluster: Cluster, options: dict[str, Any]) -> int:
    fill(cluster, 1)
    async with cluster.client(**options) as client:
        consumer = client.consumer("t", group="c", start="earliest", handler=nothing)
        async with consumer:
            await pass_time(1)
            cluster.times.clear()
            cluster.put("t", b"x")
            await pass_time(60)
    return round(next(at for at, request in cluster.times if request.code == STORE) / 1000)


async def queues_created(cluster: Cluster, options: dict[str, Any]) -> str:
    async with cluster.client(**options) as client:
        await client.producer().send("new", b"x")
    return cluster.of_code(SEND)[0].ext_fields["d"]


async def asked_for(cluster: Cluster, options: dict[str, Any]) -> int:
    cluster.script[ROUTE] = ["lost"]
    began = cluster.clock.monotonic_ms()
    async with cluster.client(**options) as client:
        await client.producer(timeout=60).send("t", b"x")
        return (cluster.clock.monotonic_ms() - began) // 1000


async def asked_of(cluster: Cluster, options: dict[str, Any]) -> list[str]:
    for topic in ("ns%t", "t"):
        cluster.create_topic(topic, 1)
    async with cluster.client(**options) as client:
        await client.producer().send("t", b"x")
    (sent,) = cluster.of_code(SEND)
    return [sent.ext_fields["b"], sent.ext_fields["a"]]


CLIENT: dict[str, tuple[Any, Any, Observer, Any, Any]] = {
    "instance_name": ("i", "j", client_id, "10.0.0.1@i", "10.0.0.1@j"),
    "namespace": ("", "ns", asked_of, ["t", "g"], ["ns%t", "ns%g"]),
    "unit_name": ("", "u", client_id, "10.0.0.1@i", "10.0.0.1@i@u"),
    "api_timeout": (1, 4, asked_for, 1, 4),
    "route_refresh_interval": (10, 40, route_pause, 10, 40),
    "heartbeat_interval": (10, 40, heartbeat_pause, 10, 40),
    "persist_interval": (5, 20, stored_after, 5, 20),
    "default_topic_queues": (4, 9, queues_created, "4", "9"),
}


def test_routes_are_refreshed_every_thirty_seconds() -> None:
    async def main(cluster: Cluster) -> Any:
        return await route_pause(cluster, {})

    assert run_sim(main, queues=1) == 30


@pytest.mark.parametrize("option", sorted(CLIENT))
def test_option_of_the_client(option: str) -> None:
    one, two, observe, seen_one, seen_two = CLIENT[option]
    for value, seen in ((one, seen_one), (two, seen_two)):

        async def main(cluster: Cluster, value: Any = value) -> Any:
            return await observe(cluster, {option: value})

        assert run_sim(main, queues=1) == seen


def test_client_ip_and_group_are_what_brokers_see() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(instance_name="i") as client:
            assert client.client_id == "10.0.0.1@i"
            await client.producer().send("t", b"x")
        assert cluster.of_code(SEND)[0].ext_fields["a"] == "g"

    run_sim(main)


def test_name_servers_come_from_the_option_or_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "a:1;b")

    assert find_addresses(None) == ("a:1", "b:9876")
    assert find_addresses("c:2") == ("c:2",)
    assert find_addresses(["c:2", "d"]) == ("c:2", "d:9876")


async def test_remoting_is_the_settings_of_the_connections() -> None:
    limited = RemotingClientConfig(client_async_semaphore_value=7)
    async with rocketpy.connect("127.0.0.1:1", remoting=limited) as client:
        assert client._running().remoting.config is limited  # type: ignore[attr-defined]


def test_no_option_of_the_client_or_of_producers_is_left_out() -> None:
    here = {"name_servers", "group", "remoting", "client_ip", "credentials"}
    assert CLIENT.keys() | here == {each.name for each in dataclasses.fields(ClientConfig)}
    here = {"latency_profile", "compression_level", "tx_checker"}
    here |= {"middlewares", "on_retry"}  # of those: test_middleware.py, test_retry_notes.py
    assert PRODUCER.keys() | here == {each.name for each in dataclasses.fields(ProducerConfig)}


def test_unknown_option_raises_at_once() -> None:
    with pytest.raises(TypeError, match="retires"):
        rocketpy.connect("a:1", retires=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "options",
    [
        {"retries": -1}, {"timeout": None}, {"compression": "gzip"}, {"max_in_flight": 0},
        {"latency_profile": "6.x"}, {"flow_control_retry": "yes"}, {"group": "no blank"},
    ],
)  # fmt: skip
def test_producer_option_that_cannot_be_used_is_refused_and_named(
    options: dict[str, Any],
) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(ConfigError) as caught:
                client.producer(**options)
            assert caught.value.key in options

    run_sim(main)


@pytest.mark.parametrize(
    "options", [{"api_timeout": 0}, {"heartbeat_interval": -0.001}, {"group": "no blank"}]
)
def test_client_option_that_cannot_be_used_is_refused_and_named(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        rocketpy.connect("a:1", **options)
    assert caught.value.key in options


def test_option_that_a_send_does_not_have_or_of_another_type_is_refused() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer: Any = client.producer()
            for options, reason in (
                ({"tags": "a"}, "no option 'tags'; did you mean tag"),
                ({"delay_s": 1}, "no option 'delay_s'"),
                ({"delay": "30s"}, "delay: '30s' is not of type"),
                ({"deliver_at": "5"}, "deliver_at: '5' is not of type datetime"),
                ({"tag": 5}, "tag: 5 is not of type str"),
                ({"keys": [5]}, "keys: 5 is not of type str"),
                ({"queue": 1}, "queue: 1 is not of type MessageQueue"),
            ):
                with pytest.raises(TypeError, match=reason):
                    await producer.send("t", b"x", **options)
            assert not cluster.of_code(SEND)
            await producer.send("t", b"x", tag=None, keys=None, delay=None, delay_level=None)

    run_sim(main)


def test_address_in_two_parts_says_how_to_write_it() -> None:
    with pytest.raises(ConfigError, match="write 'host:port', or a list of such texts"):
        rocketpy.connect(("127.0.0.1", 29876))  # type: ignore[arg-type]
