"""Rate limit of rows: delays batches that arrive early."""

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
    """Yield slices of batches, on average no faster than a number of rows a second.

    A slice has the rows of about a tenth of a second, so the rate also holds within a second.

    Args:
        batches: of any schema.
        rows_per_s: above 0.
        now: monotonic clock, seconds.
        sleep: waits for a number of seconds.
    """
    step = max(1, int(rows_per_s / 10))
    due = now()
    for batch in batches:
        for start in range(0, batch.num_rows, step):
            early = due - now()
            if early > 0:
                sleep(early)
            else:
                due -= early  # unused time is not saved up
            piece = batch.slice(start, step)
            due += piece.num_rows / rows_per_s
            yield piece
