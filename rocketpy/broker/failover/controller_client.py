"""Calls of a replica to the controllers of its group; finds the leader.

Source: BrokerOuterAPI, ReplicasManager (5.4.0)
"""

import asyncio
import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from rocketpy.broker.failover.known_controller import ControllerMark, KnownController
from rocketpy.broker.failover.node_state import MasterInfo
from rocketpy.errors import BrokerError, ConfigError, RocketPyError
from rocketpy.proto.bodies.controller import BrokerReplicasInfo, ReplicasInfo, SyncStateSet
from rocketpy.proto.headers.controller import (
    STATE_FIELD,
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    ControllerHeartbeatRequestHeader,
    ControllerHeartbeatResponseHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
)
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_request
from rocketpy.remoting.client import RemotingClient

_log = structlog.get_logger(__name__)

_CALL_MS: Final = 3_000
_JOINING: Final = frozenset(
    {RequestCode.CONTROLLER_APPLY_BROKER_ID, RequestCode.CONTROLLER_REGISTER_BROKER}
)
"""Requests that make the replica a part of the controller's state."""
_SET_REFUSALS: Final = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    }
)
"""Refusals of a set before anything is stored; after any other error the set may be stored."""


class GroupInfo(NamedTuple):
    """State of a group, as a controller names it.

    Attributes:
        master: the master.
        members: sync-state set; None if the answer has none.
        set_epoch: epoch of the set.
    """

    master: MasterInfo
    members: frozenset[int] | None = None
    set_epoch: int = 0


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """Answer of our controller to a heartbeat; that of Apache's is empty.

    Attributes:
        info: state of the group; None without one.
        lease_ms: length of the master's lease, from the time the heartbeat was sent.
        hands_over: whether the controller asks this master to hand over now.
    """

    info: GroupInfo | None = None
    lease_ms: int | None = None
    hands_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """Content of a heartbeat.

    Attributes:
        address: ordinary address of this broker.
        epoch: epoch of the last part of the log.
        end: end of the log.
        confirmed: end of the part that is confirmed.
        timeout_ms: silence after which this broker is dead.
        priority: for elections.
        needs_all: whether this replica, as a master, waits for the whole set.
        set_epoch: highest epoch of the sync-state set that it knows of.
        leads: epoch in which it is the master; 0 if it is not the master.
        members: replicas that this master waits for, itself included.
        known_epoch: highest epoch in its epoch list.
    """

    address: str
    epoch: int
    end: int
    confirmed: int
    timeout_ms: int
    priority: int
    needs_all: bool
    set_epoch: int = 0
    leads: int = 0
    members: frozenset[int] = frozenset()
    known_epoch: int = 0


