"""Durations of options: seconds as a number, or a timedelta.

Names of options do not repeat the unit; inside, times are whole milliseconds (`_ms`) or seconds
(`_s`), and their names do.

Example:
    >>> to_ms(0.5), to_ms(timedelta(minutes=2)), to_s(timedelta(minutes=2))
    (500, 120000, 120.0)
"""

import math
from datetime import UTC, datetime, timedelta
from typing import Final

Duration = float | timedelta
"""A time span: seconds, or a timedelta."""
Moment = datetime | float
"""A point in time: a datetime, a float of seconds since 1970, or an int of ms since 1970.

A datetime without a time zone is local time, as in Python's own functions.
"""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_END_S: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def to_s(duration: Duration) -> float:
    """Return a duration in seconds."""
    return duration.total_seconds() if isinstance(duration, timedelta) else duration


def to_ms(duration: Duration) -> int:
    """Return a duration in whole milliseconds, rounded up."""
    return math.ceil(round(to_s(duration) * 1_000, 3))


def moment_ms(moment: Moment) -> int:
    """Return a point in time in ms since 1970; part of a ms is rounded up.

    Raises:
        ValueError: a float that cannot be seconds, as `time.time() * 1000` is, or an int that
            cannot be ms, as `time.time_ns()` is: no time after the year 9999 can be given.

    Example:
        >>> moment_ms(1_700_000_000.5), moment_ms(1_700_000_000_500)
        (1700000000500, 1700000000500)
    """
    if isinstance(moment, datetime):
        return -((_EPOCH - moment.astimezone(UTC)) // _MS)
    if isinstance(moment, int):
        if not abs(moment) <= _END_S * 1_000:
            raise ValueError(
                f"{moment!r} is an int, so ms since 1970, and no time before the year 10000: "
                "give seconds as a float, or divide us by 1000 and ns by 1000000"
            )
        return moment
    if not abs(moment) <= _END_S:
        raise ValueError(
            f"{moment!r} is a float, so seconds since 1970, and no time: give ms as an int"
        )
    return math.ceil(round(moment * 1_000, 3))
