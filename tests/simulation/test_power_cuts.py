"""The whole store under seeds: puts, reads, flushes that fail, full disks, power cuts, kills.

SYNC_FLUSH: nothing acknowledged and nothing ever seen by a consumer is lost. ASYNC_FLUSH: what a
power cut takes is a suffix of the log, and never what was flushed. Always: nothing is invented,
order per queue is kept, every entry of a consume queue agrees with the log, and every message is
found by its keys.

``SEED=7`` runs one seed; ``SIM_SEEDS=5000`` runs more of them.
"""

import os
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessageResult, PutMessageStatus
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import SimFiles
from tests.simulation.ledger import (
    QUEUES,
    TOPIC,
    Ledger,
    Place,
    check_kept,
    check_lookups,
    check_order,
    read_all,
)

SEEDS = int(os.environ.get("SIM_SEEDS", "400"))
CHUNKS = 8
ROOT = Path("/store")


def config(rng: random.Random, *, sync: bool) -> MessageStoreConfig:
    return MessageStoreConfig(
        store_path_root_dir=str(ROOT),
        flush_disk_type="SYNC_FLUSH" if sync else "ASYNC_FLUSH",
        mapped_file_size_commit_log=rng.choice([4096, 8192, 16384]),
        mapped_file_size_consume_queue=rng.choice([200, 400, 8000]),
        max_hash_slot_num=rng.choice([3, 50]),
        max_index_num=rng.choice([20, 100]),
        max_msgs_num_batch=1_000,
        flush_consume_queue_thorough_interval=rng.choice([0, 500, 60_000]),
        flush_commit_log_least_pages=rng.choice([0, 1, 4]),
        timer_wheel_enable=False,
    )


