"""The rows of aiokafka: acknowledged by the broker, offsets committed."""

import asyncio
from collections.abc import Awaitable, Callable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.sdk.measured import Job
from bench.sdk.rows import BATCH, BODY, IN_FLIGHT, SEND_BATCH

SENT, READ = "sdk-sent", "sdk-read"


async def awaited(job: Job) -> None:
    """Send one message after the other."""
    async with AIOKafkaProducer(bootstrap_servers=job.address, acks=1) as producer:
        for _ in range(job.messages // 10):
            await producer.send_and_wait(SENT, BODY)
        job.watch.start()
        for _ in range(job.messages):
            await producer.send_and_wait(SENT, BODY)
        job.watch.stop()


async def _pipelined(producer: AIOKafkaProducer, topic: str, count: int) -> None:
    slots = asyncio.Semaphore(IN_FLIGHT)
    failures: list[BaseException] = []

    def ended(future: asyncio.Future[object]) -> None:
        slots.release()
        error = future.exception()
        if error is not None:
            failures.append(error)

    for _ in range(count):
        await slots.acquire()
        (await producer.send(topic, BODY)).add_done_callback(ended)
    await producer.flush()
    if failures:
        raise failures[0]


async def linger(job: Job) -> None:
    """Pipelined sends; aiokafka batches by its defaults."""
    async with AIOKafkaProducer(bootstrap_servers=job.address, acks=1, linger_ms=5) as producer:
        await _pipelined(producer, SENT, job.messages // 10)
        job.watch.start()
        await _pipelined(producer, SENT, job.messages)
        job.watch.stop()


async def send_batch(job: Job) -> None:
    """A batch made by hand, as large as ours."""
    size = 2 * SEND_BATCH * len(BODY)
    async with AIOKafkaProducer(
        bootstrap_servers=job.address, acks=1, max_batch_size=size
    ) as producer:
        await producer.send_and_wait(SENT, BODY)
        partitions = sorted(await producer.partitions_for(SENT))
        job.watch.start()
        for number in range(job.messages // SEND_BATCH):
            batch = producer.create_batch()
            for _ in range(SEND_BATCH):
                assert batch.append(key=None, value=BODY, timestamp=None) is not None
            batch.close()
            await (
                await producer.send_batch(
                    batch, SENT, partition=partitions[number % len(partitions)]
                )
            )
        job.watch.stop()


async def fill(job: Job) -> None:
    """Fill the topic for the readers."""
    async with AIOKafkaProducer(bootstrap_servers=job.address, acks=1, linger_ms=5) as producer:
        await _pipelined(producer, READ, job.messages)


def _consumer(job: Job) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        READ, bootstrap_servers=job.address, group_id=job.name, auto_offset_reset="earliest"
    )


async def iterate(job: Job) -> None:
    """Read one by one."""
    async with _consumer(job) as consumer:
        count, total = 0, 0
        async for message in consumer:
            if not count:
                job.watch.start()
            count += 1
            total += len(message.value)
            if count == job.messages:
                break
        job.watch.stop()
        assert total == job.messages * len(BODY)


async def batches(job: Job) -> None:
    """Read lists of messages."""
    async with _consumer(job) as consumer:
        count = 0
        while count < job.messages:
            found = await consumer.getmany(timeout_ms=1000, max_records=BATCH)
            if not count:
                job.watch.start()
            for part in found.values():
                count += len(part)
                assert all(message.value for message in part)
        job.watch.stop()


def rows() -> dict[str, Callable[[Job], Awaitable[None]]]:
    """The rows by their keys."""
    return {each.__name__: each for each in (awaited, linger, send_batch, fill, iterate, batches)}
