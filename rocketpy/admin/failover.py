"""State of the broker groups of a cluster whose masters are elected by a controller.

A replica of RocketPy names its controllers, epoch and settings in GET_BROKER_RUNTIME_INFO (28); the
controller knows the sync-state set, and which replicas are alive (1006).

Source: GetSyncStateSetSubCommand (5.4.0).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from rocketpy.admin.replication import MASTER_ID, replicas
from rocketpy.admin.results import GroupReplica, GroupStatus, ReplicaStatus
from rocketpy.admin.servers import Servers
from rocketpy.errors import RocketPyError
from rocketpy.proto.bodies.controller import (
    RUNTIME_CONTROLLERS,
    RUNTIME_LEASE_MS,
    RUNTIME_MIN_IN_SYNC,
    BrokerReplicasInfo,
    ReplicasInfo,
)
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.headers.controller import GetMetaDataResponseHeader
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.codes import RequestCode


async def group_statuses(servers: Servers, cluster: str = "") -> list[GroupStatus]:
    """Return the state of each broker group with its replicas.

    Groups without a controller have epoch 0, and no sync-state set.

    Args:
        cluster: only this one.

    Raises:
        NoNameServerError: none is configured or none answers.
    """
    groups: dict[str, list[ReplicaStatus]] = {}
    for each in await replicas(servers, cluster):
        groups.setdefault(each.broker, []).append(each)
    addresses = [each.address for rows in groups.values() for each in rows if not each.error]
    runtimes: dict[str, KVTable] = {}
    if addresses:
        runtimes, _ = await servers.bodies(
            {each: each for each in addresses}, RequestCode.GET_BROKER_RUNTIME_INFO, KVTable
        )
    tables = {address: found.table for address, found in runtimes.items()}
    return [await _status(servers, name, rows, tables) for name, rows in groups.items()]


async def _status(
    servers: Servers,
    name: str,
    rows: list[ReplicaStatus],
    tables: Mapping[str, Mapping[str, str]],
) -> GroupStatus:
    own = [tables[each.address] for each in rows if each.address in tables]
    master = next((each.address for each in rows if each.broker_id == MASTER_ID), "")
    silent = [f"replica {each.broker_id} does not answer" for each in rows if each.error]
    status = GroupStatus(
        cluster=rows[0].cluster,
        broker=name,
        master=master,
        replicas=[_registered(each) for each in rows],
        warnings=([] if master else ["no master is registered"]) + silent,
    )
    named = (each.get(RUNTIME_CONTROLLERS, "") for each in own)
    controllers = next(filter(None, named), "")
    if not controllers:
        return status
    lease = tables.get(master, {}).get(RUNTIME_LEASE_MS)
    status = replace(status, lease_ms=None if lease is None else _number(lease))
    try:
        leader, info = await _ask_controllers(servers, controllers.split(";"), name)
    except RocketPyError as error:
        return replace(status, warnings=[*status.warnings, f"no controller answers: {error}"])
    if info is None:
        reason = f"{leader} does not know the group" if leader else "no controller leads"
        return replace(status, controller=leader, warnings=[*status.warnings, reason])
    minimum = max(_number(each.get(RUNTIME_MIN_IN_SYNC)) for each in own)
    found = _replicas(info, rows)
    return replace(
        status,
        master=info.master_address or "",
        epoch=info.master_epoch,
        set_epoch=info.sync_state_set_epoch,
        min_in_sync=minimum,
        controller=leader,
        replicas=found,
        warnings=_problems(info, found, minimum) + _silent(found, rows),
    )


async def _ask_controllers(
    servers: Servers, addresses: Iterable[str], name: str
) -> tuple[str, ReplicasInfo | None]:
    """Return the leading controller, and the group as it knows it.

    Raises:
        RocketPyError: no controller answers.
    """
    known = {each: each for each in addresses}

    async def leader_of(address: str) -> str:
        response = await servers.ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
        found = GetMetaDataResponseHeader.from_ext(response.ext_fields)
        return address if found.is_leader else found.controller_leader_address or ""

    answers, _ = await servers.each(known, leader_of)
    leader = next((each for each in answers.values() if each), "")
    if not leader:
        return "", None
    response = await servers.ask(
        leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=fastjson.dumps([name])
    )
    return leader, BrokerReplicasInfo.decode(response.body).replicas_info_table.get(name)


def _replicas(info: ReplicasInfo, rows: list[ReplicaStatus]) -> list[GroupReplica]:
    """Return the replicas that the controller knows; those that run are also in `rows`."""
    row_of = {each.address: each for each in rows}
    found = []
    for is_member, members in ((True, info.in_sync_replicas), (False, info.not_in_sync_replicas)):
        for each in members:
            row = row_of.get(each.broker_address)
            replica = GroupReplica(
                broker_id=each.broker_id,
                address=each.broker_address,
                role="MASTER" if each.broker_id == info.master_broker_id else "SLAVE",
                is_alive=each.alive,
                is_member=is_member,
            )
            if row is not None:
                state, reason = row.state, _reason(row)
                replica = replace(replica, state=state, lag_bytes=row.lag_bytes, reason=reason)
            found.append(replica)
    return sorted(found, key=lambda each: each.broker_id)


def _registered(row: ReplicaStatus) -> GroupReplica:
    """Return a replica as the name server and the replica itself know it."""
    return GroupReplica(
        broker_id=row.broker_id,
        address=row.address,
        role=row.role,
        is_alive=not row.error,
        is_member=row.in_sync,
        state=row.state,
        lag_bytes=row.lag_bytes,
        reason=_reason(row),
    )


def _reason(row: ReplicaStatus) -> str:
    return row.reason or row.send_refusal or row.error


def _problems(info: ReplicasInfo, found: list[GroupReplica], minimum: int) -> list[str]:
    members = [each.broker_id for each in found if each.is_member]
    problems = [f"replica {each.broker_id} is not alive" for each in found if not each.is_alive]
    if info.master_broker_id is None:
        problems.append("no master is elected")
    if len(members) < minimum:
        problems.append(
            f"the sync-state set {members} is below minInSyncReplicas={minimum}: sends are refused"
        )
    elif len(members) == 1 < len(found):
        problems.append(
            f"the sync-state set is {members}: no other replica can be elected, and messages have "
            "one copy"
        )
    elif len(members) == minimum and minimum > 1:
        problems.append(
            f"the sync-state set {members} is at minInSyncReplicas={minimum}: without one more "
            "replica sends are refused"
        )
    return problems


def _silent(found: list[GroupReplica], rows: list[ReplicaStatus]) -> list[str]:
    """Return a problem for each broker that the controller regards as alive but does not answer."""
    alive = {each.address: each.broker_id for each in found if each.is_alive}
    return [
        f"replica {alive[each.address]} does not answer"
        for each in rows
        if each.error and each.address in alive
    ]


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
