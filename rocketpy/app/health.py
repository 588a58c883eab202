"""Health of an app: reasons why it is not ready, and the port that reports them over HTTP."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from rocketpy.client.health import ClientHealth
from rocketpy.client.options.validation import fits
from rocketpy.errors import ConfigError
from rocketpy.remoting.health_pages import HealthPages
from rocketpy.runtime.readiness import NotReady, ServerState

logger: logging.Logger = logging.getLogger(__name__)

_PORT_MAX: Final = 65_535


def failures_of(health: ClientHealth) -> list[NotReady]:
    """Return the failures of a client and its consumers."""
    found = [NotReady("client_failed", f"{of}: {why}") for of, why in health.failures.items()]
    for group, consumer in health.consumers.items():
        found += [
            NotReady("consumer_failed", f"group {group}: {of}: {why}")
            for of, why in consumer.failures.items()
        ]
    return found


@contextlib.contextmanager
def health_port(
    port: int | None, address: str, reasons: Callable[[], Sequence[NotReady]]
) -> Iterator[None]:
    """Answer `/live` and `/ready` during the block, which runs on the loop of the app.

    Args:
        port: 0 chooses a free one, which is logged; None opens none.
        address: local address.
        reasons: returns why the app is not ready; called on its loop.

    Raises:
        ConfigError: the port is not a number from 0 to 65535.
        StartError: the port cannot be opened.
    """
    if port is None:
        yield
        return
    if not fits(int, port) or not 0 <= port <= _PORT_MAX:
        raise ConfigError(f"{port!r} is not a port from 0 to {_PORT_MAX}", key="health_port")
    advice = "choose another health port or health address"
    pages = HealthPages(address, port, reasons, program="app", advice=advice)
    # The app decides what `/ready` reports, because the port is open while it starts and stops.
    pages.state = ServerState.SERVING
    pages.start()
    logger.info(
        "health port opened: address=%(address)s port=%(port)d",
        {"address": address, "port": pages.port},
    )
    try:
        yield
    finally:
        pages.stop()
