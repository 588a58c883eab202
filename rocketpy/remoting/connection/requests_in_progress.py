"""What one connection has in hand, and the requests suspended until it has less.

In hand is every request whose response is still to come: waiting in or running on a pool, answered
by a coroutine, or deferred. Held pulls are not: nobody works on them.

Order: requests of one kind are served in the order they came. Every batch that goes to a pool and
everything suspended is numbered on the loop. The first batch that a slow peer stops sets
`is_stopped`, so that later batches of the connection come back untouched as well; only when all are
back are the leftovers served again, lowest number first.

Refusing requests that have waited too long on their own connection.

Where requests run inline there is no pool and no queue before it; what waits is suspended: until
others had their turn, until less is in hand or less memory is held. That is the queue which fast
failure looks at there, with the same limits a kind of request.

Source: BrokerFastFailure (5.4.0).
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.dispatch import ProcessorTable, Responses, waited_too_long

DEFERRED_BYTES = 512
"""What a deferred response is counted as: its objects, the body is not kept."""

_COMMAND_BYTES = 512


def request_bytes(command: RemotingCommand) -> int:
    """Return about how much memory a request holds."""
    fields_bytes = sum(map(len, command.ext_fields.values()))
    return _COMMAND_BYTES + len(command.body) + fields_bytes


class Droppable(Protocol):
    """A batch on a pool."""

    def drop(self) -> None:
        """Let go of the requests: nobody waits for their responses any more."""
        ...


class _Suspended(NamedTuple):
    """Requests of one read that wait together."""

    number: int
    since_ms: int
    commands: list[RemotingCommand]


class ResumedRequests(NamedTuple):
    """Requests that are not suspended any more.

    Attributes:
        commands: in order.
        ages: since when they waited, and how many of them, in the same order.
    """

    commands: list[RemotingCommand]
    ages: list[tuple[int, int]]


class RequestsInProgress:
    """Counts for one connection; on its loop only, except where it says any thread.

    Attributes:
        count: requests in hand.
        size_bytes: about what they hold.
        batches: those that are on a pool.
        suspended_bytes: about what suspended requests hold.
        is_full: no more may be taken in hand until a quarter of it is done; in between the
            connection would stop and go with every request.
        is_stopped: a batch came upon a peer that does not keep up; any thread reads and sets it.
    """

    __slots__ = (
        "_max_bytes",
        "_max_count",
        "_next_number",
        "_suspended",
        "batches",
        "count",
        "is_full",
        "is_stopped",
        "size_bytes",
        "suspended_bytes",
    )

    def __init__(self, max_count: int, max_bytes: int) -> None:
        """Set the limits; 0 is none."""
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._next_number = 0
        self._suspended: list[_Suspended] = []
        self.count: int = 0
        self.size_bytes: int = 0
        self.batches: dict[Droppable, None] = {}  # in the order of their arrival
        self.suspended_bytes: int = 0
        self.is_full: bool = False
        self.is_stopped: bool = False

    @property
    def has_suspended(self) -> bool:
        """Whether requests wait to be served."""
        return bool(self._suspended)

    @property
    def suspended_count(self) -> int:
        """How many requests wait to be served."""
        return sum(len(part.commands) for part in self._suspended)

    def is_full_with(self, count: int) -> bool:
        """Return whether so many more would be all that may be in hand."""
        return self.count + count >= self._max_count > 0

    def number(self) -> int:
        """Return the number of the next batch, or of what is suspended next."""
        self._next_number += 1
        return self._next_number

    def add(self, count: int, size_bytes: int) -> None:
        """Take requests in hand, or fewer of them (negative)."""
        self.count += count
        self.size_bytes += size_bytes
        if self.count >= self._max_count > 0 or self.size_bytes >= self._max_bytes > 0:
            self.is_full = True
        elif self.is_full:
            self.is_full = (
                self.count * 4 > self._max_count * 3 > 0
                or self.size_bytes * 4 > self._max_bytes * 3 > 0
            )

    def suspend(self, number: int, commands: list[RemotingCommand], since_ms: int) -> None:
        """Keep requests for later.

        Args:
            number: says in which order they came.
            commands: the requests.
            since_ms: when they began to wait, monotonic.
        """
        if commands:
            self._suspended.append(_Suspended(number, since_ms, commands))
            self.suspended_bytes += sum(map(request_bytes, commands))

    def suspend_again(self, count: int, taken: "ResumedRequests") -> None:
        """Keep the last ones of requests that were taken; they have waited since they came."""
        served, start = len(taken.commands) - count, 0
        for since_ms, part_count in taken.ages:
            end = start + part_count
            if end > served:
                self.suspend(self.number(), taken.commands[max(start, served) : end], since_ms)
            start = end

    def take_suspended(self) -> "ResumedRequests":
        """Return every suspended request in order, and begin anew; only when no batch is out."""
        assert not self.batches
        self._suspended.sort(key=lambda part: part.number)
        parts = self._suspended[:]
        self.clear()
        return ResumedRequests(
            [command for part in parts for command in part.commands],
            [(part.since_ms, len(part.commands)) for part in parts],
        )

    def take_late(
        self, now_ms: int, limit_ms: Callable[[RemotingCommand], int]
    ) -> list[tuple[RemotingCommand, int]]:
        """Return suspended requests that have waited for too long, with how long, and forget them.

        Args:
            now_ms: monotonic time.
            limit_ms: how long a request may wait; 0 is no limit.
        """
        late: list[tuple[RemotingCommand, int]] = []
        for part in self._suspended:
            waited_ms = now_ms - part.since_ms
            kept: list[RemotingCommand] = []
            for command in part.commands:
                if 0 < limit_ms(command) <= waited_ms:
                    late.append((command, waited_ms))
                else:
                    kept.append(command)
            part.commands[:] = kept
        self.suspended_bytes -= sum(request_bytes(command) for command, _ in late)
        self._suspended = [part for part in self._suspended if part.commands]
        return late

    def reset_wait(self, now_ms: int) -> None:
        """Count the waiting of suspended requests from now on: it was the peer's until now."""
        self._suspended = [part._replace(since_ms=now_ms) for part in self._suspended]

    def drop(self) -> None:
        """Let go of everything: the connection is gone."""
        for batch in self.batches:
            batch.drop()
        self.clear()

    def clear(self) -> None:
        """Forget what is suspended."""
        self._suspended.clear()
        self.suspended_bytes = 0
        self.is_stopped = False


LOOK_INTERVAL_MS = 50
"""How often a connection with suspended requests looks at them."""


def reject_expired(
    in_hand: RequestsInProgress, table: ProcessorTable, now_ms: int, responses: Responses
) -> None:
    """Answer suspended requests with flow control whose kind may not wait for so long.

    Args:
        in_hand: has the suspended requests; forgets those that are refused.
        table: knows how long each kind may wait.
        now_ms: monotonic time.
        responses: gets the answers.
    """

    def limit_ms(command: RemotingCommand) -> int:
        if command.flag & 1:  # a response
            return 0
        return (table.routes.get(command.code) or table.default).queue_wait_ms

    late = in_hand.take_late(now_ms, limit_ms)
    for command, waited_ms in late:
        responses.refuse((command,), waited_too_long(waited_ms, in_hand.suspended_count))
