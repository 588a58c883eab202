"""One attempt of a send, on its way to a broker: what becomes of it goes straight to its send."""

import asyncio
from typing import Final, Protocol

from rocketpy.client.send_result import STORED_CODES
from rocketpy.proto.command import RemotingCommand
from rocketpy.proto.compiled_sends import StoredAnswer
from rocketpy.proto.message_queue import MessageQueue


class Attempting(Protocol):
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
    """A call (`rocketpy.remoting.in_flight.Call`) without a future of its own.

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
        send: Attempting,
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
