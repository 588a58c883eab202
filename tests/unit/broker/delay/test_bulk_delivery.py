"""Bulk delivery of delayed messages, and what happens when a bulk fails."""

import pytest

from rocketpy.store.results import PutMessage, PutMessageStatus
from tests.unit.broker.delay.delivery_kit import Kit


class _Runs:
    """Fake compiled path that stores a given number of messages."""

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


def test_bulk_delivery_continues_and_leaves_rest_to_single_delivery() -> None:
    kit = Kit()
    runs = _Runs(kit, [128, 10, 0, 3, 0])
    kit.delivery.use_runs(runs)
    for number in range(200):
        kit.send(b"%d" % number, 1)
    kit.run(3_000)
    assert kit.bodies() == [b"%d" % number for number in range(200)]
    assert runs.asked == [(0, 128), (128, 72), (138, 62), (170, 30), (173, 27)]
    assert kit.offsets.of_level(1).position == 200


def test_bulk_delivery_is_passed_after_flush() -> None:
    kit = Kit()
    kit.delivery.use_runs(_Runs(kit, [3]))
    for number in range(3):
        kit.send(b"%d" % number, 1)
    kit.run(3_000)
    progress = kit.offsets.of_level(1)
    assert (progress.position, progress.durable) == (3, 0)
    kit.store.flush_log()
    assert progress.durable == 3


class _FailingRuns(_Runs):
    """Stores a part of what it is to store, or nothing, and raises."""

    def __init__(self, kit: Kit, stored: int) -> None:
        super().__init__(kit, [])
        self.stored = stored

    def deliver(
        self, _topic_of: object, _part: object, entries: list[tuple[int, int, int]], offset: int, /
    ) -> tuple[int, int]:
        self.counts = [self.stored]
        super().deliver(_topic_of, _part, entries, offset)
        raise ValueError("simulated failure")


@pytest.mark.parametrize("stored", [0, 2])
def test_bulk_delivery_failed_falls_back_to_single_delivery(stored: int) -> None:
    """At once, and what was stored before it failed comes once more, not each time."""
    kit = Kit()
    runs = _FailingRuns(kit, stored)
    kit.delivery.use_runs(runs)
    for number in range(100):
        kit.send(b"%d" % number, 1)
    kit.run(3_000)
    assert kit.bodies()[stored:] == [b"%d" % number for number in range(100)]
    assert runs.asked == [(0, 100)]
    kit.send(b"later", 1)
    kit.run(12_000)
    kit.send(b"last", 1)
    kit.run(3_000)
    assert runs.asked == [(0, 100), (101, 1)], "a level takes runs again after a while"


@pytest.mark.parametrize("in_runs", [False, True])
def test_bulk_delivery_put_raises_delays_level_for_a_while_only(
    in_runs: bool,
) -> None:
    """It is tried again, then waits for the disk to take it, and is not lost."""
    kit = Kit()

    def fail(message: PutMessage) -> PutMessageStatus | None:
        if message.topic == "T" and message.body == b"3":
            raise ValueError("simulated failure")
        return None

    kit.picky.refusal = fail
    if in_runs:
        kit.delivery.use_runs(_FailingRuns(kit, 0))
    for number in range(8):
        kit.send(b"%d" % number, 1)
    kit.run(3_000)
    assert kit.bodies() == [b"0", b"1", b"2"]
    kit.run(10_000)
    others = [b"%d" % number for number in range(8) if number != 3]
    assert kit.bodies() == others
    kit.picky.refusal = lambda _message: None
    kit.run(40_000)
    assert kit.bodies() == [*others, b"3"]


def test_bulk_delivery_clock_set_back_rest_does_not_wait_again() -> None:
    """It was due, and is, also when messages behind it begin to wait."""
    kit = Kit()
    kit.run(3_000)
    kit.send(b"before", 1)
    kit.run(3_000)
    kit.clock.jump(-3_600_000)
    for number in range(1, 11):
        kit.send(b"%d" % number, 2)
    kit.run(1_000)
    kit.send(b"behind", 2)
    kit.delivery.use_runs(_Runs(kit, [3]))
    kit.run(4_050)
    assert len(kit.bodies()) == 11, "all that were due"
    kit.run(5_000)
    assert kit.bodies()[-1] == b"behind"
