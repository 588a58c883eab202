"""Waiting for the first round of a consumer: what is its own, and where that begins.

Until then, a group that begins with the latest message would miss what is sent.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from rocketpy.client.periodic import PeriodicJob

logger: logging.Logger = logging.getLogger(__name__)

_AGAIN_S: Final = 1.0


async def _nothing_more() -> None:
    pass


async def wait_for_first_round(
    group: str,
    done: asyncio.Event,
    rounds: PeriodicJob,
    limit_s: float,
    then: Callable[[], Awaitable[None]] = _nothing_more,
) -> None:
    """Wait until a round has said what is ours, with a new round each second.

    Args:
        group: for the warning when the time is over.
        done: set by the round.
        rounds: makes them, in the background; goes on when the time is over.
        limit_s: at most so long; 0 does not wait.
        then: waits, within the same time, for what the round has begun.
    """
    if not limit_s:
        return
    try:
        async with asyncio.timeout(limit_s):
            while not done.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_AGAIN_S):
                        await done.wait()
                        break
                rounds.wake()
            await then()
    except TimeoutError:
        logger.warning(
            "group %(group)s: its brokers did not say within %(limit_s)s s where it begins "
            "(%(error)r); what is sent before they do may be missed; they are asked again in the "
            "background",
            {"group": group, "limit_s": limit_s, "error": rounds.failure},
        )
