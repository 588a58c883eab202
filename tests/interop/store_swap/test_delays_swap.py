"""Delayed and timed messages change hands: one directory, Apache's broker, ours, Apache's again.

Our client sends to all of them. Before each hand-over messages wait that the next broker has to
deliver, once each and not early.
"""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

import rocketpy
from rocketpy.broker.broker import Broker
from rocketpy.broker.config import BrokerConfig
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.server import NameServer
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.clock import SystemClock
from rocketpy.store.config import MessageStoreConfig
from tests.peer.apache import Apache, require_peer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400), pytest.mark.long]

TOPIC = "later"
CLOCK = SystemClock()


class Kit:
    """Store directory that brokers use in turn, and the messages received."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.apache = Apache(home, ("recallMessageEnable=true",), heap="1g")
        self.namesrv = self.apache.namesrv
        self.due_ms: dict[bytes, int] = {}
        self.came: Counter[bytes] = Counter()
        self.early: list[bytes] = []

    async def start_ours(self) -> tuple[NameServer, Broker]:
        listen = RemotingServerConfig(
            bind_address="127.0.0.1", listen_port=self.apache.namesrv_port
        )
        data = str(self.home / "namesrv")
        name_server = NameServer(NamesrvConfig(data_dir=data, server=listen), clock=CLOCK)
        await name_server.start()
        broker = Broker(
            BrokerConfig(
                broker_name="apache-a",
                broker_ip1="127.0.0.1",
                bind_address="127.0.0.1",
                listen_port=self.apache.port,
                namesrv_addr=self.namesrv,
                recall_message_enable=True,
            ),
            store_config=MessageStoreConfig(store_path_root_dir=str(self.home / "store")),
            server_config=RemotingServerConfig(bind_address="127.0.0.1"),
            clock=CLOCK,
        )
        await broker.start()
        return name_server, broker

    async def use(self, name: str, *, wait_for: list[str]) -> None:
        """Send messages that are due soon, due after the hand-over, and called back; receive."""
        async with rocketpy.connect(self.namesrv) as client:
            producer = client.producer(timeout=15)
            consumer = client.consumer(
                TOPIC, group="g", start="earliest", handler=self._handle, concurrency=1
            )
            await producer.send(TOPIC, b"now " + name.encode())
            await consumer.start()
            await self.send(producer, f"{name} soon", delay=1.5)
            await self.send(producer, f"{name} level", delay_level=1)
            gone = await producer.send(TOPIC, b"gone " + name.encode(), delay=3)
            assert gone.recall_handle is not None
            assert await producer.recall(TOPIC, gone.recall_handle) == gone.msg_id
            wanted = {f"{name} soon", f"{name} level", *wait_for}
            async with asyncio.timeout(120):
                while not {each.encode() for each in wanted} <= self.came.keys():  # noqa: ASYNC110 - as a person looks
                    await asyncio.sleep(0.1)
            # These wait over the hand-over; two seconds let every broker write its files.
            for number in range(20):
                await self.send(producer, f"{name} timed {number}", delay=10 + number / 10)
            await self.send(producer, f"{name} levels", delay_level=3)
            await asyncio.sleep(2.5)
            await consumer.close()

    async def send(self, producer: rocketpy.Producer, text: str, **options: float) -> None:
        body = text.encode()
        level_s = {1: 1, 3: 10}.get(int(options.get("delay_level", 0)), 0)
        due_s = options.get("delay", level_s)
        self.due_ms[body] = CLOCK.time_ms() + int(due_s * 1_000)
        await producer.send(TOPIC, body, **options)  # type: ignore[arg-type]

    async def _handle(self, message: ReceivedMessage) -> None:
        self.came[message.body] += 1
        if CLOCK.time_ms() < self.due_ms.get(message.body, 0):
            self.early.append(message.body)


def waiting(name: str) -> list[str]:
    return [*(f"{name} timed {number}" for number in range(20)), f"{name} levels"]


async def test_delayed_message_is_delivered_after_swap(tmp_path: Path) -> None:
    require_peer()
    kit = Kit(tmp_path)
    with kit.apache.running():
        await kit.use("apache", wait_for=[])
    name_server, broker = await kit.start_ours()
    try:
        await kit.use("ours", wait_for=waiting("apache"))
    finally:
        await broker.stop()
        await name_server.stop()
    with kit.apache.borrowed():
        await kit.use("again", wait_for=waiting("ours"))
    assert not kit.early
    assert not [body for body in kit.came if body.startswith(b"gone")]
    assert {body: count for body, count in kit.came.items() if count > 1} == {}
