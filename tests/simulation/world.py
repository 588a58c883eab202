"""Base of simulated worlds of brokers and clients: course, faults and recovery.

A world makes a topic, starts clients, lets them work while brokers are killed, lose power (also in
the middle of a file operation or of a start), connections are cut in mid-frame, hosts are parted or
read slowly, and wall clocks are set. Then everything is mended, and once everything that has to
happen has happened, the world is judged. Subclasses say who works, what has to happen, and judge.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ClassVar

from rocketpy.client.client import Client
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.runtime.ordered_set import OrderedSet
from rocketpy.testing.sim_cluster import SimBroker, SimCluster, run_simulation
from rocketpy.testing.sim_files import ProcessEndedError
from tests.conformance.worlds import SimWorld

TOPIC = "t"
QUEUES = 4
PRODUCERS = 2
CONSUMERS = 2

Trouble = Callable[[SimBroker], Awaitable[None]]
"""Something that goes wrong, with a broker or beside it."""


class TroubledWorld:
    """Simulated run of one seed.

    Args:
        cluster: started.
        sync: SYNC_FLUSH; power is lost only then.

    Attributes:
        counts: how often each thing happened.
        trouble_s: for how long things go wrong.
        mended_s: how long it may take then until all has happened that has to.
        pause_s: between two troubles.
        most_kinds: of troubles in one seed.
        clock_steps_ms: by how much wall clocks are set.
    """

    trouble_s: ClassVar[float] = 40.0
    mended_s: ClassVar[float] = 300.0
    pause_s: ClassVar[tuple[float, float]] = (0.1, 8.0)
    most_kinds: ClassVar[int] = 5
    clock_steps_ms: ClassVar[tuple[int, ...]] = (-60_000, -5_000, 5_000, 3_600_000)

    def __init__(self, cluster: SimCluster, *, sync: bool) -> None:
        self.cluster = cluster
        self.sync = sync
        self.rng = cluster.loop.rng
        self.world = SimWorld(cluster)
        self.counts: Counter[str] = Counter()
        self._clients: list[Client] = []
        self._ends_s = 0.0
        self._broken: list[AssertionError] = []
        self._set_by_ms: Counter[SimBroker | SimCluster] = Counter()
        self._down: OrderedSet[SimBroker] = OrderedSet()

    async def run(self) -> None:
        """Work through the trouble, mend everything, wait for what has to happen, and judge."""
        self.cluster.create_topic(TOPIC, QUEUES)
        self._ends_s = self.cluster.loop.time() + self.trouble_s
        await self._begin()
        working = [asyncio.ensure_future(each) for each in [*self._work(), self._watch()]]
        await self._make_trouble()
        await asyncio.gather(*working)
        await self._mend()
        try:
            await self.world.until(lambda: self._is_complete or bool(self._broken), self.mended_s)
        except TimeoutError:
            raise AssertionError(self._missing()) from None
        await self._settle()
        if self._broken:
            raise self._broken[0]
        for client in self._clients:
            await client.close()
        self._judge()
        assert not self.cluster.loop.errors, self.cluster.loop.errors

    # -- for subclasses ----------------------------------------------------------------------

    async def _begin(self) -> None:
        """Start clients and consumers."""

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        """Run a process until `is_over`."""
        raise NotImplementedError

    @property
    def _is_complete(self) -> bool:
        """Whether all has happened that has to."""
        raise NotImplementedError

    def _missing(self) -> str:
        """Return the events missing after `mended_s`."""
        return "is lost: not everything came"

    async def _settle(self) -> None:
        """Wait long enough for unexpected messages to arrive."""

    def _judge(self) -> None:
        """Look at what the brokers hold at the end."""

    # -- clients -----------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether the time of trouble is over, and with it that of sending."""
        return self.cluster.loop.time() >= self._ends_s

    async def _start_clients(self, count: int) -> list[Client]:
        clients = [self.world.client() for _ in range(count)]
        for client in clients:
            await client.start()
        self._clients += clients
        return clients

    async def _start_consumers(
        self, clients: list[Client], handler: Callable[[ReceivedMessage], Awaitable[None]]
    ) -> None:
        for client in clients:
            await client.consumer(
                TOPIC, group="g", handler=handler, start="earliest", concurrency=1
            ).start()

    # -- trouble -----------------------------------------------------------------------------

    def _kinds(self) -> list[Trouble]:
        kinds: list[Trouble] = [
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
        return [*kinds, self._lose_power] if self.sync else kinds

    async def _make_trouble(self) -> None:
        kinds = self._kinds()
        kinds = self.rng.sample(kinds, self.rng.randint(1, min(self.most_kinds, len(kinds))))
        while not self.is_over:
            await asyncio.sleep(self.rng.uniform(*self.pause_s))
            for broker in self.cluster.brokers:
                if not broker.is_running:  # it ended in its work, soon after a start
                    await self._start_again(broker)
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

    async def _watch(self) -> None:
        while not self.is_over:
            for broker in self.cluster.brokers:
                if not broker.is_running:
                    self._note_end(broker)
            await asyncio.sleep(0.05)

    def _note_end(self, broker: SimBroker) -> None:
        if broker not in self._down:
            self._down.add(broker)
            self._ended(broker)

    async def _start_again(self, broker: SimBroker) -> None:
        self._note_end(broker)
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
                self._ended(broker)  # it may have served before its start was complete
            else:
                self._note_start(broker)
                return

    def _note_start(self, broker: SimBroker) -> None:
        self._down.discard(broker)
        self._started(broker)

    def _ended(self, broker: SimBroker) -> None:
        """Hear that a broker has ended."""

    def _started(self, broker: SimBroker) -> None:
        """Hear that a broker that had ended runs again."""

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
        """A broker's wall clock is set, or with it that of all clients."""
        change_ms = self.rng.choice(self.clock_steps_ms)
        self._step_clock(broker, change_ms)
        if self.rng.random() < 0.5:
            self._step_clock(self.cluster, change_ms)

    def _step_clock(self, whose: SimBroker | SimCluster, change_ms: int) -> None:
        whose.clock.jump(change_ms)
        self._set_by_ms[whose] += change_ms

    async def _mend(self) -> None:
        self.cluster.network.heal()
        self.cluster.network.latency_ms = (0.1, 2.0)
        for whose, set_by_ms in list(self._set_by_ms.items()):
            self._step_clock(whose, -set_by_ms)
        for client in range(PRODUCERS + CONSUMERS):
            self.cluster.network.host(f"10.0.1.{client + 1}").read_bytes_per_s = None
        for broker in self.cluster.brokers:
            broker.host.read_bytes_per_s = None
            if broker.is_running:
                broker.files.start_process()
            else:
                self._note_end(broker)
                await broker.start()
                self._note_start(broker)


def run_world(
    make: Callable[[SimCluster], TroubledWorld],
    *,
    seed: int,
    sync: bool,
    brokers: int = 1,
    properties: Mapping[str, str] | None = None,
) -> Counter[str]:
    """Run one seed of a world and return what happened.

    Args:
        make: makes the world.
        seed: decides everything.
        sync: SYNC_FLUSH or ASYNC_FLUSH.
        brokers: how many.
        properties: more settings of the brokers.
    """

    async def scenario(cluster: SimCluster) -> Counter[str]:
        world = make(cluster)
        await world.run()
        return world.counts

    flush = "SYNC_FLUSH" if sync else "ASYNC_FLUSH"
    settings = {"flushDiskType": flush, **(properties or {})}
    return run_simulation(scenario, seed=seed, brokers=brokers, properties=settings)
