"""The event loop of servers and commands: uvloop where there is one."""

import asyncio
import functools
import logging

logger: logging.Logger = logging.getLogger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop, else asyncio's own loop, which is slower, and say so once."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        _say_once()
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@functools.cache
def _say_once() -> None:
    logger.warning("uvloop is not installed: asyncio's own event loop serves, which is slower")
