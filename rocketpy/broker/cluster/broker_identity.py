"""Names and addresses of this broker; the port is known only after it listens.

`brokerIP1` may be a host name (containers have no fixed address): clients get the name, records
get the address that it has when the broker starts.
"""

import socket

from rocketpy.broker.config import BrokerConfig
from rocketpy.errors import StartError
from rocketpy.remoting.connection.channel import format_address, host_bytes
from rocketpy.runtime.os_resources import DESCRIPTOR_LIMIT_NAMES, has_descriptor, local_ip


class BrokerIdentity:
    """Names and addresses of this broker.

    Attributes:
        cluster_name: name of the cluster.
        broker_name: name of the broker.
        broker_id: 0 is the master.
        ha_port: port for slaves; 0 before `listens_on`, unless it is configured.
        ip: address (or host name) for clients.
        address: `ip:port` (or `name:port`) for clients; empty before `listens_on`.
        ha_address: `ip:port` for slaves; complete after `listens_on`.
        store_host: the address in the format of records, 8 or 20 bytes; empty before `listens_on`.
    """

    __slots__ = (
        "_ha_ip", "address", "broker_id", "broker_name", "cluster_name", "ha_address",
        "ha_port", "ip", "store_host",
    )  # fmt: skip

    def __init__(self, config: BrokerConfig) -> None:
        self.cluster_name: str = config.broker_cluster_name
        self.broker_name: str = config.broker_name
        self.broker_id: int = config.broker_id
        self.ip: str = config.broker_ip1 or local_ip()
        self._ha_ip = config.broker_ip2 or self.ip
        self.ha_port: int = config.ha_listen_port
        self.ha_address: str = format_address(self._ha_ip, self.ha_port)
        self.address: str = ""
        self.store_host: bytes = b""

    def listens_on(self, port: int) -> None:
        """Set the port, which completes the addresses.

        Raises:
            StartError: `brokerIP1` is a host name that cannot be resolved.
        """
        self.store_host = host_bytes(address_of(self.ip, "brokerIP1"), port)
        self.address = format_address(self.ip, port)
        if not self.ha_port:
            self.ha_port = port + 1
        self.ha_address = format_address(self._ha_ip, self.ha_port)


def address_of(host: str, key: str) -> str:
    """Return the address of a host, preferably IPv4; an address is returned unchanged.

    Args:
        host: name or address.
        key: configuration key that names it, for the error.

    Raises:
        StartError: the name cannot be resolved.
    """
    # Bytes, because text loads the tables of international names even if it is ASCII.
    asked = host.encode() if host.isascii() else host
    try:
        found = socket.getaddrinfo(asked, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        if not has_descriptor():
            # The resolver reports a missing descriptor as an unknown name.
            reason = f"no file descriptor is left: raise {DESCRIPTOR_LIMIT_NAMES}"
            raise StartError(reason) from error
        reason = f"{key}: the host name {host!r} cannot be resolved to an address: {error}"
        raise StartError(reason) from error
    addresses = sorted(found, key=lambda each: each[0] != socket.AF_INET)
    return str(addresses[0][4][0])
