"""Load on the services of a stack: sends without a pause, and a consumer."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import rocketpy
from rocketpy.client.sending.result import SendStatus
from rocketpy.errors import RocketPyError


class Load:
    """Sends and receives without a pause.

    Attributes:
        acknowledged: name of the broker by the body of each send that it answered SEND_OK.
        received: bodies that the consumer got.
    """

    def __init__(self, client: rocketpy.Client) -> None:
        self.acknowledged: dict[bytes, str] = {}
        self.received: set[bytes] = set()
        self._client = client
        self._changed = asyncio.Event()

    async def send(self) -> None:
        producer = self._client.producer(timeout=5)
        number = 0
        while True:
            number += 1
            body = b"%d" % number
            with suppress(RocketPyError):  # unknown, as long as one side is away
                result = await producer.send("compose", body)
                if result.status is SendStatus.SEND_OK:
                    self.acknowledged[body] = result.queue.broker_name
                    self._changed.set()
            await asyncio.sleep(0.01)

    async def receive(self, group: str = "readers") -> None:
        consumer = self._client.consumer("compose", group=group, start="earliest")
        async with consumer:
            async for message in consumer:
                self.received.add(message.body)
                self._changed.set()

    async def all_received(self) -> None:
        """Wait until everything that was acknowledged by now was received."""
        wanted = set(self.acknowledged)
        await self._until(lambda: wanted <= self.received)

    async def more(self, count: int = 50, *, broker: str = "") -> None:
        """Wait until further messages are acknowledged, by one broker or by any."""
        wanted = self._count(broker) + count
        await self._until(lambda: self._count(broker) >= wanted)

    def _count(self, broker: str) -> int:
        return sum(1 for each in self.acknowledged.values() if broker in {"", each})

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(90):
            while not condition():
                self._changed.clear()
                await self._changed.wait()
