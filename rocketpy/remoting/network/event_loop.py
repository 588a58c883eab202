"""Event loop of servers and commands: uvloop where it is installed."""

import asyncio
import functools
import logging
from typing import Final

from rocketpy.runtime.os_resources import check_descriptors

logger: logging.Logger = logging.getLogger(__name__)

_LOOP_DESCRIPTORS: Final = 10
"""Descriptors of a loop and its signal handlers, with some to spare."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop; without uvloop the slower loop of asyncio, with one warning.

    Raises:
        OSError: the process has too few descriptors left for a loop.
    """
    check_descriptors(_LOOP_DESCRIPTORS)
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        _warn_once()
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@functools.cache
def _warn_once() -> None:
    logger.warning("uvloop not installed, using the slower asyncio event loop")
