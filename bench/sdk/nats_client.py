"""The rows of nats-py with JetStream: stored and acknowledged by the server, each message acked."""

import asyncio
from collections.abc import Awaitable, Callable

import nats
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StorageType

from bench.sdk.measured import Job
from bench.sdk.rows import BATCH, BODY, IN_FLIGHT, SEND_BATCH

SENT, READ = "sdk.sent", "sdk.read"


async def _streams(js: JetStreamContext) -> None:
    for name, subject in (("sent", SENT), ("read", READ)):
        await js.add_stream(name=name, subjects=[subject], storage=StorageType.FILE)


async def awaited(job: Job) -> None:
    """Publish one message after the other."""
    async with await nats.connect(job.address) as connection:
        js = connection.jetstream()
        await _streams(js)
        for _ in range(job.messages // 10):
            await js.publish(SENT, BODY)
        job.watch.start()
        for _ in range(job.messages):
            await js.publish(SENT, BODY)
        job.watch.stop()


async def _pipelined(js: JetStreamContext, subject: str, count: int) -> None:
    futures = []
    for _ in range(count):
        futures.append(await js.publish_async(subject, BODY))
        if len(futures) == IN_FLIGHT:
            await asyncio.gather(*futures)
            futures.clear()
    await asyncio.gather(*futures)


async def in_flight(job: Job) -> None:
    """Each message its own request."""
    async with await nats.connect(job.address) as connection:
        js = connection.jetstream(publish_async_max_pending=IN_FLIGHT)
        await _streams(js)
        await _pipelined(js, SENT, job.messages // 10)
        job.watch.start()
        await _pipelined(js, SENT, job.messages)
        job.watch.stop()


async def send_batch(job: Job) -> None:
    """NATS has no batches: a thousand publishes without acknowledgement, and one flush."""
    async with await nats.connect(job.address) as connection:
        await _streams(connection.jetstream())
        job.watch.start()
        for _ in range(job.messages // SEND_BATCH):
            for _ in range(SEND_BATCH):
                await connection.publish(SENT, BODY)
            await connection.flush()
        job.watch.stop()


async def fill(job: Job) -> None:
    """Fill the stream for the readers."""
    async with await nats.connect(job.address) as connection:
        js = connection.jetstream()
        await _streams(js)
        await _pipelined(js, READ, job.messages)


async def iterate(job: Job) -> None:
    """Read one by one, and acknowledge each."""
    config = ConsumerConfig(max_ack_pending=10_000)
    async with await nats.connect(job.address) as connection:
        subscription = await connection.jetstream().subscribe(
            READ, durable=job.name, manual_ack=True, config=config
        )
        count, total = 0, 0
        async for message in subscription.messages:
            if not count:
                job.watch.start()
            count += 1
            total += len(message.data)
            await message.ack()
            if count == job.messages:
                break
        job.watch.stop()
        assert total == job.messages * len(BODY)


async def batches(job: Job) -> None:
    """Fetch lists of messages, and acknowledge the last of each: the policy `all`."""
    config = ConsumerConfig(ack_policy=AckPolicy.ALL, max_ack_pending=10_000)
    async with await nats.connect(job.address) as connection:
        js = connection.jetstream()
        subscription = await js.pull_subscribe(READ, durable=job.name, config=config)
        count = 0
        while count < job.messages:
            found = await subscription.fetch(BATCH, timeout=5)
            if not count:
                job.watch.start()
            count += len(found)
            assert all(message.data for message in found)
            await found[-1].ack()
        job.watch.stop()


def rows() -> dict[str, Callable[[Job], Awaitable[None]]]:
    """The rows by their keys."""
    made = (awaited, in_flight, send_batch, fill, iterate, batches)
    return {each.__name__: each for each in made}
