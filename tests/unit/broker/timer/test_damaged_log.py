"""A damaged unit of the timer log costs its own message and no other."""

import random
from pathlib import Path

import pytest

from rocketpy.store.timer.log import UNIT_BYTES
from rocketpy.store.timer.wheel import SLOT_BYTES, SLOTS
from tests.sampling import sample
from tests.unit.broker.timer.timer_kit import Kit

LOG = Path("/store/timerlog")
COUNT = 200
"""Units of 52 bytes fill files of 4,096: the chains reach over many."""


def _spoil(kit: Kit, position: int, data: bytes) -> None:
    name, in_file = position - position % kit.log_file_bytes, position % kit.log_file_bytes
    file = kit.files.open_file(LOG / f"{name:020d}")
    file.write(in_file, data)
    file.close()


def _filled() -> tuple[Kit, dict[int, bytes]]:
    """Messages of two moments by turns, stopped; by position of their units."""
    kit = Kit()
    bodies, at = {}, 0
    for number in range(COUNT):
        if at % kit.log_file_bytes + UNIT_BYTES + 16 > kit.log_file_bytes:
            at += kit.log_file_bytes - at % kit.log_file_bytes
        bodies[at] = b"%03d" % number
        kit.send(bodies[at], **kit.at(60_000 + number % 2 * 1_000))
        at += UNIT_BYTES
    kit.run(2_000)
    kit.stop()
    return kit, bodies


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, b"\0\0\0\0"),
        (0, bytes(UNIT_BYTES)),
        (0, b"\xff" * UNIT_BYTES),
        (12, b"\x7f\0\0\0"),
        (16, b"\0\0\0\0\0\0\0\1"),
        (24, b"\0\0\0\0"),
    ],
    ids=["size", "zeros", "ones", "magic", "written", "delay"],
)
@pytest.mark.parametrize("which", [0, 77, COUNT - 1])
def test_timer_damaged_unit_loses_only_its_message(which: int, at: int, data: bytes) -> None:
    kit, bodies = _filled()
    position = list(bodies)[which]
    _spoil(kit, position + at, data)
    kit.start()
    kit.run(100_000)
    assert sorted(kit.bodies()) == sorted(set(bodies.values()) - {bodies[position]})


@pytest.mark.parametrize(
    "before", [-1, 1 << 40, UNIT_BYTES, 7], ids=["none", "beyond", "of the other", "amid a unit"]
)
def test_timer_unit_with_wrong_link_loses_nothing(before: int) -> None:
    kit, bodies = _filled()
    position = list(bodies)[100]
    _spoil(kit, position + 4, before.to_bytes(8, signed=True))
    kit.start()
    kit.run(100_000)
    assert sorted(kit.bodies()) == sorted(bodies.values())


@pytest.mark.parametrize("seed", sample(range(5), 2))
def test_timer_lost_sector_loses_only_its_units(seed: int) -> None:
    kit, bodies = _filled()
    rng = random.Random(seed)
    begin = rng.randrange(max(bodies) // 512) * 512
    spoilt = {body for at, body in bodies.items() if begin - UNIT_BYTES < at < begin + 512}
    _spoil(kit, begin, bytes(512))
    kit.start()
    kit.run(100_000)
    assert set(kit.bodies()) >= set(bodies.values()) - spoilt
    assert len(kit.bodies()) == len(set(kit.bodies()))


def test_timer_damaged_unit_keeps_earlier_units_and_recalls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (("_PIECE", 16), ("_WALK", 8), ("_MOST_READY", 8), ("_LOOK", 4)):
        monkeypatch.setattr(f"rocketpy.broker.timer.slot_reader.{name}", value)
    kit, bodies = _filled()
    kit.start()
    kit.recall("U5", 58_000)
    kit.run(2_000)
    kit.stop()
    spoilt = [list(bodies)[which] for which in (20, 50, 51, 52, 53, 150)]
    for position in spoilt:
        _spoil(kit, position, bytes(UNIT_BYTES))
    kit.start()
    kit.run(100_000)
    gone = {bodies[position] for position in spoilt} | {b"004"}
    assert sorted(kit.bodies()) == sorted(set(bodies.values()) - gone)


def test_timer_wheel_page_is_rebuilt_around_damaged_unit() -> None:
    kit, bodies = _filled()
    position = list(bodies)[100]
    _spoil(kit, position, bytes(UNIT_BYTES))
    at = (kit.clock.time_ms() // kit.precision_ms + 58) % SLOTS * SLOT_BYTES
    wheel = kit.files.open_file(Path("/store/timerwheel"))
    wheel.write(at - at % 4_096, bytes(4_096))
    wheel.close()
    kit.start()
    kit.run(100_000)
    assert sorted(kit.bodies()) == sorted(set(bodies.values()) - {bodies[position]})
