"""A topic that accepts nothing for long does not delay other topics."""

import random

import pytest

from rocketpy.broker.operation.scheduling.scheduling import MessageScheduler
from rocketpy.broker.system_topics.put_retry import HOLD_MS, PutRetry
from rocketpy.broker.system_topics.system_writer import SystemWriter
from rocketpy.proto.record.properties import parse_properties
from rocketpy.proto.topic_names import SCHEDULE_TOPIC, TIMER_TOPIC
from rocketpy.store.results import PutMessage, PutMessageStatus
from tests.unit.broker.delay.delivery_kit import Kit as DelayKit
from tests.unit.broker.timer.timer_kit import Kit as TimerKit
from tests.unit.store.store_kit import Kit as StoreKit

DELAYS_MS = (1_000, 30_000, 60_000)
FAILS = PutMessageStatus.UNKNOWN_ERROR


def _refused_t(message: PutMessage) -> PutMessageStatus | None:
    return FAILS if message.topic == "T" else None


def _all_refused(_message: PutMessage) -> PutMessageStatus | None:
    return FAILS


def _none_refused(_message: PutMessage) -> PutMessageStatus | None:
    return None


def bodies(kit: DelayKit, topic: str) -> list[bytes]:
    return [each.body for each in kit.delivered(topic)]


def test_put_retry_full_topic_delays_its_level_for_a_while_only() -> None:
    kit = DelayKit()
    kit.picky.refusal = _refused_t
    for number in range(40):
        kit.send(b"t%d" % number, 1)
        kit.send(b"o%d" % number, 1, topic="Other")
    kit.run(1_000 + HOLD_MS - 500)
    assert bodies(kit, "Other") == []
    kit.run(1_000)
    assert bodies(kit, "Other") == [b"o%d" % number for number in range(40)]
    kit.run(120_000)
    assert bodies(kit, "T") == []
    kit.picky.refusal = _none_refused
    kit.run(10_100)  # its level here; half a minute with the levels of every day
    assert sorted(bodies(kit, "T")) == sorted(b"t%d" % number for number in range(40))
    kit.stop()
    kit.start()
    kit.run(60_000)
    assert len(bodies(kit, "T")) == len(bodies(kit, "Other")) == 40


def test_put_retry_failure_after_quiet_time_is_retried_first() -> None:
    kit = DelayKit()
    kit.picky.refusal = _refused_t
    kit.send(b"a", 1)
    kit.run(1_000 + HOLD_MS + 200)
    kit.picky.refusal = _none_refused
    kit.run(100_000)
    kit.picky.refusal = _refused_t
    kit.send(b"b", 1)
    kit.run(1_000 + HOLD_MS - 500)
    kit.picky.refusal = _none_refused
    kit.run(100)
    assert bodies(kit, "T") == [b"a", b"b"]


def test_put_retry_full_delay_level_parks_nothing() -> None:
    kit = DelayKit()
    kit.send(b"a", 1)
    kit.picky.refusal = _all_refused
    kit.run(10 * HOLD_MS)
    assert kit.offsets.of_level(1).position == 0
    kit.picky.refusal = _none_refused
    kit.run(100)
    assert bodies(kit, "T") == [b"a"]


@pytest.mark.parametrize("seed", range(10))
def test_put_retry_power_cut_loses_no_parked_message(seed: int) -> None:
    rng = random.Random(seed)
    kit = DelayKit(flush_disk_type="SYNC_FLUSH")
    kit.picky.refusal = _refused_t
    kit.send(b"a", 1)
    kit.send(b"o", 1, topic="Other")
    kit.disk.step(kit.store, "GroupCommitService")
    kit.run(1_000 + HOLD_MS + 200)
    if rng.random() < 0.5:
        kit.disk.step(kit.store, "GroupCommitService")
    kit.offsets.step(kit.clock.monotonic_ms() + 10_000)
    kit.disk.files.power_cut(rng)
    kit.disk.files.start_process()
    kit.start()
    for _ in range(4):
        kit.run(15_000)
        kit.disk.step(kit.store, "GroupCommitService")
    assert set(bodies(kit, "T")) == {b"a"}
    assert set(bodies(kit, "Other")) == {b"o"}


def test_put_retry_full_topic_delays_timed_messages_for_a_while_only() -> None:
    kit = TimerKit()
    kit.picky.refusal = _refused_t
    kit.send(b"t", **kit.at(1_000))
    kit.send(b"o", topic="Other", **kit.at(1_001))
    kit.send(b"later", topic="Other", **kit.at(20_000))
    kit.run(1_000 + HOLD_MS - 500)
    assert kit.bodies("Other") == []
    kit.run(1_000)
    assert kit.bodies("Other") == [b"o"]
    kit.run(20_000)
    assert kit.bodies("Other") == [b"o", b"later"]
    (waiting,) = kit.delivered(SCHEDULE_TOPIC, 0)
    assert (waiting.properties["REAL_TOPIC"], waiting.properties["REAL_QID"]) == ("T", "2")
    assert waiting.body == b"t"
    kit.stop()
    kit.start()
    kit.run(5_000)
    assert kit.bodies("Other") == [b"o", b"later"]
    assert len(kit.delivered(SCHEDULE_TOPIC, 0)) == 1


@pytest.mark.parametrize(
    ("delays_ms", "level"), [(DELAYS_MS, 2), ((1_000, 5_000), 2), ((60_000,), 1)]
)
def test_put_retry_uses_level_of_half_a_minute_or_longest(
    delays_ms: tuple[int, ...], level: int
) -> None:
    disk = StoreKit()
    store = disk.open()
    put = SystemWriter(store, lambda *_: None)
    aside = PutRetry(put, MessageScheduler(delays_ms, disk.clock).delay, delays_ms)
    message = PutMessage("T", 3, b"x", b"a\x01b\x02")
    assert aside.store(message, 0) is None
    assert aside.store(message, HOLD_MS) == store.max_phy_offset
    assert (message.topic, message.queue_id) == (SCHEDULE_TOPIC, level - 1)
    properties = parse_properties(message.properties)
    assert properties == {"a": "b", "DELAY": str(level), "REAL_TOPIC": "T", "REAL_QID": "3"}


@pytest.mark.parametrize("topic", [TIMER_TOPIC, "rmq_sys_REVIVE_LOG_c", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_put_retry_never_parks_system_messages(topic: str) -> None:
    disk = StoreKit()
    put = SystemWriter(disk.open(), lambda *_: None)
    aside = PutRetry(put, MessageScheduler(DELAYS_MS, disk.clock).delay, DELAYS_MS)
    message = PutMessage(topic, 0, b"x", b"")
    assert [aside.store(message, at) for at in range(0, 10 * HOLD_MS, HOLD_MS)] == [None] * 10
    assert message.topic == topic
