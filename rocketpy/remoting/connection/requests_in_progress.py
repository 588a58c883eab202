"""Flow control of a connection: requests in progress, and requests suspended behind the limit.

In progress is every request without a response yet: waiting in or running on a pool, answered by a
coroutine, or deferred. Held pulls do not count, as no work is done for them.

Order: requests of one kind are served in the order they arrived. Every batch that goes to a pool
and everything suspended is numbered on the loop. The first batch that a slow peer stops sets
`is_stopped`, so that later batches of the connection return unserved as well. Once all batches are
back, the leftovers are served again, lowest number first.

Fast failure: where requests run inline there is no pool and no queue in front of it. Suspended
requests are that queue. Those that wait longer than their kind may are refused (`reject_expired`).

Source: BrokerFastFailure (5.4.0).
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.dispatch import ProcessorTable, Responses, waited_too_long

DEFERRED_BYTES = 512
"""Size that a deferred response counts as: its objects; the body is not kept."""

_COMMAND_BYTES = 512


def request_bytes(command: RemotingCommand) -> int:
    """Return about how much memory a request holds."""
    fields_bytes = sum(map(len, command.ext_fields.values()))
    return _COMMAND_BYTES + len(command.body) + fields_bytes


class Droppable(Protocol):
    """A batch on a pool."""

    def drop(self) -> None:
        """Drop the requests: the connection is gone."""
        ...


class _Suspended(NamedTuple):
    """Suspended requests of one read."""

    number: int
    since_ms: int
    commands: list[RemotingCommand]


class ResumedRequests(NamedTuple):
    """Requests that were suspended and are served now.

    Attributes:
        commands: in order.
        ages: since when they waited, and how many of them, in the same order.
    """

    commands: list[RemotingCommand]
    ages: list[tuple[int, int]]


class RequestsInProgress:
    """Counts for one connection; on its loop only, except where it says any thread.

    Attributes:
        count: requests in progress.
        size_bytes: about what they hold.
        batches: those that are on a pool.
        suspended_bytes: about what suspended requests hold.
        is_full: the limit was reached, and less than a quarter of it is done since. Without that
            distance the connection would stop and resume with every request.
        is_stopped: a batch met a peer that does not keep up; any thread reads and sets it.
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
        """Set the limits; 0 is no limit."""
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
        """Whether requests are suspended."""
        return bool(self._suspended)

    @property
    def suspended_count(self) -> int:
        """Number of suspended requests."""
        return sum(len(part.commands) for part in self._suspended)

    def is_full_with(self, count: int) -> bool:
        """Return whether `count` more requests in progress would reach the limit."""
        return self.count + count >= self._max_count > 0

    def number(self) -> int:
        """Return the number of the next batch, or of what is suspended next."""
        self._next_number += 1
        return self._next_number

    def add(self, count: int, size_bytes: int) -> None:
        """Change the count of requests in progress; negative when requests are answered."""
        self.count += count
        self.size_bytes += size_bytes
        if self.count >= self._max_count > 0 or self.size_bytes >= self._max_bytes > 0:
            self.is_full = True
        # Hysteresis of a quarter; see `is_full`.
        elif self.is_full:
            self.is_full = (
                self.count * 4 > self._max_count * 3 > 0
                or self.size_bytes * 4 > self._max_bytes * 3 > 0
            )

    def suspend(self, number: int, commands: list[RemotingCommand], since_ms: int) -> None:
        """Keep requests for later.

        Args:
            number: position in the order of arrival.
            commands: the requests.
            since_ms: start of their wait, monotonic.
        """
        if commands:
            self._suspended.append(_Suspended(number, since_ms, commands))
            self.suspended_bytes += sum(map(request_bytes, commands))

    def suspend_again(self, count: int, taken: "ResumedRequests") -> None:
        """Suspend the last ones of resumed requests again, with the start of their wait kept."""
        served, start = len(taken.commands) - count, 0
        for since_ms, part_count in taken.ages:
            # Each part keeps its own start of the wait, for fast failure.
            end = start + part_count
            if end > served:
                self.suspend(self.number(), taken.commands[max(start, served) : end], since_ms)
            start = end

    def take_suspended(self) -> "ResumedRequests":
        """Return all suspended requests in order and forget them; only while no batch is out."""
        assert not self.batches
        # Batches return in any order, so leftovers are not sorted by arrival.
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
        """Remove and return suspended requests that waited too long, with their waits.

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
            # In place: the parts are tuples.
            part.commands[:] = kept
        self.suspended_bytes -= sum(request_bytes(command) for command, _ in late)
        self._suspended = [part for part in self._suspended if part.commands]
        return late

    def reset_wait(self, now_ms: int) -> None:
        """Restart the wait of suspended requests: until now they waited for a slow peer."""
        self._suspended = [part._replace(since_ms=now_ms) for part in self._suspended]

    def drop(self) -> None:
        """Drop everything: the connection is gone."""
        for batch in self.batches:
            batch.drop()
        self.clear()

    def clear(self) -> None:
        """Forget what is suspended."""
        self._suspended.clear()
        self.suspended_bytes = 0
        self.is_stopped = False


EXPIRY_CHECK_INTERVAL_MS = 50
"""Interval between two checks of a connection's suspended requests."""


def reject_expired(
    in_progress: RequestsInProgress, table: ProcessorTable, now_ms: int, responses: Responses
) -> None:
    """Refuse suspended requests that waited longer than their kind may.

    Args:
        in_progress: the connection's requests; forgets those that are refused.
        table: has the limit of each kind.
        now_ms: monotonic time.
        responses: takes the refusals.
    """

    def limit_ms(command: RemotingCommand) -> int:
        if command.flag & 1:  # a response
            return 0
        return (table.routes.get(command.code) or table.default).queue_wait_ms

    # All are removed before the first refusal, so that the remark has the right count.
    late = in_progress.take_late(now_ms, limit_ms)
    for command, waited_ms in late:
        responses.refuse((command,), waited_too_long(waited_ms, in_progress.suspended_count))
