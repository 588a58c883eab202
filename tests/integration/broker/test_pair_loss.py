"""A pair as processes that loses its master: new topics, and messages without a copy."""

import asyncio
from pathlib import Path

import rocketpy
import rocketpy.admin
from tests.integration.broker.pair import Pair, until
from tests.integration.broker.test_pair import GROUP, TOPIC, ha_status, is_streaming


async def test_pair_new_topic_of_a_killed_master_is_read_at_the_slave(tmp_path: Path) -> None:
    pair = Pair(tmp_path, inSyncReplicas="2")
    async with pair.running() as ask:
        await until(lambda: is_streaming(ask), "the slave follows")
        async with rocketpy.connect(pair.namesrv) as client, client.producer() as producer:
            sent = await producer.send(TOPIC, b"one")
            pair.kill("master")
        assert sent.status.name == "SEND_OK"

        async def is_readable() -> bool:
            return await ask.read_queue("slave", TOPIC, GROUP, sent.queue.queue_id) == [b"one"]

        await until(is_readable, "the slave knows the topic", 10.0)


async def test_pair_restarted_master_shows_messages_that_its_slave_has(tmp_path: Path) -> None:
    pair = Pair(tmp_path, inSyncReplicas="2", slaveTimeout="60000")
    async with pair.running() as ask:
        await until(lambda: is_streaming(ask), "the slave follows")
        async with rocketpy.admin.connect(pair.namesrv) as admin:
            await admin.create_topic(TOPIC, queues=1)
        async with rocketpy.connect(pair.namesrv) as client, client.producer() as producer:
            await producer.send(TOPIC, b"confirmed")
            # Longer than the interval of the checkpoint: that message was visible before.
            await asyncio.sleep(2.0)
            pair.stop("slave")
            end = (await ha_status(ask, "master"))["masterCommitLogMaxOffset"]
            sending = asyncio.create_task(producer.send(TOPIC, b"unconfirmed"))

            async def is_stored() -> bool:
                return int((await ha_status(ask, "master"))["masterCommitLogMaxOffset"]) > end

            await until(is_stored, "the message is stored")
            pair.kill("master")
            sending.cancel()
        pair.start("master")
        assert await ask.read_queue("master", TOPIC, GROUP, 0) == [b"confirmed"]
        waiting = asyncio.create_task(ask.pull("master", TOPIC, GROUP, 0, 1, 25_000))
        pair.start("slave")
        _, messages = await waiting
        assert [each.body for each in messages] == [b"unconfirmed"]
