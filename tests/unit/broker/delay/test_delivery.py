"""Delivery of delayed messages, on a real store with simulated files and time."""

import dataclasses
import random

import pytest

from rocketpy.proto.record.message import decode_message
from rocketpy.proto.record.properties import encode_properties
from rocketpy.proto.record.sys_flag import TRANSACTION_COMMIT
from rocketpy.proto.record.tags import tags_code
from rocketpy.proto.topic_names import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rocketpy.store.results import PutMessage, PutMessageStatus
from tests.sampling import sample
from tests.unit.broker.delay.delivery_kit import PATH, Kit


def test_delay_message_is_delivered_when_due() -> None:
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


def test_delay_queue_entry_contains_delivery_time() -> None:
    kit = Kit()
    kit.send(b"x", 3)
    entry = kit.store.queue_entry(SCHEDULE_TOPIC, 2, 0)
    assert entry is not None
    assert entry[2] == kit.clock.time_ms() + 10_000


def test_delay_levels_are_independent() -> None:
    kit = Kit()
    for number in range(40):
        kit.send(b"late %d" % number, 3)
    kit.send(b"early", 1)
    kit.run(2_000)
    assert kit.bodies() == [b"early"]
    kit.run(8_200)
    assert len(kit.bodies()) == 41


def test_delay_restart_delivers_overdue_once() -> None:
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


def test_delay_failed_delivery_is_retried_at_same_offset() -> None:
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


def test_delay_failing_level_does_not_delay_others() -> None:
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


def test_delay_message_that_cannot_be_stored_is_skipped() -> None:
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
def test_delay_invalid_record_is_skipped(properties: dict[str, str]) -> None:
    kit = Kit()
    kit.store.put_message(
        PutMessage(SCHEDULE_TOPIC, 0, b"odd", encode_properties(properties), delay_level=1)
    )
    kit.send(b"good", 1)
    kit.run(3_000)
    assert kit.bodies() == [b"good"]
    assert kit.store.max_offset(TRANS_HALF_TOPIC, 0) == 0


def test_delay_committed_message_keeps_its_flag() -> None:
    kit = Kit()
    kit.send(b"x", 1, sys_flag=TRANSACTION_COMMIT)
    kit.run(3_000)
    (found,) = kit.delivered()
    assert found.sys_flag & TRANSACTION_COMMIT


def test_delay_clock_set_back_waits_at_most_level_delay() -> None:
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


def test_delay_shortened_level_after_restart_waits_new_delay() -> None:
    kit = Kit()
    kit.send(b"x", 3)
    kit.stop()
    kit.disk.config = dataclasses.replace(kit.disk.config, message_delay_level="1s 5s 4s")
    kit.start()
    kit.run(3_900)
    assert kit.bodies() == []
    kit.run(2_000)
    assert kit.bodies() == [b"x"]


def test_delay_clock_set_forward_is_noticed_within_a_second() -> None:
    kit = Kit()
    kit.send(b"x", 3)
    kit.run(1_500)
    kit.clock.jump(3_600_000)
    kit.run(1_000)
    assert kit.bodies() == [b"x"]


@pytest.mark.parametrize(("offset", "delivered"), [(99, []), (0, [b"0", b"1", b"2"])])
def test_delay_offset_outside_queue_is_corrected(offset: int, delivered: list[bytes]) -> None:
    kit = Kit()
    for number in range(3):
        kit.send(b"%d" % number, 1)
    kit.offsets.of_level(1).reset(offset)
    kit.run(3_000)
    assert kit.bodies() == delivered
    assert kit.offsets.of_level(1).position == 3


def test_delay_deleted_messages_are_skipped() -> None:
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
def test_delay_damaged_message_makes_no_other_early(behind: int) -> None:
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


def test_delay_changed_levels_lose_nothing() -> None:
    kit = Kit()
    kit.send(b"x", 3)
    kit.stop()
    kit.disk.config = dataclasses.replace(kit.disk.config, message_delay_level="1s")
    kit.start()
    kit.run(12_000)
    assert kit.bodies() == [b"x"]


