"""RemotingServer: network, selectors, request table and pools of a server.

Source: NettyRemotingServer (5.4.0).
"""

import logging
from collections.abc import Iterable

from rocketpy.remoting.business_pool import BusinessPool, PoolStatistics
from rocketpy.remoting.config import ConnectionLimits, RemotingServerConfig, TlsMode
from rocketpy.remoting.connection.channel import ChannelListener
from rocketpy.remoting.connection.dispatch import (
    ByteHandler,
    LookAhead,
    Processor,
    ProcessorTable,
)
from rocketpy.remoting.connection.slow_requests import SlowRequests
from rocketpy.remoting.network.admission import Admission
from rocketpy.remoting.network.network import ListenEndpoint, Listening, Network
from rocketpy.remoting.network.selector import Selector
from rocketpy.remoting.network.socket_network import SocketNetwork
from rocketpy.remoting.network.tls_context import watch_server
from rocketpy.runtime.clock import Clock

_log = logging.getLogger(__name__)


class RemotingServer:
    """Server that passes requests to registered processors.

    Attributes:
        port: where it listens, once started (0 before).
        name: for logs and thread names.
    """

    def __init__(
        self,
        config: RemotingServerConfig,
        *,
        clock: Clock,
        name: str = "server",
        network: Network | None = None,
        port_key: str = "listenPort",
    ) -> None:
        """Set up a server; `start` opens its port.

        Args:
            config: limits and times.
            clock: for time-outs.
            name: for logs and thread names.
            network: listens; None uses sockets.
            port_key: key of the port, for the error about one that is taken.
        """
        self.port: int = 0
        self.name = name
        self._port_key = port_key
        self._config = config
        self._clock = clock
        self._network: Network = network or SocketNetwork()
        self._table = ProcessorTable(SlowRequests(clock))
        self._listeners: list[ChannelListener] = []
        self._admission = Admission(
            config.server_max_connections, config.server_max_connections_per_ip, clock
        )
        self._listening: Listening | None = None
        self._selectors: list[Selector] = []
        self._pools: list[BusinessPool] = []

    @property
    def connection_count(self) -> int:
        """Number of connections."""
        return self._admission.count

    @property
    def slow_requests(self) -> SlowRequests:
        """Limit of slow requests, which may change while the server runs."""
        return self._table.slow

    def register(
        self, codes: Iterable[int] | int, processor: Processor, pool: BusinessPool | None = None
    ) -> None:
        """Send requests to a processor; before `start`.

        Args:
            codes: one or more request codes.
            processor: called for each request, on the pool's thread or the selector's.
            pool: None (or one of 0 threads) runs inline on the selector.
        """
        assert self._listening is None, "register processors before start"
        self._table.register(codes, processor, pool)

    def set_default(self, processor: Processor, pool: BusinessPool | None = None) -> None:
        """Send every request code without a registration to a processor; before `start`."""
        assert self._listening is None, "register processors before start"
        self._table.set_default(processor, pool)

    def set_byte_handler(self, handler: ByteHandler, look_ahead: LookAhead | None = None) -> None:
        """Offer received bytes to a handler before frames are cut; before `start`.

        It runs on the selector, once for each socket read, from a connection's second request on.
        An exception closes the connection. With `look_ahead` it is also offered the frames behind
        those that it does not serve, up to 16 times for a read.
        """
        self._table.byte_handler, self._table.look_ahead = handler, look_ahead

    def add_listener(self, listener: ChannelListener) -> None:
        """Call a listener for each connection; before `start`."""
        self._listeners.append(listener)

    def pool_statistics(self) -> list[PoolStatistics]:
        """Return the statistics of each pool with threads."""
        return [pool.statistics() for pool in self._table.pools()]

    async def start(self) -> None:
        """Open the port and serve.

        Raises:
            StartError: the port is taken, or the address is not of this machine.
            ConfigError: the TLS files cannot be used.
        """
        assert self._listening is None, "started twice"
        config = self._config
        endpoint = ListenEndpoint(
            name=self.name,
            address=config.bind_address,
            port=config.listen_port,
            backlog=config.server_socket_backlog,
            send_buffer_bytes=config.server_socket_snd_buf_size,
            receive_buffer_bytes=config.server_socket_rcv_buf_size,
            tls=watch_server(config.tls, self._clock),
            plain_allowed=config.tls.mode is not TlsMode.ENFORCING,
            proxy_protocol=config.proxy_protocol,
            first_bytes_timeout_ms=config.first_frame_timeout_ms,
            port_key=self._port_key,
        )
        self._selectors = self._build_selectors()
        self._listening = await self._network.listen(endpoint, self._selectors, self._admission)
        self.port = self._listening.port
        # After the port: requests of the first peers wait in the queues of the pools meanwhile.
        self._pools = self._table.pools()
        for pool in self._pools:
            pool.start()
        _log.info(
            "server started: name=%s address=%s port=%d", self.name, config.bind_address, self.port
        )

    async def stop(self, grace_ms: int = 3000) -> None:
        """Stop accepting, send clients away, finish requests in progress, close.

        Args:
            grace_ms: time limit of all that, after which connections are reset.
        """
        if self._listening is None:
            return
        listening, self._listening = self._listening, None
        # First: a client that is sent away must not connect again.
        listening.stop_accepting()
        await listening.drain(grace_ms)
        for pool in self._pools:
            pool.stop()
        self._pools.clear()
        _log.info("server stopped: name=%s port=%d", self.name, self.port)

    def sweep(self, now_ms: int) -> None:
        """Close silent, stuck and half-open connections now (one selector only; for tests).

        Args:
            now_ms: monotonic time.
        """
        (selector,) = self._selectors
        selector.sweep(now_ms)

    def _build_selectors(self) -> list[Selector]:
        config = self._config
        limits = _limits(config)
        count = config.server_selector_threads
        return [
            Selector(
                self._table,
                limits,
                self._clock,
                admission=self._admission,
                listeners=self._listeners,
                # A share for each selector: a common account would need a lock on each read.
                memory_limit_bytes=config.server_memory_limit_bytes // count,
            )
            for _ in range(count)
        ]


def _limits(config: RemotingServerConfig) -> ConnectionLimits:
    return ConnectionLimits(
        max_frame_bytes=config.max_frame_bytes,
        high_water_bytes=config.write_buffer_high_water_mark,
        low_water_bytes=config.write_buffer_low_water_mark,
        hard_limit_bytes=config.write_buffer_hard_limit_bytes,
        write_stall_timeout_ms=config.write_stall_timeout_ms,
        idle_timeout_ms=config.server_channel_max_idle_time_seconds * 1000,
        first_frame_timeout_ms=config.first_frame_timeout_ms,
        frame_timeout_ms=config.frame_timeout_ms,
        max_in_flight=config.max_in_flight_per_connection,
        max_in_flight_bytes=config.max_in_flight_bytes_per_connection,
    )
