"""Ids and addresses of replicas: 1003, 1011, 1012, 1013.

Source: ControllerRequestProcessor (5.4.0)
"""

from typing import Final

import structlog

from rocketpy.controller import rules
from rocketpy.controller.context import ControllerContext
from rocketpy.controller.liveness import ReplicaKey
from rocketpy.controller.replica_groups import ReplicaGroup
from rocketpy.errors import HeaderFieldError
from rocketpy.proto.bodies.controller import SyncStateSet
from rocketpy.proto.headers.controller import (
    ApplyBrokerIdRequestHeader,
    ApplyBrokerIdResponseHeader,
    CleanControllerBrokerDataRequestHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel

_logger = structlog.get_logger(__name__)

_MAX_CLEANED: Final = rules.MAX_REPLICAS
_MAX_ID_DIGITS: Final = 10


class RegistrationProcessor:
    """Processor of requests about replicas.

    Args:
        context: the parts of the controller.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def next_id(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_GET_NEXT_BROKER_ID (1012)."""
        header = GetNextBrokerIdRequestHeader.from_ext(request.ext_fields)
        group = self._context.groups.get(header.broker_name)
        response = GetNextBrokerIdResponseHeader(
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            next_broker_id=rules.next_id(group),
        )
        return make_response(request, ext_fields=response.to_ext())

    async def apply_id(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_APPLY_BROKER_ID (1013)."""
        header = ApplyBrokerIdRequestHeader.from_ext(request.ext_fields)
        context = self._context
        verdict = await context.store.change(
            lambda: rules.apply_id(
                context.groups,
                header.cluster_name,
                header.broker_name,
                header.applied_broker_id,
                header.register_check_code,
                context.settings.current.max_broker_groups,
            )
        )
        if not verdict.is_accepted:
            return context.refuse(channel, request, verdict)
        response = ApplyBrokerIdResponseHeader(
            cluster_name=header.cluster_name, broker_name=header.broker_name
        )
        return make_response(request, ext_fields=response.to_ext())

    async def register(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_REGISTER_BROKER (1003): a replica has started."""
        header = RegisterBrokerToControllerRequestHeader.from_ext(request.ext_fields)
        context, name = self._context, header.broker_name
        verdict = await context.store.change(
            lambda: rules.register(
                context.groups.get(name),
                header.cluster_name,
                name,
                header.broker_id,
                header.broker_address,
                lambda number: context.may_be_alive(name, number),
            )
        )
        group = context.groups.get(name)
        if not verdict.is_accepted or group is None:
            return context.refuse(channel, request, verdict)
        # Heartbeats of the previous process say nothing about this one.
        context.liveness.forget(ReplicaKey(name, header.broker_id))
        _logger.info(
            "replica registered", broker=name, id=header.broker_id, address=header.broker_address
        )
        context.elections.suspect([name])
        body = SyncStateSet(set(group.members), group.set_epoch).encode()
        return make_response(request, ext_fields=self._registered(group).to_ext(), body=body)

    def _registered(self, group: ReplicaGroup) -> RegisterBrokerToControllerResponseHeader:
        has_master = self._context.has_alive_master(group)
        return RegisterBrokerToControllerResponseHeader(
            cluster_name=group.cluster,
            broker_name=group.name,
            master_broker_id=group.master_id if has_master else None,
            master_address=group.master_address if has_master else None,
            master_epoch=group.master_epoch if has_master else 0,
            sync_state_set_epoch=group.set_epoch if has_master else 0,
        )

    async def clean(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CLEAN_BROKER_DATA (1011): remove replicas that will not return."""
        header = CleanControllerBrokerDataRequestHeader.from_ext(request.ext_fields)
        context, name = self._context, header.broker_name
        ids = _ids(header.broker_controller_ids_to_clean or "")
        verdict = await context.store.change(
            lambda: rules.clean(
                context.groups.get(name),
                ids,
                lambda number: context.is_active(name, number),
                living=header.clean_living_broker,
            )
        )
        if not verdict.is_accepted:
            return context.refuse(channel, request, verdict)
        _logger.warning("replicas removed", broker=name, ids=ids, peer=channel.remote_address)
        return make_response(request)


def _ids(text: str) -> list[int]:
    """Parse ids with semicolons in between.

    Raises:
        HeaderFieldError: a part is not a number, or there are too many.
    """
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if len(parts) > _MAX_CLEANED:
        raise HeaderFieldError("brokerControllerIdsToClean", "has too many ids")
    if not all(part.isdecimal() and len(part) <= _MAX_ID_DIGITS for part in parts):
        raise HeaderFieldError("brokerControllerIdsToClean", "is not a list of ids such as 1;2")
    return [int(part) for part in parts]
