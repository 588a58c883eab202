"""Queue entries made from records: each at its place, and what it means when that is another's."""

import logging
from collections.abc import Callable

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.store.consume_queue.queue_entry import MOST_QUEUE_OFFSET
from rocketpy.store.consume_queue.queue_rebuild import EntriesLost, QueueRebuilder
from tests.unit.store.log_kit import RECORD_BYTES, LogKit


class Kit(LogKit):
    def __init__(self, covers: Callable[[str, int], bool] = lambda _topic, _at: False) -> None:
        super().__init__()
        self.rebuilder = QueueRebuilder(self.table, self.log, covers)

    def rebuild(
        self, queue_offset: int, phy_offset: int, *, topic: str = "T", tags_code: int = 0
    ) -> None:
        self.rebuilder.put(topic, 0, queue_offset, phy_offset, RECORD_BYTES, tags_code)

    def entries(self, topic: str = "T") -> list[int]:
        """Physical offsets of a queue's entries."""
        queue = self.table.get(topic, 0)
        if queue is None:
            return []
        found = [queue.entry(each) for each in range(queue.min_offset, queue.max_offset)]
        return [entry[0] for entry in found if entry is not None]


def test_records_get_their_entries_in_order() -> None:
    kit = Kit()
    for number in range(3):
        kit.rebuild(number, number * RECORD_BYTES, tags_code=7 + number)
    assert kit.entries() == [0, 1_000, 2_000]
    queue = kit.table.get("T", 0)
    assert queue is not None
    assert queue.entry(1) == (1_000, RECORD_BYTES, 8)
    assert (kit.rebuilder.entry_count, kit.rebuilder.damaged) == (3, [])


def test_entry_that_is_there_is_not_written_again() -> None:
    kit = Kit()
    for _ in range(2):
        kit.rebuild(0, 0)
        kit.rebuild(1, 1_000)
    assert kit.rebuilder.entry_count == 2
    assert kit.entries() == [0, 1_000]


def test_records_at_the_last_place_and_behind_it() -> None:
    kit = Kit()
    for number in range(-2, 3):
        kit.rebuild(MOST_QUEUE_OFFSET + number, 1_000 * (number + 2))
    assert kit.entries() == [0, 1_000, 2_000]
    assert kit.rebuilder.damaged == [3_000, 4_000]


@pytest.mark.parametrize(("count", "goes_on"), [(1, True), (2, False)])
def test_run_may_not_pass_the_last_place(count: int, *, goes_on: bool) -> None:
    kit = Kit()
    kit.rebuild(MOST_QUEUE_OFFSET - 2, 0)
    assert kit.rebuilder.goes_on("T", 0, MOST_QUEUE_OFFSET - 1, 1_000, count) is goes_on


def test_no_room_is_made_behind_the_last_place() -> None:
    kit = Kit()
    kit.rebuilder.reserve("T", 0, MOST_QUEUE_OFFSET + 1)
    assert kit.table.get("T", 0) is None


def test_record_that_names_the_place_of_another_is_damaged() -> None:
    kit = Kit()
    for number in range(3):
        kit.rebuild(number, number * RECORD_BYTES)
    kit.rebuild(1, 5_000)
    kit.rebuild(2, 2_000, tags_code=9)
    assert kit.rebuilder.damaged == [5_000, 2_000]
    assert kit.entries() == [0, 1_000, 2_000], "the entries of before stay"


def test_first_record_of_recreated_queue_restarts_it() -> None:
    kit = Kit()
    for number in range(3):
        kit.rebuild(number, number * RECORD_BYTES)
    kit.rebuild(0, 7_000)
    kit.rebuild(1, 8_000)
    assert kit.entries() == [7_000, 8_000]
    assert kit.rebuilder.damaged == []


def test_messages_deleted_with_their_topic_get_no_entry_and_make_no_queue() -> None:
    kit = Kit(lambda topic, at: topic == "T" and at < 2_000)
    kit.rebuild(0, 0)
    kit.rebuild(1, 1_000)
    assert kit.table.get("T", 0) is None
    kit.rebuild(0, 2_000)
    kit.rebuild(0, 1_000, topic="U")
    assert kit.entries() == [2_000]
    assert kit.entries("U") == [1_000]


@pytest.mark.parametrize("topic", ["a/b", "..", ""])
def test_record_of_a_topic_that_no_queue_can_have_is_an_error(topic: str) -> None:
    with pytest.raises(StoreFormatError):
        Kit().rebuild(0, 0, topic=topic)


