"""Runs one row in a separate process, so that its resources can be measured.

python -m bench.sdk.measured CLIENT ROW ADDRESS MESSAGES NUMBER

NUMBER names what the round makes (a group). The row `fill` fills what others read. Prints a
`Measured` as JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, field
from importlib import import_module
from typing import Protocol

from bench.sdk.rows import KAFKA, NATS, OURS, Measured

_MODULES = {OURS: "ours", KAFKA: "aiokafka_client", NATS: "nats_client"}


class Stopwatch:
    """Counter of resources between `start` and `stop`, without connecting and closing."""

    def __init__(self) -> None:
        self._cpu_s = self._wall_s = 0.0
        self.cpu_s = self.wall_s = 0.0

    def start(self) -> None:
        """Begin."""
        self._wall_s, self._cpu_s = time.perf_counter(), time.process_time()

    def stop(self) -> None:
        """End."""
        self.cpu_s = time.process_time() - self._cpu_s
        self.wall_s = time.perf_counter() - self._wall_s


@dataclass(frozen=True)
class Job:
    """Task of a process.

    Attributes:
        address: of the server.
        messages: how many are measured.
        name: of what it makes: a group.
        watch: started and stopped by the row.
    """

    address: str
    messages: int
    name: str
    watch: Stopwatch = field(default_factory=Stopwatch)


class Client(Protocol):
    """Interface of a module of rows."""

    def rows(self) -> dict[str, Callable[[Job], Awaitable[None]]]:
        """The rows by their keys."""
        ...


def run(client: str, row: str, address: str, messages: int, name: str) -> Measured:
    """Run one row of one client."""
    import uvloop  # noqa: PLC0415 - as the programs that are measured use it

    module: Client = import_module(f"bench.sdk.{_MODULES[client]}")
    job = Job(address, messages, name)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_awaited(module.rows()[row](job)))
    return Measured(messages, job.watch.cpu_s / messages * 1e6, job.watch.wall_s / messages * 1e6)


async def _awaited(row: Awaitable[None]) -> None:
    await row


def main() -> int:
    """Run the row of the command line."""
    client, row, address, messages, name = sys.argv[1:]
    print(json.dumps(asdict(run(client, row, address, int(messages), name))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
