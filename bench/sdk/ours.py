"""Rows of RocketPy's client."""

import asyncio
from collections.abc import Awaitable, Callable

import rocketpy
from bench.sdk.measured import Job
from bench.sdk.rows import BATCH, BODY, IN_FLIGHT, SEND_BATCH

SENT, READ = "sdk-sent", "sdk-read"


async def _pipelined(producer: rocketpy.Producer, count: int) -> None:
    """Send, always `IN_FLIGHT` at once, each of them watched for an error."""
    failures: list[BaseException] = []

    def ended(future: asyncio.Future[rocketpy.SendResult]) -> None:
        error = future.exception()
        if error is not None:
            failures.append(error)

    for _ in range(count):
        await producer.ready()
        producer.send_nowait(SENT, BODY).add_done_callback(ended)
    await producer.flush()
    if failures:
        raise failures[0]


async def awaited(job: Job) -> None:
    """Send one message after the other."""
    async with rocketpy.connect(job.address, group=job.name) as client:
        producer = client.producer()
        for _ in range(job.messages // 10):
            await producer.send(SENT, BODY)
        job.watch.start()
        for _ in range(job.messages):
            await producer.send(SENT, BODY)
        job.watch.stop()


async def _measured_pipeline(job: Job, producer: rocketpy.Producer) -> None:
    await _pipelined(producer, job.messages // 10)
    job.watch.start()
    await _pipelined(producer, job.messages)
    job.watch.stop()


async def in_flight(job: Job) -> None:
    """Each message its own request."""
    async with rocketpy.connect(job.address, group=job.name) as client:
        await _measured_pipeline(job, client.producer(max_in_flight=IN_FLIGHT))


async def linger(job: Job) -> None:
    """Send with a linger of 5 ms."""
    async with rocketpy.connect(job.address, group=job.name) as client:
        await _measured_pipeline(
            job, client.producer(max_in_flight=IN_FLIGHT, linger=0.005, linger_messages=128)
        )


async def send_batch(job: Job) -> None:
    """A thousand bodies a call."""
    async with rocketpy.connect(job.address, group=job.name) as client:
        producer = client.producer()
        bodies = [BODY] * SEND_BATCH
        await producer.send_batch(SENT, bodies)
        job.watch.start()
        for _ in range(job.messages // SEND_BATCH):
            await producer.send_batch(SENT, bodies)
        job.watch.stop()


async def fill(job: Job) -> None:
    """Fill the topic for the readers."""
    async with rocketpy.connect(job.address, group=job.name) as client:
        producer = client.producer()
        for _ in range(job.messages // 100):
            await producer.send_batch(READ, [BODY] * 100)


async def iterate(job: Job) -> None:
    """Read one by one."""
    async with (
        rocketpy.connect(job.address) as client,
        client.consumer(READ, group=job.name, start="earliest") as consumer,
    ):
        count, total = 0, 0
        async for message in consumer:
            if not count:
                job.watch.start()
            count += 1
            total += len(message.body)
            if count == job.messages:
                break
        job.watch.stop()
        assert total == job.messages * len(BODY)


async def batches(job: Job) -> None:
    """Read lists of messages."""
    async with rocketpy.connect(job.address) as client:
        consumer = client.consumer(
            READ, group=job.name, start="earliest", pull_batch=BATCH, max_cached_messages=10 * BATCH
        )
        async with consumer:
            count = 0
            async for found in consumer.batches(BATCH):
                if not count:
                    job.watch.start()
                count += len(found)
                assert all(message.body for message in found)
                if count >= job.messages:
                    break
            job.watch.stop()


async def plain_handler(job: Job) -> None:
    """Receive with a handler on threads."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    count = 0

    def handle(message: rocketpy.ReceivedMessage) -> None:
        nonlocal count
        if not count:
            job.watch.start()
        assert message.body
        count += 1
        if count == job.messages:
            job.watch.stop()
            loop.call_soon_threadsafe(done.set)

    async with (
        rocketpy.connect(job.address) as client,
        client.consumer(READ, group=job.name, start="earliest", handler=handle),
    ):
        await done.wait()


def rows() -> dict[str, Callable[[Job], Awaitable[None]]]:
    """The rows by their keys."""
    all_of_them = (awaited, in_flight, linger, send_batch, fill, iterate, batches, plain_handler)
    return {each.__name__: each for each in all_of_them}
