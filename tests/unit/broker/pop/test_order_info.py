"""Unacknowledged messages of ordered groups: blocking, acks, delivery counts, and the file."""

from typing import Any

import pytest

from rocketpy.broker.pop.order_info import KEEP_MS, NOT_POPPED, OTHER_POP, OrderTable
from rocketpy.broker.pop.pop_locks import GroupQueue
from tests.unit.broker.fakes import FakeClock, MemoryFile

QUEUE = GroupQueue("T", "g", 0)


class TwoClocks(FakeClock):
    """Clock whose wall time differs from monotonic time by `ahead_ms`."""

    ahead_ms = 0

    def time_ms(self) -> int:
        return self.now_ms + self.ahead_ms


class Kit:
    def __init__(self, value: Any = None) -> None:
        self.clock = TwoClocks()
        self.file = MemoryFile(value)
        self.queues = {"T": 1}
        self.table = OrderTable(
            self.file,
            self.clock,
            queue_count=lambda topic: self.queues.get(topic, 0),
            has_group=lambda group: group == "g",
            interval_ms=5_000,
        )
        self.table.load()

    def pop(self, offsets: list[int], attempt_id: str | None = None) -> tuple[dict[int, int], int]:
        return self.table.record_pop(
            QUEUE,
            offsets,
            pop_time_ms=self.clock.time_ms(),
            invisible_ms=1_000,
            attempt_id=attempt_id,
        )

    def ack(self, offset: int) -> int:
        return self.table.record_ack(QUEUE, offset, self.clock.now_ms)


def test_order_table_blocks_queue_until_all_acked_or_visible() -> None:
    kit = Kit()
    assert not kit.table.is_blocked(QUEUE)
    kit.pop([4, 6])
    assert kit.table.is_blocked(QUEUE)
    assert kit.ack(6) == 4
    assert kit.ack(4) == 7
    assert not kit.table.is_blocked(QUEUE)
    kit.pop([7])
    kit.clock.now_ms += 1_000
    assert not kit.table.is_blocked(QUEUE)


def test_order_table_repeated_attempt_is_not_blocked() -> None:
    kit = Kit()
    kit.pop([0], "a")
    assert kit.table.is_blocked(QUEUE, "b")
    assert not kit.table.is_blocked(QUEUE, "a")
    assert kit.pop([0, 1], "a") == ({}, 0), "the same attempt is no other delivery"
    kit.pop([0], "x" * 257)
    assert kit.table.is_blocked(QUEUE, "x" * 257), "an id of any length is not kept"


def test_order_table_ack_of_other_pop_changes_nothing() -> None:
    kit = Kit()
    assert kit.ack(9) == 10, "as Apache: nothing is known of the queue"
    kit.pop([0])
    assert kit.ack(5) == NOT_POPPED
    kit.clock.now_ms += 1
    assert kit.ack(0) == OTHER_POP


def test_order_table_counts_deliveries() -> None:
    kit = Kit()
    kit.pop([0, 1])
    assert kit.pop([0, 1]) == ({0: 1, 1: 1}, 1)
    assert kit.pop([1, 2]) == ({1: 2}, 0)


def test_order_table_change_visible_moves_free_time() -> None:
    kit = Kit()
    kit.pop([0])
    pop_time_ms = kit.clock.now_ms
    kit.table.change_visible(QUEUE, 0, pop_time_ms, pop_time_ms + 50)
    kit.table.change_visible(QUEUE, 7, pop_time_ms, pop_time_ms + 9_000)
    kit.table.change_visible(QUEUE, 0, pop_time_ms + 1, pop_time_ms + 9_000)
    assert kit.table.free_at_ms(QUEUE) == pop_time_ms + 50


