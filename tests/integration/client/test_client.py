"""The client against a real name server and brokers of ours, over sockets."""

import asyncio
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.compiled_requests import compiled_sends
from rocketpy.remoting.server_peer import ClientConnection
from rocketpy.sync import connect as connect_sync
from rocketpy.testing.cluster import ClusterThread, LocalCluster


async def _until(condition: object, limit_s: float = 60) -> None:
    assert callable(condition)
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.02)


async def test_every_way_to_send_is_received(tmp_path: Path) -> None:
    # A one-way send that a busy machine has refused is lost, and nobody hears of it.
    patient = {"waitTimeMillsInSendQueue": "60000", "osPageCacheBusyTimeOutMills": "60000"}
    async with (
        LocalCluster(tmp_path, properties=patient) as cluster,
        rocketpy.connect(cluster.namesrv) as client,
    ):
        producer = client.producer(serializer=rocketpy.plain)
        await producer.send("orders", b"one", tag="a", keys="k1 k2", headers={"h": "1"})
        await producer.send("orders", "keyed", order_key="order-1")
        await producer.send_batch("orders", [b"b1", b"b2", b"b3"])
        await producer.send("orders", b"z" * 100_000)
        for codec in ("lz4", "zstd"):
            other = client.producer(compression=codec)
            await other.send("orders", codec.encode() * 5_000)
        producer.send_oneway("orders", b"oneway")
        futures = [producer.send_nowait("orders", b"n%d" % n) for n in range(200)]
        results = await asyncio.gather(*futures)
        assert len({(result.queue, result.offset) for result in results}) == 200

        bodies: Counter[bytes] = Counter()
        first: list[ReceivedMessage] = []
        async with client.consumer("orders", group="g", start="earliest") as consumer:
            async for message in consumer:
                bodies[message.body] += 1
                if message.tag:
                    first.append(message)
                if len(bodies) == 209:
                    break
        assert set(bodies.values()) == {1}
        assert bodies[b"z" * 100_000] == bodies[b"lz4" * 5_000] == bodies[b"zstd" * 5_000] == 1
        assert (first[0].tag, first[0].keys, first[0].headers) == ("a", ["k1", "k2"], {"h": "1"})


async def test_compiled_broker_responses_are_read_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled_sends() is None:
        pytest.skip("nothing is compiled here")
    decoded: list[RemotingCommand] = []
    take = ClientConnection.take_response

    def watched(connection: ClientConnection, response: RemotingCommand) -> None:
        decoded.append(response)
        take(connection, response)

    async with LocalCluster(tmp_path) as cluster:
        async with rocketpy.connect(cluster.namesrv) as client:
            await client.producer().send("orders", b"the topic is made")
        async with rocketpy.connect(cluster.namesrv) as client:
            producer = client.producer()
            for _ in range(3):  # MSGPACK is agreed on
                await producer.send("orders", b"first")
            monkeypatch.setattr(ClientConnection, "take_response", watched)
            await producer.send("orders", b"awaited")
            await asyncio.gather(*(producer.send_nowait("orders", b"%d" % n) for n in range(400)))
            await producer.send_batch("orders", [b"1", b"2"])
            answers = [each for each in decoded if "queueOffset" in each.ext_fields]
            assert not answers, answers[0]


async def test_members_share_and_take_over_without_loss(tmp_path: Path) -> None:
    seen: Counter[bytes] = Counter()

    async def handler(message: ReceivedMessage) -> None:
        seen[message.body] += 1

    async with (
        LocalCluster(tmp_path, brokers=2) as cluster,
        rocketpy.connect(cluster.namesrv) as one,
        rocketpy.connect(cluster.namesrv) as two,
    ):
        producer = one.producer()
        for n in range(40):
            await producer.send("orders", b"%d" % n)
        a = one.consumer("orders", group="g", start="earliest", handler=handler)
        b = two.consumer("orders", group="g", start="earliest", handler=handler)
        await a.start()
        await _until(lambda: len(seen) == 40)
        await b.start()
        await _until(lambda: _share(a) and _share(b) and not set(_share(a)) & set(_share(b)))
        for n in range(40, 80):
            await producer.send("orders", b"%d" % n)
        await a.close()
        for n in range(80, 120):
            await producer.send("orders", b"%d" % n)
        await _until(lambda: len(seen) == 120)
        assert len(_share(b)) == 8
        await b.close()
    assert max(seen.values()) <= 2


