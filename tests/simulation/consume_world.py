"""Consumption simulation of one seed: failing and returning members and brokers, and the checker.

Producers send with keys. Members of one group consume, concurrently, in order of the queues or of
the keys; their handlers fail at random, ask for delays and for the dead letters, give back by
hand, or take long. Meanwhile members are killed, closed and started, brokers are killed or lose
power, hosts are parted. Then everything is mended and nothing fails any more. Judged:

- "is lost": every acknowledged message was handled with success, or is among the dead letters;
- "is invented": only what was sent is handled;
- "two handlers": in order, a queue (or a key) is never in two live handlers, unless one of them
  has hung for longer than its member could keep the lock, or a broker, which keeps locks in memory
  as Apache's does, has forgotten it in a restart less than a lock's life ago;
- "order": in order, nothing is handled before its predecessors are handled or given up.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from rocketpy.client.client import Client
from rocketpy.client.messages.message import ReceivedMessage
from rocketpy.client.messages.outcomes import Retry, ToDLQ
from rocketpy.errors import RocketPyError
from rocketpy.testing.sim_cluster import SimBroker, SimCluster, run_simulation
from rocketpy.testing.sim_loop import SimProcess

TOPIC = "t"
GROUP = "g"
QUEUES = 4
KEYS = 6
MEMBERS = 3
MODES = ("concurrent", "ordered", "by_key")
_TROUBLE_S = 90.0
_MENDED_S = 1_800.0
_HUNG_S = 25.0
_LOCK_LIFE_S = 30.0
# Short, so that sixteen tries fit into a seed.
_DELAYS = " ".join(f"{level}s" for level in range(1, 19))


class Member:
    """Member slot of a group; its consumer may die and be replaced."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.process: SimProcess | None = None
        self.client: Client | None = None
        self.consumer: Any = None
        self.lives = 0


