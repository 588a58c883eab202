"""Delayed messages become due: on a real store with simulated files and time."""

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketpy.broker.delay.delivery import DelayDelivery
from rocketpy.broker.delay.offsets import DelayOffsets
from rocketpy.broker.delay.set_aside import SetAside
from rocketpy.broker.internal_put import InternalPut
from rocketpy.broker.operation.postponement import Postponement
from rocketpy.proto.message import MessageExt, decode_message
from rocketpy.proto.properties import encode_properties
from rocketpy.proto.sys_flag import TRANSACTION_COMMIT
from rocketpy.proto.tags import tags_code
from rocketpy.proto.topic_names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rocketpy.store.config import parse_delay_levels
from rocketpy.store.json_file import JsonFile
from rocketpy.store.message_store import MessageStore
from rocketpy.store.results import PutMessage, PutMessageResult, PutMessageStatus
from tests.unit.store.store_kit import Kit as StoreKit

LEVELS = "1s 5s 10s"
PATH = Path("/store/config/delayOffset.json")


class _PickyStore:
    """A store that may refuse puts."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.refusal: Callable[[PutMessage], PutMessageStatus | None] = lambda _message: None
        self.when_durable = store.when_durable

    def put_message(self, message: PutMessage) -> PutMessageResult:
        status = self.refusal(message)
        return self.store.put_message(message) if status is None else PutMessageResult(status)


class Kit:
    def __init__(self, **config: Any) -> None:
        self.disk = StoreKit(message_delay_level=LEVELS, **config)
        self.clock = self.disk.clock
        self.deleted: set[str] = set()
        self.queues = 4
        self.start()

    def start(self) -> None:
        """Open the directory as a broker does that starts."""
        self.store = self.disk.open()
        self.picky = _PickyStore(self.store)
        delays_ms = parse_delay_levels(self.disk.config.message_delay_level)
        self.postponement = Postponement(delays_ms, self.clock)
        self.offsets = DelayOffsets(
            JsonFile(PATH, self.disk.files),
            self.clock,
            interval_ms=10_000,
            version_step=200,
            flushed_phy_offset=lambda: self.store.flushed_phy_offset,
            flush_log=self.store.flush_log,
        )
        self.offsets.load()
        put = InternalPut(self.picky, lambda _topic, _count, _size: None)
        self.delivery = DelayDelivery(
            self.store,
            put,
            self.offsets,
            SetAside(put, self.postponement.delay, delays_ms),
            delays_ms=delays_ms,
            queue_of=self.queue_of,
            topic_of=lambda _topic: None,
            clock=self.clock,
        )

    def queue_of(self, topic: str, queue_id: int) -> int | None:
        return None if topic in self.deleted else queue_id % self.queues

    def stop(self) -> None:
        self.offsets.persist()
        self.store.close()

    def send(self, body: bytes, level: int, topic: str = "T", **changes: Any) -> None:
        properties = {"DELAY": str(level), "TAGS": "a", "UNIQ_KEY": "U"}
        message = PutMessage(
            topic,
            2,
            body,
            encode_properties(properties),
            uniq_key="U",
            tags="a",
            tags_code=tags_code("a"),
            **changes,
        )
        assert self.postponement.postpone(message) is None
        assert self.store.put_message(message).status is PutMessageStatus.PUT_OK

    def run(self, elapsed_ms: int) -> None:
        """Let time pass; the service runs when it wants to."""
        end_ms = self.clock.monotonic_ms() + elapsed_ms
        while True:
            next_ms = self.delivery.step(self.clock.monotonic_ms())
            if next_ms > end_ms:
                break
            self.clock.advance(max(0, next_ms - self.clock.monotonic_ms()))
        self.clock.advance(end_ms - self.clock.monotonic_ms())

    def delivered(self, topic: str = "T") -> list[MessageExt]:
        found: list[MessageExt] = []
        while len(found) < self.store.max_offset(topic, 2):
            records = self.store.get_message(topic, 2, len(found), 32, 1 << 20).buffers
            found += [decode_message(each) for each in records]
        return found

    def bodies(self) -> list[bytes]:
        return [each.body for each in self.delivered()]


def test_a_message_is_delivered_when_it_is_due_and_not_before() -> None:
    kit = Kit()
    kit.run(2_000)
    sent_ms = kit.clock.time_ms()
    kit.send(b"x", 2, born_timestamp_ms=77, flag=5, reconsume_times=3)
    kit.run(4_999)
    assert kit.bodies() == []
    kit.run(1)
    (found,) = kit.delivered()
    assert found.store_timestamp_ms == sent_ms + 5_000
    assert (found.body, found.flag, found.born_timestamp_ms) == (b"x", 5, 77)
    assert (found.topic, found.queue_id, found.reconsume_times) == ("T", 2, 3)
    assert found.properties == {
        "DELAY": "2",
        "TAGS": "a",
        "UNIQ_KEY": "U",
        "REAL_TOPIC": "T",
        "REAL_QID": "2",
    }
    entry = kit.store.queue_entry("T", 2, 0)
    assert entry is not None
    assert entry[2] == tags_code("a"), "consumers find it by its tag again"


def test_the_queue_entry_of_a_message_that_waits_has_its_time_of_delivery() -> None:
    kit = Kit()
    kit.send(b"x", 3)
    entry = kit.store.queue_entry(SCHEDULE_TOPIC, 2, 0)
    assert entry is not None
    assert entry[2] == kit.clock.time_ms() + 10_000


def test_levels_do_not_wait_for_each_other() -> None:
    kit = Kit()
    for number in range(40):
        kit.send(b"late %d" % number, 3)
    kit.send(b"early", 1)
    kit.run(2_000)
    assert kit.bodies() == [b"early"]
    kit.run(8_200)
    assert len(kit.bodies()) == 41


def test_what_is_overdue_goes_at_once_after_a_restart_and_nothing_twice() -> None:
    kit = Kit()
    kit.send(b"first", 1)
    kit.run(3_000)
    assert kit.bodies() == [b"first"]
    kit.send(b"second", 2)
    kit.stop()
    kit.clock.advance(60_000)
    kit.start()
    kit.run(1_000)
    assert kit.bodies() == [b"first", b"second"]


def test_a_delivery_that_fails_is_tried_again_at_the_same_offset() -> None:
    kit = Kit()
    kit.send(b"a", 1)
    kit.send(b"b", 1)
    kit.picky.refusal = lambda message: (
        PutMessageStatus.OS_PAGE_CACHE_BUSY if message.body == b"b" else None
    )
    kit.run(5_000)
    assert kit.bodies() == [b"a"]
    assert kit.offsets.of_level(1).position == 1
    kit.picky.refusal = lambda _message: None
    kit.run(100)
    assert kit.bodies() == [b"a", b"b"]


def test_a_fault_of_one_level_holds_up_no_other() -> None:
    kit = Kit()

    def fail(message: PutMessage) -> None:
        if message.body == b"bad":
            raise RuntimeError("simulated")

    kit.picky.refusal = fail
    kit.send(b"bad", 1)
    kit.send(b"good", 2)
    kit.run(8_000)
    assert kit.bodies() == [b"good"]
    kit.picky.refusal = lambda _message: None
    kit.run(10_000)
    assert kit.bodies() == [b"good", b"bad"]


def test_what_can_never_be_stored_is_passed_over() -> None:
    kit = Kit()
    kit.send(b"never", 1)
    kit.send(b"gone", 1, "Gone")
    kit.send(b"good", 1)
    kit.deleted.add("Gone")
    kit.picky.refusal = lambda message: (
        PutMessageStatus.MESSAGE_ILLEGAL if message.body == b"never" else None
    )
    kit.run(3_000)
    assert kit.bodies() == [b"good"]
    assert kit.delivered("Gone") == []
    assert kit.offsets.of_level(1).position == 3


@pytest.mark.parametrize(
    "properties",
    [
        {"DELAY": "1"},
        {"DELAY": "1", "REAL_TOPIC": "T"},
        {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "-1"},
        {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "x"},
        {"DELAY": "1", "REAL_TOPIC": TRANS_HALF_TOPIC, "REAL_QID": "0"},
    ],
)
def test_a_record_that_no_broker_wrote_is_passed_over(properties: dict[str, str]) -> None:
    kit = Kit()
    kit.store.put_message(
        PutMessage(SCHEDULE_TOPIC, 0, b"odd", encode_properties(properties), delay_level=1)
    )
    kit.send(b"good", 1)
    kit.run(3_000)
    assert kit.bodies() == [b"good"]
    assert kit.store.max_offset(TRANS_HALF_TOPIC, 0) == 0


def test_a_committed_message_stays_one() -> None:
    kit = Kit()
    kit.send(b"x", 1, sys_flag=TRANSACTION_COMMIT)
    kit.run(3_000)
    (found,) = kit.delivered()
    assert found.sys_flag & TRANSACTION_COMMIT


def test_a_clock_that_went_back_makes_nothing_early_and_nothing_wait_longer_than_its_level() -> (
    None
):
    kit = Kit()
    kit.run(2_000)
    kit.send(b"before", 2)
    kit.run(100)
    kit.clock.jump(-3_600_000)
    kit.send(b"after", 2)
    kit.run(4_900)
    assert kit.bodies() == []
    kit.run(1_100)
    assert kit.bodies() == [b"before", b"after"]
    kit.send(b"later", 2)
    kit.run(4_999)
    assert kit.bodies() == [b"before", b"after"]
    kit.run(1_100)
    assert kit.bodies() == [b"before", b"after", b"later"]


def test_a_level_that_is_shorter_in_the_next_life_makes_nothing_earlier_than_that() -> None:
    kit = Kit()
    kit.send(b"x", 3)
    kit.stop()
    kit.disk.config = dataclasses.replace(kit.disk.config, message_delay_level="1s 5s 4s")
    kit.start()
    kit.run(3_900)
    assert kit.bodies() == []
    kit.run(2_000)
    assert kit.bodies() == [b"x"]


def test_a_clock_that_goes_forward_is_seen_within_a_second() -> None:
    kit = Kit()
    kit.send(b"x", 3)
    kit.run(1_500)
    kit.clock.jump(3_600_000)
    kit.run(1_000)
    assert kit.bodies() == [b"x"]


@pytest.mark.parametrize(("offset", "delivered"), [(99, []), (0, [b"0", b"1", b"2"])])
def test_an_offset_outside_of_the_queue_is_corrected(offset: int, delivered: list[bytes]) -> None:
    kit = Kit()
    for number in range(3):
        kit.send(b"%d" % number, 1)
    kit.offsets.of_level(1).reset(offset)
    kit.run(3_000)
    assert kit.bodies() == delivered
    assert kit.offsets.of_level(1).position == 3


def test_messages_that_were_deleted_are_passed_over() -> None:
    kit = Kit(file_reserved_time=0)
    for _ in range(200):
        kit.send(b"x" * 500, 3)
    kit.stop()
    log = sorted(path for path in kit.disk.files._names if "commitlog/" in str(path))
    for path in log[:3]:
        kit.disk.files.remove(path)
    kit.start()
    assert kit.store.min_offset(SCHEDULE_TOPIC, 2) > 0
    kit.run(20_000)
    left = 200 - kit.store.min_offset(SCHEDULE_TOPIC, 2)
    assert kit.store.max_offset("T", 2) == left


@pytest.mark.parametrize("behind", [1, 3])
def test_a_damaged_message_makes_none_behind_it_early(behind: int) -> None:
    kit = Kit()
    kit.send(b"damaged while the broker was down", 2)
    kit.clock.advance(3_000)
    bodies = [b"behind it %d" % number for number in range(behind)]
    for body in bodies:
        kit.send(body, 2)
    kit.stop()
    (log,) = (node for path, node in kit.disk.files._names.items() if "commitlog/" in str(path))
    assert log is not None
    log.memory[log.memory.find(b"damaged")] ^= 0xFF
    kit.start()
    kit.run(4_999)
    assert kit.bodies() == []
    assert kit.offsets.of_level(2).position == 1
    kit.run(1)
    assert kit.bodies() == bodies


def test_other_levels_after_a_change_of_the_settings_lose_nothing() -> None:
    kit = Kit()
    kit.send(b"x", 3)
    kit.stop()
    kit.disk.config = dataclasses.replace(kit.disk.config, message_delay_level="1s")
    kit.start()
    kit.run(12_000)
    assert kit.bodies() == [b"x"]


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_doubles_rather_than_loses(seed: int) -> None:
    rng = random.Random(seed)
    kit = Kit(flush_disk_type="SYNC_FLUSH")
    acknowledged = []
    for number in range(20):
        kit.send(b"%d" % number, 1)
        if rng.random() < 0.6:
            kit.disk.step(kit.store, "GroupCommitService")
            acknowledged = [b"%d" % each for each in range(number + 1)]
        kit.run(rng.choice((0, 100, 2_000)))
        kit.offsets.step(kit.clock.monotonic_ms())
        if rng.random() < 0.3:
            kit.clock.advance(10_000)
            kit.offsets.step(kit.clock.monotonic_ms())
    kit.disk.files.power_cut(rng)
    kit.disk.files.start_process()
    kit.start()
    kit.run(15_000)
    kit.disk.step(kit.store, "GroupCommitService")
    kit.run(3_000)
    kit.disk.step(kit.store, "GroupCommitService")
    assert set(acknowledged) <= set(kit.bodies())


def test_offsets_of_a_store_that_is_gone_skip_nothing() -> None:
    kit = Kit()
    for _ in range(5):
        kit.send(b"old", 1)
    kit.run(5_000)
    assert len(kit.bodies()) == 5
    kit.stop()
    kept = kit.disk.files.read_bytes(PATH)
    kit = Kit()
    kit.disk.files.write_bytes(PATH, kept)
    kit.offsets.load()
    kit.run(2_000)
    kit.send(b"1", 1)
    kit.send(b"2", 1)
    kit.run(5_000)
    assert kit.bodies() == [b"1", b"2"]


def test_a_step_is_short_and_no_level_waits_for_another() -> None:
    kit = Kit()
    for number in range(100):
        kit.send(b"%d" % number, 1, "one")
        kit.send(b"%d" % number, 2, "two")
    kit.run(500)
    kit.clock.advance(10_000)
    counts = []
    while sum(map(len, (kit.delivered("one"), kit.delivered("two")))) < 200:
        kit.delivery.step(kit.clock.monotonic_ms())
        counts.append((len(kit.delivered("one")), len(kit.delivered("two"))))
    sizes = [
        sum(after) - sum(before) for before, after in zip([(0, 0), *counts], counts, strict=False)
    ]
    assert max(sizes) < 64
    assert all(abs(one - two) <= 64 for one, two in counts)


def test_a_queue_that_its_topic_has_no_more_is_replaced_by_one_that_it_has() -> None:
    kit = Kit()
    kit.send(b"x", 1)
    kit.queues = 2
    kit.run(2_000)
    assert kit.bodies() == []
    found = kit.store.get_message("T", 0, 0, 1, 1 << 20)
    assert [decode_message(each).body for each in found.buffers] == [b"x"]


class _Runs:
    """Stands where the compiled path stands: stores as many as it is told to."""

    def __init__(self, kit: Kit, counts: list[int]) -> None:
        self.kit = kit
        self.counts = counts
        self.asked: list[tuple[int, int]] = []

    def deliver(
        self, _topic_of: object, _part: object, entries: list[tuple[int, int, int]], offset: int, /
    ) -> tuple[int, int]:
        self.asked.append((offset, len(entries)))
        count = min(self.counts.pop(0) if self.counts else 0, len(entries))
        for number in range(count):
            self.kit.store.put_message(PutMessage("T", 2, b"%d" % (offset + number), b""))
        return count, self.kit.store.max_phy_offset if count else 0


def test_runs_go_on_where_one_ended_and_what_they_leave_is_delivered_one_by_one() -> None:
    kit = Kit()
    runs = _Runs(kit, [128, 10, 0, 3, 0])
    kit.delivery.use_runs(runs)
    for number in range(200):
        kit.send(b"%d" % number, 1)
    kit.run(3_000)
    assert kit.bodies() == [b"%d" % number for number in range(200)]
    assert runs.asked == [(0, 128), (128, 72), (138, 62), (170, 30), (173, 27)]
    assert kit.offsets.of_level(1).position == 200


def test_a_run_is_passed_for_good_when_the_disk_has_it() -> None:
    kit = Kit()
    kit.delivery.use_runs(_Runs(kit, [3]))
    for number in range(3):
        kit.send(b"%d" % number, 1)
    kit.run(3_000)
    progress = kit.offsets.of_level(1)
    assert (progress.position, progress.durable) == (3, 0)
    kit.store.flush_log()
    assert progress.durable == 3
