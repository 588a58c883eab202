"""Durations of options: seconds as a number, or a timedelta.

Names of options do not repeat the unit; inside, times are whole milliseconds (`_ms`) or seconds
(`_s`), and their names do.

Example:
    >>> to_ms(0.5), to_ms(timedelta(minutes=2)), to_s(timedelta(minutes=2))
    (500, 120000, 120.0)
"""

import math
from datetime import timedelta

Duration = float | timedelta
"""A time span: seconds, or a timedelta."""


def to_s(duration: Duration) -> float:
    """Return a duration in seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def to_ms(duration: Duration) -> int:
    """Return a duration in whole milliseconds, rounded up."""
    return math.ceil(round(to_s(duration) * 1_000, 3))
