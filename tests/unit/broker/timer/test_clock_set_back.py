"""Timers across a kill and a clock that is set back: nothing is lost, and nothing comes twice."""

from tests.unit.broker.timer.timer_kit import Kit


def test_a_kill_after_the_clock_went_back_loses_nothing() -> None:
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


def test_a_slot_that_a_killed_process_did_not_empty_is_not_delivered_when_the_clock_goes_back() -> (
    None
):
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
