"""Pairs of a master and a slave on both sides, and how fast an empty slave catches up.

The Apache side has a second name server, which is idle: its start script knows no slave alone.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import rocketpy.admin.sync
from bench.processes import Side, start_apache, start_rocketpy
from bench.workloads import Goal, Workload
from tests.ports import free_port

__all__ = ["PAIRS", "Pair", "catch_up", "ends_of", "start_apache_pair", "start_rocketpy_pair"]

_SYNC = ("brokerRole=SYNC_MASTER", "inSyncReplicas=2")
_ASYNC = ("brokerRole=ASYNC_MASTER",)
_SLAVE: Final = ("brokerRole=SLAVE", "brokerId=1")
_NAME: Final = "bench-a"
_LIMIT_S: Final = 120.0
_POLL_S: Final = 0.05
_MIB: Final = 1 << 20

PAIRS = (
    Workload(
        "pair-sync-32",
        "SYNC_MASTER, two copies, sync, 32 callers, 100 B",
        ("send", "sync", "32", "100"),
        goal=Goal(1.3, 0.4),
        defines=_SYNC,
    ),
    Workload(
        "pair-async",
        "SYNC_MASTER, two copies, async, 256 in flight, 100 B",
        ("send", "async", "256", "100"),
        goal=Goal(1.3, 0.4),
        defines=_SYNC,
    ),
    Workload(
        "async-master",
        "ASYNC_MASTER with a slave, async, 256 in flight, 100 B",
        ("send", "async", "256", "100"),
        goal=Goal(1.5, 0.4),
        defines=_ASYNC,
    ),
)
"""Workloads of a master with one slave; processor time is that of both brokers."""


@dataclass(kw_only=True)
class Pair(Side):
    """Running master and slave; the processor time is that of both.

    Attributes:
        parts: all sides in the order of their starts.
        start_slave: starts the slave again on its directory; None where it is not emptied.
        slave_store: store directory of the slave.
    """

    parts: list[Side]
    start_slave: Callable[[], Side] | None = None
    slave_store: Path = Path()

    def stop(self) -> None:
        """Stop all, the last one first."""
        for each in reversed(self.parts):
            each.stop()

    def renew_slave(self, part: Side) -> None:
        """Count another process as the slave."""
        self.parts[1] = part
        self.pids = {**self.pids, "broker-slave": part.pids["broker"]}


def start_rocketpy_pair(home: Path, defines: Sequence[str]) -> Pair:
    """Start a pair of RocketPy: `rocketpy standalone` and a slave beside it."""
    home.mkdir(parents=True)
    secret = home / "secret"
    secret.write_text("f" * 64)
    ha_port = free_port()
    shared = [
        f"brokerName={_NAME}", "brokerIP1=127.0.0.1", "bindAddress=127.0.0.1",
        f"replicationSecretFile={secret}",
    ]  # fmt: skip
    master = start_rocketpy(
        home / "master", [*shared, f"haListenPort={ha_port}", *defines], settles_s=0.5
    )
    own = [
        *shared, *_SLAVE, f"haMasterAddress=127.0.0.1:{ha_port}", f"haListenPort={free_port()}",
        f"listenPort={free_port()}", f"storePathRootDir={home / 'slave' / 'store'}",
    ]  # fmt: skip

    def start_slave() -> Side:
        verb = ["broker", "-n", master.namesrv]
        return start_rocketpy(home / "slave", own, verb=verb)

    return _pair(master, start_slave, home / "slave" / "store")


def start_apache_pair(home: Path, heap: str, defines: Sequence[str]) -> Pair:
    """Start a pair of Apache's brokers."""
    shared = [f"brokerName={_NAME}"]
    master = start_apache(home / "master", heap, [*shared, f"haListenPort={free_port()}", *defines])
    own = [*shared, *_SLAVE, f"namesrvAddr={master.namesrv}", f"haListenPort={free_port()}"]

    def start_slave() -> Side:
        return start_apache(home / "slave", heap, own)

    return _pair(master, start_slave, home / "slave" / "store")


def _pair(master: Side, start_slave: Callable[[], Side], slave_store: Path) -> Pair:
    try:
        slave = start_slave()
    except BaseException:
        master.stop()
        raise
    pair = Pair(
        master.name,
        master.namesrv,
        {**master.pids, "broker-slave": slave.pids["broker"]},
        master.ready_s,
        {**master.idle_rss_mib, "broker-slave": slave.idle_rss_mib["broker"]},
        master.home,
        sends=master.sends,
        broker=master.broker,
        ready_at_s=master.ready_at_s,
        parts=[master, slave],
        start_slave=start_slave,
        slave_store=slave_store,
    )
    try:
        _wait_for_slave(pair)
    except BaseException:
        pair.stop()
        raise
    return pair


def ends_of(pair: Pair) -> tuple[int, int]:
    """Return the ends of both logs; -1 for one that is unknown."""
    with rocketpy.admin.sync.connect(pair.namesrv) as admin:
        rows = [each for each in admin.replicas() if each.end >= 0]
    master = [each.end for each in rows if not each.broker_id]
    slave = [each.end for each in rows if each.broker_id]
    return max(master, default=-1), max(slave, default=-1)


def _wait_for_slave(pair: Pair) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while True:
        master, slave = ends_of(pair)
        if master >= 0 and master == slave:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"the slave of {pair.name} does not follow: {master} {slave}")
        time.sleep(0.2)


def catch_up(pair: Pair) -> str:
    """Empty the slave, start it again, and describe how fast it gets the whole log.

    The time begins with the first bytes, because Apache's slave connects seconds after its start.
    For a slave that has everything when it is asked first, it begins with the start of its process.
    """
    assert pair.start_slave is not None
    end, _ = ends_of(pair)
    pair.parts[1].stop()
    shutil.rmtree(pair.slave_store, ignore_errors=True)
    begin_s = time.monotonic()
    pair.renew_slave(pair.start_slave())
    first_s, first = 0.0, 0
    deadline = time.monotonic() + 2 * _LIMIT_S
    with rocketpy.admin.sync.connect(pair.namesrv) as admin:
        while time.monotonic() < deadline:
            rows = {each.broker_id: each for each in admin.replicas()}
            now_s, got = time.monotonic(), rows[1].end if 1 in rows else -1
            if got > 0 and not first_s:
                first_s, first = now_s, got
            if got >= end:
                if now_s == first_s:
                    mib, took_s, says = (
                        got / _MIB,
                        now_s - begin_s,
                        ", start of the process included",
                    )
                else:
                    mib, took_s, says = (got - first) / _MIB, now_s - first_s, ""
                return f"{pair.name}: {mib:,.0f} MiB at {mib / took_s:,.0f} MiB/s{says}"
            time.sleep(_POLL_S)
    return f"{pair.name}: not done within {2 * _LIMIT_S:.0f} s"
