"""Event loop of servers and commands: uvloop where it is installed."""

import asyncio
import functools
import logging

logger: logging.Logger = logging.getLogger(__name__)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a uvloop; without uvloop the slower loop of asyncio, with one warning."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        _warn_once()
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


@functools.cache
def _warn_once() -> None:
    logger.warning("uvloop not installed, using the slower asyncio event loop")
