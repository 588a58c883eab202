"""The loads of `rocketpy bench`: several clients that send or receive at once."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import rocketpy
from rocketpy.cli.measure.figures import Figures
from rocketpy.client.client import Client
from rocketpy.client.producer.producer import Producer
from rocketpy.client.sending.result import SendResult
from rocketpy.errors import RocketPyError

__all__ = ["ConsumeLoad", "Mode", "SendLoad", "consume", "send"]

Mode = Literal["async", "sync", "batch"]
GROUP: Final = "ROCKETPY_BENCH"
_MIB: Final = 1 << 20
_PROGRESS_EVERY_S: Final = 0.1


@dataclass(frozen=True)
class SendLoad:
    """Load of senders.

    Attributes:
        topic: destination.
        size: bytes of a body.
        count: total of messages.
        mode: `async` (pipelined sends), `sync` (one send at a time) or `batch` (one batch
            at a time).
        clients: number of clients, each with its connections.
        in_flight: limit of unanswered requests of each client.
        batch: messages of a batch.
    """

    topic: str
    size: int
    count: int
    mode: Mode = "async"
    clients: int = 1
    in_flight: int = 256
    batch: int = 32


@dataclass(frozen=True)
class ConsumeLoad:
    """Load of receivers.

    Attributes:
        topic: source.
        group: consumer group; the load continues from its offsets.
        count: total of messages.
        clients: members of the group.
        quiet_s: the load ends after this time without a message.
    """

    topic: str
    group: str
    count: int
    clients: int = 1
    quiet_s: float = 10.0


class _Quota:
    """Number of messages left to send, for all clients together."""

    def __init__(self, count: int) -> None:
        self._left = count

    def take(self, most: int = 1) -> int:
        taken = min(most, self._left)
        self._left -= taken
        return taken

    def give_up(self) -> None:
        self._left = 0


@contextlib.asynccontextmanager
async def _reporting(figures: Figures, report: Callable[[int], None]) -> AsyncIterator[None]:
    """Report a count continuously within a `with` block."""

    async def tell() -> None:
        while True:
            report(figures.messages)
            await asyncio.sleep(_PROGRESS_EVERY_S)

    task = asyncio.create_task(tell())
    try:
        yield
    finally:
        task.cancel()
        report(figures.messages)


async def send(
    namesrv: str, load: SendLoad, figures: Figures, report: Callable[[int], None]
) -> None:
    """Send until the count is reached, or as many sends failed as may be in flight.

    Args:
        namesrv: name servers of the cluster.
        load: what to send.
        figures: counts the results; latencies are from send to response.
        report: called with the number of stored messages, about ten times a second.
    """
    body = bytes(at % 95 + 32 for at in range(load.size))
    async with contextlib.AsyncExitStack() as clients:
        producers = []
        for _ in range(load.clients):
            client = await clients.enter_async_context(rocketpy.connect(namesrv, group=GROUP))
            producer = _producer(client, load)
            await producer.send(load.topic, body)  # connects, and creates the topic if allowed
            producers.append(producer)
        quota = _Quota(load.count)
        one = _send_async if load.mode == "async" else _send_callers
        figures.begin()
        async with _reporting(figures, report):
            await asyncio.gather(*(one(each, load, body, quota, figures) for each in producers))


def _producer(client: Client, load: SendLoad) -> Producer:
    request_bytes = load.size * (load.batch if load.mode == "batch" else 1)
    return client.producer(
        max_in_flight=load.in_flight * (load.batch if load.mode == "batch" else 1),
        max_in_flight_bytes=max(64 * _MIB, load.in_flight * request_bytes),
        compress_over_bytes=0,
    )


def _failed(load: SendLoad, quota: _Quota, figures: Figures, error: BaseException, n: int) -> None:
    figures.fail(error, n)
    if figures.failed >= load.in_flight * load.clients:
        quota.give_up()


def _us_since(began_ns: int) -> int:
    return (time.perf_counter_ns() - began_ns) // 1000


async def _send_async(
    producer: Producer, load: SendLoad, body: bytes, quota: _Quota, figures: Figures
) -> None:
    def done(began_ns: int, future: asyncio.Future[SendResult]) -> None:
        error = future.exception()
        if error is None:
            figures.add(_us_since(began_ns), load.size)
        else:
            _failed(load, quota, figures, error, 1)

    while quota.take():
        await producer.ready()
        began_ns = time.perf_counter_ns()
        producer.send_nowait(load.topic, body).add_done_callback(partial(done, began_ns))
    await producer.flush()


async def _send_callers(
    producer: Producer, load: SendLoad, body: bytes, quota: _Quota, figures: Figures
) -> None:
    async def caller() -> None:
        while count := quota.take(load.batch if load.mode == "batch" else 1):
            began_ns = time.perf_counter_ns()
            try:
                if load.mode == "batch":
                    await producer.send_batch(load.topic, [body] * count)
                else:
                    await producer.send(load.topic, body)
            except RocketPyError as error:
                _failed(load, quota, figures, error, count)
            else:
                figures.add(_us_since(began_ns), load.size * count, count)

    await asyncio.gather(*(caller() for _ in range(load.in_flight)))


async def consume(
    namesrv: str, load: ConsumeLoad, figures: Figures, report: Callable[[int], None]
) -> None:
    """Receive from the group's offset, until the count is reached or no more messages arrive.

    Args:
        namesrv: name servers of the cluster.
        load: what to receive.
        figures: counts the messages; latencies are from store to receipt, by both clocks.
        report: called with the number of received messages, about ten times a second.
    """
    loop = asyncio.get_running_loop()
    last_s = loop.time()

    async def member(client: Client) -> None:
        nonlocal last_s
        async with client.consumer(load.topic, group=load.group, start="earliest") as consumer:
            async for message in consumer:
                if figures.messages >= load.count:
                    return  # another member received the last one; this one is not acknowledged
                last_s = loop.time()
                if not figures.messages:
                    figures.begin()
                waited_ms = time.time_ns() // 1_000_000 - message.ext.store_timestamp_ms
                figures.add(waited_ms * 1000, len(message.body))
                await message.ack()
                if figures.messages >= load.count:
                    return

    async with contextlib.AsyncExitStack() as clients:
        connected = [
            await clients.enter_async_context(rocketpy.connect(namesrv))
            for _ in range(load.clients)
        ]
        async with _reporting(figures, report):
            members = {asyncio.create_task(member(each)) for each in connected}
            try:
                while figures.messages < load.count:
                    left_s = last_s + load.quiet_s - loop.time()
                    if left_s <= 0:
                        error = TimeoutError(f"no message arrived for {load.quiet_s:g} s")
                        figures.fail(error, load.count - figures.messages)
                        break
                    await asyncio.wait(members, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                    for each in [each for each in members if each.done()]:
                        each.result()
            finally:
                for each in members:
                    each.cancel()
                await asyncio.gather(*members, return_exceptions=True)
