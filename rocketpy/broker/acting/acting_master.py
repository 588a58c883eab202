"""A slave that acts as master: its state, and what depends on it."""

from collections.abc import Callable

import structlog

from rocketpy.broker.acting.acting_state import ActingState
from rocketpy.broker.acting.member_poll import Members
from rocketpy.runtime.clock import Clock

_log = structlog.get_logger(__name__)


class ActingMaster:
    """Acting master of one slave; lives on the broker's loop, its flags are read on any thread.

    Args:
        broker_id: id of the slave.
        clock: time.

    Attributes:
        on_change: called after the state changed.
    """

    def __init__(self, broker_id: int, clock: Clock) -> None:
        self._machine = ActingState(broker_id)
        self._clock = clock
        self.on_change: list[Callable[[], None]] = []

    @property
    def is_acting(self) -> bool:
        """Whether clients see this slave as the master."""
        return self._machine.is_acting

    @property
    def delivers(self) -> bool:
        """Whether this slave delivers due messages."""
        return self._machine.delivers

    def members(self, members: Members) -> None:
        """Take the registered members of the group."""
        self._note(changed=self._machine.members(members, self._clock.monotonic_ms()))

    def master_asks(self) -> None:
        """Take a request of the returning master (906)."""
        self._note(changed=self._machine.master_asks(self._clock.monotonic_ms()))

    def _note(self, *, changed: bool) -> None:
        if not changed:
            return
        _log.info("acting master state changed", state=self._machine.state.name)
        for call in self.on_change:
            call()
