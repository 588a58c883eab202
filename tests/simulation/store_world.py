"""Store simulation of one seed: disk, clock, current store and faults.

A seed lives several lives. In each of them messages of several topics are put, read, flushed;
topics are deleted and made again; disks fill up and fail, descriptors run out, the wall clock is
set. A life ends by a clean stop, a kill or a power cut, between two actions or in the middle of
one, also in the middle of `open`, and several times in a row.
"""

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocketpy.errors import ResourceShortError, StoreFormatError
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessageResult, PutMessageStatus
from rocketpy.testing.sim_clock import SimClock
from rocketpy.testing.sim_files import ProcessEndedError, SimFiles
from tests.simulation.store_history import (
    QUEUES,
    TOPICS,
    Found,
    History,
    Place,
    Sent,
    put_batch,
    put_message,
    read_all,
)

ROOT = Path("/store")

FAULTS = frozenset(
    {
        "delete",
        "deleted-stay",
        "clock-back",
        "end-in-open",
        "end-in-life",
        "descriptors",
        "space",
        "flush-error",
        "flip",
        "lost-file",
    }
)
"""Every kind of fault a seed may meet."""


def faults() -> frozenset[str]:
    """The kinds of fault in the mix of this run; `SIM_FAULTS=-flip,-space` leaves some out."""
    words = os.environ.get("SIM_FAULTS", "").split(",")
    return FAULTS - {word[1:] for word in words if word.startswith("-")}


def config(rng: random.Random, *, sync: bool) -> MessageStoreConfig:
    """Small files, so that a few messages fill several of them."""
    return MessageStoreConfig(
        store_path_root_dir=str(ROOT),
        flush_disk_type="SYNC_FLUSH" if sync else "ASYNC_FLUSH",
        mapped_file_size_commit_log=rng.choice([4096, 8192, 16384]),
        mapped_file_size_consume_queue=rng.choice([200, 400, 8000]),
        max_hash_slot_num=rng.choice([3, 50]),
        max_index_num=rng.choice([20, 100]),
        max_msgs_num_batch=1_000,
        flush_consume_queue_thorough_interval=rng.choice([0, 500, 60_000, 60_000]),
        flush_commit_log_least_pages=rng.choice([0, 1, 4]),
        clean_file_forcibly_enable=False,
    )


