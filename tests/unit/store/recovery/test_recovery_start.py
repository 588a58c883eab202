"""Start of the recovery scan: the trusted part of the store is not read."""

import logging
from pathlib import Path

import pytest

from rocketpy.store.checkpoint import MARGIN_MS, UNKNOWN, Checkpoint
from rocketpy.store.deleted_topics import DeletedTopics
from rocketpy.store.recovery.recovery_start import RecoveryStart
from tests.unit.store.log_kit import FILE_BYTES, PER_FILE, RECORD_BYTES, LogKit

SECOND_MS = 1_000
T0_MS = 1_700_000_000_000


class Kit(LogKit):
    """Messages one second apart, and a checkpoint that covers nothing."""

    def __init__(self, count: int = 0) -> None:
        super().__init__()
        self.checkpoint = Checkpoint(Path("/store/checkpoint"), self.files)
        self.deleted = DeletedTopics(Path("/store"), self.files)
        for number in range(count):
            self.put(now_ms=T0_MS + number * SECOND_MS)

    def vouch(self, log_to: int, queues_to: int, entry_count: int = UNKNOWN) -> None:
        self.checkpoint.has_offsets = True
        self.checkpoint.log_phy_offset = log_to
        self.checkpoint.queues_phy_offset = queues_to
        self.checkpoint.entry_count = entry_count

    def stamp(self, physic_ms: int, logics_ms: int) -> None:
        self.checkpoint.physic_ms, self.checkpoint.logics_ms = physic_ms, logics_ms

    def start(self, *, after_crash: bool = True) -> RecoveryStart:
        return RecoveryStart(
            self.log,
            self.table,
            self.checkpoint,
            after_crash=after_crash,
            deleted=self.deleted,
        )

    def find(self, *, after_crash: bool = True) -> int:
        return self.start(after_crash=after_crash).find()


def at(number: int) -> int:
    """Return the offset of a record: sixteen a file, followed by a blank."""
    return number // PER_FILE * FILE_BYTES + number % PER_FILE * RECORD_BYTES


# -- by offset: our own checkpoint -----------------------------------------------------------


@pytest.mark.parametrize(("log_to", "queues_to", "found"), [(5, 5, 5), (9, 3, 3), (3, 9, 3)])
def test_reading_begins_where_log_and_queues_are_both_on_disk(
    log_to: int, queues_to: int, found: int
) -> None:
    kit = Kit(12)
    kit.vouch(at(log_to), at(queues_to))
    assert kit.find() == at(found)


def test_recovery_never_starts_before_the_log() -> None:
    kit = Kit(40)
    kit.vouch(at(2), at(2))
    assert kit.log.delete_oldest()
    assert kit.find() == FILE_BYTES


def test_end_of_the_log_and_of_a_file_are_places_it_comes_to() -> None:
    kit = Kit(2 * PER_FILE)
    end = kit.log.max_phy_offset
    kit.vouch(end, end)
    assert kit.find() == end
    kit.vouch(FILE_BYTES, FILE_BYTES)
    assert kit.find() == FILE_BYTES


def test_end_of_the_last_file_is_a_place_it_comes_to_before_there_is_a_next() -> None:
    kit = Kit(PER_FILE + 1)
    kit.log.close()
    kit.files.remove(Path("/store/commitlog") / f"{FILE_BYTES:020d}")
    kit.log.load()
    kit.vouch(FILE_BYTES, FILE_BYTES)
    assert kit.find() == FILE_BYTES


@pytest.mark.parametrize("wrong", [at(20) + FILE_BYTES, at(11) + 5_000, 1 << 40])
def test_checkpoint_of_another_log_is_not_believed(
    wrong: int, caplog: pytest.LogCaptureFixture
) -> None:
    kit = Kit(10)
    kit.vouch(wrong, wrong)
    with caplog.at_level(logging.WARNING):
        assert kit.find() == 0
    assert "does not match the log" in caplog.text


def test_checkpoint_says_how_many_entries_there_are_to_be() -> None:
    kit = Kit(12)
    kit.vouch(at(9), at(5), entry_count=5)
    start = kit.start()
    assert start.find() == at(5)
    assert start.entries_expected == (at(5), 5)


