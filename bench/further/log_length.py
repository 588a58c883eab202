"""Cost of a message while the log grows."""

import json
import shutil
import statistics

from bench.further.findings import Context, Finding
from bench.processes import Side, start_rocketpy
from bench.raw import connection
from bench.workloads import Workload, run_load
from rocketpy.proto.wire.codes import RequestCode

__all__ = ["run"]

STEPS_GIB = (1, 2, 4, 8, 14, 20)
TIMES_MAX = 1.1
_GIB = 1 << 30
_LEFT_FREE_GIB = 6
_SEND = Workload("send", "async, 256 in flight, 100 B", ("send", "async", "256", "100"))
_FILL = Workload("fill", "batches of 32, 4 KB", ("send", "batch", "4", "4096"))


def run(context: Context) -> list[Finding]:
    """Async sends of 100 B at each length; as long as the disk has room."""
    free_gib = shutil.disk_usage(context.scratch).free / _GIB - _LEFT_FREE_GIB
    steps = [each * context.scale for each in STEPS_GIB if each * context.scale <= free_gib]
    if not steps:
        raise RuntimeError(f"the disk has no {_LEFT_FREE_GIB + STEPS_GIB[0]} GiB left")
    findings, costs = [], []
    with context.sides(lambda: start_rocketpy(context.scratch / "log")) as (side,):
        run_load(context.drivers, side, "bench-send", _SEND, context.seconds, 0)  # warms the driver
        for gib in steps:
            while _log_bytes(side) < gib * _GIB:
                run_load(context.drivers, side, "bench-fill", _FILL, 1, 0)
            rounds = [
                run_load(context.drivers, side, "bench-send", _SEND, context.seconds, 0)
                for _ in range(context.rounds)
            ]
            costs.append(statistics.median(each.cpu_us for each in rounds))
            context.say(f"{gib:g} GiB: {costs[-1]:.2f} us CPU a message")
            name = f"log of {gib:g} GiB: CPU of a message"
            findings.append(Finding(name, costs[-1], "us"))
    findings.append(Finding("the longest by the shortest", costs[-1] / costs[0], "", TIMES_MAX))
    return findings


def _log_bytes(side: Side) -> int:
    with connection(side.broker) as client:
        answer = client.ask(RequestCode.GET_BROKER_RUNTIME_INFO, {})
    table = json.loads(bytes(answer.body))["table"]
    return int(table["commitLogMaxOffset"]) - int(table["commitLogMinOffset"])
