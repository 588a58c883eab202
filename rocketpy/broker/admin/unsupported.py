"""Requests that a broker without controller and accounts refuses, or answers empty.

Codes that are processed neither here nor elsewhere get the server's code 3.

Source: `AdminBrokerProcessor` (getBrokerHaStatus, getBrokerEpochCache, cold-data flow control,
users and ACLs) of a 5.4.0 broker with its defaults.
"""

from typing import Final

from rocketpy.broker.admin.response import ok, refuse
from rocketpy.proto.bodies.stats import ColdDataFlowControlInfo
from rocketpy.proto.headers.admin import ResetMasterFlushOffsetHeader
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.connection.dispatch import Processor

_NO_ACCOUNTS: Final = "authentication and authorization are not configured on this broker"
_NO_CONTROLLER: Final = "this request only for controllerMode "
_NO_COLD_DATA: Final = "cold data flow control is not supported by this broker"

_AUTH_CODES: Final = (
    RequestCode.AUTH_CREATE_USER,
    RequestCode.AUTH_UPDATE_USER,
    RequestCode.AUTH_DELETE_USER,
    RequestCode.AUTH_GET_USER,
    RequestCode.AUTH_LIST_USER,
    RequestCode.AUTH_CREATE_ACL,
    RequestCode.AUTH_UPDATE_ACL,
    RequestCode.AUTH_DELETE_ACL,
    RequestCode.AUTH_GET_ACL,
    RequestCode.AUTH_LIST_ACL,
)


class UnsupportedAdmin:
    """Admin requests of features that this broker does not have."""

    def processors(self) -> dict[int, Processor]:
        """Return the processors by request code."""
        table: dict[int, Processor] = {
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_master_flush_offset,
            RequestCode.GET_BROKER_EPOCH_CACHE: _refusing(_NO_CONTROLLER),
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self.cold_data,
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _refusing(_NO_COLD_DATA),
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _refusing(_NO_COLD_DATA),
            RequestCode.SET_COMMITLOG_READ_MODE: _refusing(_NO_COLD_DATA),
        }
        table.update((code, _refusing(_NO_ACCOUNTS)) for code in _AUTH_CODES)
        return table

    def reset_master_flush_offset(
        self, _channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        """Succeed without effect (908): only slaves have such an offset."""
        ResetMasterFlushOffsetHeader.from_ext(request.ext_fields)
        return ok(request)

    def cold_data(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Return an empty flow control of cold data (2003)."""
        return ok(request, ColdDataFlowControlInfo())


def _refusing(remark: str) -> Processor:
    def processor(_channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return refuse(request, ResponseCode.SYSTEM_ERROR, remark)

    return processor
