"""Many seeds by hand, with progress: `python -m tests.simulation [seeds] [first seed] [name]`.

Runs every simulation (or the named one) on all processors, prints the command that repeats each
failing seed, and ends with 1 if there was one.
"""

import logging
import os
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed

import structlog

from rocketpy.testing.progress import ProgressBars
from tests.simulation import (
    test_acting,
    test_cluster,
    test_consumption,
    test_controller,
    test_controllers_with_etcd,
    test_failover,
    test_later,
    test_pop,
    test_replication,
    test_store,
    test_transactions,
)
from tests.simulation.seeds import command

SIMULATIONS: dict[str, tuple[Callable[[int], object], str]] = {
    "store": (test_store.run, test_store.TEST),
    "cluster": (test_cluster.run, test_cluster.TEST),
    "consumption": (test_consumption.run, test_consumption.TEST),
    "later": (test_later.run, test_later.TEST),
    "transactions": (test_transactions.run, test_transactions.TEST),
    "pop": (test_pop.run, test_pop.TEST),
    "replication": (test_replication.run, test_replication.TEST),
    "controller": (test_controller.run, test_controller.TEST),
    "controllers": (test_controllers_with_etcd.run, test_controllers_with_etcd.TEST),
    "failover": (test_failover.run, test_failover.TEST),
    "acting": (test_acting.run, test_acting.TEST),
}
_SHARE = 25
_STORES_PER_CLUSTER = 20
"""A cluster's seed takes about as long as that many of a store; one is run of each at least."""


def run_share(name: str, seeds: range) -> list[tuple[int, str]]:
    """Run some seeds of a simulation; return those that failed, and how."""
    logging.disable(logging.CRITICAL)
    quiet = structlog.make_filtering_bound_logger(logging.CRITICAL)
    structlog.configure(wrapper_class=quiet)
    run, _ = SIMULATIONS[name]
    failures = []
    for seed in seeds:
        try:
            run(seed)
        except Exception as error:  # noqa: BLE001 - unexpected error, the seed is told
            failures.append((seed, f"{type(error).__name__}: {error}".splitlines()[0]))
    return failures


def total_of(name: str, count: int) -> int:
    """Return how many seeds of a simulation are run where so many of a store are."""
    return count if name == "store" else max(1, count // _STORES_PER_CLUSTER)


def main() -> int:
    """Run them; return the exit code."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    names = sys.argv[3:] or list(SIMULATIONS)
    totals = {name: total_of(name, count) for name in names}
    done = dict.fromkeys(names, 0)
    bars = ProgressBars(dict(totals))
    failed = 0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        shares = {
            pool.submit(run_share, name, range(start, min(start + _SHARE, first + total))): name
            for name, total in totals.items()
            for start in range(first, first + total, _SHARE)
        }
        for share in as_completed(shares):
            name = shares[share]
            for seed, reason in share.result():
                failed += 1
                print(
                    f"{name} seed {seed}: {reason}\n  {command(seed, SIMULATIONS[name][1])}",
                    flush=True,
                )
            done[name] = min(totals[name], done[name] + _SHARE)
            bars.update(**done)
    bars.close()
    ran = ", ".join(f"{total} seeds of {name}" for name, total in totals.items())
    print(f"{ran} from {first}: {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
