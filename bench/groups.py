"""Groups of two replicas with a controller: every message is acknowledged by a set of two."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bench.pairs import Pair, ends_of
from bench.processes import Side, start_apache, start_rocketpy
from bench.workloads import Goal, Workload
from rocketpy.proto.bodies.controller import BrokerReplicasInfo
from rocketpy.proto.wire import fastjson
from rocketpy.proto.wire.codes import RequestCode
from tests.bad_input.kit import Wire
from tests.interop.controller.apache_controller import ApacheController
from tests.ports import free_port

__all__ = ["GROUPS", "start_apache_group", "start_rocketpy_group"]

_CONTROLLER: Final = ("enableControllerMode=true", "allAckInSyncStateSet=true")
_NAME: Final = "bench-a"
_LIMIT_S: Final = 120.0

GROUPS = (
    Workload(
        "set-sync-32",
        "controller, a set of two, sync, 32 callers, 100 B",
        ("send", "sync", "32", "100"),
        goal=Goal(1.3, 0.4),
        defines=_CONTROLLER,
    ),
    Workload(
        "set-async",
        "controller, a set of two, async, 256 in flight, 100 B",
        ("send", "async", "256", "100"),
        goal=Goal(1.3, 0.4),
        defines=_CONTROLLER,
    ),
)
"""Workloads of two replicas with a controller; processor time is that of both brokers."""


class _ControllerSide(Side):
    """Apache's controller, which is started and stopped with the brokers."""

    def __init__(self, controller: ApacheController, home: Path) -> None:
        super().__init__("apache", "", {}, 0.0, {}, home)
        self._controller = controller

    def stop(self) -> None:
        self._controller.end()


def start_rocketpy_group(home: Path, defines: Sequence[str]) -> Pair:
    """Start a name server with a controller, and two replicas of RocketPy."""
    home.mkdir(parents=True)
    secret = home / "secret"
    secret.write_text("f" * 64)
    address = f"127.0.0.1:{free_port()}"
    servers = start_rocketpy(
        home / "namesrv",
        [
            "bindAddress=127.0.0.1", "enableControllerInNamesrv=true",
            f"dataDir={home / 'namesrv' / 'data'}", f"controllerDLegerPeers=n0-{address}",
            f"controllerStorePath={home / 'controller'}",
        ],
        settles_s=0.0,
        verb=["namesrv", "-p", "0"],
    )  # fmt: skip

    def start_replica(number: int) -> Side:
        own = [
            f"brokerName={_NAME}", "brokerIP1=127.0.0.1", "bindAddress=127.0.0.1",
            f"replicationSecretFile={secret}", f"controllerAddr={address}",
            f"listenPort={free_port()}", f"haListenPort={free_port()}",
            f"storePathRootDir={home / str(number) / 'store'}", *defines,
        ]  # fmt: skip
        verb = ["broker", "-n", servers.namesrv]
        return start_rocketpy(home / str(number), own, verb=verb, settles_s=0.5)

    return _group("rocketpy", servers.namesrv, servers, start_replica, address)


def start_apache_group(home: Path, heap: str, defines: Sequence[str]) -> Pair:
    """Start a controller, a name server and two replicas of Apache, and an idle name server."""
    home.mkdir(parents=True)
    controller = ApacheController(home / "controller")
    controller.start()
    servers = _ControllerSide(controller, home)

    def start_replica(number: int, namesrv: str = "") -> Side:
        own = [
            f"brokerName={_NAME}", f"controllerAddr={controller.address}",
            f"haListenPort={free_port()}", *defines,
        ]  # fmt: skip
        if namesrv:
            own.append(f"namesrvAddr={namesrv}")
        return start_apache(home / str(number), heap, own)

    first: list[str] = []

    def start_next(number: int) -> Side:
        side = start_replica(number, *first)
        first.append(side.namesrv)
        del first[1:]
        return side

    return _group("apache", "", servers, start_next, controller.address)


def _group(
    name: str, namesrv: str, servers: Side, start: Callable[[int], Side], controller: str
) -> Pair:
    parts = [servers]
    try:
        parts += [start(1)]
        parts += [start(2)]
        one, two = parts[1:]
        pair = Pair(
            name,
            namesrv or one.namesrv,
            {"broker": one.pids["broker"], "broker-slave": two.pids["broker"]},
            one.ready_s,
            {"broker": one.idle_rss_mib["broker"], "broker-slave": two.idle_rss_mib["broker"]},
            one.home,
            sends=one.sends,
            broker=one.broker,
            ready_at_s=one.ready_at_s,
            parts=parts,
        )
        _wait_for_set(pair, controller)
    except BaseException:
        for each in reversed(parts):
            each.stop()
        raise
    return pair


def _wait_for_set(pair: Pair, controller: str) -> None:
    """Wait until both replicas are in the sync-state set, and registered."""
    deadline = time.monotonic() + _LIMIT_S
    while True:
        with Wire(controller) as peer:
            body = fastjson.dumps([_NAME])
            response = peer.call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {}, body)
        found = BrokerReplicasInfo.decode(response.body).replicas_info_table.get(_NAME)
        if found is not None and len(found.in_sync_replicas) == 2 and min(ends_of(pair)) >= 0:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"the replicas of {pair.name} do not join: {found}")
        time.sleep(0.2)
