"""Rows at a bounded rate: what comes too early waits."""

import time
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa


def paced(
    batches: Iterable[pa.RecordBatch],
    rows_per_s: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Hand batches on in slices, on the average no faster than so many rows a second.

    A slice is about a tenth of a second's rows, so that the rate holds within a second, too.

    Args:
        batches: of any schema.
        rows_per_s: above 0.
        now: seconds of a clock that never goes back.
        sleep: waits for some seconds.
    """
    step = max(1, int(rows_per_s / 10))
    due = now()
    for batch in batches:
        for start in range(0, batch.num_rows, step):
            early = due - now()
            if early > 0:
                sleep(early)
            else:
                due -= early  # what was not used is not saved up
            piece = batch.slice(start, step)
            due += piece.num_rows / rows_per_s
            yield piece
