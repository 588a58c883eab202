"""Delayed and timed messages under seeds: brokers are killed, lose power and are stopped.

A producer sends messages with delay levels and with moments, and calls some of them back, while a
broker with SYNC_FLUSH ends in every way, also in the middle of a change of its disk, and its wall
clock is set both ways, or while it and the producer are parted now and then. Judged at the end:
every acknowledged message that was not called back is delivered, none before its time. Where a
clock was set, a message is early when neither that clock says that it is due nor so much time has
gone by. A delay begins when the broker gets the message, by the broker's clock: what was on its way
when that was set may be due by either.
"""

import asyncio
import contextlib
import itertools
from collections import Counter

import pytest

from rocketpy.broker.operation.scheduling.delivery_time import due_ms
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.broker.timer import slot_reader
from rocketpy.client.producer.producer import Producer
from rocketpy.errors import RocketPyError
from rocketpy.proto.record.message import MessageExt, decode_message
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from rocketpy.testing.sim_cluster import SimBroker, SimCluster, run_simulation
from rocketpy.testing.sim_files import ProcessEndedError
from tests.simulation.seeds import run_seeds, seed_count, seeds_of

SEEDS = seed_count(8)
CHUNKS = 4
TEST = "tests/simulation/test_later.py::test_nothing_is_lost_or_early_under_any_seed"
TOPIC, QUEUES = "t", 2
CLIENT = "10.0.1.1"
_TROUBLE_S = 30.0
_CLOCK_STEPS_MS = (-60_000, -5_000, -1_500, 1_500, 5_000, 60_000)
_LOOK_S = 0.02
_EVERY_END = ("kill", "power", "stop", "operation", "clock")
_PARTED = ("part", "part", "kill", "power", "operation")
_SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "messageDelayLevel": "1s 3s 8s",
    "timerRollWindowSlot": "10",
    "mappedFileSizeTimerLog": "4096",
    "recallMessageEnable": "true",
}


