"""State machine of a slave that may act as master. No I/O.

| state | answers as | delivers | next |
|---|---|---|---|
| `FOLLOWING` | slave | no | its own id is the lowest: `ACTING` |
| `ACTING` | acting master | yes | a lower id: `FOLLOWING`; 906 of its master: `HANDING_OVER` |
| `HANDING_OVER` | acting master | no | a lower id: `FOLLOWING`; 15 s without 906: `ACTING` |

While a slave hands over, its master fetches the progress of the deliveries. Messages that the slave
delivered meanwhile would be delivered again by the master.

Source: BrokerController.onMinBrokerChange, BrokerPreOnlineService (5.4.0); `HANDING_OVER` is ours.
"""

from collections.abc import Collection
from enum import Enum
from typing import Final

HAND_OVER_MS: Final = 15_000
"""Time without a request of the master after which the slave acts again."""


class State(Enum):
    """State of a slave; see the module."""

    FOLLOWING = "FOLLOWING"
    ACTING = "ACTING"
    HANDING_OVER = "HANDING_OVER"


class ActingState:
    """State machine of one slave.

    Args:
        broker_id: id of the slave.

    Attributes:
        state: current state.
    """

    def __init__(self, broker_id: int) -> None:
        self.state: State = State.FOLLOWING
        self._broker_id = broker_id
        self._asked_ms = 0

    @property
    def is_acting(self) -> bool:
        """Whether clients see this slave as the master."""
        return self.state is not State.FOLLOWING

    @property
    def delivers(self) -> bool:
        """Whether this slave delivers due messages."""
        return self.state is State.ACTING

    def members(self, ids: Collection[int], now_ms: int) -> bool:
        """Apply the registered members of the group.

        Args:
            ids: their broker ids. Without the slave's own id, as after a restart of the name
                server, only a lower id counts.
            now_ms: monotonic time.

        Returns:
            Whether the state changed.
        """
        before = self.state
        if any(each < self._broker_id for each in ids):
            self.state = State.FOLLOWING
        elif self._broker_id in ids and (
            before is State.FOLLOWING
            or (before is State.HANDING_OVER and now_ms - self._asked_ms >= HAND_OVER_MS)
        ):
            self.state = State.ACTING
        return self.state is not before

    def master_asks(self, now_ms: int) -> bool:
        """Apply a request of the returning master (906); return whether the state changed."""
        self._asked_ms = now_ms
        if self.state is not State.ACTING:
            return False
        self.state = State.HANDING_OVER
        return True
