"""Our admin operations and commands against the real Apache name server and broker."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

import rocketpy
import rocketpy.admin
from rocketpy.errors import (
    NoPermissionError,
    QueryNotFoundError,
    SubscriptionGroupNotExistError,
    TopicNotExistError,
)
from rocketpy.proto.message_queue import MessageQueue
from tests.peer.apache import Apache, require_peer
from tests.ports import free_port

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

BROKER = "apache-a"


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require_peer()
    settings = (f"haListenPort={free_port()}", "mappedFileSizeCommitLog=67108864")
    with Apache(tmp_path_factory.mktemp("apache"), settings).borrowed() as servers:
        yield servers.namesrv


@asynccontextmanager
async def both(namesrv: str) -> AsyncIterator[tuple[rocketpy.admin.Admin, rocketpy.Client]]:
    async with rocketpy.admin.connect(namesrv) as admin, rocketpy.connect(namesrv) as client:
        yield admin, client


async def consume(client: rocketpy.Client, topic: str, group: str, count: int) -> None:
    consumer = client.consumer(topic, group=group, start="earliest")
    async with consumer, asyncio.timeout(60):
        async for message in consumer:
            await message.ack()
            count -= 1
            if count == 0:
                return


async def test_topics(namesrv: str) -> None:
    async with both(namesrv) as (admin, client):
        assert set(await admin.create_topic("t1", 2, attributes={"message.type": "FIFO"})) == {
            BROKER
        }
        assert "t1" in await admin.topics()
        assert "TBW102" not in await admin.topics()
        await client.producer().send("t1", b"x")
        status = await admin.topic_status("t1")
        assert (len(status.queues), status.messages) == (2, 1)
        await admin.update_topic("t1", queues=3, perm=4)
        [data] = (await admin.topic_route("t1")).queue_datas
        assert (data.write_queue_nums, data.perm) == (3, 4)
        await admin.set_order_conf("t1", f"{BROKER}:3")
        assert await admin.order_conf("t1") == f"{BROKER}:3"
        assert set(await admin.delete_topic("t1")) == {BROKER}
        assert await admin.order_conf("t1") is None
        assert not await admin.topic_exists("t1")
        with pytest.raises(TopicNotExistError):
            await admin.delete_topic("t1")


async def test_groups_and_offsets(namesrv: str) -> None:
    async with both(namesrv) as (admin, client):
        await admin.create_topic("t2", 1)
        producer = client.producer()
        for _ in range(5):
            await producer.send("t2", b"x")
        await consume(client, "t2", "g2", 5)
        queue = MessageQueue("t2", BROKER, 0)
        progress = await admin.group_lag("g2", "t2")
        assert [(each.queue, each.broker_offset, each.lag) for each in progress.queues] == [
            (queue, 5, 0)
        ]
        assert "g2" in {each.group for each in await admin.groups()}
        assert await admin.group_members("g2") == []

        [dry] = await admin.reset_offset("g2", "t2", "earliest", dry_run=True)
        [move] = await admin.reset_offset("g2", "t2", "earliest")
        assert dry == move
        assert (move.from_offset, move.to_offset) == (5, 0)
        assert (await admin.group_lag("g2", "t2")).lag == 5
        [move] = await admin.reset_offset("g2", "t2", 3, queue=queue)
        assert move.to_offset == 3
        [move] = await admin.reset_offset("g2", "t2", datetime.now(UTC), dry_run=True)
        assert move.to_offset == 5

        await admin.create_group("h2")
        [move] = await admin.clone_offsets("g2", "h2", "t2")
        assert move.to_offset == 3
        assert (await admin.group_lag("h2", "t2")).lag == 2
        updated = await admin.update_group("h2", retries=4, broadcast=False)
        assert updated[BROKER].retry_max_times == 4
        found = (await admin.group_config("h2"))[BROKER]
        assert (found.retry_max_times, found.consume_broadcast_enable) == (4, False)
        await admin.delete_group("h2")
        with pytest.raises(SubscriptionGroupNotExistError):
            await admin.group_config("h2")


async def test_members(namesrv: str) -> None:
    async with both(namesrv) as (admin, client):
        await admin.create_topic("t3", 2)
        producer = client.producer(group="p3")
        await producer.send("t3", b"x")
        async with client.consumer("t3", group="g3", start="earliest") as consumer:
            async for _ in consumer:
                break
            [member] = await admin.group_members("g3")
            assert (member.client_id, member.language) == (client.client_id, "PYTHON")
            owners = await admin.queue_owners("g3")
            assert owners[MessageQueue("t3", BROKER, 0)] == client.client_id
            assert await admin.topic_groups("t3") == ["g3"]
            [producing] = await admin.producer_connection("p3", "t3")
            assert producing.client_id == client.client_id


async def test_messages(namesrv: str) -> None:
    async with both(namesrv) as (admin, client):
        await admin.create_topic("t4", 1)
        producer = client.producer()
        sent = await producer.send("t4", b"one", keys=["k1", "k2"], tag="a")
        await producer.send("t4", b"two", tag="b")
        async with asyncio.timeout(30):  # Apache's index follows a little later
            while not (found := await admin.messages_by_key("t4", "k2")):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.1)
        assert [each.body for each in found] == [b"one"]
        assert (await admin.message_by_unique_id("t4", sent.msg_id)).body == b"one"
        assert (await admin.message_by_offset_id(sent.offset_msg_id)).body == b"one"
        assert (await admin.message_at(MessageQueue("t4", BROKER, 0), 1)).body == b"two"
        assert [each.body for each in await admin.peek("t4")] == [b"one", b"two"]
        assert [each.body for each in await admin.peek("t4", tag="b")] == [b"two"]
        assert [each.body for each in await admin.peek("t4", newest=True, max_count=1)] == [b"two"]
        with pytest.raises(QueryNotFoundError):
            await admin.message_at(MessageQueue("t4", BROKER, 0), 2)


async def test_brokers_and_configuration(namesrv: str) -> None:
    async with both(namesrv) as (admin, client):
        [broker] = await admin.brokers()
        assert (broker.broker, broker.broker_id, broker.version) == (BROKER, 0, "V5_4_0")
        assert not broker.error
        assert 0 < broker.disk_ratio < 1
        assert await admin.ping_broker(broker.address) > 0
        assert await admin.ping_namesrv(namesrv) > 0
        await admin.update_broker_config(broker.address, {"fileReservedTime": "49"})
        assert (await admin.broker_config(broker.address))["fileReservedTime"] == "49"
        with pytest.raises(NoPermissionError):
            await admin.update_broker_config(broker.address, {"rocketmqHome": "/"})
        config = await admin.namesrv_config()
        assert config[namesrv]["listenPort"] == namesrv.rpartition(":")[2]
        await admin.create_topic("t5", 1)
        assert await admin.wipe_write_permission(BROKER) > 0
        assert (await admin.topic_route("t5")).queue_datas[0].perm == 4
        assert await admin.add_write_permission(BROKER) > 0
        assert (await admin.topic_route("t5")).queue_datas[0].perm == 6
        await client.producer().send("t5", b"x")
        [row] = await admin.topic_statistics("t5")
        assert (row.topic, row.group, row.lag) == ("t5", "", 0)
        await admin.kv_put("space", "key", "value")
        assert await admin.kv_list("space") == {"key": "value"}
        await admin.kv_delete("space", "key")
        assert await admin.kv_get("space", "key") is None
        for clean in (
            admin.clean_expired_queues,
            admin.clean_unused_topics,
            admin.delete_expired_log,
        ):
            await clean(broker.address)
