"""Delays, timers, transactions, retries and pop in play together, and what must come of them.

The work is the same for a simulated broker and a real one. A producer sends one message of each
kind in turn; one consumer handles what is delivered in `TOPIC`, another one pops `POP_TOPIC`.
Handlers fail now and then. Judged:

- "early": nothing is stored in its topic before it is due;
- "was seen": a message whose transaction was not committed never is;
- "is lost": what was acknowledged, and what was committed, is handled;
- "comes for ever": once everything is, nothing is delivered any more.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

from rocketpy import PoppedMessage
from rocketpy.client.client import Client
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import TxState
from rocketpy.client.producer.producer import Producer
from rocketpy.errors import RocketPyError

TOPIC: Final = "t"
POP_TOPIC: Final = "p"
QUEUES: Final = 2
LEVELS_MS: Final = (1_000, 3_000)
INVISIBLE_S: Final = 6.0
SETTINGS: Final = {
    "messageDelayLevel": "1s 3s",
    "timerRollWindowSlot": "10",
    "mappedFileSizeTimerLog": "4096",
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "1000",
    "transactionCheckMax": "500",
}
KINDS: Final = ("level", "timer", "commit", "rollback", "forget", "retry", "pop", "pop-retry")
_TIMEOUT_S: Final = 10.0
_FAILURES: Final = {"retry": 2, "pop-retry": 1}


class _LocalFailureError(Exception):
    """The local transaction fails."""


class Features:
    """The work and its history.

    Args:
        now_ms: the broker's wall clock.
        judges_time: whether that clock only goes forward, so that what is early can be told.

    Attributes:
        acknowledged: bodies that must be handled.
        handled: bodies that were, to the end.
        delivered: how often each came.
        broken: promises that were.
        counts: how often each kind was sent, and failed.
    """

    def __init__(self, now_ms: Callable[[], int], *, judges_time: bool = True) -> None:
        self._now_ms = now_ms
        self._judges_time = judges_time
        self._number = 0
        self._database: dict[bytes, TxState] = {}
        self._running: set[bytes] = set()
        self._due_ms: dict[bytes, int] = {}
        self.acknowledged: set[bytes] = set()
        self.handled: set[bytes] = set()
        self.delivered: Counter[bytes] = Counter()
        self.broken: list[str] = []
        self.counts: Counter[str] = Counter()

    async def start_consumers(self, client: Client) -> None:
        """Start the consumer and the one that pops."""
        await client.consumer(
            TOPIC, group="g", handler=self._handle, start="earliest", concurrency=4
        ).start()
        await client.pop_consumer(
            POP_TOPIC,
            group="pg",
            handler=self._handle_popped,
            start="earliest",
            invisible_time=INVISIBLE_S,
            pop_wait=5,
        ).start()

    def producer(self, client: Client) -> Producer:
        """Return a producer that answers for its transactions."""
        return client.producer(group="producers", tx_checker=self._check)

    async def send(self, producer: Producer, kind: str) -> None:
        """Send one message of a kind."""
        body = f"{kind}/{self._number}".encode()
        self._number += 1
        try:
            if kind in {"commit", "rollback", "forget"}:
                await self._transact(producer, body, kind)
                return
            if kind == "level":
                level = 1 + self._number % len(LEVELS_MS)
                self._due_ms[body] = self._now_ms() + LEVELS_MS[level - 1]
                await producer.send(TOPIC, body, delay_level=level, timeout=_TIMEOUT_S)
            elif kind == "timer":
                delay_ms = 300 + self._number * 577 % 3_000
                self._due_ms[body] = self._now_ms() + delay_ms
                await producer.send(TOPIC, body, delay=delay_ms / 1_000, timeout=_TIMEOUT_S)
            else:
                topic = POP_TOPIC if kind.startswith("pop") else TOPIC
                await producer.send(topic, body, timeout=_TIMEOUT_S)
        except RocketPyError:
            self.counts["failed"] += 1
        else:
            self.counts[kind] += 1
            self.acknowledged.add(body)

    @property
    def missing(self) -> list[bytes]:
        """Return the messages that still have to be handled."""
        return sorted(self.acknowledged - self.handled)

    async def _transact(self, producer: Producer, body: bytes, kind: str) -> None:
        self._running.add(body)
        try:
            async with producer.transaction(TOPIC, body, timeout=_TIMEOUT_S) as transaction:
                self.counts[kind] += 1
                self._decide(body, kind)
                if kind == "forget":
                    transaction.unknown()
        except _LocalFailureError:
            return
        finally:
            self._running.discard(body)

    def _decide(self, body: bytes, kind: str) -> None:
        """End the local transaction."""
        if kind == "rollback":
            self._database[body] = TxState.ROLLBACK
            raise _LocalFailureError
        self._database[body] = TxState.COMMIT
        self.acknowledged.add(body)

    async def _check(self, message: ReceivedMessage) -> TxState:
        self.counts["checked"] += 1
        if message.body in self._running:
            return TxState.UNKNOWN
        return self._database.get(message.body, TxState.ROLLBACK)

    async def _handle(self, message: ReceivedMessage) -> None:
        body = message.body
        self._deliver(body)
        stored_ms, due_ms = message.ext.store_timestamp_ms, self._due_ms.get(body, 0)
        if self._judges_time and stored_ms < due_ms:
            self.broken.append(f"{body!r} is {due_ms - stored_ms} ms early")
        self.handled.add(body)

    async def _handle_popped(self, message: PoppedMessage) -> None:
        self._deliver(message.body)
        self.handled.add(message.body)  # its broker may honour an ack whose response is lost
        try:
            await message.ack()
        except RocketPyError:
            self.counts["ack failed"] += 1

    def _deliver(self, body: bytes) -> None:
        kind = body.partition(b"/")[0].decode()
        self.delivered[body] += 1
        if kind in {"commit", "rollback", "forget"}:
            said = self._database.get(body)
            if said is not TxState.COMMIT:
                self.broken.append(f"{body!r} was seen, its local transaction: {said}")
        if self.delivered[body] <= _FAILURES.get(kind, 0):
            raise ValueError("not this time")


async def quiet(features: Features, limit_s: float, quiet_s: float) -> None:
    """Wait until all is handled and nothing comes any more.

    Raises:
        AssertionError: a promise is broken, or something is lost, or comes for ever.
    """
    try:
        async with asyncio.timeout(limit_s):
            while features.missing and not features.broken:  # noqa: ASYNC110 - any order
                await asyncio.sleep(0.25)
    except TimeoutError:
        raise AssertionError(f"is lost: {features.missing[:5]}") from None
    await asyncio.sleep(quiet_s)
    before = features.delivered.copy()
    await asyncio.sleep(quiet_s)
    assert not features.broken, features.broken[:3]
    again = features.delivered - before
    assert not again, f"comes for ever: {again}"
