"""Limits of the number of connections, in all and per address.

Limits are checked before anything is built for a connection, so that each connection of a flood
costs only one accept and one close.
"""

import logging
import threading

from rocketpy.runtime.clock import Clock

_log = logging.getLogger(__name__)

# A flood of connections must not become a flood of log lines.
_REFUSAL_LOG_INTERVAL_MS = 1_000


class Admission:
    """Counts the connections of one server and refuses those over a limit; any thread."""

    def __init__(self, max_count: int, max_per_ip_count: int, clock: Clock) -> None:
        """Set the limits.

        Args:
            max_count: connections in all; 0 is no limit.
            max_per_ip_count: connections from one address; 0 is no limit.
            clock: for the pace of refusal logs.
        """
        self._max_count = max_count
        self._max_per_ip_count = max_per_ip_count
        self._clock = clock
        self._lock = threading.Lock()
        self._by_ip: dict[str, int] = {}
        self._count = 0
        self._refused_count = 0
        self._refusal_logged_ms: int | None = None

    @property
    def count(self) -> int:
        """Number of connections."""
        return self._count

    def admit(self, ip: str) -> bool:
        """Count one more connection; return False, and log why, when its address has too many.

        A connection above the limit of all connections is counted, too: the selector closes another
        connection for it, or calls `refuse`.
        """
        with self._lock:
            # Under one lock with the count: selectors on several threads release.
            of_ip_count = self._by_ip.get(ip, 0)
            if of_ip_count >= self._max_per_ip_count > 0:
                self._log_refusal(
                    f"{of_ip_count} connections from {ip} (serverMaxConnectionsPerIp)"
                )
                return False
            self._by_ip[ip] = of_ip_count + 1
            self._count += 1
            return True

    @property
    def is_over(self) -> bool:
        """Whether there are more connections than the limit."""
        return self._count > self._max_count > 0

    def refuse(self, ip: str) -> None:
        """Undo `admit` for a connection over the limit, for which no other one can be closed."""
        is_over = self.is_over
        self.release(ip)
        with self._lock:
            if is_over:
                refusal = f"{self._max_count} connections are open (serverMaxConnections)"
            else:
                refusal = "only the reserve of file descriptors is left"
            self._log_refusal(refusal)

    def release(self, ip: str) -> None:
        """Count one connection less."""
        with self._lock:
            self._count -= 1
            left_count = self._by_ip[ip] - 1
            if left_count:
                self._by_ip[ip] = left_count
            else:
                # The table must not grow with every address ever seen.
                del self._by_ip[ip]

    def _log_refusal(self, refusal: str) -> None:
        self._refused_count += 1
        now_ms = self._clock.monotonic_ms()
        last_ms = self._refusal_logged_ms
        if last_ms is None or now_ms - last_ms >= _REFUSAL_LOG_INTERVAL_MS:
            self._refusal_logged_ms = now_ms
            _log.warning("connections refused: count=%d reason=%s", self._refused_count, refusal)
            self._refused_count = 0
