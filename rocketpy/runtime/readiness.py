"""Reasons why a server does not serve, for health checks."""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple


class ServerState(Enum):
    """Phase of a server's life."""

    STARTING = "starting"
    SERVING = "serving"
    STOPPING = "stopping"


class NotReady(NamedTuple):
    """Reason why a server is not ready.

    Attributes:
        code: constant name, for programs.
        message: sentence for people.
    """

    code: str
    message: str


def state_reasons(state: ServerState, program: str = "server") -> list[NotReady]:
    """Return the reason that follows from a program's phase; empty while it serves."""
    if state is ServerState.STARTING:
        return [NotReady("starting", f"the {program} has not finished its start")]
    if state is ServerState.STOPPING:
        return [NotReady("stopping", f"the {program} is shutting down")]
    return []


def as_text(reasons: Iterable[NotReady]) -> str:
    """Return reasons as one line; empty if there are none."""
    return "; ".join(f"{each.code}: {each.message}" for each in reasons)