class LaterWorld:
    """Simulated run of one seed.

    Attributes:
        counts: how often each thing happened.
        twice: what was delivered more than once, at the end.
    """

    def __init__(self, cluster: SimCluster, ways: tuple[str, ...]) -> None:
        self._ways = ways
        self.cluster = cluster
        self.rng = cluster.loop.rng
        self.counts: Counter[str] = Counter()
        self.twice: list[bytes] = []
        self.acknowledged: dict[bytes, float] = {}
        self.recalled: set[bytes] = set()
        self._ends_s = 0.0
        self._began_s: dict[bytes, float] = {}
        # The earliest moment at which the broker's clock may say that each is due.
        self._due_ms: dict[bytes, int] = {}
        self._looked_to = [0] * QUEUES
        self._set_by_ms = 0
        # What the clock said when it was set last, and up to where the log of which life went then.
        self._before_ms, self._before_end, self._before_life = 0, 0, object()

    @property
    def broker(self) -> SimBroker:
        return self.cluster.brokers[0]

    async def run(self) -> None:
        self.cluster.create_topic(TOPIC, QUEUES)
        self._ends_s = self.cluster.loop.time() + _TROUBLE_S
        async with self.cluster.client() as client:
            sending = asyncio.ensure_future(self._send(client.producer()))
            looking = asyncio.ensure_future(self._look_again_and_again())
            await self._make_trouble()
            await sending
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking
        self._set_clock(-self._set_by_ms)
        if self.broker.is_running:
            self.broker.files.start_process()
        else:
            await self.broker.start()
        async with asyncio.timeout(300):
            while not self.wanted <= {each.body for each in self.delivered()}:  # noqa: ASYNC110
                await asyncio.sleep(1)
        self._judge()
        assert not self.cluster.loop.errors, self.cluster.loop.errors

    @property
    def wanted(self) -> set[bytes]:
        return self.acknowledged.keys() - self.recalled

    def delivered(self) -> list[MessageExt]:
        return [each for queue_id in range(QUEUES) for each in self._read(queue_id, 0)]

    def _read(self, queue_id: int, offset: int) -> list[MessageExt]:
        found: list[MessageExt] = []
        store = self.broker.broker.parts.store
        while offset < store.max_offset(TOPIC, queue_id):
            read = store.get_message(TOPIC, queue_id, offset, 32, 1 << 20)
            found += [decode_message(bytes(each)) for each in read.buffers]
            offset = read.next_begin_offset
        return found

    async def _look_again_and_again(self) -> None:
        while True:
            self._look()
            await asyncio.sleep(_LOOK_S)

    def _look(self) -> None:
        """Judge what was delivered since the last look."""
        if not self.broker.is_running:
            return
        wall_ms, now_s = self.broker.clock.time_ms(), self.cluster.loop.time()
        for queue_id, offset in enumerate(self._looked_to):
            for each in self._read(queue_id, offset):
                self._looked_to[queue_id] = each.queue_offset + 1
                due_ms, delay_ms = self._due_ms[each.body], int(each.body.split()[2])
                passed_ms = (now_s - self._began_s[each.body]) * 1_000
                clock_ms = max(wall_ms, self._before_ms) if self._was_there(each) else wall_ms
                is_early = clock_ms < due_ms and passed_ms < delay_ms
                assert not is_early, f"{due_ms - clock_ms} and {delay_ms - passed_ms} ms early"

    def _was_there(self, message: MessageExt) -> bool:
        """Whether it was in the log when the clock was set, though not yet to be seen."""
        return self._before_life is self.broker.broker and message.phy_offset < self._before_end

    def _set_clock(self, change_ms: int) -> None:
        self._look()
        if self.broker.is_running:
            self._before_ms = self.broker.clock.time_ms()
            self._before_end = self.broker.broker.parts.store.max_phy_offset
            self._before_life = self.broker.broker
        self.broker.clock.jump(change_ms)
        self._set_by_ms += change_ms
        for body in self._began_s.keys() - self.acknowledged.keys():
            due_ms = self.broker.clock.time_ms() + int(body.split()[2])
            self._due_ms[body] = min(self._due_ms[body], due_ms)

    def _judge(self) -> None:
        self._look()
        for each in self.delivered():
            due_ms = int(each.body.split()[1])
            early_ms = due_ms - each.store_timestamp_ms
            assert early_ms <= 0 or self.counts["clock"], f"{early_ms} ms early"
        # A recall counts when it is in the wheel before its message is due: not over an outage.
        self.counts["recalled"] = len(self.recalled - {each.body for each in self.delivered()})
        self.twice = [
            body for body, times in Counter(m.body for m in self.delivered()).items() if times > 1
        ]

    async def _send(self, producer: Producer) -> None:
        number = 0
        while self.cluster.loop.time() < self._ends_s:
            number += 1
            kind = self.rng.choice(("level", "delay", "recall"))
            level = self.rng.randint(1, 3)
            delay_ms = (1_000, 3_000, 8_000)[level - 1]
            if kind != "level":
                delay_ms = self.rng.randint(1, 25_000)
            due_ms = self.broker.clock.time_ms() + delay_ms
            body = b"%d %d %d" % (number, due_ms, delay_ms)
            self._began_s[body], self._due_ms[body] = self.cluster.loop.time(), due_ms
            try:
                if kind == "level":
                    await producer.send(TOPIC, body, delay_level=level, timeout=10)
                else:
                    sent = await producer.send(TOPIC, body, delay=delay_ms / 1_000, timeout=10)
                    if kind == "recall" and delay_ms > 15_000 and sent.recall_handle:
                        await producer.recall(TOPIC, sent.recall_handle)
                        self.recalled.add(body)
            except RocketPyError:
                self.counts["failed"] += 1
            else:
                self.acknowledged[body] = due_ms
                self.counts[kind] += 1
            await asyncio.sleep(self.rng.choice([0, 0.05, 0.5]))

    async def _make_trouble(self) -> None:
        while self.cluster.loop.time() < self._ends_s:
            await asyncio.sleep(self.rng.uniform(0.5, 8.0))
            kind = self.rng.choice(self._ways)
            self.counts[kind] += 1
            if not self.broker.is_running:
                await self._start_again()  # it ended in the middle of its work meanwhile
            elif kind == "kill":
                self.broker.kill()
            elif kind == "power":
                self.broker.lose_power()
            elif kind == "stop":
                await self.broker.stop()
            elif kind == "part":
                await self._part()
            elif kind == "clock":
                self._set_clock(self.rng.choice(_CLOCK_STEPS_MS))
            else:
                self.broker.end_after(self.rng.randrange(40), power=self.rng.random() < 0.5)
                await asyncio.sleep(3)
                if self.broker.is_running:
                    self.broker.files.start_process()
                    continue
            if not self.broker.is_running:
                await self._start_again()

    async def _part(self) -> None:
        """The broker is alone for a while: what is on its way, requests or responses, is lost."""
        others = ["10.0.0.1", CLIENT]
        alone = self.rng.choice([self.broker.host.name, CLIENT])
        rest = [each for each in (self.broker.host.name, *others) if each != alone]
        self.cluster.network.partition([alone], rest)
        await asyncio.sleep(self.rng.choice([0.5, 5.0, 12.0]))
        self.cluster.network.heal()

    async def _start_again(self) -> None:
        while True:
            await asyncio.sleep(self.rng.choice([0.1, 1.0, 4.0]))
            ends_again = len(self._ways) > 1 and self.rng.random() < 0.3
            try:
                end_after = self.rng.randrange(30) if ends_again else None
                await self.broker.start(end_after=end_after, power=True)
            except ProcessEndedError:
                self.counts["ended in start"] += 1
            else:
                return


