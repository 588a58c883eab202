"""Cluster simulation of one seed: producers, consumers and faults.

Real clients send to and consume from real brokers in a `TroubledWorld`; once all that was
acknowledged has been consumed, `ClusterHistory` judges.
"""

import asyncio
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.producer.producer import Producer
from rocketpy.errors import RocketPyError
from rocketpy.testing.sim_cluster import SimCluster
from tests.simulation.cluster_history import ClusterHistory, Place, body_of, stored_messages
from tests.simulation.world import CONSUMERS, PRODUCERS, QUEUES, TOPIC, TroubledWorld, run_world

SEND_V2 = 310


class ClusterWorld(TroubledWorld):
    """Simulated run of one seed.

    Attributes:
        history: what was sent, acknowledged and consumed.
        began_s: when the first attempt to send a message began.
    """

    def __init__(self, cluster: SimCluster, *, sync: bool) -> None:
        super().__init__(cluster, sync=sync)
        self.history = ClusterHistory()
        self.began_s: dict[tuple[int, int], float] = {}
        self._producers: list[Producer] = []

    async def _begin(self) -> None:
        clients = await self._start_clients(PRODUCERS + CONSUMERS)
        await self._start_consumers(clients[PRODUCERS:], self._consume)
        self._producers = [client.producer() for client in clients[:PRODUCERS]]

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        return [self._send(number, each) for number, each in enumerate(self._producers)]

    @property
    def _is_complete(self) -> bool:
        return self.history.is_complete

    def _judge(self) -> None:
        attempts = Counter(request.body for request in self.world.of_code(SEND_V2))
        self.history.check(stored_messages(self.cluster, TOPIC, QUEUES), attempts)

    async def _send(self, producer: int, sender: Producer) -> None:
        number = 0
        while not self.is_over:
            name = (producer, number)
            self.history.sent.add(name)
            self.began_s[name] = self.cluster.loop.time()
            try:
                result = await sender.send(TOPIC, body_of(*name), timeout=10)
            except RocketPyError:
                self.counts["send failed"] += 1
            else:
                self.counts["sent"] += 1
                if result.status.name == "SEND_OK":
                    queue = result.queue
                    place = Place(queue.broker_name, queue.queue_id, result.offset)
                    self.history.acknowledge(name, place)
            number += 1
            await asyncio.sleep(self.rng.choice([0, 0.01, 0.2, 1.0]))

    async def _consume(self, message: ReceivedMessage) -> None:
        queue = message.queue
        place = Place(queue.broker_name, queue.queue_id, message.offset)
        try:
            self.history.consume(message.body, place)
        except AssertionError as error:  # the consumer would take it for a handler's failure
            self._broken.append(error)
        self.counts["consumed"] += 1


def run_seed(seed: int) -> Counter[str]:
    """Run one seed and return what happened."""
    sync = seed % 2 == 0
    return run_world(
        lambda cluster: ClusterWorld(cluster, sync=sync),
        seed=seed,
        sync=sync,
        brokers=1 + seed % 3 // 2,
    )
