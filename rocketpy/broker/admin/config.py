"""Configuration: return all settings, change the live ones.

Apache refuses a list of keys and accepts all others, including paths. Here only keys that are
declared live can be changed over the network; any other key is refused by name.

Source: `AdminBrokerProcessor` (updateBrokerConfig, getBrokerConfig) (5.4.0).
"""

from typing import Final

import structlog

from rocketpy.broker.admin.response import ok, refuse
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.errors import ConfigError
from rocketpy.proto.headers.admin import GetBrokerConfigResponseHeader
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.proto.wire.fastjson import dumps
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor
from rocketpy.runtime.config.properties_file import read_properties

_log = structlog.get_logger(__name__)

MAX_BODY_BYTES: Final = 64 * 1024


class ConfigAdmin:
    """Admin requests about the configuration."""

    def __init__(self, configs: LiveBrokerConfig) -> None:
        self._configs = configs

    def processors(self) -> dict[int, Processor]:
        """Return the processors by request code."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update,
            RequestCode.GET_BROKER_CONFIG: self.get,
        }

    def update(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Change settings (25): all of them, or none."""
        configs = self._configs
        if len(request.body) > MAX_BODY_BYTES:
            return refuse(request, ResponseCode.INVALID_PARAMETER, "the configuration is too long")
        try:
            changes = read_properties(request.body)
        except ConfigError:
            return refuse(request, ResponseCode.SYSTEM_ERROR, "string2Properties error")
        refused = sorted(set(changes) - configs.live_keys)
        if refused:
            _log.warning("configuration update rejected", keys=refused, peer=channel.remote_address)
            remark = f"Can not update config: {', '.join(refused)[:1024]}"
            return refuse(request, ResponseCode.NO_PERMISSION, remark)
        try:
            configs.update(changes)
        except ConfigError as error:
            return refuse(request, ResponseCode.INVALID_PARAMETER, str(error))
        _log.info("configuration changed", changes=changes, peer=channel.remote_address)
        return ok(request)

    def get(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return all effective settings as properties (26); secrets are hidden."""
        configs = self._configs
        version = dumps(configs.data_version).decode()
        body = configs.as_properties().encode("utf-8")
        return ok(request, body, GetBrokerConfigResponseHeader(version=version))
