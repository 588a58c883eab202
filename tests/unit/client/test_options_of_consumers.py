"""Every option of a consumer has an effect: seen in what goes over the wire, or when."""

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketpy.client.config import ConsumerConfig, PullConsumerConfig
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.serializers import json as json_serializer
from rocketpy.client.messages.serializers import plain
from rocketpy.errors import ConfigError
from rocketpy.proto.message_queue import MessageQueue
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, of_topic, until
from tests.unit.client.test_config import sent_topics

PULL, STORE, HEARTBEAT, GIVE_BACK = 11, 15, 34, 36

Observer = Callable[[Cluster, dict[str, Any]], Awaitable[Any]]


# ---- consumers


async def consume(cluster: Cluster, options: dict[str, Any], seconds: float = 30) -> None:
    """Run a consumer for a while, with a handler that does nothing unless one is given."""

    async def nothing(message: Any) -> None:
        return None

    given = {"topic": "t", "group": "c", "start": "earliest", "handler": nothing, **options}
    async with cluster.client() as client:
        async with client.consumer(**given):
            await pass_time(seconds)


async def poll(cluster: Cluster, options: dict[str, Any], seconds: float = 30) -> None:
    fill(cluster, 3)
    cluster.script[14] = [22]  # a queue that began here would be read from its start
    given = {"group": "c", "start": "earliest", **options}
    async with cluster.client() as client:
        async with client.pull_consumer(**given) as consumer:
            await consumer.assign([MessageQueue("t", "broker-a", 0)])
            await pass_time(seconds)


def pull_field(name: str, reader: Any = consume) -> Observer:
    async def observe(cluster: Cluster, options: dict[str, Any]) -> Any:
        await reader(cluster, options)
        pulls = [r for r in cluster.of_code(PULL) if not r.ext_fields["topic"].startswith("%")]
        return pulls[0].ext_fields[name]

    return observe


def heartbeat_field(*path: Any) -> Observer:
    async def observe(cluster: Cluster, options: dict[str, Any]) -> Any:
        await consume(cluster, options)
        found = json.loads(cluster.of_code(HEARTBEAT)[0].body)["consumerDataSet"][0]
        for step in path:
            found = found[step]
        return found

    return observe


def cached(reader: str) -> Observer:
    """Return the most messages cached while none is finished, with bodies of 100 bytes."""

    async def observe(cluster: Cluster, options: dict[str, Any]) -> int:
        for _ in range(300):
            cluster.put("t", b"x" * 100)
        async with cluster.client() as client:
            if reader == "push":
                consumer = client.consumer(
                    "t", group="c", start="earliest", handler=forever, stop_timeout=0, **options
                )
                async with consumer:
                    await pass_time(30)
                    return consumer.health().queues[MessageQueue("t", "broker-a", 0)].cached
            async with client.pull_consumer(group="c", start="earliest", **options) as puller:
                await puller.assign([MessageQueue("t", "broker-a", 0)])
                await pass_time(30)
                return puller.health().queues[MessageQueue("t", "broker-a", 0)].cached

    return observe


async def forever(message: Any) -> None:
    await asyncio.Event().wait()


async def span_reached(cluster: Cluster, options: dict[str, Any]) -> int:
    """Return the offset of the last pull while message 0, and all from 33 on, are unfinished."""
    fill(cluster, 300)

    async def handler(message: ReceivedMessage) -> None:
        if message.offset == 0 or message.offset > 32:
            await asyncio.Event().wait()

    await consume(cluster, {"handler": handler, "stop_timeout": 0, **options})
    pulls = [r.ext_fields for r in cluster.of_code(PULL) if r.ext_fields["topic"] == "t"]
    return max(int(fields["queueOffset"]) for fields in pulls)


async def pause_between_full_pulls(cluster: Cluster, options: dict[str, Any]) -> int:
    fill(cluster, 300)
    await consume(cluster, options)
    return cluster.pause_ms(PULL, topic="t")


