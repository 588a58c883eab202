"""One seed of the cluster simulation: producers, consumers, brokers, and what goes wrong.

Real clients send to and consume from real brokers over the simulated network, while brokers are
killed, lose power (also in the middle of a file operation or of a start), connections are cut in
mid-frame, hosts are parted, read slowly, and their wall clocks are set. Then everything is mended,
and once all that was acknowledged has been consumed, `ClusterHistory` judges.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable

from rocketpy.client.message import ReceivedMessage
from rocketpy.client.producer import Producer
from rocketpy.errors import RocketPyError
from rocketpy.testing.sim_cluster import SimBroker, SimCluster, run_simulation
from rocketpy.testing.sim_files import ProcessEndedError
from tests.conformance.worlds import SimWorld
from tests.simulation.cluster_history import ClusterHistory, Place, body_of, stored_messages

TOPIC = "t"
QUEUES = 4
PRODUCERS = 2
CONSUMERS = 2
SEND_V2 = 310
_TROUBLE_S = 40.0
_MENDED_S = 300.0


class ClusterWorld:
    """One seed.

    Attributes:
        counts: how often each thing happened.
    """

    def __init__(self, cluster: SimCluster, *, sync: bool) -> None:
        self.cluster = cluster
        self.sync = sync
        self.rng = cluster.loop.rng
        self.world = SimWorld(cluster)
        self.history = ClusterHistory()
        self.counts: Counter[str] = Counter()
        self._ends_s = 0.0
        self._broken: list[AssertionError] = []

    async def run(self) -> None:
        """Send and consume through the trouble, then mend everything and judge."""
        self.cluster.create_topic(TOPIC, QUEUES)
        self._ends_s = self.cluster.loop.time() + _TROUBLE_S
        clients = [self.world.client() for _ in range(PRODUCERS + CONSUMERS)]
        for client in clients:
            await client.start()
        for client in clients[PRODUCERS:]:
            await client.consumer(
                TOPIC, group="g", handler=self._consume, start="earliest", concurrency=1
            ).start()
        sending = [
            asyncio.ensure_future(self._send(number, clients[number].producer()))
            for number in range(PRODUCERS)
        ]
        await self._make_trouble()
        await asyncio.gather(*sending)
        await self._mend()
        await self.world.until(lambda: self.history.is_complete or bool(self._broken), _MENDED_S)
        if self._broken:
            raise self._broken[0]
        for client in clients:
            await client.close()
        attempts = Counter(request.body for request in self.world.of_code(SEND_V2))
        self.history.check(stored_messages(self.cluster, TOPIC, QUEUES), attempts)
        assert not self.cluster.loop.errors, self.cluster.loop.errors

    # -- clients -----------------------------------------------------------------------------

    async def _send(self, producer: int, sender: Producer) -> None:
        number = 0
        while self.cluster.loop.time() < self._ends_s:
            name = (producer, number)
            self.history.sent.add(name)
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

    # -- trouble -----------------------------------------------------------------------------

    async def _make_trouble(self) -> None:
        kinds: list[Callable[[SimBroker], Awaitable[None]]] = [
            self._kill,
            self._stop,
            self._end_in_operation,
            self._cut,
            self._cut,
            self._part,
            self._read_slowly,
            self._delay,
            self._set_clock,
        ]
        if self.sync:
            kinds.append(self._lose_power)
        kinds = self.rng.sample(kinds, self.rng.randint(1, 5))
        while self.cluster.loop.time() < self._ends_s:
            await asyncio.sleep(self.rng.uniform(0.1, 8.0))
            kind = self.rng.choice(kinds)
            self.counts[kind.__name__] += 1
            await kind(self.rng.choice(self.cluster.brokers))

    async def _kill(self, broker: SimBroker) -> None:
        if broker.is_running:
            broker.kill()
            await self._start_again(broker)

    async def _lose_power(self, broker: SimBroker) -> None:
        if broker.is_running:
            broker.lose_power()
            await self._start_again(broker)

    async def _stop(self, broker: SimBroker) -> None:
        if broker.is_running:
            await broker.stop()
            await self._start_again(broker)

    async def _end_in_operation(self, broker: SimBroker) -> None:
        """The process (or power) goes in the middle of a change of the disk."""
        power = self.sync and self.rng.random() < 0.5
        broker.end_after(self.rng.randrange(30), power=power)
        deadline_s = self.cluster.loop.time() + 5
        while broker.is_running and self.cluster.loop.time() < deadline_s:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        if not broker.is_running:
            await self._start_again(broker)
        else:
            broker.files.start_process()

    async def _start_again(self, broker: SimBroker) -> None:
        await asyncio.sleep(self.rng.choice([0.1, 1.0, 5.0]))
        while True:
            ends_again = self.rng.random() < 0.2
            try:
                await broker.start(
                    end_after=self.rng.randrange(20) if ends_again else None,
                    power=self.sync,
                )
            except ProcessEndedError:
                self.counts["ended in start"] += 1
            else:
                return

    async def _cut(self, _: SimBroker) -> None:
        self.cluster.network.cut_one()

    async def _part(self, broker: SimBroker) -> None:
        """The broker, or a client, is alone for a while."""
        names = ["10.0.0.1", *(each.host.name for each in self.cluster.brokers)]
        names += [f"10.0.1.{number + 1}" for number in range(PRODUCERS + CONSUMERS)]
        alone = self.rng.choice(names)
        self.cluster.network.partition([alone], [name for name in names if name != alone])
        await asyncio.sleep(self.rng.choice([0.5, 5.0, 40.0]))
        self.cluster.network.heal()

    async def _read_slowly(self, broker: SimBroker) -> None:
        host = self.cluster.network.host(self.rng.choice([broker.host.name, "10.0.1.1"]))
        host.read_bytes_per_s = self.rng.choice([2_000, 20_000])
        await asyncio.sleep(self.rng.uniform(1.0, 10.0))
        host.read_bytes_per_s = None

    async def _delay(self, _: SimBroker) -> None:
        self.cluster.network.latency_ms = self.rng.choice([(0.1, 2.0), (50.0, 400.0)])

    async def _set_clock(self, broker: SimBroker) -> None:
        broker.clock.jump(self.rng.choice([-60_000, -5_000, 5_000, 3_600_000]))

    async def _mend(self) -> None:
        self.cluster.network.heal()
        self.cluster.network.latency_ms = (0.1, 2.0)
        for broker in self.cluster.brokers:
            broker.host.read_bytes_per_s = None
            if broker.is_running:
                broker.files.start_process()
            else:
                await broker.start()


def run_seed(seed: int) -> Counter[str]:
    """Run one seed and return what happened."""
    sync = seed % 2 == 0

    async def scenario(cluster: SimCluster) -> Counter[str]:
        world = ClusterWorld(cluster, sync=sync)
        await world.run()
        return world.counts

    properties = {"flushDiskType": "SYNC_FLUSH" if sync else "ASYNC_FLUSH"}
    return run_simulation(scenario, seed=seed, brokers=1 + seed % 3 // 2, properties=properties)
