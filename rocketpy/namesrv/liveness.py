"""Removes inactive brokers from the routes.

Every registration, version query and heartbeat refreshes a broker. A broker without one for its
timeout (120 s unless it registered another) is removed, and its connection closed. When the
connection of a broker closes, `server.py` removes it immediately.

Source: RouteInfoManager.scanNotActiveBroker (5.4.0)
"""

from collections.abc import Callable

import structlog

from rocketpy.namesrv.route_table import RouteTable
from rocketpy.remoting.connection.channel import Channel

_logger = structlog.get_logger(__name__)


class Liveness:
    """Service that scans for inactive brokers.

    Args:
        routes: the table to clean.
        interval_ms: time between two scans.
        take_over: called after brokers were removed.
    """

    name = "namesrv-liveness"

    def __init__(
        self,
        routes: RouteTable,
        interval_ms: int,
        take_over: Callable[[], None] = lambda: None,
    ) -> None:
        self._routes = routes
        self._take_over = take_over
        self._interval_ms = interval_ms

    def step(self, now_ms: int) -> int:
        """Remove every broker with an expired timeout; due again after the interval."""
        expired = self._routes.expire(now_ms)
        if expired:
            self._take_over()
        for broker, connection in expired:
            _logger.warning("broker expired", cluster=broker.cluster, address=broker.address)
            if isinstance(connection, Channel):
                connection.close("broker expired")
        return now_ms + self._interval_ms
