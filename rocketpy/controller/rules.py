"""Rules by which a controller answers requests: state and liveness in, events or refusal out.

All functions are pure. The caller stores and applies the events of a verdict before it answers.

Source: ReplicasInfoManager, DefaultElectPolicy (5.4.0); differences are in docs/failover.md.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocketpy.controller.events import (
    MAX_ID,
    AddressChanged,
    AnyEvent,
    GroupRemoved,
    IdApplied,
    MasterElected,
    MasterLost,
    ReplicaRemoved,
    SetAltered,
)
from rocketpy.controller.names import is_address, is_name
from rocketpy.controller.replica_groups import ReplicaGroup, ReplicaGroups
from rocketpy.proto.wire.codes import ResponseCode

MAX_REPLICAS: Final = 64
"""Limit of replicas in one group; real groups have two to five."""
MAX_HEARD_EPOCH: Final = 1 << 30
"""Limit of epochs in heartbeats: a wrong one must not use up the 31 bits of Apache's brokers."""
_MAX_CHECK_CODE_CHARS: Final = 512


@dataclass(frozen=True, slots=True)
class Verdict:
    """Answer to a request, and the events to store first.

    Attributes:
        code: SUCCESS, or why it was refused.
        remark: text of a refusal.
        events: empty for a refusal, and for a request that changes nothing.
    """

    code: ResponseCode = ResponseCode.SUCCESS
    remark: str = ""
    events: Sequence[AnyEvent] = ()

    @property
    def is_accepted(self) -> bool:
        """Whether the request succeeds."""
        return self.code is ResponseCode.SUCCESS


@dataclass(frozen=True, slots=True)
class Standing:
    """Log of an alive replica, as its last heartbeat reported it.

    Attributes:
        epoch: of the last part of the log.
        end_offset: end of its commit log.
        priority: `brokerElectionPriority`; a lower number is preferred.
        set_epoch: highest epoch of the sync-state set that it knows of.
        leads: epoch in which it is the master; 0: it is none, or does not report it.
        members: replicas that this master waits for, itself included.
        known_epoch: highest epoch in its epoch list, which may begin behind the end of the log; 0:
            not reported.
    """

    epoch: int
    end_offset: int
    priority: int
    set_epoch: int = 0
    leads: int = 0
    members: frozenset[int] = frozenset()
    known_epoch: int = 0

    @property
    def newest_epoch(self) -> int:
        """Highest epoch that it knows of."""
        return max(self.epoch, self.known_epoch)


ACCEPTED: Final = Verdict()


def refused(code: ResponseCode, remark: str) -> Verdict:
    """Return a refusal."""
    return Verdict(code, remark)


def next_id(group: ReplicaGroup | None) -> int:
    """Return the id that the next new replica of a group may apply for."""
    return 1 if group is None else group.last_id + 1


def apply_id(
    groups: ReplicaGroups,
    cluster: str,
    name: str,
    replica_id: int,
    check_code: str,
    max_groups: int,
) -> Verdict:
    """Give an id to a replica (1013); a repeated request succeeds.

    Args:
        groups: all groups.
        cluster: cluster name.
        name: broker name.
        replica_id: as `next_id` returned it.
        check_code: `address;time`, chosen by the replica.
        max_groups: limit of groups.
    """
    group = groups.get(name)
    problem = _name_problem(group, cluster, name)
    if problem is not None:
        return problem
    known = None if group is None else group.replicas.get(replica_id)
    if known is not None and known.check_code == check_code:
        return ACCEPTED
    if replica_id != next_id(group) or replica_id > MAX_ID:
        return refused(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"broker id {replica_id} of {name} is taken or not the next one: "
            f"ask for the next id, which is {next_id(group)} now",
        )
    address = check_code.partition(";")[0]
    if len(check_code) > _MAX_CHECK_CODE_CHARS or not is_address(address):
        return refused(
            ResponseCode.CONTROLLER_INVALID_REQUEST, "registerCheckCode is not address;time"
        )
    if group is None and len(groups) >= max_groups:
        return refused(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"the controller has {max_groups} broker groups: raise maxBrokerGroups",
        )
    if group is not None and len(group.replicas) >= MAX_REPLICAS:
        return refused(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"{name} has {MAX_REPLICAS} replicas: remove those that are gone",
        )
    applied = IdApplied(name, cluster, replica_id, address, check_code)
    return Verdict(events=[applied])