class ConsumeWorld:
    """Simulated run of one seed.

    Attributes:
        counts: how often each thing happened.
    """

    def __init__(self, cluster: SimCluster, mode: str, *, sync: bool) -> None:
        self.cluster = cluster
        self.mode = mode
        self.sync = sync
        self.rng = cluster.loop.rng
        self.counts: Counter[str] = Counter()
        self.sent: set[bytes] = set()
        self.acknowledged: dict[bytes, tuple[Any, str]] = {}
        self.done: set[bytes] = set()
        self.dead: set[bytes] = set()
        self._in_hand: dict[Any, tuple[SimProcess | None, float]] = {}
        self._stored: dict[Any, list[tuple[int, bytes]]] = defaultdict(list)
        self._broken: list[AssertionError] = []
        self._mended = False
        self._members = [Member(number) for number in range(MEMBERS)]
        self._ends_s = 0.0
        self._restarted_s = -_LOCK_LIFE_S

    async def run(self) -> None:
        """Send and consume through the trouble, then mend everything and judge."""
        self.cluster.create_topic(TOPIC, QUEUES)
        self._ends_s = self.cluster.loop.time() + _TROUBLE_S
        undertaker = self.cluster.client()
        await undertaker.start()
        await undertaker.consumer(
            f"%DLQ%{GROUP}", group="undertaker", handler=self._bury, start="earliest"
        ).start()
        for member in self._members:
            await self._start(member)
        senders = [self.cluster.client() for _ in range(2)]
        for client in senders:
            await client.start()
        sending = [asyncio.ensure_future(self._send(n, each)) for n, each in enumerate(senders)]
        await self._make_trouble()
        await asyncio.gather(*sending)
        await self._mend()
        await self._until_complete()
        for member in self._members:
            await self._close(member)
        for client in [*senders, undertaker]:
            await client.close()
        self.counts["dead"] = len(self.dead)
        self.counts["done"] = len(self.done)

    async def _until_complete(self) -> None:
        deadline_s = self.cluster.loop.time() + _MENDED_S
        while not self._broken:
            missing = self.acknowledged.keys() - self.done - self.dead
            if not missing:
                return
            some = sorted(missing)[:5]
            assert self.cluster.loop.time() < deadline_s, f"is lost: {len(missing)}, as {some}"
            await asyncio.sleep(1.0)
        raise self._broken[0]

    # -- clients -----------------------------------------------------------------------------

    async def _send(self, number: int, client: Client) -> None:
        producer = client.producer()
        count = 0
        while self.cluster.loop.time() < self._ends_s:
            key = f"{number}.{self.rng.randrange(KEYS)}"
            body = f"{key}/{count}".encode()
            count += 1
            self.sent.add(body)
            try:
                result = await producer.send(TOPIC, body, order_key=key, timeout=10)
            except RocketPyError:
                self.counts["send failed"] += 1
            else:
                self.acknowledged[body] = (result.queue, key)
                lane = result.queue if self.mode == "ordered" else (result.queue, key)
                self._stored[lane].append((result.offset, body))
            await asyncio.sleep(self.rng.choice([0.0, 0.1, 0.5]))

    async def _start(self, member: Member) -> None:
        member.lives += 1
        member.process = SimProcess(f"member-{member.number}-{member.lives}")
        await member.process.spawn(self._run_member(member))

    async def _run_member(self, member: Member) -> None:
        member.client = self.cluster.client()
        await member.client.start()
        options: dict[str, Any] = {
            "concurrent": {},
            "ordered": {"ordered": True, "ordered_retry_pause": 0.5},
            "by_key": {"order_by_key": True, "ordered_retry_pause": 0.5},
        }[self.mode]

        async def handler(message: ReceivedMessage) -> None:
            await self._handle(member, message)

        member.consumer = member.client.consumer(
            TOPIC, group=GROUP, handler=handler, start="earliest", max_retries=4,
            consume_timeout=60, **options,
        )  # fmt: skip
        await member.consumer.start()

    async def _close(self, member: Member) -> None:
        if member.process is None or member.client is None:
            return
        await member.process.spawn(member.client.close())
        member.process.kill()
        member.process = None

    # -- what a member does ------------------------------------------------------------------

    async def _handle(self, member: Member, message: ReceivedMessage) -> None:
        process = member.process
        try:
            lane = self._enter(message, process)
        except AssertionError as error:  # the consumer would take it for a handler's failure
            self._broken.append(error)
            return
        try:
            await asyncio.sleep(self.rng.choice([0.0, 0.05, 1.0]))
            await self._fail(message)
        finally:
            if lane is not None and self._in_hand.get(lane, (None, 0))[0] is process:
                del self._in_hand[lane]
        self.done.add(message.body)

    def _enter(self, message: ReceivedMessage, process: SimProcess | None) -> Any:
        assert message.body in self.sent, f"is invented: {message.body!r}"
        assert message.topic == TOPIC, message.topic
        if self.mode == "concurrent" or message.queue.topic != TOPIC:
            return None
        key = message.body.partition(b"/")[0].decode()
        lane = message.queue if self.mode == "ordered" else (message.queue, key)
        now_s = self.cluster.loop.time()
        other, since_s = self._in_hand.get(lane, (None, 0.0))
        is_forgotten = since_s < self._restarted_s + _LOCK_LIFE_S
        is_free = other is None or not other.is_alive or now_s - since_s > _HUNG_S or is_forgotten
        assert is_free, f"two handlers: {lane}"
        self._in_hand[lane] = (process, now_s)
        before = {body for offset, body in self._stored[lane] if offset < message.offset}
        before -= self.done | self.dead
        if before and not all(broker.is_running for broker in self.cluster.brokers):
            return lane  # the dead letters, which may explain it, cannot be read now
        if before:
            before -= self._given_up
        assert not before, f"order: {message.body!r} is handled before {sorted(before)[:3]}"
        return lane

    @property
    def _given_up(self) -> set[bytes]:
        """Bodies in the dead letter queue, which the undertaker may not have read yet."""
        found: set[bytes] = set()
        for broker in self.cluster.brokers:
            store = broker.broker.parts.store
            topic = f"%DLQ%{GROUP}"
            for offset in range(store.max_offset(topic, 0)):
                found |= {
                    each.tobytes() for each in store.get_message(topic, 0, offset, 1, 1).buffers
                }
        return {body for body in self.sent if any(body in record for record in found)}

    async def _fail(self, message: ReceivedMessage) -> None:
        if self._mended:
            return
        luck = self.rng.random()
        if luck < 0.10:
            self.counts["failed"] += 1
            raise ValueError("no")
        if luck < 0.13:
            raise Retry(self.rng.randrange(4))
        if luck < 0.15:
            raise ToDLQ("hopeless")
        if luck < 0.17 and self.mode == "concurrent":
            self.counts["nack"] += 1
            await message.nack(1)
            raise ValueError("given back already")
        if luck < 0.172:
            self.counts["hangs"] += 1
            await asyncio.sleep(70)

    async def _bury(self, message: ReceivedMessage) -> None:
        self.dead.add(message.body)

    # -- trouble -----------------------------------------------------------------------------

    async def _make_trouble(self) -> None:
        kinds: list[Callable[[], Awaitable[None]]] = [
            self._kill_member,
            self._kill_member,
            self._close_member,
            self._kill_broker,
            self._part,
            self._cut,
        ]
        kinds = self.rng.sample(kinds, self.rng.randint(2, 6))
        while self.cluster.loop.time() < self._ends_s:
            await asyncio.sleep(self.rng.uniform(0.5, 12.0))
            kind = self.rng.choice(kinds)
            self.counts[kind.__name__] += 1
            await kind()

    async def _kill_member(self) -> None:
        member = self.rng.choice(self._members)
        if member.process is None or member.client is None:
            return
        member.process.kill()
        member.process = None
        host = member.client.client_id.partition("@")[0]
        self.cluster.network.host(host).kill_process()
        await asyncio.sleep(self.rng.choice([0.1, 5.0]))
        await self._start(member)

    async def _close_member(self) -> None:
        member = self.rng.choice(self._members)
        await self._close(member)
        await asyncio.sleep(self.rng.choice([0.1, 5.0]))
        if member.process is None:
            await self._start(member)

    async def _kill_broker(self) -> None:
        broker: SimBroker = self.rng.choice(self.cluster.brokers)
        if self.sync and self.rng.random() < 0.5:
            self.counts["power"] += 1
            broker.lose_power()
        else:
            broker.kill()
        await asyncio.sleep(self.rng.choice([0.1, 3.0]))
        await broker.start()
        self._restarted_s = self.cluster.loop.time()

    async def _part(self) -> None:
        """A member, or a broker, is alone for a while."""
        names = ["10.0.0.1", *(each.host.name for each in self.cluster.brokers)]
        members = [
            each.client.client_id.partition("@")[0]
            for each in self._members
            if each.client is not None
        ]
        alone = self.rng.choice([*names[1:], *members])
        others = [name for name in [*names, *members, "10.0.1.1"] if name != alone]
        self.cluster.network.partition([alone], others)
        await asyncio.sleep(self.rng.choice([0.5, 5.0, 70.0]))
        self.cluster.network.heal()

    async def _cut(self) -> None:
        self.cluster.network.cut_one()

    async def _mend(self) -> None:
        self._mended = True
        self.cluster.network.heal()
        for broker in self.cluster.brokers:
            if not broker.is_running:
                await broker.start()
        for member in self._members:
            if member.process is None:
                await self._start(member)


def run_seed(seed: int) -> Counter[str]:
    """Run one seed and return what happened."""
    sync = seed % 2 == 0
    mode = MODES[seed % 3]

    async def scenario(cluster: SimCluster) -> Counter[str]:
        world = ConsumeWorld(cluster, mode, sync=sync)
        await world.run()
        return world.counts

    properties = {
        "flushDiskType": "SYNC_FLUSH" if sync else "ASYNC_FLUSH",
        "messageDelayLevel": _DELAYS,
    }
    return run_simulation(scenario, seed=seed, brokers=1 + seed % 2, properties=properties)
