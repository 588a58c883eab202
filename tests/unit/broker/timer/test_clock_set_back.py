"""Timers across a kill and a clock that is set back: no message is lost or delivered twice."""

import random

from tests.unit.broker.timer.timer_kit import Kit


def test_timer_kill_after_clock_set_back_loses_nothing() -> None:
    kit = Kit()
    kit.send(b"first", **kit.at(2_000))
    kit.run(5_000)
    kit.store.flush_log()
    kit.run(2_000)
    kit.clock.jump(-60_000)
    kit.send(b"second", **kit.at(5_000))
    kit.run(300)
    kit.kill()
    kit.start()
    kit.run(120_000)
    assert kit.bodies() == [b"first", b"second"]


def test_timer_clock_set_back_skips_delivered_slot_not_cleared_before_kill() -> None:
    kit = Kit()
    kit.send(b"first", **kit.at(1_000))
    kit.run(2_500)
    kit.store.flush_log()
    kit.flush.step(0)
    kit.kill()
    kit.start()
    kit.clock.jump(-60_000)
    kit.send(b"second", **kit.at(2_000))
    kit.run(120_000)
    assert kit.bodies() == [b"first", b"second"]


def test_timer_clock_set_back_skips_delivered_slots_not_on_disk() -> None:
    kit = Kit()
    for number in range(5):
        kit.send(b"first %d" % number, **kit.at(1_000 * (1 + number)))
    kit.run(7_000)
    assert len(kit.bodies()) == 5
    kit.clock.jump(-3_600_000)
    kit.send(b"second", **kit.at(2_000))
    kit.run(7_200_000)
    assert sorted(kit.bodies()) == [*(b"first %d" % number for number in range(5)), b"second"]


def test_timer_power_cut_after_clock_set_back_loses_nothing() -> None:
    """Messages that are not delivered again are on disk."""
    kit = Kit()
    kit.send(b"kept", **kit.at(200))
    kit.send(b"later", **kit.at(900))
    kit.run(500)
    assert kit.bodies() == [b"kept"]
    kit.clock.jump(-60_000)
    kit.send(b"other", **kit.at(1_000))
    kit.run(300)
    kit.flush.step(kit.clock.monotonic_ms())
    kit.store.flush_log()
    kit.files.power_cut(random.Random(1))
    kit.files.start_process()
    kit.start()
    kit.run(120_000)
    assert set(kit.bodies()) == {b"kept", b"later", b"other"}


def test_timer_clock_set_back_message_for_uncleared_slot_is_kept() -> None:
    kit = Kit()
    kit.send(b"first", **kit.at(2_000))
    kit.run(4_000)  # delivered, and that is not on disk
    assert kit.bodies() == [b"first"]
    kit.clock.jump(-60_000)
    kit.send(b"second", **kit.at(58_000))
    kit.run(120_000)
    assert kit.bodies() == [b"first", b"second"]
