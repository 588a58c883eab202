"""A broker: builds its parts, and starts and stops them in order.

The order of a start is store, tables, port, name servers. A stop reverses it: unregister at the
name servers, close the port, finish requests in progress, write the tables, let slaves receive the
end of the log, close the store.

Source: BrokerController.java (5.4.0).
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from rocketpy.broker.cluster.membership import Membership
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.fast_path.compiled_path import CompiledPath, compiled_sends, send_path
from rocketpy.broker.fast_path.pull_service import FastPullService
from rocketpy.broker.live_config import LiveBrokerConfig
from rocketpy.broker.parts import BrokerParts
from rocketpy.broker.replication.config import ReplicationConfig, check_replication
from rocketpy.broker.replication.feature import ReplicationSettings
from rocketpy.broker.request_table import Guard, RequestTable
from rocketpy.broker.requests import build_requests
from rocketpy.errors import DiskFullError, StartError, StoreError
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import RemotingClientConfig, RemotingServerConfig
from rocketpy.remoting.connection.channel import ChannelListener
from rocketpy.remoting.network.network import Network
from rocketpy.remoting.server import RemotingServer
from rocketpy.runtime.clock import Clock, SystemClock
from rocketpy.runtime.config.config import ConfigSet
from rocketpy.runtime.config.live_config import LiveSettings
from rocketpy.runtime.os_resources import shortage_of
from rocketpy.runtime.readiness import NotReady, ServerState
from rocketpy.runtime.service import (
    LoopService,
    LoopServices,
    Service,
    ServiceRunner,
    ServiceThread,
    connect,
    run_services_on_loop,
)
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files.real_files import RealFiles
from rocketpy.store.files.store_files import StoreFiles

logger: Any = structlog.get_logger(__name__)

_VIP_PORT_DISTANCE: Final = 2
_NOT_ON_VIP_PORT: Final = frozenset(
    {int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE)}
)


class Broker:
    """A broker in this process; several may run side by side.

    Args:
        config: names, address, limits; `listen_port` is the port of the broker.
        store_config: store directory and settings.
        server_config: settings of the remoting server; its listen port is ignored.
        client_config: settings of the connections to name servers.
        clock: time.
        rng: chooses queues and retry pauses.
        files: the file system; the real one by default.
        guard: called with each request before its processor; None accepts all requests.
        network: where it listens and how it connects; the machine's network when None.
        threads: False runs services and requests on the loop that calls `start`, whatever the
            sizes of the pools, so that a simulation is repeatable.
        run: creates the runner of a background service; the default depends on `threads`.
        start_empty: whether to start with an empty commit log if it is missing.
        replication: settings of replication; its network is that of the broker.

    Attributes:
        requests: all requests that it answers.

    Raises:
        ConfigError: settings of its role contradict each other.
    """

    def __init__(  # noqa: PLR0913 - everything from outside comes in here
        self,
        config: BrokerConfig,
        *,
        store_config: MessageStoreConfig,
        server_config: RemotingServerConfig | None = None,
        client_config: RemotingClientConfig | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        files: StoreFiles | None = None,
        guard: Guard | None = None,
        network: Network | None = None,
        threads: bool = True,
        run: Callable[[Service, Clock], ServiceRunner] | None = None,
        start_empty: bool = False,
        replication: ReplicationSettings | None = None,
    ) -> None:
        self._network = network
        self._run: Callable[[Service, Clock], ServiceRunner] = run or (
            ServiceThread if threads else LoopService
        )
        self._threads = threads
        self._start_empty = start_empty
        self._clock = clock = clock or SystemClock()
        self._rng = rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._files = files = files or RealFiles()
        replication = replace(replication or ReplicationSettings(), network=network)
        check_replication(config, store_config, replication.config)
        self._membership = replication.membership or Membership()
        self._allows_classic = bool(replication.config.allowed_networks)
        self._configs = LiveBrokerConfig(
            config,
            store_config,
            replace(server_config or RemotingServerConfig(), listen_port=config.listen_port),
            clock,
            _live_settings(store_config, files),
            more=(replication.config,),
        )
        self._configs.add_check(_check_replication)
        client = RemotingClient(
            client_config or RemotingClientConfig(), clock=clock, rng=rng, network=network
        )
        self._parts = BrokerParts(
            self._configs,
            client=client,
            clock=clock,
            rng=rng,
            files=files,
            threads=threads,
            replication=replication,
        )
        self.requests: RequestTable = build_requests(self._parts, guard)
        self._membership.add_requests(self.requests)
        self._servers: list[RemotingServer] = []
        self._loop_services: LoopServices | None = None
        self._background: list[ServiceRunner] = []
        self._configs.add_listener(self._settings_changed)

    @property
    def port(self) -> int:
        """Port that it listens on; 0 before `start`."""
        return self._servers[0].port if self._servers else 0

    @property
    def address(self) -> str:
        """`host:port` for clients; empty before `start`."""
        return self._parts.address

    @property
    def parts(self) -> BrokerParts:
        """Parts of the broker, for tools and tests in the same process."""
        return self._parts

    @property
    def send_path(self) -> str:
        """Path of fast-path eligible sends: `compiled` or `python`."""
        # The compiled path does not know the requests that a slave refuses.
        if self.requests.has_guard or self._parts.role.is_slave:
            return "python"
        return send_path(self._parts.pools["send"])

    @property
    def services(self) -> Sequence[Service]:
        """All background services, those of the store included, for a simulation to step."""
        parts = self._parts
        return (*parts.store.services, *parts.loop_services, *parts.background_services)

    def not_ready(self) -> list[NotReady]:
        """Return why clients are not served; empty if they are. Callable on any thread."""
        return self._parts.readiness.reasons()

    async def start(self) -> None:
        """Open the store, listen, register.

        Raises:
            StoreError: the store directory cannot be used.
            StartError: the port is in use.
        """
        parts = self._parts
        # A slave without a log copies that of its master.
        parts.store.open(
            start_empty=self._start_empty or parts.role.is_slave,
            hold_back=parts.replication.hides_unconfirmed,
            has_controller=parts.replication.has_controller,
        )
        try:
            self._membership.on_open(parts.store.max_phy_offset)
            self._check_tables_can_be_written()
            for table in (parts.topics, parts.groups, parts.offsets, parts.modes):
                table.load()
            if self._membership.epoch:
                parts.topics.set_epoch(self._membership.epoch)
            self._create_found_topics()
            stored = set(parts.store.topics())
            self._report_unknown_topics(stored)
            parts.offsets.keep_topics(lambda name: name in stored or bool(parts.topics.get(name)))
            # The offsets of a slave, which come from the master, may be ahead of its log.
            if not parts.role.is_slave:
                parts.offsets.cut_to(partial(parts.store.max_offset, with_held=True))
            self._take_role()
            for feature in parts.features:
                for state in feature.states:
                    state.load()
            await self._listen()
            if not parts.role.is_slave:
                await parts.replication.start()
        except BaseException:
            await self._stop_servers()
            await parts.replication.stop()
            for feature in parts.features:
                feature.release()
            parts.store.close()
            raise
        try:
            self._start_services()
        except RuntimeError as error:  # the system refuses a thread
            await self.stop()
            raise StartError(shortage_of(error) or str(error)) from error
        if parts.acting is None:
            await parts.name_servers.start()
        else:
            await parts.acting.start(parts.name_servers.start)
        if parts.metadata_sync is not None and parts.master is not None:
            parts.master.on_change.append(parts.replication.master_changed)
            parts.metadata_sync.start()
            # After the registration, whose response has the addresses of the master.
            await parts.replication.start()
        parts.readiness.state = ServerState.SERVING
        logger.info(
            "broker started",
            broker_name=parts.identity.broker_name,
            role=parts.role.value,
            cluster=parts.identity.cluster_name,
            address=parts.identity.address,
            name_servers=";".join(parts.name_servers.addresses),
        )

    @property
    def _slave_file(self) -> Path:
        """File that marks a directory as a slave's: the commits that it keeps for the master."""
        root = Path(self._configs.store.store_path_root_dir)
        return root / "config" / "slaveCommits.json"

    @property
    def _was_slave(self) -> bool:
        """Whether a slave becomes a master: it may have offsets beyond what it has of the log."""
        return not self._parts.role.is_slave and self._files.exists(self._slave_file)

    def _check_tables_can_be_written(self) -> None:
        """Reject a directory of the tables without permission to write, in which offsets are lost.

        Raises:
            StoreError: there is none.
        """
        directory = Path(self._configs.store.store_path_root_dir) / "config"
        trial = directory / "trial.tmp"
        try:
            self._files.make_directories(directory)
            self._files.write_bytes(trial, b"")
            self._files.remove(trial)
        except DiskFullError as error:  # consumers still read, and retention makes room
            logger.warning("tables cannot be written", path=str(directory), error=str(error))
        except OSError as error:
            raise StoreError(
                f"{directory} cannot be written ({error.strerror or error}), so topics and offsets "
                "of groups would be lost: make it writable for the user of the broker"
            ) from error

    def _report_unknown_topics(self, stored: Iterable[str]) -> None:
        """Warn when topics.json lacks topics with messages: it, or its directory, may be lost."""
        if self._parts.role.is_slave:  # it gets them from its master
            return
        unknown = self._parts.topics.note_stored(stored)
        if unknown:
            logger.warning(
                "topics.json lacks topics that have messages: restore the config directory",
                count=len(unknown),
                topics=";".join(unknown[:10]),
            )

    def _create_found_topics(self) -> None:
        """Create the topics that this slave, a master now, did not receive before it stopped."""
        if self._was_slave:
            self._parts.slave_commits.load()
            self._parts.found_topics.create()

    def _take_role(self) -> None:
        """Load, or delete, what only a slave needs."""
        if self._parts.role.is_slave:
            self._parts.slave_commits.load()
            self._parts.slave_commits.persist()
        elif self._was_slave:
            logger.info("slave started as master", broker_name=self._parts.identity.broker_name)
            for suffix in ("", ".bak"):
                self._files.remove(self._slave_file.with_name(self._slave_file.name + suffix))

    def _start_services(self) -> None:
        parts = self._parts
        parts.store.start(self._run)
        self._loop_services = run_services_on_loop(parts.loop_services, self._clock)
        for service in parts.background_services:
            runner = self._run(service, self._clock)
            connect(service, runner.wake)
            runner.start()
            self._background.append(runner)

    async def stop(self) -> None:
        """Unregister, finish requests in progress, write the tables, close the store."""
        parts = self._parts
        parts.readiness.state = ServerState.STOPPING
        if parts.metadata_sync is not None:
            await parts.metadata_sync.stop()
        if parts.acting is not None:
            await parts.acting.stop()
        await parts.name_servers.stop()
        if self._loop_services is not None:
            self._loop_services.stop()
            self._loop_services = None
        parts.suspended_pulls.release_all()
        await self._stop_servers()
        if parts.role.is_slave:
            await parts.replication.stop()
        for runner in self._background:
            await self._call(runner.stop)
        self._background.clear()
        if parts.metadata_sync is not None:
            await self._call(parts.store.flush_log)
            parts.metadata_sync.take_last()
        self._persist_tables()
        # After the requests in progress, which may wait for slaves, and after the services and the
        # tables, which append messages as well: slaves get the log to its last byte.
        await parts.replication.stop()
        await self._call(parts.store.close)
        logger.info("broker stopped", broker_name=parts.identity.broker_name)

    def follow(self, master_address: str) -> None:
        """Follow another master, which a controller names, at a slave.

        Args:
            master_address: its `host:port` for clients.
        """
        if self._parts.master is not None:
            self._parts.master.elected(master_address)
            self._parts.replication.master_elected()

    async def follow_last(self) -> None:
        """Fetch the tables of the master a last time, at a slave that takes its place."""
        if self._parts.metadata_sync is not None:
            await self._parts.metadata_sync.follow_last()

    def _persist_tables(self) -> None:
        """Write all tables; a failure does not stop the others."""
        parts = self._parts
        # Features first, because some of them commit offsets.
        tables: list[tuple[str, Callable[[], object]]] = [
            (feature.name, state.persist) for feature in parts.features for state in feature.states
        ]
        tables += [
            ("topics", parts.topics.persist),
            ("groups", parts.groups.persist),
            ("offsets", parts.offsets.persist),
        ]
        if parts.role.is_slave:
            tables.append(("slave commits", parts.slave_commits.persist))
        for name, persist in tables:
            try:
                persist()
            except (StoreError, OSError) as error:
                logger.warning("table not written", table=name, error=str(error))

    async def _call(self, work: Callable[[], object]) -> None:
        """Run a blocking call, on another thread unless everything runs on the loop."""
        if self._threads:
            try:
                await asyncio.get_running_loop().run_in_executor(None, work)
            except RuntimeError as error:
                if shortage_of(error) is None:
                    raise
            else:
                return
        work()

    async def _listen(self) -> None:
        runs = self._compiled_path(self._configs.server, None)
        for feature in self._parts.features:
            # Due messages of a slave are not stored here.
            if runs is not None and feature.use_runs is not None and not self._parts.role.is_slave:
                feature.use_runs(runs)
        main = self._build_server(self._configs.server, "broker", self._pull_runs())
        self.requests.register_on(main)
        await main.start()
        # No connection is served before the next iteration of the loop, so the previous address
        # is never seen.
        parts = self._parts
        parts.identity.listens_on(main.port)
        parts.sends.listens_on(parts.identity.store_host)
        parts.store.store_host = parts.identity.store_host
        # Apache's slaves fetch topics from the VIP port only.
        has_classic_slaves = self._allows_classic and not parts.role.is_slave
        if self._configs.broker.fast_listen_enable or has_classic_slaves:
            config = replace(self._configs.server, listen_port=main.port - _VIP_PORT_DISTANCE)
            fast = self._build_server(config, "broker-vip", None)
            self.requests.register_on(fast, without=_NOT_ON_VIP_PORT)
            await fast.start()

    def _settings_changed(self, config: BrokerConfig) -> None:
        for server in self._servers:
            server.slow_requests.limit_ms = config.operation.slow_request_millis
        self._parts.replication.configure(self._configs.get(ReplicationConfig))

    async def _stop_servers(self) -> None:
        await asyncio.gather(*(server.stop() for server in self._servers))
        self._servers.clear()

    def _build_server(
        self, config: RemotingServerConfig, name: str, pulls: FastPullService | None
    ) -> RemotingServer:
        server = RemotingServer(config, clock=self._clock, name=name, network=self._network)
        server.slow_requests.limit_ms = self._configs.broker.operation.slow_request_millis
        parts = self._parts
        listeners: list[ChannelListener] = [parts.clients, parts.pulls]
        for feature in parts.features:
            listeners += feature.listeners
        for listener in listeners:
            server.add_listener(listener)
        sends = self._compiled_path(config, pulls)
        if sends is not None and self.send_path == "compiled":
            server.set_byte_handler(sends, sends.look_ahead)
        self._servers.append(server)
        return server

    def _pull_runs(self) -> FastPullService | None:
        """Return the service of fast pulls; None when pulls run on pools."""
        parts = self._parts
        if parts.pools["pull"].runs_inline and parts.pools["litePull"].runs_inline:
            return FastPullService(parts.pulls, parts.store.reader)
        return None

    def _compiled_path(
        self, config: RemotingServerConfig, pulls: FastPullService | None
    ) -> CompiledPath | None:
        """Return the compiled path, which serves eligible requests and stores due messages."""
        parts = self._parts
        make = compiled_sends()
        if make is None:
            return None
        transactions = next(each.runs for each in parts.features if each.runs is not None)
        limit = config.max_frame_bytes
        sends = make(parts.sends, parts.store.direct, limit, transactions, pulls)
        if pulls is not None:
            pulls.answer = sends.answer
        return sends


def _live_settings(config: MessageStoreConfig, files: StoreFiles) -> LiveSettings:
    def replace_content(path: Path, data: bytes) -> None:
        beside = path.with_name(path.name + ".tmp")
        files.write_bytes(beside, data)
        files.rename(beside, path)
        files.sync_directories()

    return LiveSettings(config.live_settings_file, read=files.read_bytes, replace=replace_content)


def _check_replication(changed: ConfigSet) -> None:
    """Refuse a change of settings that contradict each other.

    Raises:
        ConfigError: they do; the key is named.
    """
    configs = changed.get(BrokerConfig), changed.get(MessageStoreConfig)
    check_replication(*configs, changed.get(ReplicationConfig))
