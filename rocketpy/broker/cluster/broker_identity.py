"""Who this broker is on the network; the port is known only once it listens.

``brokerIP1`` may be a host name (containers have no fixed address): clients are told the name,
records get the address it has when the broker starts.
"""

import socket

from rocketpy.broker.config import BrokerConfig
from rocketpy.errors import StartError
from rocketpy.remoting.connection.channel import format_address, host_bytes

_SOMEWHERE = ("192.0.2.1", 9)
"""An address that is nobody's (RFC 5737): asking for the way there sends nothing."""


class BrokerIdentity:
    """Names and addresses of this broker.

    Attributes:
        cluster_name: its cluster.
        broker_name: its name.
        broker_id: 0 is the master.
        ip: the address (or host name) told to clients.
        address: ``ip:port`` (or ``name:port``) told to clients; empty before `listens_on`.
        ha_address: ``ip:port`` for slaves.
        store_host: that as it stands in records, 8 or 20 bytes; empty before `listens_on`.
    """

    __slots__ = (
        "address", "broker_id", "broker_name", "cluster_name", "ha_address", "ip", "store_host",
    )  # fmt: skip

    def __init__(self, config: BrokerConfig) -> None:
        self.cluster_name: str = config.broker_cluster_name
        self.broker_name: str = config.broker_name
        self.broker_id: int = config.broker_id
        self.ip: str = config.broker_ip1 or local_ip()
        self.ha_address: str = format_address(config.broker_ip2 or self.ip, config.ha_listen_port)
        self.address: str = ""
        self.store_host: bytes = b""

    def listens_on(self, port: int) -> None:
        """Note the port, which completes the address.

        Raises:
            StartError: ``brokerIP1`` is a host name that nobody knows.
        """
        self.store_host = host_bytes(_resolved(self.ip), port)
        self.address = format_address(self.ip, port)


def _resolved(host: str) -> str:
    """The address of a host, an IPv4 one when it has several kinds; addresses stay as they are."""
    # Text loads the tables of international names, whatever it says.
    asked = host.encode() if host.isascii() else host
    try:
        found = socket.getaddrinfo(asked, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = f"brokerIP1: the host name {host!r} cannot be resolved to an address: {error}"
        raise StartError(reason) from error
    addresses = sorted(found, key=lambda each: each[0] != socket.AF_INET)
    return str(addresses[0][4][0])


def local_ip() -> str:
    """This machine's address on its way out; 127.0.0.1 when there is no way out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_SOMEWHERE)
        except OSError:
            return "127.0.0.1"
        ip: str = probe.getsockname()[0]
    return ip