def pull_pause(reader: Any, step: Any) -> Observer:
    async def observe(cluster: Cluster, options: dict[str, Any]) -> int:
        cluster.script[PULL] = [step] * 20
        await reader(cluster, {"pull_wait": 1, **options}, 100)
        return cluster.pause_ms(PULL, topic="t")

    return observe


async def handlers_at_once(cluster: Cluster, options: dict[str, Any]) -> int:
    fill(cluster, 40)
    now = most = 0

    async def handler(message: Any) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await pass_time(1)
        now -= 1

    await consume(cluster, {"handler": handler, **options}, 60)
    return most


async def largest_batch(cluster: Cluster, options: dict[str, Any]) -> int:
    fill(cluster, 40)
    sizes = []

    async def handler(messages: Any) -> None:
        sizes.append(len(messages) if isinstance(messages, list) else 1)

    await consume(cluster, {"handler": handler, **options})
    return max(sizes)


async def retry_limit_sent(cluster: Cluster, options: dict[str, Any]) -> str:
    fill(cluster, 1)
    await consume(cluster, {"handler": failing, **options})
    return cluster.sent_back[0]["maxReconsumeTimes"]


async def failing(message: Any) -> None:
    raise ValueError("no")


async def local_pause(cluster: Cluster, options: dict[str, Any]) -> int:
    cluster.supports_send_back = False
    fill(cluster, 1)
    times: list[int] = []

    async def handler(message: Any) -> None:
        times.append(cluster.clock.monotonic_ms())
        raise ValueError("no")

    await consume(cluster, {"handler": handler, **options}, 60)
    return (times[1] - times[0]) // 100 * 100


async def ordered_pause(cluster: Cluster, options: dict[str, Any]) -> int:
    return await local_pause(cluster, {"ordered": True, **options})


async def given_back_after(cluster: Cluster, options: dict[str, Any]) -> int:
    fill(cluster, 1)
    await consume(cluster, {"handler": forever, "stop_timeout": 0, **options}, 100)
    return next(at for at, request in cluster.times if request.code == GIVE_BACK) // 10_000


async def stop_took(cluster: Cluster, options: dict[str, Any]) -> int:
    fill(cluster, 1)
    async with cluster.client() as client:
        consumer = client.consumer("t", group="c", start="earliest", handler=forever, **options)
        await consumer.start()
        await pass_time(5)
        began = cluster.clock.monotonic_ms()
        await consumer.close()
        return (cluster.clock.monotonic_ms() - began) // 1000


async def decoded(cluster: Cluster, options: dict[str, Any]) -> Any:
    cluster.put("t", b"[1]")
    got = []

    async def handler(body: Any, message: Any) -> None:
        got.append(body)

    await consume(cluster, {"handler": handler, **options})
    return got[0]


async def poll_decoded(cluster: Cluster, options: dict[str, Any]) -> Any:
    cluster.put("t", b"[1]")
    async with cluster.client() as client:
        async with client.pull_consumer(group="c", start="earliest", **options) as consumer:
            await consumer.assign([MessageQueue("t", "broker-a", 0)])
            return (await consumer.poll())[0].decode()


async def handled(cluster: Cluster, options: dict[str, Any]) -> int:
    """Return the number of messages the given handler (or none) took."""
    fill(cluster, 3)
    if options["handler"] is None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", start="earliest", **options) as consumer:
                async for _ in consumer:
                    return 1
    await consume(cluster, options)
    return len(Counting.got)


class Counting:
    got: list[Any] = []  # noqa: RUF012 - emptied by the test

    @staticmethod
    async def handler(message: Any) -> None:
        Counting.got.append(message)


def shares(queues: Any, ids: Any, of_me: str) -> list[MessageQueue]:
    return [] if of_me != ids[0] else list(queues)


def queues_of_second(kind: str) -> Observer:
    """Return the queues of the second of two members."""

    async def observe(cluster: Cluster, options: dict[str, Any]) -> Any:
        async with (
            cluster.client(instance_name="a") as one,
            cluster.client(instance_name="b") as two,
        ):
            members: list[Any] = []
            for client in (one, two):
                if kind == "push":
                    members.append(client.consumer("t", group="c", handler=failing, **options))
                    await members[-1].start()
                else:
                    members.append(client.pull_consumer(group="c", **options))
                    await members[-1].start()
                    await members[-1].subscribe("t")
            await pass_time(40)
            return [queue.queue_id for queue in of_topic(members[1])]

    return observe