def test_unknown_entry_count_expects_no_entries() -> None:
    kit = Kit(12)
    kit.vouch(at(5), at(5))
    start = kit.start()
    start.find()
    assert start.entries_expected is None


@pytest.mark.parametrize(("deleted_to", "is_expected"), [(4, True), (5, False), (6, False)])
def test_queues_of_topics_that_were_deleted_since_are_not_missed(
    deleted_to: int, is_expected: bool
) -> None:
    kit = Kit(12)
    kit.deleted.add("Gone", at(deleted_to), Path("/store/consumequeue/Gone"))
    kit.vouch(at(5), at(5), entry_count=5)
    start = kit.start()
    start.find()
    assert (start.entries_expected is not None) is is_expected


# -- by store time: Apache's checkpoint ------------------------------------------------------


def test_checkpoint_that_covers_nothing_reads_whole_log() -> None:
    assert Kit(12).find() == 0
    assert Kit(12).find(after_crash=False) == 0


def test_after_a_clean_end_reading_begins_with_the_last_message() -> None:
    kit = Kit(12)
    last_ms = T0_MS + 11 * SECOND_MS
    kit.stamp(last_ms, last_ms)
    start = kit.start(after_crash=False)
    assert start.find() == at(11)
    assert start.assumed_last_ms == last_ms


@pytest.mark.parametrize("after_crash", [True, False])
def test_without_a_clean_end_there_is_a_margin(after_crash: bool) -> None:
    kit = Kit(12)
    last_ms = T0_MS + 11 * SECOND_MS
    kit.stamp(last_ms, last_ms if after_crash else last_ms + 1)
    start = kit.start(after_crash=after_crash)
    assert start.find() == at(11 - MARGIN_MS // SECOND_MS)
    assert start.assumed_last_ms == 0


def test_lesser_stamp_counts() -> None:
    kit = Kit(12)
    kit.stamp(T0_MS + 11 * SECOND_MS, T0_MS + 8 * SECOND_MS)
    assert kit.find() == at(5)


def test_recovery_starts_at_last_old_enough_message_of_queues() -> None:
    kit = Kit()
    for number in range(12):
        kit.put(queue_id=number % 3, now_ms=T0_MS + number * SECOND_MS)
    assert kit.start().by_time(T0_MS + 7 * SECOND_MS) == at(7)
    assert kit.start().by_time(T0_MS + 7 * SECOND_MS + 999) == at(7)


def test_time_before_all_messages_has_everything_read() -> None:
    kit = Kit(12)
    assert kit.start().by_time(T0_MS - 1) == 0
    assert kit.start().by_time(0) == 0
    assert kit.start().by_time(-5) == 0


def test_entry_that_does_not_prove_itself_is_no_place_to_begin() -> None:
    kit = Kit(6)
    queue = kit.table.get("T", 0)
    assert queue is not None
    queue.put_recovered(6, at(2), RECORD_BYTES, 0)  # that record says it is the third
    assert kit.start().by_time(T0_MS + 100 * SECOND_MS) == at(5)


def test_clock_that_was_set_back_does_not_hide_a_file() -> None:
    """Messages of a time to come lie in a file before that place: reading begins there."""
    kit = Kit()
    for number in range(PER_FILE):
        kit.put(now_ms=T0_MS + number)
    for _ in range(PER_FILE):
        kit.put(topic="U", now_ms=T0_MS + 1_000_000)
    for number in range(PER_FILE, 2 * PER_FILE):
        kit.put(now_ms=T0_MS + number)
    assert kit.start().by_time(T0_MS + 1_000) == FILE_BYTES


# -- what is missing -------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 1], ids=["its begin", "a file in its middle"])
def test_queue_that_lost_a_file_has_everything_read_and_is_made_again_once(number: int) -> None:
    kit = Kit(280)
    kit.table.flush()
    kit.table.close()
    directory = Path("/store/consumequeue/T/0")
    kit.files.remove(directory / kit.files.list_files(directory)[number])
    kit.table.load()
    end = kit.log.max_phy_offset
    kit.vouch(end, end)
    start = kit.start()
    assert start.find() == 0
    assert [queue.topic for queue in start.to_remake] == ["T"]


def test_whole_queues_are_not_made_again() -> None:
    kit = Kit(12)
    start = kit.start()
    start.find()
    assert start.to_remake == []
