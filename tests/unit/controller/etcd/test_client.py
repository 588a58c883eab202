"""The client of etcd's gateway: which member answers, and what is no answer."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from rocketpy.controller.etcd.client import EtcdError, EtcdGateway, decoded, encoded
from rocketpy.errors import ConfigError


class Gateway:
    """HTTP server with one answer."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b'{"ID":"7"}'
        self.requests: list[tuple[str, object]] = []
        self.connections = 0
        self.requests_each = 1_000
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        left = self.requests_each
        while left and (line := await reader.readline()):
            left -= 1
            length = 0
            while (header := await reader.readline()) != b"\r\n":
                name, _, text = header.partition(b":")
                if name.lower() == b"content-length":
                    length = int(text)
            body = json.loads(await reader.readexactly(length))
            self.requests.append((line.decode().split()[1], body))
            head = f"HTTP/1.1 {self.status} x\r\nContent-Length: {len(self.body)}\r\n\r\n"
            writer.write(head.encode() + self.body)
        writer.close()


@pytest.fixture
async def gateway() -> AsyncIterator[tuple[Gateway, EtcdGateway]]:
    server = Gateway()
    client = EtcdGateway(["http://127.0.0.1:1/", await server.start()], 60_000)
    yield server, client
    await client.close()
    server.stop()


async def test_member_without_answer_is_skipped(
    gateway: tuple[Gateway, EtcdGateway],
) -> None:
    server, client = gateway
    for _ in range(3):
        assert await client.call("lease/grant", {"TTL": "5"}) == {"ID": "7"}
    assert server.requests == [("/v3/lease/grant", {"TTL": "5"})] * 3
    assert server.connections == 1


async def test_kept_connection_that_has_closed_is_replaced() -> None:
    server = Gateway()
    server.requests_each = 1
    client = EtcdGateway([await server.start()], 60_000)
    for _ in range(3):
        assert await client.call("lease/grant", {"TTL": "5"}) == {"ID": "7"}
    assert server.connections == 3
    await client.close()
    server.stop()


async def test_stream_is_read_line_by_line(gateway: tuple[Gateway, EtcdGateway]) -> None:
    server, client = gateway
    server.body = b'{"result":{"TTL":"5"}}\n{"result":{}}'
    assert await client.call("lease/keepalive", {}) == {"result": {"TTL": "5"}}


@pytest.mark.parametrize(
    ("status", "body"),
    [(503, b"{}"), (200, b"<html>"), (200, b"[]"), (200, b'{"error":"no leader"}')],
)
async def test_answer_with_an_error_is_refused(
    gateway: tuple[Gateway, EtcdGateway], status: int, body: bytes
) -> None:
    server, client = gateway
    server.status, server.body = status, body
    with pytest.raises(EtcdError, match="etcd does not answer kv/range"):
        await client.call("kv/range", {})


@pytest.mark.parametrize("text", ["https://e:2379", "http://e", "http://e:x", "http://e:1/path"])
def test_endpoint_that_is_not_http_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="etcdEndpoints"):
        EtcdGateway([text], 1)


def test_values_are_base64() -> None:
    assert decoded(encoded("a/b")) == b"a/b"
    with pytest.raises(EtcdError):
        decoded("?")
