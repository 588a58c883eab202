"""Settings of a name server or a controller over the wire (318, 319; 1009, 1010).

Only keys marked as live change, with typed and bounded values: no path, class or address is ever
taken from the network. (Apache has a list of forbidden keys instead, which has had gaps.)

Source: DefaultRequestProcessor, ControllerRequestProcessor: updateConfig, getConfig (5.4.0)
"""

from typing import Any

import structlog

from rocketpy.errors import ConfigError
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.config.live_config import LiveConfig
from rocketpy.runtime.config.properties_file import read_properties

_logger = structlog.get_logger(__name__)


class ConfigProcessor:
    """Processor of requests to show and change settings.

    Args:
        settings: the current settings.
    """

    def __init__(self, settings: LiveConfig[Any]) -> None:
        self._settings = settings

    def update(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """UPDATE_NAMESRV_CONFIG (318), UPDATE_CONTROLLER_CONFIG (1009): all keys, or none."""
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

    def get(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_NAMESRV_CONFIG (319), GET_CONTROLLER_CONFIG (1010)."""
        return make_response(request, body=self._settings.as_properties().encode())
