"""Exceptions by which a handler decides on its message, and what they ask for.

Returning means done; any other exception asks for a redelivery after the usual delay.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import IntEnum
from typing import Final, NamedTuple, Self

from rocketpy.client.options.durations import Duration, to_s
from rocketpy.client.options.validation import described, fits
from rocketpy.errors import ClientError
from rocketpy.proto.record.properties import property_line

logger: logging.Logger = logging.getLogger(__name__)

Backoff = Callable[[int], Duration]
"""Returns the delay of a retry, given its number: 1 for the first one."""
MAX_RETRY_DELAY_S: Final = 7_200
"""The longest delay level of brokers."""
ENDS_PROGRAM: Final = (KeyboardInterrupt, SystemExit)
"""Exceptions that are not failures of the user's function that raised them."""
_MAX_SHOWN: Final = 300


def ends_task(error: BaseException, task: "asyncio.Task[object] | None") -> bool:
    """Return whether an exception ends a task, or the program, instead of one call of a function.

    Any other exception is a failure of the function, also one that is no `Exception`, as test
    frameworks raise it: it must not end a worker. So is a cancellation, unless it is the task's:
    the function let through that of something it awaited.

    Args:
        error: raised by a user's function that the task awaited.
        task: the task, as it was known before the call.
    """
    if isinstance(error, GeneratorExit):
        # Python closes the coroutine of a task that it destroys; there the task is not running.
        return task is None or running_task() is not task
    if isinstance(error, asyncio.CancelledError):
        return task is None or task.cancelling() > 0
    return isinstance(error, ENDS_PROGRAM)


def cause_of(error: BaseException) -> tuple[str, str]:
    """Return the class name and the text of an exception for a reader elsewhere.

    For a group they are those of its exceptions: "unhandled errors in a TaskGroup" says nothing.
    """
    leaves = leaves_of(error)
    if len(leaves) == 1:
        return type(leaves[0]).__name__, text_of(leaves[0])
    told = "; ".join(f"{type(each).__name__}: {text_of(each)}" for each in leaves)
    return type(error).__name__, told


def text_of(error: BaseException) -> str:
    """Return the text of an exception; empty when its `__str__` raises, which is the user's."""
    try:
        return str(error)
    except ENDS_PROGRAM:
        raise
    except BaseException:  # noqa: BLE001 - see above
        return ""


def shown(error: BaseException) -> str:
    """Return the bounded `repr` of an exception; its class when `__repr__` raises."""
    try:
        return repr(error)[:_MAX_SHOWN]
    except ENDS_PROGRAM:
        raise
    except BaseException:  # noqa: BLE001 - `__repr__` is the user's
        return type(error).__name__


def retrieve_exit(error: BaseException, task: "asyncio.Task[object] | None") -> None:
    """Mark the end of the program in a background task as retrieved.

    The event loop raises it to its caller. Without a task that awaits this one, Python would also
    log it as an exception that was never retrieved, with a traceback.

    Args:
        error: raised by the task; one that does not end the program stays unretrieved.
        task: the running task.
    """
    if isinstance(error, ENDS_PROGRAM) and task is not None:
        task.add_done_callback(lambda ended: None if ended.cancelled() else ended.exception())


def leaves_of(error: BaseException) -> list[BaseException]:
    """Return the exceptions of a group, of nested ones too; those of any other: itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for each in error.exceptions for leaf in leaves_of(each)]


def decision_of(error: BaseException) -> BaseException:
    """Return the `Retry` or `ToDLQ` of an exception group, the first one; else the exception.

    `asyncio.TaskGroup` raises what its tasks raise in a group: the decision is the handler's.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    return next((each for each in leaves_of(error) if isinstance(each, Retry | ToDLQ)), error)


def running_task() -> "asyncio.Task[object] | None":
    """Return the running task, None outside of an event loop."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class TxState(IntEnum):
    """Outcome of a local transaction; the values are those of the wire."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12

    def __str__(self) -> str:
        return self.name


DEAD_LETTER: Final = -1
"""The delay level that asks for the dead letter queue at once."""


