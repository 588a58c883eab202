"""Composition of the name server: tables, processors, connections, the liveness scan.

Source: NamesrvController (5.4.0)
"""

import random

import structlog

from rocketpy.errors import ClosedError
from rocketpy.namesrv.config import NamesrvConfig
from rocketpy.namesrv.holder_check import HolderCheck
from rocketpy.namesrv.kv_config import KvConfig
from rocketpy.namesrv.liveness import Liveness
from rocketpy.namesrv.notifier import MinBrokerNotifier
from rocketpy.namesrv.processor.brokers import BrokerProcessor, take_over
from rocketpy.namesrv.processor.kv import KvProcessor
from rocketpy.namesrv.processor.routes import RouteProcessor
from rocketpy.namesrv.processor.topics import TopicProcessor
from rocketpy.namesrv.repeated_bodies import RepeatedBodies
from rocketpy.namesrv.route_table import RouteTable
from rocketpy.namesrv.route_types import RouteLimits
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.remoting.business_pool import BusinessPool
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.remoting.config_requests import ConfigProcessor
from rocketpy.remoting.connection.channel import Channel
from rocketpy.remoting.network.network import Network
from rocketpy.remoting.server import RemotingServer
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.live_config import LiveConfig, LiveSettings
from rocketpy.runtime.readiness import NotReady, ServerState, state_reasons
from rocketpy.runtime.service import LoopServices, run_services_on_loop

_logger = structlog.get_logger(__name__)

_QUEUE_WAIT_MS = 5_000
_WILDCARDS = {"", "0.0.0.0", "::"}  # noqa: S104 - compared with, not bound to


