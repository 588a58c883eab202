"""Parts of the timer wheel that the disk lost, and a topic with fewer queues."""

from pathlib import Path

import pytest

from rocketpy.store.timer.wheel import SLOT, SLOT_BYTES, SLOTS
from tests.unit.broker.timer.timer_kit import Kit

WHEEL = Path("/store/timerwheel")


def test_timer_message_of_removed_queue_goes_to_existing_queue() -> None:
    kit = Kit()
    kit.send(b"x", **kit.at(2_000))
    kit.queues = 2
    kit.run(4_000)
    assert kit.bodies() == []
    assert [each.body for each in kit.delivered(queue_id=0)] == [b"x"]


@pytest.mark.parametrize("lost", ["slot", "sector", "page", "write"])
def test_timer_lost_wheel_page_loses_nothing(lost: str) -> None:
    """Zeros are an empty slot: only the checkpoint's sums tell that they were none."""
    kit = Kit()
    wanted = [b"first"]
    kit.send(wanted[0], **kit.at(59_000))
    kit.run(2_000)
    stale = kit.files.read_bytes(WHEEL)
    at = (kit.clock.time_ms() // kit.precision_ms + 60) % SLOTS * SLOT_BYTES
    for later_ms in (60_000, 61_000, 300_000):
        for number in range(3):
            wanted.append(b"%d/%d" % (later_ms, number))
            kit.send(wanted[-1], **kit.at(later_ms))
    kit.run(2_000)
    kit.stop()
    size_bytes = {"slot": SLOT_BYTES, "sector": 512, "page": 4_096, "write": 4_096}[lost]
    at -= at % size_bytes
    wheel = kit.files.open_file(WHEEL)
    held = wheel.read(at, size_bytes)
    left = stale[at : at + size_bytes] if lost == "write" else bytes(size_bytes)
    assert held != left
    wheel.write(at, left)
    wheel.close()
    kit.start()
    assert kit.state.pending_count == len(wanted)
    kit.run(400_000)
    assert sorted(kit.bodies()) == sorted(wanted)


def test_timer_wheel_changed_by_apache_ignores_checksums() -> None:
    """It writes its part of the checkpoint and leaves ours as it was."""
    kit = Kit()
    kit.send(b"x", **kit.at(60_000))
    kit.run(2_000)
    kit.stop()
    path = Path("/store/config/timercheck")
    data = kit.files.read_bytes(path)
    kit.files.write_bytes(path, data[:48] + (99).to_bytes(8) + data[56:])
    tick = kit.clock.time_ms() // kit.precision_ms + 30
    wheel = kit.files.open_file(WHEEL)
    wheel.write(tick % SLOTS * SLOT_BYTES, SLOT.pack(tick, 0, 0, 1, 0))
    wheel.close()
    kit.start()
    assert kit.state.first_from(tick, tick)[1] is not None, "nothing is made again"
    kit.run(100_000)
    assert kit.bodies() == [b"x"]


def test_timer_kill_between_wheel_and_checkpoint_loses_nothing() -> None:
    kit = Kit()
    wanted = [b"%d" % number for number in range(6)]
    for body in wanted[:3]:
        kit.send(body, **kit.at(60_000))
    kit.run(2_000)
    for body in wanted[3:]:
        kit.send(body, **kit.at(70_000))
    kit.step()

    def end(_kind: str, path: Path) -> None:
        if path.name == "timercheck":
            raise OSError(5, "simulated")

    kit.files.on_operation = end
    kit.flush.step(kit.clock.monotonic_ms())
    kit.files.on_operation = None
    kit.kill()
    kit.start()
    kit.run(100_000)
    assert sorted(kit.bodies()) == wanted
