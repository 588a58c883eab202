"""Queues are begun, restarted and given up; pauses and failures follow them."""

import asyncio

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.command import make_request, make_response
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, moved_to, nothing, of_topic, until

PULL, STORE_OFFSET = 11, 15
QUEUE = MessageQueue("t", "broker-a", 0)


def pulled_from(cluster: Cluster) -> list[str]:
    pulls = [r for r in cluster.of_code(PULL) if r.ext_fields["topic"] == "t"]
    return [request.ext_fields["queueOffset"] for request in pulls]


def reset(client: object, offset: int) -> None:
    body = fastjson.dumps({"offsetTable": {QUEUE: offset}})
    header = {"group": "c", "topic": "t", "timestamp": "0", "isForce": "false"}
    remoting = client._running().remoting  # type: ignore[attr-defined]
    remoting.receive(make_request(220, header, body, oneway=True))


def test_paused_consumer_stays_paused_when_its_offsets_are_reset() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                await until(lambda: of_topic(consumer))
                consumer.pause()
                await pass_time(20)
                fill(cluster, 4)
                reset(client, 2)
                await pass_time(20)
                assert "2" not in pulled_from(cluster)
                consumer.resume()
                await pass_time(1)
                assert "2" in pulled_from(cluster)

    run_sim(main, queues=1)


def test_queue_that_comes_while_everything_is_paused_is_paused_too() -> None:
    async def main(cluster: Cluster) -> None:
        got: list[bytes] = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.body)

        async with cluster.client() as client:
            consumer = client.consumer("t", group="c", start="earliest", handler=handler)
            consumer.pause()
            async with consumer:
                assert len(of_topic(consumer)) == 2
                fill(cluster, 4)
                await pass_time(30)
                assert got == []
                consumer.resume()
                await until(lambda: len(got) == 4)

    run_sim(main, queues=2)


def test_offset_outside_the_queue_is_left_although_it_cannot_be_stored() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)
        cluster.offsets["c", "broker-a", "t", 0] = 1
        moved_to(cluster, 2)
        got: list[int] = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.offset)

        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=handler):
                cluster.script[STORE_OFFSET] = [14, 14, 14]
                await until(lambda: len(got) == 2, 20)
        assert got == [2, 3]

    run_sim(main, queues=1)


def test_pull_consumer_shows_its_queues_and_failures() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign([QUEUE])
                await pass_time(1)
                assert consumer.health().queues[QUEUE].cached == 2
                assert consumer.health().ok
                cluster.script[PULL] = [1] * 10
                cluster.put("t", b"wake")
                await pass_time(3)
                assert "scripted" in consumer.health().queues[QUEUE].failure
                assert not consumer.health().ok

    run_sim(main, queues=1)


def test_pull_consumer_continues_at_the_offset_moved_by_the_broker() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 2)
        cluster.offsets["p", "broker-a", "t", 0] = 1
        moved_to(cluster, 2)
        async with cluster.client() as client:
            async with client.pull_consumer(group="p") as consumer:
                await consumer.assign([QUEUE])
                assert await consumer.poll(timeout=1) == []
                assert consumer.position(QUEUE) == 2
                await consumer.commit()
        assert cluster.offsets["p", "broker-a", "t", 0] == 2

    run_sim(main, queues=1)


def test_queues_of_one_pull_consumer_share_a_limit() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 400)
        async with cluster.client() as client:
            async with client.pull_consumer(
                group="p", start="earliest", max_cached_messages_all=100
            ) as consumer:
                await consumer.assign(await consumer.queues("t"))
                await pass_time(30)
                cached = sum(entry.cached for entry in consumer.health().queues.values())
                assert 100 < cached <= 100 + 4 * 32
                got: list[ReceivedMessage] = []
                async with asyncio.timeout(60):
                    while len(got) < 400:
                        got += await consumer.poll(max_messages=50)
                assert len({(m.queue, m.offset) for m in got}) == 400

    run_sim(main, queues=4)


def test_queue_given_up_leaves_room_for_the_others() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 400)
        first, second = (MessageQueue("t", "broker-a", n) for n in range(2))
        async with cluster.client() as client:
            async with client.pull_consumer(
                group="p", start="earliest", max_cached_messages_all=10, pull_batch=32
            ) as consumer:
                await consumer.assign([first])
                await pass_time(5)
                await consumer.assign([first, second])
                await pass_time(5)
                assert consumer.health().queues[second].cached == 0
                await consumer.assign([second])
                await pass_time(5)
                assert consumer.health().queues[second].cached == 32

    run_sim(main, queues=2)


def test_response_for_a_queue_given_up_meanwhile_does_not_count() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.pull_consumer(group="p", start="earliest") as consumer:
                await consumer.assign([QUEUE])
                cluster.script[PULL] = [lambda _, request: make_response(request, 1, "late")]
                await consumer.assign([])
                await pass_time(5)
                assert consumer.health().ok
                assert consumer.assignment == []

    run_sim(main, queues=1)
