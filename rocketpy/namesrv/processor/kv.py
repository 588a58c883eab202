"""Named values (100, 101, 102, 219).

Source: DefaultRequestProcessor (5.4.0)
"""

from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.kv_config import KvConfig
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from rocketpy.proto.wire.codes import ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.connection.channel import Channel
from rocketpy.runtime.config.live_config import LiveConfig


class KvProcessor:
    """Processor of requests for named values.

    Args:
        kv: the values.
        settings: the current settings.
    """

    def __init__(self, kv: KvConfig, settings: LiveConfig[NamesrvConfig]) -> None:
        self._kv = kv
        self._settings = settings

    def put(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """PUT_KV_CONFIG (100)."""
        header = PutKVConfigRequestHeader.from_ext(request.ext_fields)
        limit = self._settings.current.max_kv_entries
        problem = self._kv.put(header.namespace, header.key, header.value, max_entries=limit)
        if problem is not None:
            return make_response(request, ResponseCode.SYSTEM_ERROR, problem)
        return make_response(request)

    def get(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_KV_CONFIG (101)."""
        header = GetKVConfigRequestHeader.from_ext(request.ext_fields)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            return make_response(request, ResponseCode.QUERY_NOT_FOUND, remark)
        return make_response(request, ext_fields=GetKVConfigResponseHeader(value=value).to_ext())

    def delete(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """DELETE_KV_CONFIG (102); a missing value is not an error."""
        header = DeleteKVConfigRequestHeader.from_ext(request.ext_fields)
        self._kv.delete(header.namespace, header.key)
        return make_response(request)

    def list_namespace(self, _channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """GET_KVLIST_BY_NAMESPACE (219)."""
        namespace = GetKVListByNamespaceRequestHeader.from_ext(request.ext_fields).namespace
        values = self._kv.namespace(namespace)
        if values is None:
            remark = f"No config item, Namespace: {namespace}"
            return make_response(request, ResponseCode.QUERY_NOT_FOUND, remark)
        return make_response(request, body=KVTable(table=values).encode())
