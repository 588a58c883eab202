"""Transaction simulation of one seed: only committed messages are consumed.

Producers run local transactions (a dictionary is their database) around half messages in a
`TroubledWorld`. Some end by commit, some by rollback, some say nothing, so that the broker has to
ask. The first producer waits for the broker's word on its ends, the others do not, like official
clients: their commits take the compiled path where there is one. In the end everything is mended,
and the database says what consumers must have seen.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import TxState
from rocketpy.client.producer.producer import Producer
from rocketpy.errors import RocketPyError
from rocketpy.testing.sim_cluster import SimCluster
from tests.simulation.cluster_history import body_of, name_of
from tests.simulation.world import CONSUMERS, PRODUCERS, TOPIC, TroubledWorld, run_world

Name = tuple[int, int]
PROPERTIES = {
    "transactionCheckInterval": "2000",
    "transactionTimeOut": "1000",
    "transactionCheckMax": "500",
}


class _LocalFailureError(Exception):
    """The local transaction fails."""


@dataclass
class TransactionHistory:
    """Outcome of each transaction.

    Attributes:
        database: how local transactions ended; those that never began have no entry.
        running: local transactions that have not ended.
        consumed: how often its message was consumed.
    """

    running: set[Name] = field(default_factory=set)
    database: dict[Name, TxState] = field(default_factory=dict)
    consumed: Counter[Name] = field(default_factory=Counter)

    def state(self, name: Name) -> TxState:
        """Return the state of a transaction for a check-back; unknown ones are rolled back."""
        if name in self.running:
            return TxState.UNKNOWN
        return self.database.get(name, TxState.ROLLBACK)

    def consume(self, body: bytes) -> None:
        """A consumer got a message."""
        name = name_of(body)
        said = self.database.get(name)
        assert said is TxState.COMMIT, f"{name} was seen, its local transaction: {said}"
        self.consumed[name] += 1

    @property
    def is_complete(self) -> bool:
        """Whether every committed message was consumed."""
        return all(
            name in self.consumed
            for name, state in self.database.items()
            if state is TxState.COMMIT
        )


class TransactionWorld(TroubledWorld):
    """Simulated run of one seed."""

    def __init__(self, cluster: SimCluster, *, sync: bool) -> None:
        super().__init__(cluster, sync=sync)
        self.transactions = TransactionHistory()
        self._producers: list[Producer] = []

    async def _begin(self) -> None:
        clients = await self._start_clients(PRODUCERS + CONSUMERS)
        await self._start_consumers(clients[PRODUCERS:], self._take)
        self._producers = [
            client.producer(group="p", tx_checker=self._check) for client in clients[:PRODUCERS]
        ]
        for client in clients[1:PRODUCERS]:
            instance: Any = client._instance
            api = instance.api
            api.end_transaction = partial(api.end_transaction, oneway=True)

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        return [self._transactions(number, each) for number, each in enumerate(self._producers)]

    @property
    def _is_complete(self) -> bool:
        return self.transactions.is_complete

    async def _settle(self) -> None:
        await asyncio.sleep(20)

    async def _check(self, message: ReceivedMessage) -> TxState:
        self.counts["checked"] += 1
        if self.rng.random() < 0.2:
            return TxState.UNKNOWN
        return self.transactions.state(name_of(message.body))

    async def _transactions(self, producer: int, sender: Producer) -> None:
        number = 0
        while not self.is_over:
            name = (producer, number)
            self.transactions.running.add(name)
            try:
                await self._transact(name, sender)
            except _LocalFailureError:
                self.counts["rolled back"] += 1
            except RocketPyError:
                self.counts["never began"] += 1
            finally:
                self.transactions.running.discard(name)
            number += 1
            await asyncio.sleep(self.rng.choice([0, 0.01, 0.2, 1.0]))

    async def _transact(self, name: Name, sender: Producer) -> None:
        database = self.transactions.database
        kind = self.rng.choice(["commit", "commit", "rollback", "forget", "forget all", "slow"])
        async with sender.transaction(TOPIC, body_of(*name), timeout=10) as tx:
            if kind == "slow":
                await asyncio.sleep(self.rng.uniform(0.5, 6))
            if kind == "rollback":
                database[name] = TxState.ROLLBACK
                raise _LocalFailureError
            if kind == "forget all":  # the process dies before its local transaction
                tx.unknown()
                self.counts["forgotten"] += 1
                return
            database[name] = TxState.COMMIT
            self.counts["committed"] += 1
            if kind == "forget":
                tx.unknown()

    async def _take(self, message: ReceivedMessage) -> None:
        try:
            self.transactions.consume(message.body)
        except AssertionError as error:
            self._broken.append(error)
        self.counts["consumed"] += 1


def run_seed(seed: int) -> Counter[str]:
    """Run one seed and return what happened."""
    sync = seed % 2 == 0
    return run_world(
        lambda cluster: TransactionWorld(cluster, sync=sync),
        seed=seed,
        sync=sync,
        brokers=1 + seed % 3 // 2,
        properties=PROPERTIES,
    )
