"""An idle timer steps rarely, and the first message wakes it."""

import pytest

from tests.unit.broker.timer.timer_kit import Kit


def _step(kit: Kit) -> int:
    """Step until nothing is left to do at once; when the next step is due, from now."""
    while True:
        pause_ms = kit.step() - kit.clock.monotonic_ms()
        if pause_ms > 0:
            return pause_ms


def test_timer_idle_steps_at_slot_start_and_first_message_wakes_it() -> None:
    kit = Kit()
    kit.clock.advance(1_000 - kit.clock.time_ms() % 1_000)
    assert _step(kit) == 1_000
    for body in (b"a", b"b"):
        kit.send(body, **kit.at(5_000))
    assert kit.wakes == 1
    assert _step(kit) == 100, "while something waits it looks as often as ever"
    kit.send(b"c", **kit.at(5_000))
    assert kit.wakes == 1
    kit.run(4_999)
    assert kit.bodies() == []
    kit.run(1)
    assert sorted(kit.bodies()) == [b"a", b"b", b"c"]


def test_timer_message_during_idle_step_wakes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    _step(kit)
    write = kit.state.write
    late = [b"late"]

    def written() -> None:
        if late:
            kit.send(late.pop(), **kit.at(3_000))
        write()

    monkeypatch.setattr(kit.state, "write", written)
    kit.step()
    assert kit.wakes == 1


def test_timer_idle_wake_delivers_early_message_to_the_millisecond() -> None:
    kit = Kit()
    kit.clock.advance(1_400 - kit.clock.time_ms() % 1_000)
    _step(kit)
    kit.send(b"x", **kit.at(50))
    assert kit.wakes == 1
    assert _step(kit) == 50
    kit.clock.advance(50)
    _step(kit)
    assert kit.bodies() == [b"x"]
