"""One attempt of a send, on its way to a broker: what becomes of it goes straight to its send.

Tells sends that their attempt has had its share of the time, with one timer for all of them.

What has gone wrong with one send so far; a send that succeeds at once has none of it.
"""

import asyncio
from typing import Final, Protocol

from rocketpy.client.sending.result import STORED_CODES
from rocketpy.errors import RocketPyError
from rocketpy.proto.message_queue import MessageQueue
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.compiled_requests import StoredAnswer
from rocketpy.runtime.clock import Clock


class AttemptListener(Protocol):
    """The send that an attempt belongs to."""

    def responded(
        self,
        attempt: "SendAttempt",
        response: RemotingCommand | None,
        error: BaseException | None,
    ) -> None:
        """Go on with a response, or with an error."""
        ...

    def stored(self, attempt: "SendAttempt", answer: StoredAnswer) -> None:
        """Go on with the answer that it is stored."""
        ...


class SendAttempt:
    """A call (`rocketpy.remoting.connection.calls.Call`) without a future of its own.

    That a message is stored is told at once, from within the reading of the connection, for all
    that follows is the caller's future. Everything else is told in the next turn of the loop: what
    follows it may be the next attempt.

    Args:
        send: told.
        loop: runs the client.
        queue: where it goes.
        started_ms: when it began, monotonic.
        timeout_ms: what it has.

    Attributes:
        command: the request; set by who starts the call.
    """

    __slots__ = (
        "_loop", "_send", "command", "deadline_s", "is_over", "queue", "started_ms", "timeout_ms",
        "was_resent",
    )  # fmt: skip

    command: RemotingCommand

    def __init__(
        self,
        send: AttemptListener,
        loop: asyncio.AbstractEventLoop,
        queue: MessageQueue,
        started_ms: int,
        timeout_ms: int,
    ) -> None:
        self._send = send
        self._loop = loop
        self.queue: Final = queue
        self.started_ms: Final = started_ms
        self.timeout_ms: int = timeout_ms
        self.deadline_s: float = loop.time() + timeout_ms / 1000
        self.was_resent: bool = False
        self.is_over: bool = False

    def answer(self, response: RemotingCommand) -> None:
        """Take the response."""
        self.is_over = True
        if response.code in STORED_CODES:
            self._send.responded(self, response, None)
        else:
            self._loop.call_soon(self._send.responded, self, response, None)

    def stored(self, answer: StoredAnswer) -> bool:
        """Take the answer that it is stored."""
        self.is_over = True
        self._send.stored(self, answer)
        return True

    def fail(self, error: BaseException) -> None:
        """Take an error, unless there is an answer."""
        if not self.is_over:
            self.is_over = True
            self._loop.call_soon(self._send.responded, self, None, error)

    def follow(self, future: asyncio.Future[RemotingCommand]) -> None:
        """Take what becomes of a future."""
        future.add_done_callback(self._ended)

    def _ended(self, future: asyncio.Future[RemotingCommand]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        response = future.result() if error is None else None
        self.is_over = True
        self._send.responded(self, response, error)


RESOLUTION_MS: Final = 50
_STALLED_SLOTS: Final = 4
"""A timer that comes so late was kept waiting by this process, not by a broker."""


class Watched(Protocol):
    """Whose attempt it is."""

    def share_over(self) -> None:
        """The attempt has had its share."""
        ...


class AttemptTimeouts:
    """Attempts by the time at which their share is over, in steps of `RESOLUTION_MS`.

    Most attempts end long before: one costs two changes of a dict and no timer. After a time in
    which the loop itself could not run, the answers that came meanwhile are read first.

    Args:
        loop: runs the timer.
        clock: for monotonic times.
    """

    __slots__ = ("_armed_for", "_clock", "_has_waited", "_loop", "_slots", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._slots: dict[int, dict[Watched, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0
        self._has_waited = False

    def __len__(self) -> int:
        """Count of attempts that are watched."""
        return sum(map(len, self._slots.values()))

    def add(self, watched: Watched, due_ms: int) -> int:
        """Watch an attempt.

        Args:
            watched: told when its share is over.
            due_ms: when that is, monotonic; told up to `RESOLUTION_MS` later.

        Returns:
            What `discard` takes; never 0.
        """
        slot = due_ms // RESOLUTION_MS + 1
        members = self._slots.get(slot)
        if members is None:
            members = self._slots[slot] = {}
            if self._timer is None or slot < self._armed_for:
                self._arm(slot)
        members[watched] = None
        return slot

    def discard(self, watched: Watched, slot: int) -> None:
        """Watch an attempt no more."""
        members = self._slots.get(slot)
        if members is None:
            return
        members.pop(watched, None)
        if not members:
            del self._slots[slot]

    def _arm(self, slot: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = slot
        wait_ms = slot * RESOLUTION_MS - self._clock.monotonic_ms()
        self._timer = self._loop.call_later(wait_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        reached = self._clock.monotonic_ms() // RESOLUTION_MS
        if reached - self._armed_for >= _STALLED_SLOTS and not self._has_waited:
            self._has_waited = True
            self._timer = self._loop.call_later(RESOLUTION_MS / 1000, self._fire)
            return
        self._has_waited = False
        for slot in sorted(slot for slot in self._slots if slot <= reached):
            for watched in self._slots.pop(slot):
                watched.share_over()
        if self._slots and self._timer is None:
            self._arm(min(self._slots))


MAX_NOTES: Final = 8

Late = dict[SendAttempt, None]


class SendFailures:
    """The failures of one send.

    Attributes:
        attempts: those that have failed and may have reached a broker.
        flow_control_count: those that met flow control.
        pauses: how often nobody could be reached.
        failed: brokers on which it failed, the last one at the end.
        refused: brokers that have refused the connection since one could be reached.
        late: attempts whose share of the time is over, in their order.
        error: the last failure.
        tries: attempts that have failed, however.
    """

    __slots__ = (
        "_notes", "attempts", "error", "failed", "flow_control_count", "late", "pauses",
        "refused", "tries",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempts: int = 0
        self.flow_control_count: int = 0
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