def register(
    group: ReplicaGroup | None,
    cluster: str,
    name: str,
    replica_id: int,
    address: str,
    is_alive: Callable[[int], bool],
) -> Verdict:
    """Register the address of a replica that has started (1003).

    A master that registers is a new process, whose log may have lost its end in a power cut. It
    must not continue its epoch, under which other replicas may have stored that end. So its
    mastership ends here, and the next election compares the logs.

    Another address while the replica is alive is a copy of its directory. It must not take over
    the replica's place in the sync-state set: its log may be older.

    Args:
        group: the group, or None.
        cluster: cluster name.
        name: broker name.
        replica_id: the replica.
        address: its address.
        is_alive: whether a replica sends heartbeats.
    """
    problem = _name_problem(group, cluster, name)
    if problem is not None:
        return problem
    if group is None or replica_id not in group.replicas:
        return refused(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"broker id {replica_id} of {name} is unknown here: it must apply for an id first",
        )
    if not is_address(address):
        return refused(ResponseCode.CONTROLLER_INVALID_REQUEST, "brokerAddress is not host:port")
    events: list[AnyEvent] = []
    known = group.replicas[replica_id].address
    if known != address:
        if is_alive(replica_id):
            return refused(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"broker id {replica_id} of {name} is in use at {known}: if {address} runs on a "
                "copy of its directory, remove brokerIdentity and the log from the copy",
            )
        events.append(AddressChanged(name, replica_id, address))
    if group.master_id == replica_id:
        events.append(MasterLost(name))
    return Verdict(events=events)


def alter_set(
    group: ReplicaGroup | None,
    master_id: int,
    master_epoch: int,
    members: Collection[int],
    set_epoch: int,
    is_alive: Callable[[int], bool],
    *,
    fences: bool = False,
) -> Verdict:
    """Change the sync-state set as its master asks (1001).

    Args:
        group: the group, or None.
        master_id: the asker.
        master_epoch: epoch of the asker.
        members: the wanted set.
        set_epoch: epoch of the set that the asker knows.
        is_alive: whether a replica sends heartbeats.
        fences: whether an unchanged set gets a new epoch as well.
    """
    code = ResponseCode
    if group is None:
        return refused(code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, "the broker group is unknown")
    wanted = frozenset(members)
    if master_id != group.master_id:
        remark = f"the master is {group.master_id}, not {master_id}"
        return refused(code.CONTROLLER_INVALID_MASTER, remark)
    if master_epoch != group.master_epoch:
        remark = f"the master epoch is {group.master_epoch}, not {master_epoch}"
        return refused(code.CONTROLLER_FENCED_MASTER_EPOCH, remark)
    if set_epoch != group.set_epoch:
        remark = f"the epoch of the sync-state set is {group.set_epoch}, not {set_epoch}"
        return refused(code.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH, remark)
    if unknown := sorted(wanted - group.replicas.keys()):
        remark = f"replica {unknown[0]} is unknown"
        return refused(code.CONTROLLER_INVALID_REPLICAS, remark)
    for added in sorted(wanted - group.members):
        if not is_alive(added):
            remark = f"replica {added} sends no heartbeats"
            return refused(code.CONTROLLER_BROKER_NOT_ALIVE, remark)
    if group.master_id not in wanted:
        remark = "the sync-state set must contain the master"
        return refused(code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, remark)
    if wanted == group.members and not fences:
        remark = "the sync-state set is the same"
        return refused(code.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED, remark)
    return Verdict(events=[SetAltered(group.name, tuple(sorted(wanted)), group.set_epoch + 1)])


