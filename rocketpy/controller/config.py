"""Settings of a controller.

Source: ControllerConfig (5.4.0); RocketPy's additional keys are marked with (ours).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

from rocketpy.controller.names import is_address
from rocketpy.errors import ConfigError
from rocketpy.remoting.config import RemotingServerConfig
from rocketpy.runtime.config.config import option
from rocketpy.runtime.config.live_config import LIVE_FILE_NAME
from rocketpy.runtime.config.operation import OperationConfig
from rocketpy.runtime.config.values import is_wildcard

DEFAULT_PORT: Final = 9878
_PORT_OF_PEER: Final = -1
_ONE_PEER: Final = (
    "RocketPy's controllers do not speak DLedger's protocol: name this controller alone, as in "
    "n0-10.0.0.1:9878, or use controllerStorage=etcd for several controllers"
)


class Peer(NamedTuple):
    """Controller in `controllerDLegerPeers`.

    Attributes:
        id: its name, such as n0.
        address: `host:port` for brokers and tools.
    """

    id: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """Settings of a controller.

    Attributes:
        controller_type: DLedger only, which names the keys of the address.
        controller_dleger_group: name of the controller group, for display.
        controller_dleger_peers: id and address of this controller, `n0-host:port`; brokers and
            tools connect there. Without it they get the address that it listens on. With
            `controllerStorage=etcd` those of all controllers, separated by semicolons.
        controller_dleger_self_id: id of this controller; must be one of the peers.
        controller_storage: where the state is: `local`, in `controllerStorePath`, for a single
            controller; `etcd`, for one of several, of which etcd names the leader (ours).
        etcd_endpoints: `http://host:port` of each member of etcd, separated by semicolons (ours).
        controller_listen_port: port to listen on; -1: that of the peer, or 9878 without one; 0
            chooses a free one (ours).
        controller_store_path: directory of the state, `controller.log`; created if it does not
            exist (default `~/controller`).
        scan_not_active_broker_interval: ms, longest time between two checks for masters that are
            gone. A check also runs when a heartbeat is overdue or a connection closes.
        enable_elect_unclean_master: elect a replica outside the sync-state set when no member of
            it is alive; acknowledged messages are lost.
        notify_broker_role_changed: notify brokers of an election at once.
        max_broker_groups: limit of broker groups; further ones are refused (ours).
        server: settings of the remoting server, except its port.
        operation: keys of logs and health.
    """

    controller_type: str = "DLedger"
    controller_dleger_group: str = option("controller", key="controllerDLegerGroup")
    controller_dleger_peers: str = option("", key="controllerDLegerPeers")
    controller_dleger_self_id: str = option("", key="controllerDLegerSelfId")
    controller_storage: str = option("local", choices=("local", "etcd"))
    etcd_endpoints: str = ""
    controller_listen_port: int = option(_PORT_OF_PEER, minimum=_PORT_OF_PEER, maximum=65_535)
    controller_store_path: str = option("", path=True)
    scan_not_active_broker_interval: int = option(5_000, minimum=100, maximum=60_000, unit="ms")
    enable_elect_unclean_master: bool = option(False, live=True)
    notify_broker_role_changed: bool = option(True, live=True)
    max_broker_groups: int = option(1_024, live=True, minimum=1, maximum=100_000)
    server: RemotingServerConfig = field(default_factory=RemotingServerConfig)
    operation: OperationConfig = field(default_factory=OperationConfig)

    def __post_init__(self) -> None:
        """Check combinations, and refuse what only Apache's controller can do.

        Raises:
            ConfigError: a key that cannot be honoured.
        """
        if self.controller_type.lower() != "dledger":
            raise ConfigError(
                f"{self.controller_type!r} is a group of controllers with a protocol that "
                "RocketPy does not speak: remove the key, and write the address of this "
                "controller as controllerDLegerPeers=n0-host:port",
                key="controllerType",
            )
        texts = [text.strip() for text in self.controller_dleger_peers.split(";") if text.strip()]
        for text in texts:
            if _peer(text) is None:
                raise ConfigError(
                    f"{text!r} is not id-host:port, as in n0-10.0.0.1:9878",
                    key="controllerDLegerPeers",
                )
            if is_wildcard(text.partition("-")[2].rpartition(":")[0]):
                raise ConfigError(
                    f"{text!r} stands for every address of this machine, and brokers cannot "
                    "connect to it: write the address by which they reach this controller; "
                    "bindAddress says where it listens",
                    key="controllerDLegerPeers",
                )
        is_shared = self.controller_storage == "etcd"
        if len(texts) > 1 and not is_shared:
            raise ConfigError(_ONE_PEER, key="controllerDLegerPeers")
        if self.peers and self.peer is None:
            raise ConfigError(
                f"{self.controller_dleger_self_id!r} must be one of controllerDLegerPeers, which "
                f"names {', '.join(each.id for each in self.peers)}",
                key="controllerDLegerSelfId",
            )
        if is_shared and not self.etcd_endpoints.strip(" ;"):
            raise ConfigError(
                "etcd needs the addresses of its members in etcdEndpoints, such as "
                "http://10.0.0.1:2379;http://10.0.0.2:2379",
                key="controllerStorage",
            )

    def config_warnings(self) -> Iterator[tuple[str, str]]:
        """Yield keys whose values have no effect, and why."""
        return self.server.config_warnings()

    @property
    def peers(self) -> list[Peer]:
        """All controllers of `controllerDLegerPeers`; empty without it."""
        found = map(_peer, map(str.strip, self.controller_dleger_peers.split(";")))
        return [each for each in found if each is not None]

    @property
    def peer(self) -> Peer | None:
        """This controller in `controllerDLegerPeers`, or None."""
        peers, own = self.peers, self.controller_dleger_self_id
        if len(peers) == 1 and not own:
            return peers[0]
        return next((each for each in peers if each.id == own), None)

    @property
    def listen_port(self) -> int:
        """Port to listen on; 0 for any free one."""
        if self.controller_listen_port != _PORT_OF_PEER:
            return self.controller_listen_port
        return DEFAULT_PORT if self.peer is None else int(self.peer.address.rpartition(":")[2])

    @property
    def remoting(self) -> RemotingServerConfig:
        """Settings of the remoting server with its port, on one event loop.

        The state belongs to one loop; a controller has too little to do for more.
        """
        return replace(self.server, listen_port=self.listen_port, server_selector_threads=1)

    @property
    def store_directory(self) -> Path:
        """Directory of the state."""
        return Path(self.controller_store_path or Path.home() / "controller")

    @property
    def live_settings_file(self) -> Path:
        """File of settings that were changed at run time, in the directory of the state."""
        return self.store_directory / LIVE_FILE_NAME


def _peer(text: str) -> Peer | None:
    """Parse `id-host:port`; return None for other texts."""
    identifier, _, address = text.partition("-")
    return Peer(identifier, address) if identifier and is_address(address) else None
