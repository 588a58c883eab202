"""One seed of popping: producers, consumers that pop, a broker, and what goes wrong.

Handlers ack, fail, take too long, or keep their messages, while the broker is killed and
connections are cut. What is delivered and what the broker confirmed is noted, and judged:

- everything that was sent is delivered, and at last acked;
- no message is delivered again while it is somebody's, unless the broker ended meanwhile;
- what was acked is not delivered again, unless the broker ended within the seconds in which it had
  not yet written how far the group had come: Apache's delivers it again then, too;
- in order, nothing is delivered before everything that lies before it is acked.
"""

import asyncio
from collections import Counter
from typing import Any

from rocketpy import PoppedMessage
from rocketpy.errors import RocketPyError
from rocketpy.proto.pop import parse_handle
from rocketpy.testing.sim_cluster import SimBroker, SimCluster, run_simulation
from tests.simulation.cluster_history import body_of
from tests.simulation.cluster_world import CONSUMERS, PRODUCERS, QUEUES, TOPIC, ClusterWorld

INVISIBLE_S = 6.0
UNWRITTEN_S = 8.0
"""Committed offsets are written every 5 s, and follow the disk by less than another."""
_MENDED_S = 600.0

_Copy = tuple[bytes, int]
"""Body and time of sending: an attempt that was made again may have stored it twice."""


def _copy(message: PoppedMessage) -> _Copy:
    return message.body, message.ext.born_timestamp_ms


class PopHistory:
    """What was sent, delivered and acked, and when the broker ended."""

    def __init__(self, ordered: bool) -> None:
        self.ordered = ordered
        self.ends_s: list[float] = []
        self.sent: set[bytes] = set()
        self.acked: dict[_Copy, tuple[float, float]] = {}
        self.unsure: set[bytes] = set()
        self.maybe_acked: set[bytes] = set()
        self._held: dict[_Copy, float] = {}
        self._acked_of_queue: dict[tuple[str, int], set[int]] = {}

    @property
    def is_complete(self) -> bool:
        """Whether all that was acknowledged to a sender is acked by a consumer, as far as it knows.

        A broker may honour an ack that came late, or whose confirmation was lost.
        """
        return self.sent <= {body for body, _ in self.acked} | self.maybe_acked

    def deliver(self, message: PoppedMessage, now_s: float) -> None:
        """Judge one delivery."""
        body, copy = message.body, _copy(message)
        before = self.acked.get(copy)
        if before is not None and body not in self.unsure:
            # What the broker forgot, or had in two places when it ended: both are given back.
            born_s, acked_s = message.ext.born_timestamp_ms / 1000, before[1]
            assert any(born_s < end_s < acked_s + UNWRITTEN_S for end_s in self.ends_s), (
                f"{body[:8]!r} was acked and came again: {before}, at {now_s}, {self.ends_s}"
            )
        until_s = self._held.get(copy, 0.0)
        # What was in play when the broker ended (popped by one who was cut off, perhaps) may be
        # there twice from then on, and each copy goes its own way.
        is_doubled = any(message.ext.born_timestamp_ms / 1000 < end_s for end_s in self.ends_s)
        assert now_s >= until_s or is_doubled, (
            f"{body[:8]!r} came at {now_s} while somebody had it: {until_s}, "
            f"{message.properties['POP_CK']}, {self.ends_s}"
        )
        handle = parse_handle(message.properties["POP_CK"])
        self._held[copy] = (handle.pop_time_ms + handle.invisible_ms) / 1000
        if self.ordered:
            queue = message.queue.broker_name, message.queue.queue_id
            done = self._acked_of_queue.setdefault(queue, set())
            missing = set(range(message.offset)) - done
            assert not missing, f"{message!r} came before {sorted(missing)[:3]}"

    def until_s(self, message: PoppedMessage) -> float:
        """Until when somebody has it."""
        return self._held[_copy(message)]

    def keep(self, message: PoppedMessage, until_s: float) -> None:
        """Somebody has it for another time."""
        self._held[_copy(message)] = until_s

    def handle(self, message: PoppedMessage) -> None:
        """Its handler is about to ack it: from here on it may count as acked."""
        queue = message.queue.broker_name, message.queue.queue_id
        self._acked_of_queue.setdefault(queue, set()).add(message.offset)

    def ack(self, message: PoppedMessage, popped_s: float, now_s: float) -> None:
        """The broker confirmed an ack, in the message's time."""
        self.acked.setdefault(_copy(message), (popped_s, now_s))