def elect(
    group: ReplicaGroup,
    alive: Mapping[int, Standing],
    *,
    designated: int | None = None,
    replaced: bool = False,
    unclean: bool = False,
) -> Verdict:
    """Elect a master among the alive members of the stored set.

    Args:
        group: the group, which has had a master.
        alive: standings of the replicas that send heartbeats.
        designated: elect this one or none.
        replaced: elect another one although the master is alive.
        unclean: elect outside the set if no member of it is alive; this loses messages.
    """
    candidates = set(group.members & alive.keys())
    if unclean and not candidates:
        candidates = set(group.replicas.keys() & alive.keys())
    master_id = group.master_id
    is_current = _highest_epoch(alive) <= group.master_epoch
    if (
        master_id in candidates
        and not replaced
        and (designated is None or (designated == master_id and is_current))
    ):
        remark = f"the master {master_id} is alive"
        return refused(ResponseCode.CONTROLLER_MASTER_STILL_EXIST, remark)
    if replaced:
        candidates -= {master_id}
    if designated is not None:
        candidates &= {designated}
    if not candidates:
        listed = ", ".join(map(str, sorted(group.members)))
        remark = f"no alive candidate in the sync-state set [{listed}]"
        if designated is not None:
            remark = f"replica {designated} is not an alive member of the set [{listed}]"
        return refused(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark)
    best = min(candidates, key=lambda number: _rank(number, alive[number]))
    return Verdict(events=elected(group, best, alive))


def elect_first(group: ReplicaGroup, first: int, alive: Mapping[int, Standing]) -> Verdict:
    """Elect the first master of a group: the asker, unless another log has a newer end.

    The logs have epochs if an earlier controller's state was lost.

    Args:
        group: the group, which has had no master.
        first: the asker.
        alive: standings of the replicas that send heartbeats.
    """
    known = {first: Standing(0, 0, 0), **alive}
    best = min(known, key=lambda number: _rank(number, known[number]))
    standing, own = known[best], known[first]
    is_newer = (standing.epoch, standing.end_offset) > (own.epoch, own.end_offset)
    return Verdict(events=elected(group, best if is_newer else first, alive))


def elected(
    group: ReplicaGroup, replica_id: int, alive: Mapping[int, Standing]
) -> Sequence[AnyEvent]:
    """Return the events that make a replica the master.

    The epoch is above those of all logs, too: a replica takes no master of a lower one, and the
    state of the controller may have been lost, or restored from a backup.

    Args:
        group: the group.
        replica_id: the new master.
        alive: standings of the replicas that send heartbeats.
    """
    epoch = max(group.master_epoch, _highest_epoch(alive))
    set_epoch = max(group.set_epoch, highest(each.set_epoch for each in alive.values()))
    elections: list[AnyEvent] = []
    if (epoch, set_epoch) != (group.master_epoch, group.set_epoch):
        elections.append(replace(group, master_epoch=epoch, set_epoch=set_epoch).stored())
    elections.append(MasterElected(group.name, replica_id, epoch + 1, set_epoch + 1))
    return elections


def restore(group: ReplicaGroup, alive: Mapping[int, Standing], heard_epoch: int) -> Verdict:
    """Elect the present master again, when the state is older than the logs.

    The stored set does not count: its members may lack acknowledged messages. The present master
    has all of them, unless another one was elected after it. That one would be a member of the set
    that it waits for, so all of these have to be alive, and none may have a higher epoch.

    Args:
        group: the group, as an old backup of the controller has it.
        alive: standings of the replicas that send heartbeats.
        heard_epoch: highest epoch of all heartbeats, also of replicas that are unknown here.
    """
    present = [number for number, each in alive.items() if each.leads == heard_epoch > 0]
    behind = (
        f"the state of the controller (epoch {group.master_epoch}, set {group.set_epoch}) is older "
        f"than the logs (epoch {heard_epoch}), as after the restore of a backup"
    )
    if not present:
        return refused(
            ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
            f"{behind}, and no replica is the master of that epoch: start all brokers of "
            f"{group.name}, then elect the one with the newest log by mqadmin electMaster",
        )
    master_id = min(present)
    if missing := sorted(alive[master_id].members - alive.keys()):
        listed = ", ".join(map(str, missing))
        return refused(
            ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
            f"{behind}, and replica {listed} of the set of master {master_id} is not alive or not "
            f"known: start it, or elect {master_id} by mqadmin electMaster",
        )
    return Verdict(events=elected(group, master_id, alive))


