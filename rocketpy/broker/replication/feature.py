"""Composition of a broker's replication: the HA port of a master, or the connection of a slave."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from rocketpy.broker.cluster.broker_identity import BrokerIdentity
from rocketpy.broker.cluster.master_address import MasterAddress
from rocketpy.broker.cluster.membership import Membership
from rocketpy.broker.config import BrokerConfig
from rocketpy.broker.feature import Feature
from rocketpy.broker.replication.acknowledgements import Acknowledgements
from rocketpy.broker.replication.config import ReplicationConfig
from rocketpy.broker.replication.ha_client import HaClient, MasterAddresses
from rocketpy.broker.replication.ha_server import HaServer
from rocketpy.broker.replication.ha_status import HaStatus
from rocketpy.broker.replication.handshake import PairIdentity
from rocketpy.broker.replication.store_log import LogCopy, ReplicatedStore, StoreLog
from rocketpy.broker.request_table import RequestTable
from rocketpy.proto.bodies.stats import HARuntimeInfo
from rocketpy.proto.wire.codes import RequestCode, ResponseCode
from rocketpy.proto.wire.command import make_request
from rocketpy.remoting.client import RemotingClient
from rocketpy.remoting.config import TlsClientConfig, TlsServerConfig
from rocketpy.remoting.network.network import ListenEndpoint, Network
from rocketpy.remoting.network.tls_context import WatchedContext, watch_mutual
from rocketpy.runtime.clock import Clock
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files.store_files import StoreFiles

logger: Any = structlog.get_logger(__name__)

_ASK_MS: Final = 3_000
_MOST_EARLY_MS: Final = 300
"""Margin for the check of deadlines every 100 ms, and for the transfer of the response."""
_SLAVE: Final = "SLAVE"
_SYNC_MASTER: Final = "SYNC_MASTER"


def _ignore(_address: str, _ha_address: str) -> None:
    """Default of `on_ha_address`."""


def _random_nonce() -> bytes:
    return secrets.token_bytes(32)


def _answer_ms(slave_timeout_ms: int) -> int:
    """Return how long a send waits for slaves: a little less than `slaveTimeout`.

    The default of Apache and of ours, 3 s, is also the default timeout of producers: a response at
    that time would be too late, and they would send the message again.
    """
    return slave_timeout_ms - min(slave_timeout_ms // 10, _MOST_EARLY_MS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationNeeds:
    """Dependencies of replication.

    Attributes:
        config: settings of replication.
        broker: settings of the broker.
        store_config: settings of the store.
        store: the store.
        files: the file system, for the secret.
        identity: names and addresses of this broker.
        client: asks a master for its protocol.
        network: listens and connects.
        tls: settings of TLS, of servers and of clients.
        master: returns the addresses of a slave's master.
        clock: time.
        timer: measures work; seconds with the resolution of microseconds.
        new_nonce: returns 32 fresh random bytes.
        max_message_bytes: returns `maxMessageSize`.
        refuses_early: see `Acknowledgements`.
        membership: of a group with a controller.
        on_ha_address: receives ordinary and HA address of a master that names both.
    """

    config: ReplicationConfig
    broker: BrokerConfig
    store_config: MessageStoreConfig
    store: ReplicatedStore
    files: StoreFiles
    identity: BrokerIdentity
    client: RemotingClient
    network: Network
    tls: tuple[TlsServerConfig, TlsClientConfig]
    master: Callable[[], MasterAddresses]
    clock: Clock
    timer: Callable[[], float]
    new_nonce: Callable[[], bytes]
    max_message_bytes: Callable[[], int]
    refuses_early: bool = False
    membership: Membership | None = None
    on_ha_address: Callable[[str, str], None] = _ignore


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationSettings:
    """Settings and network of replication, from outside the broker.

    Attributes:
        config: settings.
        tls: certificate of a slave, and authorities of masters (haTlsEnable).
        network: listens and connects; None uses sockets.
        new_nonce: returns 32 fresh random bytes.
        membership: of a group with a controller.
    """

    config: ReplicationConfig = field(default_factory=ReplicationConfig)
    tls: TlsClientConfig = field(default_factory=TlsClientConfig)
    network: Network | None = None
    new_nonce: Callable[[], bytes] = _random_nonce
    membership: Membership | None = None

    def master_address(self) -> MasterAddress:
        """Return the known addresses of a slave's master."""
        if self.membership is not None:
            return MasterAddress(master_address=self.membership.master_address)
        return MasterAddress(self.config.ha_master_address)


