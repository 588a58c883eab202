"""Processor of heartbeats of brokers (904), with an answer for those of RocketPy.

Source: ControllerRequestProcessor.handleBrokerHeartbeat (5.4.0); the answer is ours.
"""

import structlog

from rocketpy.controller.context import ControllerContext
from rocketpy.controller.liveness import LEASE_MS, Heartbeat, ReplicaKey, bounded_timeout_ms
from rocketpy.controller.replica_groups import ReplicaGroup
from rocketpy.controller.rules import Standing
from rocketpy.proto.bodies.controller import SyncStateSet
from rocketpy.proto.headers.controller import (
    ControllerHeartbeatRequestHeader,
    ControllerHeartbeatResponseHeader,
)
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel

_logger = structlog.get_logger(__name__)

_LAST_PRIORITY = (1 << 31) - 1
_MOST_MEMBERS_CHARS = 1_024


class HeartbeatProcessor:
    """Processor of heartbeats.

    Args:
        context: the parts of the controller.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context

    def heartbeat(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """BROKER_HEARTBEAT (904); those of unknown replicas have no effect.

        A broker sends them to all controllers, and before it is registered as well.
        """
        header = ControllerHeartbeatRequestHeader.from_ext(request.ext_fields)
        context = self._context
        group = context.groups.get(header.broker_name)
        replica = None if group is None else group.replicas.get(header.broker_id or 0)
        now_ms = context.clock.monotonic_ms()
        beat = _heartbeat(header, channel, now_ms)
        is_ours = header.rocketpy_state in {None, context.store.state_id}
        is_known = replica is not None and replica.address == header.broker_addr
        if group is not None and is_ours and not is_known:
            # Registered after the backup that this state was restored from.
            context.liveness.take_stranger(group.name, beat.standing, beat.deadline_ms)
        if group is None or replica is None or header.broker_id is None:
            return make_response(request)
        if not is_ours:
            _logger.warning(
                "heartbeat ignored, its broker belongs to another controller's state: "
                "check controllerAddr",
                broker=group.name,
                id=header.broker_id,
                address=header.broker_addr[:100],
            )
            return make_response(request)
        if replica.address != header.broker_addr:
            # A broker registers its address before its first heartbeat, so this is another one.
            _logger.warning(
                "heartbeat ignored, another process has this broker id: check brokerIdentity",
                broker=group.name,
                id=header.broker_id,
                address=header.broker_addr[:100],
                registered=replica.address,
            )
            return make_response(request)
        key = ReplicaKey(group.name, header.broker_id)
        was_alive = context.liveness.is_alive(key, now_ms)
        context.liveness.take(key, beat)
        if not was_alive:
            _logger.info("replica alive", broker=group.name, id=key.replica_id)
        is_outdated = context.decisions.is_outdated(group, now_ms)
        if is_outdated or not context.has_alive_master(group):
            context.elections.suspect([group.name])
        if key.replica_id == group.master_id and header.rocketpy_needs_all is False:
            context.liveness.grant_lease(key, now_ms)
        return self._answer(request, group, key.replica_id)

    def _answer(
        self, request: RemotingCommand, group: ReplicaGroup, replica_id: int
    ) -> RemotingCommand:
        is_master = replica_id == group.master_id
        header = ControllerHeartbeatResponseHeader(
            lease_ms=LEASE_MS if is_master else None,
            master_broker_id=group.master_id,
            master_address=group.master_address,
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.set_epoch,
            rocketpy_hand_over=True
            if is_master and group.name in self._context.hand_overs
            else None,
        )
        body = SyncStateSet(set(group.members), group.set_epoch).encode()
        return make_response(request, ext_fields=header.to_ext(), body=body)


def _heartbeat(
    header: ControllerHeartbeatRequestHeader, channel: Channel, now_ms: int
) -> Heartbeat:
    priority = header.election_priority
    return Heartbeat(
        received_ms=now_ms,
        timeout_ms=bounded_timeout_ms(header.heartbeat_timeout_mills),
        standing=Standing(
            header.epoch or 0,
            header.max_offset or 0,
            _LAST_PRIORITY if priority is None else priority,
            set_epoch=header.rocketpy_set_epoch or 0,
            leads=header.rocketpy_master_epoch or 0,
            members=_members(header.rocketpy_members or ""),
            known_epoch=header.rocketpy_known_epoch or 0,
        ),
        confirm_offset=header.confirm_offset or 0,
        needs_all=header.rocketpy_needs_all,
        connection=channel,
    )


def _members(text: str) -> frozenset[int]:
    """Parse ids with semicolons in between; another text becomes -1, the id of no replica."""
    parts = text[:_MOST_MEMBERS_CHARS].split(";") if text else []
    return frozenset(int(each) if each.isdecimal() else -1 for each in parts)
