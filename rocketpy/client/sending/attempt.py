"""Attempts of a send: the call to a broker, its time-out, and the failures so far.

An attempt reports to its send directly, without a future. All attempts share one timer for their
time-outs. `SendFailures` is allocated on the first failure only.
"""

import asyncio
from typing import Final, Protocol

from rocketpy.client.sending.backoff import MAX_GRACE_MS, STALL_MS
from rocketpy.client.sending.result import STORED_CODES, SendResult
from rocketpy.errors import (
    ConnectionLostError,
    FlowControlError,
    NotSentError,
    RequestTimeoutError,
    RocketPyError,
)
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
        """Take the response of an attempt, or its error."""
        ...

    def stored(self, attempt: "SendAttempt", answer: StoredAnswer) -> None:
        """Take the decoded response of an attempt whose message is stored."""
        ...


class SendAttempt:
    """Call (`rocketpy.remoting.connection.calls.Call`) that reports to a send.

    Success is reported synchronously while the connection is read, because it only sets the
    caller's future. Any other outcome is reported in the next iteration of the loop, because the
    send may start its next attempt, which must not run inside the reading of the connection.

    Args:
        send: receives the outcome.
        loop: runs the client.
        queue: destination of the message.
        started_ms: start of the attempt, monotonic.
        timeout_ms: time until the call fails.

    Attributes:
        command: the request; set by the transport.
    """

    __slots__ = (
        "_is_followed", "_loop", "_send", "command", "deadline_s", "is_over", "queue",
        "started_ms", "timeout_ms", "was_resent",
    )  # fmt: skip

    is_prompt = True
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
        self._is_followed = False

    @property
    def is_written(self) -> bool:
        """Whether the request may have left: connections number what they write, from 1."""
        return self._is_followed or self.command.opaque > 0

    def answer(self, response: RemotingCommand) -> None:
        """Take the response."""
        self.is_over = True
        if response.code in STORED_CODES:
            self._send.responded(self, response, None)
        else:
            self._loop.call_soon(self._send.responded, self, response, None)

    def stored(self, answer: StoredAnswer) -> bool:
        """Take the decoded response; return True because it is consumed."""
        self.is_over = True
        self._send.stored(self, answer)
        return True

    def fail(self, error: BaseException) -> None:
        """Take an error, unless there is a response already."""
        if not self.is_over:
            self.is_over = True
            self._loop.call_soon(self._send.responded, self, None, error)

    def follow(self, future: asyncio.Future[RemotingCommand]) -> None:
        """Take the outcome of a future as that of the call."""
        self._is_followed = True
        future.add_done_callback(self._ended)

    def _ended(self, future: asyncio.Future[RemotingCommand]) -> None:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        response = future.result() if error is None else None
        self.is_over = True
        self._send.responded(self, response, error)


RESOLUTION_MS: Final = 50


class TimeoutListener(Protocol):
    """The send that is notified at the time-out of its attempt."""

    def attempt_timed_out(self) -> None:
        """Handle the time-out of the attempt."""
        ...


