"""Prefetches the next batch on a thread while Spark consumes the current one.

Writing to Spark waits for the JVM and copies, both without the interpreter's lock; most of
decoding runs without it too.
"""

import queue
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, TypeVar

import pyarrow as pa

T = TypeVar("T")

AHEAD: Final = 1
"""Most waiting items: one is produced, one waits, one is written."""
_END: Final = object()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator that another thread runs ahead.

    Exceptions of the iterator are raised here. If the caller stops early, the thread ends after
    its current item, and closes the iterator if that is a generator.
    """
    waiting: queue.Queue[object] = queue.Queue(AHEAD)
    is_left = threading.Event()

    def run() -> None:
        try:
            for item in items:
                if not _put(waiting, item, is_left):
                    return
                del item  # otherwise it is kept while the next one is produced
        finally:
            if isinstance(items, Generator):
                items.close()
            _put(waiting, _END, is_left)

    with _released(), ThreadPoolExecutor(1, "rocketpy-decode") as pool:
        made = pool.submit(run)
        try:
            while (item := waiting.get()) is not _END:
                yield item  # type: ignore[misc]  # only items and the end are put
                del item  # otherwise it is kept during the wait for the next one
            made.result()
        finally:
            is_left.set()


@contextmanager
def _released() -> Iterator[None]:
    """Return the thread's memory for batches to the system at the end."""
    try:
        yield
    finally:
        pa.default_memory_pool().release_unused()


def _put(waiting: "queue.Queue[object]", item: object, is_left: threading.Event) -> bool:
    """Put an item into the queue; return False when the consumer has stopped."""
    while not is_left.is_set():
        try:
            waiting.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
