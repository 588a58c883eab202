"""Exceptions by which a handler decides on its message.

Returning means done, any other exception means "again, when the broker's levels say so".
"""

from enum import IntEnum
from typing import Final

from rocketpy.client.options.validation import fits


class TxState(IntEnum):
    """Outcome of a local transaction; the values are those of the wire."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12

    def __str__(self) -> str:
        return self.name


DEAD_LETTER: Final = -1
"""The delay level that asks for the dead letter queue at once."""


def check_level(delay_level: int) -> None:
    """Raise TypeError unless a delay level is a whole number: seconds and True are not."""
    if not fits(int, delay_level):
        raise TypeError(f"delay_level: {delay_level!r} is not a whole number")


class Retry(Exception):  # noqa: N818 - an order to the consumer, not an error
    """Deliver this message again after a delay; raised by a handler.

    Args:
        delay_level: 1..18 of the broker's levels (1 s, 5 s, 10 s, 30 s, 1 min, ...); 0 lets the
            time grow with the number of deliveries so far, from 10 s to 2 h; below 0 is the dead
            letter queue. A consumer that is `ordered` waits `ordered_retry_pause` instead.

    Raises:
        TypeError: no whole number.
    """

    def __init__(self, delay_level: int = 0) -> None:
        check_level(delay_level)
        super().__init__(delay_level)
        self.delay_level = delay_level

    def __str__(self) -> str:
        return f"retry at delay level {self.delay_level}"


class ToDLQ(Exception):  # noqa: N818
    """Do not deliver this message again; put it into the group's dead letter queue.

    Args:
        reason: for the log.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