def _share(consumer: rocketpy.Consumer) -> list[rocketpy.MessageQueue]:
    return [queue for queue in consumer.assignment if queue.topic == "orders"]


async def test_failed_message_is_redelivered_and_none_is_skipped(tmp_path: Path) -> None:
    tries: Counter[bytes] = Counter()

    def handler(message: ReceivedMessage) -> None:
        assert threading.current_thread() is not threading.main_thread()
        tries[message.body] += 1
        if message.body == b"3" and tries[message.body] == 1:
            raise rocketpy.Retry(delay_level=1)

    async with LocalCluster(tmp_path) as cluster, rocketpy.connect(cluster.namesrv) as client:
        producer = client.producer()
        for n in range(6):
            await producer.send("orders", b"%d" % n)
        async with client.consumer(
            "orders", group="g", start="earliest", handler=handler, local_retry_pause=0.2
        ):
            await _until(lambda: tries[b"3"] == 2 and len(tries) == 6)
    assert sum(tries.values()) == 7


async def test_sending_and_receiving_survive_a_broker_restart(tmp_path: Path) -> None:
    seen: set[bytes] = set()

    async def handler(message: ReceivedMessage) -> None:
        seen.add(message.body)

    async with LocalCluster(tmp_path) as cluster, rocketpy.connect(cluster.namesrv) as client:
        producer = client.producer()
        async with client.consumer(
            "orders", group="g", start="earliest", handler=handler, pull_error_pause=0.1
        ) as consumer:
            await producer.send("orders", b"before")
            await cluster.restart_broker()
            acknowledged = {b"before"}
            async with asyncio.timeout(60):
                while len(acknowledged) < 20:
                    body = b"%d" % len(acknowledged)
                    try:
                        await producer.send("orders", body)
                    except rocketpy.errors.RocketPyError as error:
                        assert error.retriable  # noqa: PT017 - only some of the sends fail
                        await asyncio.sleep(0.05)
                    else:
                        acknowledged.add(body)
            await _until(lambda: acknowledged <= seen)
            await _until(lambda: consumer.health().ok)


async def test_pull_consumer_seeks_commits_and_pauses(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path) as cluster, rocketpy.connect(cluster.namesrv) as client:
        producer = client.producer()
        results = [await producer.send("orders", b"%d" % n) for n in range(20)]
        async with client.pull_consumer(group="p", auto_commit=False) as consumer:
            queues = await consumer.queues("orders")
            await consumer.assign(queues)
            await consumer.seek_to_begin()
            got: list[ReceivedMessage] = []
            while len(got) < 20:
                got += await consumer.poll(max_messages=7, timeout=5)
            assert sorted(int(message.body) for message in got) == list(range(20))
            assert await consumer.committed(queues[0]) in {None, 0}
            await consumer.commit()
            assert [await consumer.committed(queue) for queue in queues] == [5, 5, 5, 5]
            await consumer.seek(results[0].queue, results[0].offset)
            consumer.pause()
            assert await consumer.poll(timeout=0.2) == []
            consumer.resume()
            again = await consumer.poll(timeout=30)
            assert again[0].id == results[0].msg_id
            with pytest.raises(rocketpy.errors.ClientError):
                await consumer.seek(queues[0], 99)
            with pytest.raises(rocketpy.errors.ClientError):
                await consumer.subscribe("orders")


