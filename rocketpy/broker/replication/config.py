"""Settings of replication: how many copies a send waits for, and which peers may connect.

`brokerRole` is a key of the store, `brokerId` and `haListenPort` are keys of the broker.

Source: MessageStoreConfig, BrokerConfig (5.4.0).
"""

import ipaddress
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from rocketpy.broker.config import MASTER_ID, BrokerConfig
from rocketpy.errors import ConfigError
from rocketpy.runtime.config.config import option
from rocketpy.runtime.config.setting_checks import address_fault
from rocketpy.store.config import MessageStoreConfig
from rocketpy.store.files.store_files import StoreFiles

Networks: TypeAlias = tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]

_PEERS = "replicationSecretFile, haTlsEnable or haAllowedPeers"
LEAST_SECRET_BYTES = 16
"""Shorter secrets can be guessed from one recorded handshake."""


@dataclass(frozen=True, kw_only=True)
class ReplicationConfig:
    """Settings of one broker; times in ms, sizes in bytes.

    Attributes:
        in_sync_replicas: copies that a send to a SYNC_MASTER waits for, the master's included.
        min_in_sync_replicas: with fewer copies in sync, the master's included, sends are refused.
        enable_auto_in_sync_replicas: wait for no more copies than are in sync.
        slave_timeout: consumers may read messages without enough copies after this time; sends are
            answered 12 a tenth of it earlier, at most 300 ms.
        ha_max_gap_not_in_sync: lag from which a slave is not in sync.
        ha_send_heartbeat_interval: pause after which an idle side sends a heartbeat.
        ha_housekeeping_interval: a connection that receives nothing for this long is closed.
        ha_transfer_batch_size: bytes of the log in one frame; frames are larger during a catch-up.
        ha_flow_control_enable: whether `max_ha_transfer_byte_in_second` limits each slave.
        max_ha_transfer_byte_in_second: bytes per second and slave.
        ha_master_address: `host:port` of the master's HA port; empty: as the name servers say.
            While these name no master, the slave asks the port before this one for its protocol.
        ha_allowed_peers: addresses or networks of peers that speak the protocols of Apache
            RocketMQ: the classic one, or AutoSwitch in a group with a controller.
        replication_secret_file: file with the secret of the pair protocol.
        ha_tls_enable: both sides present a TLS certificate.
    """

    in_sync_replicas: int = option(1, minimum=0, maximum=64, live=True)
    min_in_sync_replicas: int = option(1, minimum=0, maximum=64, live=True)
    enable_auto_in_sync_replicas: bool = option(False, live=True)
    slave_timeout: int = option(3_000, unit="ms", minimum=1)
    ha_max_gap_not_in_sync: int = option(256 << 20, unit="bytes", minimum=1)
    ha_send_heartbeat_interval: int = option(5_000, unit="ms", minimum=100)
    ha_housekeeping_interval: int = option(20_000, unit="ms", minimum=1_000)
    ha_transfer_batch_size: int = option(32 << 10, unit="bytes", minimum=1_024, maximum=2 << 20)
    ha_flow_control_enable: bool = option(False)
    max_ha_transfer_byte_in_second: int = option(
        100 << 20, unit="bytes", minimum=1_024, only_with="ha_flow_control_enable"
    )
    ha_master_address: str = option("")
    ha_allowed_peers: str = option("")
    replication_secret_file: str = option("", path=True)
    ha_tls_enable: bool = option(False)

    def __post_init__(self) -> None:
        """Check combinations.

        Raises:
            ConfigError: an address is malformed; the key is named.
        """
        _ = self.allowed_networks
        if self.ha_master_address and (fault := address_fault(self.ha_master_address)):
            raise ConfigError(fault, key="haMasterAddress")
        if self.ha_housekeeping_interval < 2 * self.ha_send_heartbeat_interval:
            raise ConfigError(
                "must be at least twice haSendHeartbeatInterval, or idle connections are closed",
                key="haHousekeepingInterval",
            )

    @cached_property
    def allowed_networks(self) -> Networks:
        """Networks in `ha_allowed_peers`.

        Raises:
            ConfigError: a part is not an address or a network.
        """
        parts = [part.strip() for part in self.ha_allowed_peers.split(";")]
        try:
            return tuple(ipaddress.ip_network(part, strict=False) for part in parts if part)
        except ValueError as error:
            raise ConfigError(
                f"must be IP addresses or networks with ; between: {error}", key="haAllowedPeers"
            ) from error

    def allows_classic(self, ip: str) -> bool:
        """Return whether a peer at an address may speak a protocol of Apache's, without a proof."""
        try:
            address = ipaddress.ip_address(ip)
        except ValueError:
            return False
        # An IPv4 peer of an IPv6 socket is listed by its IPv4 address.
        mapped = getattr(address, "ipv4_mapped", None) or address
        return any(mapped in network for network in self.allowed_networks)

    @property
    def needed_copies(self) -> dict[str, int]:
        """Values, by key, of the settings that need more copies than the master's."""
        found = {
            "inSyncReplicas": self.in_sync_replicas,
            "minInSyncReplicas": self.min_in_sync_replicas,
        }
        return {key: copies for key, copies in found.items() if copies > 1}

    @property
    def allows_slaves(self) -> bool:
        """Whether a master with these settings opens its HA port."""
        return bool(self.replication_secret_file or self.ha_tls_enable or self.allowed_networks)

    @property
    def has_pair_protocol(self) -> bool:
        """Whether peers can prove themselves: a secret, or TLS."""
        return bool(self.replication_secret_file or self.ha_tls_enable)

    def read_secret(self, files: StoreFiles) -> bytes:
        """Return the secret, without blanks around it; empty without a file.

        Raises:
            ConfigError: the file cannot be read, or the secret is too short.
        """
        if not self.replication_secret_file:
            return b""
        key = "replicationSecretFile"
        try:
            secret = files.read_bytes(Path(self.replication_secret_file)).strip()
        except OSError as error:
            raise ConfigError(
                f"cannot read {self.replication_secret_file}: {error.strerror or error}", key=key
            ) from error
        if len(secret) < LEAST_SECRET_BYTES:
            reason = f"the file must hold at least {LEAST_SECRET_BYTES} bytes"
            raise ConfigError(f"{reason}, not {len(secret)}; try: openssl rand -hex 32", key=key)
        return secret


