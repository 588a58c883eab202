"""Invalid options raise at the call, with the names that the caller used."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import rocketpy
from rocketpy.client.messages.serializers import Serializer
from rocketpy.client.options.validation import described, fits, takes
from rocketpy.errors import (
    ClientError,
    ClosedError,
    ConfigError,
    IllegalMessageError,
    NameServerAddressError,
    NoNameServerError,
    NoRouteError,
)
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import BROKER_A, NAMESRV, Cluster, pass_time, run_sim
from tests.unit.client.steps import nothing

SEND, ROUTE = 310, 105


async def coroutine_function(*arguments: Any) -> None: ...


def in_client(work: Callable[[rocketpy.Client], None], **options: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(**options) as client:
            work(client)

    run_sim(main)


CONNECT: list[dict[str, Any]] = [
    {"group": None}, {"group": 5}, {"namespace": "a b"}, {"namespace": None}, {"namespace": "ä"},
    {"name_servers": 9876}, {"name_servers": ["a:1", 2]}, {"name_servers": b"a:1"},
    {"name_servers": "host:port"}, {"name_servers": "a:1;b:70000"}, {"name_servers": "a:0"},
    {"name_servers": "two words:9876"}, {"name_servers": "user@host:1"},
    {"remoting": {"use_msgpack": False}}, {"credentials": ("ak", "secret")},
    {"api_timeout": "3000"}, {"api_timeout": True}, {"api_timeout": timedelta(0)},
    {"instance_name": 1}, {"client_ip": b"10.0.0.1"}, {"unit_name": None},
]  # fmt: skip
PRODUCER: list[dict[str, Any]] = [
    {"timeout": "3"}, {"timeout": float("nan")}, {"timeout": float("inf")},
    {"retries": 2.0}, {"retries": True}, {"latency_fault": "no"}, {"trace": 1},
    {"compression_level": 10}, {"compression_level": 99}, {"compression_level": -1},
    {"compression": "lz4", "compression_level": 17},
    {"compression": "zstd", "compression_level": 23},
    {"compression": "gzip"}, {"flow_control_retry": "sometimes"},
    {"compression": b"zlib"}, {"compression": ["zlib"]}, {"serializer": "json"},
    {"serializer": None}, {"tx_checker": "commit"}, {"trace_topic": None}, {"group": 5},
    {"middlewares": None}, {"middlewares": [5]}, {"on_retry": "log"}, {"linger": None},
    {"on_retry": coroutine_function}, {"on_retry": lambda: None}, {"tx_checker": lambda: None},
    {"serializer": rocketpy.TypedSerializer}, {"trace": True, "trace_topic": ""},
    {"trace": True, "trace_topic": "a b"}, {"middlewares": {coroutine_function: 1}},
]  # fmt: skip
CONSUMER: list[dict[str, Any]] = [
    {"topic": 5}, {"topic": b"t"}, {"topic": ["t", 5]}, {"topic": None}, {"filter": None},
    {"filter": ["a"]}, {"sql": 5}, {"handler": "handle"}, {"handler": lambda: None},
    {"handler": lambda a, b, c: None}, {"start": "newest"}, {"start": 1e300}, {"start": None},
    {"ordered": "yes"}, {"order_by_key": "key"}, {"broadcast": 1}, {"allocation": 5},
    {"offset_dir": None}, {"concurrency": -1}, {"batch": 0}, {"concurrency": 2.5},
    {"stop_timeout": None}, {"batch": True}, {"topic": {"t": "A"}}, {"topic": []},
    {"order_by_key": coroutine_function}, {"order_by_key": lambda: None},
    {"allocation": coroutine_function}, {"allocation": lambda queues: queues},
    {"on_error": lambda message: None}, {"on_assigned": lambda: None},
    {"on_revoked": lambda: None}, {"retry_backoff": coroutine_function},
    {"serializer": rocketpy.TypedSerializer}, {"trace": True, "trace_topic": "a b"},
    {"start": 2**63}, {"start": time.time_ns()}, {"start": time.time_ns() // 1000},
    {"start": -(2**63)}, {"middlewares": [lambda messages, handle: None]},
]  # fmt: skip


def refused(make: Callable[..., object], wrong: list[dict[str, Any]], **others: Any) -> None:
    """Each of the wrong options is refused by its name."""
    for options in wrong:
        with pytest.raises(ConfigError) as caught:
            make(**{**others, **options})
        assert caught.value.key in options
        assert "secret" not in str(caught.value)


def test_wrong_client_options_raise() -> None:
    refused(rocketpy.connect, CONNECT, name_servers="a:1")


def test_wrong_producer_options_raise() -> None:
    in_client(lambda client: refused(client.producer, PRODUCER))


def test_wrong_consumer_options_raise() -> None:
    def work(client: rocketpy.Client) -> None:
        refused(client.consumer, CONSUMER, topic="t", handler=nothing)
        answers: list[dict[str, Any]] = [
            {"handler": None},
            {"handler": lambda body, message, more: b""},
            {"reply_middlewares": [5]},
            {"reply_middlewares": [lambda sending, proceed: None]},
            {"reply_serializer": rocketpy.TypedSerializer},
            {"reply_serializer": "json"},
            {"batch": 8},
        ]
        refused(client.responder, [*CONSUMER, *answers], topic="t", handler=nothing)
        refused(client.pull_consumer, [{"auto_commit": 1}, {"start": b""}, {"pull_batch": "5"}])

    in_client(work)


def test_wrong_pop_consumer_options_raise() -> None:
    unknown = {
        "order_by_key", "broadcast", "offset_dir", "allocation", "on_assigned", "on_revoked",
        "trace",
    }  # fmt: skip
    known = [options for options in CONSUMER if not options.keys() & unknown]
    own: list[dict[str, Any]] = [
        {"start": 5},
        {"renew": 1},
        {"invisible_time": "60"},
        {"pop_batch": 8.0},
    ]
    in_client(lambda client: refused(client.pop_consumer, [*known, *own], topic="t"))


def test_account_is_of_text() -> None:
    with pytest.raises(ConfigError) as caught:
        rocketpy.Credentials("ak", b"secret")  # type: ignore[arg-type]
    assert caught.value.key == "secret_key"
    assert "secret'" not in str(caught.value)


def test_wrong_option_names_raise_with_the_name_of_the_method() -> None:
    connect: Any = rocketpy.connect

    def work(client: Any) -> None:
        for call, words in (
            (client.consumer, r"consumer\(\): missing a required argument: 'topic'"),
            (lambda: client.consumer("t", "g"), r"consumer\(\): too many positional"),
            (lambda: client.producer(retrys=3), "no option 'retrys'; did you mean retries"),
            (lambda: client.pop_consumer("t", frobnicate=1), r"pop_consumer\(\) has no option"),
            (lambda: connect(namesrv="a:1"), r"connect\(\) has no option 'namesrv'"),
        ):
            with pytest.raises(TypeError, match=words) as caught:
                call()
            assert "Config" not in str(caught.value)

    in_client(work)


def test_annotations_are_described_in_words() -> None:
    assert described(str | None) == "a text or None"
    assert described(Serializer) == "an object with dumps and loads"
    assert fits(Serializer, rocketpy.json)
    assert fits(float, 3)
    assert not fits(int, 3.0)
    assert takes(print, 1)
    assert takes(lambda body, message=None: None, 1)
    assert not takes(lambda *, body: None, 1, 2)


# ---- what no waiting mends


async def failed_after(cluster: Cluster, error: type[Exception], **options: Any) -> tuple[str, int]:
    async with cluster.client() as client:
        began_ms = cluster.clock.monotonic_ms()
        with pytest.raises(error) as caught:
            await client.producer().send("t", b"x", **options)
        return str(caught.value), cluster.clock.monotonic_ms() - began_ms


def test_queue_of_a_broker_that_is_in_no_route_is_not_waited_for() -> None:
    async def main(cluster: Cluster) -> None:
        await pass_time(1)
        queue = MessageQueue("t", "broker-z", 0)
        words, took_ms = await failed_after(cluster, NoRouteError, queue=queue)
        assert words == "broker broker-z is in no route"
        assert took_ms < 1_000
        assert not cluster.of_code(SEND)

    run_sim(main)


def test_broker_that_has_just_joined_is_found() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            await producer.send("t", b"x")  # its route is remembered for 30 s
            cluster.create_topic("u")
            await pass_time(1)
            queue = MessageQueue("t", "broker-b", 0)
            result = await producer.send("t", b"x", queue=queue)
            assert result.queue == queue

    run_sim(main, brokers=2)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": MessageQueue("u", "broker-a", 0)}, "not a queue of topic t"),
        ({"selector": lambda queues: None}, "chose None"),
        ({"selector": lambda queues: 0}, "chose 0"),
    ],
)
def test_choice_that_is_no_queue_of_the_topic_is_refused(
    options: dict[str, Any], words: str
) -> None:
    async def main(cluster: Cluster) -> None:
        found, took_ms = await failed_after(cluster, IllegalMessageError, **options)
        assert words in found
        assert took_ms < 100
        assert not cluster.of_code(SEND)

    run_sim(main)


@pytest.mark.parametrize("options", [{"order_key": 1.5}, {"selector": 3}, {"order_key": b"k"}])
def test_way_to_choose_of_another_type_is_refused(options: dict[str, Any]) -> None:
    async def main(cluster: Cluster) -> None:
        await failed_after(cluster, TypeError, **options)

    run_sim(main)


def test_connect_to_a_broker_address_names_the_mistake() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(name_servers=BROKER_A) as client:
            began_ms = cluster.clock.monotonic_ms()
            with pytest.raises(NameServerAddressError, match=f"{BROKER_A} is no name server"):
                await client.producer().send("t", b"x")
            with pytest.raises(NameServerAddressError, match="a broker's address"):
                await client.consumer("t", group="c").start()
            assert cluster.clock.monotonic_ms() - began_ms < 1_000
        async with cluster.client(name_servers=(BROKER_A, NAMESRV)) as client:
            await client.producer().send("t", b"x")
            cluster.down.add(NAMESRV)
            with pytest.raises(NoNameServerError) as caught:
                await client.producer().send("u", b"x")
            assert caught.value.retriable, "the other one may come back"

    run_sim(main)


def test_without_any_name_server_nothing_is_waited_for() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client(name_servers="") as client:
            began_ms = cluster.clock.monotonic_ms()
            with pytest.raises(NameServerAddressError, match="NAMESRV_ADDR"):
                await client.producer().send("t", b"x")
            assert cluster.clock.monotonic_ms() - began_ms < 100

    run_sim(main)


@pytest.mark.parametrize("namespace", ["", "ns"])
def test_transaction_in_the_default_group_raises(namespace: str) -> None:
    async def check(message: Any) -> rocketpy.TxState:
        return rocketpy.TxState.COMMIT

    def work(client: rocketpy.Client) -> None:
        for group in ("", "DEFAULT_PRODUCER"):
            with pytest.raises(ConfigError) as caught:
                client.producer(group=group, tx_checker=check)
            assert caught.value.key == "group"
            producer = client.producer(group=group)
            with pytest.raises(ConfigError, match="group of their own"):
                producer.transaction("t", b"x")
        client.producer(group="mine", tx_checker=check).transaction("t", b"x")

    in_client(work, group="DEFAULT_GROUP", namespace=namespace)


@pytest.mark.parametrize("namespace", ["", "ns"])
@pytest.mark.parametrize("is_explicit", [False, True])
def test_consumer_without_a_group_is_refused(namespace: str, *, is_explicit: bool) -> None:
    options: dict[str, Any] = {"group": "DEFAULT_GROUP"} if is_explicit else {}

    async def main(cluster: Cluster) -> None:
        own = {} if is_explicit else {"group": "DEFAULT_GROUP"}
        async with cluster.client(namespace=namespace, **own) as client:
            for make in (client.consumer, client.pop_consumer):
                with pytest.raises(ConfigError, match="a consumer needs a group") as caught:
                    make("t", **options)
                assert caught.value.key == "group"
            with pytest.raises(ConfigError, match="a consumer needs a group"):
                client.responder("t", handler=nothing, **options)
            async with client.pull_consumer(**options) as consumer:
                with pytest.raises(ConfigError, match="a consumer needs a group"):
                    await consumer.subscribe("t")
                with pytest.raises(ConfigError, match="a consumer needs a group"):
                    await consumer.commit()
            client.producer()

    run_sim(main)


def test_pull_consumer_without_a_group_reads_and_commits_nothing() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"x")
        async with cluster.client(group="DEFAULT_GROUP") as client:
            async with client.pull_consumer(start="earliest", auto_commit_interval=0) as consumer:
                await consumer.assign(await consumer.queues("t"))
                assert [each.body for each in await consumer.poll()] == [b"x"]
                assert await consumer.poll(timeout=1) == []
        assert list(cluster.offsets) == []

    run_sim(main)


def test_levels_and_times_of_another_type_are_refused() -> None:
    async def main(cluster: Cluster) -> None:
        cluster.put("t", b"x")
        for level in ("3", 1.5, True, None):
            with pytest.raises(TypeError, match="delay_level"):
                rocketpy.Retry(level)  # type: ignore[arg-type]
        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest") as consumer:
                message: Any = await anext(aiter(consumer))
                with pytest.raises(TypeError, match="delay_level"):
                    await message.nack("3")
                with pytest.raises(TypeError, match="delay: '3'"):
                    await message.nack(delay="3")
                for delay in (-1, 7_201):
                    with pytest.raises(ClientError, match="between 0 and 7200"):
                        await message.nack(delay=delay)
                with pytest.raises(ClientError, match="not both"):
                    await message.nack(3, delay=5)
            async with client.pop_consumer("t", group="p", start="earliest") as popping:
                popped: Any = await anext(aiter(popping))
                for seconds in ("x", None, True, float("nan")):
                    with pytest.raises(TypeError, match="not a number"):
                        await popped.change_invisible(seconds)
                for seconds in (-1, 3 * 86_400 + 1):
                    with pytest.raises(ClientError, match="3 days"):
                        await popped.change_invisible(seconds)
                    with pytest.raises(ClientError, match="3 days"):
                        await popped.nack(delay=seconds)
                with pytest.raises(ClientError, match="not both"):
                    await popped.nack(3, delay=5)
                with pytest.raises(TypeError, match="delay_level"):
                    await popped.nack("3")
                assert popping.in_hand == 1, "it is still ours"

    run_sim(main)


class StaticSerializer:
    @staticmethod
    def dumps(value: Any) -> bytes:
        return bytes(value)

    @classmethod
    def loads(cls, data: bytes) -> bytes:
        return data


def test_class_whose_methods_need_no_instance_is_a_serializer() -> None:
    assert fits(Serializer, StaticSerializer)
    assert not fits(Serializer, rocketpy.TypedSerializer)


async def refuse_topic(call: Callable[[Any], Any], key: str = "topic") -> None:
    """A value that is no topic raises before anything is sent."""
    wrong: Any
    for wrong in (5, True, None, float("nan"), b"x", ["t"], {"t": 1}):
        with pytest.raises(TypeError):
            await call(wrong)
    for wrong in ("", "a b", "t" * 300):
        with pytest.raises(ConfigError) as caught:
            await call(wrong)
        assert caught.value.key == key


def test_value_that_is_no_topic_is_refused_before_anything_is_sent() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer()
            async with client.pull_consumer(group="c") as pulling:

                async def read(topic: Any) -> None:
                    client.read(topic)

                before = len(cluster.requests)
                for call in (
                    client.begin_offsets, client.end_offsets, pulling.queues, pulling.subscribe,
                    lambda topic: producer.recall(topic, "handle"), read,
                ):  # fmt: skip
                    await refuse_topic(call)
                with pytest.raises(TypeError, match="handle"):
                    await producer.recall("t", 5)  # type: ignore[arg-type]
                assert len(cluster.requests) == before

    run_sim(main)


@pytest.mark.parametrize("kind", ["consumer", "pop_consumer", "pull_consumer"])
def test_counts_and_timeouts_of_another_type_are_refused(kind: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            topic = () if kind == "pull_consumer" else ("t",)
            wrong: Any
            async with getattr(client, kind)(*topic, group="c") as consumer:
                for wrong in ("5", float("nan"), True, [1], b"x"):
                    with pytest.raises(TypeError, match="timeout"):
                        await consumer.getone(timeout=wrong)
                    with pytest.raises(TypeError, match="timeout"):
                        await consumer.getmany(timeout=wrong)
                    with pytest.raises(TypeError, match="timeout"):
                        await client.ready(timeout=wrong)
                for wrong in ("5", 2.0, True, [1], None):
                    with pytest.raises(TypeError, match="max_messages"):
                        await consumer.getmany(wrong)
                    with pytest.raises(TypeError, match="max_messages"):
                        consumer.batches(wrong)
                assert await consumer.getone(timeout=-1) is None

    run_sim(main)


@pytest.mark.parametrize("kind", ["consumer", "pull_consumer"])
def test_seek_takes_whole_numbers_only(kind: str) -> None:
    class Whole:  # as of numpy
        def __index__(self) -> int:
            return 1

    async def main(cluster: Cluster) -> None:
        for body in (b"0", b"1", b"2"):
            cluster.put("t", body)
        async with cluster.client() as client:
            topic = () if kind == "pull_consumer" else ("t",)
            make: Any = getattr(client, kind)
            async with make(*topic, group="c", start="earliest") as consumer:
                if kind == "pull_consumer":
                    await consumer.subscribe("t")
                [queue] = [each for each in consumer.assignment if each.topic == "t"]
                for wrong in (2.0, 2.5, True, "1", None):
                    with pytest.raises(TypeError, match="offset"):
                        await consumer.seek(queue, wrong)
                await consumer.seek(queue, Whole())
                message = await consumer.getone(timeout=5)
                assert message.body == b"1"
                await consumer.ack_all() if kind == "consumer" else await consumer.commit()

    run_sim(main, queues=1)


def test_values_that_are_no_queue_are_refused() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pull_consumer(group="c") as consumer:
                pulling: Any = consumer
                for wrong in (5, "t", ["t"], None):
                    with pytest.raises(TypeError):
                        await pulling.committed(wrong)
                    with pytest.raises(TypeError):
                        pulling.position(wrong)
                for wrongs in (["t"], [5], MessageQueue("t", "broker-a", 0)):
                    with pytest.raises(TypeError, match="not a MessageQueue"):
                        await pulling.assign(wrongs)

    run_sim(main)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("start", None), ("start", "first"), ("start", 2**63), ("start", True), ("until", "first"),
        ("serializer", rocketpy.TypedSerializer), ("serializer", None), ("filter", None),
        ("sql", 5),
    ],
)  # fmt: skip
def test_read_refuses_wrong_options_by_name(option: str, value: Any) -> None:
    def work(client: Any) -> None:
        with pytest.raises(ConfigError) as caught:
            client.read("t", **{option: value})
        assert caught.value.key == option

    in_client(work)


def test_oneway_send_to_a_queue_of_another_topic_is_refused() -> None:
    async def main(cluster: Cluster) -> None:
        other = MessageQueue("u", "broker-a", 0)
        async with cluster.client() as client:
            producer = client.producer()
            with pytest.raises(IllegalMessageError, match="not a queue of topic t"):
                producer.send_oneway("t", b"x", queue=other)
            producer.send_oneway("t", b"x", selector=lambda _: other)
            producer.send_oneway("t", b"x", selector=lambda queues: queues[1 // 0])
            await producer.flush()
            assert producer.lost_oneway == 2
            assert producer.in_flight == 0

    run_sim(main)


@pytest.mark.parametrize("wrong", ["5", float("nan"), True, [1]])
def test_check_after_of_another_type_is_refused(wrong: Any) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(group="p", tx_checker=lambda _: rocketpy.TxState.COMMIT)
            with pytest.raises(TypeError, match="check_after"):
                async with producer.transaction("t", b"x", check_after=wrong):
                    pass

    run_sim(main)


@pytest.mark.parametrize("how", ["commit", "rollback", "unknown"])
def test_transaction_that_has_not_begun_cannot_end(how: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            producer = client.producer(group="p", tx_checker=lambda _: rocketpy.TxState.COMMIT)
            transaction = producer.transaction("t", b"x")

            async def end() -> None:
                ended = getattr(transaction, how)()
                if asyncio.iscoroutine(ended):
                    await ended

            with pytest.raises(ClosedError, match="has not begun"):
                await end()
            async with transaction:
                pass
            assert transaction.state is rocketpy.TxState.COMMIT

    run_sim(main)
