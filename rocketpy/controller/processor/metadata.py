"""Metadata of the controller (1005).

Source: ControllerRequestProcessor (5.4.0)
"""

from collections.abc import Callable

from rocketpy.controller.config import ControllerConfig, Peer
from rocketpy.proto.headers.controller import GetMetaDataResponseHeader
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.config.live_config import LiveConfig


class MetadataProcessor:
    """Processor of requests about the controller itself.

    Args:
        settings: the current settings.
        itself: returns id and address of this controller.
        leader: returns those of the leader; None without one.
        state_id: returns the id of the state; empty: not known.
        is_shared: whether several controllers have the state.
    """

    def __init__(
        self,
        settings: LiveConfig[ControllerConfig],
        itself: Callable[[], Peer],
        leader: Callable[[], Peer | None],
        state_id: Callable[[], str],
        *,
        is_shared: bool,
    ) -> None:
        self._settings = settings
        self._itself = itself
        self._leader = leader
        self._state_id = state_id
        self._is_shared = is_shared

    def metadata(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """CONTROLLER_GET_METADATA_INFO (1005): the leader, and all controllers."""
        itself, leader = self._itself(), self._leader()
        peers = self._settings.current.peers or [itself]
        header = GetMetaDataResponseHeader(
            group=self._settings.current.controller_dleger_group,
            controller_leader_id=None if leader is None else leader.id,
            controller_leader_address=None if leader is None else leader.address,
            is_leader=leader == itself,
            peers="".join(f"{each.id}:{each.address};" for each in peers),
            rocketpy_state=self._state_id() or None,
            rocketpy_is_shared=self._is_shared,
        )
        return make_response(request, ext_fields=header.to_ext())
