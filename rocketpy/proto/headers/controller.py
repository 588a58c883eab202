"""Headers of the controller's requests, 1001 to 1013, and of its heartbeats (904).

Fields with `rocketpy` in their names, and all of the answer to 904, are ours: Apache's brokers and
controllers ignore them.

Source: the header classes of the same names, 5.4.0.
"""

from collections.abc import Mapping
from typing import ClassVar, Final

from rocketpy.proto.headers.base import Header, Int32, Int64, header
from rocketpy.proto.headers.namesrv import BrokerHeartbeatRequestHeader

STATE_FIELD: Final = "rocketpyState"
"""Field of all answers of a leader: id of its state (ours)."""


@header
class AlterSyncStateSetRequestHeader(Header):
    """Request 1001, CONTROLLER_ALTER_SYNC_STATE_SET.

    Attributes:
        rocketpy_fence: store the set also unchanged, with a new set epoch: an earlier request that
            is still on its way is refused then (ours).
    """

    broker_name: str
    master_broker_id: Int64
    master_epoch: Int32
    invoke_time: Int64 = 0
    rocketpy_fence: bool | None = None


@header
class AlterSyncStateSetResponseHeader(Header):
    """Response to 1001."""

    new_sync_state_set_epoch: Int32


@header
class ElectMasterRequestHeader(Header):
    """Request 1002, CONTROLLER_ELECT_MASTER.

    Attributes:
        broker_id: the asker, or the designated replica; -1: the controller or an operator.
        designate_elect: elect `broker_id` or none.
        rocketpy_hand_over: the master asks for a successor (ours).
        rocketpy_epoch: epoch in which it has stopped to acknowledge (ours).
    """

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Int64 = -1
    designate_elect: bool = False
    invoke_time: Int64 = 0
    rocketpy_hand_over: bool | None = None
    rocketpy_epoch: Int32 | None = None


@header
class ElectMasterResponseHeader(Header):
    """Response to 1002."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@header
class RegisterBrokerToControllerRequestHeader(Header):
    """Request 1003, CONTROLLER_REGISTER_BROKER."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    broker_address: str
    invoke_time: Int64 = 0


@header
class RegisterBrokerToControllerResponseHeader(Header):
    """Response to 1003; without a master if none is alive."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@header
class GetReplicaInfoRequestHeader(Header):
    """Request 1004, CONTROLLER_GET_REPLICA_INFO."""

    broker_name: str


@header
class GetReplicaInfoResponseHeader(Header):
    """Response to 1004."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


@header
class GetMetaDataResponseHeader(Header):
    """Response to 1005, CONTROLLER_GET_METADATA_INFO.

    Attributes:
        peers: `n0:host:port;` for each controller.
        rocketpy_state: id of the controller's state (ours).
        rocketpy_is_shared: whether several controllers have it (ours).
    """

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None
    rocketpy_state: str | None = None
    rocketpy_is_shared: bool | None = None


@header
class NotifyBrokerRoleChangedRequestHeader(Header):
    """Request 1008, NOTIFY_BROKER_ROLE_CHANGED, of a controller to brokers.

    Attributes:
        rocketpy_hand_over: asks the master to refuse sends before another one is elected (ours).
    """

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None
    rocketpy_hand_over: bool | None = None


@header
class CleanControllerBrokerDataRequestHeader(Header):
    """Request 1011, CLEAN_BROKER_DATA.

    Attributes:
        broker_controller_ids_to_clean: `1;2`; all replicas without it.
    """

    wire_names: ClassVar[Mapping[str, str]] = {"clean_living_broker": "isCleanLivingBroker"}

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    clean_living_broker: bool = False
    invoke_time: Int64 = 0


@header
class GetNextBrokerIdRequestHeader(Header):
    """Request 1012, CONTROLLER_GET_NEXT_BROKER_ID."""

    cluster_name: str
    broker_name: str


@header
class GetNextBrokerIdResponseHeader(Header):
    """Response to 1012."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


@header
class ApplyBrokerIdRequestHeader(Header):
    """Request 1013, CONTROLLER_APPLY_BROKER_ID.

    Attributes:
        register_check_code: `address;ms`, which proves a repeated request.
    """

    cluster_name: str
    broker_name: str
    applied_broker_id: Int64
    register_check_code: str


@header
class ApplyBrokerIdResponseHeader(Header):
    """Response to 1013."""

    cluster_name: str | None = None
    broker_name: str | None = None


@header
class ControllerHeartbeatRequestHeader(BrokerHeartbeatRequestHeader):
    """Request 904, BROKER_HEARTBEAT, of a broker in controller mode.

    Attributes:
        rocketpy_needs_all: whether this master acknowledges what all of the sync-state set has.
        rocketpy_state: id of the controller's state that the broker belongs to.
        rocketpy_set_epoch: highest epoch of the sync-state set that it knows of.
        rocketpy_master_epoch: epoch in which it is the master; 0 or none: it is none.
        rocketpy_members: replicas that this master waits for, itself included: `1;2`.
        rocketpy_known_epoch: highest epoch in its epoch list; `epoch` is that of the log's end.
    """

    rocketpy_needs_all: bool | None = None
    rocketpy_state: str | None = None
    rocketpy_set_epoch: Int32 | None = None
    rocketpy_master_epoch: Int32 | None = None
    rocketpy_members: str | None = None
    rocketpy_known_epoch: Int32 | None = None


@header
class ControllerHeartbeatResponseHeader(Header):
    """Response to 904 (ours); Apache's controllers send no fields.

    Attributes:
        lease_ms: length of the master's lease, from the time it sent the heartbeat.
        rocketpy_hand_over: the controller asks this master to hand over now.
    """

    lease_ms: Int64 | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    rocketpy_hand_over: bool | None = None