class HaProtocol(Enum):
    """Protocol between a master and a slave, as 907 and logs name it."""

    PAIR = "pair"
    AUTO_SWITCH = "autoswitch"
    CLASSIC = "classic"


class BrokerRole(Enum):
    """Role of a broker, by the values of `brokerRole`."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"

    @property
    def is_slave(self) -> bool:
        """Whether the broker copies a master instead of accepting messages."""
        return self is BrokerRole.SLAVE


def role_of(config: BrokerConfig, store: MessageStoreConfig) -> BrokerRole:
    """Return the role that the settings describe.

    Raises:
        ConfigError: `brokerRole` and `brokerId` contradict each other; the key is named.
    """
    role = BrokerRole(store.broker_role)
    if role.is_slave and config.broker_id == MASTER_ID:
        raise ConfigError("must be 1 or more, because brokerRole is SLAVE", key="brokerId")
    if not role.is_slave and config.broker_id != MASTER_ID:
        reason = (
            f"must be 0, because brokerRole is {role.value}; "
            "a broker that copies a master has brokerRole=SLAVE"
        )
        raise ConfigError(reason, key="brokerId")
    return role


def check_replication(
    config: BrokerConfig, store: MessageStoreConfig, replication: ReplicationConfig
) -> BrokerRole:
    """Return the role of a broker.

    Args:
        config: settings of the broker.
        store: settings of its store.
        replication: settings of its replication.

    Raises:
        ConfigError: two settings contradict each other; the key is named.
    """
    role = role_of(config, store)
    if role.is_slave and not replication.allows_slaves:
        reason = f"SLAVE needs {_PEERS}, by which the master and the slave know each other"
        raise ConfigError(reason, key="brokerRole")
    for key, copies in replication.needed_copies.items():
        if role is BrokerRole.SYNC_MASTER and not replication.allows_slaves:
            reason = f"{copies} copies need slaves, and none may connect: set {_PEERS}"
            raise ConfigError(reason, key=key)
        if 1 < config.total_replicas < copies:
            reason = f"must not exceed totalReplicas ({config.total_replicas})"
            raise ConfigError(reason, key=key)
    return role
