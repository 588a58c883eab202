"""Timed messages: into the wheel, and delivery when they are due."""

import contextlib
import random
from pathlib import Path

import pytest

from rocketpy.errors import DiskFullError, ResourceShortError
from rocketpy.proto.topic_names import TIMER_TOPIC
from rocketpy.store.results import PutMessage, PutMessageStatus
from rocketpy.store.timer.wheel import SLOT_BYTES, SLOTS
from tests.sampling import sample
from tests.unit.broker.timer.timer_kit import Kit

_LONG_MAX = str((1 << 63) - 1)


@pytest.mark.parametrize("delay_ms", [1, 200, 999, 1_000, 1_001, 5_300, 59_999])
def test_timer_message_is_delivered_to_the_millisecond(delay_ms: int) -> None:
    kit = Kit()
    kit.run(1_234)
    sent_ms = kit.clock.time_ms()
    kit.send(b"x", TIMER_DELAY_MS=str(delay_ms))
    kit.run(delay_ms - 1)
    assert kit.bodies() == []
    kit.run(101 if delay_ms < 100 else 1)
    (found,) = kit.delivered()
    late_ms = found.store_timestamp_ms - sent_ms - delay_ms
    assert late_ms == 0 if delay_ms >= 100 else 0 <= late_ms <= 100
    properties = found.properties
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "2")
    assert properties["TIMER_DELAY_MS"] == str(delay_ms)
    assert int(properties["TIMER_OUT_MS"]) % 1_000 == 0
    assert {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "UNIQ_KEY"} <= properties.keys()


def test_timer_accepts_each_delivery_time_property() -> None:
    kit = Kit()
    kit.send(b"seconds", TIMER_DELAY_SEC="2", TIMER_DELAY_MS="9000", TIMER_DELIVER_MS="1")
    kit.send(b"delay", TIMER_DELAY_MS="3000", TIMER_DELIVER_MS="1")
    kit.send(b"moment", **kit.at(2_500))
    kit.run(1_999)
    assert kit.bodies() == []
    kit.run(1)
    assert kit.bodies() == [b"seconds"]
    kit.run(1_000)
    assert kit.bodies() == [b"seconds", b"moment", b"delay"]


def test_timer_past_delivery_time_bypasses_wheel() -> None:
    kit = Kit()
    kit.send(b"past", **kit.at(-5))
    kit.send(b"now", TIMER_DELAY_MS="0")
    assert kit.bodies() == [b"past", b"now"]
    kit.send(b"soon", **kit.at(1_000))
    kit.clock.advance(10_000)
    kit.run(0)
    (soon,) = kit.delivered()[2:]
    assert soon.properties["TIMER_ENQUEUE_MS"] == _LONG_MAX


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_MS": "259200001"},
        {"TIMER_DELAY_MS": "soon"},
        {"TIMER_DELAY_SEC": "1.5"},
        {"TIMER_DELIVER_MS": "9" * 30},
        {"TIMER_DELIVER_MS": "9" * 5_000},
        {"TIMER_DELIVER_MS": "9223372036854775807"},
        {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "U"},
    ],
)
def test_timer_invalid_delivery_time_is_refused(properties: dict[str, str]) -> None:
    refused = Kit().refused(**properties)
    assert refused is not None
    assert refused.code == 13
    assert "timer message illegal" in refused.remark


def test_timer_disabled_is_reported() -> None:
    kit = Kit()
    kit.postponement.timers = type(kit.postponement.timers)(is_enabled=False)
    refused = kit.refused(TIMER_DELAY_MS="5")
    assert refused is not None
    assert (refused.code, "not enabled" in refused.remark) == (1, True)


def test_timer_same_delivery_time_keeps_order() -> None:
    kit = Kit()
    moment = kit.at(3_000)
    sent = [kit.send(b"%03d" % number, **moment) for number in range(300)]
    assert len(sent) == 300
    kit.run(2_999)
    assert kit.bodies() == []
    kit.run(1)
    assert kit.bodies() == [b"%03d" % number for number in range(300)]


def test_timer_delivers_in_order_of_delivery_time() -> None:
    rng, kit = random.Random(1), Kit()
    delays = [rng.randrange(500, 20_000) for _ in range(200)]
    begin_ms = kit.clock.time_ms()
    for delay_ms in delays:
        kit.send(b"%d" % delay_ms, **kit.at(delay_ms))
        kit.run(rng.choice((0, 0, 3)))
    kit.run(25_000)
    found = kit.delivered()
    assert len(found) == 200
    for each in found:
        requested_ms = int(each.properties["TIMER_DELIVER_MS"])
        assert 0 <= each.store_timestamp_ms - requested_ms <= 1
    moments = [each.store_timestamp_ms - begin_ms for each in found]
    assert moments == sorted(moments)


