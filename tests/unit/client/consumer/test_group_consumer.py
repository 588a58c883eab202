"""Common behaviour of pulling and popping group members: lifecycle, subscriptions, handlers."""

import asyncio
from typing import Any

import pytest

from rocketpy.client.client import Client
from rocketpy.errors import ClientError, ClosedError, ConfigError, NoNameServerError
from tests.unit.client.sim import NAMESRV, Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, until

KINDS = ["consumer", "pop_consumer"]
HEARTBEAT = 34


async def nothing(_message: Any) -> None:
    return None


def make(client: Client, kind: str, **options: Any) -> Any:
    return getattr(client, kind)("t", **{"group": "c", "handler": nothing, **options})


@pytest.mark.parametrize("kind", KINDS)
def test_member_is_one_from_its_start_to_its_end(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = make(client, kind)
            assert cluster.members("c") == []
            await consumer.start()
            assert cluster.members("c") == [client.client_id]
            beats = len(cluster.of_code(HEARTBEAT))
            await consumer.start()
            assert len(cluster.of_code(HEARTBEAT)) == beats, "it has started already"
            await consumer.close()
            assert cluster.members("c") == []
            await consumer.close()
            await consumer.wait_closed()
            with pytest.raises(ClosedError):
                await consumer.start()

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_wait_closed_returns_after_the_close(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = make(client, kind)
            await consumer.start()
            waiting = asyncio.ensure_future(consumer.wait_closed())
            await pass_time(60)
            assert not waiting.done()
            await consumer.close()
            await waiting

    run_sim(main)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("whose", ["consumer", "client"])
@pytest.mark.parametrize("kind", KINDS)
def test_close_inside_the_own_handler_raises_advice(
    kind: str,
    whose: str,
    ordered: bool,
) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"x")
        told: list[str] = []
        async with cluster.client() as client:

            async def handle(message: Any) -> None:
                try:
                    await (consumer if whose == "consumer" else client).close()
                except ClientError as error:
                    told.append(str(error))
                consumer.stop()

            consumer = make(client, kind, handler=handle, start="earliest", ordered=ordered)
            began_ms = cluster.elapsed_ms
            await consumer.start()
            async with asyncio.timeout(60):
                await consumer.wait_closed()
            await consumer.close()
            assert cluster.elapsed_ms - began_ms < 9_000
        assert len(told) == 1
        assert "call its stop()" in told[0]

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_task_that_a_handler_starts_may_close_the_consumer(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"x")
        closing: list[asyncio.Task[None]] = []
        async with cluster.client() as client, cluster.client() as other:
            another = make(other, kind, group="other")
            await another.start()

            async def handle(message: Any) -> None:
                await another.close()
                closing.append(asyncio.create_task(consumer.close()))

            consumer = make(client, kind, handler=handle, start="earliest")
            await consumer.start()
            await until(lambda: closing)
            await closing[0]
            await consumer.wait_closed()

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_consumer_that_never_started_is_closed_at_once(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = make(client, kind)
            await consumer.close()
            await consumer.wait_closed()
            with pytest.raises(ClosedError):
                await consumer.start()
        assert cluster.of_code(HEARTBEAT) == []

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_start_without_a_name_server_leaves_no_member_and_may_be_repeated(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = make(client, kind)
            cluster.down.add(NAMESRV)
            with pytest.raises(NoNameServerError):
                await consumer.start()
            assert client.health().consumers == {}
            cluster.down.clear()
            await consumer.start()
            assert cluster.members("c") == [client.client_id]
            await consumer.close()

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_start_that_is_given_up_leaves_no_member(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = make(client, kind)
            cluster.latency_ms = 500
            starting = asyncio.ensure_future(consumer.start())
            await until(lambda: cluster.members("c") != [])
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            cluster.latency_ms = 0
            assert cluster.members("c") == []
            assert client.health().consumers == {}

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_topic_may_come_later_and_is_received_soon(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create_topic("u", 1)
        got: list[bytes] = []

        async def handler(message: Any) -> None:
            got.append(message.body)

        async with cluster.client() as client:
            async with make(client, kind, handler=handler, start="earliest") as consumer:
                cluster.put("u", b"of another topic")
                await pass_time(5)
                assert got == []
                consumer.subscribe("u")
                await until(lambda: got == [b"of another topic"], 10)

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_several_topics_are_received_from_the_start(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.create_topic("u", 1)
        topics: set[str] = set()

        async def handler(message: Any) -> None:
            topics.add(message.topic)

        async with cluster.client() as client:
            made = getattr(client, kind)(["t", "u"], group="c", handler=handler)
            async with made:
                for topic in ("t", "u"):
                    cluster.put(topic, b"x")
                await until(lambda: topics == {"t", "u"})

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("topic", ["", "no blank", "x" * 300])
def test_topic_that_cannot_be_is_refused(kind: str, topic: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = make(client, kind)
            with pytest.raises(ConfigError):
                consumer.subscribe(topic)

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_plain_function_is_a_handler_too(kind: str) -> None:
    async def main(cluster: Cluster) -> list[bytes]:
        got: list[bytes] = []

        async with cluster.client() as client:
            async with make(client, kind, handler=lambda message: got.append(message.body)):
                cluster.put("t", b"x")
                await until(lambda: got == [b"x"])
        return got

    assert run_sim(main) == [b"x"]


@pytest.mark.parametrize("kind", KINDS)
def test_missing_topic_is_found_when_it_appears(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        got: list[bytes] = []

        async def handler(message: Any) -> None:
            got.append(message.body)

        async with cluster.client() as client:
            made = getattr(client, kind)("later", group="c", handler=handler, start="earliest")
            async with made:
                await pass_time(5)
                cluster.create_topic("later", 1)
                cluster.put("later", b"x")
                await until(lambda: got == [b"x"], 60)

    run_sim(main)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("consumer", {}), ("consumer", {"ordered": True}), ("pop_consumer", {})],
    ids=["plain", "ordered", "pop"],
)
def test_handler_that_raises_cancelled_error_fails_and_its_worker_continues(
    kind: str, options: dict[str, Any]
) -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        calls: list[int] = []

        async def handler(message: Any) -> None:
            calls.append(message.offset)
            if len(calls) == 1:
                raise asyncio.CancelledError

        async with cluster.client() as client:
            made = make(client, kind, handler=handler, start="earliest", concurrency=1, **options)
            async with made as consumer:
                await until(lambda: {1, 2, 3} <= set(calls))
                assert consumer.health().ok
                assert calls[0] == 0
                if options:
                    assert calls == [0, 0, 1, 2, 3], "again, and nothing overtakes it"

    run_sim(main, queues=1)


@pytest.mark.parametrize("kind", KINDS)
def test_start_waits_for_a_name_server_that_comes_later(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            consumer = make(client, kind)
            cluster.down.add(NAMESRV)
            asyncio.get_running_loop().call_later(4, cluster.down.clear)
            began_ms = cluster.clock.monotonic_ms()
            await consumer.start()
            assert 4_000 <= cluster.clock.monotonic_ms() - began_ms <= 8_000
            assert cluster.members("c") == [client.client_id]
            await consumer.close()

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_start_without_a_timeout_does_not_wait_for_a_name_server(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            cluster.down.add(NAMESRV)
            began_ms = cluster.clock.monotonic_ms()
            with pytest.raises(NoNameServerError):
                await make(client, kind, start_timeout=0).start()
            assert cluster.clock.monotonic_ms() - began_ms < 100

    run_sim(main)


@pytest.mark.parametrize("timeout_s", [0.3, 1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_start_gives_up_at_the_end_of_its_timeout(kind: str, timeout_s: float) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            cluster.down.add(NAMESRV)
            began_ms = cluster.clock.monotonic_ms()
            with pytest.raises(NoNameServerError):
                await make(client, kind, start_timeout=timeout_s).start()
            passed_ms = cluster.clock.monotonic_ms() - began_ms
            assert timeout_s * 1000 <= passed_ms <= timeout_s * 1000 + 100

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_start_finds_a_name_server_that_comes_shortly_before_the_end(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            cluster.down.add(NAMESRV)
            asyncio.get_running_loop().call_later(0.9, cluster.down.clear)
            async with make(client, kind, start_timeout=1):
                assert cluster.members("c") == [client.client_id]

    run_sim(main)


@pytest.mark.parametrize("kind", KINDS)
def test_consumer_or_client_closed_during_a_start_does_not_join(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        cluster.down.add(NAMESRV)
        async with cluster.client() as client:
            consumer = make(client, kind)
            start = asyncio.create_task(consumer.start())
            await pass_time(1)
            await consumer.close()
            cluster.down.clear()
            with pytest.raises(ClosedError):
                await start
            cluster.down.add(NAMESRV)
            start = asyncio.create_task(make(client, kind).start())
            await pass_time(1)
        with pytest.raises(ClosedError):
            await start
        assert cluster.members("c") == []

    run_sim(main)
