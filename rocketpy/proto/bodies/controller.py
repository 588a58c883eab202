"""Bodies of the controller's requests.

Also the names of what a replica adds to its runtime information (28), for the tools (ours).

Source: SyncStateSet, BrokerReplicasInfo, ElectMasterResponseBody, EpochEntryCache of 5.4.0.
"""

from dataclasses import field
from typing import Final

from rocketpy.errors import BadBodyError
from rocketpy.proto.bodies.route import BrokerMemberGroup
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.json_body import Body, body

RUNTIME_CONTROLLERS: Final = "rocketpyControllers"
"""Addresses of the controllers, with `;` between them."""
RUNTIME_MIN_IN_SYNC: Final = "rocketpyMinInSyncReplicas"
"""Smallest sync-state set with which sends are accepted."""
RUNTIME_LEASE_MS: Final = "rocketpyLeaseMs"
"""Time until the master's lease ends."""


@body
class SyncStateSet(Body):
    """Sync-state set, in requests 1001 and 1008 and in many responses."""

    sync_state_set: set[int] = field(default_factory=set)
    sync_state_set_epoch: int = 0


@body
class ElectMasterResponseBody(Body):
    """Response to 1002: the replicas of the group, and the new set."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: set[int] = field(default_factory=set)


@body
class ReplicaIdentity(Body):
    """Replica in `ReplicasInfo`."""

    broker_name: str = ""
    broker_id: int = 0
    broker_address: str = ""
    alive: bool = False


@body
class ReplicasInfo(Body):
    """Group in `BrokerReplicasInfo`."""

    master_broker_id: int | None = None
    master_address: str | None = None
    master_epoch: int = 0
    sync_state_set_epoch: int = 0
    in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)
    not_in_sync_replicas: list[ReplicaIdentity] = field(default_factory=list)


@body
class BrokerReplicasInfo(Body):
    """Response to 1006: groups by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


@body
class EpochEntry(Body):
    """Epoch in `EpochEntryCache`: an epoch and the offsets that it covers."""

    epoch: int = 0
    start_offset: int = 0
    end_offset: int = 0


@body
class EpochEntryCache(Body):
    """Response to 1007, of a broker: its epoch list."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: int = 0
    epoch_list: list[EpochEntry] = field(default_factory=list)
    max_offset: int = 0


def decode_broker_names(data: bytes) -> list[str]:
    """Decode the body of request 1006, an array of broker names.

    Raises:
        BadBodyError: it is something else.
    """
    fastjson.check_quick(data)
    value = fastjson.loads(data)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadBodyError("the body is not an array of broker names")
    return value
