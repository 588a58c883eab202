"""Parts of a controller that its processors share."""

from dataclasses import dataclass, field
from typing import Final

import structlog

from rocketpy.controller.config import ControllerConfig
from rocketpy.controller.election_service import ElectionService
from rocketpy.controller.elections import Elections
from rocketpy.controller.group_store import GroupStore
from rocketpy.controller.liveness import Liveness, ReplicaKey
from rocketpy.controller.replica_groups import ReplicaGroup, ReplicaGroups
from rocketpy.controller.role_notifier import RoleNotifier
from rocketpy.controller.rules import Verdict
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.live_config import LiveConfig

_logger = structlog.get_logger(__name__)

_EXPECTED: Final = frozenset(
    {ResponseCode.CONTROLLER_MASTER_STILL_EXIST, ResponseCode.CONTROLLER_BROKER_ID_INVALID}
)
"""Refusals of an ordinary start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerContext:
    """Parts of a controller.

    Attributes:
        settings: the current settings.
        store: the groups and their log.
        liveness: the heartbeats.
        decisions: when to elect.
        elections: elects without being asked.
        notifier: notifies brokers of elections.
        clock: the time.
        hand_overs: names of the groups whose masters are asked to hand over now.
    """

    settings: LiveConfig[ControllerConfig]
    store: GroupStore
    liveness: Liveness
    decisions: Elections
    elections: ElectionService
    notifier: RoleNotifier
    clock: Clock
    hand_overs: set[str] = field(default_factory=set)

    @property
    def groups(self) -> ReplicaGroups:
        """The stored state."""
        return self.store.groups

    def is_alive(self, name: str, replica_id: int) -> bool:
        """Return whether a replica sends heartbeats."""
        key = ReplicaKey(name, replica_id)
        return self.liveness.is_alive(key, self.clock.monotonic_ms())

    def may_be_alive(self, name: str, replica_id: int) -> bool:
        """Return whether a replica sends heartbeats, or may do so: a new leader has heard none."""
        is_heard = self.liveness.get(ReplicaKey(name, replica_id)) is not None
        is_new = self.decisions.is_start(self.clock.monotonic_ms())
        return self.is_alive(name, replica_id) or (is_new and not is_heard)

    def has_alive_master(self, group: ReplicaGroup) -> bool:
        """Return whether a group has a master that sends heartbeats."""
        return group.master_id is not None and self.is_alive(group.name, group.master_id)

    def is_active(self, name: str, replica_id: int) -> bool:
        """Return whether a replica is alive, or may acknowledge messages by its lease."""
        group = self.groups.get(name)
        now_ms = self.clock.monotonic_ms()
        holds_lease = group is not None and self.decisions.may_hold_lease(group, replica_id, now_ms)
        return holds_lease or self.is_alive(name, replica_id)

    def refuse(
        self, channel: Channel, request: RemotingCommand, verdict: Verdict
    ) -> RemotingCommand:
        """Return the response of a refusal, and log it."""
        if verdict.code not in _EXPECTED:
            _logger.warning(
                "request refused",
                peer=channel.remote_address,
                code=int(request.code),
                outcome=verdict.code.name,
                remark=verdict.remark,
            )
        return make_response(request, verdict.code, verdict.remark)
