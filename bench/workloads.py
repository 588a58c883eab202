"""Workloads of the drivers with the official Java client, run against one side."""

import time
from dataclasses import dataclass, replace
from typing import Final

from bench.driver import Drivers
from bench.processes import Side

__all__ = ["FEATURES", "WORKLOADS", "Goal", "Round", "Workload", "run_load"]


@dataclass(frozen=True)
class Goal:
    """Goals of a row, ratios of RocketPy to Apache.

    Attributes:
        rate: at least; of a latency, at most.
        cpu: processor time a message, at most.
        pure: rate (or latency) without compiled parts.
    """

    rate: float
    cpu: float
    pure: float | None = None


@dataclass(frozen=True)
class Workload:
    """Workload.

    Attributes:
        key: how it is named on the command line.
        name: shown in the table.
        args: as the driver takes them, seconds left out.
        driver: its Java class.
        topic: where its messages are; by default one for each kind.
        share: of a filled topic, how much it must receive; 0 for a load that lasts a time.
        goal: what it is to reach.
        defines: settings of the brokers of both sides.
        java_options: of the driver's virtual machine.
        is_latency: what counts is p50 and p99, not the rate.
        after: arguments that follow the seconds.
    """

    key: str
    name: str
    args: tuple[str, ...]
    driver: str = "Load"
    topic: str = ""
    share: float = 0.0
    goal: Goal | None = None
    defines: tuple[str, ...] = ()
    java_options: tuple[str, ...] = ()
    is_latency: bool = False
    after: tuple[str, ...] = ()

    @property
    def topic_name(self) -> str:
        """Topic of the workload."""
        return self.topic or f"bench-{self.args[0]}"


_DRAINED: Final = "bench-drain"
_ROCKETMQ = ("-Drocketmq.serialize.type=ROCKETMQ",)
_SYNC_FLUSH = ("flushDiskType=SYNC_FLUSH",)
WORKLOADS = (
    Workload(
        "sync-1", "sync, 1 caller, 100 B", ("send", "sync", "1", "100"), goal=Goal(1.3, 0.4, 0.7)
    ),
    Workload(
        "sync-32",
        "sync, 32 callers, 100 B",
        ("send", "sync", "32", "100"),
        goal=Goal(1.7, 0.2, 0.7),
    ),
    Workload(
        "async",
        "async, 256 in flight, 100 B",
        ("send", "async", "256", "100"),
        goal=Goal(1.7, 0.2, 0.7),
    ),
    Workload(
        "properties",
        "the same with KEYS, TAGS, two properties",
        ("send", "properties", "256", "100"),
        goal=Goal(1.7, 0.2, 0.7),
    ),
    Workload(
        "1k",
        "async, 256 in flight, 1 KB",
        ("send", "async", "256", "1024"),
        goal=Goal(1.5, 0.25, 0.7),
    ),
    Workload(
        "rocketmq",
        "async, 256 in flight, ROCKETMQ headers",
        ("send", "async", "256", "100"),
        goal=Goal(1.5, 0.25, 0.7),
        java_options=_ROCKETMQ,
    ),
    Workload(
        "batch",
        "batches of 32, 4 callers, 100 B",
        ("send", "batch", "4", "100"),
        goal=Goal(1.8, 0.3, 0.5),
    ),
    Workload("drain", "drain", ("drain",), share=1.0, goal=Goal(1.1, 0.3, 0.7)),
    Workload(
        "groups",
        "drain by four groups at once",
        ("groups", "4"),
        topic=_DRAINED,
        share=2.0,
        goal=Goal(1.1, 0.3, 0.7),
    ),
    Workload(
        "e2e",
        "end to end, 2,000/s, 100 B",
        ("e2e", "2000", "100"),
        goal=Goal(0.8, 0.5, 1.0),
        is_latency=True,
    ),
    Workload(
        "sync-flush",
        "SYNC_FLUSH, async, 256 in flight, 100 B",
        ("send", "async", "256", "100"),
        goal=Goal(1.5, 0.4, 0.7),
        defines=_SYNC_FLUSH,
    ),
)
"""Workloads of ordinary messages."""

_FILLED = "bench-filled"
_AHEAD = Goal(1.0, 1.0)
FEATURES = (
    Workload(
        "transactions",
        "transactions, 32 callers, 100 B",
        ("transaction", "32"),
        "FeatureLoad",
        goal=_AHEAD,
    ),
    Workload(
        "delay",
        "delayed 1 s, 256 in flight, 100 B",
        ("delay", "256"),
        "FeatureLoad",
        goal=_AHEAD,
    ),
    Workload("sql", "SQL92, 3 of 10 match", ("sql",), "FeatureLoad", _FILLED, 0.3, _AHEAD),
    Workload("ordered", "drain, ordered", ("orderly",), "FeatureLoad", _FILLED, 1.0, _AHEAD),
    Workload("pop", "drain, pop", ("pop",), "FeatureLoad", _FILLED, 1.0, _AHEAD),
)
"""Workloads of features beyond ordinary messages."""


@dataclass(frozen=True)
class Round:
    """Result of a workload against one side.

    Attributes:
        per_s: messages a second.
        cpu_us: processor time of the broker a message, user and system.
        p50_us: median latency, where the load has one.
        p99_us: its 99th percentile.
        failed: sends that failed or messages that did not come.
        messages: number received.
        repeated: runs before this one that were thrown away.
        up_s: how long the broker had been up.
    """

    per_s: float
    cpu_us: float
    p50_us: float | None
    p99_us: float | None
    failed: int
    messages: int
    repeated: int = 0
    up_s: float = 0.0


_E2E_TRIES = 4


def run_load(
    drivers: Drivers, side: Side, topic: str, workload: Workload, seconds: int, drain_count: int
) -> Round:
    """Run the driver and return rates and the broker's CPU a message.

    An end-to-end round in which nothing arrives is run again, and counted: the official client's
    first pull is refused now and then, by any broker, when its heartbeat collides with its first
    rebalance (docs/COMPATIBILITY.md), and it then waits 20 s, longer than the round.
    """
    for attempt in range(_E2E_TRIES):
        result = _run_once(drivers, side, topic, workload, seconds, drain_count)
        if (
            workload.args[0] != "e2e"
            or result.failed < result.messages
            or attempt == _E2E_TRIES - 1
        ):
            return replace(result, repeated=attempt)
    raise AssertionError("the last attempt returns")


def _run_once(
    drivers: Drivers, side: Side, topic: str, workload: Workload, seconds: int, drain_count: int
) -> Round:
    expected = str(int(drain_count * workload.share))
    tail = [expected, "60"] if workload.share else [str(seconds)]
    words = [workload.driver, side.namesrv, topic, *workload.args, *tail, *workload.after]
    driver = drivers.get(*workload.java_options)
    up_s = time.monotonic() - side.ready_at_s
    cpu_before = side.cpu_s()
    result = driver.run(words, 60 if workload.share else seconds)
    cpu_s = side.cpu_s() - cpu_before
    messages = max(1, int(result["messages"]))
    return Round(
        per_s=result["per_s"],
        cpu_us=cpu_s / messages * 1e6,
        p50_us=result.get("p50_us"),
        p99_us=result.get("p99_us"),
        failed=result["failed"],
        messages=messages,
        up_s=up_s,
    )
