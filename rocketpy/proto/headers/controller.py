"""The controller, which elects masters.

Source: the header classes of the same names, 5.4.0.
"""

from rocketpy.proto.headers.base import Header, Int32, Int64, header


@header
class AlterSyncStateSetRequestHeader(Header):
    """Request 1001, CONTROLLER_ALTER_SYNC_STATE_SET."""

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_time: Int64 = 0


@header
class AlterSyncStateSetResponseHeader(Header):
    """Answer to 1001, CONTROLLER_ALTER_SYNC_STATE_SET."""

    new_sync_state_set_epoch: Int32 = 0


@header
class ElectMasterRequestHeader(Header):
    """Request 1002, CONTROLLER_ELECT_MASTER."""

    cluster_name: str
    broker_name: str
    broker_id: Int64
    designate_elect: bool
    invoke_time: Int64 | None = None


@header
class ElectMasterResponseHeader(Header):
    """Answer to 1002, CONTROLLER_ELECT_MASTER."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@header
class RegisterBrokerToControllerRequestHeader(Header):
    """Request 1003, CONTROLLER_REGISTER_BROKER."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_time: Int64 = 0


@header
class RegisterBrokerToControllerResponseHeader(Header):
    """Answer to 1003, CONTROLLER_REGISTER_BROKER."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


@header
class GetReplicaInfoRequestHeader(Header):
    """Request 1004, CONTROLLER_GET_REPLICA_INFO."""

    broker_name: str | None = None


@header
class GetReplicaInfoResponseHeader(Header):
    """Answer to 1004, CONTROLLER_GET_REPLICA_INFO."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


@header
class GetMetaDataResponseHeader(Header):
    """A response."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


@header
class NotifyBrokerRoleChangedRequestHeader(Header):
    """Request 1008, NOTIFY_BROKER_ROLE_CHANGED."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


@header
class CleanControllerBrokerDataRequestHeader(Header):
    """Request 1011, CLEAN_BROKER_DATA."""

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 = 0


@header
class GetNextBrokerIdRequestHeader(Header):
    """Request 1012, CONTROLLER_GET_NEXT_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None


@header
class GetNextBrokerIdResponseHeader(Header):
    """Answer to 1012, CONTROLLER_GET_NEXT_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


@header
class ApplyBrokerIdRequestHeader(Header):
    """Request 1013, CONTROLLER_APPLY_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None


@header
class ApplyBrokerIdResponseHeader(Header):
    """Answer to 1013, CONTROLLER_APPLY_BROKER_ID."""

    cluster_name: str | None = None
    broker_name: str | None = None
