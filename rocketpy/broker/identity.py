"""Who this broker is on the network; the port is known only once it listens."""

import socket

from rocketpy.broker.config import BrokerConfig
from rocketpy.remoting.channel import format_address, host_bytes

__all__ = ["BrokerIdentity", "local_ip"]

_SOMEWHERE = ("192.0.2.1", 9)
"""An address that is nobody's (RFC 5737): asking for the way there sends nothing."""


class BrokerIdentity:
    """Names and addresses of this broker.

    Attributes:
        cluster_name: its cluster.
        broker_name: its name.
        broker_id: 0 is the master.
        ip: the address told to clients.
        address: ``ip:port`` told to clients; empty before `listens_on`.
        ha_address: ``ip:port`` for slaves.
        store_host: `address` as it stands in records, 8 or 20 bytes; empty before `listens_on`.
    """

    __slots__ = (
        "address", "broker_id", "broker_name", "cluster_name", "ha_address", "ip", "store_host",
    )  # fmt: skip

    def __init__(self, config: BrokerConfig) -> None:
        self.cluster_name = config.broker_cluster_name
        self.broker_name = config.broker_name
        self.broker_id = config.broker_id
        self.ip = config.broker_ip1 or local_ip()
        self.ha_address = format_address(config.broker_ip2 or self.ip, config.ha_listen_port)
        self.address = ""
        self.store_host = b""

    def listens_on(self, port: int) -> None:
        """Note the port, which completes the address."""
        self.address = format_address(self.ip, port)
        self.store_host = host_bytes(self.ip, port)


def local_ip() -> str:
    """This machine's address on its way out; 127.0.0.1 when there is no way out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_SOMEWHERE)
        except OSError:
            return "127.0.0.1"
        ip: str = probe.getsockname()[0]
    return ip
