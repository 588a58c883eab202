"""Pauses of a send, and the time of each of its attempts."""

import random
from typing import Final

from rocketpy.errors import ConnectError, RocketPyError

INITIAL_BACKOFF_MS: Final = 1000
BACKOFF_FACTOR: Final = 1.6
BACKOFF_JITTER: Final = 0.2
MAX_BACKOFF_MS: Final = 120_000
MIN_CONNECT_TIMEOUT_MS: Final = 20_000

MIN_SHARE_MS: Final = 200
FIRST_PAUSE_MS: Final = 25
MAX_SHORT_PAUSE_MS: Final = 100
SHORT_PAUSES: Final = 12
MAX_PAUSE_MS: Final = 1000
LAST_TRY_MS: Final = 100

STALL_MS: Final = 200
"""A timer that fires this late was delayed by this process, not by a server."""
MAX_GRACE_MS: Final = 1000
"""Most time that responses get after a stall, which servers may have spent waiting for this one."""


def backoff_ms(failures: int, rng: random.Random) -> int:
    """Return the time between the begins of two attempts after flow control.

    Args:
        failures: number of consecutive failures, from 1; the first pause has no jitter.
        rng: for the jitter.
    """
    if failures == 1:
        return INITIAL_BACKOFF_MS
    # The exponent is bounded, because a float overflows after some 1,500 failures.
    pause = min(INITIAL_BACKOFF_MS * BACKOFF_FACTOR ** min(failures - 1, 64), MAX_BACKOFF_MS)
    return int(pause * (1 + rng.uniform(-BACKOFF_JITTER, BACKOFF_JITTER)))


def pause_ms(pauses: int) -> int:
    """Return the n-th pause while no broker can be reached, n from 1.

    The first ones are short, for a controller replaces a lost master within a second.
    """
    if pauses <= SHORT_PAUSES:
        return int(min(FIRST_PAUSE_MS * BACKOFF_FACTOR ** (pauses - 1), MAX_SHORT_PAUSE_MS))
    growth = BACKOFF_FACTOR ** min(pauses - SHORT_PAUSES, 64)
    return int(min(MAX_SHORT_PAUSE_MS * growth, MAX_PAUSE_MS))


def share_ms(left_ms: int, attempts_left: int, *, after_flow_control: bool = False) -> int:
    """Return the time that an attempt has before the next one begins.

    Args:
        left_ms: rest of the time of the send.
        attempts_left: this one included.
        after_flow_control: whether an attempt of the send has failed by flow control; the attempt
            then gets at least the minimum connect timeout, if half of the rest is not shorter.
    """
    # At most half of the rest, so that another attempt has time, however high the minimum is.
    least_ms = MIN_CONNECT_TIMEOUT_MS if after_flow_control else MIN_SHARE_MS
    return max(left_ms // attempts_left, min(least_ms, left_ms // 2))


def retry_pause_ms(pauses: int, error: RocketPyError, left_ms: int) -> int:
    """Return the pause before brokers are tried again; the last try is just before the end.

    Args:
        pauses: number of pauses so far, this one included.
        error: reason why no broker could be reached.
        left_ms: of the whole time.
    """
    wait_ms = pause_ms(pauses)
    if isinstance(error, ConnectError):
        # Not much longer at first: another broker may take the place of the one that is gone.
        longest_ms = MAX_SHORT_PAUSE_MS if pauses <= SHORT_PAUSES else error.retry_in_ms
        wait_ms = max(wait_ms, min(error.retry_in_ms, longest_ms))
    # The last pause ends just before the deadline: a broker that restarts may be back by then.
    if left_ms > LAST_TRY_MS:
        wait_ms = min(wait_ms, left_ms - LAST_TRY_MS)
    return min(wait_ms, left_ms)