def rebalanced_after(kind: str) -> Observer:
    """Return the time at which an added queue is found; routes are refreshed every second."""

    async def observe(cluster: Cluster, options: dict[str, Any]) -> int:
        async with cluster.client(route_refresh_interval=1000) as client:
            consumer: Any
            if kind == "push":
                consumer = client.consumer("t", group="c", handler=failing, **options)
                await consumer.start()
            else:
                consumer = client.pull_consumer(group="c", **options)
                await consumer.start()
                await consumer.subscribe("t")
            await pass_time(10)
            before = len([1 for _, r in cluster.times if r.code == 38])
            await pass_time(300)
            after = len([1 for _, r in cluster.times if r.code == 38])
            topics = 2 if kind == "push" else 1
            return round(300 / ((after - before) / topics))

    return observe


async def takeover(cluster: Cluster, options: dict[str, Any]) -> int:
    """Return the time between the second member's list of members and its first pull, ms."""
    async with cluster.client() as one, cluster.client() as two:
        async with one.consumer("t", group="c", handler=failing):
            await pass_time(5)
            second = two.consumer("t", group="c", handler=failing, start_timeout=0, **options)
            async with second:
                began = cluster.clock.monotonic_ms()
                await until(lambda: len(of_topic(second)) >= 2)
                return (cluster.clock.monotonic_ms() - began) // 1000


def start_took(kind: str) -> Observer:
    """Return the time a start waits for brokers that do not list the members, seconds."""

    async def observe(cluster: Cluster, options: dict[str, Any]) -> int:
        cluster.script[38] = [1] * 50
        async with cluster.client() as client:
            began = cluster.clock.monotonic_ms()
            if kind == "push":
                await client.consumer("t", group="c", **options).start()
            else:
                puller = client.pull_consumer(group="c", **options)
                await puller.start()
                await puller.subscribe("t")
            return (cluster.clock.monotonic_ms() - began) // 1000

    return observe


async def group_stored(cluster: Cluster, options: dict[str, Any]) -> Any:
    fill(cluster, 1)
    await consume(cluster, options)
    return next(iter(cluster.offsets))[0]


async def files_written(cluster: Cluster, options: dict[str, Any]) -> bool:
    directory = options.pop("offset_dir") / "x"
    fill(cluster, 1)
    async with cluster.client() as client:
        consumer = client.consumer(
            "t", group="c", broadcast=True, offset_dir=str(directory), handler=failing,
            start="earliest",
        )  # fmt: skip
        async with consumer:
            await until(lambda: any(directory.rglob("offsets.json")))
    return True


