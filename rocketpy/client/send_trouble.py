"""What has gone wrong with one send so far; a send that succeeds at once has none of it."""

from typing import Final

from rocketpy.client.send_attempt import SendAttempt
from rocketpy.errors import RocketPyError

MAX_NOTES: Final = 8

Late = dict[SendAttempt, None]


class SendTrouble:
    """The failures of one send.

    Attributes:
        attempts: those that have failed and may have reached a broker.
        flow_controlled: those that met flow control.
        pauses: how often nobody could be reached.
        failed: brokers on which it failed, the last one at the end.
        refused: brokers that have refused the connection since one could be reached.
        late: attempts whose share of the time is over, in their order.
        error: the last failure.
        tries: attempts that have failed, however.
    """

    __slots__ = (
        "_notes", "attempts", "error", "failed", "flow_controlled", "late", "pauses",
        "refused", "tries",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempts: int = 0
        self.flow_controlled: int = 0
        self.pauses: int = 0
        self.failed: tuple[str, ...] = ()
        self.refused: frozenset[str] = frozenset()
        self.late: Late = {}
        self.error: RocketPyError | None = None
        self.tries: int = 0
        self._notes: list[tuple[str, RocketPyError]] = []

    def remember(self, broker: str | None, error: RocketPyError) -> None:
        """Keep why an attempt failed, of the latest `MAX_NOTES` of them, and on which broker."""
        self.error = error
        self.tries += 1
        if len(self._notes) > MAX_NOTES:
            del self._notes[0]
        self._notes.append((f"attempt {self.tries} on {broker}: {error!r}", error))
        if broker is not None:
            self.failed = (*(name for name in self.failed if name != broker), broker)

    def add_notes(self, error: BaseException) -> None:
        """Tell an error about the failures before it."""
        for words, failure in self._notes:
            if failure is not error:
                error.add_note(words)