def test_order_table_file_round_trips_in_apache_format() -> None:
    kit = Kit()
    kit.pop([3, 5], "a")
    kit.ack(3)
    kit.pop([5], "b")
    kit.table.step(0)
    entry = kit.file.value["table"]["T@g"][0]
    now_ms = kit.clock.now_ms
    assert entry == {
        "a": "b", "cm": 0, "i": 1_000, "l": now_ms, "o": [5], "oc": {5: 1}, "popTime": now_ms,
    }  # fmt: skip
    assert kit.file.value["orderedConsumptionLevel"] == "QUEUE"
    again = Kit(kit.file.value)
    assert again.table.is_blocked(QUEUE)
    assert again.table.record_ack(QUEUE, 5, now_ms) == 6


def test_order_table_persist_drops_obsolete_entries() -> None:
    kit = Kit()
    kit.pop([0])
    kit.table.record_pop(
        GroupQueue("T", "gone", 0), [0], pop_time_ms=1, invisible_ms=1, attempt_id=None
    )
    kit.table.record_pop(
        GroupQueue("T", "g", 1), [0], pop_time_ms=1, invisible_ms=1, attempt_id=None
    )
    kit.table.persist()
    assert len(kit.table) == 1
    kit.clock.now_ms += KEEP_MS + 1
    kit.table.persist()
    assert len(kit.table) == 0


def test_order_table_load_skips_invalid_entries() -> None:
    value = {"table": {"T@g": {0: {"o": "x"}, 1: []}, "T": {0: {}}, "U@g": {0: {"o": [1]}}}}
    assert len(Kit(value).table) == 1


DAY_MS = 24 * 3_600_000


def test_order_table_clock_set_back_does_not_extend_block() -> None:
    kit = Kit()
    kit.pop([4])
    kit.clock.ahead_ms = -DAY_MS
    kit.clock.now_ms += 999
    assert kit.table.is_blocked(QUEUE)
    kit.clock.now_ms += 1
    assert not kit.table.is_blocked(QUEUE)
    kit.pop([4])
    kit.clock.ahead_ms = DAY_MS
    assert kit.table.is_blocked(QUEUE), "nor shorter, when it is set forward"


def test_order_table_change_visible_after_clock_change_uses_new_clock() -> None:
    kit = Kit()
    kit.pop([4])
    pop_time_ms = kit.clock.time_ms()
    kit.clock.ahead_ms = -DAY_MS
    kit.table.change_visible(QUEUE, 4, pop_time_ms, kit.clock.time_ms() + 5_000)
    kit.clock.now_ms += 4_999
    assert kit.table.is_blocked(QUEUE)
    kit.clock.now_ms += 1
    assert not kit.table.is_blocked(QUEUE)


def test_order_table_clock_set_back_while_down_does_not_extend_block() -> None:
    kit = Kit()
    kit.pop([4])
    kit.table.persist()
    later = Kit(kit.file.value)
    later.clock.ahead_ms = -DAY_MS
    later.table.load()
    assert later.table.is_blocked(QUEUE)
    later.clock.now_ms += 1_000
    assert not later.table.is_blocked(QUEUE)


@pytest.mark.parametrize(
    "damage",
    [
        {"popTime": 1 << 60},
        {"i": 1 << 60},
        {"i": -1},
        {"ot": {"4": 1 << 62}},
        {"o": [-4]},
        {"o": [1 << 60]},
        {"o": [4, -9]},
        {"o": [0] * 5_000},
        {"cm": -1},
    ],
)
def test_order_table_damaged_entry_does_not_block_forever(damage: dict[str, Any]) -> None:
    kit = Kit()
    kit.pop([4])
    entry = {**kit.table.to_json()["table"]["T@g"][0], **damage}
    later = Kit({"table": {"T@g": {"0": entry}}})
    later.clock.now_ms += 3 * DAY_MS
    assert not later.table.is_blocked(QUEUE)


def test_order_table_entry_blocked_for_days_is_kept() -> None:
    kit = Kit()
    kit.table.record_pop(
        QUEUE, [4], pop_time_ms=kit.clock.now_ms, invisible_ms=2 * DAY_MS, attempt_id=None
    )
    kit.clock.now_ms += DAY_MS + 1
    kit.table.persist()
    assert kit.table.is_blocked(QUEUE)
    kit.clock.now_ms += DAY_MS
    kit.table.persist()
    assert len(kit.table) == 0