async def polls_committed(cluster: Cluster, options: dict[str, Any]) -> list[int]:
    """Return the times at which polls stored offsets, seconds."""
    fill(cluster, 60)
    async with cluster.client() as client:
        async with client.pull_consumer(group="c", start="earliest", **options) as consumer:
            await consumer.assign([MessageQueue("t", "broker-a", 0)])
            for _ in range(20):
                await consumer.poll(max_messages=1)
                await pass_time(1)
            return [at // 1000 for at, request in cluster.times if request.code == STORE]


async def traced_to(cluster: Cluster, options: dict[str, Any]) -> list[str]:
    fill(cluster, 1)
    async with cluster.client() as client:
        options = {"group": "c", "start": "earliest", **options}
        async with client.consumer("t", **options) as consumer:
            async for _ in consumer:
                break
    return sent_topics(cluster)


async def traced_elsewhere(cluster: Cluster, options: dict[str, Any]) -> list[str]:
    return await traced_to(cluster, {"trace": True, **options})


async def committed_by_asking_again(cluster: Cluster, options: dict[str, Any]) -> int:
    """Return the offset after three of four messages were followed by another request."""
    fill(cluster, 4)
    async with cluster.client() as client:
        async with client.consumer("t", group="c", start="earliest", **options) as consumer:
            for _ in range(4):
                await consumer.getone(timeout=5)
    return cluster.offsets["c", "broker-a", "t", 0]


# option: two values, how they are observed, and what is seen
CONSUMER: dict[str, tuple[Any, Any, Observer, Any, Any]] = {
    "topic": ("t", ["u"], pull_field("topic"), "t", "u"),
    "group": ("c", "d", pull_field("consumerGroup"), "c", "d"),
    "filter": ("*", "a", heartbeat_field("subscriptionDataSet", 0, "subString"), "*", "a"),
    "sql": ("", "a > 5", heartbeat_field("subscriptionDataSet", 0, "expressionType"),
            "TAG", "SQL92"),
    "trace": (False, True, traced_to, [], ["RMQ_SYS_TRACE_TOPIC"]),
    "trace_topic": ("seen", "heard", traced_elsewhere, ["seen"], ["heard"]),
    "handler": (Counting.handler, None, handled, 3, 1),
    "start": ("earliest", 5, heartbeat_field("consumeFromWhere"),
              "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"),
    "auto_ack": (True, False, committed_by_asking_again, 3, 0),
    "concurrency": (3, 7, handlers_at_once, 3, 7),
    "batch": (1, 8, largest_batch, 1, 8),
    "ordered": (False, True, handlers_at_once, 20, 1),
    "order_by_key": (False, lambda message: message.offset % 3, handlers_at_once, 20, 3),
    "ordered_retry_pause": (0.5, 7, ordered_pause, 500, 7_000),
    "max_retries": (-1, 3, retry_limit_sent, "16", "3"),
    "broadcast": (False, True, heartbeat_field("messageModel"), "CLUSTERING", "BROADCASTING"),
    "allocation": ("avg", "circle", queues_of_second("push"), [2, 3], [1, 3]),
    "serializer": (plain, json_serializer, decoded, b"[1]", [1]),
    "pull_batch": (5, 7, pull_field("maxMsgNums"), "5", "7"),
    "pull_batch_bytes": (5000, 7000, pull_field("maxMsgBytes"), "5000", "7000"),
    "pull_interval": (0, 0.4, pause_between_full_pulls, 0, 400),
    "max_cached_messages": (50, 150, cached("push"), 64, 160),
    "max_cached_bytes": (300 * 50, 300 * 150, cached("push"), 64, 160),
    "max_span": (50, 150, span_reached, 32, 128),
    "pull_wait": (5, 7, pull_field("suspendTimeoutMillis"), "5000", "7000"),
    "pull_timeout": (4, 6, pull_pause(consume, "lost"), 5000, 7000),
    "pull_error_pause": (1, 3, pull_pause(consume, 1), 1000, 3000),
    "rebalance_interval": (10, 20, rebalanced_after("push"), 10, 20),
    "takeover_pause": (0, 7, takeover, 0, 7),
    "start_timeout": (0, 7, start_took("push"), 0, 7),
    "stop_timeout": (1, 4, stop_took, 1, 4),
    "consume_timeout": (20, 50, given_back_after, 2, 5),
    "local_retry_pause": (2, 9, local_pause, 2_000, 9_000),
}  # fmt: skip
PULL_CONSUMER: dict[str, tuple[Any, Any, Observer, Any, Any]] = {
    "group": ("c", "d", pull_field("consumerGroup", poll), "c", "d"),
    "auto_commit": (True, False, polls_committed, [5, 10, 15], []),
    "auto_commit_interval": (5, 9, polls_committed, [5, 10, 15], [9, 18]),
    "start": ("earliest", "latest", pull_field("queueOffset", poll), "0", "3"),
    "allocation": ("avg", "circle", queues_of_second("pull"), [2, 3], [1, 3]),
    "serializer": (plain, json_serializer, poll_decoded, b"[1]", [1]),
    "pull_batch": (5, 7, pull_field("maxMsgNums", poll), "5", "7"),
    "max_cached_messages": (50, 150, cached("pull"), 64, 160),
    "max_cached_bytes": (300 * 50, 300 * 150, cached("pull"), 64, 160),
    "max_cached_messages_all": (50, 150, cached("pull"), 64, 160),
    "pull_wait": (5, 7, pull_field("suspendTimeoutMillis", poll), "5000", "7000"),
    "pull_timeout": (4, 6, pull_pause(poll, "lost"), 5000, 7000),
    "pull_error_pause": (1, 3, pull_pause(poll, 1), 1000, 3000),
    "rebalance_interval": (10, 20, rebalanced_after("pull"), 10, 20),
    "start_timeout": (0, 7, start_took("pull"), 0, 7),
}


@pytest.mark.parametrize("option", sorted(CONSUMER))
def test_option_of_a_consumer(option: str) -> None:
    one, two, observe, seen_one, seen_two = CONSUMER[option]
    for value, seen in ((one, seen_one), (two, seen_two)):
        Counting.got.clear()
        queues = 4 if option in {"allocation", "takeover_pause"} else 1

        async def main(cluster: Cluster, value: Any = value) -> Any:
            return await observe(cluster, {option: value})

        assert run_sim(main, queues=queues, topics=("t", "u")) == seen


@pytest.mark.parametrize("option", sorted(PULL_CONSUMER))
def test_option_of_a_pull_consumer(option: str) -> None:
    one, two, observe, seen_one, seen_two = PULL_CONSUMER[option]
    for value, seen in ((one, seen_one), (two, seen_two)):
        queues = 4 if option in {"allocation", "takeover_pause"} else 1

        async def main(cluster: Cluster, value: Any = value) -> Any:
            return await observe(cluster, {option: value})

        assert run_sim(main, queues=queues) == seen


def test_offset_dir_is_where_a_broadcasting_member_writes(tmp_path: Any) -> None:
    async def main(cluster: Cluster) -> bool:
        return bool(await files_written(cluster, {"offset_dir": tmp_path}))

    assert run_sim(main)


def test_no_option_of_consumers_is_left_out() -> None:
    alone = {  # have own tests
        "offset_dir", "on_assigned", "on_revoked", "on_error", "middlewares", "retry_backoff",
    }  # fmt: skip
    assert CONSUMER.keys() | alone == {each.name for each in dataclasses.fields(ConsumerConfig)}
    assert PULL_CONSUMER.keys() == {e.name for e in dataclasses.fields(PullConsumerConfig)} - alone


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0}, {"ordered": True}, {"order_by_key": True},
        {"ordered_retry_pause": 0.009},
        {"ordered": True, "order_by_key": True, "handler": print}, {"batch": 0},
        {"batch": "8"}, {"pull_batch": 0}, {"max_span": 0},
        {"allocation": "average"}, {"sql": "a > 5", "filter": "x"}, {"max_retries": -2},
        {"pull_wait": 30}, {"pull_timeout": 15}, {"start": "newest"},
        {"filter": " || "}, {"group": "no blank"},
        {"retry_backoff": 5}, {"retry_backoff": lambda: 1}, {"retry_backoff": asyncio.sleep},
    ],
)  # fmt: skip
def test_value_that_cannot_be_used_is_refused_and_named(options: dict[str, Any]) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(ConfigError) as caught:
                client.consumer("t", **options)
            assert caught.value.key in {*options, "pull_timeout"}

    run_sim(main)


@pytest.mark.parametrize("topic", ["", "no blank", "x" * 300])
@pytest.mark.parametrize("kind", ["push", "pull"])
def test_topic_that_cannot_be_is_refused(kind: str, topic: str) -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            if kind == "push":
                with pytest.raises(ConfigError, match="topic"):
                    client.consumer(topic)
                return
            async with client.pull_consumer() as consumer:
                with pytest.raises(ConfigError, match="topic"):
                    await consumer.subscribe(topic)

    run_sim(main)


def test_filter_that_cannot_be_read_is_refused_by_both_kinds() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            with pytest.raises(ConfigError, match="filter"):
                client.consumer("t", filter=" || ")
            async with client.pull_consumer() as consumer:
                with pytest.raises(ConfigError, match="filter"):
                    await consumer.subscribe("t", " || ")

    run_sim(main)
