"""Our client against the real broker: every send, two members, redelivery, pulling."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

import rocketpy
from rocketpy.client.messages.message import ReceivedMessage

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


async def _until(condition: Callable[[], object], limit_s: float = 120) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.05)


async def test_every_way_to_send_is_received(namesrv: str) -> None:
    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(timeout=30)
        first = await producer.send("modes", b"one", tag="a", keys="k1 k2", headers={"h": "1"})
        await producer.send_batch("modes", [b"b1", b"b2", b"b3"])
        for codec in ("zlib", "lz4", "zstd"):
            await client.producer(compression=codec, timeout=30).send(
                "modes", codec.encode() * 5_000
            )
        producer.send_oneway("modes", b"oneway")
        await asyncio.gather(*[producer.send_nowait("modes", b"n%d" % n) for n in range(200)])
        bodies: Counter[bytes] = Counter()
        async with client.consumer("modes", group="modes", start="earliest") as consumer:
            async for message in consumer:
                bodies[message.body] += 1
                if message.id == first.msg_id:
                    assert (message.tag, message.keys) == ("a", ["k1", "k2"])
                    assert message.headers == {"h": "1"}
                if len(bodies) == 208:
                    break
        assert set(bodies.values()) == {1}
        assert all(codec * 5_000 in bodies for codec in (b"zlib", b"lz4", b"zstd"))


async def test_members_share_and_take_over(namesrv: str) -> None:
    seen: Counter[bytes] = Counter()

    async def handler(message: ReceivedMessage) -> None:
        seen[message.body] += 1

    def share(consumer: rocketpy.Consumer) -> set[rocketpy.MessageQueue]:
        return {queue for queue in consumer.assignment if queue.topic == "shared"}

    async with rocketpy.connect(namesrv) as one, rocketpy.connect(namesrv) as two:
        producer = one.producer(timeout=30)
        for n in range(20):
            await producer.send("shared", b"%d" % n)
        a = one.consumer("shared", group="shared", start="earliest", handler=handler)
        b = two.consumer("shared", group="shared", start="earliest", handler=handler)
        await a.start()
        await _until(lambda: len(seen) == 20)
        await b.start()
        await _until(lambda: len(share(a)) == len(share(b)) == 2 and not share(a) & share(b))
        for n in range(20, 40):
            await producer.send("shared", b"%d" % n)
        await a.close()
        for n in range(40, 60):
            await producer.send("shared", b"%d" % n)
        await _until(lambda: len(seen) == 60)
        assert len(share(b)) == 4
        await b.close()
    assert max(seen.values()) <= 2


async def test_failed_message_comes_again_from_the_broker_or_goes_to_the_dead(
    namesrv: str,
) -> None:
    again: list[ReceivedMessage] = []
    dead: list[ReceivedMessage] = []

    async def handler(message: ReceivedMessage) -> None:
        if message.body == b"dead":
            raise rocketpy.ToDLQ("hopeless")
        if message.retries:
            again.append(message)
        else:
            raise rocketpy.Retry(delay_level=1)

    async def bury(message: ReceivedMessage) -> None:
        dead.append(message)

    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(timeout=30)
        sent = await producer.send("fails", b"again")
        await producer.send("fails", b"dead")
        async with (
            client.consumer("fails", group="fails", start="earliest", handler=handler),
            client.consumer("%DLQ%fails", group="dead", start="earliest", handler=bury),
        ):
            await _until(lambda: again and dead)
    assert (again[0].topic, again[0].retries, again[0].id) == ("fails", 1, sent.msg_id)
    assert again[0].queue.topic == "%RETRY%fails"
    assert dead[0].body == b"dead"


async def test_pulling_seeks_and_commits(namesrv: str) -> None:
    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(timeout=30)
        for n in range(20):
            await producer.send("pulled", b"%d" % n)
        async with client.pull_consumer(group="pulled", auto_commit=False) as consumer:
            queues = await consumer.queues("pulled")
            await consumer.assign(queues)
            await consumer.seek_to_begin()
            got: list[ReceivedMessage] = []
            while len(got) < 20:
                got += await consumer.poll(timeout=10)
            await consumer.commit()
            assert [await consumer.committed(queue) for queue in queues] == [5] * 4


async def test_condition_filters(namesrv: str) -> None:
    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(timeout=30)
        for number in range(20):
            await producer.send("sql", b"%d" % number, headers={"n": str(number)})
        got: list[bytes] = []
        async with client.consumer(
            "sql", group="sql", sql="n BETWEEN 5 AND 7 OR n = 11", start="earliest"
        ) as consumer:
            async for message in consumer:
                got.append(message.body)
                if len(got) == 4:
                    break
        assert sorted(got, key=int) == [b"5", b"6", b"7", b"11"]