@dataclass
class StoreWorld:
    """Simulated run of one seed.

    Attributes:
        counts: how often each thing happened, to see what a seed mix reaches.
    """

    seed: int
    faults: frozenset[str] = field(default_factory=faults)
    counts: dict[str, int] = field(default_factory=dict)
    next_number: int = 0
    failed_flush: bool = False
    newest_ms: int = 0
    is_open: bool = False
    closed_at: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.sync = self.seed % 2 == 0
        self.config = config(self.rng, sync=self.sync)
        self.clock = SimClock()
        self.files = SimFiles(self.clock)
        self.history = History(self.sync, deleted_stay="deleted-stay" in self.faults)
        self.delete_at_end = self.rng.choice([0, 0.8])
        self.paces_ms = self.rng.choice([(0, 1, 5, 100, 700, 4_000), (0, 1, 900, 4_000, 15_000)])
        self.last_topic: str | None = None
        self.topics = TOPICS[: self.rng.choice([1, 2, 2, 4])]
        self.store = MessageStore(
            self.config, clock=self.clock, files=self.files, new_log_id=lambda: "0"
        )
        self.due_ms: dict[str, int] = {}
        self.weights = {self.put: 12.0, self.run_services: 6.0, self.consume: 2.0, **self._faults()}

    def run(self) -> None:
        """Live all lives of the seed."""
        self._open()
        for _ in range(self.rng.randint(2, 5)):
            try:
                if self._may("end-in-life") and self.rng.random() < 0.25:
                    self._end_after(self.rng.choice([10, 100, 400]))
                for _ in range(self.rng.randrange(self.rng.choice([4, 60, 60]))):
                    self._act()
                self._catch_up_with_clock()
                self._end_life()
            except ProcessEndedError:
                self._count("end-in-life")
            self._pause()
            self._open()

    def _act(self) -> None:
        (action,) = self.rng.choices(list(self.weights), list(self.weights.values()))
        action()

    def _catch_up_with_clock(self) -> None:
        """Often a clock that was set back passes the newest store time before the end."""
        if self.rng.random() < 0.3:
            return
        for _ in range(100):
            if self.clock.time_ms() > self.newest_ms:
                return
            self._act()

    def _faults(self) -> dict[Callable[[], None], float]:
        """Faults of a seed and their rates."""
        choice = self.rng.choice
        weights = {
            self.delete_topic: choice([0, 0, 0.4, 1.5]) * self._may("delete"),
            self.fill_disk: choice([0, 0, 1]) * self._may("space"),
            self.run_out_of_descriptors: choice([0, 0, 1]) * self._may("descriptors"),
            self.fail_flush: choice([0, 0, 0, 0.3]) * self._may("flush-error"),
            self.set_clock: choice([0, 0.1, 0.5]) * self._may("clock-back"),
        }
        return {action: weight for action, weight in weights.items() if weight}

    def _may(self, fault: str) -> bool:
        return fault in self.faults

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- what can happen in a life -----------------------------------------------------------

    def put(self) -> None:
        self._count("put")
        count = self.rng.choice([1, 1, 1, 2, 5])
        numbers = range(self.next_number, self.next_number + count)
        self.next_number += count
        topic = self.last_topic = self.rng.choice(self.topics)
        batch = self.history.begin_put(numbers, topic, self.rng.randrange(QUEUES))
        is_short = self._is_short()
        if count > 1:
            result = self.store.put_batch(put_batch(batch))
        else:
            result = self.store.put_message(put_message(batch[0]))
        if result.status is PutMessageStatus.PUT_OK:
            self.newest_ms = max(self.newest_ms, result.store_timestamp_ms)
            self._placed(batch, result)
            return
        self._count("refused")
        self.history.refused(batch)
        assert is_short or self.failed_flush, (
            f"refused with nothing wrong: {result.status}, {self.store.read_only_reason}"
        )

    def _placed(self, batch: list[Sent], result: PutMessageResult) -> None:
        phy_offsets = result.phy_offsets or (result.phy_offset,)
        for index, (sent, phy_offset) in enumerate(zip(batch, phy_offsets, strict=True)):
            self.history.placed(sent, Place(result.queue_offset + index, phy_offset))
        numbers = [each.number for each in batch]

        def answered(is_durable: bool) -> None:
            if is_durable:
                self.history.acknowledge(numbers)

        if self.sync:
            self.store.when_durable(result.phy_end, answered)

    def run_services(self) -> None:
        """Run some services that are due, in any order."""
        self.clock.advance(self.rng.choice(self.paces_ms))
        services = list(self.store.services)
        self.rng.shuffle(services)
        for service in services[: self.rng.randint(1, len(services))]:
            now_ms = self.clock.monotonic_ms()
            if self.due_ms.get(service.name, 0) > now_ms and self.rng.random() < 0.7:
                continue
            try:
                self.due_ms[service.name] = service.step(now_ms)
            except (OSError, ResourceShortError):  # the runner of a service logs it and tries again
                if not self._is_short():
                    raise
                self.due_ms[service.name] = now_ms + 1_000

    def consume(self) -> None:
        """A consumer reads everything that it may see."""
        self._count("consume")
        self.history.check_read(read_all(self.store), self.store.flushed_phy_offset)

    def delete_topic(self, topic: str | None = None) -> None:
        self._count("delete")
        topic = topic or self.rng.choice(self.topics)
        self.history.begin_delete(topic)
        self.store.delete_topics([topic])
        self.history.end_delete(topic)

    def set_clock(self) -> None:
        """The wall clock is set, and perhaps set right again later."""
        self._count("clock-back")
        self.clock.jump(
            self.rng.choice([-60_000, -20_000, -20_000, -10_000, -10_000, 5_000, 3_600_000])
        )

    def fill_disk(self) -> None:
        self._count("space")
        is_full = self.files.capacity_bytes is not None
        self.files.capacity_bytes = None if is_full else self.files.used_bytes
        self._settle()

    def run_out_of_descriptors(self) -> None:
        self._count("descriptors")
        is_out = self.files.descriptor_limit is not None
        left = self.rng.choice([0, 0, 1, 3])
        self.files.descriptor_limit = None if is_out else self.files.open_count + left
        self._settle()

    def fail_flush(self) -> None:
        """The disk fails from now on: nothing further is ever acknowledged in this life."""
        self._count("flush-error")
        self.failed_flush = True
        self.files.fail_flushes()

    def _is_short(self) -> bool:
        return self.files.capacity_bytes is not None or self.files.descriptor_limit is not None

    def _settle(self) -> None:
        """Once a resource is back, services get a while to notice it."""
        if not self._is_short():
            self.clock.advance(10_000)
            self._step_all()

    def _step_all(self) -> None:
        for service in self.store.services:
            service.step(self.clock.monotonic_ms())

    # -- the end of a life -------------------------------------------------------------------

    def _end_life(self) -> None:
        self.files.capacity_bytes = self.files.descriptor_limit = None
        assert not self.files.unallocated_writes()
        end = self.rng.choice(["close", "close", "kill", "cut", "cut", "cut"])
        if self.failed_flush:
            end = "cut"
        self._count(end)
        if end == "close":
            self._close()
        elif end == "kill":
            self._kill()
        else:
            self._power_cut()
        if end == "close" and self._may("flip") and self.rng.random() < 0.4:
            self._flip()
        if end == "close" and self._may("lost-file") and self.rng.random() < 0.3:
            self._lose_file()

    def _close(self) -> None:
        if self._may("delete") and self.rng.random() < self.delete_at_end:
            self._step_all()
            self.delete_topic(self.last_topic if self.rng.random() < 0.7 else None)
        end = self.closed_at = self.store.max_phy_offset
        self.store.close()
        self.history.end_life(end)

    def _kill(self) -> None:
        if self.is_open:
            self.history.end_life(self.store.flushed_phy_offset)
        self.files.kill()

    def _power_cut(self) -> None:
        self._kill()
        self.history.lose_power()
        self.files.power_cut(self.rng)

    def _end_after(self, operations: int) -> None:
        end = self._power_cut if self.rng.random() < 0.7 else self._kill
        self.files.end_process_after(self.rng.randrange(operations), end)

    def _flip(self) -> None:
        """Change a byte of a record, of those that damage is noticed in.

        Only after a clean end: behind the checkpoint damage cannot be told from what a power cut
        tore, and nothing behind a tear is kept.
        """
        self.files.start_process()
        intact = [
            each
            for each in self.history.sent.values()
            if each.place is not None
            and self.history.is_alive(each)
            and each.number not in self.history.damaged
        ]
        places = sorted(each.place.phy_offset for each in intact if each.place is not None)
        victims = [each for each in intact if each.place and each.place.phy_offset < places[-1]]
        if not victims:
            return
        victim = self.rng.choice(victims)
        assert victim.place is not None
        start = victim.place.phy_offset
        at = start + self.rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 10, 28, 33, 35, 89])
        log = ROOT / "commitlog"
        name = next(each for each in reversed(self.files.list_files(log)) if int(each) <= start)
        region = self.files.open(log / name)
        region.buffer[at - int(name)] ^= 1 << self.rng.randrange(8)
        region.flush()
        region.close()
        self.history.damaged.add(victim.number)
        self._count("flip")

    def _lose_file(self) -> None:
        """Remove a file of a queue or of the index, or try the log's last one.

        Not where a topic was deleted behind the last message: then nobody knows how long the queues
        were together. Nor where messages are damaged, which the queues cannot be made again from.
        """
        self.files.start_process()
        deleted = self.files.list_directories(ROOT / "deleted")
        if any(int(name.split(".")[0]) >= self.closed_at for name in deleted):
            return
        if self.history.damaged:
            return
        queues = ROOT / "consumequeue"
        directories = [ROOT / "index", ROOT / "commitlog"]
        directories += [
            queues / topic / name
            for topic in self.files.list_directories(queues)
            for name in self.files.list_directories(queues / topic)
        ]
        directory = self.rng.choice(directories)
        names = self.files.list_files(directory)
        if not names:
            return
        self._count("lost-file")
        if directory.name != "commitlog":
            self.files.remove(directory / self.rng.choice(names))
            return
        content = self.files.read_bytes(directory / names[-1])
        self.files.remove(directory / names[-1])
        if self.closed_at > int(names[-1]):
            with pytest.raises(StoreFormatError, match=r"is missing|has no log file"):
                MessageStore(
                    self.config, clock=self.clock, files=self.files, new_log_id=lambda: "0"
                ).open()
            self.files.write_bytes(directory / names[-1], content)

    def _pause(self) -> None:
        self.files.start_process()
        self.files.capacity_bytes = self.files.descriptor_limit = self.files.on_flush = None
        self.failed_flush = False
        if self.set_clock in self.weights and self.rng.random() < 0.6:
            self.set_clock()
        else:
            self.clock.advance(self.rng.choice([10, 1_000, 100_000]))

    # -- the beginning of a life -------------------------------------------------------------

    def _open(self) -> None:
        """Open the store, perhaps cut short a few times, and judge what it holds."""
        while self._may("end-in-open") and self.rng.random() < 0.3:
            self._end_after(self.rng.choice([3, 30, 100]))
            try:
                self._open_once()
                self._kill()
            except ProcessEndedError:
                self._count("end-in-open")
            self._pause()
        self._open_once()

    def _open_once(self) -> None:
        self.store = MessageStore(
            self.config, clock=self.clock, files=self.files, new_log_id=lambda: "0"
        )
        self.due_ms = {}
        self.is_open = False
        self.store.open()
        found = read_all(self.store)
        self.history.check_reopened(found, self.store.max_phy_offset)
        self.is_open = True
        for topic in sorted(self.history.unfinished):
            self.store.delete_topics([topic])
            self.history.end_delete(topic)
        self._catch_up()
        self.history.check_lookups(self.store, [each for each in found if self._is_alive(each)])

    def _is_alive(self, found: Found) -> bool:
        return self.history.is_alive(self.history.sent[found.number])

    def _catch_up(self) -> None:
        service = next(each for each in self.store.services if each.name == "IndexCatchUpService")
        for _ in range(1_000):
            if service.step(self.clock.monotonic_ms()) > self.clock.monotonic_ms():
                return
        pytest.fail("the index never catches up")
