"""Master and sync-state set of a group: 1001, 1002, 1004, 1006.

Source: ControllerRequestProcessor (5.4.0)
"""

from typing import Final

import structlog

from rocketpy.controller import rules
from rocketpy.controller.context import ControllerContext
from rocketpy.controller.elections import ElectionRequest
from rocketpy.controller.liveness import ReplicaKey
from rocketpy.controller.replica_groups import ReplicaGroup
from rocketpy.controller.rules import Verdict, refused
from rocketpy.proto.bodies.controller import (
    BrokerReplicasInfo,
    ElectMasterResponseBody,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
    decode_broker_names,
)
from rocketpy.proto.bodies.route import BrokerMemberGroup
from rocketpy.proto.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
)
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel

_logger = structlog.get_logger(__name__)

_UNKNOWN_GROUP: Final = "the broker group is unknown here"


class ElectionProcessor:
    """Processor of requests about masters and sets.

    Args:
        context: the parts of the controller.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    async def alter_set(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_ALTER_SYNC_STATE_SET (1001)."""
        header = AlterSyncStateSetRequestHeader.from_ext(request.ext_fields)
        wanted = SyncStateSet.decode_request(request.body)
        context, name = self._context, header.broker_name
        verdict = await context.store.change(
            lambda: rules.alter_set(
                context.groups.get(name),
                header.master_broker_id,
                header.master_epoch,
                wanted.sync_state_set,
                wanted.sync_state_set_epoch,
                lambda number: context.is_alive(name, number),
                fences=bool(header.rocketpy_fence),
            )
        )
        if not verdict.is_accepted:
            return context.refuse(channel, request, verdict)
        # Of the request, not of the present state: a later change may be applied already.
        altered = SyncStateSet(wanted.sync_state_set, wanted.sync_state_set_epoch + 1)
        response = AlterSyncStateSetResponseHeader(
            new_sync_state_set_epoch=altered.sync_state_set_epoch
        )
        return make_response(request, ext_fields=response.to_ext(), body=altered.encode())

    async def elect(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_ELECT_MASTER (1002), of a broker or an operator."""
        header = ElectMasterRequestHeader.from_ext(request.ext_fields)
        context, name = self._context, header.broker_name
        asker = header.broker_id if header.broker_id > 0 else None
        asked = ElectionRequest(
            asker=asker,
            designated=asker if header.designate_elect else None,
            hand_over=bool(header.rocketpy_hand_over),
            epoch=header.rocketpy_epoch,
        )
        if header.designate_elect:
            asked = await self._with_hand_over(name, asked)
        verdict = await context.store.change(lambda: self._answer(name, asked))
        group = context.groups.get(name)
        is_told = verdict.code is ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        if group is None or not (verdict.is_accepted or is_told):
            return context.refuse(channel, request, verdict)
        return make_response(
            request,
            verdict.code,
            verdict.remark or None,
            ext_fields=ElectMasterResponseHeader(
                master_broker_id=group.master_id,
                master_address=group.master_address,
                master_epoch=group.master_epoch,
                sync_state_set_epoch=group.set_epoch,
            ).to_ext(),
            body=_elected(group).encode(),
        )

    def _answer(self, name: str, asked: ElectionRequest) -> Verdict:
        context = self._context
        group = context.groups.get(name)
        if group is None:
            return refused(ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, _UNKNOWN_GROUP)
        verdict = context.decisions.answer(group, asked, context.clock.monotonic_ms())
        if verdict.events and asked.hand_over:
            context.liveness.end_lease(name)
        return verdict

    async def _with_hand_over(self, name: str, asked: ElectionRequest) -> ElectionRequest:
        """Ask an alive master of RocketPy to stop acknowledging before another one is elected."""
        context, designated = self._context, asked.designated
        group = context.groups.get(name)
        if group is None or group.master_id is None or designated in {None, group.master_id}:
            return asked
        last = context.liveness.get(ReplicaKey(name, group.master_id))
        is_ours = last is not None and last.needs_all is not None
        is_useful = designated in group.members and context.is_alive(name, designated or 0)
        if not (is_ours and is_useful and context.has_alive_master(group)):
            return asked
        # The master asks by a heartbeat whether the request comes from this controller.
        context.hand_overs.add(name)
        try:
            if not await context.notifier.ask_hand_over(group):
                return asked
        finally:
            context.hand_overs.discard(name)
        return ElectionRequest(
            asker=group.master_id,
            designated=designated,
            hand_over=True,
            epoch=group.master_epoch,
        )

    def replica_info(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_GET_REPLICA_INFO (1004)."""
        header = GetReplicaInfoRequestHeader.from_ext(request.ext_fields)
        group = self._context.groups.get(header.broker_name)
        if group is None:
            code = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
            return make_response(request, code, _UNKNOWN_GROUP)
        response = GetReplicaInfoResponseHeader(
            master_broker_id=group.master_id,
            master_address=group.master_address,
            master_epoch=group.master_epoch,
        )
        body = SyncStateSet(set(group.members), group.set_epoch).encode()
        return make_response(request, ext_fields=response.to_ext(), body=body)

    def sync_state_data(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_GET_SYNC_STATE_DATA (1006): replicas of groups, and which are alive."""
        names = decode_broker_names(request.body)
        groups = filter(None, map(self._context.groups.get, dict.fromkeys(names)))
        table = {group.name: self._info(group) for group in groups}
        return make_response(request, body=BrokerReplicasInfo(replicas_info_table=table).encode())

    def _info(self, group: ReplicaGroup) -> ReplicasInfo:
        replicas = {
            number: ReplicaIdentity(
                broker_name=group.name,
                broker_id=number,
                broker_address=replica.address,
                alive=self._context.is_alive(group.name, number),
            )
            for number, replica in sorted(group.replicas.items())
        }
        return ReplicasInfo(
            master_broker_id=group.master_id,
            master_address=group.master_address or "",
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.set_epoch,
            in_sync_replicas=[r for number, r in replicas.items() if number in group.members],
            not_in_sync_replicas=[
                r for number, r in replicas.items() if number not in group.members
            ],
        )


def _elected(group: ReplicaGroup) -> ElectMasterResponseBody:
    addresses = {number: replica.address for number, replica in group.replicas.items()}
    return ElectMasterResponseBody(
        broker_member_group=BrokerMemberGroup(
            cluster=group.cluster, broker_name=group.name, broker_addrs=addresses
        ),
        sync_state_set=set(group.members),
    )