def test_timer_long_delay_is_rolled() -> None:
    kit = Kit(window=10)
    kit.send(b"x", **kit.at(24_500))
    kit.send(b"y", TIMER_DELAY_SEC="12")
    kit.run(24_499)
    assert kit.bodies() == [b"y"]
    kit.run(1_000)
    y, x = kit.delivered()
    assert 0 <= x.store_timestamp_ms - int(x.properties["TIMER_DELIVER_MS"]) <= 1
    assert (x.properties["TIMER_ROLL_TIMES"], y.properties["TIMER_ROLL_TIMES"]) == ("2", "1")
    assert kit.store.max_offset(TIMER_TOPIC, 0) == 5


def test_timer_recalled_message_is_not_delivered() -> None:
    kit = Kit()
    kit.send(b"stays", **kit.at(5_000))
    kit.send(b"goes", **kit.at(5_000))
    kit.send(b"stays too", **kit.at(5_000))
    kit.run(1_000)
    kit.recall("U2", 4_000)
    kit.run(10_000)
    assert kit.bodies() == [b"stays", b"stays too"]
    kit.store.flush_log()
    kit.run(100)
    assert kit.state.pending_count == 0


def test_timer_recall_of_broker_before_5_4_applies() -> None:
    kit = Kit()
    kit.send(b"goes", **kit.at(5_000))
    kit.recall("T+U1", 5_000)
    kit.run(10_000)
    assert kit.bodies() == []


def test_timer_late_recall_applies_until_delivery() -> None:
    kit = Kit()
    kit.send(b"goes", **kit.at(5_900))
    kit.send(b"stays", **kit.at(5_200))
    kit.run(5_500)
    assert kit.bodies() == [b"stays"]
    kit.recall("U1", 400)
    kit.recall("U2", 400)
    kit.run(5_000)
    assert kit.bodies() == [b"stays"]


def test_timer_recall_of_rolled_message_is_rolled() -> None:
    kit = Kit(window=10)
    kit.send(b"goes", **kit.at(24_500))
    kit.recall("U1", 24_500)
    kit.run(30_000)
    assert kit.bodies() == []


def test_timer_restart_continues_and_delivers_nothing_twice() -> None:
    kit = Kit()
    for number in range(50):
        kit.send(b"%d" % number, **kit.at(1_000 + number * 100))
    kit.run(3_050)
    before = kit.bodies()
    assert 0 < len(before) < 50
    kit.stop()
    kit.start()
    kit.run(2_000)
    kit.stop()
    kit.clock.advance(3_600_000)
    kit.start()
    kit.run(1_000)
    assert kit.bodies() == [b"%d" % number for number in range(50)]


def test_timer_kill_loses_nothing_and_delivers_nothing_early() -> None:
    kit = Kit()
    for number in range(100):
        kit.send(b"%d" % number, **kit.at(500 + number * 50))
        if number % 9 == 0:
            kit.run(20)
        if number % 25 == 24:
            kit.kill()
            kit.start()
    kit.run(10_000)
    assert set(kit.bodies()) == {b"%d" % number for number in range(100)}
    for each in kit.delivered():
        assert each.store_timestamp_ms >= int(each.properties["TIMER_DELIVER_MS"])


def test_timer_after_weeks_offline_delivers_everything() -> None:
    kit = Kit()
    kit.send(b"x", **kit.at(172_000_000))
    kit.run(1_000)
    kit.stop()
    kit.clock.advance(40 * 86_400_000)
    kit.start()
    kit.run(1_000)
    assert kit.bodies() == [b"x"]


def test_timer_failed_delivery_is_retried() -> None:
    kit = Kit()
    kit.send(b"a", **kit.at(1_000))
    kit.send(b"b", **kit.at(1_001))
    kit.picky.refusal = lambda message: (
        PutMessageStatus.OS_PAGE_CACHE_BUSY if message.body == b"a" else None
    )
    kit.run(5_000)
    assert kit.bodies() == []
    kit.picky.refusal = lambda _message: None
    kit.run(100)
    assert kit.bodies() == [b"a", b"b"]


def test_timer_message_that_cannot_be_stored_is_skipped() -> None:
    kit = Kit()
    kit.send(b"never", **kit.at(1_000))
    kit.send(b"gone", "Gone", **kit.at(1_000))
    kit.send(b"good", **kit.at(1_000))
    kit.deleted.add("Gone")
    kit.picky.refusal = lambda message: (
        PutMessageStatus.MESSAGE_ILLEGAL if message.body == b"never" else None
    )
    kit.run(3_000)
    assert kit.bodies() == [b"good"]
    assert kit.bodies("Gone") == []


