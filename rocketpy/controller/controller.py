"""Composition of a controller: state, heartbeats, elections, processors, connections.

Source: ControllerManager, ControllerRequestProcessor (5.4.0)
"""

import random
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from rocketpy.controller.config import ControllerConfig, Peer
from rocketpy.controller.context import ControllerContext
from rocketpy.controller.election_service import ElectionService
from rocketpy.controller.elections import Elections
from rocketpy.controller.events import (
    AnyEvent,
    GroupRemoved,
    MasterElected,
    MasterLost,
    ReplicaRemoved,
    SetAltered,
)
from rocketpy.controller.group_store import GroupStore
from rocketpy.controller.liveness import Liveness, ReplicaKey
from rocketpy.controller.processor.elections import ElectionProcessor
from rocketpy.controller.processor.heartbeats import HeartbeatProcessor
from rocketpy.controller.processor.metadata import MetadataProcessor
from rocketpy.controller.processor.registration import RegistrationProcessor
from rocketpy.controller.role_notifier import RoleNotifier
from rocketpy.controller.state_log import LocalStateLog
from rocketpy.errors import ClosedError
from rocketpy.proto.headers.controller import STATE_FIELD
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import RemotingCommand, make_response
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig
from rocketpy.remoting.config_requests import ConfigProcessor
from rocketpy.remoting.connection.channel import Channel, format_address
from rocketpy.remoting.connection.dispatch import Processor, Response
from rocketpy.remoting.network.network import Network
from rocketpy.remoting.server import RemotingServer
from rocketpy.runtime.clock import Clock
from rocketpy.runtime.config.live_config import LiveConfig, LiveSettings
from rocketpy.runtime.os_resources import local_ip
from rocketpy.runtime.readiness import NotReady, ServerState, state_reasons
from rocketpy.runtime.service import LoopServices, run_services_on_loop
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.files.store_files import StoreFiles

if TYPE_CHECKING:
    from rocketpy.controller.etcd.client import Etcd
    from rocketpy.controller.etcd.etcd_log import EtcdStateLog
    from rocketpy.controller.etcd.leadership import Leadership

_logger = structlog.get_logger(__name__)

_WILDCARDS: Final = {"", "0.0.0.0", "::"}  # noqa: S104 - compared with, not bound to
_DEFAULT_ID: Final = "n0"
_ETCD_TIMEOUT_MS: Final = 1_000


