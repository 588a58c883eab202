"""State machine of a slave's replication. No I/O.

Transitions:

    from            event                                             to
    NO_MASTER       MASTER_KNOWN                                      CONNECTING
    CONNECTING      CONNECTED, the master speaks the pair protocol    PROVING
    CONNECTING      ACCEPTED, a classic master accepts at once        STREAMING
    PROVING         ACCEPTED                                          STREAMING
    PROVING         REFUSED                                           REFUSED
    PROVING         BEHIND_RANGE                                      BEHIND_RANGE
    PROVING         BEYOND_END                                        BEYOND_END
    PROVING         DIFFERENT_LOG                                     DIFFERENT_LOG
    STREAMING       WRITE_FAILED                                      STALLED
    STALLED         WRITE_SUCCEEDED                                   STREAMING
    any connected   LOST                                              CONNECTING
    a refusal       RETRIED, after a pause                            CONNECTING
    any             MASTER_UNKNOWN                                    NO_MASTER

A classic master refuses nothing. REFUSED in CONNECTING means that the slave itself must not follow
it. docs/replication.md says what a slave serves in each state.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from rocketpy.proto.replication.pair_frames import Refusal

FIRST_PAUSE_MS: Final = 1_000
LONGEST_PAUSE_MS: Final = 30_000


class State(Enum):
    """State of a slave."""

    NO_MASTER = auto()
    CONNECTING = auto()
    PROVING = auto()
    STREAMING = auto()
    STALLED = auto()
    REFUSED = auto()
    BEHIND_RANGE = auto()
    BEYOND_END = auto()
    DIFFERENT_LOG = auto()


class Event(Enum):
    """Event of a slave's replication."""

    MASTER_KNOWN = auto()
    MASTER_UNKNOWN = auto()
    CONNECTED = auto()
    ACCEPTED = auto()
    REFUSED = auto()
    BEHIND_RANGE = auto()
    BEYOND_END = auto()
    DIFFERENT_LOG = auto()
    LOST = auto()
    RETRIED = auto()
    WRITE_FAILED = auto()
    WRITE_SUCCEEDED = auto()


_S, _E = State, Event
TRANSITIONS: Final[dict[tuple[State, Event], State]] = {
    (_S.NO_MASTER, _E.MASTER_KNOWN): _S.CONNECTING,
    (_S.CONNECTING, _E.CONNECTED): _S.PROVING,
    (_S.CONNECTING, _E.ACCEPTED): _S.STREAMING,
    (_S.CONNECTING, _E.REFUSED): _S.REFUSED,
    (_S.PROVING, _E.ACCEPTED): _S.STREAMING,
    (_S.PROVING, _E.REFUSED): _S.REFUSED,
    (_S.PROVING, _E.BEHIND_RANGE): _S.BEHIND_RANGE,
    (_S.PROVING, _E.BEYOND_END): _S.BEYOND_END,
    (_S.PROVING, _E.DIFFERENT_LOG): _S.DIFFERENT_LOG,
    (_S.STREAMING, _E.WRITE_FAILED): _S.STALLED,
    (_S.STALLED, _E.WRITE_SUCCEEDED): _S.STREAMING,
    **{
        (state, _E.LOST): _S.CONNECTING
        for state in (_S.CONNECTING, _S.PROVING, _S.STREAMING, _S.STALLED)
    },
    **{
        (state, _E.RETRIED): _S.CONNECTING
        for state in (_S.REFUSED, _S.BEHIND_RANGE, _S.BEYOND_END, _S.DIFFERENT_LOG)
    },
    **{(state, _E.MASTER_UNKNOWN): _S.NO_MASTER for state in State},
}
"""Next state by state and event; other pairs do not occur."""

REFUSED_STATES: Final = frozenset(
    {State.REFUSED, State.BEHIND_RANGE, State.BEYOND_END, State.DIFFERENT_LOG}
)
_EVENTS: Final = {
    Refusal.BEHIND_RANGE: Event.BEHIND_RANGE,
    Refusal.BEYOND_END: Event.BEYOND_END,
    Refusal.DIFFERENT_LOG: Event.DIFFERENT_LOG,
    Refusal.OTHER_LOG: Event.DIFFERENT_LOG,
}


def event_of(refusal: Refusal) -> Event:
    """Return the event of a master's refusal."""
    return _EVENTS.get(refusal, Event.REFUSED)


@dataclass(slots=True)
class ReplicaState:
    """State of one slave, and the pause before its next attempt to connect.

    Attributes:
        state: current state.
        reason: why the last connection ended, or was refused; empty while there is none.
        is_new: whether the last event changed the state or the reason; only such events are logged.
        first_pause_ms: first pause before another attempt to connect.
        first_pauses: number of pauses of this length before they double.
    """

    state: State = State.NO_MASTER
    reason: str = ""
    is_new: bool = False
    first_pause_ms: int = FIRST_PAUSE_MS
    first_pauses: int = 1
    _pause_ms: int = 0
    _pauses: int = 0
    _refused_as: tuple[State, str] | None = None

    @property
    def is_connected(self) -> bool:
        """Whether the slave receives the master's log."""
        return self.state in {State.STREAMING, State.STALLED}

    def on(self, event: Event, reason: str = "") -> State:
        """Process an event, and return the new state.

        Args:
            event: must be possible in the current state.
            reason: explanation of a refusal, a loss or a failed write, for operators.
        """
        before, old_reason = self.state, self.reason
        self.state = TRANSITIONS[before, event]
        if event is Event.ACCEPTED:
            self.reason, self._refused_as = "", None
        elif event is Event.WRITE_SUCCEEDED:
            self.reason = ""
        elif reason:
            self.reason = reason
        self.is_new = (before, old_reason) != (self.state, self.reason)
        if self.state in REFUSED_STATES:
            # Each retry passes through CONNECTING: the same refusal is logged once.
            self.is_new = self._refused_as != (self.state, self.reason)
            self._refused_as = self.state, self.reason
        return self.state

    def pause_ms(self) -> int:
        """Return the pause before the next attempt; it doubles until data arrives."""
        self._pauses += 1
        if self._pauses < self.first_pauses:
            return self.first_pause_ms
        pause_ms = self._pause_ms or self.first_pause_ms
        self._pause_ms = min(2 * pause_ms, LONGEST_PAUSE_MS)
        return pause_ms

    def data_arrived(self) -> None:
        """Use short pauses again: the master serves this slave."""
        self._pause_ms = 0

    def master_elected(self) -> None:
        """Use short pauses again: another master is about to listen."""
        self._pause_ms = self._pauses = 0