class Replication:
    """Replication of one broker.

    Attributes:
        server: of a master that can have slaves or waits for them.
        client: of a slave.
        status: status for operators.
    """

    def __init__(self, needs: ReplicationNeeds) -> None:
        """Build the parts; nothing listens or connects before `start`.

        Raises:
            ConfigError: the secret or the certificates cannot be read.
        """
        self._needs = needs
        config, store_config = needs.config, needs.store_config
        self._pair = PairIdentity(
            cluster=needs.identity.cluster_name,
            name=needs.identity.broker_name,
            broker_id=needs.identity.broker_id,
            secret=config.read_secret(needs.files),
            reports_disk=store_config.is_sync_flush,
        )
        self._tls: tuple[WatchedContext | None, WatchedContext | None] = (None, None)
        if config.ha_tls_enable:
            self._tls = watch_mutual(*needs.tls, needs.clock)
        self.server: HaServer | None = None
        self.client: HaClient | None = None
        file_bytes = store_config.mapped_file_size_commit_log
        sizes = file_bytes, needs.max_message_bytes
        self._log = StoreLog(needs.store, *sizes)
        if needs.membership is not None:
            self._log.current_epochs = needs.membership.epochs
        if store_config.broker_role == _SLAVE:
            copy = LogCopy(needs.store, *sizes, confirms_disk=store_config.is_sync_flush)
            if needs.membership is not None:
                copy.current_epochs = needs.membership.epochs
            self._log = copy
            self.client = self._build_client(copy)
        else:
            waits = store_config.broker_role == _SYNC_MASTER
            most = max(config.in_sync_replicas, config.min_in_sync_replicas)
            if config.allows_slaves or (waits and most > 1):
                self.server = self._build_server(waits=waits)
        self.status: HaStatus = HaStatus(
            self._log,
            server=self.server,
            client=self.client,
            has_pair_protocol=config.has_pair_protocol,
            ha_address=lambda: needs.identity.ha_address,
        )

    @property
    def has_controller(self) -> bool:
        """Whether a controller names the master of the group."""
        return self._needs.membership is not None

    @property
    def send_refusal(self) -> str | None:
        """Why sends are refused at the moment, because too few copies are in sync."""
        return None if self.server is None else self.server.send_refusal

    @property
    def hides_unconfirmed(self) -> bool:
        """Whether consumers wait for recovered messages that no other replica may have."""
        if self.server is None:
            return self.has_controller
        return self.server.acknowledgements.needed > 1

    def configure(self, config: ReplicationConfig) -> None:
        """Apply changed settings (needed copies); on any thread."""
        if self.server is not None:
            self.server.configure(config)

    def is_streaming(self, broker_id: int) -> bool:
        """Return whether a slave copies the log; slaves of Apache do not name their ids."""
        found = [] if self.server is None else self.server.streaming
        return any(each.broker_id in {broker_id, None} for each in found)

    def slave_has(self, broker_id: int, phy_offset: int) -> bool:
        """Return whether a connected slave is in sync and has received a message; on any thread.

        Args:
            broker_id: id of the slave; slaves of Apache do not name theirs, and any of them counts.
            phy_offset: physical offset of the message.
        """
        server = self.server
        if server is None:
            return False
        streams = [
            each.stream
            for each in server.streaming
            if each.broker_id in {broker_id, None} and each.stream is not None
        ]
        return any(
            each.progress.received > phy_offset
            and server.acknowledgements.is_in_sync(each.progress)
            for each in streams
        )

    def when_refusal_changes(self, listener: Callable[[str | None], None]) -> None:
        """Call a listener, on the loop, when sends begin or cease to be refused."""
        if self.server is not None:
            self.server.on_refusal = listener

    def feature(self) -> Feature:
        """Return the requests of replication."""

        def add_requests(table: RequestTable) -> None:
            table.add("adminBroker", {RequestCode.GET_BROKER_HA_STATUS: self.status.process})

        def runtime_info() -> dict[str, str]:
            client, membership = self.client, self._needs.membership
            info = {} if membership is None else membership.runtime_info()
            if client is not None:
                info["rocketpyReplicaState"] = client.state.state.name
            return info

        return Feature(name="replication", add_requests=add_requests, runtime_info=runtime_info)

    async def start(self) -> None:
        """Open the HA port, or follow the master; on the loop of the broker, with an open store.

        Raises:
            StartError: the HA port is taken.
        """
        needs = self._needs
        role = needs.store_config.broker_role
        if role != _SYNC_MASTER and not self.has_controller:
            for key, copies in needs.config.needed_copies.items():
                logger.warning("setting has no effect", key=key, value=copies, brokerRole=role)
        if self.client is not None:
            self.client.start()
        elif self.server is not None:
            endpoint = self._endpoint() if needs.config.allows_slaves else None
            await self.server.start(needs.network, endpoint)

    async def stop(self) -> None:
        """Close the port or the connection; idempotent."""
        if self.client is not None:
            await self.client.stop()
        if self.server is not None:
            await self.server.stop()

    def master_changed(self) -> None:
        """Note that the addresses of the master have changed; on the loop of the broker."""
        if self.client is not None:
            self.client.master_changed()

    def master_elected(self) -> None:
        """Leave the previous master for an elected one; on the loop of the broker."""
        if self.client is not None:
            self.client.master_elected()

    def _endpoint(self) -> ListenEndpoint:
        config, identity = self._needs.config, self._needs.identity
        return ListenEndpoint(
            name="ha",
            address=self._needs.broker.bind_address,
            port=int(identity.ha_address.rpartition(":")[2]),
            backlog=64,
            tls=self._tls[0],
            plain_allowed=not config.ha_tls_enable or bool(config.allowed_networks),
            plain_forbidden_by="haTlsEnable is true",
            first_bytes_timeout_ms=5_000,
            port_key="haListenPort",
        )

    def _build_server(self, *, waits: bool) -> HaServer:
        needs = self._needs
        needs.store.replicas.timeout_ms = _answer_ms(needs.config.slave_timeout)
        if needs.membership is not None:
            needs.store.replicas.let_cut()
        return HaServer(
            needs.config,
            identity=self._pair,
            log=self._log,
            replicas=needs.store.replicas,
            acknowledgements=Acknowledgements(
                needs.config,
                waits=waits,
                refuses_early=needs.refuses_early,
                membership=needs.membership,
            ),
            clock=needs.clock,
            timer=needs.timer,
            new_nonce=needs.new_nonce,
        )

    def _build_client(self, copy: LogCopy) -> HaClient:
        needs = self._needs
        return HaClient(
            needs.config,
            identity=self._pair,
            copy=copy,
            network=needs.network,
            tls=self._tls[1],
            master=needs.master,
            ask_protocol=self._ask_protocol,
            clock=needs.clock,
            new_nonce=needs.new_nonce,
            membership=needs.membership,
        )

    async def _ask_protocol(self, address: str) -> int:
        """Return `pairProtocol` of the broker at an address; 0 if it has none, as Apache's."""
        needs = self._needs
        request = make_request(RequestCode.GET_BROKER_HA_STATUS)
        response = await needs.client.invoke(address, request, _ASK_MS)
        if response.code != ResponseCode.SUCCESS:
            return 0
        found = HARuntimeInfo.decode(response.body)
        if found.ha_address and needs.membership is not None:
            # Sooner than a name server names it, after an election.
            needs.on_ha_address(address, found.ha_address)
        return found.pair_protocol or 0