def test_log_that_begins_late_begins_its_queues_late() -> None:
    kit = Kit()
    kit.rebuild(40, 0)
    kit.rebuild(41, 1_000)
    queue = kit.table.get("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (40, 42)
    assert kit.entries() == [0, 1_000]


def test_lost_messages_leave_a_hole_that_readers_get_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = Kit()
    kit.rebuild(0, 0)
    with caplog.at_level(logging.WARNING):
        kit.rebuild(3, 3_000)
    assert kit.entries() == [0, 3_000, 3_000, 3_000], "their places show the next message"
    assert kit.rebuilder.entry_count == 2, "filled places are no messages"
    assert "messages lost, queue gap filled" in caplog.text
    kit.rebuild(4, 4_000)
    assert kit.entries()[-1] == 4_000


def test_more_lost_messages_than_the_log_had_room_for_are_a_damaged_record() -> None:
    kit = Kit()
    kit.rebuild(0, 0)
    kit.rebuild(1_000_000, 1_000)
    assert kit.rebuilder.damaged == [1_000]
    assert kit.rebuilder.entry_count == 1
    kit.rebuild(1, 2_000)
    assert kit.entries() == [0, 2_000]


def test_entries_lost_before_reading_began_are_said_with_where_to_begin() -> None:
    kit = Kit()
    last = [kit.put() for _ in range(3)][-1]
    later = kit.append(5)
    kit.rebuilder.begin(later)
    with pytest.raises(EntriesLost) as lost:
        kit.rebuild(5, later)
    assert lost.value.start == last, "a message whose entry the queue has"


def test_last_entry_that_proves_nothing_sends_reading_back_to_the_begin() -> None:
    kit = Kit()
    queue = kit.table.get_or_create("T", 0)
    at = kit.append(7)  # its record says another place than its entry
    queue.put_recovered(0, at, RECORD_BYTES, 0)
    later = kit.append(9)
    kit.rebuilder.begin(later)
    with pytest.raises(EntriesLost) as lost:
        kit.rebuild(9, later)
    assert lost.value.start == kit.log.min_phy_offset


def test_records_read_before_restart_fill_no_gap() -> None:
    kit = Kit()
    first = kit.append(0)
    kit.rebuild(0, first)
    later = kit.append(3)
    kit.rebuilder.begin(later)
    with pytest.raises(EntriesLost):
        kit.rebuild(3, later)
    assert kit.entries() == [first]


def test_queue_without_entries_sends_reading_back_to_the_begin() -> None:
    kit = Kit()
    kit.append(0)
    later = kit.append(1)
    kit.rebuilder.begin(later)
    with pytest.raises(EntriesLost) as lost:
        kit.rebuild(1, later)
    assert lost.value.start == 0


def test_beginning_again_forgets_what_was_counted() -> None:
    kit = Kit()
    kit.rebuild(0, 0)
    kit.rebuild(1, 1_000)
    kit.rebuild(1, 9_000)
    assert (kit.rebuilder.entry_count, kit.rebuilder.damaged) == (2, [9_000])
    kit.rebuilder.begin(0)
    assert (kit.rebuilder.entry_count, kit.rebuilder.damaged) == (0, [])


def test_room_is_made_before_an_entry_is_put() -> None:
    kit = Kit()
    kit.rebuilder.reserve("T", 0, 0)
    queue = kit.table.get("T", 0)
    assert queue is not None
    assert queue.reserved_offset > 0
    assert (queue.next_offset, queue.max_offset) == (1, 0), "a place is taken, nothing is put"
    kit.rebuild(0, 0)
    assert kit.entries() == [0]


def test_replica_of_late_master_reserves_from_its_start() -> None:
    kit = Kit()
    kit.rebuilder.reserve("T", 0, 40)
    queue = kit.table.get("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (40, 40, 41)
    kit.rebuilder.reserve("T", 0, 41)
    assert (queue.max_offset, queue.next_offset) == (40, 42)


def test_room_for_an_entry_out_of_turn_takes_no_place() -> None:
    kit = Kit()
    for queue_offset in (0, 1, 7):
        kit.rebuilder.reserve("T", 0, queue_offset)
    queue = kit.table.get("T", 0)
    assert queue is not None
    assert queue.next_offset == 2
    with pytest.raises(StoreFormatError):
        kit.rebuilder.reserve("a/b", 0, 0)