def restore_by_operator(
    group: ReplicaGroup, alive: Mapping[int, Standing], heard_epoch: int, designated: int
) -> Verdict:
    """Elect the replica that an operator names, when the state is older than the logs.

    Args:
        group: the group.
        alive: standings of the replicas that send heartbeats.
        heard_epoch: see `restore`.
        designated: that replica, in the stored set or not.
    """
    code = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
    standing = alive.get(designated)
    if standing is None:
        return refused(code, f"replica {designated} is not alive")
    # A log without a byte of the newest epoch may be from before it, or have been cut for it.
    candidates = [each for each in alive.values() if each.newest_epoch >= heard_epoch]
    newest = max(((each.epoch, each.end_offset) for each in candidates), default=(0, 0))
    is_newest = standing.leads == heard_epoch or (standing.epoch, standing.end_offset) >= newest
    if standing.newest_epoch < heard_epoch or not is_newest:
        return refused(
            code,
            f"the log of replica {designated} ends in epoch {standing.epoch} at "
            f"{standing.end_offset}, another one in {max(heard_epoch, newest[0])} at {newest[1]}: "
            "elect that one, or stop it and give its messages up",
        )
    return Verdict(events=elected(group, designated, alive))


def highest(epochs: Iterable[int]) -> int:
    """Return the highest of reported epochs up to `MAX_HEARD_EPOCH`; 0 without any."""
    return max((each for each in epochs if each <= MAX_HEARD_EPOCH), default=0)


def _highest_epoch(alive: Mapping[int, Standing]) -> int:
    return highest(each.newest_epoch for each in alive.values())


def _rank(replica_id: int, standing: Standing) -> tuple[int, int, int, int]:
    return (-standing.epoch, -standing.end_offset, standing.priority, replica_id)


def clean(
    group: ReplicaGroup | None,
    replica_ids: Collection[int],
    is_alive: Callable[[int], bool],
    *,
    living: bool,
) -> Verdict:
    """Remove replicas that will not return, or the whole group (1011).

    Args:
        group: the group, or None.
        replica_ids: replicas to remove; empty for all.
        is_alive: whether a replica sends heartbeats, or holds the lease of a master.
        living: also remove alive replicas.
    """
    code = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    if group is None:
        return refused(code, "the broker group is unknown")
    ids = frozenset(replica_ids) or frozenset(group.replicas)
    if unknown := sorted(ids - group.replicas.keys()):
        return refused(code, f"replica {unknown[0]} is unknown")
    if not living and (alive := sorted(filter(is_alive, ids))):
        return refused(code, f"replica {alive[0]} is alive: stop it first")
    if ids == group.replicas.keys():
        return Verdict(events=[GroupRemoved(group.name)])
    if group.master_id is not None and group.master_id in ids and is_alive(group.master_id):
        return refused(code, f"replica {group.master_id} is the master: elect another one first")
    if group.members and group.members <= ids:
        return refused(
            code,
            "no replica of the sync-state set would be left, so none could be elected: "
            "remove the whole group, or elect another master first",
        )
    return Verdict(events=[ReplicaRemoved(group.name, number) for number in sorted(ids)])


def _name_problem(group: ReplicaGroup | None, cluster: str, name: str) -> Verdict | None:
    code = ResponseCode.CONTROLLER_INVALID_REQUEST
    if not is_name(name) or not is_name(cluster):
        remark = "cluster or broker name is empty, too long, or has blanks or unprintable parts"
        return refused(code, remark)
    if group is not None and group.cluster != cluster:
        return refused(
            code,
            f"{name} is a broker group of cluster {group.cluster}: broker names are unique in a "
            "controller, choose another brokerName",
        )
    return None
