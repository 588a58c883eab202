"""State of replication: role, lag and state of each replica of a cluster.

A broker of RocketPy names its state in GET_BROKER_HA_STATUS (907). One of Apache does not: its
slave counts as `STREAMING` while its end of the log is known.

Source: HAStatusSubCommand (5.4.0).
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from rocketpy.admin.results import ReplicaStatus
from rocketpy.admin.servers import Servers
from rocketpy.errors import RocketPyError
from rocketpy.proto.bodies.route import BrokerData
from rocketpy.proto.bodies.stats import HARuntimeInfo
from rocketpy.proto.wire.codes import RequestCode

MASTER_ID: Final = 0
STREAMING: Final = "STREAMING"


async def replicas(servers: Servers, cluster: str = "") -> list[ReplicaStatus]:
    """Return the state of every broker as a replica; one that does not answer has an `error`.

    A broker name without a registered master has no row of id 0; the lag of its slaves is unknown.

    Args:
        cluster: only this one.
    """
    info = await servers.cluster_info()
    groups = [
        data
        for name, data in sorted(info.broker_addr_table.items())
        if not cluster or name in info.cluster_addr_table.get(cluster, set())
    ]
    found = await asyncio.gather(*(_group(servers, data) for data in groups))
    return [each for group in found for each in group]


async def _group(servers: Servers, data: BrokerData) -> list[ReplicaStatus]:
    """Return the replicas of one broker name, the master first."""
    members = sorted(data.broker_addrs.items())
    answers = await asyncio.gather(*(_ha_status(servers, address) for _, address in members))
    master: HARuntimeInfo | None = None
    for (broker_id, _), (answer, _) in zip(members, answers, strict=True):
        if broker_id == MASTER_ID:
            master = answer
    rows = []
    for (broker_id, address), (answer, error) in zip(members, answers, strict=True):
        row = ReplicaStatus(
            cluster=data.cluster,
            broker=data.broker_name,
            broker_id=broker_id,
            address=address,
            role="MASTER" if broker_id == MASTER_ID else "SLAVE",
            error=error,
        )
        if answer is not None:
            row = _described(row, answer, master)
        rows.append(row)
    return rows


async def _ha_status(servers: Servers, address: str) -> tuple[HARuntimeInfo | None, str]:
    try:  # `each`, so that later requests of a command do not wait for a silent broker again
        answers, _ = await servers.bodies(
            {address: address}, RequestCode.GET_BROKER_HA_STATUS, HARuntimeInfo
        )
    except RocketPyError as error:
        return None, str(error)
    return answers[address], ""


def _described(
    row: ReplicaStatus, answer: HARuntimeInfo, master: HARuntimeInfo | None
) -> ReplicaStatus:
    """Return a row with the state that a replica and its master report."""
    if row.broker_id == MASTER_ID:
        return ReplicaStatus(
            **_identity(row),
            role="MASTER",
            state="SERVING",
            end=answer.master_commit_log_max_offset,
            lag_bytes=0,
            in_sync=True,
            copies_in_sync=answer.in_sync_slave_nums + 1,
            copies_needed=answer.needed_replicas or 0,
            send_refusal=answer.send_refusal or "",
        )
    client: Mapping[str, Any] = answer.ha_client_runtime_info
    end = _number(client.get("maxOffset"))
    lag = -1
    if master is not None and end >= 0:
        lag = max(0, master.master_commit_log_max_offset - end)
    state = str(client.get("state") or (STREAMING if end >= 0 else ""))
    return ReplicaStatus(
        **_identity(row),
        role="SLAVE",
        state=state,
        reason=str(client.get("reason") or ""),
        end=end,
        lag_bytes=lag,
        in_sync=_is_in_sync(row, end, master),
    )


def _is_in_sync(row: ReplicaStatus, end: int, master: HARuntimeInfo | None) -> bool:
    """Return whether the master counts a slave as in sync."""
    if master is None:
        return False
    connections = [each for each in master.ha_connection_info if isinstance(each, dict)]
    named = [each for each in connections if "brokerId" in each]
    if named:
        return any(
            each.get("brokerId") == row.broker_id and each.get("inSync") is True for each in named
        )
    # Apache names the slave by the address of its connection only: a host may have several.
    host = row.address.rpartition(":")[0]
    return end >= 0 and any(
        str(each.get("addr", "")).strip("/").rpartition(":")[0] == host
        and each.get("inSync") is True
        for each in connections
    )


def _identity(row: ReplicaStatus) -> dict[str, Any]:
    return {
        "cluster": row.cluster,
        "broker": row.broker,
        "broker_id": row.broker_id,
        "address": row.address,
    }


def _number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else -1
