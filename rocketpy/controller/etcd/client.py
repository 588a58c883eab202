"""Requests to etcd through its JSON gateway, with the standard library alone.

A request is a POST with a JSON object; keys and values are Base64. The client asks one member at a
time, and another one when it does not answer. It runs on another thread, one request at a time.

Source: etcd 3.4 to 3.6, api/etcdserverpb/rpc.proto (KV, Lease)
"""

import asyncio
import base64
import http.client
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit

import orjson

from rocketpy.errors import ConfigError, ResourceShortError

Json: TypeAlias = dict[str, Any]

_OK: Final = 200
_MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024


class EtcdError(ResourceShortError):
    """No member of etcd has answered; whether it executed the request is unknown."""


class Etcd(Protocol):
    """Interface of etcd: one call for each method of its gRPC services."""

    async def call(self, method: str, request: Mapping[str, Any]) -> Json:
        """Call a method such as `kv/txn`.

        Raises:
            EtcdError: there is no answer, or it is an error.
        """
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


class EtcdGateway:
    """Client of the JSON gateway.

    Args:
        endpoints: `http://host:port` of each member.
        timeout_ms: of one attempt.
    """

    def __init__(self, endpoints: Sequence[str], timeout_ms: int) -> None:
        self._addresses = [_address(each) for each in endpoints]
        self._timeout_s = timeout_ms / 1_000
        self._connection: http.client.HTTPConnection | None = None
        self._mutex = threading.Lock()

    async def call(self, method: str, request: Mapping[str, Any]) -> Json:
        """See `Etcd.call`."""
        return await asyncio.to_thread(self._call, method, orjson.dumps(request))

    async def close(self) -> None:
        """See `Etcd.close`."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._mutex:
            self._drop()

    def _call(self, method: str, body: bytes) -> Json:
        reasons = []
        with self._mutex:
            # A kept connection may have closed meanwhile, so its member gets another attempt. A
            # request that is executed twice does no harm: a transaction of a leader puts the same
            # values, and a campaign that succeeded unseen is given up.
            for _ in range(len(self._addresses) + (self._connection is not None)):
                is_kept = self._connection is not None
                try:
                    return self._ask(f"/v3/{method}", body)
                except (OSError, http.client.HTTPException, EtcdError) as error:
                    host, port = self._addresses[0]
                    reasons.append(f"{host}:{port}: {error}")
                    self._drop()
                    if not is_kept or isinstance(error, EtcdError | TimeoutError):
                        self._addresses.append(self._addresses.pop(0))
        raise EtcdError(f"etcd does not answer {method}: {'; '.join(reasons)}")

    def _ask(self, path: str, body: bytes) -> Json:
        if self._connection is None:
            host, port = self._addresses[0]
            self._connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        headers = {"Content-Type": "application/json"}
        self._connection.request("POST", path, body, headers)
        response = self._connection.getresponse()
        data = response.read(_MAX_RESPONSE_BYTES)
        if response.status != _OK:
            raise EtcdError(f"status {response.status}: {data[:200].decode(errors='replace')}")
        try:
            # A stream, as of keep-alives, has one object a line.
            found = orjson.loads(data.partition(b"\n")[0])
        except orjson.JSONDecodeError as error:
            raise EtcdError(f"the answer is not JSON: {error}") from error
        if not isinstance(found, dict) or "error" in found:
            raise EtcdError(f"error: {str(found)[:200]}")
        return found

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def encoded(data: str | bytes) -> str:
    """Return a key or value as the gateway takes it."""
    return base64.b64encode(data.encode() if isinstance(data, str) else data).decode()


def decoded(text: str) -> bytes:
    """Return a key or value that the gateway has sent.

    Raises:
        EtcdError: it is not Base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:
        raise EtcdError(f"not Base64: {text[:100]!r}") from error


def _address(endpoint: str) -> tuple[str, int]:
    """Parse `http://host:port`.

    Raises:
        ConfigError: it is something else.
    """
    parts = urlsplit(endpoint if "://" in endpoint else f"http://{endpoint}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme != "http" or not parts.hostname or port is None or parts.path.strip("/"):
        raise ConfigError(
            f"{endpoint!r} is not http://host:port (etcd with TLS or accounts is not supported)",
            key="etcdEndpoints",
        )
    return parts.hostname, port
