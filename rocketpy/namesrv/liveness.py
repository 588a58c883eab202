"""Brokers that fell silent are taken out of the routes.

A broker refreshes itself with every registration, version query and heartbeat. One that said
nothing for its own timeout (120 s unless it asked for another) is forgotten and its connection
closed. A broker whose connection closes is forgotten at once: see `server.py`.

Source: RouteInfoManager.scanNotActiveBroker (5.4.0)
"""

import structlog

from rocketpy.namesrv.route_table import RouteTable
from rocketpy.remoting.connection.channel import Channel

_logger = structlog.get_logger(__name__)


class Liveness:
    """The service that scans for silent brokers.

    Args:
        routes: the table to clean.
        interval_ms: time between two scans.
    """

    name = "namesrv-liveness"

    def __init__(self, routes: RouteTable, interval_ms: int) -> None:
        self._routes = routes
        self._interval_ms = interval_ms

    def step(self, now_ms: int) -> int:
        """Forget every broker whose time is over; due again after the interval."""
        for broker, connection in self._routes.expire(now_ms):
            _logger.warning("broker expired", cluster=broker.cluster, address=broker.address)
            if isinstance(connection, Channel):
                connection.close("broker expired")
        return now_ms + self._interval_ms