def test_timer_invalid_record_is_skipped() -> None:
    kit = Kit()
    for properties in (b"", b"TIMER_OUT_MS\x01x\x02", b"TIMER_OUT_MS\x0118000000000000\x02"):
        kit.store.put_message(PutMessage(TIMER_TOPIC, 0, b"odd", properties))
    kit.send(b"good", **kit.at(1_000))
    kit.run(3_000)
    assert kit.bodies() == [b"good"]


def test_timer_full_properties_are_delivered_unchanged() -> None:
    kit = Kit()
    kit.send(b"x", big="x" * 32_660, **kit.at(1_000))
    kit.run(2_000)
    (found,) = kit.delivered()
    assert len(found.properties["big"]) == 32_660
    assert "TIMER_DEQUEUE_MS" not in found.properties


def test_timer_clock_set_back_delivers_nothing_early() -> None:
    kit = Kit()
    kit.send(b"first", **kit.at(2_000))
    kit.run(3_000)
    kit.clock.jump(-60_000)
    kit.send(b"second", **kit.at(2_000))
    kit.run(1_999)
    assert kit.bodies() == [b"first"]
    kit.run(101)
    assert kit.bodies() == [b"first", b"second"]


def test_timer_clock_set_forward_delivers_due_messages() -> None:
    kit = Kit()
    for minute in range(1, 11):
        kit.send(b"%d" % minute, **kit.at(minute * 60_000))
    kit.run(1_000)
    kit.clock.jump(3_600_000)
    kit.run(1_000)
    assert len(kit.bodies()) == 10


def test_timer_full_disk_delays_and_loses_nothing() -> None:
    kit = Kit()
    kit.send(b"a", **kit.at(1_000))
    create = kit.files.create_file

    def full(path: object, size_bytes: int) -> object:
        raise DiskFullError("no space")

    kit.files.create_file = full  # type: ignore[method-assign,assignment]
    kit.run(2_000)
    assert kit.bodies() == [b"a"] or kit.bodies() == []
    kit.files.create_file = create  # type: ignore[method-assign]
    kit.run(3_000)
    assert kit.bodies() == [b"a"]


@pytest.mark.parametrize("seed", sample(range(6), 2))
def test_timer_power_cuts_lose_nothing_on_disk(seed: int) -> None:
    rng = random.Random(seed)
    kit = Kit(flush_disk_type="SYNC_FLUSH", window=20)
    safe: set[bytes] = set()
    number = 0
    for _ in range(4):
        fresh: set[bytes] = set()
        for _ in range(rng.randrange(5, 25)):
            body = b"%d" % number
            number += 1
            kit.send(body, **kit.at(rng.randrange(100, 40_000)))
            fresh.add(body)
            if rng.random() < 0.7:
                kit.disk.step(kit.store, "GroupCommitService")
                safe |= fresh
            kit.run(rng.choice((0, 50, 700, 2_000)))
        kit.files.power_cut(rng)
        kit.files.start_process()
        kit.start()
    for _ in range(60):
        kit.disk.step(kit.store, "GroupCommitService")
        kit.run(1_000)
    kit.disk.step(kit.store, "GroupCommitService")
    found = kit.delivered()
    assert safe <= {each.body for each in found}
    for each in found:
        assert each.store_timestamp_ms >= int(each.properties["TIMER_DELIVER_MS"])


def test_timer_kill_duplicates_no_message_before_checkpoint() -> None:
    kit = Kit()
    for number in range(3):  # no flush of the commit log: the queue's offset stays behind the units
        kit.send(b"%02d" % number, **kit.at(30_000))
        kit.run(3_000)
        assert kit.state.marks.queue_offset == number
        kit.kill()
        kit.start()
    kit.run(30_000)
    assert kit.bodies() == [b"00", b"01", b"02"]


def test_timer_slot_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketpy.broker.timer.slot_reader._PIECE", 7)
    monkeypatch.setattr("rocketpy.broker.timer.slot_reader._MOST_READY", 5)
    monkeypatch.setattr("rocketpy.broker.timer.slot_reader._WALK", 4)
    kit = Kit()
    moment = kit.at(3_000)
    for number in range(150):
        kit.send(b"%03d" % number, **moment)
    kit.recall("U77", 3_000)
    kit.run(2_999)
    assert kit.bodies() == []
    kit.run(1_000)
    assert kit.bodies() == [b"%03d" % number for number in range(150) if number != 76]


@pytest.mark.parametrize("way", ["clock set back", "clean stop"])
def test_timer_partly_delivered_slot_is_not_repeated(way: str) -> None:
    """Nor messages that entered the slot during its delivery."""
    kit = Kit()
    kit.run(1_000 - kit.clock.time_ms() % 1_000)
    kit.send(b"first", **kit.at(2_200))
    kit.send(b"last", **kit.at(2_800))
    kit.run(2_100)
    kit.send(b"late", **kit.at(200))
    kit.run(400)
    assert kit.bodies() == [b"first", b"late"]
    if way == "clean stop":
        kit.stop()
        kit.start()
    else:
        kit.clock.jump(-2_000)
        kit.send(b"other", **kit.at(300))
    kit.run(10_000)
    assert sorted(kit.bodies()) == sorted(
        [b"first", b"late", b"last", *([b"other"] if way != "clean stop" else [])]
    )