def run(seed: int) -> Counter[str]:
    """Run one seed."""
    return _world_of(seed).counts


def _world_of(seed: int, ways: tuple[str, ...] = _EVERY_END) -> LaterWorld:
    async def scenario(cluster: SimCluster) -> LaterWorld:
        world = LaterWorld(cluster, ways)
        await world.run()
        return world

    return run_simulation(scenario, seed=seed, properties=_SETTINGS)


@pytest.mark.timeout(120 + 20 * SEEDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_nothing_is_lost_or_early_under_any_seed(chunk: int) -> None:
    run_seeds(run, seeds_of(chunk, SEEDS, CHUNKS), TEST)


@pytest.mark.parametrize("seed", [8225, 9030])
def test_seeds_that_found_something(seed: int) -> None:
    """A clock set between a send and its arrival; the first piece of a long wait, passed by."""
    run(seed)


@pytest.mark.timeout(300)
def test_nothing_is_lost_or_early_when_hosts_are_parted() -> None:
    counts: Counter[str] = Counter()
    for seed in range(7):
        counts += _world_of(seed, _PARTED).counts
    assert counts["part"] >= 6
    assert counts["failed"] > 0


def test_judge_notices_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of the check: a delivery in ten is forgotten."""
    put, count = SystemWriter.put, itertools.count()

    def forgetful(self: SystemWriter, message: PutMessage) -> PutMessageResult:
        if message.topic == TOPIC and next(count) % 10 == 9:
            return PutMessageResult(PutMessageStatus.PUT_OK, phy_offset=0)
        return put(self, message)

    monkeypatch.setattr(SystemWriter, "put", forgetful)
    with pytest.raises(TimeoutError):
        run(1)


def test_judge_notices_what_is_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_reader, "due_ms", lambda *given: due_ms(*given) - 300)
    with pytest.raises(AssertionError, match="ms early"):
        run(1)


@pytest.mark.parametrize("seed", range(3))
def test_clean_stops_deliver_nothing_twice(seed: int) -> None:
    world = _world_of(seed, ("stop",))
    assert world.counts["stop"] > 0
    assert world.twice == []
    assert world.counts["recalled"] > 0
