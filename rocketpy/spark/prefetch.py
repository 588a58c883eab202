"""Batches made by a thread while the one before is written to Spark.

Writing waits for the JVM and copies, both without the interpreter's lock; so does most of decoding.
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
"""Items that wait at most: one is made, one waits, one is written."""
_END: Final = object()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items of an iterator that another thread runs, a little ahead.

    What it raises is raised here. Left early, the thread ends after the item it is at, and closes
    the iterator if that is a generator.
    """
    waiting: queue.Queue[object] = queue.Queue(AHEAD)
    is_left = threading.Event()

    def run() -> None:
        try:
            for item in items:
                if not _put(waiting, item, is_left):
                    return
                del item  # else it is kept while the next one is made
        finally:
            if isinstance(items, Generator):
                items.close()
            _put(waiting, _END, is_left)

    with _released(), ThreadPoolExecutor(1, "rocketpy-decode") as pool:
        made = pool.submit(run)
        try:
            while (item := waiting.get()) is not _END:
                yield item  # type: ignore[misc]  # only items and the end are put
                del item  # else it is kept while the next one is waited for
            made.result()
        finally:
            is_left.set()


@contextmanager
def _released() -> Iterator[None]:
    """Give memory for batches back at the end: the thread's would stay with the process."""
    try:
        yield
    finally:
        pa.default_memory_pool().release_unused()


def _put(waiting: "queue.Queue[object]", item: object, is_left: threading.Event) -> bool:
    """Hand an item over; False when nobody wants it any more."""
    while not is_left.is_set():
        try:
            waiting.put(item, timeout=0.1)
        except queue.Full:
            continue
        return True
    return False