def test_timer_stop_in_large_slot_flushes_each_file_once() -> None:
    kit = Kit()
    moment = kit.at(5_000)
    for number in range(400):
        kit.send(b"%03d" % number, **moment)
    kit.run(1_000)
    kit.clock.advance(10_000)
    while kit.timer.dequeued_count < 200:
        kit.step()
    log_files = len(kit.files.list_files(Path("/store/timerlog")))
    assert log_files > 4
    before = kit.files.flush_count
    kit.timer.persist()
    assert kit.files.flush_count - before <= log_files + 4
    assert 200 <= kit.timer.dequeued_count < 400
    kit.store.close()
    kit.start()
    kit.run(5_000)
    assert kit.bodies() == [b"%03d" % number for number in range(400)]


@pytest.mark.parametrize("bit", [0, 20, 63, 64, 66, 120, 128, 140, 191])
def test_timer_flipped_bit_in_wheel_loses_nothing(bit: int) -> None:
    """In the moment, the first or the last unit of a slot; the log says what was there."""
    kit = Kit()
    for later_ms in (60_000, 61_000, 62_000):
        kit.send(b"%d" % later_ms, **kit.at(later_ms))
        kit.send(b"%d again" % later_ms, **kit.at(later_ms))
    wanted = sorted(
        b"%d%s" % (each, more) for each in (60_000, 61_000, 62_000) for more in (b"", b" again")
    )
    tick = kit.clock.time_ms() // kit.precision_ms + 60
    kit.run(2_000)
    kit.stop()
    wheel = kit.files.open_file(Path("/store/timerwheel"))
    at = tick % SLOTS * SLOT_BYTES
    slot = bytearray(wheel.read(at, SLOT_BYTES))
    assert any(slot)
    slot[bit // 8] ^= 0x80 >> bit % 8
    wheel.write(at, bytes(slot))
    wheel.close()
    kit.start()
    kit.run(120_000)
    assert sorted(kit.bodies()) == wanted


@pytest.mark.parametrize("operation", [0, 1, 2])
def test_timer_temporary_read_failure_loses_nothing(
    operation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketpy.broker.timer.slot_reader._WALK", 10)
    kit = Kit()
    moment = kit.at(5_000)
    for number in range(150):
        kit.send(b"%03d" % number, **moment)
    kit.recall("U77", 5_000)
    kit.run(1_000)
    kit.kill()
    kit.start()
    left = operation

    def fail(kind: str, path: Path) -> None:
        nonlocal left
        left -= kind == "open" and "timerlog" in str(path)
        if left < 0:
            kit.files.on_operation = None
            raise ResourceShortError("no descriptor")

    kit.files.on_operation = fail
    for _ in range(40):
        with contextlib.suppress(ResourceShortError):  # its thread logs it and goes on later
            kit.run(1_000)
        kit.clock.advance(1_000)
    assert kit.bodies() == [b"%03d" % number for number in range(150) if number != 76]


def test_timer_reports_progress_figures() -> None:
    kit = Kit()
    kit.send(b"x", **kit.at(10_000))
    assert (kit.timer.queue_behind, kit.timer.delivered_before_ms) == (1, 0)
    kit.run(500)
    assert (kit.timer.queue_behind, kit.state.pending_count) == (0, 1)
    assert 0 <= kit.clock.time_ms() - kit.timer.delivered_before_ms <= kit.precision_ms
    kit.clock.advance(60_000)
    assert kit.clock.time_ms() - kit.timer.delivered_before_ms >= 60_000
    kit.run(1_000)
    assert 0 <= kit.clock.time_ms() - kit.timer.delivered_before_ms <= kit.precision_ms


def test_timer_record_at_lost_position_is_not_delivered() -> None:
    kit = Kit()
    kit.send(b"kept", **kit.at(1_000))
    kit.store.flush_log()
    kit.send(b"lost", **kit.at(5_000))
    kit.run(500)
    kit.flush.step(kit.clock.monotonic_ms())
    end = kit.store.flushed_phy_offset
    log = kit.files.open_file(Path("/store/commitlog") / f"{0:020d}")
    log.write(end, bytes(1_000))
    kit.kill()
    kit.start()
    assert kit.store.max_phy_offset == end
    kit.send(b"next", **kit.at(50_000))
    assert kit.store.max_phy_offset > end
    kit.run(49_000)
    assert kit.bodies() == [b"kept"]
    kit.run(3_000)
    assert kit.bodies() == [b"kept", b"next"]
