"""Members share queues, find new ones, wait for brokers, and response what brokers ask."""

import json
from collections import Counter

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.command import make_request
from tests.unit.client.sim import Cluster, pass_time, run_sim
from tests.unit.client.steps import fill, nothing, of_topic, until


def test_two_members_share_and_the_rest_takes_over() -> None:
    async def main(cluster: Cluster) -> None:
        seen: Counter[bytes] = Counter()

        async def handler(message: ReceivedMessage) -> None:
            seen[message.body] += 1

        async with cluster.client() as one, cluster.client() as two:
            a = one.consumer("t", group="c", start="earliest", handler=handler)
            b = two.consumer("t", group="c", start="earliest", handler=handler)
            await a.start()
            fill(cluster, 10)
            await until(lambda: len(seen) == 10)
            started_ms = cluster.clock.monotonic_ms()
            await b.start()
            await until(lambda: len(of_topic(b)) == 2 and len(of_topic(a)) == 2)
            assert cluster.clock.monotonic_ms() - started_ms < 2_000
            assert not set(of_topic(a)) & set(of_topic(b))
            fill(cluster, 10)
            await pass_time(1)
            await a.close()
            await until(lambda: len(of_topic(b)) == 4, 5)
            for n in range(100, 110):
                cluster.put("t", b"%d" % n, queue_id=n % 4)
            await until(lambda: len(seen) == 20)
            await b.close()
        assert all(count <= 2 for count in seen.values())
        assert seen[b"105"] == 1

    run_sim(main)


def test_queues_that_are_added_later_are_found() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=nothing) as consumer:
                await until(lambda: len(of_topic(consumer)) == 2)
                cluster.create_topic("t", 6)
                await until(lambda: len(of_topic(consumer)) == 6, 60)

    run_sim(main, queues=2)


def test_topic_that_appears_later_is_found() -> None:
    async def main(cluster: Cluster) -> None:
        async with cluster.client() as client:
            async with client.consumer("later", group="c", handler=nothing) as consumer:
                await pass_time(3)
                assert not [q for q in consumer.assignment if q.topic == "later"]
                cluster.create_topic("later")
                await until(lambda: any(q.topic == "later" for q in consumer.assignment), 25)

    run_sim(main)


def test_restarting_broker_is_waited_for_and_shown_in_health() -> None:
    async def main(cluster: Cluster) -> None:
        got = []

        async def handler(message: ReceivedMessage) -> None:
            got.append(message.body)

        async with cluster.client() as client:
            async with client.consumer("t", group="c", handler=handler, start="earliest") as c:
                await until(lambda: len(of_topic(c)) == 1)
                cluster.world.brokers[0].kill()
                await pass_time(40)
                health = c.health()
                assert not health.ok
                assert "Connect" in health.queues[MessageQueue("t", "broker-a", 0)].failure
                assert not client.health().ok
                await cluster.world.brokers[0].start()
                cluster.put("t", b"after")
                await until(lambda: b"after" in got, 40)
                await pass_time(35)
                assert c.health().ok
                assert client.health().ok

    run_sim(main, queues=1)


def test_requests_of_brokers_are_answered() -> None:
    async def main(cluster: Cluster) -> None:
        fill(cluster, 4)

        async def handler(message: ReceivedMessage) -> None:
            if message.body == b"bad":
                raise ValueError("no")

        async with cluster.client() as client:
            (remoting,) = cluster.remotings
            async with client.consumer("t", group="c", start="earliest", handler=handler) as c:
                await until(lambda: c.health().queues and c.health().lag == 0 and of_topic(c))
                remoting.receive(make_request(221, {"group": "c", "topic": "t"}))
                remoting.receive(make_request(307, {"consumerGroup": "c", "clientId": "i"}))
                for body in (b"fine", b"bad"):
                    offset = cluster.put("x", body)
                    record = cluster.record("x", 0, offset)
                    remoting.receive(make_request(309, {"consumerGroup": "c"}, record))
                remoting.receive(make_request(307, {"consumerGroup": "nobody", "clientId": "i"}))
                await pass_time(1)
                status, info, nobody, good, bad = remoting.responses
                queue = MessageQueue("t", "broker-a", 0)
                assert fastjson.loads(status.body)["messageQueueTable"] == {queue: 4}
                report = fastjson.loads(info.body)
                assert report["mqTable"][queue]["commitOffset"] == 4
                assert report["statusTable"]["t"]["consumeOKTPS"] > 0
                assert json.loads(good.body)["consumeResult"] == "CR_SUCCESS"
                assert json.loads(bad.body)["consumeResult"] == "CR_THROW_EXCEPTION"
                assert nobody.code == 1
                body = fastjson.dumps({"offsetTable": {queue: 1}})
                reset = {"group": "c", "topic": "t", "timestamp": "0", "isForce": "false"}
                remoting.receive(make_request(220, reset, body, oneway=True))
                await pass_time(1)
                pulls = [r for r in cluster.of_code(11) if r.ext_fields["topic"] == "t"]
                assert "1" in {r.ext_fields["queueOffset"] for r in pulls}

    run_sim(main, queues=1)
