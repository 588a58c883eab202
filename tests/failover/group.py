"""Processes of the rounds: a broker group, its controllers, a name server, and etcd."""

import signal
import subprocess
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from rocketpy.proto.bodies.controller import SyncStateSet
from rocketpy.proto.headers.controller import (
    GetMetaDataResponseHeader,
    GetReplicaInfoRequestHeader,
)
from rocketpy.proto.headers.controller import GetReplicaInfoResponseHeader as ReplicaInfo
from rocketpy.proto.replication.epochs import Epochs, decode_epochs
from rocketpy.proto.wire.codes import RequestCode
from rocketpy.proto.wire.command import RemotingCommand
from rocketpy.store.replication.epoch_file import EPOCH_FILE
from tests.bad_input.kit import Wire
from tests.etcd import etcd_program
from tests.failover.network import Network
from tests.failover.skewed import MODULE, Skew
from tests.integration.broker.failover_group import (
    CONTROLLER,
    NAME,
    NAMESRV,
    FailoverGroup,
    Process,
)
from tests.integration.client.daemons import Daemon, Place

CLIENT = "client"
SECOND_CONTROLLER = "controller-1"
REPLICAS = ("replica-0", "replica-1", "replica-2")
ETCD = ("etcd-0", "etcd-1", "etcd-2")
HEARTBEAT_TIMEOUT_MS = 2_000
NOT_CAUGHT_UP_MS = 5_000
_ANSWER_LIMIT_S = 2.0
_START_LIMIT_S = 120.0
_CONTROLLER_PORT, _ETCD_PORT, _ETCD_PEER_PORT = 9878, 2379, 2380


def names(*, etcd: bool) -> list[str]:
    """Return the names of all processes, and of the clients."""
    more = [SECOND_CONTROLLER, *ETCD] if etcd else []
    return [CLIENT, CONTROLLER, NAMESRV, *REPLICAS, *more]


