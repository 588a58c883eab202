"""A whole broker on loopback, driven by raw requests."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.errors import StartError
from rocketpy.proto.record.message import decode_messages
from rocketpy.proto.wire.command import RemotingCommand, make_request, make_response
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.clock import Clock, SystemClock
from rocketpy.runtime.service import Service, ServiceRunner, ServiceThread
from rocketpy.store.config import MessageStoreConfig

SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 20,
    "mapped_file_size_consume_queue": 20_000,
    "max_hash_slot_num": 1_000,
    "max_index_num": 5_000,
}


def make_broker(path: Path, *, threads: int = 0, selectors: int = 1, **store: Any) -> Broker:
    return Broker(
        BrokerConfig(
            broker_name="b",
            broker_ip1="127.0.0.1",
            listen_port=0,
            send_message_thread_pool_nums=threads,
            pull_message_thread_pool_nums=threads,
        ),
        store_config=MessageStoreConfig(
            store_path_root_dir=str(path / "store"), **{**SMALL, **store}
        ),
        server_config=RemotingServerConfig(
            bind_address="127.0.0.1", server_selector_threads=selectors
        ),
        clock=SystemClock(),
        rng=random.Random(1),
    )


class Peer:
    def __init__(self, address: str) -> None:
        self.address = address
        self.client = RemotingClient(
            RemotingClientConfig(use_msgpack=False), clock=SystemClock(), rng=random.Random(2)
        )
        self.notified: asyncio.Queue[str] = asyncio.Queue()
        self.client.register(40, self._on_notify)

    def _on_notify(self, _channel: Channel, request: RemotingCommand) -> None:
        self.notified.put_nowait(request.ext_fields["consumerGroup"])

    async def call(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        return await self.client.invoke(self.address, make_request(code, ext or {}, body), 60_000)

    async def send(
        self, body: bytes, topic: str = "T", queue_id: int = 0, properties: str = ""
    ) -> RemotingCommand:
        ext = {"a": "p", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
               "g": "1",
               "h": "0", "i": properties, "j": "0", "k": "false", "m": "false"}  # fmt: skip
        return await self.call(310, ext, body)

    async def pull(
        self, offset: int, topic: str = "T", sys_flag: int = 4, **changes: str
    ) -> RemotingCommand:
        ext = {"consumerGroup": "g", "topic": topic, "queueId": "0", "queueOffset": str(offset),
               "maxMsgNums": "32", "sysFlag": str(sys_flag), "commitOffset": "0",
               "suspendTimeoutMillis": "10000", "subscription": "*", "subVersion": "0",
               **changes}  # fmt: skip
        return await self.call(11, ext)

    async def start_pull(self, *args: Any, **changes: Any) -> asyncio.Task[RemotingCommand]:
        """Begin a pull that waits, and return once the broker has parked it."""
        waiting = asyncio.create_task(self.pull(*args, **changes))
        await asyncio.sleep(0)
        await self.call(30, {"topic": "T", "queueId": "0"})
        assert not waiting.done()
        return waiting

    async def heartbeat(self, client_id: str = "c1", group: str = "g") -> RemotingCommand:
        body = {
            "clientID": client_id,
            "consumerDataSet": [
                {
                    "groupName": group,
                    "consumeType": "CONSUME_PASSIVELY",
                    "messageModel": "CLUSTERING",
                    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
                    "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1}],
                }
            ],
            "producerDataSet": [{"groupName": "p"}],
        }
        return await self.call(34, {}, orjson.dumps(body))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    one = make_broker(tmp_path)
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
async def peer(broker: Broker) -> AsyncIterator[Peer]:
    one = Peer(broker.address)
    yield one
    await one.client.close()


async def test_send_then_pull(peer: Peer) -> None:
    sent = [
        await peer.send(b"body %d" % n, properties=f"TAGS\x01t\x02KEYS\x01k{n}\x02")
        for n in range(5)
    ]
    assert [one.code for one in sent] == [0] * 5
    assert [one.ext_fields["queueOffset"] for one in sent] == ["0", "1", "2", "3", "4"]
    pulled = await peer.pull(0)
    assert (pulled.code, pulled.remark) == (0, "FOUND")
    messages = decode_messages(pulled.body)
    assert [one.body for one in messages] == [b"body %d" % n for n in range(5)]
    assert messages[0].properties["CLUSTER"] == "DefaultCluster"
    assert messages[0].offset_msg_id == sent[0].ext_fields["msgId"]
    assert messages[0].store_host == peer.address
    assert pulled.ext_fields["nextBeginOffset"] == "5"
    nothing = await peer.pull(5)
    assert nothing.code == 19


async def test_waiting_pull_wakes_at_once(peer: Peer) -> None:
    await peer.send(b"first")
    waiting = await peer.start_pull(1, sys_flag=6)
    await peer.send(b"second")
    pulled = await waiting
    assert [one.body for one in decode_messages(pulled.body)] == [b"second"]


async def test_only_the_wanted_tag_wakes(peer: Peer) -> None:
    await peer.send(b"first")
    waiting = await peer.start_pull(1, sys_flag=6, subscription="a")
    await peer.send(b"second", properties="TAGS\x01b\x02")
    assert not waiting.done()
    await peer.send(b"third", properties="TAGS\x01a\x02")
    assert [one.body for one in decode_messages((await waiting).body)] == [b"third"]


async def test_heartbeat_members_and_notification(broker: Broker, peer: Peer) -> None:
    other = Peer(broker.address)
    try:
        response = await peer.heartbeat("c1")
        assert response.version == 493
        assert response.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
        assert await asyncio.wait_for(peer.notified.get(), 60) == "g"
        await other.heartbeat("c2")
        assert await asyncio.wait_for(peer.notified.get(), 60) == "g"
        members = await peer.call(38, {"consumerGroup": "g"})
        assert orjson.loads(members.body) == {"consumerIdList": ["c1", "c2"]}
        topic = broker.parts.topics.get("%RETRY%g")
        assert topic is not None
        assert (topic.write_queue_nums, topic.perm) == (1, 6)
    finally:
        await other.client.close()
    assert await asyncio.wait_for(peer.notified.get(), 60) == "g"
    members = await peer.call(38, {"consumerGroup": "g"})
    assert orjson.loads(members.body) == {"consumerIdList": ["c1"]}
    assert (await peer.call(38, {"consumerGroup": "nobody"})).code == 1


async def test_offsets_and_queries(peer: Peer) -> None:
    queue = {"topic": "T", "queueId": "0"}
    first = {"consumerGroup": "g", **queue}
    assert (await peer.call(14, first)).ext_fields["offset"] == "0", "a young queue starts at 0"
    assert (await peer.call(14, {**first, "setZeroIfNotFound": "false"})).code == 22
    assert (await peer.call(15, {**first, "commitOffset": "1"})).code == 26
    await peer.heartbeat()
    assert (await peer.call(15, {**first, "commitOffset": "1"})).code == 17
    sent = await peer.send(b"x", properties="UNIQ_KEY\x01U1\x02KEYS\x01k1 k2\x02")
    assert (await peer.call(15, {**first, "commitOffset": "1"})).code == 0
    assert (await peer.call(14, first)).ext_fields["offset"] == "1"
    assert (await peer.call(30, queue)).ext_fields["offset"] == "1"
    assert (await peer.call(31, queue)).ext_fields["offset"] == "0"
    assert int((await peer.call(32, queue)).ext_fields["timestamp"]) > 0
    assert (await peer.call(29, {**queue, "timestamp": "0"})).ext_fields["offset"] == "0"
    times = {"beginTimestamp": "0", "endTimestamp": str(1 << 62)}
    by_key = await peer.call(12, {"topic": "T", "key": "k2", "maxNum": "10", **times})
    assert [one.body for one in decode_messages(by_key.body)] == [b"x"]
    by_id = await peer.call(
        12, {"topic": "T", "key": "U1", "maxNum": "10", "_UNIQUE_KEY_QUERY": "true", **times}
    )
    assert [one.body for one in decode_messages(by_id.body)] == [b"x"]
    assert (await peer.call(12, {"topic": "T", "key": "no", "maxNum": "1", **times})).code == 22
    offset = int(sent.ext_fields["msgId"][16:], 16)
    seen = await peer.call(33, {"offset": str(offset)})
    assert decode_messages(seen.body)[0].body == b"x"
    assert (await peer.call(33, {"offset": "7"})).code == 1


async def test_broker_incomplete_or_invalid_requests_return_error_codes(peer: Peer) -> None:
    assert (await peer.call(36, {"group": "g"})).code == 1
    assert (await peer.call(37)).code == 1, "fields are missing"
    assert (await peer.call(200050)).code == 1, "fields are missing"
    assert (await peer.call(200052)).code == 1, "fields are missing"
    assert (await peer.call(310, {"b": "T"})).code == 1
    assert (await peer.send(b"x", "a/../b")).code == 29


async def test_locks(broker: Broker, peer: Peer) -> None:
    queue = {"brokerName": "b", "queueId": 1, "topic": "T"}
    body = {"clientId": "c", "consumerGroup": "g", "mqSet": [queue], "onlyThisBroker": False}
    await peer.send(b"x")
    locked = await peer.call(41, {}, orjson.dumps(body))
    assert orjson.loads(locked.body) == {"lockOKMQSet": []}, "nobody knows the client yet"
    other = Peer(broker.address)
    try:
        await peer.heartbeat("c")
        await other.heartbeat("d")
        locked = await peer.call(41, {}, orjson.dumps(body))
        assert orjson.loads(locked.body) == {"lockOKMQSet": [queue]}
        refused = await other.call(41, {}, orjson.dumps({**body, "clientId": "d"}))
        assert orjson.loads(refused.body) == {"lockOKMQSet": []}
        assert (await peer.call(42, {}, orjson.dumps(body))).code == 0
        locked = await other.call(41, {}, orjson.dumps({**body, "clientId": "d"}))
        assert orjson.loads(locked.body) == {"lockOKMQSet": [queue]}
    finally:
        await other.client.close()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_everything_is_there_after_a_restart(tmp_path: Path, flush: str) -> None:
    for round_number in range(2):
        broker = make_broker(tmp_path, flush_disk_type=flush)
        await broker.start()
        peer = Peer(broker.address)
        try:
            await peer.heartbeat()
            before = await peer.call(30, {"topic": "T", "queueId": "0"})
            assert before.ext_fields["offset"] == str(round_number * 10)
            responses = await asyncio.gather(*(peer.send(b"m%d" % n) for n in range(10)))
            assert [one.code for one in responses] == [0] * 10
            pulled = await peer.pull(round_number * 10)
            assert len(decode_messages(pulled.body)) == 10
            offset = {"consumerGroup": "g", "topic": "T", "queueId": "0"}
            if round_number:
                assert (await peer.call(14, offset)).ext_fields["offset"] == "3"
            await peer.call(15, {**offset, "commitOffset": "3"})
        finally:
            await peer.client.close()
            await broker.stop()
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.parametrize(("threads", "selectors"), [(0, 2), (2, 1), (2, 2)])
async def test_any_split_of_threads_gives_the_same_responses(
    tmp_path: Path, threads: int, selectors: int
) -> None:
    broker = make_broker(tmp_path, threads=threads, selectors=selectors)
    await broker.start()
    peers = [Peer(broker.address) for _ in range(3)]
    try:
        await peers[0].send(b"first")
        waiting = await peers[0].start_pull(1, sys_flag=6)
        responses = await asyncio.gather(
            *(peer.send(b"m%d" % n) for n in range(40) for peer in peers[1:])
        )
        assert [one.code for one in responses] == [0] * 80
        assert sorted(int(one.ext_fields["queueOffset"]) for one in responses) == list(range(1, 81))
        woken = decode_messages((await waiting).body)
        assert woken[0].queue_offset == 1
        bodies: list[bytes] = []
        while len(bodies) < 81:
            pulled = await peers[0].pull(len(bodies))
            assert pulled.code == 0
            bodies += [one.body for one in decode_messages(pulled.body)]
        assert sorted(bodies) == sorted([b"first"] + [b"m%d" % n for n in range(40)] * 2)
    finally:
        for peer in peers:
            await peer.client.close()
        await broker.stop()


async def test_vip_port_is_there_when_asked_for(tmp_path: Path) -> None:
    plain = make_broker(tmp_path)
    config = replace(plain.parts.config, fast_listen_enable=True)
    broker = Broker(
        config,
        store_config=plain.parts.configs.store,
        server_config=RemotingServerConfig(bind_address="127.0.0.1"),
    )
    await broker.start()
    peer = Peer(f"127.0.0.1:{broker.port - 2}")
    try:
        assert (await peer.send(b"x")).code == 0
        assert (await peer.pull(0)).code == 3, "pulls are not for this port"
    finally:
        await peer.client.close()
        await broker.stop()


async def test_guard_refuses_requests_of_every_kind(tmp_path: Path) -> None:
    def guard(_channel: Channel, request: RemotingCommand) -> RemotingCommand | None:
        return make_response(request, 16, "not allowed") if request.ext_fields else None

    plain = make_broker(tmp_path)
    broker = Broker(
        plain.parts.config, store_config=plain.parts.configs.store, clock=SystemClock(), guard=guard
    )
    await broker.start()
    peer = Peer(broker.address)
    try:
        assert (await peer.send(b"x")).code == 16
        assert (await peer.pull(0)).code == 16
        assert (await peer.call(38, {"consumerGroup": "g"})).code == 16
        assert (await peer.call(30, {"topic": "T", "queueId": "0"})).code == 16
        assert (await peer.call(17, {"topic": "T"})).code == 16
        assert (await peer.call(28)).code == 0, "what the guard lets pass is answered"
    finally:
        await peer.client.close()
        await broker.stop()


async def test_broker_without_threads_does_everything_on_its_loop(tmp_path: Path) -> None:
    plain = make_broker(tmp_path, threads=2, flush_disk_type="SYNC_FLUSH")
    broker = Broker(
        plain.parts.config,
        store_config=plain.parts.configs.store,
        server_config=RemotingServerConfig(bind_address="127.0.0.1"),
        clock=SystemClock(),
        rng=random.Random(1),
        threads=False,
    )
    await broker.start()
    peer = Peer(broker.address)
    try:
        assert (await peer.send(b"first")).code == 0
        waiting = await peer.start_pull(1, sys_flag=6)
        assert (await peer.send(b"second")).code == 0
        assert [one.body for one in decode_messages((await waiting).body)] == [b"second"]
        names = {one.name for one in broker.services}
        assert {"GroupCommitService", "ConsumerOffsets", "BrokerStats"} <= names
        running = {thread.name for thread in threading.enumerate()}
        assert not {name for name in running if name in names or name.startswith("send")}
    finally:
        await peer.client.close()
        await broker.stop()


async def test_broker_without_threads_stops_cleanly_with_a_sentence(tmp_path: Path) -> None:
    def refuse(service: Service, clock: Clock) -> ServiceRunner:
        if service.name == "ConsumerOffsets":
            raise RuntimeError("can't start new thread")
        return ServiceThread(service, clock)

    broker = Broker(
        BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", listen_port=0),
        store_config=MessageStoreConfig(store_path_root_dir=str(tmp_path / "store"), **SMALL),
        server_config=RemotingServerConfig(bind_address="127.0.0.1"),
        run=refuse,
    )
    with pytest.raises(StartError, match="starts no more threads: raise ulimit -v"):
        await broker.start()
    assert not (tmp_path / "store" / "abort").exists(), "the store was closed cleanly"
