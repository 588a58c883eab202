"""Queues by topic and number: found on disk, made when needed, never outside their directory."""

import threading

import pytest

from rocketpy.errors import StoreFormatError
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.consume_queue.consume_queue_table import ConsumeQueueTable, is_safe_topic
from rocketpy.testing.sim_files import SimFiles

UNSAFE = ["", ".", "..", "a/b", "a\\b", "../x", "a\0b", "a\nb", "x" * 256, "\u00e4" * 128]


def make(files: SimFiles) -> ConsumeQueueTable:
    config = MessageStoreConfig(store_path_root_dir="/store", mapped_file_size_consume_queue=2000)
    return ConsumeQueueTable(config, files, threading.Lock())


def put(table: ConsumeQueueTable, topic: str, queue_id: int, count: int) -> None:
    queue = table.get_or_create(topic, queue_id)
    for _ in range(count):
        number = queue.next_offset
        if number >= queue.reserved_offset:
            queue.reserve()
        queue.next_offset = number + 1
        queue.put(number, number * 100, 100, 0)


@pytest.mark.parametrize("topic", UNSAFE)
def test_topic_that_is_no_directory_name_has_no_queue(topic: str) -> None:
    table = make(SimFiles())
    assert not is_safe_topic(topic)
    with pytest.raises(StoreFormatError):
        table.get_or_create(topic, 0)
    assert table.topics() == []


@pytest.mark.parametrize("queue_id", [-1, 1 << 31])
def test_number_beyond_the_format_has_no_queue(queue_id: int) -> None:
    with pytest.raises(StoreFormatError):
        make(SimFiles()).get_or_create("T", queue_id)


def test_queue_is_made_once_and_its_entries_count() -> None:
    table = make(SimFiles())
    assert table.get("T", 0) is None
    queue = table.get_or_create("T", 0)
    assert table.get("T", 0) is table.get_or_create("T", 0) is queue
    assert (table.entry_count({}), table.topics()) == (0, ["T"])
    put(table, "T", 0, 1)
    table.flush()
    assert table.entry_count({}) == 1
    assert not table.is_batch_topic("T")


def test_flushed_entries_are_found_by_next_process() -> None:
    files = SimFiles()
    table = make(files)
    put(table, "T", 0, 3)
    put(table, "T", 7, 150)
    put(table, "%RETRY%g", 0, 1)
    table.flush()
    assert table.dirty_bytes == 0
    table.close()
    again = make(files)
    again.load()
    found = {(queue.topic, queue.queue_id): queue.max_offset for queue in again}
    assert found == {("T", 0): 3, ("T", 7): 150, ("%RETRY%g", 0): 1}


def test_removed_topic_is_marked_deleted_for_held_queues() -> None:
    table = make(SimFiles())
    put(table, "T", 0, 1)
    put(table, "U", 0, 1)
    held = table.get_or_create("T", 0)
    with table.file_creation_lock:
        assert table.unhook_topic("T") == [held]
        assert table.unhook_topic("T") == []
    assert held.is_deleted
    assert table.topics() == ["U"]
    assert table.get_or_create("T", 0) is not held
