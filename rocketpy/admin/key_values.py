"""Operations on the key-value table of the name servers.

Source: UpdateKvConfigCommand, DeleteKvConfigCommand (5.4.0).
"""

from rocketpy.admin.servers import Servers
from rocketpy.errors import BrokerError
from rocketpy.proto.bodies.topic import KVTable
from rocketpy.proto.headers.namesrv import (
    DeleteKVConfigRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    PutKVConfigRequestHeader,
)
from rocketpy.proto.wire.codes import RequestCode, ResponseCode


async def kv_get(servers: Servers, namespace: str, key: str) -> str | None:
    """Return a value of the name servers' table (101), None when there is none."""
    header = GetKVConfigRequestHeader(namespace=namespace, key=key)
    try:
        response = await servers.ask_namesrv(RequestCode.GET_KV_CONFIG, header)
    except BrokerError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        raise
    return GetKVConfigResponseHeader.from_ext(response.ext_fields).value


async def kv_list(servers: Servers, namespace: str) -> dict[str, str]:
    """Return a namespace of the name servers' table (219), empty when there is none."""
    header = GetKVListByNamespaceRequestHeader(namespace=namespace)
    try:
        response = await servers.ask_namesrv(RequestCode.GET_KVLIST_BY_NAMESPACE, header)
    except BrokerError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return {}
        raise
    return KVTable.decode(response.body).table


async def kv_put(servers: Servers, namespace: str, key: str, value: str) -> None:
    """Set a value at every name server (100)."""
    header = PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
    await servers.tell_namesrvs(RequestCode.PUT_KV_CONFIG, header)


async def kv_delete(servers: Servers, namespace: str, key: str) -> None:
    """Forget a value at every name server (102)."""
    header = DeleteKVConfigRequestHeader(namespace=namespace, key=key)
    await servers.tell_namesrvs(RequestCode.DELETE_KV_CONFIG, header)
