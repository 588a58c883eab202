"""Reading one slot of the wheel, unit by unit."""

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from rocketpy.broker.timer.slot_reader import Due, SlotReader
from rocketpy.proto.record.message import MessageExt
from rocketpy.store.timer.log import TimerUnit
from rocketpy.store.timer.wheel import Slot

START = 1_800_000_000_000


class Units:
    precision_ms = 1_000
    begin = 0

    def __init__(self) -> None:
        self.units: list[TimerUnit] = []
        self.messages: dict[int, MessageExt] = {}
        self.looked_at = 0

    def unit(self, position: int) -> TimerUnit | None:
        return self.units[position] if 0 <= position < len(self.units) else None

    def places_before(self, position: int, stop: int) -> Iterator[int]:
        return iter(range(position - 1, max(stop, 0) - 1, -1))

    def add(self, key: str, magic: int = 1, **properties: Any) -> int:
        position = len(self.units)
        unit = TimerUnit(position - 1, magic, START - 5_000, 5_000, position, 10, 0)
        self.units.append(unit)
        self.messages[position] = MessageExt(properties={"UNIQ_KEY": key, **properties})
        return position

    def message(self, unit: TimerUnit) -> MessageExt | None:
        self.looked_at += 1
        return self.messages.get(unit.phy_offset)

    def reader(self) -> SlotReader:
        last = len(self.units) - 1
        return SlotReader(Slot(START // 1_000, 0, last, last + 1), self, self.message)


def read_all(reader: SlotReader, wall_ms: int) -> list[Due]:
    found: list[Due] = []
    more = True
    while more:
        more = reader.read_on(wall_ms)
        while (due := reader.take(wall_ms)) is not None:
            found.append(due)
            more = True
    return found


def test_slot_reader_sorts_by_delivery_time_then_order() -> None:
    rng, units = random.Random(3), Units()
    moments = [START + rng.randrange(1, 1_001) for _ in range(200)]
    for number, moment in enumerate(moments):
        units.add(f"K{number}", TIMER_DELIVER_MS=str(moment))
    reader = units.reader()
    assert read_all(reader, START) == []
    early = read_all(reader, START + 500)
    assert [each.due_ms for each in early] == sorted(
        each for each in moments if each <= START + 500
    )
    assert reader.next_ms == min(each for each in moments if each > START + 500)
    assert sorted(reader.delivered_positions()) == sorted(each.position for each in early)
    rest = read_all(reader, START + 1_000)
    assert len(early) + len(rest) == 200
    assert reader.is_done


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"TIMER_DELIVER_MS": str(START + 1)}, START + 1),
        ({"TIMER_DELIVER_MS": str(START + 1_000)}, START + 1_000),
        ({"TIMER_DELIVER_MS": str(START)}, START + 1_000),
        ({"TIMER_DELIVER_MS": str(START + 1_001)}, START + 1_000),
        ({"TIMER_DELIVER_MS": "?"}, START + 1_000),
        ({"TIMER_DELAY_SEC": "7"}, START + 1_000),
        ({}, START + 1_000),
    ],
)
def test_slot_reader_mismatched_message_is_due_at_slot_end(
    properties: dict[str, Any], due_ms: int
) -> None:
    units = Units()
    units.add("K", **properties)
    reader = units.reader()
    assert read_all(reader, START) == []
    assert reader.next_ms == due_ms


def test_slot_reader_after_slot_end_reads_no_messages() -> None:
    units = Units()
    for number in range(500):
        units.add(f"K{number}", TIMER_DELIVER_MS=str(START + 1_000 - number))
    found = read_all(units.reader(), START + 1_000)
    assert [each.position for each in found] == list(range(500))
    assert units.looked_at == 0


def test_slot_reader_recalls_apply_first_even_if_late() -> None:
    units = Units()
    for key in "abcd":
        units.add(key)
    units.add("x", magic=5, TIMER_DEL_UNIQKEY="a")
    units.add("y", magic=5, TIMER_DEL_UNIQKEY="T+b")
    units.add("z", magic=5)
    reader = units.reader()
    read_all(reader, START)
    late = units.add("w", magic=5, TIMER_DEL_UNIQKEY="c")
    reader.add(late, units.units[late])
    normal = units.add("e")
    reader.add(normal, units.units[normal])
    found = read_all(reader, START + 1_000)
    assert [each.position for each in found] == [0, 1, 2, 3, normal]
    messages = [units.messages[each.position] for each in found]
    messages[1].properties["REAL_TOPIC"] = "T"
    assert [reader.is_recalled(each) for each in messages] == [True, True, True, False, False]


def test_slot_reader_recalled_id_takes_constant_memory() -> None:
    """Properties may be 32 KiB long, and so may the id in a recall request."""
    count, units = 200, Units()
    ids = [f"{number:030000}" for number in range(count)]
    for key in ids:
        units.add(key)
    for key in ids[1:]:
        units.add("x", magic=5, TIMER_DEL_UNIQKEY=key)
    units.message = lambda unit: MessageExt(  # type: ignore[method-assign]
        properties={
            name: "".join(text) for name, text in units.messages[unit.phy_offset].properties.items()
        }
        if unit.is_recall
        else {}
    )
    tracemalloc.start()
    try:
        reader = units.reader()
        before = tracemalloc.get_traced_memory()[0]
        read_all(reader, START)
        assert tracemalloc.get_traced_memory()[0] - before < count * 1_000
    finally:
        tracemalloc.stop()
    recalled = [reader.is_recalled(units.messages[number]) for number in range(count)]
    assert recalled == [False] + [True] * (count - 1)


def test_slot_reader_returned_message_is_taken_again() -> None:
    units = Units()
    units.add("a")
    reader = units.reader()
    (due,) = read_all(reader, START + 1_000)
    assert reader.is_done
    reader.give_back(due)
    assert not reader.is_done
    assert list(reader.delivered_positions()) == []
    assert reader.take(START + 1_000) == due


@pytest.mark.parametrize(
    ("damage", "wanted"),
    [
        ({"prev_position": 9}, [0, 1, 2]),
        ({"prev_position": -1}, [0, 1, 2]),
        ({"write_ms": START}, [0, 2]),
        ({"delay_ms": 0}, [0, 2]),
    ],
)
def test_slot_reader_broken_chain_continues_before_damage(
    damage: dict[str, int], wanted: list[int]
) -> None:
    units = Units()
    for key in "abc":
        units.add(key)
    units.units[1] = units.units[1]._replace(**damage)
    found = read_all(units.reader(), START + 1_000)
    assert [each.position for each in found] == wanted


def test_slot_reader_bridges_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rocketpy.broker.timer.slot_reader._MOST_BRIDGES", 3)
    units = Units()
    for number in range(40):
        units.add(f"K{number}")
    for position in range(1, 40, 4):
        units.units[position] = units.units[position]._replace(delay_ms=0)
    reader = units.reader()
    assert [each.position for each in read_all(reader, START + 1_000)] == [
        each for each in range(26, 40) if each % 4 != 1
    ]
    assert len(reader._bridges) == 3


def test_slot_reader_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketpy.broker.timer.slot_reader._PIECE", 64)
    monkeypatch.setattr("rocketpy.broker.timer.slot_reader._MOST_READY", 16)
    units = Units()
    for number in range(2_000):
        units.add(f"K{number}", TIMER_DELIVER_MS=str(START + 1_000))
    reader = units.reader()
    assert read_all(reader, START) == []
    assert len(reader._ready) == 16
    found = [each.position for each in read_all(reader, START + 1_000)]
    assert found == list(range(2_000))
