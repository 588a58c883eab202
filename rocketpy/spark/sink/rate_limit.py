"""Rate limit of a task's rows.

Rows are delayed where they are sent. A delay before Spark's exchange with the task would not last:
Spark collects thousands of rows for each batch that it passes on.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from rocketpy.errors import ConfigError


def paced(
    batches: Iterable[pa.RecordBatch],
    rows_per_s: float,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Yield slices of batches, on average no faster than a number of rows per second.

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


def rates(text: str) -> tuple[float, ...]:
    """Parse a rate of every task, or comma-separated rates, one for each task.

    Raises:
        ValueError: the text is invalid; the message ends the sentence "option: ...".
    """
    try:
        found = tuple(float(each) for each in text.split(","))
    except ValueError:
        raise ValueError("is not a number, or numbers separated by commas") from None
    if not all(0 <= each < math.inf for each in found) or not any(found):
        raise ValueError("is not above 0")
    return found


def rate_of(rates: Sequence[float], partition: int) -> float:
    """Return the rate of a task, rows per second.

    Args:
        rates: of every task, or of each.
        partition: number of the task.

    Raises:
        ConfigError: there are several rates, but none for this task.
    """
    if len(rates) == 1:
        return rates[0]
    if partition >= len(rates):
        reason = f"has {len(rates)} rates, and none for task {partition}"
        raise ConfigError(reason, key="rowsPerSecond")
    return rates[partition]