class NameServer:
    """Name server. Several name servers are independent; brokers register with each.

    Args:
        config: its settings.
        clock: for time-outs and waits.
        rng: spreads the pauses between connection attempts to brokers.
        network: for listening and connecting; None: sockets of the machine.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        *,
        clock: Clock,
        rng: random.Random | None = None,
        network: Network | None = None,
    ) -> None:
        self._network = network
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 - spreads pauses, no secret
        self.settings: LiveConfig[NamesrvConfig] = LiveConfig(
            config, live=LiveSettings(config.live_settings_file)
        )
        self.routes: RouteTable = RouteTable()
        self.kv: KvConfig = KvConfig(config.kv_config_file)
        self._notifier = MinBrokerNotifier(self.settings, self._make_client)
        self._holders = HolderCheck()
        self._remoting = RemotingServer(config.server, clock=clock, name="namesrv", network=network)
        self._remoting.add_listener(self)
        self._apply(config)
        self.settings.add_listener(self._apply)
        self._services: LoopServices | None = None
        self._state = ServerState.STARTING
        self._route_processor = RouteProcessor(self.routes, self.kv, self.settings, clock)
        self._register_processors(config)

    def _apply(self, config: NamesrvConfig) -> None:
        self.routes.limits = RouteLimits(config.max_topics, config.max_brokers)
        self._remoting.slow_requests.limit_ms = config.operation.slow_request_millis

    def _make_client(self) -> RemotingClient:
        return RemotingClient(
            RemotingClientConfig(), clock=self._clock, rng=self._rng, network=self._network
        )

    def _register_processors(self, config: NamesrvConfig) -> None:
        client_pool = BusinessPool(
            "namesrv-client",
            config.client_request_thread_pool_nums,
            config.client_request_thread_pool_queue_capacity,
            _QUEUE_WAIT_MS,
            clock=self._clock,
        )
        pool = BusinessPool(
            "namesrv-default",
            config.default_thread_pool_nums,
            config.default_thread_pool_queue_capacity,
            _QUEUE_WAIT_MS,
            clock=self._clock,
        )
        routes = self._route_processor
        repeats = RepeatedBodies()
        brokers = BrokerProcessor(
            self.routes,
            self.kv,
            self.settings,
            self._notifier,
            self._clock,
            self._holders,
            repeats=repeats,
        )
        topics = TopicProcessor(self.routes, self.settings, repeats)
        kv = KvProcessor(self.kv, self.settings)
        config_processor = ConfigProcessor(self.settings)
        code = RequestCode
        self._remoting.register([code.GET_ROUTEINFO_BY_TOPIC], routes.get_route, client_pool)
        for each, processor in {
            code.GET_BROKER_CLUSTER_INFO: routes.get_cluster,
            code.GET_BROKER_MEMBER_GROUP: routes.get_members,
            code.REGISTER_BROKER: brokers.register,
            code.UNREGISTER_BROKER: brokers.unregister,
            code.QUERY_DATA_VERSION: brokers.query_data_version,
            code.BROKER_HEARTBEAT: brokers.heartbeat,
            code.REGISTER_TOPIC_IN_NAMESRV: brokers.register_topic,
            code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: topics.list_all,
            code.GET_TOPICS_BY_CLUSTER: topics.list_of_cluster,
            code.GET_SYSTEM_TOPIC_LIST_FROM_NS: topics.list_system,
            code.GET_UNIT_TOPIC_LIST: topics.list_unit,
            code.GET_HAS_UNIT_SUB_TOPIC_LIST: topics.list_unit_sub,
            code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: topics.list_unit_sub_ununit,
            code.DELETE_TOPIC_IN_NAMESRV: topics.delete,
            code.WIPE_WRITE_PERM_OF_BROKER: topics.wipe_write_perm,
            code.ADD_WRITE_PERM_OF_BROKER: topics.add_write_perm,
            code.PUT_KV_CONFIG: kv.put,
            code.GET_KV_CONFIG: kv.get,
            code.DELETE_KV_CONFIG: kv.delete,
            code.GET_KVLIST_BY_NAMESPACE: kv.list_namespace,
            code.UPDATE_NAMESRV_CONFIG: config_processor.update,
            code.GET_NAMESRV_CONFIG: config_processor.get,
        }.items():
            self._remoting.register([each], processor, pool)

    @property
    def port(self) -> int:
        """Port it listens on, after `start`."""
        return self._remoting.port

    @property
    def address(self) -> str:
        """`host:port` for clients on this machine, after `start`."""
        host = self.settings.current.server.bind_address
        if host in _WILDCARDS:
            host = "127.0.0.1"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def not_ready(self) -> list[NotReady]:
        """Return why clients are not served; empty if they are."""
        reasons = state_reasons(self._state)
        if self._route_processor.is_waiting:
            message = "routes are rejected until brokers had time to register (needWaitForService)"
            reasons.append(NotReady("waiting_for_brokers", message))
        return reasons

    async def start(self) -> None:
        """Load the KV values and listen.

        Raises:
            StartError: the port is taken, or the KV file cannot be used.
        """
        if self._services is not None:
            raise ClosedError("the name server has already been started")
        self.kv.load()
        self._notifier.start()
        self._holders.start()
        await self._remoting.start()
        interval_ms = self.settings.current.scan_not_active_broker_interval
        self._services = run_services_on_loop(
            [Liveness(self.routes, interval_ms, lambda: take_over(self.routes, self._notifier))],
            self._clock,
        )
        self._state = ServerState.SERVING

    async def stop(self) -> None:
        """Stop listening and close every connection; idempotent, also before `start`."""
        if self._services is None:
            return
        self._state = ServerState.STOPPING
        self._services.stop()
        await self._holders.stop()
        await self._remoting.stop()
        await self._notifier.stop()

    # ---- ChannelListener

    def on_open(self, channel: Channel) -> None:
        """Do nothing: a connection has no broker until one registers."""

    def on_idle(self, channel: Channel) -> None:
        """Do nothing: the server closes the connection, and `on_close` follows."""

    def on_close(self, channel: Channel) -> None:
        """Remove the brokers of this connection from the routes immediately."""
        for key, change in self.routes.connection_closed(channel):
            _logger.warning("broker connection closed", cluster=key.cluster, address=key.address)
            if change is not None:
                self._notifier.notify(change)
        take_over(self.routes, self._notifier)
