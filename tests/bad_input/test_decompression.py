"""Bodies that inflate without end: stored as they are, and no danger to our consumers."""

import asyncio
import zlib

import lz4.frame  # type: ignore[import-untyped]  # has no stubs
import pytest
import zstandard

import rocketpy
from rocketpy.proto.record.sys_flag import CompressionType
from tests.bad_input.kit import EventLog, Wire, World

INFLATED_BYTES = 200 << 20

_COMPRESSED = 0x1
_CODEC_SHIFT = 8


def bomb(codec: CompressionType) -> bytes:
    """A small body that inflates to 200 MiB."""
    zeros = bytes(INFLATED_BYTES)
    if codec is CompressionType.LZ4:
        return lz4.frame.compress(zeros)
    if codec is CompressionType.ZSTD:
        return zstandard.ZstdCompressor(level=1).compress(zeros)
    return zlib.compress(zeros, 1)


CODECS = [CompressionType.ZLIB, CompressionType.LZ4, CompressionType.ZSTD]
NAMES = [codec.name for codec in CODECS]


def fill(world: World, peer: Wire, topic: str, codec: CompressionType) -> list[bytes]:
    """Store a bomb, a body that is not compressed at all, and a good one; return them."""
    world.cluster.create_topic(topic, 1)
    bodies = [bomb(codec), b"not compressed at all", b"after"]
    assert len(bodies[0]) < 4 << 20
    flag = str(_COMPRESSED | codec.value << _CODEC_SHIFT)
    for body in bodies:
        assert peer.send(body, topic, f="0" if body == b"after" else flag).code == 0
    return bodies


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_group_consumer_never_sees_a_bomb(
    world: World, log: EventLog, codec: CompressionType
) -> None:
    topic = f"Push{codec.name}"
    with world.staying_well(), world.peer() as peer:
        fill(world, peer, topic, codec)
        assert asyncio.run(_consume_one(world, topic)) == b"after"
    assert log.named("message body not inflated", "inflates to more than")


@pytest.mark.parametrize("codec", CODECS, ids=NAMES)
def test_pull_consumer_gets_a_bomb_as_it_is_stored(
    world: World, log: EventLog, codec: CompressionType
) -> None:
    topic = f"Pull{codec.name}"
    with world.staying_well(), world.peer() as peer:
        bodies = fill(world, peer, topic, codec)
        assert sorted(asyncio.run(_poll_three(world, topic))) == sorted(bodies)
    assert log.named("message body not inflated", "inflates to more than")
    assert log.named("message body not inflated", "damaged")


async def _consume_one(world: World, topic: str) -> bytes:
    async with (
        asyncio.timeout(30),
        rocketpy.connect(world.cluster.namesrv) as client,
        client.consumer(topic, group=f"G{topic}", start="earliest") as consumer,
    ):
        async for message in consumer:
            return message.body
    raise AssertionError("the consumer ended")


async def _poll_three(world: World, topic: str) -> list[bytes]:
    async with (
        asyncio.timeout(30),
        rocketpy.connect(world.cluster.namesrv) as client,
        client.pull_consumer(group=f"G{topic}", start="earliest") as consumer,
    ):
        await consumer.subscribe(topic)
        found: list[bytes] = []
        while len(found) < 3:
            found += [message.body for message in await consumer.poll(timeout=1)]
        return found
