"""RemotingClient: calls to servers by address, responses matched by opaque.

Everything here runs on the loop of the first call. A call to a connected server costs one future
(`invoke_future`) or none (`start`), no task and no timer.

Source: NettyRemotingClient (5.4.0).
"""

import asyncio
import itertools
import logging
import random
import ssl
from collections.abc import Awaitable, Callable

from rocketpy.errors import ClosedError, ConnectError
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.remoting.config import ConnectionLimits, RemotingClientConfig
from rocketpy.remoting.connection.calls import Call, PendingRequest, RpcHook
from rocketpy.remoting.connection.dispatch import Processor, ProcessorTable
from rocketpy.remoting.connection.fair_turns import TurnScheduler
from rocketpy.remoting.network.network import Network
from rocketpy.remoting.network.selector import wait_until_gone
from rocketpy.remoting.network.socket_network import SocketNetwork
from rocketpy.remoting.network.tls_context import watch_client
from rocketpy.remoting.server_peer import ServerPeer
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.ordered_set import OrderedSet
from rocketpy.runtime.service import shared_wait_ms

_log = logging.getLogger(__name__)

_SWEEP_INTERVAL_MS = 1_000
_CLOSE_TIMEOUT_MS = 1_000
# An opaque is a signed 32-bit integer on the wire.
_MAX_OPAQUE = 0x7FFFFFFF
_ONEWAY = 2