class Etcd:
    """Member of an etcd cluster.

    Args:
        directory: of its data and log.
        name: of the member.
        network: where the members are.
    """

    def __init__(self, directory: Path, name: str, network: Network) -> None:
        program = etcd_program("etcd")
        assert program is not None, "needs etcd (make etcd)"
        host = network.host(name)
        self._log = directory / f"{name}.log"
        self.endpoint = f"http://{host}:{_ETCD_PORT}"
        peers = {each: f"http://{network.host(each)}:{_ETCD_PEER_PORT}" for each in ETCD}
        self._command = [
            *network.prefix(name), program, "--name", name, "--data-dir", str(directory / name),
            "--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint,
            "--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name],
            "--initial-cluster", ",".join(f"{each}={url}" for each, url in peers.items()),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def wait(self) -> None:
        """Wait until it serves, with a leader."""
        deadline = time.monotonic() + _START_LIMIT_S
        while not self._is_healthy():
            assert time.monotonic() < deadline, f"etcd does not serve: {self._log}"
            time.sleep(0.1)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)
        if number in {signal.SIGKILL, signal.SIGTERM}:
            self._process.wait(60)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(60)

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class RoundsGroup(FailoverGroup):
    """Three replicas and their controllers, each process with a separate address and clocks.

    Args:
        directory: of everything.
        network: where the processes are; None: all on loopback.
        flush: `flushDiskType` of the replicas.
        has_etcd: whether two controllers share their state in three members of etcd.

    Attributes:
        network: as given.
        skews: clocks, by the names of the processes.
        controllers: names of the controllers by their addresses.
        etcd: names of the members of etcd.
    """

    def __init__(
        self, directory: Path, network: Network | None, *, flush: str, has_etcd: bool = False
    ) -> None:
        self.network = network
        self.skews: dict[str, Skew] = {}
        self._files = directory
        self._first_file = ""
        self.etcd: Sequence[str] = ETCD if has_etcd else ()
        shared, servers = self._shared_controllers(directory) if has_etcd else (None, {})
        super().__init__(
            directory, len(REPLICAS), self._place, shared,
            flushDiskType=flush, controllerHeartBeatTimeoutMills=str(HEARTBEAT_TIMEOUT_MS),
            haMaxTimeSlaveNotCatchup=str(NOT_CAUGHT_UP_MS),
        )  # fmt: skip
        self._daemons = {**servers, **self._daemons}
        known = [name for name in (CONTROLLER, SECOND_CONTROLLER) if name in self._daemons]
        self.controllers = dict(zip(self.controller.split(";"), known, strict=True))

    def wait_for_etcd(self) -> None:
        """Wait until every member of etcd serves."""
        for name in self.etcd:
            member = self._daemons[name]
            assert isinstance(member, Etcd)
            member.wait()

    def log_end(self, name: str) -> bytes:
        """Return the commit log from the file on that `forget_equal` names."""
        files = sorted((self.directory / name / "commitlog").glob("*"))
        new = [each for each in files if each.name >= self._first_file]
        return b"".join(each.read_bytes() for each in new).rstrip(b"\0")

    def forget_equal(self) -> None:
        """Compare no more than the last file again: no replica cuts what all of the set have."""
        files = (self.directory / REPLICAS[0] / "commitlog").glob("*")
        self._first_file = max((each.name for each in files), default="")

    def info(self) -> tuple[ReplicaInfo, set[int]]:
        """Return the master and the sync-state set, as the leading controller has stored them."""
        fields = GetReplicaInfoRequestHeader(broker_name=NAME).to_ext()
        for address in self.controllers:
            answer = ask(address, RequestCode.CONTROLLER_GET_REPLICA_INFO, fields)
            if answer is not None and answer.code == 0:
                members = SyncStateSet.decode(answer.body).sync_state_set
                return ReplicaInfo.from_ext(answer.ext_fields), members
        return ReplicaInfo(), set()

    @property
    def leader(self) -> str | None:
        """Name of the controller that leads; None without one."""
        for address, name in self.controllers.items():
            answer = ask(address, RequestCode.CONTROLLER_GET_METADATA_INFO, {})
            if answer is None or answer.code != 0:
                continue
            if GetMetaDataResponseHeader.from_ext(answer.ext_fields).is_leader:
                return name
        return None

    def epochs(self) -> Epochs:
        """Return the epoch list, which is the same on all replicas of a healed group."""
        return decode_epochs((self.directory / REPLICAS[0] / EPOCH_FILE).read_bytes())

    def _place(self, name: str) -> Place:
        skew = self.skews[name] = Skew(self._files / f"{name}.clock")
        module = (MODULE, str(skew.path))
        if self.network is None:
            return Place(module=module)
        return Place(self.network.host(name), self.network.prefix(name), module)

    def _shared_controllers(
        self, directory: Path
    ) -> tuple[tuple[str, Process], dict[str, Process]]:
        """Return the addresses and first of two controllers, and what is started before it."""
        assert self.network is not None, "etcd needs a network of namespaces"
        members = {name: Etcd(directory, name, self.network) for name in ETCD}
        places = {name: self._place(name) for name in (CONTROLLER, SECOND_CONTROLLER)}
        addresses = [f"{place.host}:{_CONTROLLER_PORT}" for place in places.values()]
        peers = ";".join(f"n{number}-{each}" for number, each in enumerate(addresses))
        endpoints = ";".join(each.endpoint for each in members.values())
        first, second = (
            Daemon(
                directory / f"{name}.log", "controller", "-D", f"bindAddress={place.host}",
                "-D", f"controllerDLegerPeers={peers}", "-D", f"controllerDLegerSelfId=n{number}",
                "-D", "controllerStorage=etcd", "-D", f"etcdEndpoints={endpoints}",
                "-D", f"controllerStorePath={directory / name}", place=place,
            )
            for number, (name, place) in enumerate(places.items())
        )  # fmt: skip
        return (";".join(addresses), first), {**members, SECOND_CONTROLLER: second}


def ask(address: str, code: int, fields: dict[str, str]) -> RemotingCommand | None:
    """Return the answer of a controller; None without one."""
    try:
        with Wire(address) as peer:
            peer.socket.settimeout(_ANSWER_LIMIT_S)
            return peer.call(code, fields)
    except (OSError, EOFError):
        return None