class PopWorld(ClusterWorld):
    """One seed.

    Args:
        cluster: with one broker.
        sync: SYNC_FLUSH; power is lost only then.
        ordered: pop in order.
    """

    def __init__(self, cluster: SimCluster, *, sync: bool, ordered: bool) -> None:
        super().__init__(cluster, sync=sync)
        self.ordered = ordered
        self.pops = PopHistory(ordered)

    @property
    def now_s(self) -> float:
        """Wall time."""
        return self.cluster.clock.time_ms() / 1000

    async def run(self) -> None:
        """Send and pop through the trouble, then mend everything and judge."""
        self.cluster.create_topic(TOPIC, QUEUES)
        self._ends_s = self.cluster.loop.time() + 40.0
        clients = [self.world.client() for _ in range(PRODUCERS + CONSUMERS)]
        for client in clients:
            await client.start()
        for client in clients[PRODUCERS:]:
            consumer = client.pop_consumer(
                TOPIC,
                group="g",
                handler=self._handle,
                start="earliest",
                invisible_s=INVISIBLE_S,
                ordered=self.ordered,
                concurrency=1 if self.ordered else 4,
                pop_batch=1 if self.ordered else 8,
                max_in_hand=1 if self.ordered else 16,
                poll_ms=5_000,
            )
            await consumer.start()
        sending = [
            asyncio.ensure_future(self._send(number, clients[number].producer(retries=0)))
            for number in range(PRODUCERS)
        ]
        await self._make_trouble()
        await asyncio.gather(*sending)
        await self._mend()
        self.pops.sent = {body_of(*name) for name in self.history.acknowledged}
        await self.world.until(lambda: self.pops.is_complete or bool(self._broken), _MENDED_S)
        if self._broken:
            raise self._broken[0]
        for client in clients:
            await client.close()
        assert not self.cluster.loop.errors, self.cluster.loop.errors

    async def _handle(self, message: PoppedMessage) -> None:
        popped_s = self.now_s
        try:
            self.pops.deliver(message, popped_s)
        except AssertionError as error:  # the consumer would take it for a handler's failure
            self._broken.append(error)
        self.counts["delivered"] += 1
        chance = self.rng.random()
        if chance < 0.1:
            self.counts["failed"] += 1
            self.pops.keep(message, 0.0)
            raise ValueError("not this time")
        if chance < 0.15:
            self.counts["too slow"] += 1
            await asyncio.sleep(INVISIBLE_S + 5)
            return
        if chance < 0.25:
            await self._keep(message)
        await asyncio.sleep(self.rng.choice([0, 0.01, 0.3]))
        self.pops.handle(message)
        until_s = self.pops.until_s(message)
        try:
            await message.ack()
        except RocketPyError:
            self.counts["ack failed"] += 1
            self.pops.maybe_acked.add(message.body)
            return
        self.pops.maybe_acked.add(message.body)
        if self.now_s < until_s:  # a later one may count for nothing, and says so to nobody
            self.pops.ack(message, popped_s, self.now_s)
            self.counts["acked"] += 1

    async def _keep(self, message: PoppedMessage) -> None:
        self.counts["kept"] += 1
        until_s = self.now_s + INVISIBLE_S
        try:
            await message.change_invisible(INVISIBLE_S)
        except RocketPyError:
            self.counts["not kept"] += 1
            self.pops.unsure.add(message.body)  # its handle may be another one by now
        else:
            self.pops.keep(message, until_s)

    async def _start_again(self, broker: SimBroker) -> None:
        self.pops.ends_s.append(self.now_s)
        await super()._start_again(broker)
        self.pops.ends_s.append(self.now_s)

    async def _set_clock(self, broker: SimBroker) -> None:
        """Invisible times are wall time: what is early could not be told."""


def run_seed(seed: int) -> Counter[str]:
    """Run one seed and return what happened."""
    sync, ordered = seed % 2 == 0, seed % 4 >= 2

    async def scenario(cluster: SimCluster) -> Counter[str]:
        world: Any = PopWorld(cluster, sync=sync, ordered=ordered)
        await world.run()
        return world.counts

    properties = {
        "flushDiskType": "SYNC_FLUSH" if sync else "ASYNC_FLUSH",
        "enablePopBufferMerge": "false",
    }
    return run_simulation(scenario, seed=seed, properties=properties)