@dataclass
class World:
    """One seed: a disk, a clock, the store of the moment, and what is known about it."""

    seed: int
    rng: random.Random
    sync: bool
    config: MessageStoreConfig
    clock: SimClock = field(default_factory=SimClock)
    ledger: Ledger = field(default_factory=Ledger)
    seen: dict[int, Place] = field(default_factory=dict)
    next_number: int = 0
    flushed_phy_offset: int = 0
    failed_flush: bool = False
    disk_is_full: bool = False

    def __post_init__(self) -> None:
        self.files = SimFiles(self.clock)
        self.store = self.open()

    def open(self) -> MessageStore:
        store = MessageStore(self.config, clock=self.clock, files=self.files)
        store.open()
        self.due_ms = dict.fromkeys((service.name for service in store.services), 0)
        return store

    # -- what can happen -------------------------------------------------------------------

    def put(self) -> None:
        count = self.rng.choice([1, 1, 1, 2, 5])
        numbers = list(range(self.next_number, self.next_number + count))
        self.next_number += count + self.rng.randrange(8)
        result = self.ledger.put(self.store, numbers, as_batch=count > 1)
        if result.status is PutMessageStatus.PUT_OK:
            self.acknowledge(numbers, result)
        else:
            assert self.disk_is_full or self.failed_flush, result

    def acknowledge(self, numbers: list[int], result: PutMessageResult) -> None:
        if not self.sync:
            self.ledger.acknowledged.update(numbers)
            return

        def answered(is_durable: bool) -> None:
            if is_durable:
                self.ledger.acknowledged.update(numbers)

        self.store.when_durable(result.phy_end, answered)

    def run_services(self) -> None:
        """Run some services that are due, in any order."""
        self.clock.advance(self.rng.choice([0, 1, 5, 100, 700, 4_000]))
        services = list(self.store.services)
        self.rng.shuffle(services)
        for service in services[: self.rng.randint(1, len(services))]:
            if self.due_ms[service.name] <= self.clock.monotonic_ms() or self.rng.random() < 0.3:
                self.due_ms[service.name] = service.step(self.clock.monotonic_ms())
        self.flushed_phy_offset = self.store.flushed_phy_offset

    def consume(self) -> None:
        """A consumer reads everything that it may see."""
        places = read_all(self.store)
        check_order(places)
        for place in places:
            assert self.ledger.placed[place.number] == place
            assert self.seen.setdefault(place.number, place) == place
        if self.sync and places:
            last = max(places, key=lambda place: place.phy_offset)
            assert last.phy_offset < self.store.flushed_phy_offset, f"seen before flushed: {last}"

    def fill_disk(self) -> None:
        self.disk_is_full = not self.disk_is_full
        self.files.capacity_bytes = 0 if self.disk_is_full else None

    def fail_flush(self) -> None:
        """The disk fails from now on: nothing further is ever acknowledged in this life."""
        self.failed_flush = True
        self.files.fail_flushes()

    # -- ends of a life --------------------------------------------------------------------

    def end_life(self) -> None:
        assert not self.files.unallocated_writes()
        self.disk_is_full = False
        self.files.capacity_bytes = None
        end = self.rng.choice(["close", "kill", "cut", "cut", "cut"])
        if end == "close" and not self.failed_flush:
            self.store.close()
            self.ledger.acknowledged.update(self.ledger.placed)
        elif end == "kill" and not self.failed_flush:
            self.files.kill()
            self.ledger.acknowledged.update(self.ledger.placed)
        else:
            self.files.power_cut(self.rng)
            if not self.sync:
                self.ledger.acknowledged = {
                    number
                    for number, place in self.ledger.placed.items()
                    if place.phy_offset < self.flushed_phy_offset
                }
        self.files.on_flush = None
        self.failed_flush = False
        self.clock.advance(self.rng.choice([10, 1_000, 100_000]))
        self.store = self.open()
        self.check()

    def check(self) -> None:
        """The reopened store kept every promise."""
        places = read_all(self.store)
        check_order(places)
        end = self.store.max_phy_offset
        assert end >= self.flushed_phy_offset, "flushed bytes are lost"
        self.ledger.forget_unacknowledged_after(end)
        check_kept(self.ledger, places)
        assert {place.number for place in places} == set(self.ledger.placed), "a hole, not a suffix"
        assert len(places) == sum(
            self.store.max_offset(TOPIC, queue_id) - max(0, self.store.min_offset(TOPIC, queue_id))
            for queue_id in range(QUEUES)
        )
        if self.sync:
            by_number = {place.number: place for place in places}
            for number, place in self.seen.items():
                assert by_number.get(number) == place, f"a consumer saw {place}, and it is gone"
        self.seen = {place.number: place for place in places}
        self.catch_up()
        check_lookups(self.store, places)

    def catch_up(self) -> None:
        service = next(each for each in self.store.services if each.name == "IndexCatchUpService")
        for _ in range(1_000):
            if service.step(self.clock.monotonic_ms()) > self.clock.monotonic_ms():
                return
        pytest.fail("the index never catches up")


def run_seed(seed: int) -> World:
    rng = random.Random(seed)
    sync = seed % 2 == 0
    world = World(seed, rng, sync, config(rng, sync=sync))
    weights = {
        world.put: 12,
        world.run_services: 6,
        world.consume: 2,
        world.fill_disk: rng.choice([0, 0, 1]),
        world.fail_flush: rng.choice([0, 0, 0, 0.3]),
    }
    for _ in range(rng.randint(2, 4)):
        for _ in range(rng.randint(5, 60)):
            (action,) = rng.choices(list(weights), list(weights.values()))
            action()
        world.end_life()
    return world


def seeds_of(chunk: int) -> range:
    if "SEED" in os.environ:
        seed = int(os.environ["SEED"])
        return range(seed, seed + 1) if chunk == 0 else range(0)
    return range(chunk, SEEDS, CHUNKS)


@pytest.mark.timeout(60 + SEEDS)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_promise_holds_under_every_seed(chunk: int) -> None:
    for seed in seeds_of(chunk):
        try:
            run_seed(seed)
        except Exception as error:
            error.add_note(f"rerun with SEED={seed}")
            raise


def test_the_simulation_reaches_what_it_is_about() -> None:
    """Of the seeds some lose a tail, some keep thousands of messages, some roll files."""
    worlds = [run_seed(seed) for seed in range(12)]
    assert sum(len(world.ledger.placed) for world in worlds) > 200
    assert any(world.next_number > len(world.ledger.placed) for world in worlds)
    assert any(world.store.max_phy_offset > 3 * 4096 for world in worlds)