class Rejection(NamedTuple):
    """Request to redeliver a message that was not handled, and why it was not.

    Attributes:
        delay_level: 1..18 of the broker's levels; 0 for a delay that grows with each delivery;
            below 0 for the dead letter queue.
        delay_s: delay instead of a level; None without.
        exception: class name of the exception, empty without one.
        reason: text of the exception, or another reason, as one line; a dead letter carries both.
    """

    delay_level: int = 0
    delay_s: float | None = None
    exception: str = ""
    reason: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Self:
        """Return what an exception of a handler asks for.

        The cause of a `Retry` or a `ToDLQ` without a text stands in its place as the reason.
        """
        level, delay_s, cause = 0, None, error
        if isinstance(error, Retry):
            level, delay_s, cause = error.delay_level, error.delay_s, error.__cause__ or error
        elif isinstance(error, ToDLQ):
            level = DEAD_LETTER
            cause = error if error.reason or error.__cause__ is None else error.__cause__
        kind, reason = cause_of(cause)
        return cls(level, delay_s, property_line(kind), property_line(reason))

    @property
    def is_dead_letter(self) -> bool:
        """Whether the dead letter queue is asked for."""
        return self.delay_level < 0

    @property
    def has_delay(self) -> bool:
        """Whether a delay was chosen for this message."""
        return self.delay_level > 0 or self.delay_s is not None

    def backed_off(self, backoff: Backoff | None, retry: int) -> Self:
        """Return this with the delay of the group's function, unless a delay was chosen.

        Args:
            backoff: the function; None without one.
            retry: number of the retry, 1 for the first.
        """
        if backoff is None or self.is_dead_letter or self.has_delay:
            return self
        try:
            delay_s = _seconds(backoff(retry))
        except ENDS_PROGRAM:
            raise
        except BaseException as error:  # noqa: BLE001 - the function is the user's
            logger.warning(
                "retry_backoff failed, usual delay used: retry=%(retry)d error=%(error)s",
                {"retry": retry, "error": shown(error)},
            )
            return self
        return self._replace(delay_s=min(delay_s, MAX_RETRY_DELAY_S))


def _seconds(delay: Duration) -> float:
    """Return a delay in seconds; raises TypeError or ValueError when it is none."""
    if not isinstance(delay, float) and not fits(Duration, delay):  # an infinite float is a delay
        raise TypeError(f"delay: {delay!r} is not {described(Duration)}")
    seconds = to_s(delay)
    if not seconds >= 0:
        raise ValueError(f"delay: {seconds} s is less than 0")
    return seconds


def check_level(delay_level: int) -> None:
    """Raise TypeError unless a delay level is a whole number: seconds and True are not."""
    if not fits(int, delay_level):
        raise TypeError(f"delay_level: {delay_level!r} is not a whole number")


def checked_delay(delay_level: int, delay: Duration | None, most_s: float) -> float | None:
    """Return a delay in seconds, None without one.

    Args:
        delay_level: given beside it; 0 without one.
        delay: seconds, or a timedelta.
        most_s: the longest one.

    Raises:
        TypeError: a level or a delay of another type.
        ClientError: a level and a delay, or a delay that is too long or less than 0.
    """
    check_level(delay_level)
    if delay is None:
        return None
    if not fits(Duration, delay):
        raise TypeError(f"delay: {delay!r} is not {described(Duration)}")
    if delay_level:
        raise ClientError("give delay_level or delay, not both")
    seconds = to_s(delay)
    if not 0 <= seconds <= most_s:
        raise ClientError(f"delay: {seconds:g} s is not between 0 and {most_s:g} s")
    return seconds


class Retry(Exception):  # noqa: N818 - an order to the consumer, not an error
    """Deliver this message again after a delay; raised by a handler.

    Args:
        delay_level: 1..18 of the broker's levels (1 s, 5 s, 10 s, 30 s, 1 min, ...); 0 lets the
            time grow with the number of deliveries so far, from 10 s to 2 h; below 0 is the dead
            letter queue. A consumer that is `ordered` waits `ordered_retry_pause` instead.
        delay: instead of a level, seconds or a timedelta, at most two hours. Brokers round it up
            to the next level; for ordered and pop consumers it is exact.

    Raises:
        TypeError: a level that is no whole number, or a delay of another type.
        ClientError: a level and a delay, or a delay that is too long or less than 0.
    """

    def __init__(self, delay_level: int = 0, *, delay: Duration | None = None) -> None:
        self.delay_s: float | None = checked_delay(delay_level, delay, MAX_RETRY_DELAY_S)
        super().__init__(delay_level)
        self.delay_level = delay_level

    def __str__(self) -> str:
        if self.delay_s is not None:
            return f"retry after {self.delay_s:g} s"
        return f"retry at delay level {self.delay_level}"


class ToDLQ(Exception):  # noqa: N818
    """Do not deliver this message again; put it into the group's dead letter queue.

    Args:
        reason: kept with the dead letter, as its property `DLQ_REASON`.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
