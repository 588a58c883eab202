"""State of broker groups, as a pure state machine: events in, state out.

It does no I/O and has no clock. `rules.py` decides which events a request leads to; for all
events, these invariants hold:
    - a sync-state set has registered replicas only, and the master is one of them;
    - epochs only grow;
    - an id is given once in the life of a group.

Source: BrokerReplicaInfo, SyncStateInfo, ReplicasInfoManager.applyEvent (5.4.0)
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from rocketpy.controller.events import (
    AddressChanged,
    AnyEvent,
    GroupRemoved,
    GroupStored,
    IdApplied,
    MasterElected,
    MasterLost,
    ReplicaRemoved,
    ReplicaStored,
    SetAltered,
)
from rocketpy.errors import StoreFormatError


@dataclass(frozen=True, slots=True)
class Replica:
    """Registered replica.

    Attributes:
        address: `host:port` for clients and other replicas.
        check_code: text by which a replica proves that it has applied for the id.
    """

    address: str
    check_code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroup:
    """Broker group: its replicas, their master and the sync-state set.

    Attributes:
        cluster: cluster name.
        name: broker name.
        replicas: by id.
        last_id: highest id that was given, also to a replica that is removed now.
        master_id: the elected replica; None after it was lost, and before the first election.
        master_epoch: number of elections; 0 before the first one.
        members: the sync-state set.
        set_epoch: number of changes of that set.
    """

    cluster: str
    name: str
    replicas: Mapping[int, Replica] = field(default_factory=lambda: MappingProxyType({}))
    last_id: int = 0
    master_id: int | None = None
    master_epoch: int = 0
    members: frozenset[int] = frozenset()
    set_epoch: int = 0

    @property
    def is_new(self) -> bool:
        """Whether no replica was ever elected."""
        return self.master_epoch == 0

    @property
    def master_address(self) -> str | None:
        """Address of the master, or None."""
        return None if self.master_id is None else self.replicas[self.master_id].address

    def stored(self) -> GroupStored:
        """Return the event that leads to this state."""
        return GroupStored(
            group=self.name,
            cluster=self.cluster,
            replicas=tuple(
                ReplicaStored(number, each.address, each.check_code)
                for number, each in sorted(self.replicas.items())
            ),
            last_id=self.last_id,
            master_id=self.master_id,
            master_epoch=self.master_epoch,
            members=tuple(sorted(self.members)),
            set_epoch=self.set_epoch,
        )


class ReplicaGroups:
    """All groups of a controller, by broker name.

    Broker names are unique in a controller, because most requests carry no cluster name.
    """

    def __init__(self) -> None:
        self._groups: dict[str, ReplicaGroup] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[ReplicaGroup]:
        """Iterate over a copy, which stays valid while events are applied."""
        return iter([*self._groups.values()])

    def get(self, name: str) -> ReplicaGroup | None:
        """Return a group, or None."""
        return self._groups.get(name)

    def apply(self, events: Iterable[AnyEvent]) -> None:
        """Apply events in their order.

        Raises:
            StoreFormatError: an event does not follow from the state: an earlier one is missing.
        """
        for event in events:
            changed = changed_group(self._groups.get(event.group), event)
            if changed is None:
                self._groups.pop(event.group, None)
            else:
                self._groups[event.group] = changed

    def snapshot(self) -> list[GroupStored]:
        """Return the events that lead from nothing to this state."""
        return [each.stored() for each in self._groups.values()]

    def snapshot_of(self, names: Iterable[str]) -> list[GroupStored]:
        """Return the events that lead from nothing to the state of some groups."""
        return [each.stored() for each in map(self._groups.get, names) if each is not None]


def changed_group(group: ReplicaGroup | None, event: AnyEvent) -> ReplicaGroup | None:
    """Return a group after an event; None: the event ends the group.

    Args:
        group: the group of the event; None if there is none.
        event: the change.

    Raises:
        StoreFormatError: the event does not follow from the state.
    """
    match event:
        case GroupStored():
            changed: ReplicaGroup | None = _restored(event)
        case IdApplied():
            changed = _with_replica(group, event)
        case GroupRemoved():
            changed = None
        case _:
            changed = None if group is None else _changed(group, event)
            _check(group is not None, event, "the group is unknown")
    if changed is not None:
        _check(changed.members <= changed.replicas.keys(), event, "a member is not registered")
        has_master = changed.master_id is None or changed.master_id in changed.members
        _check(has_master, event, "the master is not a member")
    return changed


def _changed(
    group: ReplicaGroup,
    event: AddressChanged | MasterElected | MasterLost | SetAltered | ReplicaRemoved,
) -> ReplicaGroup | None:
    match event:
        case AddressChanged():
            known = group.replicas.get(event.replica_id)
            if known is None:
                raise _not_following(event, "the replica is unknown")
            moved = replace(known, address=event.address)
            return replace(group, replicas=_frozen({**group.replicas, event.replica_id: moved}))
        case MasterElected():
            is_next = event.master_epoch == group.master_epoch + 1
            _check(is_next, event, "the master epoch is not the next one")
            _check(event.set_epoch == group.set_epoch + 1, event, "the set epoch is not the next")
            return replace(
                group,
                master_id=event.replica_id,
                master_epoch=event.master_epoch,
                members=frozenset({event.replica_id}),
                set_epoch=event.set_epoch,
            )
        case MasterLost():
            return replace(group, master_id=None)
        case SetAltered():
            _check(event.set_epoch == group.set_epoch + 1, event, "the set epoch is not the next")
            return replace(group, members=frozenset(event.members), set_epoch=event.set_epoch)
        case ReplicaRemoved():
            return _without_replica(group, event)


def _with_replica(group: ReplicaGroup | None, event: IdApplied) -> ReplicaGroup:
    group = group or ReplicaGroup(cluster=event.cluster, name=event.group)
    _check(event.replica_id > group.last_id, event, "the id was given before")
    added = Replica(event.address, event.check_code)
    return replace(
        group,
        replicas=_frozen({**group.replicas, event.replica_id: added}),
        last_id=event.replica_id,
    )


def _without_replica(group: ReplicaGroup, event: ReplicaRemoved) -> ReplicaGroup | None:
    left = {number: each for number, each in group.replicas.items() if number != event.replica_id}
    _check(len(left) < len(group.replicas), event, "the replica is unknown")
    if not left:
        return None
    members = group.members - {event.replica_id}
    return replace(
        group,
        replicas=_frozen(left),
        master_id=None if group.master_id == event.replica_id else group.master_id,
        members=members,
        # The master learns of it as of any other change of the set.
        set_epoch=group.set_epoch + (members != group.members),
    )


def _restored(event: GroupStored) -> ReplicaGroup:
    replicas = {each.replica_id: Replica(each.address, each.check_code) for each in event.replicas}
    _check(bool(replicas), event, "there are no replicas")
    _check(max(replicas, default=0) <= event.last_id, event, "an id is above the last one")
    return ReplicaGroup(
        cluster=event.cluster,
        name=event.group,
        replicas=_frozen(replicas),
        last_id=event.last_id,
        master_id=event.master_id,
        master_epoch=event.master_epoch,
        members=frozenset(event.members),
        set_epoch=event.set_epoch,
    )


def _frozen(replicas: dict[int, Replica]) -> Mapping[int, Replica]:
    return MappingProxyType(replicas)


def _check(holds: bool, event: AnyEvent, reason: str) -> None:
    if not holds:
        raise _not_following(event, reason)


def _not_following(event: AnyEvent, reason: str) -> StoreFormatError:
    return StoreFormatError(f"{type(event).__name__} of group {event.group[:100]!r}: {reason}")
