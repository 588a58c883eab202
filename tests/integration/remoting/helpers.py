"""Servers and clients on loopback."""

import asyncio
import contextlib
import random
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from rocketpy.proto.wire.command import (
    RemotingCommand,
    encode_command,
    make_request,
    make_response,
)
from rocketpy.proto.wire.frame import CommandReader
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.server import RemotingServer
from rocketpy.runtime.clock import SystemClock

LIMIT_S = 60.0
ECHO, FAIL, SILENT, LATER, BIG, POOLED, THREAD = 10, 12, 13, 14, 15, 16, 17


def echo(channel: Channel, command: RemotingCommand) -> RemotingCommand:
    return make_response(command, 0, "echo", dict(command.ext_fields), command.body)


def fail(channel: Channel, command: RemotingCommand) -> RemotingCommand:
    raise ValueError("deliberate")


def silent(channel: Channel, command: RemotingCommand) -> None:
    return None


async def later(channel: Channel, command: RemotingCommand) -> RemotingCommand:
    await asyncio.sleep(0.05)
    return make_response(command, 0, "later")


def big(channel: Channel, command: RemotingCommand) -> RemotingCommand:
    return make_response(command, 0, None, None, bytes(256 * 1024))


def thread_name(channel: Channel, command: RemotingCommand) -> RemotingCommand:
    return make_response(command, 0, threading.current_thread().name)


def make_server(pool: BusinessPool | None = None, **settings: Any) -> RemotingServer:
    config = RemotingServerConfig(bind_address="127.0.0.1", **settings)
    server = RemotingServer(config, clock=SystemClock(), name="test")
    server.register(ECHO, echo)
    server.register(FAIL, fail)
    server.register(SILENT, silent)
    server.register(LATER, later)
    server.register(BIG, big)
    server.register(POOLED, echo, pool)
    server.register(THREAD, thread_name, pool)
    return server


@contextlib.asynccontextmanager
async def serving(
    pool: BusinessPool | None = None, **settings: Any
) -> AsyncIterator[tuple[RemotingServer, str]]:
    server = make_server(pool, **settings)
    await server.start()
    try:
        yield server, f"127.0.0.1:{server.port}"
    finally:
        await server.stop(1000)


@contextlib.asynccontextmanager
async def client(**settings: Any) -> AsyncIterator[RemotingClient]:
    made = RemotingClient(
        RemotingClientConfig(**settings), clock=SystemClock(), rng=random.Random(7)
    )
    try:
        yield made
    finally:
        await made.close()


async def until(condition: Callable[[], bool], timeout_s: float = LIMIT_S) -> None:
    """Poll every few ms until the condition holds, where there is no event to wait for."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class RawPeer:
    """Peer that writes arbitrary bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._frames = CommandReader(64 << 20)
        self._ready: list[RemotingCommand] = []

    @classmethod
    async def connect(cls, address: str) -> "RawPeer":
        host, _, port = address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def stop_reading(self) -> None:
        cast("asyncio.Transport", self.writer.transport).pause_reading()

    def read_again(self) -> None:
        cast("asyncio.Transport", self.writer.transport).resume_reading()

    def send(self, *commands: RemotingCommand) -> None:
        self.writer.write(b"".join(map(encode_command, commands)))

    async def receive(self) -> RemotingCommand:
        async with asyncio.timeout(LIMIT_S):
            while not self._ready:
                data = await self.reader.read(1 << 16)
                if not data:
                    raise EOFError
                self._ready = self._frames.feed(data)
        return self._ready.pop(0)

    async def is_closed_by_peer(self) -> bool:
        async with asyncio.timeout(LIMIT_S):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def numbered(code: int, opaque: int, body: bytes = b"", **ext: str) -> RemotingCommand:
    command = make_request(code, ext, body)
    command.opaque = opaque
    return command
