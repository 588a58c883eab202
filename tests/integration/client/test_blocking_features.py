"""Transactions, requests and popping through the blocking client."""

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import rocketpy
import rocketpy.admin
import rocketpy.admin.sync
from rocketpy.errors import ClientError
from rocketpy.sync import ReceivedMessage, connect
from rocketpy.testing.cluster import ClusterThread


def test_transactions_requests_and_popping_without_await(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster, connect(cluster.namesrv, group="s") as client:
        producer = client.producer()
        with producer.transaction("orders", b"kept") as kept:
            assert kept.half.status is rocketpy.SendStatus.SEND_OK
        assert kept.is_confirmed
        with pytest.raises(KeyError), producer.transaction("orders", b"dropped") as dropped:
            raise KeyError
        assert dropped.state is rocketpy.TxState.ROLLBACK
        producer.send("quotes", b"first")
        threads: list[str] = []

        def quote(message: ReceivedMessage) -> bytes:
            threads.append(threading.current_thread().name)
            return message.body + b"!"

        with client.responder("quotes", group="r", handler=quote):
            assert producer.request("quotes", b"q", timeout=60).body == b"q!"
            assert producer.request("quotes", b"q", type=str, timeout=60) == "q!"
        assert all(name.startswith("rocketpy-r") for name in threads), "of their own pool"
        with client.pop_consumer("orders", group="p", start="earliest") as consumer:
            message = next(iter(consumer))
            assert (message.body, message.id) == (b"kept", kept.id)
            message.change_invisible(30)
            message.nack(-1)
        assert cluster.message_count("%DLQ%p") == 1


def test_popping_in_a_namespace(tmp_path: Path) -> None:
    options: Any = {"group": "p", "start": "earliest"}
    with (
        ClusterThread(tmp_path) as cluster,
        connect(cluster.namesrv, namespace="ns") as client,
        connect(cluster.namesrv) as other,
    ):
        client.producer().send("orders", b"inside")
        other.producer().send("orders", b"outside")
        with client.pop_consumer("orders", **options) as consumer:
            message = next(iter(consumer))
            assert (message.topic, message.body) == ("orders", b"inside")
            assert message.queue.topic == "ns%orders"
            message.ack()


def test_handlers_and_loops_get_messages_that_block(tmp_path: Path) -> None:
    acked: list[bytes] = []
    refused: list[str] = []
    done = threading.Event()

    def handler(body: bytes, message: ReceivedMessage) -> None:
        message.ack()
        client.producer().send("answers", body)
        acked.append(body)

    async def on_the_loop(message: rocketpy.ReceivedMessage) -> None:
        await message.ack()
        try:
            client.producer()
        except rocketpy.errors.ClientError as error:
            refused.append(str(error))
        done.set()

    with ClusterThread(tmp_path) as cluster, connect(cluster.namesrv, group="s") as client:
        client.producer().send("orders", b"o1")
        options: Any = {"start": "earliest"}
        with client.consumer("orders", group="a", handler=handler, **options):
            with client.consumer("answers", group="b", handler=on_the_loop, **options):
                assert done.wait(30)
        assert acked == [b"o1"]
        assert "make the handler a plain `def`" in refused[0]
        with client.consumer("orders", group="c", **options) as consumer:
            first = next(iter(consumer))
            for again in consumer:
                assert again.id == first.id
                again.ack()
                break
        with client.pull_consumer(group="d", **options) as pulling:
            pulling.assign(pulling.queues("orders"))
            [polled] = pulling.poll(timeout=20)
            polled.ack()
            with pytest.raises(rocketpy.errors.ClosedError):
                polled.nack()
        for group in ("a", "c", "d"):
            lag = cluster.run(_lag(cluster.namesrv, group))
            assert lag == 0, group


async def _lag(namesrv: str, group: str) -> int:
    async with rocketpy.admin.connect(namesrv) as admin:
        return (await admin.group_lag(group, "orders")).lag


def test_burst_waits_for_room_and_all_of_it_is_stored(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster, connect(cluster.namesrv) as client:
        producer = client.producer(max_in_flight=8)
        sent = [producer.send_nowait("orders", b"x") for _ in range(200)]
        assert {future.result(30).status.name for future in sent} == {"SEND_OK"}
        for _ in range(200):
            producer.send_oneway("orders", b"y")
        assert producer.in_flight <= 8
        producer.flush()
        assert (producer.in_flight, producer.lost_oneway) == (0, 0)
        producer.send("orders", b"z")


def test_close_inside_a_plain_handler_raises_advice(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    with ClusterThread(tmp_path) as cluster, connect(cluster.namesrv, group="s") as client:
        client.producer().send("ends", b"x")

        def handle(message: ReceivedMessage) -> None:
            for close in (consumer.close, client.close):
                with pytest.raises(ClientError, match="call its stop") as caught:
                    close()
                told.append(str(caught.value))
            consumer.stop()

        consumer: Any = client.consumer("ends", group="e", start="earliest", handler=handle)
        with consumer:
            consumer.wait_closed()
    assert len(told) == 2


def test_topic_is_read_to_its_end_without_await(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster, connect(cluster.namesrv, group="s") as client:
        client.ready(timeout=30)
        client.producer().send_batch("levels", [b"1", b"2", b"3"])
        assert sorted(message.body for message in client.read("levels")) == [b"1", b"2", b"3"]
        assert list(client.read("levels", start="latest")) == []
        for _ in client.read("levels", until=None):
            break
        assert sum(client.end_offsets("levels").values()) == 3
        assert sum(client.begin_offsets("levels").values()) == 0


def test_threads_share_the_reading_of_a_topic(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster, connect(cluster.namesrv, group="s") as client:
        client.ready(timeout=30)
        client.producer().send_batch("levels", [b"%d" % number for number in range(300)])
        messages = client.read("levels")
        with ThreadPoolExecutor(4) as pool:
            parts = pool.map(lambda _: [message.body for message in messages], range(4))
            got = [body for part in parts for body in part]
        assert sorted(got) == sorted(b"%d" % number for number in range(300))


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer", "pull_consumer"])
@pytest.mark.parametrize("way", ["getone", "loop"])
def test_threads_share_a_consumer_and_keep_their_messages(
    tmp_path: Path, kind: str, way: str
) -> None:
    count = 300
    with ClusterThread(tmp_path) as cluster, connect(cluster.namesrv, group="s") as client:
        client.producer().send_batch("jobs", [b"%d" % number for number in range(count)])
        options: Any = {"group": "w", "start": "earliest"}
        if kind == "consumer":
            options |= {"max_cached_messages": 20, "max_span": 40}
        if kind == "pull_consumer":
            consumer: Any = client.pull_consumer(**options)
            consumer.start()
            consumer.subscribe("jobs")
        else:
            consumer = getattr(client, kind)("jobs", **options)
            consumer.start()
        got: list[int] = []

        def by_getone() -> None:
            while (message := consumer.getone(timeout=3)) is not None:
                got.append(int(message.body))

        def by_loop() -> None:
            for item in consumer.batches(5) if kind == "pull_consumer" else consumer:
                messages = item if isinstance(item, list) else [item]
                got.extend(int(each.body) for each in messages)

        work = by_getone if way == "getone" else by_loop
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        if way == "loop":
            wait_until(lambda: len(set(got)) == count)
            consumer.stop()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        consumer.close()
        assert sorted(got) == list(range(count))
        with rocketpy.admin.sync.connect(cluster.namesrv) as admin:
            assert kind == "pop_consumer" or admin.group_lag("w").lag == 0


def test_message_of_a_thread_is_not_done_when_another_asks(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster, connect(cluster.namesrv, group="s") as client:
        client.producer().send_batch("jobs", [b"0", b"1", b"2"], order_key="one queue")
        with client.consumer("jobs", group="w", start="earliest") as consumer:
            first: list[Any] = []
            may_end = threading.Event()

            def slow() -> None:
                first.append(consumer.getone(timeout=20))
                may_end.wait(60)
                consumer.ack_all()

            thread = threading.Thread(target=slow)
            thread.start()
            wait_until(lambda: bool(first))
            later: list[Any] = [consumer.getone(timeout=20) for _ in range(2)]
            assert [each.body for each in later] == [b"1", b"2"]
            assert consumer.getone(timeout=0.1) is None
            consumer.commit()
            [queue] = [each for each in consumer.assignment if each == first[0].queue]
            assert consumer.health().queues[queue].offset == 0
            may_end.set()
            thread.join(60)
            assert consumer.health().queues[queue].offset == 3
    consumer.close()
    consumer.close()


def test_worker_loop_without_await_receives_messages_behind_one_that_fails(tmp_path: Path) -> None:
    with ClusterThread(tmp_path) as cluster, connect(cluster.namesrv, group="s") as client:
        client.producer().send_batch("jobs", [b"0", b"1", b"2"], order_key="one queue")
        got: list[bytes] = []
        with client.consumer("jobs", group="w", start="earliest") as consumer:
            while b"2" not in got:
                with contextlib.suppress(ValueError):
                    for message in consumer:
                        got.append(message.body)
                        if message.body == b"1":
                            raise ValueError
                        if message.body == b"2":
                            consumer.ack_all()
                            break
        assert got == [b"0", b"1", b"1", b"2"]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