class Controller:
    """Controller of broker groups: the only one, or with etcd one of several.

    Args:
        config: its settings.
        clock: for heartbeats and leases.
        files: the file system; None: that of the machine.
        rng: spreads the pauses between connection attempts to brokers.
        network: for listening and connecting; None: sockets of the machine.
        etcd: for `controllerStorage=etcd`; None: the members in `etcdEndpoints`.
    """

    def __init__(
        self,
        config: ControllerConfig,
        *,
        clock: Clock,
        files: StoreFiles | None = None,
        rng: random.Random | None = None,
        network: Network | None = None,
        etcd: "Etcd | None" = None,
    ) -> None:
        self._clock = clock
        self._rng = rng or random.Random()  # noqa: S311 - spreads pauses, no secret
        self._network = network
        self.settings: LiveConfig[ControllerConfig] = LiveConfig(
            config, live=LiveSettings(config.live_settings_file)
        )
        self._shared_log = self._make_shared_log(config, etcd)
        store = GroupStore(
            self._shared_log or LocalStateLog(config.store_directory, files or RealFiles())
        )
        store.add_listener(self._on_events)
        self._remoting = RemotingServer(
            config.remoting,
            clock=clock,
            name="controller",
            network=network,
            port_key="controllerDLegerPeers or controllerListenPort",
        )
        self._remoting.add_listener(self)
        self._context = self._make_context(store)
        self._leadership = self._make_leadership()
        self._services: LoopServices | None = None
        self._state = ServerState.STARTING
        self._register_processors()
        self._apply(config)
        self.settings.add_listener(self._apply)

    def _make_shared_log(
        self, config: ControllerConfig, etcd: "Etcd | None"
    ) -> "EtcdStateLog | None":
        if config.controller_storage != "etcd":
            return None
        # The HTTP client takes 50 ms to import, and most controllers have no etcd.
        from rocketpy.controller.etcd.client import EtcdGateway  # noqa: PLC0415
        from rocketpy.controller.etcd.etcd_log import EtcdStateLog  # noqa: PLC0415

        if etcd is None:
            endpoints = [text.strip() for text in config.etcd_endpoints.split(";") if text.strip()]
            etcd = EtcdGateway(endpoints, _ETCD_TIMEOUT_MS)
        return EtcdStateLog(etcd, config.controller_dleger_group, self._itself, self._clock)

    def _make_leadership(self) -> "Leadership | None":
        if self._shared_log is None:
            return None
        from rocketpy.controller.etcd.leadership import Leadership  # noqa: PLC0415 - as above

        return Leadership(self._shared_log, self._gain, self._lose)

    def _make_context(self, store: GroupStore) -> ControllerContext:
        liveness = Liveness()
        decisions = Elections(liveness, lambda: self._current.enable_elect_unclean_master)
        elections = ElectionService(
            store,
            liveness,
            decisions,
            self._clock,
            lambda: self._current.scan_not_active_broker_interval,
        )
        return ControllerContext(
            settings=self.settings,
            store=store,
            liveness=liveness,
            decisions=decisions,
            elections=elections,
            notifier=RoleNotifier(self._make_client),
            clock=self._clock,
        )

    @property
    def _current(self) -> ControllerConfig:
        return self.settings.current

    def _apply(self, config: ControllerConfig) -> None:
        self._remoting.slow_requests.limit_ms = config.operation.slow_request_millis

    def _make_client(self) -> RemotingClient:
        return RemotingClient(
            RemotingClientConfig(), clock=self._clock, rng=self._rng, network=self._network
        )

    def _register_processors(self) -> None:
        context = self._context
        registration = RegistrationProcessor(context)
        elections = ElectionProcessor(context)
        heartbeats = HeartbeatProcessor(context)
        metadata = MetadataProcessor(
            self.settings,
            self._itself,
            self._leader,
            lambda: context.store.state_id,
            is_shared=self._shared_log is not None,
        )
        config = ConfigProcessor(self.settings)
        code = RequestCode
        for each, processor in {
            code.CONTROLLER_GET_METADATA_INFO: metadata.metadata,
            code.UPDATE_CONTROLLER_CONFIG: config.update,
            code.GET_CONTROLLER_CONFIG: config.get,
        }.items():
            self._remoting.register([each], processor)
        processors: Mapping[RequestCode, Processor] = {
            code.CONTROLLER_ALTER_SYNC_STATE_SET: elections.alter_set,
            code.CONTROLLER_ELECT_MASTER: elections.elect,
            code.CONTROLLER_REGISTER_BROKER: registration.register,
            code.CONTROLLER_GET_REPLICA_INFO: elections.replica_info,
            code.CONTROLLER_GET_SYNC_STATE_DATA: elections.sync_state_data,
            code.CLEAN_BROKER_DATA: registration.clean,
            code.CONTROLLER_GET_NEXT_BROKER_ID: registration.next_id,
            code.CONTROLLER_APPLY_BROKER_ID: registration.apply_id,
            code.BROKER_HEARTBEAT: heartbeats.heartbeat,
        }
        for each, of_leader in processors.items():
            self._remoting.register([each], self._leading(of_leader))

    def _leading(self, processor: Processor) -> Processor:
        """Return a processor that answers as long as this controller leads."""

        def process(channel: Channel, request: RemotingCommand) -> Response:
            if self._shared_log is None or self._shared_log.is_leader:
                return self._with_state_id(processor(channel, request))
            leader = self._shared_log.leader
            where = "there is none now" if leader is None else f"it is {leader.address}"
            remark = f"this controller is not the leader: {where}"
            return make_response(request, ResponseCode.CONTROLLER_NOT_LEADER, remark)

        return process

    def _with_state_id(self, response: Response) -> Response:
        """Add the id of the state to an answer, present or future."""
        state_id = self._context.store.state_id
        if isinstance(response, RemotingCommand) and state_id:
            response.ext_fields[STATE_FIELD] = state_id
        if not isinstance(response, Awaitable):
            return response

        async def answer() -> RemotingCommand | bytes | None:
            found = await response
            self._with_state_id(found)
            return found

        return answer()

    def _leader(self) -> Peer | None:
        if self._shared_log is None:
            return self._itself()
        leader = self._shared_log.leader
        # etcd may name this controller until its lease there ends, after it has stopped to lead.
        is_past = leader == self._itself() and not self._shared_log.is_leader
        return None if is_past else leader

    async def _gain(self) -> None:
        """Start the leadership: read the state, and wait for heartbeats before an election."""
        context = self._context
        context.liveness.clear()
        await context.store.load()
        context.decisions.start(self._clock.monotonic_ms())
        context.elections.suspect([group.name for group in context.groups])

    def _lose(self) -> None:
        """End the leadership: another controller may change the state now."""
        self._context.store.reset()
        self._context.liveness.clear()

    @property
    def port(self) -> int:
        """Port it listens on, after `start`."""
        return self._remoting.port

    @property
    def address(self) -> str:
        """`host:port` for brokers and tools, after `start`."""
        return self._itself().address

    def _itself(self) -> Peer:
        peer = self._current.peer
        if peer is not None:
            return peer
        host = self._current.server.bind_address
        if host in _WILDCARDS:
            host = local_ip()
        identifier = self._current.controller_dleger_self_id or _DEFAULT_ID
        return Peer(identifier, format_address(host, self.port))

    def not_ready(self) -> list[NotReady]:
        """Return why brokers are not served; empty if they are."""
        reasons = state_reasons(self._state)
        if self._context.store.is_read_only:
            message = "a write of the state has failed: restart the controller"
            reasons.append(NotReady("read_only", message))
        if self._state is ServerState.SERVING and self._leader() is None:
            message = "no controller leads: etcd does not answer, or an election is in progress"
            reasons.append(NotReady("no_leader", message))
        return reasons

    async def start(self) -> None:
        """Load the state and listen.

        Raises:
            StartError: the port is taken.
            StoreError: the state cannot be used.
        """
        if self._services is not None:
            raise ClosedError("the controller has already been started")
        context = self._context
        if self._leadership is None:
            await self._gain()
        try:
            await self._remoting.start()
        except BaseException:
            await context.store.close()
            raise
        self._services = run_services_on_loop([context.elections], self._clock)
        # Groups whose replicas all stay away are checked, too.
        context.elections.suspect([group.name for group in context.groups])
        if self._leadership is not None:
            self._leadership.start()
        self._state = ServerState.SERVING
        _logger.info("controller started", groups=len(context.groups), address=self.address)

    async def stop(self) -> None:
        """Stop listening and close every connection; idempotent, also before `start`."""
        if self._services is None or self._state is ServerState.STOPPING:
            return
        self._state = ServerState.STOPPING
        context = self._context
        await context.elections.stop()
        if self._leadership is not None:
            await self._leadership.stop()
        self._services.stop()
        await self._remoting.stop()
        await context.notifier.stop()
        await context.store.close()

    def _on_events(self, events: Sequence[AnyEvent]) -> None:
        """Log events, notify brokers of elections, and forget removed replicas."""
        context = self._context
        for event in events:
            group = context.groups.get(event.group)
            match event:
                case MasterElected() if group is not None:
                    _logger.warning(
                        "master elected",
                        broker=group.name,
                        id=group.master_id,
                        address=group.master_address,
                        epoch=group.master_epoch,
                    )
                    if self._current.notify_broker_role_changed:
                        context.notifier.notify(group)
                case MasterLost():
                    _logger.warning("master started again", broker=event.group)
                case SetAltered():
                    _logger.info(
                        "sync-state set altered",
                        broker=event.group,
                        members=event.members,
                        epoch=event.set_epoch,
                    )
                case ReplicaRemoved():
                    context.liveness.forget(ReplicaKey(event.group, event.replica_id))
                case GroupRemoved():
                    context.liveness.forget_group(event.group)
                case _:
                    continue

    # ---- ChannelListener

    def on_open(self, channel: Channel) -> None:
        """Do nothing: a connection has no replica until a heartbeat arrives."""

    def on_idle(self, channel: Channel) -> None:
        """Do nothing: the server closes the connection, and `on_close` follows."""

    def on_close(self, channel: Channel) -> None:
        """Treat the replicas of a connection as dead at once."""
        keys = self._context.liveness.close(channel)
        for key in keys:
            _logger.warning("replica connection closed", broker=key.group, id=key.replica_id)
        if self._state is ServerState.SERVING:
            self._context.elections.suspect([key.group for key in keys])
