"""What is measured: runs of the official Java client's load drivers against one side."""

import json
import subprocess
from dataclasses import dataclass, replace

from bench.processes import PEER, Side

__all__ = ["FEATURES", "WORKLOADS", "Round", "Workload", "run_load"]


@dataclass(frozen=True)
class Workload:
    """One kind of load.

    Attributes:
        name: shown in the table.
        args: as the driver takes them, seconds left out.
        driver: its Java class.
        topic: where its messages are; by default one for each kind.
        share: of a filled topic, how much it must receive; 0 for a load that lasts a time.
    """

    name: str
    args: tuple[str, ...]
    driver: str = "Load"
    topic: str = ""
    share: float = 0.0

    @property
    def topic_name(self) -> str:
        """The topic it works on."""
        return self.topic or f"bench-{self.args[0]}"


WORKLOADS = (
    Workload("sync, 1 caller, 100 B", ("send", "sync", "1", "100")),
    Workload("sync, 32 callers, 100 B", ("send", "sync", "32", "100")),
    Workload("async, 256 in flight, 100 B", ("send", "async", "256", "100")),
    Workload("async, 256 in flight, 1 KB", ("send", "async", "256", "1024")),
    Workload("batches of 32, 4 callers, 100 B", ("send", "batch", "4", "100")),
    Workload("drain", ("drain",), share=1.0),
    Workload("end to end, 2,000/s, 100 B", ("e2e", "2000", "100")),
)
"""Plain messages."""

_FILLED = "bench-filled"
FEATURES = (
    Workload("transactions, 32 callers, 100 B", ("transaction", "32"), "FeatureLoad"),
    Workload("delayed 1 s, 256 in flight, 100 B", ("delay", "256"), "FeatureLoad"),
    Workload("SQL92, 3 of 10 match", ("sql",), "FeatureLoad", _FILLED, 0.3),
    Workload("drain, ordered", ("orderly",), "FeatureLoad", _FILLED, 1.0),
    Workload("drain, pop", ("pop",), "FeatureLoad", _FILLED, 1.0),
)
"""What goes beyond plain messages."""


@dataclass(frozen=True)
class Round:
    """One run of one workload against one side."""

    per_s: float
    cpu_us: float
    p50_us: float | None
    p99_us: float | None
    failed: int
    messages: int
    repeated: int = 0


_E2E_TRIES = 4


def run_load(side: Side, topic: str, workload: Workload, seconds: int, drain_count: int) -> Round:
    """Run the driver and return rates and the broker's CPU a message.

    An end-to-end round in which nothing arrives is run again, and counted: the official client's
    first pull is refused now and then, by any broker, when its heartbeat collides with its first
    rebalance (docs/COMPATIBILITY.md), and it then waits 20 s, longer than the round.
    """
    for attempt in range(_E2E_TRIES):
        result = _run_once(side, topic, workload, seconds, drain_count)
        if (
            workload.args[0] != "e2e"
            or result.failed < result.messages
            or attempt == _E2E_TRIES - 1
        ):
            return replace(result, repeated=attempt)
    raise AssertionError("the last attempt returns")


def _run_once(side: Side, topic: str, workload: Workload, seconds: int, drain_count: int) -> Round:
    expected = str(int(drain_count * workload.share))
    tail = [expected, "60"] if workload.share else [str(seconds)]
    driver = ["load"] if workload.driver == "Load" else ["java", workload.driver]
    command = ["bash", str(PEER), *driver, side.namesrv, topic, *workload.args, *tail]
    cpu_before = side.cpu_s()
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cpu_s = side.cpu_s() - cpu_before
    result = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    messages = max(1, int(result["messages"]))
    return Round(
        per_s=result["per_s"],
        cpu_us=cpu_s / messages * 1e6,
        p50_us=result.get("p50_us"),
        p99_us=result.get("p99_us"),
        failed=result["failed"],
        messages=messages,
    )
