"""Transactions and requests: our client on Apache's broker, and stores that change hands."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

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

# Apache forgets for the time of a batch of op messages what is decided, and asks about it anew.
CHECKS = {
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    "transactionOpBatchInterval": 100,
    "transactionCheckMax": 1_000,
}


class Place:
    """Directory and two ports, for Apache's servers and ours in turn."""

    def __init__(self, home: Path) -> None:
        self.home = home
        settings = (f"{key}={value}" for key, value in CHECKS.items())
        self.apache = Apache(home, tuple(settings), heap="1g")

    @property
    def namesrv(self) -> str:
        return self.apache.namesrv

    async def ours(self, work: Callable[[], Any]) -> None:
        clock = SystemClock()
        server = RemotingServerConfig(listen_port=self.apache.namesrv_port)
        name_server = NameServer(
            NamesrvConfig(data_dir=str(self.home / "namesrv"), server=server), clock=clock
        )
        broker = Broker(
            BrokerConfig(
                broker_name="apache-a",
                broker_ip1="127.0.0.1",
                listen_port=self.apache.port,
                namesrv_addr=self.namesrv,
                transaction_check_interval=CHECKS["transactionCheckInterval"],
                transaction_time_out=CHECKS["transactionTimeOut"],
                transaction_check_max=CHECKS["transactionCheckMax"],
            ),
            store_config=MessageStoreConfig(store_path_root_dir=str(self.home / "store")),
            clock=clock,
        )
        await name_server.start()
        await broker.start()
        try:
            await work()
        finally:
            await broker.stop()
            await name_server.stop()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    require_peer()
    return Place(tmp_path)


async def _until(condition: Callable[[], object], limit_s: float = 120) -> None:
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.05)


class Session:
    """RocketPy producers and consumer for either broker."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.consumed: list[bytes] = []
        self.asked: list[bytes] = []
        self.answers: dict[bytes, rocketpy.TxState] = {}

    async def check(self, message: ReceivedMessage) -> rocketpy.TxState:
        self.asked.append(message.body)
        return self.answers.get(message.body, rocketpy.TxState.UNKNOWN)

    async def consume(self, message: ReceivedMessage) -> None:
        self.consumed.append(message.body)

    async def begin(self, producer: rocketpy.Producer, *bodies: bytes) -> None:
        """Begin transactions and leave them undecided."""
        for body in bodies:
            async with producer.transaction("tx", body, timeout=30) as tx:
                tx.unknown()

    async def on_apache(self) -> None:
        self.answers = {
            b"checked": rocketpy.TxState.COMMIT,
            b"checked out": rocketpy.TxState.ROLLBACK,
        }
        async with rocketpy.connect(self.place.namesrv) as client:
            producer = client.producer(group="p", tx_checker=self.check)
            await producer.send("tx", b"plain", timeout=30)
            consumer = client.consumer("tx", group="c", handler=self.consume, start="earliest")
            await consumer.start()
            async with producer.transaction("tx", b"committed") as tx:
                pass
            assert tx.is_confirmed
            with pytest.raises(KeyError):
                async with producer.transaction("tx", b"rolled back"):
                    raise KeyError
            await self.begin(producer, b"checked", b"checked out", b"left by Apache")
            await _until(lambda: {b"plain", b"committed", b"checked"} <= set(self.consumed))
            await _until(lambda: {b"checked out", b"left by Apache"} <= set(self.asked))
            responder = client.responder(
                "quotes", group="r", handler=lambda m: m.body + b"!", start="earliest"
            )
            await producer.send("quotes", b"first", timeout=30)
            async with responder:
                answer = await client.producer().request("quotes", b"price", timeout=30)
            assert answer.body == b"price!"

    async def on_ours(self) -> None:
        self.consumed.clear()
        self.asked.clear()
        self.answers = {b"left by Apache": rocketpy.TxState.COMMIT}
        async with rocketpy.connect(self.place.namesrv) as client:
            producer = client.producer(group="p", tx_checker=self.check)
            consumer = client.consumer("tx", group="c2", handler=self.consume, start="earliest")
            await self.begin(producer, b"left by us", b"dropped by us")
            await consumer.start()
            await _until(lambda: b"left by Apache" in self.consumed)
            await _until(lambda: b"left by us" in self.asked)
        assert sorted(self.consumed) == [b"checked", b"committed", b"left by Apache", b"plain"]
        assert b"checked out" not in self.asked, "it was decided before"

    async def on_apache_again(self) -> None:
        self.consumed.clear()
        self.asked.clear()
        self.answers = {
            b"left by us": rocketpy.TxState.COMMIT,
            b"dropped by us": rocketpy.TxState.ROLLBACK,
        }
        async with rocketpy.connect(self.place.namesrv) as client:
            producer = client.producer(group="p", tx_checker=self.check)
            await producer.send("tx", b"last", timeout=30)
            consumer = client.consumer("tx", group="c3", handler=self.consume, start="earliest")
            await consumer.start()
            await _until(lambda: {b"left by us", b"last"} <= set(self.consumed))
            await _until(lambda: b"dropped by us" in self.asked)
        assert b"dropped by us" not in self.consumed
        assert self.consumed.count(b"left by Apache") == 1
        assert b"left by Apache" not in self.asked, "its op message is ours"


def test_transactions_continue_across_swaps_of_apache_and_rocketpy(
    place: Place,
) -> None:
    session = Session(place)
    with place.apache.running():
        asyncio.run(session.on_apache())
    asyncio.run(place.ours(session.on_ours))
    with place.apache.borrowed():
        asyncio.run(session.on_apache_again())
