"""A controller, a name server and replicas of one broker group as processes."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rocketpy.proto.bodies.controller import SyncStateSet
from rocketpy.proto.headers.controller import GetReplicaInfoRequestHeader
from rocketpy.proto.headers.controller import GetReplicaInfoResponseHeader as ReplicaInfo
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.testing.cluster import SMALL_STORE
from tests.bad_input.kit import Wire
from tests.integration.client.daemons import LOOPBACK, Daemon, Place
from tests.ports import free_port

NAME = "broker-a"
CONTROLLER, NAMESRV = "controller", "namesrv"


class Process(Protocol):
    """Server process of a group."""

    def start(self) -> None:
        """Start it; returns when it is ready."""
        ...

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; wait for the end of a process that is killed or stopped."""
        ...

    def end(self) -> None:
        """Kill it; idempotent."""
        ...


class FailoverGroup:
    """Processes of a group.

    Args:
        directory: of everything.
        replicas: number of replicas.
        place: where the process of a name runs.
        controller: address and process of another controller than ours.
        properties: settings of the replicas.

    Attributes:
        directory: of everything.
        namesrv: `host:port` of the name server.
        controller: `host:port` of the controller.
        replicas: names of the replicas here, by their addresses.
    """

    def __init__(
        self,
        directory: Path,
        replicas: int,
        place: Callable[[str], Place] = lambda _: LOOPBACK,
        /,
        controller: "tuple[str, Process] | None" = None,
        **properties: str,
    ) -> None:
        self.directory = directory
        secret = directory / "secret"
        secret.write_text("0123456789abcdef0123456789abcdef\n")
        names, decider = place(NAMESRV), place(CONTROLLER)
        names_port, controller_port = free_port(), free_port()
        self.namesrv = f"{names.host}:{names_port}"
        self.controller = f"{decider.host}:{controller_port}"
        ours: Process = Daemon(
            directory / "controller.log", "controller", "-p", str(controller_port),
            "-D", f"bindAddress={decider.host}",
            "-D", f"controllerStorePath={directory / 'controller'}", place=decider,
        )  # fmt: skip
        if controller is not None:
            self.controller, ours = controller
        self._daemons: dict[str, Process] = {
            CONTROLLER: ours,
            NAMESRV: Daemon(
                directory / "namesrv.log", "namesrv", "-p", str(names_port),
                "-D", f"bindAddress={names.host}",
                "-D", f"dataDir={directory / 'namesrv'}", place=names,
            ),
        }  # fmt: skip
        self.replicas: dict[str, str] = {}
        for number in range(replicas):
            name, port = f"replica-{number}", free_port()
            here = place(name)
            values = {
                **SMALL_STORE,
                "brokerName": NAME,
                "brokerIP1": here.host,
                "bindAddress": here.host,
                "listenPort": str(port),
                # Not the next port, so that replicas have to ask for it.
                "haListenPort": str(free_port()),
                "storePathRootDir": str(directory / name),
                "slaveReadEnable": "true",
                "enableControllerMode": "true",
                "controllerAddr": self.controller,
                "replicationSecretFile": str(secret),
                **properties,
            }
            settings = [word for pair in values.items() for word in ("-D", "=".join(pair))]
            self.replicas[f"{here.host}:{port}"] = name
            log = directory / f"{name}.log"
            self._daemons[name] = Daemon(log, "broker", "-n", self.namesrv, *settings, place=here)

    @contextmanager
    def running(self) -> Iterator["FailoverGroup"]:
        """Start all, and end all in any case."""
        try:
            for daemon in self._daemons.values():
                daemon.start()
            yield self
        finally:
            for daemon in self._daemons.values():
                daemon.end()

    def address(self, name: str) -> str:
        """Return `host:port` of a replica."""
        return next(address for address, each in self.replicas.items() if each == name)

    def start(self, name: str) -> None:
        self._daemons[name].start()

    def signal(self, name: str, number: signal.Signals) -> None:
        self._daemons[name].signal(number)

    def log_end(self, name: str) -> bytes:
        """Return the commit log of a replica, without the zeros of its last file."""
        files = sorted((self.directory / name / "commitlog").glob("*"))
        return b"".join(each.read_bytes() for each in files).rstrip(b"\0")

    def info(self) -> tuple[ReplicaInfo, set[int]]:
        """Return the master and the sync-state set, as the controller has stored them."""
        fields = GetReplicaInfoRequestHeader(broker_name=NAME).to_ext()
        with Wire(self.controller) as peer:
            response = peer.call(RequestCode.CONTROLLER_GET_REPLICA_INFO, fields)
        if response.code != 0:
            return ReplicaInfo(), set()
        return (
            ReplicaInfo.from_ext(response.ext_fields),
            SyncStateSet.decode(response.body).sync_state_set,
        )

    @property
    def master(self) -> str | None:
        """Name of the master here; None without one."""
        return self.replicas.get(self.info()[0].master_address or "")
