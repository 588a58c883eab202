"""TCP link between a slave and the HA port of its master, which a test cuts and slows down."""

import asyncio
import contextlib
import threading

from tests.ports import free_port

_CHUNK_BYTES = 1 << 16


class Link:
    """Forwards connections to a port; lives on a thread with its own loop.

    Attributes:
        port: where it listens, on loopback.
    """

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self._target_port = target_port
        self._is_cut = False
        self._delay_s = 0.0
        self._bytes_per_s = 0.0
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def cut(self) -> None:
        """Close all connections, and accept none until `heal`."""
        self._loop.call_soon_threadsafe(self._cut)

    def slow(self, *, delay_s: float = 0.0, bytes_per_s: float = 0.0) -> None:
        """Forward each part later, or at a limited rate; 0 is no limit."""
        self._delay_s, self._bytes_per_s = delay_s, bytes_per_s

    def heal(self) -> None:
        self._is_cut = False
        self.slow()

    def _cut(self) -> None:
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _close(self) -> None:
        self._server.close()
        self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            ends = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:  # the master is away
            writer.transport.abort()
            return
        self._writers |= {writer, ends[1]}
        await asyncio.gather(self._forward(reader, ends[1]), self._forward(ends[0], writer))
        self._writers -= {writer, ends[1]}

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while chunk := await source.read(_CHUNK_BYTES):
                pause_s = self._delay_s
                if self._bytes_per_s:
                    pause_s += len(chunk) / self._bytes_per_s
                if pause_s:
                    await asyncio.sleep(pause_s)
                sink.write(chunk)
                await sink.drain()
        sink.transport.abort()
