"""Our client's delayed and timed messages, namespaces and keys in order at the real broker."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

import rocketpy
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.errors import MessageIllegalError

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]


class Inbox:
    """Messages that a consumer received."""

    def __init__(self, count: int) -> None:
        self.messages: list[ReceivedMessage] = []
        self._count = count
        self._is_full = asyncio.Event()

    async def take(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        if len(self.messages) == self._count:
            self._is_full.set()

    async def full(self) -> list[ReceivedMessage]:
        async with asyncio.timeout(120):
            await self._is_full.wait()
        return self.messages


async def test_levels_delays_and_moments(namesrv: str) -> None:
    inbox = Inbox(4)
    async with rocketpy.connect(namesrv) as client:
        producer = client.producer(timeout=30)
        await producer.send("later", b"now")
        async with client.consumer("later", group="later", start="earliest", handler=inbox.take):
            at = datetime.now(UTC) + timedelta(seconds=3)
            await producer.send("later", b"moment", deliver_at=at)
            await producer.send("later", b"delay", delay=1.5)
            await producer.send("later", b"level", delay_level=1, tag="A")
            found = {each.body: each for each in await inbox.full()}
        with pytest.raises(MessageIllegalError, match="timer message illegal"):
            await producer.send("later", b"never", delay=timedelta(days=4))
    waited = {
        body: each.ext.store_timestamp_ms - each.ext.born_timestamp_ms
        for body, each in found.items()
    }
    assert waited[b"level"] >= 1_000
    assert waited[b"delay"] >= 1_500
    assert found[b"moment"].ext.store_timestamp_ms >= int(at.timestamp() * 1_000)
    assert (found[b"level"].tag, found[b"level"].topic) == ("A", "later")


async def test_namespace_and_keys_in_order(namesrv: str) -> None:
    inside, outside = Inbox(20), Inbox(1)
    async with (
        rocketpy.connect(namesrv, namespace="NS") as client,
        rocketpy.connect(namesrv) as other,
    ):
        producer = client.producer(timeout=30)
        for number in range(20):
            await producer.send("keyed", b"%d" % number, order_key=f"k{number % 3}")
        await other.producer(timeout=30).send("keyed", b"outside")
        async with (
            client.consumer(
                "keyed", group="keyed", start="earliest", handler=inside.take, ordered=True
            ),
            other.consumer("keyed", group="keyed", start="earliest", handler=outside.take),
        ):
            got = await inside.full()
            assert [each.body for each in await outside.full()] == [b"outside"]
    assert {each.topic for each in got} == {"keyed"}
    for key in range(3):
        own = [int(each.body) for each in got if int(each.body) % 3 == key]
        assert own == list(range(key, 20, 3))
