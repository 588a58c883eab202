"""Two broker processes of one cluster on two cores against one."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from bench.further.findings import Context, Finding
from bench.processes import Side, start_rocketpy
from bench.workloads import Round, Workload, run_load

__all__ = ["run"]

_LOADS = (
    Workload("async", "async, 256 in flight, 100 B", ("send", "async", "256", "100")),
    Workload("batch", "batches of 32, 4 callers, 100 B", ("send", "batch", "4", "100")),
)


def run(context: Context) -> list[Finding]:
    """The same loads with one and with two, in turn; the driver is on the same cores."""
    rounds: dict[tuple[str, int], list[Round]] = {}
    with _cluster(context, 1) as one, _cluster(context, 2) as two:
        for number in range(context.rounds + 1):  # the first one warms
            for load in _LOADS:
                for count, side in ((1, one), (2, two)):
                    result = run_load(context.drivers, side, "bench-send", load, context.seconds, 0)
                    if number:
                        rounds.setdefault((load.key, count), []).append(result)
                    context.say(f"{load.name}: {count}: {result.per_s:,.0f}/s")
    findings = []
    for load in _LOADS:
        rates, costs = (
            [
                statistics.median(getattr(each, figure) for each in rounds[load.key, count])
                for count in (1, 2)
            ]
            for figure in ("per_s", "cpu_us")
        )
        findings += [
            Finding(f"{load.name}: one", rates[0], "/s"),
            Finding(f"{load.name}: two", rates[1], "/s"),
            Finding(f"{load.name}: two by one", rates[1] / rates[0], "times the rate"),
            Finding(f"{load.name}: two by one", costs[1] / costs[0], "times the CPU a message"),
        ]
    return findings


@contextmanager
def _cluster(context: Context, count: int) -> Iterator[Side]:
    """A name server and brokers, each a process; charged are the brokers."""
    home = context.scratch / f"cluster-{count}"
    data = home / "namesrv" / "data"
    with context.sides(
        lambda: start_rocketpy(
            home / "namesrv", [f"dataDir={data}"], verb=["namesrv", "-p", "0"], settles_s=0.0
        )
    ) as (namesrv,):
        starters = [
            lambda number=number: start_rocketpy(
                home / f"broker-{number}",
                [
                    f"brokerName=broker-{number}",
                    "brokerIP1=127.0.0.1",
                    "listenPort=0",
                    f"storePathRootDir={home / f'broker-{number}' / 'data'}",
                ],
                verb=["broker", "-n", namesrv.namesrv],
                settles_s=1.0,
            )
            for number in range(count)
        ]
        with context.sides(*starters) as brokers:
            pids = {f"broker-{at}": each.pids["broker"] for at, each in enumerate(brokers)}
            yield replace(namesrv, pids=pids)
