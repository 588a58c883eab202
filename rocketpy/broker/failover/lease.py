"""Lease of a master: time during which the controller elects no other replica. No I/O.

It is needed where a master acknowledges messages that not every replica of the sync-state set has
(`allAckInSyncStateSet=false`). The controller counts from the receipt of a heartbeat, the master
from when it sent it, and a tenth less, because clocks run at different rates.
"""

from typing import Final

_SHARE: Final = 0.9
"""Part of the lease that the master uses."""


class Lease:
    """Lease of one mastership."""

    def __init__(self) -> None:
        self._end_ms = -1

    def renewed(self, sent_ms: int, lease_ms: int) -> None:
        """Extend the lease by the answer to a heartbeat.

        Args:
            sent_ms: monotonic time when the heartbeat was sent.
            lease_ms: length of the lease, as the controller says.
        """
        self._end_ms = max(self._end_ms, sent_ms + int(lease_ms * _SHARE))

    def is_held(self, now_ms: int) -> bool:
        """Return whether the master may still acknowledge."""
        return now_ms < self._end_ms

    def left_ms(self, now_ms: int) -> int:
        """Return the time until it ends; 0 when it has ended."""
        return max(0, self._end_ms - now_ms)
