"""Membership of a broker in a group whose master is elected by a controller.

`rocketpy.broker.failover` decides; the replication of one broker acts on it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rocketpy.broker.request_table import RequestTable
from rocketpy.proto.replication.epochs import Epochs


def _no_epochs() -> Epochs:
    return ()


def _ignore(_value: object) -> None:
    """Default of the callbacks."""


def _always() -> bool:
    return True


def _no_epoch() -> int:
    return 0


def _none() -> None:
    return None


def _no_info() -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Callbacks of one broker to the replica that runs it.

    Attributes:
        epoch: epoch of this master; 0 for a slave.
        master_epoch: returns the epoch of the master that a slave follows.
        master_address: ordinary address of the master that a slave follows first.
        epochs: returns the epoch list of the log.
        needed: returns the ids of the replicas that must confirm a message; None: copies are
            counted (inSyncReplicas).
        may_acknowledge: returns whether the master may acknowledge (lease).
        send_refusal: returns why sends are refused; None if they are not.
        on_open: receives the end of the log once it is recovered, before the broker listens.
        on_diverged: receives the end of the part that this slave's log shares with the master's,
            if the slave's is longer: it must be cut there.
        add_requests: adds the requests about the group to the broker's.
        on_followed: receives the epoch list of a master that has accepted this slave.
        runtime_info: returns additions to the runtime information (28).
    """

    epoch: int = 0
    master_epoch: Callable[[], int] = _no_epoch
    master_address: str = ""
    epochs: Callable[[], Epochs] = _no_epochs
    needed: Callable[[], frozenset[int] | None] = _none
    may_acknowledge: Callable[[], bool] = _always
    send_refusal: Callable[[], str | None] = _none
    on_open: Callable[[int], None] = field(default=_ignore)
    on_diverged: Callable[[int], None] = field(default=_ignore)
    on_followed: Callable[[Epochs], None] = field(default=_ignore)
    add_requests: Callable[[RequestTable], None] = field(default=_ignore)
    runtime_info: Callable[[], dict[str, str]] = field(default=_no_info)
