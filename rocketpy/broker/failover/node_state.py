"""States of a replica in a group with a controller. No I/O; docs/failover.md has the table."""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class NodeRole(Enum):
    """Role of a replica; a waiting one runs no broker."""

    WAITING = "waiting"
    SLAVE = "slave"
    MASTER = "master"


class MasterInfo(NamedTuple):
    """Master of a group, as a controller names it.

    Attributes:
        master_id: id of the replica; None while no replica is elected.
        address: its address for ordinary requests; empty: unknown.
        epoch: number of its election; 0 before the first one.
    """

    master_id: int | None = None
    address: str = ""
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Assignment:
    """Role that a replica has to take.

    Attributes:
        role: the role.
        master: the master that it follows, or is.
    """

    role: NodeRole
    master: MasterInfo


class NodeState:
    """State of one replica.

    Args:
        own_id: its broker id.
        own_address: its address; empty: it is not compared.
    """

    def __init__(self, own_id: int, own_address: str = "") -> None:
        self._own_id = own_id
        self._own_address = own_address
        self._current = Assignment(NodeRole.WAITING, MasterInfo())
        self._known = MasterInfo()

    @property
    def current(self) -> Assignment:
        """Role that it has taken."""
        return self._current

    @property
    def known(self) -> MasterInfo:
        """Newest known master."""
        return self._known

    def observe(self, master: MasterInfo) -> bool:
        """Apply the master that a controller names, and return whether it has changed.

        Answers of a lower epoch are late and ignored. Within the known epoch the master can only
        be lost (`master_id` becomes None).
        """
        if master.epoch < self._known.epoch or master == self._known:
            return False
        is_same_epoch = master.epoch == self._known.epoch > 0
        if is_same_epoch and self._known.master_id is None:
            # The loss of this epoch's master is final: the next one has another epoch.
            return False
        self._known = master
        return True

    @property
    def due(self) -> Assignment | None:
        """Role to take now; None if the current one is right.

        A slave keeps its role while no replica is elected, because it can be read. A master keeps
        its role as well: it refuses sends, or cannot acknowledge them, until it is replaced.

        A master with this replica's id and another address is a copy of it. The replica ends its
        role then: as a master it would not wait for the copy, as a slave it would be cut.
        """
        known, current = self._known, self._current
        if known.master_id is None:
            return None
        if self._is_copy(known):
            is_idle = current.role is NodeRole.WAITING
            return None if is_idle else Assignment(NodeRole.WAITING, known)
        role = NodeRole.MASTER if known.master_id == self._own_id else NodeRole.SLAVE
        if role is current.role and known == current.master:
            return None
        return Assignment(role, known)

    def _is_copy(self, master: MasterInfo) -> bool:
        """Return whether a master has this replica's id, and is another process."""
        is_elsewhere = self._own_address not in {"", master.address}
        return master.master_id == self._own_id and is_elsewhere

    def taken(self, assignment: Assignment) -> None:
        """Note that a role was taken."""
        self._current = assignment

    def released(self) -> None:
        """Note that nothing runs: the log is about to be cut, or a role failed to start."""
        self._current = Assignment(NodeRole.WAITING, MasterInfo())