async def test_pull_consumer_that_subscribes_gets_its_share(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path) as cluster, rocketpy.connect(cluster.namesrv) as client:
        producer = client.producer()
        for n in range(20):
            await producer.send("orders", b"%d" % n, tag="odd" if n % 2 else "even")
        async with client.pull_consumer(group="p", start="earliest") as consumer:
            await consumer.subscribe("orders", "odd")
            got: list[int] = []
            async with asyncio.timeout(60):
                while len(got) < 10:
                    got += [int(message.body) for message in await consumer.poll(timeout=1)]
            assert sorted(got) == list(range(1, 20, 2))


async def test_broadcast_members_get_everything_and_remember_in_a_file(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path) as cluster:
        for first in (0, 8):
            async with rocketpy.connect(cluster.namesrv, instance_name="steady") as client:
                producer = client.producer()
                for n in range(first, first + 8):
                    await producer.send("orders", b"%d" % n)
                got: list[int] = []
                async with client.consumer(
                    "orders",
                    group="c",
                    start="earliest",
                    handler=lambda message, got=got: got.append(int(message.body)),
                    broadcast=True,
                    offset_dir=str(tmp_path / "offsets"),
                ):
                    await _until(lambda got=got: len(got) >= 8)
                assert sorted(got) == list(range(first, first + 8))


def test_same_without_await(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster, connect_sync(cluster.namesrv, group="s") as client:
        with client.producer(serializer=rocketpy.json) as producer:
            assert producer.send("orders", {"n": 0}).status is rocketpy.SendStatus.SEND_OK
            futures = [producer.send_nowait("orders", {"n": n}) for n in range(1, 10)]
            producer.flush()
            assert len({future.result(60).msg_id for future in futures}) == 9
            producer.send_batch("orders", [{"n": 10}, {"n": 11}])
        got = set()
        with client.consumer(
            "orders", group="s", start="earliest", serializer=rocketpy.json
        ) as consumer:
            for message in consumer:
                got.add(message.decode()["n"])
                if len(got) == 12:
                    break
            assert consumer.health().ok
        handled: set[int] = set()
        done = threading.Event()

        def handler(value: dict[str, int], message: ReceivedMessage) -> None:
            handled.add(value["n"])
            if len(handled) == 12:
                done.set()

        with client.consumer(
            "orders", group="h", start="earliest", handler=handler, serializer=rocketpy.json
        ):
            assert done.wait(60)
        with client.pull_consumer(group="p") as puller:
            puller.assign(puller.queues("orders"))
            puller.seek_to_begin()
            assert puller.poll(timeout=30)
    with pytest.raises(rocketpy.errors.ClosedError):
        client.producer()


async def test_trace_of_a_message_is_read_back(tmp_path: Path) -> None:
    async with (
        LocalCluster(tmp_path) as cluster,
        rocketpy.connect(cluster.namesrv, group="senders") as client,
        rocketpy.admin.connect(cluster.namesrv) as admin,
    ):
        async with client.producer(trace=True) as producer:
            sent = await producer.send("orders", b"one", keys="o1")
            await producer.send("orders", b"two", keys="o2")
        done: list[ReceivedMessage] = []
        options: Any = {"group": "g", "start": "earliest", "trace": True}
        async with client.consumer("orders", handler=done.append, **options):
            await _until(lambda: len(done) == 2)
        for wanted in (sent.msg_id, "o1"):
            records = await admin.trace(wanted)
            assert [record.kind for record in records] == ["Pub", "SubBefore", "SubAfter"]
            assert {record.msg_id for record in records} == {sent.msg_id}
            assert [record.group for record in records] == ["senders", "g", "g"]
        assert await admin.trace("nobody") == []


def test_blocking_sends_wait_for_a_broker_that_restarts(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster, connect_sync(cluster.namesrv, group="s") as client:
        with client.producer(timeout=30) as producer:
            producer.send("orders", b"0")
            restart = threading.Thread(target=cluster.restart_broker)
            restart.start()
            sent = 1
            while restart.is_alive():
                producer.send("orders", b"x")
                sent += 1
            restart.join()
            producer.send("orders", b"last")
        assert cluster.message_count("orders") >= sent + 1