class RemotingClient:
    """Calls servers; all calls to one address share one connection.

    Attributes:
        on_silence: called, about once a second, with the address of a server that does not answer
            requests that it should have answered at once (`Call.is_prompt`).
        on_disconnect: called with the address of a server whose connection has ended, also when
            this client has closed it.
    """

    def __init__(
        self,
        config: RemotingClientConfig,
        *,
        clock: Clock,
        rng: random.Random,
        network: Network | None = None,
    ) -> None:
        """Set up a client; the first call to an address connects.

        Args:
            config: limits and times.
            clock: for idle connections and back-off.
            rng: for the jitter of the back-off.
            network: connects; None uses sockets.

        Raises:
            ConfigError: the TLS files cannot be used.
        """
        self.config = config
        self.rng = rng
        self.table: ProcessorTable = ProcessorTable()
        self.hooks: list[RpcHook] = []
        self.tls: Callable[[], ssl.SSLContext] | None = watch_client(config.tls, clock)
        self.limits: ConnectionLimits = ConnectionLimits(
            max_frame_bytes=config.max_frame_bytes,
            high_water_bytes=config.write_buffer_high_water_mark,
            low_water_bytes=config.write_buffer_low_water_mark,
            hard_limit_bytes=config.write_buffer_hard_limit_bytes,
            write_stall_timeout_ms=config.write_stall_timeout_ms,
            idle_timeout_ms=config.client_channel_max_idle_time_seconds * 1000,
            frame_timeout_ms=config.frame_timeout_ms,
        )
        self.network: Network = network or SocketNetwork()
        # One counter for all connections: an opaque in a log names one request.
        self._opaques = itertools.count(1)  # 0 is a request that was not written
        self.loop: asyncio.AbstractEventLoop
        self.turns: TurnScheduler
        self._clock = clock
        self._peers: dict[str, ServerPeer] = {}
        self._tasks: OrderedSet[asyncio.Future[None]] = OrderedSet()
        self._sweep_timer: asyncio.TimerHandle | None = None
        self.on_silence: Callable[[str], None] | None = None
        self.on_disconnect: Callable[[str], None] | None = None
        self._is_bound = False
        self._is_closed = False

    def next_opaque(self) -> int:
        """Return the next opaque; each client counts separately, so that simulations repeat."""
        return next(self._opaques) & _MAX_OPAQUE

    def register(self, code: int, processor: Processor) -> None:
        """Serve requests of this code that servers send; runs on the client's loop."""
        self.table.register(code, processor, None)

    def add_rpc_hook(self, hook: RpcHook) -> None:
        """Call a hook for every request and response."""
        self.hooks.append(hook)

    def is_connected(self, address: str) -> bool:
        """Return whether a call to this address would go out at once."""
        peer = self._peers.get(address)
        return peer is not None and peer.is_connected

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Call a server and return its response, with any response code.

        Args:
            address: `host:port`.
            command: the request; its opaque is set here.
            timeout_ms: for connecting and answering together.

        Raises:
            ConnectError: no connection was opened in time; the request was not sent.
            ConnectionLostError: the connection closed before the response came.
            RequestTimeoutError: no response in time.
            TooManyInFlightError: too many requests are unanswered.
            ClosedError: the client was closed.
        """
        return await self.invoke_future(address, command, timeout_ms)

    def invoke_future(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> asyncio.Future[RemotingCommand]:
        """Start a call and return the future of its response; on the client's loop.

        Errors are those of `invoke` and always arrive in the future.
        """
        if not self._is_bound:
            self._bind()
        loop = self.loop
        future: asyncio.Future[RemotingCommand] = loop.create_future()
        self.start(
            address, PendingRequest(command, future, timeout_ms, loop.time() + timeout_ms / 1000)
        )
        return future

    def start(self, address: str, call: Call) -> None:
        """Start a call that handles its own response; on the client's loop.

        Errors are those of `invoke` and always arrive in the call.
        """
        peer = self._peers.get(address)
        if peer is None:
            if not self._is_bound:
                self._bind()
            try:
                peer = self._new_peer(address)
            # Errors go to the call, so that callers have one place to handle them.
            except (ClosedError, ConnectError) as error:
                call.fail(error)
                return
        peer.start(call)

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        """Send a request that gets no response.

        Args:
            address: `host:port`.
            command: the request; marked one-way here.
            timeout_ms: for connecting, where that is still needed.

        Raises:
            ConnectError: no connection was opened in time.
            ClosedError: the client was closed.
        """
        # The caller's command is marked: `ServerPeer` then answers the call once it is written.
        command.flag |= _ONEWAY
        await self.invoke_future(address, command, timeout_ms)

    async def close(self) -> None:
        """Fail unanswered calls and close every connection."""
        if self._is_closed:
            return
        self._is_closed = True
        if not self._is_bound:
            return
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        peers = list(self._peers.values())
        for peer in peers:
            peer.close()
        connections = [connection for peer in peers for connection in peer.connections]
        await wait_until_gone(connections, _CLOSE_TIMEOUT_MS)
        # Connects that are under way; a copy, as each task removes itself.
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=_CLOSE_TIMEOUT_MS / 1000)
        for peer in peers:
            for connection in list(peer.connections):
                # The server does not take the rest of the output; a close would wait for it.
                connection.channel.abort("client closed")

    def now_ms(self) -> int:
        """Monotonic time, ms."""
        return self._clock.monotonic_ms()

    def spawn(self, coroutine: Awaitable[None]) -> None:
        """Run a coroutine on the loop and keep it alive until it ends."""
        task = asyncio.ensure_future(coroutine, loop=self.loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def silent(self, address: str) -> None:
        """Pass on that a server does not answer; see `on_silence`."""
        if self.on_silence is not None:
            self.on_silence(address)

    def disconnected(self, address: str) -> None:
        """Pass on that a connection has ended; see `on_disconnect`."""
        if self.on_disconnect is not None:
            self.on_disconnect(address)

    def abandon(self, address: str, reason: str) -> None:
        """Fail the calls to a server that another one has replaced, if it is silent.

        Args:
            address: of the server.
            reason: for the errors.
        """
        peer = self._peers.get(address)
        if peer is not None:
            peer.abandon(reason)

    def sweep(self, now_ms: int) -> None:
        """Close silent and stuck connections, and forget addresses that are no longer called.

        Args:
            now_ms: monotonic time.
        """
        for peer in list(self._peers.values()):
            peer.sweep(now_ms)
            if peer.is_forgotten(now_ms):
                del self._peers[peer.address]

    def _bind(self) -> None:
        # Not in the constructor: a client may be made before its loop runs.
        self.loop = asyncio.get_running_loop()
        self.turns = TurnScheduler(self.loop, self.now_ms)
        self._is_bound = True
        if not self._is_closed:
            self._sweep_timer = self.loop.call_later(_SWEEP_INTERVAL_MS / 1_000, self._sweep)

    def _sweep(self) -> None:
        now_ms = self.now_ms()
        wait_ms = shared_wait_ms(now_ms, _SWEEP_INTERVAL_MS)
        # First: an error in a sweep must not end all later ones.
        self._sweep_timer = self.loop.call_later(wait_ms / 1_000, self._sweep)
        self.sweep(now_ms)

    def _new_peer(self, address: str) -> ServerPeer:
        if self._is_closed:
            raise ClosedError("the remoting client was closed")
        peer = self._peers[address] = ServerPeer(address, self)
        return peer
