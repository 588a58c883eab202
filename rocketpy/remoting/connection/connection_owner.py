"""What a connection needs of the selector or the client that it belongs to."""

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from rocketpy.remoting.config import ConnectionLimits
from rocketpy.remoting.connection.dispatch import ProcessorTable
from rocketpy.remoting.connection.fair_turns import TurnBudget, WriteScheduler
from rocketpy.remoting.connection.memory_budget import MemoryBudget

C_contra = TypeVar("C_contra", contravariant=True)


class ConnectionOwner(Protocol[C_contra]):
    """The selector or client a connection belongs to."""

    table: ProcessorTable
    limits: ConnectionLimits
    is_draining: bool
    turn: TurnBudget
    turns: WriteScheduler
    budget: MemoryBudget

    def now_ms(self) -> int:
        """Monotonic time, ms."""
        ...

    def opened(self, connection: C_contra) -> None:
        """A connection is ready for requests."""
        ...

    def closed(self, connection: C_contra) -> None:
        """A connection is gone."""
        ...

    def idle(self, connection: C_contra) -> None:
        """A connection is about to be closed for silence."""
        ...

    def spawn(self, coroutine: Awaitable[None]) -> None:
        """Run a coroutine on the loop and keep it alive until it ends."""
        ...
