"""Metadata and settings of the controller: 1005, 1009, 1010.

Only keys marked as live change, with typed and bounded values, as in the name server.

Source: ControllerRequestProcessor (5.4.0)
"""

from collections.abc import Callable

import structlog

from rocketpy.controller.config import ControllerConfig, Peer
from rocketpy.errors import ConfigError
from rocketpy.proto.headers.controller import GetMetaDataResponseHeader
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.config.live_config import LiveConfig
from rocketpy.runtime.config.properties_file import read_properties

_logger = structlog.get_logger(__name__)


class MetadataProcessor:
    """Processor of requests about the controller itself.

    Args:
        settings: the current settings.
        itself: returns id and address of this controller.
        leader: returns those of the leader; None without one.
    """

    def __init__(
        self,
        settings: LiveConfig[ControllerConfig],
        itself: Callable[[], Peer],
        leader: Callable[[], Peer | None],
    ) -> None:
        self._settings = settings
        self._itself = itself
        self._leader = leader

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
        )
        return make_response(request, ext_fields=header.to_ext())

    def update_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_CONTROLLER_CONFIG (1009): all of the keys, or none."""
        try:
            changes = read_properties(request.body)
            for key in changes:
                if key not in self._settings.live_keys:
                    remark = f"{key[:100]} cannot be changed while running"
                    _logger.warning("update rejected", peer=channel.remote_address, reason=remark)
                    return make_response(request, ResponseCode.NO_PERMISSION, remark)
            self._settings.update(changes)
        except ConfigError as error:
            return make_response(request, ResponseCode.INVALID_PARAMETER, str(error))
        _logger.info("settings changed", peer=channel.remote_address, changes=changes)
        return make_response(request)

    def get_config(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_CONTROLLER_CONFIG (1010)."""
        return make_response(request, body=self._settings.as_properties().encode())
