"""Timers across a kill and an outage: slots that passed meanwhile are delivered."""

import pytest

from tests.unit.broker.timer.timer_kit import Kit


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_timer_rolled_message_slot_passed_during_outage_is_kept(has_checkpoint: bool) -> None:
    """It waits in pieces: the slot of the first one passes while there is no broker."""
    kit = Kit(window=10)
    if has_checkpoint:
        kit.send(b"before", **kit.at(1_000))
        kit.run(3_000)
        kit.store.flush_log()
        kit.run(2_000)
    kit.send(b"far", **kit.at(24_500))
    kit.timer.step(kit.clock.monotonic_ms())  # it has its unit, which no checkpoint knows
    assert (kit.state.marks.counter > 0) is has_checkpoint
    kit.kill()
    kit.clock.advance(15_000)
    kit.start()
    kit.run(9_499)
    assert kit.bodies() == [b"before"] * has_checkpoint
    kit.run(5_000)
    assert kit.bodies() == [*[b"before"] * has_checkpoint, b"far"]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_timer_outage_message_with_unit_is_delivered_once(has_checkpoint: bool) -> None:
    """Its slot is read, and the message too, which stands behind the checkpoint."""
    kit = Kit()
    if has_checkpoint:
        kit.send(b"before", **kit.at(1_000))
        kit.run(3_000)
        kit.store.flush_log()
        kit.run(2_000)
    kit.send(b"goes", **kit.at(5_000))
    kit.send(b"stays", **kit.at(5_000))
    kit.recall(f"U{kit.count - 1}", 5_000)
    kit.timer.step(kit.clock.monotonic_ms())
    kit.kill()
    kit.clock.advance(60_000)
    kit.start()
    kit.run(5_000)
    assert kit.bodies() == [*[b"before"] * has_checkpoint, b"stays"]
