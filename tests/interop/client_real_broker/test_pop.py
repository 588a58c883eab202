"""Our pop consumer against the real broker."""

import asyncio
from collections import Counter

import pytest

import rocketpy
from rocketpy import PoppedMessage
from tests.interop.client_real_broker.test_client import _until

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


async def test_members_pop_ack_and_get_again_what_failed(namesrv: str) -> None:
    got: Counter[bytes] = Counter()
    retries: dict[bytes, int] = {}

    async def handle(message: PoppedMessage) -> None:
        got[message.body] += 1
        retries[message.body] = message.retries
        if message.body == b"7" and message.retries == 0:
            raise ValueError("not yet")

    async with rocketpy.connect(namesrv) as one, rocketpy.connect(namesrv) as two:
        producer = one.producer(timeout=30)
        for number in range(20):
            await producer.send("popped", b"%d" % number, tag="even" if number % 2 == 0 else "odd")
        async with (
            one.pop_consumer("popped", group="pop-a", start="earliest", handler=handle) as first,
            two.pop_consumer("popped", group="pop-a", start="earliest", handler=handle) as second,
        ):
            await _until(lambda: len(got) == 20 and got[b"7"] == 2)
            await _until(lambda: first.in_hand == second.in_hand == 0)
    assert {body: count for body, count in got.items() if count > 1} == {b"7": 2}
    assert retries[b"7"] == 1


async def test_iterating_keeping_and_giving_back(namesrv: str) -> None:
    async with rocketpy.connect(namesrv) as client:
        for number in range(3):
            await client.producer(timeout=30).send("kept", b"%d" % number)
        seen: list[tuple[bytes, int]] = []
        options = {"group": "pop-b", "start": "earliest"}
        async with client.pop_consumer("kept", **options) as consumer:  # type: ignore[arg-type]
            async for message in consumer:
                seen.append((message.body, message.retries))
                if len(seen) == 1:
                    await message.change_invisible(30)
                    await message.nack(delay=2)
                elif len(seen) == 4:
                    break
    bodies = [body for body, _ in seen]
    assert set(bodies) == {b"0", b"1", b"2"}
    assert seen[3] == (bodies[0], 1), "given back, it came again"


async def test_in_order(namesrv: str) -> None:
    done: list[bytes] = []

    async def handle(message: PoppedMessage) -> None:
        await asyncio.sleep(0.01)
        done.append(message.body)

    async with rocketpy.connect(namesrv) as client:
        for number in range(10):
            await client.producer(timeout=30).send("in-order", b"%d" % number, order_key="k")
        async with client.pop_consumer(
            "in-order",
            group="pop-c",
            start="earliest",
            handler=handle,
            ordered=True,
            pop_batch=1,
            concurrency=1,
        ):
            await _until(lambda: len(done) == 10)
    assert done == [b"%d" % number for number in range(10)]
