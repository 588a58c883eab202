"""What one connection has in hand, and the requests suspended until it has less.

In hand is every request whose response is still to come: waiting in or running on a pool, answered
by a coroutine, or deferred. Held pulls are not: nobody works on them.

Order: requests of one kind are served in the order they came. Every batch that goes to a pool and
everything suspended is numbered on the loop. The first batch that a slow peer stops sets
`is_stopped`, so that later batches of the connection come back untouched as well; only when all are
back are the leftovers served again, lowest number first.
"""

from typing import Protocol

from rocketpy.proto.command import RemotingCommand

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


class InHand:
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
        self._suspended: list[tuple[int, list[RemotingCommand]]] = []
        self.count = 0
        self.size_bytes = 0
        self.batches: dict[Droppable, None] = {}  # in the order of their arrival
        self.suspended_bytes = 0
        self.is_full = False
        self.is_stopped = False

    @property
    def has_suspended(self) -> bool:
        """Whether requests wait to be served."""
        return bool(self._suspended)

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

    def suspend(self, number: int, commands: list[RemotingCommand]) -> None:
        """Keep requests for later; numbers say in which order they came."""
        if commands:
            self._suspended.append((number, commands))
            self.suspended_bytes += sum(map(request_bytes, commands))

    def take_suspended(self) -> list[RemotingCommand]:
        """Return every suspended request in order, and begin anew; only when no batch is out."""
        assert not self.batches
        self._suspended.sort(key=lambda part: part[0])
        commands = [command for _, part in self._suspended for command in part]
        self.clear()
        return commands

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