@pytest.mark.parametrize("seed", sample(range(20), 2))
def test_delay_power_cut_duplicates_rather_than_loses(seed: int) -> None:
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


def test_delay_offsets_of_deleted_store_skip_nothing() -> None:
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


def test_delay_step_is_bounded_and_rotates_levels() -> None:
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


def test_delay_message_of_removed_queue_goes_to_existing_queue() -> None:
    kit = Kit()
    kit.send(b"x", 1)
    kit.queues = 2
    kit.run(2_000)
    assert kit.bodies() == []
    found = kit.store.get_message("T", 0, 0, 1, 1 << 20)
    assert [decode_message(each).body for each in found.buffers] == [b"x"]


def test_delay_idle_levels_are_checked_together_once_a_second() -> None:
    kit = Kit()
    kit.clock.advance(300 - kit.clock.monotonic_ms() % 1_000)
    assert kit.step() == 1_000, "the levels begin a second after the start"
    kit.clock.advance(1_000)
    assert kit.step() == 700
    kit.clock.advance(700)
    assert kit.step() == 1_000


def test_delay_only_first_message_of_idle_level_wakes() -> None:
    kit = Kit()
    kit.run(3_000)
    for body in (b"a", b"b", b"c"):
        kit.send(body, 2)
    assert kit.wakes == 1
    kit.send(b"d", 3)
    assert kit.wakes == 2, "each level for itself"
    kit.step()
    kit.send(b"e", 2)
    assert kit.wakes == 2, "it is known when the level has something to do"
    kit.run(10_000)
    assert sorted(kit.bodies()) == [b"a", b"b", b"c", b"d", b"e"]


def test_delay_message_during_check_of_level_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    kit.run(3_000)
    look = kit.store.queue_entries
    late = [b"late"]

    def looked(topic: str, queue_id: int, *rest: int) -> list[tuple[int, int, int]]:
        found = look(topic, queue_id, *rest)
        if late and not found:
            kit.send(late.pop(), queue_id + 1)
        return found

    monkeypatch.setattr(kit.store, "queue_entries", looked)
    kit.clock.advance(1_000)
    assert kit.step() == 0, "the look found nothing, and the level is looked at again"
    assert kit.wakes == 1
    kit.run(10_000)
    assert kit.bodies() == [b"late"]


def test_delay_clock_set_back_arrival_is_noticed_at_once() -> None:
    kit = Kit()
    kit.run(3_000)
    kit.send(b"before", 1)
    kit.run(3_000)
    kit.clock.jump(-3_600_000)
    kit.send(b"x", 2)
    assert kit.wakes == 2
    kit.run(4_999)
    assert kit.bodies() == [b"before"]
    kit.run(1)
    assert kit.bodies() == [b"before", b"x"], "its delay counts from when it came"


def test_delay_clock_set_back_refused_message_does_not_wait_again() -> None:
    """Nor because one that came behind it begins to wait."""
    kit = Kit()
    kit.run(3_000)
    kit.send(b"before", 1)
    kit.run(3_000)
    kit.clock.jump(-3_600_000)
    kit.send(b"first", 2)
    kit.run(1_000)
    kit.send(b"second", 2)
    kit.picky.refusal = lambda _message: PutMessageStatus.SERVICE_NOT_AVAILABLE
    kit.run(4_050)
    kit.picky.refusal = lambda _message: None
    kit.run(100)
    assert kit.bodies() == [b"before", b"first"]
    kit.run(5_000)
    assert kit.bodies() == [b"before", b"first", b"second"]


def test_delay_clock_set_back_arrival_does_not_wait_for_older_messages() -> None:
    """Its delay counts from when it came, or little later, and not from when they are due."""
    kit = Kit()
    kit.run(3_000)
    kit.send(b"before", 1)
    kit.run(3_000)
    kit.clock.jump(-3_600_000)
    for number in range(20):
        kit.send(b"%d" % number, 2)
        kit.run(1_000)
        due = max(0, number - 3)
        assert due - 1 <= len(kit.bodies()) - 1 <= due, "none early, none late by more than a look"
    (level,) = [each for each in kit.delivery._levels or () if each.queue.queue_id == 1]
    assert len(level._marks) <= 8
