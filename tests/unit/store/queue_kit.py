"""Consume queue with short files, for tests."""

import threading
from pathlib import Path

from rocketpy.store.consume_queue.consume_queue import ConsumeQueue
from rocketpy.store.consume_queue.queue_entry import ENTRY_BYTES
from rocketpy.store.consume_queue.tail_memory import TailMemory
from rocketpy.store.files.store_files import StoreFiles
from rocketpy.testing.sim_files import SimFiles

DIRECTORY = Path("/store/consumequeue/T/0")
FIRST_FILE = DIRECTORY / ("0" * 20)
PER_FILE = 10
SIZE = 100


def make_queue(
    files: StoreFiles,
    *,
    space: TailMemory | None = None,
    per_file: int = PER_FILE,
    directory: Path = DIRECTORY,
) -> ConsumeQueue:
    """A queue as it is before its first entry."""
    return ConsumeQueue(
        "T",
        0,
        directory,
        per_file * ENTRY_BYTES,
        files,
        space or TailMemory(threading.Lock()),
    )


def put_entries(queue: ConsumeQueue, count: int) -> None:
    """Put entries of messages that are a hundred bytes apart."""
    for number in range(queue.next_offset, queue.next_offset + count):
        if number >= queue.reserved_offset:
            queue.reserve()
        queue.next_offset = number + 1
        queue.put(number, number * SIZE, SIZE, number % 3)


def filled(count: int, files: StoreFiles | None = None, start: int = 0) -> ConsumeQueue:
    """A queue with entries in memory."""
    queue = make_queue(files or SimFiles())
    queue.restart_at(start)
    put_entries(queue, count)
    return queue


def loaded(files: StoreFiles, **more: int) -> ConsumeQueue:
    """The queue as the next process finds it."""
    queue = make_queue(files, **more)  # type: ignore[arg-type]
    queue.load()
    return queue
