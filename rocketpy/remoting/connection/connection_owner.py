"""Interfaces of the selector or client to its connections."""

from collections.abc import Awaitable
from typing import Protocol, TypeVar

from rocketpy.remoting.config import ConnectionLimits
from rocketpy.remoting.connection.dispatch import ProcessorTable
from rocketpy.remoting.connection.fair_turns import TurnBudget, TurnScheduler
from rocketpy.remoting.connection.memory_budget import MemoryBudget

C_contra = TypeVar("C_contra", contravariant=True)


class FrameConnectionOwner(Protocol[C_contra]):
    """Owner of connections, on either side."""

    limits: ConnectionLimits
    turns: TurnScheduler

    def now_ms(self) -> int:
        """Monotonic time, ms."""
        ...

    def opened(self, connection: C_contra) -> None:
        """Note that a connection is ready for requests."""
        ...

    def closed(self, connection: C_contra) -> None:
        """Note that a connection is gone."""
        ...

    def idle(self, connection: C_contra) -> None:
        """Note that a connection is about to be closed because it is silent."""
        ...

    def spawn(self, coroutine: Awaitable[None]) -> None:
        """Run a coroutine on the loop and keep it alive until it ends."""
        ...


class ConnectionOwner(FrameConnectionOwner[C_contra], Protocol[C_contra]):
    """Owner of a server's connections."""

    table: ProcessorTable
    is_draining: bool
    turn: TurnBudget
    budget: MemoryBudget