class AttemptTimeouts:
    """Time-outs of single attempts, all on one timer, in steps of `RESOLUTION_MS`.

    Most attempts end long before their time-out, so that one costs two changes of a dict and no
    timer. After a stall of the loop, responses that arrived meanwhile are read first.

    Args:
        loop: runs the timer.
        clock: for monotonic times.
    """

    __slots__ = ("_armed_for", "_clock", "_has_waited", "_loop", "_slots", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._slots: dict[int, dict[TimeoutListener, None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._armed_for = 0
        self._has_waited = False

    def __len__(self) -> int:
        """Return the number of attempts with a pending time-out."""
        return sum(map(len, self._slots.values()))

    def add(self, listener: TimeoutListener, due_ms: int) -> int:
        """Add a time-out.

        Args:
            listener: notified at the time-out.
            due_ms: its monotonic time; the notification comes up to `RESOLUTION_MS` later.

        Returns:
            Slot for `discard`; never 0.
        """
        slot = due_ms // RESOLUTION_MS + 1
        members = self._slots.get(slot)
        if members is None:
            members = self._slots[slot] = {}
            if self._timer is None or slot < self._armed_for:
                self._arm(slot)
        members[listener] = None
        return slot

    def discard(self, listener: TimeoutListener, slot: int) -> None:
        """Cancel a time-out."""
        members = self._slots.get(slot)
        if members is None:
            return
        members.pop(listener, None)
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
        now_ms = self._clock.monotonic_ms()
        reached, late_ms = now_ms // RESOLUTION_MS, now_ms - self._armed_for * RESOLUTION_MS
        # The loop stalled: requests may just have been written, and responses may lie unread in
        # sockets. Some time lets them be read, so that no attempt is repeated that has succeeded.
        if late_ms >= STALL_MS and not self._has_waited:
            self._has_waited = True
            self._timer = self._loop.call_later(min(late_ms, MAX_GRACE_MS) / 1000, self._fire)
            return
        self._has_waited = False
        # In the order of their times, and from a copy: a callback may add time-outs.
        for slot in sorted(slot for slot in self._slots if slot <= reached):
            for listener in self._slots.pop(slot):
                listener.attempt_timed_out()
        if self._slots and self._timer is None:
            self._arm(min(self._slots))


# Most earlier failures that the error of a send lists: enough to show a pattern, and bounded,
# because a send may try for minutes while no broker can be reached.
MAX_NOTES: Final = 8

Late = dict[SendAttempt, None]


class SendFailures:
    """Failure state of one send.

    Attributes:
        attempts: number of failed attempts that may have reached a broker.
        flow_control_count: number of attempts that failed by flow control.
        pauses: number of pauses in which no broker could be reached.
        failed: brokers on which the send failed, the latest at the end.
        refused: brokers that refused a connection since the last one accepted.
        late: attempts that timed out and may still be answered, oldest first.
        error: the latest failure.
        doubtful: attempts without an answer, whose message may be stored, and their errors.
        tries: number of failed attempts of any kind.
        unconfirmed: result of the last attempt whose status was not SEND_OK.
    """

    __slots__ = (
        "_notes", "attempts", "doubtful", "error", "failed", "flow_control_count", "late",
        "pauses", "refused", "tries", "unconfirmed",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempts: int = 0
        self.flow_control_count: int = 0
        self.pauses: int = 0
        self.failed: tuple[str, ...] = ()
        self.refused: frozenset[str] = frozenset()
        self.late: Late = {}
        self.error: RocketPyError | None = None
        self.doubtful: dict[SendAttempt, RocketPyError] = {}
        self.tries: int = 0
        self.unconfirmed: SendResult | None = None
        self._notes: list[tuple[str, RocketPyError]] = []

    def record_failure(self, broker: str | None, error: RocketPyError) -> None:
        """Record a failed attempt; its error and the `MAX_NOTES` errors before it are kept."""
        self.error = error
        self.tries += 1
        if len(self._notes) > MAX_NOTES:
            del self._notes[0]
        self._notes.append((f"attempt {self.tries} on {broker}: {error!r}", error))
        # Without duplicates, the latest at the end: bounded by the number of brokers.
        if broker is not None:
            self.failed = (*(name for name in self.failed if name != broker), broker)

    def record_doubt(self, attempt: SendAttempt, error: BaseException) -> None:
        """Record whether the message of a failed attempt may be stored nevertheless."""
        if isinstance(error, RequestTimeoutError | ConnectionLostError) and attempt.is_written:
            self.doubtful[attempt] = error
        else:
            self.doubtful.pop(attempt, None)

    def final(self, error: BaseException) -> BaseException:
        """Return the error of the whole send, which says whether the message may be stored.

        Args:
            error: of the last attempt.
        """
        for attempt in self.late:
            # It was queued for a connection when its time-out came, and written later.
            if attempt.is_written and attempt not in self.doubtful:
                text = f"no answer from {attempt.queue.broker_name} to a send in time"
                self.doubtful[attempt] = RequestTimeoutError(text)
        if self.doubtful:
            if isinstance(error, NotSentError | FlowControlError):
                return list(self.doubtful.values())[-1]
        elif isinstance(error, RequestTimeoutError):
            return NotSentError(f"{error}, nothing was sent: no connection was opened")
        return error

    def add_notes(self, error: BaseException) -> None:
        """Add the failures before an error to it, as notes."""
        for note, failure in self._notes:
            if failure is not error:
                error.add_note(note)