class ControllerClient:
    """Calls of one replica.

    Args:
        client: connections.
        addresses: addresses of the controllers.
        cluster: name of the cluster.
        name: name of the broker group.
        known: state of the controllers that the replica belongs to.
    """

    def __init__(
        self,
        client: RemotingClient,
        addresses: Sequence[str],
        *,
        cluster: str,
        name: str,
        known: KnownController,
    ) -> None:
        self._client = client
        self._known = known
        self._addresses = tuple(addresses)
        self._cluster = cluster
        self._name = name
        self._leader = ""

    @property
    def leader(self) -> str:
        """Address of the controller that led last; empty: unknown."""
        return self._leader

    # -- calls of one leader -----------------------------------------------------------------

    async def next_id(self) -> int:
        """Return the id that the next new replica may apply for (1012)."""
        header = GetNextBrokerIdRequestHeader(cluster_name=self._cluster, broker_name=self._name)
        response = await self._call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, header.to_ext())
        found = GetNextBrokerIdResponseHeader.from_ext(response.ext_fields).next_broker_id
        return found or 1

    async def apply_id(self, broker_id: int, check_code: str) -> bool:
        """Apply for an id (1013); return whether it was given."""
        header = ApplyBrokerIdRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._name,
            applied_broker_id=broker_id,
            register_check_code=check_code,
        )
        response = await self._call(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            header.to_ext(),
            allowed=(ResponseCode.CONTROLLER_BROKER_ID_INVALID,),
        )
        return response.code == ResponseCode.SUCCESS

    async def register(self, broker_id: int, address: str) -> None:
        """Register this process (1003)."""
        header = RegisterBrokerToControllerRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._name,
            broker_id=broker_id,
            broker_address=address,
        )
        await self._call(RequestCode.CONTROLLER_REGISTER_BROKER, header.to_ext())

    async def elect(self, broker_id: int, *, hand_over: int | None = None) -> GroupInfo | None:
        """Ask for an election (1002); return the group, or None if no replica can be elected.

        Args:
            broker_id: this replica.
            hand_over: elect another replica than this one, which is the master of this epoch and
                acknowledges nothing in it any more.
        """
        header = ElectMasterRequestHeader(
            cluster_name=self._cluster,
            broker_name=self._name,
            broker_id=broker_id,
            rocketpy_hand_over=None if hand_over is None else True,
            rocketpy_epoch=hand_over,
        )
        code = ResponseCode
        response = await self._call(
            RequestCode.CONTROLLER_ELECT_MASTER,
            header.to_ext(),
            allowed=(
                code.CONTROLLER_MASTER_STILL_EXIST,
                code.CONTROLLER_ELECT_MASTER_FAILED,
                code.CONTROLLER_MASTER_NOT_AVAILABLE,
                code.CONTROLLER_BROKER_NOT_ALIVE,
            ),
        )
        if response.code not in {code.SUCCESS, code.CONTROLLER_MASTER_STILL_EXIST}:
            return None
        found = ElectMasterResponseHeader.from_ext(response.ext_fields)
        return _group(found, response.body)

    async def alter(
        self,
        broker_id: int,
        epoch: int,
        members: frozenset[int],
        set_epoch: int,
        *,
        fences: bool = False,
    ) -> GroupInfo | None:
        """Ask for another sync-state set (1001).

        Args:
            broker_id: this replica, the master.
            epoch: its epoch.
            members: the wanted set.
            set_epoch: epoch of the set that is known so far.
            fences: give the set a new epoch also when it is unchanged.

        Returns:
            The stored set, or None: the request was refused and nothing was stored by it.

        Raises:
            RocketPyError: no answer, or an error; the controller may have stored the set.
        """
        header = AlterSyncStateSetRequestHeader(
            broker_name=self._name,
            master_broker_id=broker_id,
            master_epoch=epoch,
            rocketpy_fence=fences or None,
        )
        body = SyncStateSet(set(members), set_epoch).encode()
        response = await self._call(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            header.to_ext(),
            body,
            allowed=_SET_REFUSALS,
        )
        if response.code != ResponseCode.SUCCESS:
            _log.info("sync-state set refused", code=response.code, remark=response.remark)
            return None
        stored = AlterSyncStateSetResponseHeader.from_ext(response.ext_fields)
        master = MasterInfo(broker_id, "", epoch)
        return GroupInfo(master, members, stored.new_sync_state_set_epoch)

    async def replica_info(self) -> GroupInfo | None:
        """Ask for the master and the set (1004); None for an unknown group."""
        header = GetReplicaInfoRequestHeader(broker_name=self._name)
        response = await self._call(
            RequestCode.CONTROLLER_GET_REPLICA_INFO,
            header.to_ext(),
            allowed=(ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,),
        )
        if response.code != ResponseCode.SUCCESS:
            return None
        found = GetReplicaInfoResponseHeader.from_ext(response.ext_fields)
        return _group(found, response.body)

    async def replica_ids(self) -> frozenset[int]:
        """Return the ids of all replicas of the group that the controller knows (1006)."""
        body = fastjson.dumps([self._name])
        response = await self._call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, body)
        table = BrokerReplicasInfo.decode(response.body).replicas_info_table
        found = table.get(self._name, ReplicasInfo())
        replicas = (*found.in_sync_replicas, *found.not_in_sync_replicas)
        return frozenset(each.broker_id for each in replicas)

    # -- calls of all controllers ------------------------------------------------------------

    async def heartbeat(self, broker_id: int, status: ReplicaStatus) -> HeartbeatAnswer:
        """Send a heartbeat (904) to all controllers, and return the answer of the leader.

        Controllers that do not answer are not waited for then: the next heartbeat would be late.
        """
        header = ControllerHeartbeatRequestHeader(
            cluster_name=self._cluster,
            broker_addr=status.address,
            broker_name=self._name,
            broker_id=broker_id,
            epoch=status.epoch,
            max_offset=status.end,
            confirm_offset=status.confirmed,
            heartbeat_timeout_mills=status.timeout_ms,
            election_priority=status.priority,
            rocketpy_needs_all=status.needs_all,
            rocketpy_state=self._known.state_id or None,
            rocketpy_set_epoch=status.set_epoch,
            rocketpy_master_epoch=status.leads or None,
            rocketpy_members=";".join(map(str, sorted(status.members))) or None,
            rocketpy_known_epoch=status.known_epoch or None,
        )
        fields = header.to_ext()
        calls = [asyncio.ensure_future(self._beat(each, fields)) for each in self._addresses]
        answers: dict[str, HeartbeatAnswer] = {}
        try:
            for call in asyncio.as_completed(calls):
                if (found := await call) is None:
                    continue
                state_id, answer = found
                # Apache's controllers have neither state id nor answer.
                if self._known.state_id or (not state_id and answer.info is None):
                    return answer
                if answer.info is not None:
                    answers.setdefault(state_id, answer)
        finally:
            for each in calls:
                each.cancel()
        if len(answers) != 1:
            # Only a replica of an earlier version has no stored state: it must follow none of them.
            return HeartbeatAnswer()
        ((state_id, answer),) = answers.items()
        self._known.remember(state_id)
        return answer

    async def _beat(
        self, address: str, fields: Mapping[str, str]
    ) -> tuple[str, HeartbeatAnswer] | None:
        """Return state and answer of a controller; None: it does not lead, or does not answer."""
        request = make_request(RequestCode.BROKER_HEARTBEAT, dict(fields))
        try:
            response = await self._client.invoke(address, request, _CALL_MS)
        except RocketPyError as error:
            _log.debug("heartbeat failed", controller=address, error=str(error))
            return None
        state_id = response.ext_fields.get(STATE_FIELD, "")
        if response.code != ResponseCode.SUCCESS or self._known.is_other(address, state_id):
            return None
        found = ControllerHeartbeatResponseHeader.from_ext(response.ext_fields)
        if found.master_epoch is None:
            return state_id, HeartbeatAnswer()
        answer = HeartbeatAnswer(
            _group(found, response.body), found.lease_ms, bool(found.rocketpy_hand_over)
        )
        return state_id, answer

    # -- the leader --------------------------------------------------------------------------

    async def _call(
        self,
        code: int,
        fields: dict[str, str],
        body: bytes = b"",
        *,
        allowed: Collection[int] = (),
    ) -> RemotingCommand:
        """Call the leader; the search is repeated once if it does not lead any more."""
        for is_last in (False, True):
            leader = self._leader or await self._find_leader()
            request = make_request(code, dict(fields), body)
            try:
                response = await self._client.invoke(leader, request, _CALL_MS)
            except RocketPyError:
                self._leader = ""
                # Not repeated: the controller may have applied the request.
                raise
            if response.code == ResponseCode.CONTROLLER_NOT_LEADER:
                self._leader = ""
                if not is_last:
                    continue
            elif self._known.is_other(leader, state_id := response.ext_fields.get(STATE_FIELD, "")):
                # Another controller has this address now.
                self._leader = ""
                raise ConfigError(f"{leader} has another state", key="controllerAddr")
            elif response.code in {ResponseCode.SUCCESS, *allowed}:
                if code in _JOINING and response.code == ResponseCode.SUCCESS:
                    self._known.remember(state_id)
                return response
            raise BrokerError.from_code(response.code, response.remark)
        raise AssertionError("unreachable")

    async def _find_leader(self) -> str:
        """Ask all controllers, and return the address of the one that leads.

        The first answer of a leader ends the search, because other controllers may be stopped. A
        replica that belongs to no state yet waits for all of them: see `KnownController`.
        """
        calls = [asyncio.ensure_future(self._metadata(each)) for each in self._addresses]
        failed: dict[str, RocketPyError] = {}
        found: dict[str, GetMetaDataResponseHeader] = {}
        try:
            for call in asyncio.as_completed(calls):
                address, answer = await call
                if isinstance(answer, RocketPyError):
                    failed[address] = answer
                    continue
                found[address] = answer
                if self._known.state_id and answer.is_leader:
                    with contextlib.suppress(ConfigError):  # of another state
                        self._known.followed({address: _mark(answer)}, ())
                        self._leader = address
                        return address
        finally:
            for each in calls:
                each.cancel()
        followed = self._known.followed({each: _mark(found[each]) for each in found}, failed)
        for address, answer in found.items():
            leader = address if answer.is_leader else answer.controller_leader_address
            # etcd names a stopped leader until its lease has ended.
            if leader and address in followed and leader not in failed:
                self._leader = leader
                return leader
        for error in failed.values():
            raise error
        raise BrokerError.from_code(ResponseCode.CONTROLLER_NOT_LEADER, "no controller leads")

    async def _metadata(
        self, address: str
    ) -> tuple[str, GetMetaDataResponseHeader | RocketPyError]:
        """Ask a controller for the leader (1005); return its address with the answer or error."""
        request = make_request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        try:
            response = await self._client.invoke(address, request, _CALL_MS)
            if response.code != ResponseCode.SUCCESS:
                return address, BrokerError.from_code(response.code, response.remark)
            return address, GetMetaDataResponseHeader.from_ext(response.ext_fields)
        except RocketPyError as error:
            return address, error


def _mark(header: GetMetaDataResponseHeader) -> ControllerMark:
    return ControllerMark(header.rocketpy_state or "", bool(header.rocketpy_is_shared))


def _group(
    header: ElectMasterResponseHeader
    | GetReplicaInfoResponseHeader
    | ControllerHeartbeatResponseHeader,
    body: bytes,
) -> GroupInfo:
    master = MasterInfo(
        header.master_broker_id, header.master_address or "", header.master_epoch or 0
    )
    found = SyncStateSet.decode(body) if body else SyncStateSet()
    set_epoch = getattr(header, "sync_state_set_epoch", None)
    if set_epoch is None:
        set_epoch = found.sync_state_set_epoch
    members = frozenset(found.sync_state_set) if found.sync_state_set else None
    return GroupInfo(master, members, set_epoch)
